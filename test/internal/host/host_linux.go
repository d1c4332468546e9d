// Package host is what tests of the whole program share: where the program
// is, and what of it is still on the host.
package host

import (
	"bytes"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Program returns the path of pccrun: $PCCRUN_TEST_BIN, or else one that is
// built from the sources around the test, as `make build` does it.
func Program(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("PCCRUN_TEST_BIN"); path != "" {
		return path
	}
	path, err := build()
	require.NoError(t, err)
	return path
}

// FreePort is a port of the loopback at which nobody listens, for a program that is to: not one of those that the kernel
// gives to whoever asks for any, of which another could have it by then.
func FreePort(t testing.TB) string {
	t.Helper()
	for {
		port := strconv.Itoa(20_000 + rand.IntN(10_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			require.NoError(t, l.Close())
			return port
		}
	}
}

// build runs once a test binary; the next run's build replaces its result.
var build = sync.OnceValues(func() (string, error) {
	top, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", err
	}
	dir := string(bytes.TrimSpace(top))
	make := exec.Command("make", "-s", "build")
	make.Dir = dir
	make.Stderr = os.Stderr
	return filepath.Join(dir, "bin", "pccrun"), make.Run()
})

// Processes returns the ids of those whose command line has arg as one of its
// arguments.
func Processes(arg string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append([]byte{0}, line...), []byte("\x00"+arg+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		pids = append(pids, pid)
	}
	return pids
}
