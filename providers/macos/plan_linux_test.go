package macos

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/test/sbpl"
)

var update = flag.Bool("update", false, "write the golden values")

// planOn plans a run on a Mac of which all is said here.
func planOn(t *testing.T, change func(*profiles.Request)) *thePlan {
	const home, work = "/Users/me", "/Users/me/src/app"
	req := profiles.Request{Profile: "claude", Workspace: work, Host: profiles.Host{Home: home, Elsewhere: true, Memory: 16 << 30}, Command: []string{"claude", "-p", "x"}}
	if change != nil {
		change(&req)
	}
	policy, err := profiles.Resolve(req)
	require.NoError(t, err)
	found := &survey.Survey{Layout: &survey.Layout{
		Links:    []survey.Lead{{From: home + "/.gitconfig", To: home + "/dotfiles/gitconfig"}},
		Standing: []string{work + "/sub/.envrc"}, Protect: []string{"/Users/me/main/.git/hooks"},
	}}
	s := &providers.Survey{
		Places: []survey.Place{
			{Path: home + "/.gitconfig", Node: survey.File, Access: profiles.Read},
			{Path: home + "/.nvm/versions/v22", Node: survey.Directory, Access: profiles.Read, Why: "PATH"},
			{Path: home + "/.claude/settings.json", Node: survey.File, Access: profiles.Read, Copied: true, Text: "{}", Why: "what a home begins with"},
			{Path: work + "/twin", Node: survey.File, Access: profiles.Hide, Why: "another name of .env"},
		},
		Command: []string{"/Users/me/.nvm/versions/v22/bin/claude"}, Env: []string{"SSL_CERT_FILE=/etc/ssl/cert.pem"}, Machine: found,
	}
	p := &Provider{host: providers.Host{StateDir: home + "/.local/state/pccrun"}, system: system{stage: []string{"/usr/local/bin/pccrun", Verb}}}
	plan, err := p.Plan(policy, s, &Facts{Version: "26.1", Nofile: 10240}, providers.Command{Argv: req.Command, Env: []string{"HOME=" + home, "LANG=C", "TOKEN=secret"}, Dir: work, Label: "k7"})
	require.NoError(t, err)
	return plan.(*thePlan)
}

// TestPlan compares a plan with the one in testdata: `go test -update` writes it.
func TestPlan(t *testing.T) {
	plan := planOn(t, nil)
	text, err := json.Marshal(plan.Describe())
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(text, &all))
	require.Equal(t, plan.document.Text, all["profile"])
	delete(all, "profile") // which the built-in lists of names change: package seatbelt has its tests
	delete(all, "parameters")
	text, err = json.MarshalIndent(all, "", "  ")
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
	const golden = "testdata/plan.json"
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
		require.NoError(t, os.WriteFile(golden, append(text, '\n'), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(text))
	require.Equal(t, plan.Describe(), planOn(t, nil).Describe())

	var params []sbpl.Param
	for _, p := range plan.document.Params {
		params = append(params, sbpl.Param(p))
	}
	rules, err := sbpl.Parse(plan.document.Text, params)
	require.NoError(t, err)
	for path, allowed := range map[string]bool{
		"/Users/me/src/app/a": true, "/Users/me/dotfiles/gitconfig": true, "/Users/me/.nvm/versions/v22/bin/node": true, plan.dir + "/home/x": true,
		plan.dir + "/denials.jsonl": true, "/Users/me/.ssh/id": false, "/Users/me/src/app/twin": false, plan.dir + "/trial/canary": false, plan.dir + "/order-1": false,
	} {
		v, err := sbpl.Evaluate(rules, "file-read-data", sbpl.Target{Path: path})
		require.NoError(t, err)
		require.Equal(t, allowed, v.Allowed, path)
	}
	v, err := sbpl.Evaluate(rules, "file-write-data", sbpl.Target{Path: plan.dir + "/denials.jsonl"})
	require.NoError(t, err)
	require.False(t, v.Allowed, "the command reads what it was refused, and writes none of it")
}

