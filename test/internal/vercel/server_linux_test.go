package vercel_test

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/tempuser"
	"github.com/pccrun/pccrun/test/internal/vercel"
)

// credential is who commands run as: never root.
var credential *syscall.Credential

func TestMain(m *testing.M) { os.Exit(tempuser.Main(m, &credential)) }

// client is Vercel's own.
var client = npm.Client{Dir: "vercel-1", Library: npm.Vercel, Start: func() (npm.Counterpart, error) { return vercel.Start(credential) }}

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
func TestOwnClient(t *testing.T) { client.Accepts(t, told) }

// TestOwnClientNotices is the control: a server that differs is found out.
func TestOwnClientNotices(t *testing.T) {
	client.Notices(t, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/cmd") }, faults.Fault{Status: 200, Body: "{}"}, "ran")
}
