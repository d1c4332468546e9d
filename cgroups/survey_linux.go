package cgroups

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/internal/shell"
)

// Survey looks at what this process may use for the resources in need, which
// are those whose limits are worth a control group. It opens no file if need is
// empty, and about a dozen otherwise; it asks no service.
//
// It knows the places where distributions mount the hierarchies, and does not
// read the table of mounts: with 5,000 of them that would cost a launch 10 ms.
func Survey(need Resource) Host {
	return machine{
		proc: "/proc/self", cgroup: "/sys/fs/cgroup", run: "/run",
		uid: os.Geteuid(), pid: os.Getpid(), env: os.Getenv, fstype: fstype, readOnly: readOnly,
	}.survey(need)
}

// A machine is where a survey looks: tests give it a tree of their own.
type machine struct {
	proc, cgroup, run string
	uid, pid          int
	env               func(string) string
	fstype            func(string) int64
	readOnly          func(string) bool // whether what is mounted there is
}

func (m machine) survey(need Resource) Host {
	h := Host{NProc: kernel.AtLeast(5, 14)}
	if need&CPUs != 0 {
		h.Processors = processors()
	}
	if need == 0 {
		return h
	}
	own, err := os.ReadFile(m.proc + "/cgroup")
	if err != nil {
		return h // a kernel without control groups
	}
	if base := m.base(); base != "" {
		h.V2 = m.trees(base, ownGroup(own, ""))
	}
	for _, r := range resources {
		if need&r == 0 {
			continue
		}
		if v, ok := m.v1(r, ownGroup(own, r.controller())); ok {
			h.V1 = append(h.V1, v)
		}
	}
	h.Hint = m.hint(own)
	return h
}

// base returns where cgroup v2 is mounted: by itself, with v1 (hybrid), or
// nowhere ("").
func (m machine) base() string {
	for _, dir := range []string{m.cgroup, m.cgroup + "/unified"} {
		if m.fstype(dir) == unix.CGROUP2_SUPER_MAGIC {
			return dir
		}
	}
	return ""
}

// trees lists the places of the v2 hierarchy mounted at base where a process
// of the group own may make groups, the cheapest first.
func (m machine) trees(base, own string) []Tree {
	dir := within(base, own)
	var trees []Tree
	above := path.Dir(dir)
	switch {
	case !exists(dir + "/cgroup.events"):
		// Only the root of the hierarchy lacks it, and may hold processes
		// and groups that have controllers.
		if m.writable(dir) {
			trees = append(trees, m.tree(dir))
		}
	case dir != base && m.uid != 0 && !isUnit(dir) && m.owns(above) && m.writable(above):
		// Somebody gave the group above to this user and put the process into a
		// group of its own below it. Root may write all groups, which says
		// nothing of who gave what, and a sibling would escape the limits of
		// this process's own group.
		trees = append(trees, m.tree(above))
	case m.writable(dir) && (!isUnit(dir) || delegated(dir)) && m.onlyProcess(dir):
		t := m.tree(dir)
		t.Leaf = true
		trees = append(trees, t)
	}
	if t, ok := m.systemd(base); ok {
		trees = append(trees, t)
	}
	return trees
}

func (m machine) tree(dir string) Tree {
	b, _ := os.ReadFile(dir + "/cgroup.controllers")
	return Tree{Dir: dir, Controllers: strings.Fields(string(b))}
}

// writable reports whether groups can be made in dir and processes cloned
// into them.
func (m machine) writable(dir string) bool {
	return access(dir) && access(dir+"/cgroup.procs") && access(dir+"/cgroup.subtree_control")
}

// onlyProcess reports whether this process is the only one in a group. With another,
// which cannot be moved out without its leave, the group has no controllers to
// hand down.
func (m machine) onlyProcess(dir string) bool {
	b, err := os.ReadFile(dir + "/cgroup.procs")
	return err == nil && string(bytes.TrimSpace(b)) == strconv.Itoa(m.pid)
}

// isUnit reports whether a group belongs to systemd, which is then the only
// one to write to the group above it (systemd's CGROUP_DELEGATION.md).
func isUnit(dir string) bool {
	switch path.Ext(dir) {
	case ".service", ".scope", ".slice":
		return true
	}
	return false
}

// delegated reports whether systemd has marked a unit's group as left to
// others (Delegate=yes).
func delegated(dir string) bool {
	var b [1]byte
	for _, attr := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, attr, b[:]); err == nil && n == 1 && b[0] == '1' {
			return true
		}
	}
	return false
}

// systemd finds the service manager that this user can ask for a scope: the
// system's for root, else the user's own. It must be seen in this process's
// own hierarchy: a bus handed into a container leads to a manager to which our
// process id means somebody else.
func (m machine) systemd(base string) (Tree, bool) {
	dir, bus := base, m.run+"/dbus/system_bus_socket"
	if m.uid != 0 {
		uid := strconv.Itoa(m.uid)
		dir = path.Join(base, "user.slice", "user-"+uid+".slice", "user@"+uid+".service")
		bus = m.userBus()
	}
	if bus == "" || !exists(m.run+"/systemd/system") || !exists(dir+"/cgroup.controllers") || !m.isSocket(bus) {
		return Tree{}, false
	}
	t := m.tree(dir)
	return Tree{Bus: bus, Leaf: true, Controllers: t.Controllers}, true
}

// userBus returns the socket of the user's bus: where the service manager has
// it, which is whom we ask, and else as sd_bus_open_user(3) finds it. The
// environment may name a bus that nobody but a desktop or a test is on.
func (m machine) userBus() string {
	if own := fmt.Sprintf("%s/user/%d/bus", m.run, m.uid); m.isSocket(own) {
		return own
	}
	if address := m.env("DBUS_SESSION_BUS_ADDRESS"); address != "" {
		return busPath(address)
	}
	if dir := m.env("XDG_RUNTIME_DIR"); path.IsAbs(dir) {
		return path.Join(dir, "bus")
	}
	return fmt.Sprintf("%s/user/%d/bus", m.run, m.uid)
}