// TestAnswers wants one for each guarantee of a machine, each gap with a cause.
func TestAnswers(t *testing.T) {
	for _, profile := range profiles.Builtin() {
		plan := planOn(t, func(r *profiles.Request) { r.Profile = profile })
		var names []profiles.Guarantee
		for _, a := range plan.Answers() {
			names = append(names, a.Guarantee)
			require.Equal(t, a.State == profiles.Kept, a.Cause == "", "%s %s", profile, a.Guarantee)
			if a.State != profiles.Missing {
				require.NotEmpty(t, a.Mechanism, a.Guarantee)
			}
		}
		for i := range profiles.Guarantees {
			g := profiles.Guarantees[i].Guarantee
			copied := g == profiles.SyncUp || g == profiles.SyncDown
			require.Equal(t, !copied, slices.Contains(names, g), g)
		}
		_, err := providers.Check(plan.policy, plan.Answers())
		if profile == "strict" {
			require.ErrorContains(t, err, "sys.filter: only weakly kept")
		} else {
			require.NoError(t, err, profile)
		}
		require.NotEmpty(t, plan.Warnings())
	}
	missing := map[profiles.Guarantee]func(*profiles.Request){
		profiles.ResMemory: func(r *profiles.Request) { r.Limits[0] = "1g" },
		profiles.NetInject: func(r *profiles.Request) { r.Inject = []string{"TOKEN=api.anthropic.com"} },
	}
	for g, change := range missing {
		plan := planOn(t, change)
		_, err := providers.Check(plan.policy, plan.Answers())
		var one *providers.MissingError
		require.ErrorAs(t, err, &one)
		require.Equal(t, g, one.Answer.Guarantee)
	}
}

func TestDenials(t *testing.T) {
	p := planOn(t, nil).policy
	for _, c := range []struct {
		operation, target string
		want              events.Denial
	}{
		{"file-read-data", "/Users/me/.ssh/id", events.Denial{Guarantee: "fs.hide", What: "read /Users/me/.ssh/id", Hint: "--read /Users/me/.ssh/id"}},
		{"file-write-create", "/Users/me/src/app/.vscode/tasks.json", events.Denial{Guarantee: "fs.protect", What: "write /Users/me/src/app/.vscode/tasks.json", Hint: "--review .vscode"}},
		{"file-write-data", "/opt/x", events.Denial{Guarantee: "fs.readonly", What: "write /opt/x", Hint: "--write /opt/x"}},
		{"process-exec", "/Users/me/bin/x", events.Denial{Guarantee: "fs.hide", What: "execute /Users/me/bin/x", Hint: "--read /Users/me/bin/x"}},
		{"network-outbound", "/private/var/run/docker.sock", events.Denial{Guarantee: "ipc.unix", What: "connect /private/var/run/docker.sock", Hint: "--socket /private/var/run/docker.sock"}},
		{"network-outbound", "1.1.1.1:443", events.Denial{Guarantee: "net.allowlist", What: "connect 1.1.1.1:443"}},
		{"network-bind", "*:8080", events.Denial{Guarantee: "net.allowlist", What: "listen *:8080"}},
		{"mach-lookup", "com.apple.SecurityServer", events.Denial{Guarantee: "sys.filter", What: "mach-lookup com.apple.SecurityServer"}},
		{"sysctl-read", "kern.procargs2", events.Denial{Guarantee: "info.kernel", What: "sysctl-read kern.procargs2"}},
		{"signal", "", events.Denial{Guarantee: "proc.isolated", What: "signal"}},
		{"ipc-posix-shm-read-data", "x", events.Denial{Guarantee: "ipc.sysv", What: "ipc-posix-shm-read-data x"}},
		{"forbidden-exec-sugid", "/usr/bin/sudo", events.Denial{Guarantee: "priv.none", What: "forbidden-exec-sugid /usr/bin/sudo"}},
	} {
		got := denialOf(c.operation, c.target, p)
		require.NotEmpty(t, got.Rule)
		got.Rule = ""
		require.Equal(t, c.want, got)
	}
}

// TestVariableIn reads what macOS says of a process.
func TestVariableIn(t *testing.T) {
	const text = "/bin/sh\x00\x00\x00sh\x00-c\x00RUN=a\x00RUN=b\x00LANG=C\x00\x00junk=1\x00"
	for variable, want := range map[string]bool{"RUN=a": false, "RUN=b": true, "LANG=C": true, "junk=1": false, "": false, "RUN=": false} {
		require.Equal(t, want, variableIn([]byte(text), 3, variable), variable)
	}
	require.False(t, variableIn([]byte("/bin/sh\x00sh\x00"), 9, "x"))
	require.False(t, variableIn(nil, 1, "x"))
}

func TestNotBegun(t *testing.T) {
	const exited = 256 // a status is the code times that
	for want, got := range map[string]error{
		"x: permission denied":                          notBegun(&report{Errno: 13}, 0, "x"),
		"macos: trial: y":                               notBegun(&report{Fail: "trial: y"}, 0, "x"),
		"macos: sandbox-exec does not take the profile": notBegun(nil, 65*exited, "x"),
		"provider native: this process is already in a sandbox, and macOS does not nest them": notBegun(nil, 71*exited, "x"),
		"macos: sandbox-exec ended before the command began (status 256)":                     notBegun(nil, exited, "x"),
	} {
		require.EqualError(t, got, want)
	}
	require.NotEmpty(t, profiles.Hint(notBegun(nil, 65*exited, "x")))
}
