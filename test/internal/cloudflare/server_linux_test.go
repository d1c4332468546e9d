package cloudflare_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pccrun/pccrun/test/internal/cloudflare"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/npm"
)

// client is of the bridge.
var client = npm.Client{Dir: "cloudflare-1", Library: npm.Cloudflare, Start: func() (npm.Counterpart, error) { return cloudflare.Start() }}

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
func TestBridgesClient(t *testing.T) { client.Accepts(t, told) }

// TestBridgesClientNotices is the control: a server that differs is found out.
func TestBridgesClientNotices(t *testing.T) {
	client.Notices(t, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/exec") }, faults.Fault{Status: 200, Body: "{}"}, "ran")
}
