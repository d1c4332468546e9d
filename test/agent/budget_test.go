//go:build linux

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/modelapi"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// reachable carries connections to the endpoint from an address of this machine that is not its loopback: what pccrun is to
// read has to come by its rules for hosts.
func reachable(t *testing.T, port int) (at string) {
	ln, err := modelapi.Listen()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				to, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
				if err != nil {
					return
				}
				defer to.Close()
				go io.Copy(to, c)
				io.Copy(c, to)
			}()
		}
	}()
	return ln.Addr().String()
}

// A budgeted agent works where requests can be counted.
type budgeted struct {
	api    spending.API
	answer string // what each answer of its endpoint costs
	// at configures the agent for a server, and returns the flags and the command that has it work.
	at    func(t *testing.T, p Project, at string) (flags, command []string)
	serve func(t *testing.T, calls []Call, last string) (port int)
}

var budgetedAgents = map[string]budgeted{
	"claude": {
		api: spending.Anthropic, answer: "$0.0003", serve: messagesAt,
		at: func(t *testing.T, p Project, at string) ([]string, []string) {
			return []string{"--env", "ANTHROPIC_BASE_URL=http://" + at, "--env", "ANTHROPIC_API_KEY=key-of-the-test", "--env", "IS_SANDBOX=1"},
				[]string{"claude", "-p", "count", "--dangerously-skip-permissions", "--model", "claude-opus-4-8"}
		},
	},
	"opencode": {
		api: spending.Anthropic, answer: "$0.0002", serve: messagesAt,
		at: func(t *testing.T, p Project, at string) ([]string, []string) {
			config := fmt.Sprintf(`{"model": "anthropic/claude-sonnet-4-5", "provider": {"anthropic": {"options": {"baseURL": "http://%s/v1"}}}}`, at)
			require.NoError(t, write(filepath.Join(p.Home, ".config/opencode/opencode.json"), config))
			return nil, []string{"opencode", "run", "--auto", "count"}
		},
	},
	"gemini": {
		api: spending.Google, answer: "$0.000004",
		serve: func(t *testing.T, calls []Call, last string) int {
			return serve(t, naming(`"modelVersion":"gemini-2.5-flash","usageMetadata"`, &generator{calls: calls, last: last}))
		},
		at: func(t *testing.T, p Project, at string) ([]string, []string) {
			return []string{"--env", "GOOGLE_GEMINI_BASE_URL=http://" + at, "--env", "GEMINI_CLI_TRUST_WORKSPACE=true"}, []string{"gemini", "-m", "gemini-2.5-flash", "--yolo", "-p", "count"}
		},
	},
	"codex": {
		api: spending.OpenAI, answer: "$0.0002",
		serve: func(t *testing.T, calls []Call, last string) int {
			return serve(t, naming(`"model":"gpt-5.2-codex","usage"`, &responder{calls: calls, last: last}))
		},
		at: func(t *testing.T, p Project, at string) ([]string, []string) {
			config := fmt.Sprintf("model_provider = \"test\"\n[model_providers.test]\nname = \"test\"\nbase_url = \"http://%s/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\nrequest_max_retries = 0\n", at)
			require.NoError(t, write(filepath.Join(p.Home, ".codex/config.toml"), config))
			return nil, []string{"codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-5.2-codex", "count"}
		},
	},
}

// naming has answers name their model before the usage: one that nobody knows costs as the dearest.
func naming(model string, h http.Handler) http.Handler {
	_, usage, _ := strings.Cut(model, ",")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		_, _ = io.WriteString(w, strings.Replace(answer.Body.String(), usage, model, 1))
	})
}

func messagesAt(t *testing.T, calls []Call, last string) int {
	e, _ := messagesOf(t, calls, last)
	return e.Port()
}

// TestBudget has each real agent work under a budget: its streams are counted, and it is ended when that is spent. With more it
// comes to its end. What a refusal says the agent prints, each by the form of its API.
//
//test:root claude
func TestBudget(t *testing.T) {
	for name, b := range budgetedAgents {
		t.Run(name, func(t *testing.T) {
			agent := TaskedAgents[name]
			if agent.Long {
				verdicts.SkipUnlessLong(t)
			}
			project := newProject(t)
			installed := slices.DeleteFunc(agent.Install(t, project), func(flag string) bool { return flag == "--model" || flag == "gemini-2.5-flash" }) // a task's
			run := func(port int, flags ...string) (code int, out, errs string) {
				at := reachable(t, port)
				own, command := b.at(t, project, at)
				cmd := project.Command(host.Program(t), slices.Concat(flags, []string{"--allow", at}, installed, own, []string{"--"}, command)...)
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				err := cmd.Run()
				t.Logf("%s said:\n%s\n%s", name, stdout.String(), stderr.String())
				if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
					code = ended.ExitCode()
				}
				return code, stdout.String(), stderr.String()
			}
			var calls []Call
			for i := range 4 {
				calls = append(calls, agent.Shell("echo "+strconv.Itoa(i)))
			}
			code, out, errs := run(b.serve(t, calls, "The job is done."), "--budget", "5")
			require.Zero(t, code)
			require.Contains(t, out, "The job is done.", "the control")
			require.NotContains(t, errs, "cost:", "nothing is estimated")
			code, out, errs = run(b.serve(t, calls, "The job is done."), "--budget", b.answer[1:]) // one, or two of those that are a little dearer
			require.Equal(t, 124, code)
			require.Contains(t, errs, "budget spent: $0.000")
			require.Contains(t, errs, " of "+b.answer)
			require.NotContains(t, out, "The job is done.")

			const said = "pccrun: with a budget: $2.20 of $2.00 spent"
			_, out, errs = run(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("X-Should-Retry", "false")
				w.WriteHeader(http.StatusPaymentRequired)
				_, _ = w.Write(b.api.Error(http.StatusPaymentRequired, said))
			})))
			require.Contains(t, out+errs, said)
		})
	}
}

// TestBudgetByStream has real agents do a task whose requests go to this machine's loopback, where nobody reads them: what they
// say of their own costs as they work ends them when the budget is spent.
//
//test:root claude
func TestBudgetByStream(t *testing.T) {
	for _, name := range []string{"claude", "opencode"} {
		t.Run(name, func(t *testing.T) {
			agent := TaskedAgents[name]
			if agent.Long {
				verdicts.SkipUnlessLong(t)
			}
			project := newProject(t)
			var calls []Call
			for i := range 4 {
				calls = append(calls, agent.Shell("sleep 1; echo "+strconv.Itoa(i)))
			}
			installed := agent.Install(t, project)
			model := map[string]string{"claude": "claude-opus-4-8", "opencode": "anthropic/claude-sonnet-4-5"}[name]
			for budget, want := range map[string]int{"5": 0, "0.0003": 124} {
				flags, _ := agent.Play(t, project, calls, "The job is done.")
				cmd := project.Command(host.Program(t), slices.Concat([]string{"task", "--agent", name, "--model", model, "--name", name + budget, "--budget", budget}, installed, flags, []string{"count"})...)
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				err := cmd.Run()
				t.Logf("%s said:\n%s\n%s", name, stdout.String(), stderr.String())
				code := 0
				if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
					code = ended.ExitCode()
				}
				require.Equal(t, want, code)
				require.Contains(t, stderr.String(), "what "+name+" says of its own costs as it works is counted, and nothing else")
				require.Contains(t, stderr.String(), "(counted by "+name+"'s own word: $0.00")
				if want != 0 {
					require.Contains(t, stderr.String(), "of $0.0003 spent; the agent is interrupted")
				}
			}
		})
	}
}
