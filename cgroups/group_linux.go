package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
)

// A Group is the control groups of one sandbox: one in cgroup v2, or one in
// each v1 hierarchy that has a limit, or both. It holds a lock on each, by
// which [Leftovers] sees that the launcher lives. Its methods are not for
// concurrent use, but for Usage and Events.
type Group struct {
	dirs  []*dir
	leaf  *leaf
	sheds bool // see [Options.Sheds]
}

// A dir is one control group on the host.
type dir struct {
	path  string
	v2    bool
	lock  int // the group itself, locked
	run   int // v2: the group inside that the sandbox lives in; else -1
	procs int // for writing: the kernel judges a move by who opened the file (Linux 5.16)
}

// A leaf is where this process waits while its own group has controllers.
type leaf struct {
	path    string
	home    *os.File // cgroup.procs of the group that the process came from
	enabled []string // what that group hands down because of us
	stays   bool     // systemd removes the leaf with its scope
}

// Create makes the groups of the plan and writes their limits. On an error it
// leaves nothing behind. A plan without groups gives a Group that does
// nothing. It may move this process: see [Dir.Leaf].
func (p Plan) Create() (*Group, error) {
	g := &Group{sheds: p.Sheds}
	for _, d := range p.Dirs {
		if err := g.create(p, d); err != nil {
			return nil, errors.Join(err, g.Remove(time.Second))
		}
	}
	return g, nil
}

