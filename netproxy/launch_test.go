package netproxy

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLaunchPath holds that the launcher, which links this package, links
// nothing with it that is slow to start.
func TestLaunchPath(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skip("needs the go command: ", err)
	}
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "net")
	for _, dep := range deps {
		switch {
		case dep == "net/http", dep == "regexp", strings.HasPrefix(dep, "crypto/"), dep == "golang.org/x/net/publicsuffix":
			t.Errorf("netproxy links %s", dep)
		}
	}
}
