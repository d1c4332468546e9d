package e2b_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/e2b"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/tempuser"
)

// credential is who commands run as: never root.
var credential *syscall.Credential

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	user, err := tempuser.New()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	credential = user.Credential()
	code := m.Run()
	if err := user.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func start(t *testing.T) *e2b.Server {
	s, err := e2b.Start(credential)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

// run executes the script with E2B's own client.
func run(t *testing.T, s *e2b.Server) (string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("needs node")
	}
	modules, err := npm.Fetch(t.Context(), "e2b-1", npm.E2B)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, "node", "testdata/client.mjs", modules)
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, s.Environ()...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	return string(out), err
}

const told = `created true
read héllo

listed ["hello.txt"]
ran 0 out
héllo
b
 err
 true
failed true 7
typed typed

processes true
killed true
big 300000
terminal true
absent FileNotFoundError
found true {"a.b":"x&y","run":"r 1"}
others 0
connected héllo

paused true
resumed héllo

ended true false
wrong key AuthenticationError
`

//test:root
func TestOwnClient(t *testing.T) {
	s := start(t)
	out, err := run(t, s)
	require.NoError(t, err, out)
	require.Equal(t, told, out)
	require.Empty(t, s.Sandboxes(""))
}

// TestOwnClientNotices is the control: a server that differs is found out.
func TestOwnClientNotices(t *testing.T) {
	s := start(t)
	var calls atomic.Int32
	s.Break(func(r *http.Request) *e2b.Fault {
		if r.URL.Path == "/process.Process/Start" && calls.Add(1) == 1 {
			return &e2b.Fault{Cut: 100}
		}
		return nil
	})
	out, err := run(t, s)
	require.Error(t, err)
	require.NotContains(t, out, "ran 0")
}
