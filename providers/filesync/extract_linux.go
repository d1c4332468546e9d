package filesync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// ExtractParts makes what archives hold, one after the other until [io.EOF], in a directory, which it makes
// if it is not there. It replaces nothing: what stands stays. All is made in a directory of its own first, on the same file system and
// closed to others, and has its place by renames when the last member was judged. If that ends anywhere,
// also by a kill, nothing of it is left: at once, or when the next extraction comes by.
func ExtractParts(ctx context.Context, dir string, next func() (io.Reader, error), down Down) (_ *Extracted, err error) {
	down.Limits = down.Limits.orDefault()
	x, err := begin(dir)
	if err != nil {
		return nil, fmt.Errorf("extract into %s: %w", dir, err)
	}
	defer func() {
		if e := x.end(); e != nil {
			err = errors.Join(err, fmt.Errorf("extract into %s: %w", dir, e))
		}
	}()
	a := &archive{down: &down, standing: x.standing}
	x.down = &down
	if err := x.written(a.read(ctx, next, x.put)); err != nil {
		return nil, err
	}
	x.out.NotExtracted = a.held
	if err := x.written(x.judgeGit(a)); err != nil {
		return nil, err
	}
	if err := x.finish(a); err != nil {
		return nil, fmt.Errorf("extract into %s: %w", dir, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := x.publish(a); err != nil {
		return nil, err
	}
	return &x.out, nil
}

// An extraction is one under way.
type extraction struct {
	base   *os.Root // holds the stage: the directory itself, or what it will be made in
	name   string   // of the directory in base, if it is not there yet
	target int      // the directory, -1 if it is not there yet
	stage  int      // locked
	tree   int      // in the stage
	owner  [2]int   // of what root makes
	mode   uint32   // of a directory that was not there
	down   *Down
	out    Extracted
	made   []string // paths in the order of the archive

	at    string // the directory that fd is open for
	fd    int
	ended bool // all has its place

	slots   chan []byte // of files that are written
	pending sync.WaitGroup
	failed  atomic.Pointer[error]
}

// A file of at most smallFile bytes is written beside others, and lies in memory so long. Made are all by
// one goroutine: several would wait for each other in the kernel, which makes one name in a directory at a time.
const (
	smallFile = 256 << 10
	slots     = 8
)

const (
	treeName    = "tree"
	journalName = "journal"
	backName    = "back"
)

// begin opens a directory, and makes the stage. What an extraction that was killed has left there
// is taken away.
func begin(dir string) (_ *extraction, err error) {
	x := &extraction{target: -1, stage: -1, tree: -1, fd: -1, owner: [2]int{-1, -1}}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	x.base, err = os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		x.name = filepath.Base(filepath.Clean(dir))
		x.base, err = os.OpenRoot(filepath.Dir(filepath.Clean(dir)))
	}
	if err != nil {
		return x, reason(err)
	}
	base, err := x.base.Open(".")
	if err != nil {
		return x, err
	}
	defer base.Close()
	if x.name == "" {
		if x.target, err = unix.FcntlInt(base.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return x, err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(base.Fd()), &st); err != nil {
		return x, err
	}
	if os.Geteuid() == 0 { // as an apply has it: root's work in somebody's directory is his
		x.owner = [2]int{int(st.Uid), int(st.Gid)}
	}
	if err := x.lock(int(base.Fd())); err != nil {
		return x, err
	}
	if err := x.recover(); err != nil {
		return x, fmt.Errorf("undo an interrupted extraction: %w", err)
	}
	if x.tree, err = beneath.MakeDir(x.stage, treeName); err != nil {
		return x, err
	}
	x.slots = make(chan []byte, slots)
	for range slots {
		x.slots <- make([]byte, smallFile)
	}
	return x, nil
}

// lock makes the stage, or takes over one that nobody works in any more.
func (x *extraction) lock(base int) error {
	for range 100 {
		err := unix.Mkdirat(base, stageName, 0o700)
		if err != nil && err != unix.EEXIST {
			return os.NewSyscallError("mkdirat", err)
		}
		fd, err := unix.Openat(base, stageName, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", stageName, err)
		}
		var st, now unix.Stat_t
		err = unix.Fstat(fd, &st)
		switch {
		case err != nil:
		case int(st.Uid) != os.Geteuid() || st.Mode&0o777 != 0o700:
			err = fmt.Errorf("%s: not made by pccrun: remove it", stageName)
		default:
			err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		}
		if err != nil {
			unix.Close(fd)
			if err == unix.EWOULDBLOCK {
				err = ErrBusy
			}
			return err
		}
		// Whoever had it may have removed it meanwhile.
		if unix.Fstatat(base, stageName, &now, unix.AT_SYMLINK_NOFOLLOW) == nil && now.Ino == st.Ino && now.Dev == st.Dev {
			x.stage = fd
			return nil
		}
		unix.Close(fd)
	}
	return ErrBusy
}

// end removes the stage with all that is still in it.
func (x *extraction) end() error {
	err := error(nil)
	if !x.ended {
		err = x.takeBack()
	}
	if err == nil { // else the journal says where the rest is
		err = state.RemoveAll(x.base, stageName)
	}
	x.close()
	return err
}

func (x *extraction) close() {
	for _, fd := range []int{x.fd, x.tree, x.target, x.stage} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if x.base != nil {
		x.base.Close()
	}
}

// recover clears a stage that was taken over.
func (x *extraction) recover() error {
	names, err := beneath.Entries(x.stage)
	if err != nil || len(names) == 0 {
		return err
	}
	if err := x.takeBack(); err != nil {
		return err
	}
	for _, name := range names {
		if err := state.RemoveAll(x.base, stageName+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

// standing returns what stands at a path of the directory.
func (x *extraction) standing(rel string) (target string, isLink, exists bool) {
	if x.target < 0 {
		return "", false, false
	}
	fd, err := beneath.Open(x.target, rel, unix.O_PATH)
	if err != nil {
		return "", false, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", false, true
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "/", true, true // who cannot be read leads out
	}
	return string(buf[:n]), true, true
}

// written waits for all files that are being written, and returns the first error, an earlier one before theirs.
func (x *extraction) written(err error) error {
	x.pending.Wait()
	if failed := x.failed.Load(); failed != nil && err == nil {
		err = *failed
	}
	return err
}

// in returns the directory of the tree that a path lies in.
func (x *extraction) in(rel string) (int, error) {
	dir := path.Dir(rel)
	if x.fd >= 0 && x.at == dir {
		return x.fd, nil
	}
	if x.fd >= 0 {
		unix.Close(x.fd)
	}
	var err error
	x.at = dir
	x.fd, err = beneath.Open(x.tree, dir, unix.O_PATH|unix.O_DIRECTORY)
	return x.fd, err
}

// put makes a member in the tree. Directories get their modes and times at the end.
func (x *extraction) put(m *member, body io.Reader) error {
	if m.path == "." {
		return nil
	}
	err := x.make(m, body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("extract %s: %w", m.path, err)
	}
	if failed := x.failed.Load(); failed != nil {
		err = *failed
	}
	if err == nil && x.down.Progress != nil {
		x.down.Progress(x.out.Files, x.out.Bytes)
	}
	return err
}

func (x *extraction) make(m *member, body io.Reader) error {
	dir, err := x.in(m.path)
	if err != nil {
		return err
	}
	x.made = append(x.made, m.path)
	name := path.Base(m.path)
	switch {
	case m.kind == workspace.Dir:
		x.out.Dirs++
		return os.NewSyscallError("mkdirat", unix.Mkdirat(dir, name, 0o700))
	case m.kind == workspace.Link:
		x.out.Links++
		if err := unix.Symlinkat(m.target, dir, name); err != nil {
			return os.NewSyscallError("symlinkat", err)
		}
		if err := beneath.ChownMade(dir, name, x.owner[0], x.owner[1]); err != nil {
			return err
		}
		return os.NewSyscallError("utimensat", unix.UtimesNanoAt(dir, name, times(m.mtime), unix.AT_SYMLINK_NOFOLLOW))
	case m.hard != "":
		x.out.Files++
		x.pending.Wait() // the file may be one of those
		of, err := beneath.Open(x.tree, path.Dir(m.hard), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer unix.Close(of)
		return os.NewSyscallError("linkat", unix.Linkat(of, path.Base(m.hard), dir, name, 0))
	}
	x.out.Files++
	x.out.Bytes += m.size
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	buf := <-x.slots
	n, err := readFull(body, buf[:min(m.size, smallFile)])
	if err != nil || m.size > smallFile {
		if err == nil {
			err = x.write(fd, m, buf[:n], body)
		}
		unix.Close(fd)
		x.slots <- buf
		return err
	}
	x.pending.Go(func() {
		if err := x.write(fd, m, buf[:n], nil); err != nil {
			err = fmt.Errorf("extract %s: %w", m.path, err)
			x.failed.CompareAndSwap(nil, &err)
		}
		unix.Close(fd)
		x.slots <- buf
	})
	return nil
}

// readFull fills a buffer. That there is less is no end of any kind.
func readFull(from io.Reader, buf []byte) (int, error) {
	n, err := io.ReadFull(from, buf)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// write gives a file what was read, what follows that, its owner, mode and time.
func (x *extraction) write(fd int, m *member, text []byte, rest io.Reader) error {
	for left := m.size; left > 0; {
		left -= int64(len(text))
		for b := text; len(b) > 0; {
			n, err := unix.Write(fd, b)
			if err != nil && err != unix.EINTR {
				return os.NewSyscallError("write", err)
			}
			b = b[max(n, 0):]
		}
		text = text[:min(left, int64(len(text)))]
		if _, err := readFull(rest, text); err != nil {
			return err
		}
	}
	if x.owner[0] >= 0 {
		if err := unix.Fchown(fd, x.owner[0], x.owner[1]); err != nil {
			return os.NewSyscallError("fchown", err)
		}
	}
	if err := unix.Fchmod(fd, m.mode); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	return os.NewSyscallError("utimensat", unix.UtimesNanoAt(fd, "", times(m.mtime), unix.AT_EMPTY_PATH))
}

func times(mtime time.Time) []unix.Timespec {
	if mtime.IsZero() {
		return []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	}
	return []unix.Timespec{{Nsec: unix.UTIME_NOW}, unix.NsecToTimespec(mtime.UnixNano())}
}

// finish gives directories their modes and times, the deepest first.
func (x *extraction) finish(a *archive) error {
	for _, rel := range slices.Backward(x.made) {
		m := a.members[rel]
		if m.kind != workspace.Dir {
			continue
		}
		if _, isLink, exists := x.standing(rel); exists && !isLink {
			continue // what stands stays as it is, and what goes into it is reached through this one
		}
		fd, err := beneath.Open(x.tree, rel, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			err = x.settle(fd, m)
			unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
	}
	if x.target >= 0 {
		return nil // the directory itself stays as it is
	}
	top := a.members["."]
	if top == nil {
		top = &member{mode: 0o755}
	}
	x.mode = top.mode
	open := *top
	open.mode |= 0o700
	return x.settle(x.tree, &open)
}

func (x *extraction) settle(fd int, m *member) error {
	if x.owner[0] >= 0 {
		if err := unix.Fchown(fd, x.owner[0], x.owner[1]); err != nil {
			return os.NewSyscallError("fchown", err)
		}
	}
	if err := unix.Fchmod(fd, m.mode); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	return os.NewSyscallError("utimensat", unix.UtimesNanoAt(fd, "", times(m.mtime), unix.AT_EMPTY_PATH))
}

// A unit is what has its place by one rename.
type unit struct {
	path string
	ino  uint64
	mode uint32 // of a directory that its owner may not write in, and could not be moved so; else 0
}

// publish puts all that was made in its place. Where a name is taken, nothing has been.
func (x *extraction) publish(a *archive) error {
	base, err := x.base.Open(".")
	if err != nil {
		return err
	}
	defer base.Close()
	if x.target < 0 {
		passed()
		if err := unix.Renameat2(x.stage, treeName, int(base.Fd()), x.name, unix.RENAME_NOREPLACE); err != nil {
			return &fs.PathError{Op: "rename", Path: x.name, Err: err}
		}
		x.ended = true
		passed()
		return os.NewSyscallError("fchmod", unix.Fchmod(x.tree, x.mode)) // only now: what moves has to be writable
	}
	units, err := x.plan(a)
	if err != nil {
		return err
	}
	if err := x.note(units); err != nil {
		return err
	}
	passed()
	for i := range units {
		if err := x.move(&units[i]); err != nil {
			return fmt.Errorf("extract %s: %w", units[i].path, err)
		}
		passed()
	}
	// With the journal goes what could be taken back.
	if err := unix.Unlinkat(x.stage, journalName, 0); err != nil {
		return os.NewSyscallError("unlinkat", err)
	}
	x.ended = true
	passed()
	return nil
}

// passed is called wherever something was done that lasts. Tests end the process there.
var passed = func() {}

// plan says which renames bring all to its place: of each new name whose directory stands.
func (x *extraction) plan(a *archive) (units []unit, err error) {
	slices.Sort(x.made)
	whole := "" // the directory that the last unit brings
	for _, rel := range x.made {
		if whole != "" && strings.HasPrefix(rel, whole) {
			continue
		}
		m := a.members[rel]
		var now, st unix.Stat_t
		if err := x.stat(x.target, rel, &now); err == nil {
			if now.Mode&unix.S_IFMT == unix.S_IFDIR && m.kind == workspace.Dir {
				continue
			}
			return nil, &RefusedError{rel, "it exists already"}
		} else if err != unix.ENOENT {
			return nil, &RefusedError{rel, "it is below an existing " + err.Error()}
		}
		if err := x.stat(x.tree, rel, &st); err != nil {
			return nil, err
		}
		u := unit{path: rel, ino: st.Ino}
		if m.kind == workspace.Dir {
			if whole = rel + "/"; m.mode&0o200 == 0 {
				u.mode = m.mode
			}
		}
		units = append(units, u)
	}
	return units, nil
}

func (x *extraction) stat(dir int, rel string, st *unix.Stat_t) error {
	at, err := beneath.Open(dir, parentOf(rel), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.Fstatat(at, path.Base(rel), st, unix.AT_SYMLINK_NOFOLLOW)
}

// move brings a unit to its place.
func (x *extraction) move(u *unit) error {
	from, err := beneath.Open(x.tree, parentOf(u.path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	to, err := beneath.Open(x.target, parentOf(u.path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	name := path.Base(u.path)
	// A directory that moves has to be writable: its `..` changes (rename(2)).
	var dir int = -1
	if u.mode != 0 {
		if dir, err = unix.Openat(from, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		defer unix.Close(dir)
		if err := unix.Fchmod(dir, u.mode|0o200); err != nil {
			return err
		}
	}
	if err := unix.Renameat2(from, name, to, name, unix.RENAME_NOREPLACE); err != nil {
		return os.NewSyscallError("renameat2", err)
	}
	if dir >= 0 {
		return os.NewSyscallError("fchmod", unix.Fchmod(dir, u.mode))
	}
	return nil
}

const journalHeader = "pccrun extract 1\n"

// note writes down what is about to get its place.
func (x *extraction) note(units []unit) error {
	text := []byte(journalHeader)
	for _, u := range units {
		text = fmt.Appendf(text, "%d %q\n", u.ino, u.path)
	}
	const half = journalName + ".new"
	fd, err := unix.Openat(x.stage, half, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	f := os.NewFile(uintptr(fd), half)
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.NewSyscallError("renameat", unix.Renameat(x.stage, half, x.stage, journalName))
}

// takeBack moves what has its place already out of it again, the last first.
func (x *extraction) takeBack() error {
	fd, err := unix.Openat(x.stage, journalName, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || x.target < 0 {
		if err == nil {
			unix.Close(fd)
		}
		return nil
	}
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	text, err := beneath.ReadFile(fd, 1<<30)
	if err != nil {
		return err
	}
	units, err := parseUnits(string(text))
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(x.stage, backName, 0o700); err != nil && err != unix.EEXIST {
		return os.NewSyscallError("mkdirat", err)
	}
	back, err := beneath.Open(x.stage, backName, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(back)
	for i, u := range slices.Backward(units) {
		var st unix.Stat_t
		if x.stat(x.target, u.path, &st) != nil || st.Ino != u.ino {
			continue // it never came, or somebody has put something else there
		}
		if err := x.away(&u, &st, back, fmt.Sprint(i)); err != nil {
			return fmt.Errorf("undo %s: %w", u.path, err)
		}
		passed()
	}
	return os.NewSyscallError("unlinkat", unix.Unlinkat(x.stage, journalName, 0))
}

func (x *extraction) away(u *unit, st *unix.Stat_t, back int, name string) error {
	from, err := beneath.Open(x.target, parentOf(u.path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o700 != 0o700 {
		dir, err := unix.Openat(from, path.Base(u.path), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		var now unix.Stat_t
		if err := unix.Fstat(dir, &now); err != nil || now.Ino != u.ino {
			return err
		}
		if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", dir), st.Mode&0o7777|0o700); err != nil {
			return err
		}
	}
	if err := unix.Renameat2(from, path.Base(u.path), back, name, unix.RENAME_NOREPLACE); err != nil {
		return os.NewSyscallError("renameat2", err)
	}
	var moved unix.Stat_t
	if unix.Fstatat(back, name, &moved, unix.AT_SYMLINK_NOFOLLOW) == nil && moved.Ino != u.ino {
		// Somebody put it there at this moment: it is his.
		return os.NewSyscallError("renameat2", unix.Renameat2(back, name, from, path.Base(u.path), unix.RENAME_NOREPLACE))
	}
	return nil
}

// parseUnits reads what note wrote.
func parseUnits(text string) (units []unit, err error) {
	body, ok := strings.CutPrefix(text, journalHeader)
	if !ok {
		return nil, errors.New("journal of an extraction: not of a version that this program knows")
	}
	for line := range strings.Lines(body) {
		u := unit{}
		if _, err := fmt.Sscanf(line, "%d %q\n", &u.ino, &u.path); err != nil || pathTrouble(u.path) != "" {
			return nil, fmt.Errorf("journal of an extraction: %q is not understood", line)
		}
		units = append(units, u)
	}
	return units, nil
}
