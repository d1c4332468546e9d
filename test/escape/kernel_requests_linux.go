package escape

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// argumentProbes try what is asked of a call that everybody needs, by one of its
// arguments: a bit of a message's flags, an option of a socket, a number of
// ioctl(2).
func argumentProbes() []Probe {
	return []Probe{
		{ID: "KS-028", Name: "out-of-band data on a unix socket", Guarantee: profiles.SysFilter, Severity: Medium, Setting: Caged,
			Expect: "EOPNOTSUPP or EPERM", Errnos: errnos("EOPNOTSUPP EPERM EINVAL"), References: refs("CVE-2025-38236"), Key: "syscalls",
			Explain: "The kernel's code for MSG_OOB between unix sockets led out of a browser's sandbox. Hardly a program uses it.",
			Payload: func(*Inside) Outcome {
				pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				must(err, "socketpair")
				defer unix.Close(pair[0])
				defer unix.Close(pair[1])
				byName := Attempt(unix.Sendto(pair[0], []byte("x"), unix.MSG_OOB, nil), "sendto with MSG_OOB")
				return Any(byName, Attempt(unix.Sendmsg(pair[0], []byte("x"), nil, nil, unix.MSG_OOB), "sendmsg with MSG_OOB"))
			}},
		{ID: "KS-094", Name: "requests that change what a file system shows", Guarantee: profiles.SysFilter, Severity: High, Setting: Caged,
			Expect: "EPERM", Errnos: errnos("EPERM EACCES ENOSYS"), References: refs("ioctl_iflags(2)", "btrfs-subvolume(8)", "CVE-2024-26644"), Key: "syscalls",
			Explain: "Mounts and rules cover names. A snapshot of a subvolume holds what is covered, one that is read-only cannot be cleared of hooks, and a directory can fold case or hide its names behind a key.",
			Payload: func(in *Inside) Outcome {
				dir, err := os.Open(in.Workspace)
				must(err)
				defer dir.Close()
				var all []Outcome
				for _, r := range []struct {
					name   string
					number uintptr
				}{
					{"BTRFS_IOC_SNAP_CREATE_V2", 0x50009417}, {"BTRFS_IOC_SUBVOL_CREATE", 0x5000940e}, {"BTRFS_IOC_SUBVOL_SETFLAGS", 0x4008941a},
					{"BCH_IOCTL_SUBVOLUME_CREATE", 0x4020bc10}, {"FS_IOC_SETFLAGS", unix.FS_IOC_SETFLAGS}, {"FS_IOC_SET_ENCRYPTION_POLICY", unix.FS_IOC_SET_ENCRYPTION_POLICY},
					{"FS_IOC_ADD_ENCRYPTION_KEY", unix.FS_IOC_ADD_ENCRYPTION_KEY},
				} {
					for _, high := range []uintptr{0, 1 << 32} {
						_, err := Call(unix.SYS_IOCTL, dir.Fd(), high|r.number, 0)
						all = append(all, Reached(err, "ioctl %s of the workspace", r.name))
					}
				}
				return Any(all...)
			}},
		{ID: "KS-095", Name: "a connection changes to another protocol", Guarantee: profiles.SysFilter, Severity: Medium, Setting: Caged,
			Expect: "ENOENT or EPERM before the kernel has looked at the name", Errnos: errnos("ENOENT EPERM ENOPROTOOPT"), References: refs("CVE-2023-0461", "CVE-2024-26582"), Key: "syscalls",
			Explain: "TCP_ULP gives an own connection to TLS in the kernel, one of its most fruitful sources of holes, where its module is loaded.",
			Payload: func(*Inside) Outcome {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				must(err, "socket")
				defer unix.Close(fd)
				var name [4]byte
				_, err = Call(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_TCP, unix.TCP_ULP, uintptr(unsafe.Pointer(&name)), 0)
				if err == unix.EINVAL { // a name of no length
					return Escaped("TCP_ULP reached the kernel")
				}
				return Attempt(err, "TCP_ULP")
			}},
	}
}
