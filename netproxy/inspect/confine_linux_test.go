package inspect

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// confinedVariable has the test's program confine itself, and try what it then must not do.
const confinedVariable = "PCCRUN_TEST_CONFINED"

func TestMain(m *testing.M) {
	switch os.Getenv(confinedVariable) {
	case "":
		os.Exit(m.Run())
	case "yes":
		if err := confine(); err != nil {
			fmt.Println("confine:", err)
			os.Exit(2)
		}
	}
	_, err := os.Open("/etc/passwd")
	fmt.Println("open", err == nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fmt.Println("listen", err == nil)
	if err == nil {
		l.Close()
	}
	fmt.Println("exec", exec.Command("/bin/true").Run() == nil)
	fmt.Println("execve", unix.Exec("/nonexistent", nil, nil) == unix.ENOENT)
	fmt.Println("signal", unix.Kill(os.Getppid(), 0) == nil && unix.Tgkill(os.Getppid(), os.Getppid(), 0) == nil)
	fmt.Println("limits", unix.Prlimit(os.Getppid(), unix.RLIMIT_CORE, nil, &unix.Rlimit{}) == nil)
	os.Exit(0)
}

// TestConfined holds that the process opens no file and no socket, executes nothing, and
// reaches no other process. The
// control is what does the same without.
func TestConfined(t *testing.T) {
	for how, may := range map[string]bool{"no": true, "yes": false} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{confinedVariable + "=" + how}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, fmt.Sprintf("open %[1]v\nlisten %[1]v\nexec %[1]v\nexecve %[1]v\nsignal %[1]v\nlimits %[1]v\n", may), string(out), how)
	}
}
