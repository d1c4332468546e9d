//go:build thin && linux

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// whole is this program built without the tag: what a launch does not need is
// only in there. Go initialises every package that is linked, at each start,
// and the escape suite and its reports would cost a launch more than its
// mounts do. An embedded string is not read until it is used.
//
//go:embed whole.bin
var whole string

// escapeUsage is printed by the whole program.
const escapeUsage = ""

// escapeHidden passes everything that concerns the escape suite on.
func escapeHidden(args []string) (code int, is bool) {
	if len(args) > 0 && (strings.HasPrefix(args[0], "__") || args[0] == "escape" || slices.Equal(args, []string{"help", "escape"})) {
		return runWhole(args), true
	}
	return 0, false
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
