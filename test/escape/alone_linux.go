package escape

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seccomp"
)

// Where the identity of a sandbox stops a probe, no launch shows whether
// another layer would have: the identity cannot be left out. The layers that
// one process can put on itself are therefore tried in a cage too, each over a
// payload that is root there, with all capabilities, and with nothing else on.

// aloneLayers are those that can be tried so, in the order of [Layers].
var aloneLayers = []profiles.Layer{
	profiles.LayerSeccomp, profiles.LayerFloor, profiles.LayerLandlock, profiles.LayerReadonly, profiles.LayerProcMasks, profiles.LayerCaps,
}

// layerReads is Landlock as strict has it, with the rights to read.
const layerReads profiles.Layer = "landlock-reads"

// aloneVerb runs a command with one layer and no other: LAYER WORKSPACE ARGV….
const aloneVerb = "__alone"

func runAlone(layer profiles.Layer, workspace string, argv []string) int {
	runtime.LockOSThread()
	err := putOn(layer, workspace)
	if err == nil {
		err = unix.Exec(argv[0], argv, os.Environ())
	}
	fmt.Fprintf(os.Stderr, "escape: %s alone: %v\n", layer, err)
	return 2
}

func putOn(layer profiles.Layer, workspace string) error {
	switch layer {
	case profiles.LayerSeccomp:
		return filterOneself(seccomp.Default())
	case profiles.LayerFloor:
		return filterOneself(seccomp.Floor())
	case profiles.LayerLandlock:
		return confineOneself(nil, workspace, "/dev", "/proc")
	case layerReads:
		// what strict gives no right to, and no mount of this cage covers
		readable, err := namespaces.Readables([]namespaces.Place{{Path: "/etc/shadow", Node: namespaces.File, Access: profiles.Hide}}, os.ReadDir)
		if err != nil {
			return err
		}
		return confineOneself(readable, workspace, "/dev", "/proc")
	case profiles.LayerReadonly:
		return mountReadOnly(workspace)
	case profiles.LayerProcMasks:
		return maskKernelFiles()
	case profiles.LayerCaps:
		return dropCapabilities()
	}
	return unix.EINVAL
}

func filterOneself(filter []byte) error {
	program := struct {
		count  uint16
		filter uintptr
	}{uint16(len(filter) / 8), uintptr(unsafe.Pointer(unsafe.SliceData(filter)))}
	_, err := Call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	return err
}

// confineOneself takes the rights to write away everywhere but below some
// directories, as pccrun does with Landlock; and those to read everywhere but
// there and where they are granted, if any are.
func confineOneself(readable []namespaces.Readable, writable ...string) error {
	const reads = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	handled := uint64(unix.LANDLOCK_ACCESS_FS_REFER<<1 - 1)
	if readable == nil {
		handled &^= reads
	}
	rules, err := Call(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)), 8, 0)
	if err != nil {
		return err
	}
	grant := func(path string, rights uint64) error {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		rule := struct { // packed: 12 bytes
			rights uint64
			fd     int32
		}{rights, int32(fd)}
		_, err = Call(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0)
		return err
	}
	for _, path := range writable {
		if err := grant(path, handled); err != nil {
			return err
		}
	}
	for _, r := range readable {
		if err := grant(r.Path, r.Rights()); err != nil && err != unix.ENOENT && err != unix.EACCES {
			return fmt.Errorf("%s: %w", r.Path, err)
		}
	}
	_, err = Call(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0)
	return err
}

// aloneNodes are devices that a sandbox has.
var aloneNodes = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// mountReadOnly takes writing, set-user-ID and devices away from the whole tree,
// and gives them back where a sandbox has them.
func mountReadOnly(workspace string) error {
	if err := privateMounts(); err != nil {
		return err
	}
	own := append([]string{workspace, "/proc"}, aloneNodes...)
	for _, path := range own {
		if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", path, err)
		}
	}
	const all = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: all}); err != nil {
		return fmt.Errorf("make / read-only: %w", err)
	}
	for _, path := range own {
		back := uint64(unix.MOUNT_ATTR_RDONLY)
		if path != workspace && path != "/proc" {
			back |= unix.MOUNT_ATTR_NODEV
		}
		if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &unix.MountAttr{Attr_clr: back}); err != nil {
			return fmt.Errorf("make %s writable: %w", path, err)
		}
	}
	return nil
}

// maskKernelFiles makes the kernel's own files read-only, or covers them, as
// the plan of a sandbox names them.
func maskKernelFiles() error {
	if err := privateMounts(); err != nil {
		return err
	}
	readOnly, covered := (&namespaces.Plan{}).KernelFiles()
	for _, path := range readOnly {
		err := unix.Mount(path, path, "", unix.MS_BIND, "")
		if err == nil {
			err = unix.MountSetattr(unix.AT_FDCWD, path, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("make %s read-only: %w", path, err)
		}
	}
	empty, err := os.MkdirTemp("/tmp", "empty-")
	if err != nil {
		return err
	}
	for _, path := range covered {
		with := "/dev/null"
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			with = empty
		}
		if err := unix.Mount(with, path, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	return nil
}

// privateMounts leaves the cage's mounts as they are.
func privateMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

// dropCapabilities empties all sets, capabilities(7): with an empty bounding
// set not even root's own execve(2) brings one back.
func dropCapabilities() error {
	for bit := uintptr(0); ; bit++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, bit, 0, 0, 0)
		if err == unix.EINVAL && bit > 0 {
			break // past the kernel's last
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", bit, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}
