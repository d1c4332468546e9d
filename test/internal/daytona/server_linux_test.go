package daytona_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pccrun/pccrun/test/internal/daytona"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/npm"
)

// client is Daytona's own.
var client = npm.Client{Dir: "daytona-1", Library: npm.Daytona, Start: func() (npm.Counterpart, error) { return daytona.Start() }}

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
func TestOwnClient(t *testing.T) { client.Accepts(t, told) }

// TestOwnClientNotices is the control: a server that differs is found out.
func TestOwnClientNotices(t *testing.T) {
	client.Notices(t, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/exec") }, faults.Fault{Status: 500, Body: "{}"}, "streamed")
}
