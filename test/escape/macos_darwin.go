package escape

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Usage is the help of the verb.
const Usage = `usage: pccrun escape [--json] [PROBE…]

Tries to break out on this Mac: each probe runs once as a control, in a cage of
the suite's own where it has to succeed, and once under pccrun, where it has to
fail. It touches only what it has made. docs/macos.md says how to send a report.

  --json    print the results as JSON

It exits with 0 if each probe was blocked, 1 if one has escaped, 3 if one has
shown nothing.
`

// Main runs the probes.
func Main(args []string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pccrun: escape: "+err.Error())
		return 3
	}
	return newMacSuite(self).main(args, os.Stdout)
}

// Hidden is this program as a payload.
func Hidden(args []string) (code int, is bool) {
	if len(args) > 0 && args[0] == macVerb {
		return macPayload(args[1:], os.Stdout), true
	}
	return 0, false
}

// nameServer is the socket of mDNSResponder.
const nameServer = "/private/var/run/mDNSResponder"

// foldedName names a hidden file in another case.
func foldedName(*macWorld) string { return "/.ENV" }

func macClone(from, to string) error { return unix.Clonefile(from, to, unix.CLONE_NOFOLLOW) }

func macExchange(a, b string) error {
	return unix.RenameatxNp(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_SWAP)
}

func listsProcess(pid int) error {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return err
	}
	for i := range list {
		if int(list[i].Proc.P_pid) == pid {
			return nil
		}
	}
	return errors.New("it is not among them")
}

func readsEnvironment(pid int, word string) error {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err == nil && !bytes.Contains(b, []byte(word)) {
		err = errors.New("the system does not tell it")
	}
	return err
}