// busPath returns the path of the first unix socket in a D-Bus address, or "".
func busPath(address string) string {
	for one := range strings.SplitSeq(address, ";") {
		rest, ok := strings.CutPrefix(one, "unix:")
		if !ok {
			continue
		}
		for pair := range strings.SplitSeq(rest, ",") {
			// An escaped path (%2f) is not one that systemd makes.
			if p, ok := strings.CutPrefix(pair, "path="); ok && path.IsAbs(p) && !strings.Contains(p, "%") {
				return path.Clean(p)
			}
		}
	}
	return ""
}

// isSocket reports whether name is a socket that belongs to this user or root.
func (m machine) isSocket(name string) bool {
	var st unix.Stat_t
	return unix.Stat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK &&
		(int(st.Uid) == m.uid || st.Uid == 0)
}

func (m machine) owns(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && int(st.Uid) == m.uid
}

// v1 finds where groups of a v1 hierarchy may be made: in this process's own
// group, so that its limits hold too, or below it in a directory that an
// administrator made for this user.
func (m machine) v1(r Resource, own string) (V1, bool) {
	base := path.Join(m.cgroup, r.controller())
	if own == "" || m.fstype(base) != unix.CGROUP_SUPER_MAGIC {
		return V1{}, false
	}
	dir := within(base, own)
	for _, d := range []string{dir, path.Join(dir, given+strconv.Itoa(m.uid))} {
		if access(d) && access(d+"/cgroup.procs") {
			return V1{Resource: r, Dir: d, Swap: exists(d + "/memory.memsw.limit_in_bytes")}, true
		}
	}
	return V1{}, false
}

// hint says what would give this user control groups. Where the controllers
// are in v1, systemd cannot hand them to a user; in v2 nobody but root hands
// down those of the top, one by one since a kernel may lack some.
func (m machine) hint(own []byte) string {
	group, mount := fmt.Sprintf("%s%d", given, m.uid), ""
	switch base := m.base(); {
	case m.readOnly(cmp.Or(base, m.cgroup+"/memory")), base != "" && exists(base+"/cgroup.events") && !exists(m.run+"/systemd/system"):
		// A container sees its own group as the top of the hierarchy, which its
		// processes are in: no command from within divides it.
		return "this container cannot make control groups: limit the container itself, e.g. docker run --memory 4g --cpus 2 --pids-limit 512"
	case m.fstype(m.cgroup+"/memory") == unix.CGROUP_SUPER_MAGIC && m.uid != 0:
		var dirs []string
		for _, r := range resources {
			dirs = append(dirs, shell.Quote(path.Join(within(path.Join(m.cgroup, r.controller()), ownGroup(own, r.controller())), group)))
		}
		all := strings.Join(dirs, " ")
		return fmt.Sprintf("as root: mkdir -p %s && chown -R %d %s", all, m.uid, all)
	case exists(m.run + "/systemd/system"):
		return "start from a login session with a user bus (package dbus-user-session), or from a unit with Delegate=yes"
	case base == "":
		mount = "mount -t cgroup2 none " + shell.Quote(m.cgroup) + "; "
		fallthrough
	default:
		top := cmp.Or(base, m.cgroup)
		dir := shell.Quote(path.Join(top, group))
		return fmt.Sprintf("as root: %[1]sfor c in cpu memory pids; do echo +$c > %[2]s; done; mkdir -p %[3]s/shell && chown -R %[4]d %[3]s && echo PID-OF-YOUR-SHELL > %[3]s/shell/cgroup.procs",
			mount, shell.Quote(path.Join(top, "cgroup.subtree_control")), dir, m.uid)
	}
}

// ownGroup returns the path of this process in a hierarchy, from the text of
// /proc/self/cgroup (cgroups(7)); controller "" is v2. It is "" if there is no
// such line.
func ownGroup(text []byte, controller string) string {
	for line := range strings.Lines(string(text)) {
		id, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		names, group, ok := strings.Cut(rest, ":")
		if !ok || !path.IsAbs(group) || (id == "0") != (controller == "") {
			continue
		}
		if slices.Contains(strings.Split(names, ","), controller) {
			return group
		}
	}
	return ""
}

// within returns the directory of a group below a mount. A group that is not
// there is the mount's own top: a container sees its group mounted, under the
// name that the host has for it.
func within(base, group string) string {
	dir := path.Join(base, path.Clean(group))
	if exists(dir) {
		return dir
	}
	return base
}

func exists(name string) bool { return unix.Access(name, unix.F_OK) == nil }

// access reports whether this process may write name. It asks for the real
// user, which is the effective one: pccrun does not run set-uid.
func access(name string) bool { return unix.Access(name, unix.W_OK) == nil }

func fstype(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	return int64(st.Type)
}

func readOnly(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// processors counts those that this process may run on.
func processors() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0
	}
	return set.Count()
}

// Processors picks n of the processors that this process may run on, for
// sched_setaffinity(2), at random so that several sandboxes do not meet on the
// same ones. It returns all if there are no more than n.
func Processors(n int) (unix.CPUSet, error) {
	var all, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return set, os.NewSyscallError("sched_getaffinity", err)
	}
	var numbers []int
	for i := 0; len(numbers) < all.Count(); i++ {
		if all.IsSet(i) {
			numbers = append(numbers, i)
		}
	}
	for _, i := range rand.Perm(len(numbers))[:min(n, len(numbers))] {
		set.Set(numbers[i])
	}
	return set, nil
}
