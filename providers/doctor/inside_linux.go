package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// InsideVerb is the hidden verb by which a trial starts this program inside.
const InsideVerb = "__doctor"

// canary is a variable that must not be seen inside, canaryFD a descriptor.
const (
	canary   = "PCCRUN_DOCTOR_CANARY"
	canaryFD = 9
)

// A scene is what the program inside looks at: it was laid out by the one
// outside, and Host is what that one saw of itself.
type scene struct {
	Workspace, Shown, Hidden string
	Host                     map[profiles.Layer]string
}

// A look is how a layer shows: what is seen with it, and how to see it.
type look struct {
	layer profiles.Layer
	want  string   // "" for anything but what the host sees of itself
	base  []string // layers that have to be off in both launches, to see this one
	gone  []string // what the host sees of itself where somebody has done it already: then nothing is shown
	see   func(*scene) string
}

// looks is the table of layers. The terminal is not in it: a trial has none.
var looks = []look{
	{layer: profiles.LayerSeccomp, want: "a filter", base: []string{"floor"}, see: filtered},
	{layer: profiles.LayerFloor, want: "a filter", base: []string{"seccomp"}, see: filtered},
	{layer: profiles.LayerLandlock, want: "EACCES", base: []string{"hide"}, see: func(s *scene) string { // ENXIO: nobody reads it
		// Below the private /tmp of a run Landlock would let it be written.
		return open(s.Shown+"/fifo", unix.O_WRONLY|unix.O_NONBLOCK)
	}},
	{layer: profiles.LayerUsernsLimit, want: "0", see: func(*scene) string { return text("/proc/sys/user/max_user_namespaces") }},
	{layer: profiles.LayerPidns, see: func(*scene) string { return namespace("pid") }},
	{layer: profiles.LayerNetns, see: func(*scene) string { return namespace("net") }},
	{layer: profiles.LayerIpcns, see: func(*scene) string { return namespace("ipc") }},
	{layer: profiles.LayerUtsns, see: func(*scene) string { return namespace("uts") }},
	{layer: profiles.LayerCgroupns, see: func(*scene) string { return namespace("cgroup") }},
	{layer: profiles.LayerReadonly, want: "a read-only mount", see: func(s *scene) string {
		var st unix.Statfs_t
		switch err := unix.Statfs(s.Shown, &st); {
		case err != nil:
			return name(err)
		case st.Flags&unix.ST_RDONLY != 0:
			return "a read-only mount"
		}
		return "a writable mount"
	}},
	{layer: profiles.LayerHide, want: "ENOENT", see: func(s *scene) string { return open(s.Hidden+"/secret", unix.O_RDONLY) }},
	{layer: profiles.LayerProtect, want: "EROFS", see: func(s *scene) string { return open(s.Workspace+"/.git/hooks/post-commit", unix.O_WRONLY) }},
	{layer: profiles.LayerProcMasks, want: "EACCES", see: func(*scene) string { return open("/proc/cmdline", unix.O_RDONLY) }},
	{layer: profiles.LayerDumpable, want: "EACCES", see: func(*scene) string { return open("/proc/1/environ", unix.O_RDONLY) }},
	{layer: profiles.LayerNoNewPrivs, want: "1", base: []string{"seccomp", "floor"}, see: func(*scene) string { return status("NoNewPrivs") }},
	{layer: profiles.LayerCaps, want: "0000000000000000", see: func(*scene) string { return status("CapBnd") }},
	{layer: profiles.LayerKeyring, base: []string{"seccomp", "floor"}, gone: []string{"ENOSYS", "EPERM"}, see: func(*scene) string {
		id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
		if err != nil {
			return name(err)
		}
		return strconv.Itoa(id)
	}},
	{layer: profiles.LayerEnv, want: "not set", see: func(*scene) string {
		if os.Getenv(canary) == "" {
			return "not set"
		}
		return "the host's variable"
	}},
	{layer: profiles.LayerFds, want: "EBADF", see: func(*scene) string {
		if _, err := unix.FcntlInt(canaryFD, unix.F_GETFD, 0); err != nil {
			return name(err)
		}
		return "open"
	}},
	{layer: profiles.LayerRlimits, gone: []string{"core dumps of at most 0", "core dumps of at most 1"}, see: func(*scene) string {
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
			return name(err)
		}
		return fmt.Sprintf("core dumps of at most %d", l.Max)
	}},
	{layer: profiles.LayerSockets, see: func(s *scene) string {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return name(err)
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: s.Shown + "/socket"}); err != nil {
			return name(err)
		}
		return "connected"
	}},
}

// Inside is the other side of a trial: it prints what it sees, and returns the
// exit status.
func Inside(args []string) int {
	var s scene
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &s) != nil {
		return 125
	}
	if err := json.NewEncoder(os.Stdout).Encode(s.look()); err != nil {
		return 1
	}
	return 0
}

// look returns what each layer shows where it is called.
func (s *scene) look() map[profiles.Layer]string {
	seen := map[profiles.Layer]string{}
	for _, l := range looks {
		seen[l.layer] = l.see(s)
	}
	return seen
}

// filtered asks for what both filters refuse, with addresses that the kernel
// finds bad before it asks who may: that there are filters says nothing, since a
// launch without these two may still have one that allows all.
func filtered(*scene) string {
	if _, _, errno := unix.Syscall6(unix.SYS_MOUNT, 0, 0, 0, 0, 0, 0); errno == unix.EPERM {
		return "a filter"
	}
	return "no filter"
}

// status returns a field of /proc/self/status.
func status(field string) string {
	for line := range strings.Lines(text("/proc/self/status")) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func text(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return name(err)
	}
	return strings.TrimSpace(string(b))
}

func namespace(kind string) string {
	link, err := os.Readlink(filepath.Join("/proc/self/ns", kind))
	if err != nil {
		return name(err)
	}
	return link
}

// open tells what comes of opening a file, and closes it again.
func open(path string, flags int) string {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return name(err)
	}
	unix.Close(fd)
	return "opened"
}

// name returns the name of an error's number.
func name(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}
