package cloudflare_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/cloudflare"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/npm"
)

func start(t *testing.T) *cloudflare.Server {
	s, err := cloudflare.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

// run executes the script with a client of the bridge.
func run(t *testing.T, s *cloudflare.Server) (string, error) {
	node := npm.Node(t)
	modules, err := npm.Fetch(t.Context(), "cloudflare-1", npm.Cloudflare)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, node, "testdata/client.mjs", modules)
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, s.Environ()...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	return string(out), err
}

const told = `running true
read héllo

ran 7 out
héllo
err
there true
absent false
big 300000
wrong key SandboxProviderError
`

//test:root
func TestBridgesClient(t *testing.T) {
	s := start(t)
	out, err := run(t, s)
	require.NoError(t, err, out)
	require.Equal(t, told, out)
	require.Empty(t, s.Sandboxes(""))
}

// TestBridgesClientNotices is the control: a server that differs is found out.
func TestBridgesClientNotices(t *testing.T) {
	s := start(t)
	s.Break(func(r *http.Request) *faults.Fault {
		if strings.HasSuffix(r.URL.Path, "/exec") {
			return &faults.Fault{Status: 200, Body: "{}"}
		}
		return nil
	})
	out, err := run(t, s)
	require.Error(t, err)
	require.NotContains(t, out, "ran")
}
