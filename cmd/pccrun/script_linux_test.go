package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/kernel"
)

func init() {
	started["remap"], started["notify"], started["small"], started["keyful"], started["slack"] = remap, notify, small, keyful, slack
	started["listening"], started["hangup"] = listening, hangup
	conditions["scratch"] = func() bool { return kernel.AtLeast(6, 6) } // what fetched things can be changed on
}

// notify is a program that wants an inotify instance.
func notify() {
	if _, err := unix.InotifyInit1(0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// remap is a program that writes an x into a file through a shared mapping of it.
func remap() {
	f, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
	if err == nil {
		var b []byte
		if b, err = unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			b[0] = 'x'
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// small is a program that runs another, where a directory is a file system of a size:
// small SIZE DIRECTORY PROGRAM [ARG…].
func small() {
	const ready = "PCCRUN_TEST_SMALL"
	if os.Getenv(ready) == "" {
		c := &exec.Cmd{Path: "/proc/self/exe", Args: os.Args, Env: append(os.Environ(), ready+"=1"), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
		if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
			c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
			c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
			c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
			c.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
		}
		err := c.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(c.ProcessState.ExitCode())
	}
	os.Unsetenv(ready)
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("tmpfs", os.Args[2], "tmpfs", 0, "mode=700,size="+os.Args[1])
	}
	program := ""
	if err == nil {
		program, err = exec.LookPath(os.Args[3])
	}
	if err == nil {
		_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
		err = unix.Exec(program, os.Args[3:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// keyful is a program that takes all keys of its user, and starts another.
func keyful() {
	runtime.LockOSThread() // whose keyring it is
	_, err := unix.KeyctlJoinSessionKeyring("keyful")
	for i := 0; err == nil; i++ {
		_, err = unix.AddKey("user", "key "+strconv.Itoa(i), []byte("x"), unix.KEY_SPEC_SESSION_KEYRING)
	}
	if err == unix.EDQUOT {
		err = unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	panic(err)
}

// slack is a program that has others' timers put off by 60 microseconds, and starts one.
func slack() {
	runtime.LockOSThread() // whose slack it is
	err := unix.Prctl(unix.PR_SET_TIMERSLACK, 60000, 0, 0, 0)
	if err == nil {
		err = unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	panic(err)
}

// hangup is a program that runs another on a terminal of its own, and takes the terminal away when a file stands, after which
// FILE.gone stands too: hangup FILE PROGRAM [ARG…]. It ends as that does.
func hangup() {
	master, slave, err := terminalPair()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	slave.Close()
	for there := false; !there; time.Sleep(10 * time.Millisecond) {
		_, err := os.Stat(os.Args[1])
		there = err == nil
	}
	unix.Close(master)
	if err := os.WriteFile(os.Args[1]+".gone", nil, 0o644); err != nil {
		panic(err)
	}
	_ = cmd.Wait()
	os.Exit(cmd.ProcessState.ExitCode())
}

// listening is a program that runs another with a port of the host's loopback in PORT
// at which every client is told hello, and so at the socket that SSH_AUTH_SOCK names.
func listening() {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	serve := func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello\n")
			_ = c.Close()
		}
	}
	go serve(l)
	if path := os.Getenv("SSH_AUTH_SOCK"); path != "" {
		_ = os.Remove(path)
		s, err := net.Listen("unix", path)
		if err != nil {
			panic(err)
		}
		go serve(s)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Env = append(os.Environ(), "PORT="+port)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run()
	os.Exit(cmd.ProcessState.ExitCode())
}
