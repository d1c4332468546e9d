package e2b_test

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/pccrun/pccrun/test/internal/e2b"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/tempuser"
)

// credential is who commands run as: never root.
var credential *syscall.Credential

func TestMain(m *testing.M) { os.Exit(tempuser.Main(m, &credential)) }

// client is E2B's own.
var client = npm.Client{Dir: "e2b-1", Library: npm.E2B, Start: func() (npm.Counterpart, error) { return e2b.Start(credential) }}

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
func TestOwnClient(t *testing.T) { client.Accepts(t, told) }

// TestOwnClientNotices is the control: a server that differs is found out.
func TestOwnClientNotices(t *testing.T) {
	client.Notices(t, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/process.Process/Start") }, faults.Fault{Cut: 100}, "ran 0")
}
