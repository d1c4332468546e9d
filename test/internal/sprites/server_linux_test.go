package sprites_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/machine"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/sprites"
)

func start(t *testing.T) *sprites.Server {
	s, err := sprites.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

// run executes the script with Sprites' own client.
func run(t *testing.T, s *sprites.Server) (string, error) {
	node := npm.Node(t)
	modules, err := npm.Fetch(t.Context(), "sprites-1", npm.Sprites)
	require.NoError(t, err)
	home := machine.Home
	if os.Getuid() != 0 {
		home = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, node, "testdata/client.mjs", modules, home)
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, s.Environ()...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	return string(out), err
}

const told = `created my-sprite running
policy {"rules":[{"domain":"*","action":"deny"},{"domain":"example.com","action":"allow"}]}
read héllo

listed ["hello.txt"]
ran 0 out
héllo
600
b
 err

failed ExecError 7
typed 0 typed

big 300000
sessions 1 true
killed complete
slept 137
absent FilesystemError ENOENT
found ["my-other","my-sprite"]
twice APIError 409
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
//
//test:root
func TestOwnClientNotices(t *testing.T) {
	s := start(t)
	s.Break(func(r *http.Request) *faults.Fault {
		if strings.HasSuffix(r.URL.Path, "/exec") {
			return &faults.Fault{Cut: 1}
		}
		return nil
	})
	out, err := run(t, s)
	require.Error(t, err)
	require.NotContains(t, out, "failed")
}
