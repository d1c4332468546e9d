package egress

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/internal/private"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/netproxy/inspect"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/profiles"
)

// The process that reads requests is this program again.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == wire.Verb {
		os.Exit(inspect.Main())
	}
	os.Exit(m.Run())
}

const token = "tok_0123456789abcdefghijABCDEFGHIJ"

// bench is a home with a workspace in it, and what is asked for there.
type bench struct {
	t               *testing.T
	home, workspace string
	request         profiles.Request
	environ         []string // of the host, beside the few that it always has
	state           string   // "" for nowhere
	secrets         *Secrets
	sandbox         Sandbox
	budget          *spending.Budget
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, home: private.Dir(t), sandbox: Sandbox{Hostname: "sandbox"}}
	b.workspace = filepath.Join(b.home, "work")
	require.NoError(t, os.Mkdir(b.workspace, 0o755))
	return b
}

func (b *bench) write(name, text string) {
	require.NoError(b.t, os.WriteFile(filepath.Join(b.home, name), []byte(text), 0o644))
}

// mine writes lines into the user's own file.
func (b *bench) mine(lines ...string) {
	require.NoError(b.t, os.MkdirAll(filepath.Join(b.home, filepath.Dir(outgoing.File)), 0o755))
	b.write(outgoing.File, strings.Join(lines, "\n"))
}

// plan plans the way out for the policy that the request stands for.
func (b *bench) plan() (*Plan, error) {
	req := b.request
	req.Command, req.Workspace = []string{"/bin/true"}, b.workspace
	req.Host = profiles.Host{UID: os.Getuid(), Home: b.home, Cwd: b.workspace, Memory: 8 << 30,
		Environ: append(b.environ[:len(b.environ):len(b.environ)], "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME="+b.home)}
	policy, err := profiles.Resolve(req)
	if err != nil {
		return nil, err
	}
	sandbox := b.sandbox
	sandbox.Environ = policy.Environ(req.Host.Environ)
	finder := &programs.Finder{Home: b.home, Records: programs.Records(b.home, ""), Environ: req.Host.Environ}
	return New(policy, Host{Environ: req.Host.Environ, Programs: finder, StateDir: b.state, Secrets: b.secrets, Budget: b.budget}, sandbox)
}
