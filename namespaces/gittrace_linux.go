package namespaces

import (
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// Where a pinned file is in git's way, git says so to whoever reads its errors, and fails. The
// flag that lets it go on it cannot know. Nothing on the disk tells the launcher of it, but for
// few cases (see [workspace.Guards.Refused]): so git is asked to write down what it does, by a
// variable, and the launcher reads that. It costs each call of git up to a quarter of a
// millisecond, so that only a run has it in which git could meet a pin.

// GitTraceRoom is how much of a disk limit is not counted for it.
const GitTraceRoom = 1 << 20

const (
	maxGitTrace     = 256 << 10 // a file of more is taken away: git begins another
	maxGitTraceRead = 8 << 20   // of one file at a time: what is before it is passed over
)

// A GitTrace reads what git writes in a sandbox, from outside. All of it is the command's to
// make up, and to replace: it is opened as the file that it is, if it is one, and read in
// parts.
type GitTrace struct {
	sandbox    *Sandbox
	translated bool
	files      [2]tracedFile // the one that stands, and the one before, into which processes may still write
	buffer     []byte

	Unsigned bool // git has failed to sign
}

type tracedFile struct {
	fd    int // 0 for none
	ino   uint64
	at    int64 // what is before has been read
	trace vcs.Trace
}

// GitTrace returns a reader of what [Plan.GitTrace] has git write. Translated says that git
// may speak another language than English.
func (s *Sandbox) GitTrace(translated bool) *GitTrace {
	return &GitTrace{sandbox: s, translated: translated}
}

// Read reads what has been written since, and reports whether anything was. See
// [vcs.Trace.Read] for what failed is asked. What grows is taken away in time: whoever
// writes goes on, and who comes later begins anew.
func (t *GitTrace) Read(failed func(path string) bool) (grown bool) {
	name := t.sandbox.plan.private(t.sandbox.plan.GitTrace)
	var st unix.Stat_t
	if unix.Fstatat(t.sandbox.Private, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && (t.files[0].fd == 0 || st.Ino != t.files[0].ino) {
		t.open(name)
	}
	if t.files[0].fd == 0 {
		return false
	}
	if t.buffer == nil {
		t.buffer = make([]byte, 16<<10)
	}
	for i := range t.files {
		if f := &t.files[i]; f.fd != 0 && f.read(t.buffer, failed) {
			grown = true
			t.Unsigned = t.Unsigned || f.trace.Unsigned
		}
	}
	if f := &t.files[0]; f.at > maxGitTrace && st.Ino == f.ino {
		_ = unix.Unlinkat(t.sandbox.Private, name, 0) // what else may be there by now is the command's loss
	}
	return grown
}

// open begins to read the file that stands.
func (t *GitTrace) open(name string) {
	fd, err := openPlain(t.sandbox.Private, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return
	}
	if t.files[1].fd != 0 {
		unix.Close(t.files[1].fd)
	}
	t.files[1] = t.files[0]
	t.files[0] = tracedFile{fd: fd, ino: st.Ino, trace: vcs.Trace{Translated: t.translated}}
}

// read goes on where it was.
func (f *tracedFile) read(buffer []byte, failed func(path string) bool) (grown bool) {
	var st unix.Stat_t
	if unix.Fstat(f.fd, &st) != nil || st.Size == f.at {
		return false
	}
	if st.Size < f.at { // somebody has emptied it
		f.at = 0
		f.trace.Forget()
	}
	if st.Size-f.at > maxGitTraceRead {
		f.at = st.Size - maxGitTraceRead
		f.trace.Skip()
	}
	for f.at < st.Size {
		n, err := unix.Pread(f.fd, buffer[:min(int64(len(buffer)), st.Size-f.at)], f.at)
		if n <= 0 || err != nil {
			break
		}
		f.trace.Read(buffer[:n], failed)
		f.at += int64(n)
	}
	return true
}

// Close ends it.
func (t *GitTrace) Close() {
	for i := range t.files {
		if fd := t.files[i].fd; fd != 0 {
			unix.Close(fd)
		}
	}
}
