package seccomp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// below pairs each floor with the filter that stands on it.
var below = map[string]string{"floor": NameDefault, "floor-nested": NameNested}

// TestFloorRefusesNothingMore: a program that runs with the filter runs with
// the floor, and is told the same: which filter speaks nobody can tell.
func TestFloorRefusesNothingMore(t *testing.T) {
	for kind, name := range below {
		for _, goarch := range []string{"amd64", "arm64"} {
			ground, filter := load(t, builtinFile(t, kind, goarch)), load(t, builtinFile(t, name, goarch))
			refused := compare(t, ground, filter, 2000, func(_ Data, got, want Action) bool {
				return got == RetAllow || want == Errno(38) // of arguments that no kernel knows
			})
			require.Greater(t, refused, 5000)
		}
	}
}

// TestFloorRefuses names, apart from the numbers that it is written with, what
// the floor must refuse whatever the arguments are.
func TestFloorRefuses(t *testing.T) {
	const never = `bpf io_uring_setup io_uring_enter io_uring_register userfaultfd perf_event_open kexec_load init_module finit_module delete_module
		open_by_handle_at fanotify_init quotactl quotactl_fd swapon swapoff reboot syslog acct settimeofday iopl ioperm modify_ldt pidfd_getfd process_madvise
		add_key keyctl request_key memfd_secret openat2 fchmodat2 cachestat mseal`
	const building = `mount umount2 pivot_root chroot setns fsopen fsmount fsconfig fspick open_tree move_mount mount_setattr sethostname clone3`
	for kind := range below {
		for _, goarch := range []string{"amd64", "arm64"} {
			program := load(t, builtinFile(t, kind, goarch))
			m, _ := machines(goarch)
			for _, a := range m.arches {
				if a.oci == "SCMP_ARCH_ARM" || a.oci == "SCMP_ARCH_X32" {
					continue // all of them, with what no filter knows
				}
				for i, list := range []string{never, building} {
					for name := range strings.FieldsSeq(list) {
						nr, known, ok := a.number(name)
						require.True(t, known, name)
						if ok {
							got := program.Run(Data{Nr: nr, Arch: a.audit})
							require.Equal(t, i == 0 || kind == "floor", got != RetAllow, "%s %s: %s %s", kind, a.oci, name, got)
						}
					}
				}
			}
		}
	}
}

// TestFloorDecidesByArguments holds the floor to the table of the default
// filter wherever that refuses, other than as a number that nobody knows.
func TestFloorDecidesByArguments(t *testing.T) {
	for kind := range below {
		for _, goarch := range []string{"amd64", "arm64"} {
			program := load(t, builtinFile(t, kind, goarch))
			native := machineOf(goarch).native()
			asked := 0
			for _, c := range argumentCases() {
				nr, _, ok := native.number(c.call)
				if unread := c.want == Errno(38) && (c.call == "socket" || c.call == "fcntl"); !ok || unread {
					continue // the kernel does not know the family or the command either
				}
				require.Equal(t, c.want, program.Run(Data{Nr: nr, Arch: native.audit, Args: c.args}), "%s %s: %s%#x", kind, goarch, c.call, c.args)
				asked++
			}
			require.Greater(t, asked, 80)
		}
	}
	program := load(t, builtinFile(t, "floor", "amd64"))
	for _, call := range []string{"clone", "unshare"} {
		nr, _, _ := machineOf("amd64").native().number(call)
		for _, flag := range []uint64{0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000} {
			require.Equal(t, Errno(1), program.Run(Data{Nr: nr, Arch: ArchX86_64, Args: [6]uint64{flag | high}}))
		}
		require.Equal(t, RetAllow, program.Run(Data{Nr: nr, Arch: ArchX86_64, Args: [6]uint64{0x200}}))
	}
}

// Each launch pays for the length, each call that is not remembered for the way.
func TestFloorIsShort(t *testing.T) {
	program := load(t, builtinFile(t, "floor", "amd64"))
	require.LessOrEqual(t, len(program.code), 310)
	for call, limit := range map[string]int{"getppid": 12, "openat": 15, "ioctl": 27, "socket": 20, "sendmsg": 13, "setsockopt": 16} {
		nr, _, _ := machineOf("amd64").native().number(call)
		_, steps := program.trace(Data{Nr: nr, Arch: ArchX86_64})
		require.LessOrEqual(t, steps, limit, call)
	}
}
