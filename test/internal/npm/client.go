package npm

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/faults"
)

// A Counterpart is a server of a test that behaves as a provider does.
type Counterpart interface {
	Environ() []string
	Sandboxes(state string) []string
	Break(fault func(r *http.Request) *faults.Fault)
	Stop() error
}

// A Client is one that others wrote.
type Client struct {
	Dir, Library string                      // see [Fetch]
	Start        func() (Counterpart, error) // a server for it
	Args         func(t *testing.T) []string // of testdata/client.mjs; nil: none
}

// run starts a server, and executes testdata/client.mjs with the client.
func (c *Client) run(t *testing.T, fault func(r *http.Request) *faults.Fault) (s Counterpart, out string, err error) {
	node := Node(t)
	s, err = c.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	s.Break(fault)
	modules, err := Fetch(t.Context(), c.Dir, c.Library)
	require.NoError(t, err)
	args := []string{"testdata/client.mjs", modules}
	if c.Args != nil {
		args = append(args, c.Args(t)...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	script := exec.CommandContext(ctx, node, args...)
	script.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, s.Environ()...)
	script.Stderr = os.Stderr
	text, err := script.Output()
	return s, string(text), err
}

// Accepts says that the client accepts the server: the script prints what is told, and no sandbox is left.
func (c *Client) Accepts(t *testing.T, told string) {
	s, out, err := c.run(t, nil)
	require.NoError(t, err, out)
	require.Equal(t, told, out)
	require.Empty(t, s.Sandboxes(""))
}

// Notices is the control: where a fault befalls calls, the client finds the server out, and the script does not come to a word.
func (c *Client) Notices(t *testing.T, befalls func(r *http.Request) bool, fault faults.Fault, word string) {
	_, out, err := c.run(t, func(r *http.Request) *faults.Fault {
		if befalls(r) {
			return &fault
		}
		return nil
	})
	require.Error(t, err)
	require.NotContains(t, out, word)
}
