package escape

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// helpers are the processes that payloads and worlds need beside them. The tag
// is the second argument of each, by which survivors are found.
var helpers = map[string]func(args []string) int{
	"waiter":  waiter,
	"heart":   heart,
	"tracer":  tracer,
	"swapper": swapper,
	"nothing": func([]string) int { return 0 },
	// hammer DIR: see there
	"hammer": func(args []string) int {
		fight(args[0])
		return 0
	},
	"whoami": func([]string) int {
		fmt.Println(os.Getuid(), os.Geteuid())
		return 0
	},
	// unshare FLAGS: exits with the errno
	"unshare": func(args []string) int {
		flags, _ := strconv.Atoi(args[0])
		runtime.LockOSThread()
		// a user namespace must be made by a thread that is alone; the raw
		// call of a Go program never is, but clone(2) of a child is
		cmd := exec.Command(args[1], helperVerb, "nothing", args[2])
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: uintptr(flags)}
		if err := cmd.Run(); err != nil {
			var errno unix.Errno
			if errors.As(err, &errno) {
				return int(errno)
			}
			return int(unix.EIO)
		}
		return 0
	},
	// read PATH: copies a file to standard output
	"read": func(args []string) int {
		data, err := os.ReadFile(args[0])
		os.Stdout.Write(data)
		if err != nil {
			return 1
		}
		return 0
	},
	// listen ADDRESS: listens on a unix socket for a few seconds
	"listen": func(args []string) int {
		l, err := net.Listen("unix", args[0])
		if err != nil {
			return 1
		}
		defer l.Close()
		time.Sleep(5 * time.Second)
		return 0
	},
	// planter PATH: makes a file again and again
	"planter": func(args []string) int {
		for range 5000 {
			os.WriteFile(args[0], []byte("# canary\n"), 0o644)
			time.Sleep(time.Millisecond)
		}
		return 0
	},
	// hog BYTES: touches memory
	"hog": func(args []string) int {
		n, _ := strconv.Atoi(args[0])
		if o := hog(n); o.Kind != DidEscape {
			return 1
		}
		return 0
	},
	// userfault NONCE: makes a call that is refused, as another process
	"userfault": func(args []string) int {
		report(args[0], Reached(errOf(Call(unix.SYS_USERFAULTFD, 1)), "userfaultfd"))
		return 0
	},
	// orphan: starts a child that outlives it by a little
	"orphan": func(args []string) int {
		cmd := exec.Command("/proc/self/exe", helperVerb, "nothing", "orphan")
		cmd.Start()
		return 0
	},
}

func runHelper(name, _ string, args []string) int {
	h := helpers[name]
	if h == nil {
		h = archHelpers[name]
	}
	if h == nil {
		fmt.Fprintln(os.Stderr, "escape: no such helper:", name)
		return 2
	}
	return h(args)
}

// waiter is the process outside that waits to be touched.
func waiter([]string) int {
	touched := make(chan os.Signal, 1)
	signal.Notify(touched, unix.SIGUSR1)
	os.Stdout.WriteString("r")
	<-touched
	return 7
}

// heart beats: it appends to a file until it is ended, at most for a minute.
// With "daemon" it detaches itself first in every way that a daemon would.
func heart(args []string) int {
	if slices.Contains(args[1:], "daemon") {
		signal.Ignore(unix.SIGHUP, unix.SIGTERM, unix.SIGINT, unix.SIGPIPE)
		unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
		unix.Setsid()
	}
	f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return 1
	}
	for range 1200 {
		if _, err := f.WriteString("."); err != nil {
			return 1
		}
		time.Sleep(50 * time.Millisecond)
	}
	return 0
}

// statusLine returns the value of a line of /proc/PID/status.
func statusLine(pid, key string) string {
	data, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
