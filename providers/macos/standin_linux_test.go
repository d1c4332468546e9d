package macos

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy/inspect"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/test/sbpl"
)

// What stands in macOS's place here. The program of sandbox-exec reads the profile with
// [sbpl.Parse], refuses what that refuses, and keeps by Landlock and a filter what
// [sbpl.Evaluate] makes of it for directories, ports and unix sockets: names within a directory
// it does not keep. Then it becomes the command, as the real one does.

func TestMain(m *testing.M) {
	thisSystem = func() system { return linux("") }
	switch base := filepath.Base(os.Args[0]); {
	case base == "sandbox-exec":
		os.Exit(sandboxExec(os.Args[1:]))
	case base == "log":
		os.Exit(printLog(os.Args[1:]))
	case len(os.Args) == 2 && os.Args[1] == wire.Verb: // on a Mac there is no such process
		os.Exit(inspect.Main())
	case len(os.Args) > 1 && os.Args[1] == Verb:
		os.Exit(Main(os.Args[2:]))
	case len(os.Args) > 1 && roles[os.Args[1]] != nil:
		os.Exit(roles[os.Args[1]](os.Args[2:]))
	}
	os.Exit(m.Run())
}

// linux is this system in macOS's place, with programs in a directory.
func linux(dir string) system {
	return system{
		exec: filepath.Join(dir, "sandbox-exec"), stage: []string{"/proc/self/exe", Verb},
		log: []string{filepath.Join(dir, "log")}, processes: readProc, signals: [][2]int{{10, 12}, {12, 10}},
		bears: func(pid int, variable string) bool {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			return strings.Contains("\x00"+string(text), "\x00"+variable+"\x00")
		},
	}
}

func readProc() (list []process, err error) {
	entries, err := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		name, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if !ok || fields[0] == "Z" {
			continue
		}
		p := process{pid: pid, name: name[strings.IndexByte(name, '(')+1:]}
		p.parent, _ = strconv.Atoi(fields[1])
		p.group, _ = strconv.Atoi(fields[2])
		p.begun, _ = strconv.ParseInt(fields[19], 10, 64)
		list = append(list, p)
	}
	return list, err
}

// programs makes a directory with the two programs. What else stands in it says how they behave.
func programs(t *testing.T, behave ...string) system {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sandbox-exec", "log"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range behave {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := linux(dir)
	s.stage[0] = self
	return s
}

// told reports whether a stand-in is to behave in some way.
func told(what string) bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(os.Args[0]), what))
	return err == nil
}

// printLog prints what the system's log would say of a run: two lines of the kernel's, one that
// another program wrote with the same tag, and what is none.
func printLog(args []string) int {
	if told("no-log") {
		fmt.Fprintln(os.Stderr, "log: Must be admin to run 'stream' command")
		return 64
	}
	tag := regexp.MustCompile(`pccrun-[a-z0-9]+`).FindString(args[len(args)-1])
	fmt.Println("Filtering the log data using \"" + tag + "\"")
	for _, line := range []string{
		`{"eventMessage":"Sandbox: cat(12) deny(1) file-read-data \/Users\/me\/.ssh\/id_rsa\n` + tag + `","processID":0}`,
		`{"eventMessage":"Sandbox: cat(13) deny(1) file-read-data \/Users\/me\/.ssh\/id_rsa\n` + tag + `","processID":0}`,
		`{"eventMessage":"Sandbox: node(14) deny(1) mach-lookup com.apple.SecurityServer\n` + tag + `","processID":0}`,
		`{"eventMessage":"Sandbox: node(14) deny(1) mach-lookup com.apple.logd\n` + tag + `","processID":0}`,
		`{"eventMessage":"Sandbox: node(14) deny(1) file-ioctl \/dev\/dtracehelper\n` + tag + `","processID":0}`,
		`{"eventMessage":"Sandbox: forged(1) deny(1) file-read-data \/forged\n` + tag + `","processID":77}`,
		`{"eventMessage":"Sandbox: other(1) deny(1) file-read-data \/other\nelse","processID":0}`,
	} {
		fmt.Println(line)
	}
	time.Sleep(await.Patience)
	return 0
}

