//go:build launcher && !place

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

// runWholeFile does what runWhole does where nothing may be executed from
// memory: AppArmor finds no path there, and vm.memfd_noexec forbids it. The
// file is the user's alone; the program that starts from it removes it first of
// all, so that this process can become it and need not stand between it and
// signals. It returns only if that fails.
func runWholeFile(args, env []string, why error) int {
	hint := "allow programs in memory (vm.memfd_noexec, AppArmor), or make a directory executable: " + strings.Join(programDirs(), " or ")
	root, err := programDir()
	if err != nil {
		return fail("execute program: in memory: "+why.Error()+"; in a file: "+err.Error(), hint)
	}
	defer root.Close()
	ends := make(chan os.Signal, 1) // until the file has an owner that removes it
	signal.Notify(ends, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	run.LeaveSignals()
	name := fmt.Sprintf("%s%d-%x", wholeFile, os.Getpid(), time.Now().UnixNano())
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return fail("execute program: " + inWords(err))
	}
	defer root.Remove(name)
	_, err = io.WriteString(f, whole)
	if err = errors.Join(err, f.Close()); err != nil {
		return fail("write program: " + inWords(err))
	}
	select {
	case s := <-ends:
		return 128 + int(s.(syscall.Signal))
	default:
	}
	err = unix.Exec(f.Name(), append([]string{"pccrun"}, args...), append(env, wholeVariable+"="+f.Name()))
	return fail("execute program: "+inWords(err), hint)
}

// programDirs are where the file may lie, best first. No variable of the
// environment has a part in it, TMPDIR least of all: a project can set that
// (.envrc), and whoever can write there decides what is executed.
func programDirs() []string {
	host := profiles.ThisHost()
	dirs := []string{filepath.Join("/run/user", strconv.Itoa(host.UID))}
	if filepath.IsAbs(host.Home) {
		dirs = append(dirs, filepath.Join(host.Home, ".local/state/pccrun"))
	}
	return dirs
}

// programDir opens the first of them that is the user's alone, and where
// programs may be executed.
func programDir() (*os.Root, error) {
	var errs []error
	for i, dir := range programDirs() {
		open := state.OpenExisting // /run/user is the login's to make
		if i > 0 {
			open = state.Open
		}
		root, err := open(dir, "")
		if err == nil {
			if err = executable(dir); err == nil {
				sweepPrograms(root)
				return root, nil
			}
			root.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if errs == nil {
		return nil, errors.New("there is no directory for one")
	}
	return nil, errors.Join(errs...)
}

// executable refuses a file system that is mounted noexec.
func executable(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("%s: mounted noexec", dir)
	}
	return nil
}

// sweepPrograms removes what was left by processes that were killed.
func sweepPrograms(root *os.Root) {
	names, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return
	}
	for _, entry := range names {
		rest, is := strings.CutPrefix(entry.Name(), wholeFile)
		pid, _, _ := strings.Cut(rest, "-")
		n, err := strconv.Atoi(pid)
		if !is || err != nil || n <= 0 || unix.Kill(n, 0) != unix.ESRCH {
			continue
		}
		// In another pid namespace the number is somebody else's: what runs by now
		// does not need its name.
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > time.Minute {
			_ = root.Remove(entry.Name())
		}
	}
}
