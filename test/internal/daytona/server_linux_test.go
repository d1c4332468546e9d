package daytona_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/daytona"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/npm"
)

func start(t *testing.T) *daytona.Server {
	s, err := daytona.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

// run executes the script with Daytona's own client.
func run(t *testing.T, s *daytona.Server) (string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("needs node")
	}
	modules, err := npm.Fetch(t.Context(), "daytona-1", npm.Daytona)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, "node", "testdata/client.mjs", modules)
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, s.Environ()...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	return string(out), err
}

const told = `created started
read héllo

ran 7 héllo

streamed got typed
 err
 3
found true
stopped stopped
started started héllo

gone DaytonaNotFoundError
wrong key 401
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
		if strings.HasSuffix(r.URL.Path, "/exec") {
			return &faults.Fault{Status: 500, Body: "{}"}
		}
		return nil
	})
	out, err := run(t, s)
	require.Error(t, err)
	require.NotContains(t, out, "streamed")
}
