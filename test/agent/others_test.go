//go:build linux

package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// TestOtherAgents starts agents whose servers nobody plays here. Each starts under the profile of its
// name, and asks a host of that profile first, which is refused; the control is that the profile allows it.
func TestOtherAgents(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	programs, err := npm.FetchAgents(t.Context())
	if err != nil {
		t.Skip("needs agents:", err)
	}
	for name, agent := range map[string]struct {
		key, host string
		ask       []string
	}{
		"copilot": {"COPILOT_GITHUB_TOKEN=github_pat_x", "api.github.com", []string{"-p", "hi", "--allow-all-tools"}},
		"qwen":    {"OPENAI_API_KEY=x", "dashscope.aliyuncs.com", []string{"--auth-type", "openai", "-p", "hi"}},
		"amp":     {"AMP_API_KEY=x", "ampcode.com", []string{"-x", "hi"}},
		"cline":   {"CLINE_API_KEY=x", "api.cline.bot", []string{"say hi"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			require.NoError(t, os.MkdirAll(filepath.Join(p.Home, ".local/bin"), 0o700))
			require.NoError(t, os.Symlink(programs[name], filepath.Join(p.Home, ".local/bin", name)))
			run := func(args ...string) (string, error) {
				cmd := p.Command(host.Program(t), args...)
				cmd.Env = append(cmd.Env, agent.key)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				err := cmd.Run()
				t.Log(out.String())
				return out.String(), err
			}
			modules, _, _ := strings.Cut(programs[name], "node_modules")
			key, _, _ := strings.Cut(agent.key, "=")
			flags := []string{"--read", modules}
			out, err := run(append(flags, "--", name, "--version")...)
			require.NoError(t, err)
			require.Contains(t, out, "profile "+name+" (the command's name)")
			require.Regexp(t, `[0-9]+\.[0-9]+\.[0-9]+`, out)
			require.NotContains(t, out, key, "its key is passed")

			out, _ = run(append(append(flags, "--deny", agent.host, "--timeout", "2m", "--", name), agent.ask...)...)
			require.Contains(t, out, "denied: "+agent.host+":443")
			_, err = run("why", "connect", agent.host, "--", name)
			require.NoError(t, err)
		})
	}
}
