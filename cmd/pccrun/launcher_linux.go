//go:build launcher && !place

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
)

// whole is this program built without the tag. Go initialises every package
// that is linked, at each start: the verbs, and the clients of other providers,
// would cost a launch more than its mounts do. An embedded string is not read
// until it is used.
//
//go:embed whole.bin
var whole string

// Main is the launcher, less the exit: a run on this machine, another command in
// one, and the parts of a run. What is asked of it otherwise the whole program does.
func Main(args []string) int {
	if code, is := stage(args); is {
		return code
	}
	switch {
	case launches(args):
		return runCommand(args)
	case len(args) > 0 && args[0] == "run" && launches(args[1:]):
		return runCommand(args[1:])
	case len(args) > 0 && args[0] == "exec" && !asksHelp(args[1:]):
		run.CheckKilled(thisProgram())
		return execVerb(args[1:])
	}
	return become()
}

// launches reports whether a line is one of a run, with a command.
func launches(args []string) bool {
	return len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "--version" && slices.Contains(args, "--") && !asksHelp(args)
}

// verbs are the whole program's, and so is a line that could name one.
func verbs() []verb { return nil }

// become has the whole program do what this one was asked for.
var become = func() int { return runWhole(os.Args[1:]) }

// detached has the whole program do it.
func detached(*profiles.Request, *run.Program) (code int, gone bool) { return become(), true }

// newProvider makes this machine: the launcher has no client of another.
func newProvider(name string, req *profiles.Request, host providers.Host) (providers.Provider, error) {
	if name == providers.Native {
		return thisMachine(req, host)
	}
	return nil, nil
}

// runWhole replaces this process by the whole program, from memory
// (memfd_create(2)): it returns only if that fails.
func runWhole(args []string) int {
	self, err := os.Executable()
	if err != nil {
		return fail(inWords(err))
	}
	// Of two variables of a name the first counts: none may stand there already.
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "PCCRUN_LAUNCHER=") || strings.HasPrefix(e, wholeVariable+"=")
	})
	env = append(env, "PCCRUN_LAUNCHER="+self)
	f, err := wholeProgram()
	if err == nil {
		err = unix.Exec("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), append([]string{"pccrun"}, args...), env)
		runtime.KeepAlive(f) // its number is in the path
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return runWholeFile(args, env, err)
	}
	return fail("execute program: " + inWords(err))
}

// wholeProgram returns the whole program as a file in memory that nothing can
// change any more.
func wholeProgram() (*os.File, error) {
	fd, err := unix.MemfdCreate("pccrun", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "pccrun")
	if _, err := io.WriteString(f, whole); err != nil {
		return nil, fmt.Errorf("write program: %w", err)
	}
	for range 50 { // while the kernel itself holds a page, as compaction does, it waits 0.2 s and says EBUSY (mm/memfd.c)
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
		if err != unix.EBUSY {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("seal program: %w", err)
	}
	return f, nil
}