func (g *Group) create(p Plan, d Dir) error {
	name, err := newName()
	if err != nil {
		return err
	}
	parent := d.Parent
	if d.Mechanism == BySystemd {
		if parent, err = startScope(p.Bus, name+".scope"); err != nil {
			return err
		}
	}
	group := &dir{path: path.Join(parent, name), v2: d.Mechanism != ByV1, lock: -1, run: -1, procs: -1}
	g.dirs = append(g.dirs, group) // from here on Remove undoes it
	if d.Leaf {
		if g.leaf, err = enterLeaf(parent, name); err != nil {
			return err
		}
		g.leaf.stays = d.Mechanism == BySystemd
	}
	enabled, err := enable(parent, d.Enable)
	if g.leaf != nil {
		g.leaf.enabled = enabled
	}
	if err != nil {
		return err
	}
	if err := os.Mkdir(group.path, 0o755); err != nil {
		return err
	}
	if group.lock, err = openDir(group.path); err != nil {
		return err
	}
	if err := unix.Flock(group.lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return &fs.PathError{Op: "flock", Path: group.path, Err: err}
	}
	for _, w := range d.Writes {
		err := write(path.Join(group.path, w.File), w.Value)
		if err != nil && !(w.Optional && errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return group.open()
}

// open makes the place where the sandbox will live. In v2 that is a group below
// the one with the limits: a sandbox that may mount cgroup2 in its own
// namespace sees the lower one as the root, owned by its own user, and must not
// find the limits there.
func (d *dir) open() (err error) {
	home := d.path
	if d.v2 {
		home = path.Join(d.path, inner)
		if err := os.Mkdir(home, 0o755); err != nil {
			return err
		}
		if d.run, err = openDir(home); err != nil {
			return err
		}
	}
	procs := path.Join(home, "cgroup.procs")
	if d.procs, err = unix.Open(procs, unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
		return &fs.PathError{Op: "open", Path: procs, Err: err}
	}
	return nil
}

// Attach moves a process into all the groups that it was not cloned into ([Plan.Born]). It is for
// a sandbox of one process that has not started its command: what is forked
// earlier stays outside. It costs some 5 ms for each v1 hierarchy, because the
// kernel waits until no processor is forking.
func (g *Group) Attach(pid int) error {
	for _, d := range g.dirs {
		if d.v2 && !g.sheds {
			continue
		}
		if _, err := retry(func() (int, error) { return unix.Write(d.procs, strconv.AppendInt(nil, int64(pid), 10)) }); err != nil {
			err = fmt.Errorf("attach process %d to %s: %w", pid, d.path, err)
			if errors.Is(err, unix.EINVAL) && realTime(pid) {
				// With CONFIG_RT_GROUP_SCHED the kernel takes such a process in only where cpu.rt_runtime_us is
				// not 0 (Documentation/scheduler/sched-rt-group.rst).
				return hint.Errorf("start it by chrt --other 0, or without --cpus",
					"%w: pccrun runs with a real-time scheduling policy, which the control group does not allow", err)
			}
			return err
		}
	}
	return nil
}

// realTime reports whether a process has one of the policies SCHED_FIFO,
// SCHED_RR and SCHED_DEADLINE.
func realTime(pid int) bool {
	attr, err := unix.SchedGetAttr(pid, 0)
	return err == nil && (attr.Policy == unix.SCHED_FIFO || attr.Policy == unix.SCHED_RR || attr.Policy == unix.SCHED_DEADLINE)
}

// FD returns the descriptor for CLONE_INTO_CGROUP (clone3(2)), or -1 where the
// sandbox is not cloned into a group. The Group keeps the descriptor. The clone
// needs leave to write cgroup.procs of the nearest common ancestor, so a
// launcher that sheds root uses [Group.Attach].
func (g *Group) FD() int {
	for _, d := range g.dirs {
		if d.v2 {
			return d.run
		}
	}
	return -1
}

// Paths returns the directories of the groups, for a record of the run.
func (g *Group) Paths() []string {
	var paths []string
	for _, d := range g.dirs {
		paths = append(paths, d.path)
	}
	return paths
}

// Directories returns all that the groups consist of, deepest first: for a launcher
// that sheds root, which has somebody remove them who is still root.
func (g *Group) Directories() []string {
	var dirs []string
	for _, d := range g.dirs {
		if d.v2 {
			dirs = append(dirs, path.Join(d.path, inner))
		}
		dirs = append(dirs, d.path)
	}
	return dirs
}

// Usage returns what the groups have counted until now.
func (g *Group) Usage() Usage {
	var u Usage
	for _, d := range g.dirs {
		d.usage(&u)
	}
	return u
}

func (d *dir) usage(u *Usage) {
	u.Tasks += d.number("pids.peak") // of both versions, in newer kernels
	if d.v2 {
		u.CPU += time.Duration(d.field("cpu.stat", "usage_usec")) * time.Microsecond
		u.User += time.Duration(d.field("cpu.stat", "user_usec")) * time.Microsecond
		u.System += time.Duration(d.field("cpu.stat", "system_usec")) * time.Microsecond
		u.Memory += d.number("memory.peak")
		io := d.read("io.stat")
		u.Read += sumKeys(io, "rbytes=")
		u.Written += sumKeys(io, "wbytes=")
		u.IO = u.IO || exists(path.Join(d.path, "io.stat"))
		return
	}
	u.CPU += time.Duration(d.number("cpuacct.usage"))
	u.User += time.Duration(d.number("cpuacct.usage_user")) // these two since Linux 4.8
	u.System += time.Duration(d.number("cpuacct.usage_sys"))
	u.Memory += max(d.number("memory.memsw.max_usage_in_bytes"), d.number("memory.max_usage_in_bytes"))
}

// Events returns what happened at the limits until now.
func (g *Group) Events() Events {
	var e Events
	for _, d := range g.dirs {
		if d.v2 {
			e.OOMKills += d.field("memory.events", "oom_kill")
		} else {
			e.OOMKills += d.field("memory.oom_control", "oom_kill")
		}
		e.PidsDenied += d.field("pids.events", "max")
	}
	return e
}

// pidsBelow lists the processes in a group and below it.
func pidsBelow(dir string) []int {
	var pids []int
	_ = walk(dir, func(dir string) error {
		b, _ := os.ReadFile(path.Join(dir, "cgroup.procs"))
		for _, line := range strings.Fields(string(b)) {
			// A process of a pid namespace that is not below ours reads as 0.
			if pid, err := strconv.Atoi(line); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// Remove waits until the groups are empty and removes them, with what the
// sandbox made below them. It does not kill. After it the Group is of no use,
// whatever it returns; what could not be removed is a leftover. A launcher that has
// shed root leaves the removal to who has [Group.Directories].
func (g *Group) Remove(wait time.Duration) error {
	deadline := time.Now().Add(wait)
	var errs []error
	for _, d := range g.dirs {
		if !g.sheds || os.Geteuid() == 0 {
			errs = append(errs, removeTree(d.path, deadline))
		}
		for _, fd := range []int{d.lock, d.run, d.procs} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
	g.dirs = nil
	if g.leaf != nil {
		errs = append(errs, g.leaf.exit(deadline))
		g.leaf = nil
	}
	return errors.Join(errs...)
}

// removeTree removes a group and all below it, and tries again until deadline
// while it is busy.
func removeTree(dir string, deadline time.Time) error {
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := walk(dir, func(dir string) error {
			// rmdir(2) and not [os.Remove], which would try unlink first.
			err := unix.Rmdir(dir)
			if err == unix.ENOENT {
				return nil
			}
			if err != nil {
				return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
			}
			return nil
		})
		if !errors.Is(err, unix.EBUSY) || !time.Now().Before(deadline) {
			return err
		}
		time.Sleep(min(pause, time.Until(deadline)))
	}
}

// walk calls visit for every directory below dir, deepest first, and
// for dir.
func walk(dir string, visit func(dir string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := walk(path.Join(dir, e.Name()), visit); err != nil {
				return err
			}
		}
	}
	return visit(dir)
}

// enterLeaf moves this process out of parent into a new group below it, since
// a group of v2 that has processes cannot hand down memory ("no internal
// processes", cgroups(7)).
func enterLeaf(parent, name string) (_ *leaf, err error) {
	l := &leaf{path: path.Join(parent, name+leafSuffix)}
	if l.home, err = os.OpenFile(path.Join(parent, "cgroup.procs"), os.O_WRONLY, 0); err != nil {
		return nil, err
	}
	if err = os.Mkdir(l.path, 0o755); err == nil {
		if err = write(path.Join(l.path, "cgroup.procs"), strconv.Itoa(os.Getpid())); err == nil {
			return l, nil
		}
		err = errors.Join(err, removeTree(l.path, time.Time{}))
	}
	l.home.Close()
	return nil, err
}

// exit brings this process back to where it was.
func (l *leaf) exit(deadline time.Time) error {
	defer l.home.Close()
	if l.stays {
		return nil
	}
	control := path.Join(path.Dir(l.path), "cgroup.subtree_control")
	for _, c := range l.enabled {
		if err := write(control, "-"+c); err != nil {
			return err
		}
	}
	if _, err := l.home.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	return removeTree(l.path, deadline)
}

// enable makes a v2 group hand down controllers, and returns those that it did
// not before. One by one: systemd 247 delegates some, and one write of all
// fails as a whole.
func enable(dir string, controllers []string) ([]string, error) {
	if len(controllers) == 0 {
		return nil, nil
	}
	control := path.Join(dir, "cgroup.subtree_control")
	b, err := os.ReadFile(control)
	if err != nil {
		return nil, err
	}
	has := strings.Fields(string(b))
	var enabled []string
	for _, c := range controllers {
		if slices.Contains(has, c) {
			continue
		}
		if err := write(control, "+"+c); err != nil {
			return enabled, err
		}
		enabled = append(enabled, c)
	}
	return enabled, nil
}

// newName returns a name that says to a reader of the hierarchy whose group
// it is, and that nobody else has.
func newName() (string, error) {
	var b [4]byte
	if _, err := retry(func() (int, error) { return unix.Getrandom(b[:], 0) }); err != nil {
		return "", os.NewSyscallError("getrandom", err)
	}
	return fmt.Sprintf("%s%d-%x", prefix, os.Getpid(), b), nil
}

func openDir(name string) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// write sets a control file in one write(2), which is how the kernel takes a
// value whole.
func write(name, value string) error {
	fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if _, err := retry(func() (int, error) { return unix.Write(fd, []byte(value)) }); err != nil {
		return fmt.Errorf("write %s to %s: %w", value, name, err)
	}
	return nil
}

// retry repeats a system call that a signal has interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// read returns a file of the group, or nothing: a kernel that lacks it has not
// counted.
func (d *dir) read(file string) []byte {
	b, _ := os.ReadFile(path.Join(d.path, file))
	return b
}

func (d *dir) number(file string) int64 {
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(d.read(file))), 10, 64)
	return n
}

func (d *dir) field(file, key string) int64 { return field(d.read(file), key) }

// field returns the number after a key in the flat keyed format of
// Documentation/admin-guide/cgroup-v2.rst, "key number" a line; 0 if absent.
func field(b []byte, key string) int64 {
	for line := range bytes.Lines(b) {
		if k, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" ")); ok && string(k) == key {
			n, _ := strconv.ParseInt(string(v), 10, 64)
			return n
		}
	}
	return 0
}

// sumKeys adds up the numbers after a key such as "rbytes=" in the nested
// keyed format.
func sumKeys(b []byte, key string) int64 {
	var sum int64
	for word := range bytes.FieldsSeq(b) {
		if v, ok := bytes.CutPrefix(word, []byte(key)); ok {
			n, _ := strconv.ParseInt(string(v), 10, 64)
			sum += n
		}
	}
	return sum
}
