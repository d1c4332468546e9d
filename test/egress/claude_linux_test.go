package egress

import (
	"fmt"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/agent"
)

// TestClaude has the real Claude Code work with a key that it does not have:
// by TLS, streaming, inspected, to a host that is allowed and to another, which
// is the same server.
func TestClaude(t *testing.T) {
	program := claudeProgram(t)
	const key = "sk-ant-api03-the-real-key-of-the-test-0123456789"
	endpoint, err := agent.Start([]agent.Step{
		{Name: "look", Calls: []agent.Call{agent.Bash("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; cat $PCCRUN_DENIALS; grep -rs " + key[:30] + " /run /tmp ~ | head")}},
		{Say: "The job is done."},
	})
	require.NoError(t, err)
	defer endpoint.Close()
	to, err := url.Parse(fmt.Sprintf("http://127.0.0.1:%d", endpoint.Port()))
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	theWorld.site(t, claude4+":443", proxy)
	for _, host := range []string{"claude.good.example", "elsewhere.example"} {
		b := newBench(t, "--allow", "claude.good.example", "--inject", "ANTHROPIC_API_KEY=claude.good.example", "--inject-file", "ANTHROPIC_API_KEY=~/.key", "--read", filepath.Dir(program))
		require.NoError(t, os.WriteFile(filepath.Join(b.home, ".key"), []byte(key+"\n"), 0o600))
		script := strings.Join([]string{
			"export DISABLE_TELEMETRY=1 DISABLE_ERROR_REPORTING=1 DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 CLAUDE_CODE_MAX_RETRIES=0",
			"export ANTHROPIC_BASE_URL=https://" + host,
			program + " -p 'go on' --output-format stream-json --verbose --dangerously-skip-permissions </dev/null"}, "; ")
		var out string
		asked, reached := theWorld.since(func() { out, _ = b.inside(script) })
		if host == "elsewhere.example" {
			require.NotContains(t, out, "The job is done.")
			require.Contains(t, out, "to allow: --allow elsewhere.example", "the user is told")
			require.Empty(t, asked)
			require.Empty(t, reached)
			continue
		}
		require.Contains(t, out, "The job is done.")
		require.Equal(t, []string{key}, endpoint.Keys(), "the host sees the real one")
		result := endpoint.Results("look")[0]
		require.False(t, result.IsError, result.Text)
		require.Contains(t, result.Text, "ANTHROPIC_API_KEY=sk-ant-api03-")
		require.NotContains(t, result.Text+out, key[14:40], "and the sandbox never does")
	}
}