// sandboxExec is `sandbox-exec -p TEXT [-D NAME=VALUE …] COMMAND …`.
func sandboxExec(args []string) int {
	fail := func(code int, format string, more ...any) int {
		fmt.Fprintf(os.Stderr, "sandbox-exec: "+format+"\n", more...)
		return code
	}
	if told("nested") {
		return fail(71, "sandbox_apply: Operation not permitted")
	}
	if told("bad") {
		return fail(65, "unbound variable: x at <input string>, line 1")
	}
	text, params := "", []sbpl.Param{}
	for len(args) > 1 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-p":
			text = args[1]
		case "-D":
			name, value, _ := strings.Cut(args[1], "=")
			params = append(params, sbpl.Param{Name: name, Value: value})
		default:
			return fail(64, "option %s", args[0])
		}
		args = args[2:]
	}
	if text != "(version 1)(allow default)" {
		rules, err := sbpl.Parse(text, params)
		if err != nil {
			return fail(65, "%v", err)
		}
		if told("lax") { // and keeps nothing
		} else if err := keep(rules, params, text); err != nil {
			return fail(71, "%v", err)
		}
	}
	if strings.HasSuffix(args[0], "/usr/bin/true") {
		args[0] = "/bin/true"
	}
	return fail(71, "%v", syscall.Exec(args[0], args, os.Environ()))
}

// mac is a path as macOS has it.
func mac(path string) string {
	for _, dir := range []string{"/tmp", "/var", "/etc"} {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return "/private" + path
		}
	}
	return path
}

const (
	fsRead  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_EXECUTE
	fsWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	fsFile = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_EXECUTE
)

// keep takes away what the profile does not allow.
func keep(rules *sbpl.Rules, params []sbpl.Param, text string) error {
	runtime.LockOSThread()
	attr := struct{ fs, net uint64 }{fsRead | fsWrite, unix.LANDLOCK_ACCESS_NET_CONNECT_TCP | unix.LANDLOCK_ACCESS_NET_BIND_TCP}
	fd, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return fmt.Errorf("landlock_create_ruleset: %w", e)
	}
	allows := func(op, path string) bool {
		v, err := sbpl.Evaluate(rules, op, sbpl.Target{Path: mac(path)})
		return err == nil && v.Allowed
	}
	var walk func(dir string) error
	walk = func(dir string) error {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			descends := path == "/dev"
			for _, p := range params {
				descends = descends || strings.HasPrefix(strings.TrimPrefix(p.Value, "/private"), path+"/") && !allows("file-write-data", path)
			}
			info, err := os.Stat(path)
			if err != nil || e.Type()&os.ModeSymlink != 0 {
				continue
			}
			if descends {
				if err := walk(path); err != nil {
					return err
				}
				continue
			}
			probe, mask := path, uint64(fsFile)
			if info.IsDir() {
				probe, mask = path+"/x", fsRead|fsWrite
			}
			var rights uint64
			if allows("file-read-data", probe) {
				rights |= fsRead
			}
			if allows("file-write-data", probe) {
				rights |= fsWrite
			}
			if rights &= mask; rights == 0 {
				continue
			}
			at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(at)}
			_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
			unix.Close(at)
			if errno != 0 {
				return fmt.Errorf("landlock_add_rule %s: %w", path, errno)
			}
		}
		return nil
	}
	if err := walk("/"); err != nil {
		return err
	}
	for _, m := range regexp.MustCompile(`"localhost:([0-9]+)"`).FindAllStringSubmatch(text, -1) {
		port, _ := strconv.ParseUint(m[1], 10, 16)
		v, err := sbpl.Evaluate(rules, "network-outbound", sbpl.Address("localhost", uint16(port)))
		if err != nil || !v.Allowed {
			continue
		}
		rule := [2]uint64{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, port}
		if _, _, e := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, 2, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); e != 0 {
			return fmt.Errorf("landlock_add_rule port %d: %w", port, e)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := noUnixSockets(); err != nil {
		return err
	}
	// Of this thread alone, which becomes the command.
	if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); e != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", e)
	}
	return nil
}

// noUnixSockets refuses to make a unix socket: of its path no filter of system calls knows.
func noUnixSockets() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.AF_UNIX, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return nil
}
