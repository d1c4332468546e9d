package sprites_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/machine"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/sprites"
)

// home is the one in a sprite of a name that is not known yet, or a directory of this machine.
func home(t *testing.T) []string {
	if os.Getuid() == 0 {
		return []string{machine.Home}
	}
	return []string{t.TempDir()}
}

// client is Sprites' own.
var client = npm.Client{Args: home, Dir: "sprites-1", Library: npm.Sprites, Start: func() (npm.Counterpart, error) { return sprites.Start() }}

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
func TestOwnClient(t *testing.T) { client.Accepts(t, told) }

// TestOwnClientNotices is the control: a server that differs is found out.
//
//test:root
func TestOwnClientNotices(t *testing.T) {
	client.Notices(t, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/exec") }, faults.Fault{Cut: 1}, "failed")
}
