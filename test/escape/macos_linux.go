package escape

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// What the probes for a Mac do on Linux, where tests see that each control can succeed.

// nameServer is a socket that the test listens at.
var nameServer string

func listenAsNameServer(path string) (net.Listener, error) {
	nameServer = path
	return net.Listen("unix", path)
}

// foldedName is the name itself: no disk here takes another case for it.
func foldedName(*macWorld) string { return "/.env" }

// macClone copies: not every disk here clones.
func macClone(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

func macExchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

func listsProcess(pid int) error {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err
}

func readsEnvironment(pid int, word string) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil && !bytes.Contains(text, []byte(word)) {
		err = errors.New("it is not in it")
	}
	return err
}
