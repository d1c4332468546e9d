package vercel_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/tempuser"
	"github.com/pccrun/pccrun/test/internal/vercel"
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

func start(t *testing.T) *vercel.Server {
	s, err := vercel.Start(credential)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

// run executes the script with Vercel's own client.
func run(t *testing.T, s *vercel.Server) (string, error) {
	node := npm.Node(t)
	modules, err := npm.Fetch(t.Context(), "vercel-1", npm.Vercel)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, node, "testdata/client.mjs", modules)
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, s.Environ()...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	return string(out), err
}

const told = `created my-sandbox
read héllo

absent null
ran 0 out
héllo
600
b
 err

failed 7
big 300000
killed 137
extended 120000
found ["my-other","my-sandbox"]
twice APIError 409
stopped stopped
resumed héllo

gone APIError 404
wrong token 401
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
	s.Break(func(r *http.Request) *faults.Fault {
		if strings.HasSuffix(r.URL.Path, "/cmd") {
			return &faults.Fault{Status: 200, Body: "{}"}
		}
		return nil
	})
	out, err := run(t, s)
	require.Error(t, err)
	require.NotContains(t, out, "ran")
}
