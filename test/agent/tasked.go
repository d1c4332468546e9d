//go:build linux

package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/npm"
)

// A Tasked is an agent that a task is given to.
type Tasked struct {
	Long    bool
	Install func(t *testing.T, p Project) (flags []string)
	// Play starts an endpoint whose model makes the calls, one a turn, and then says the last words.
	Play func(t *testing.T, p Project, calls []Call, last string) (flags []string, results func() []string)
	// What the model calls to read a file, to change it, and for a shell.
	Read  func(file string) Call
	Edit  func(file string) Call
	Shell func(command string) Call
	By    string // the end of the commit's trailer
}

// inBin puts a program's name into the PATH.
func inBin(t *testing.T, p Project, name, program string) {
	require.NoError(t, os.MkdirAll(filepath.Join(p.Home, ".local/bin"), 0o700))
	require.NoError(t, os.Symlink(program, filepath.Join(p.Home, ".local/bin", name)))
}

// messagesOf plays the Messages API.
func messagesOf(t *testing.T, calls []Call, last string) (e *Endpoint, results func() []string) {
	var steps []Step
	for i, c := range calls {
		steps = append(steps, Step{Name: fmt.Sprint(i), Calls: []Call{c}})
	}
	e, err := Start(append(steps, Step{Say: last}))
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e, func() (list []string) {
		for _, s := range steps {
			list = append(list, e.Results(s.Name)[0].Text)
		}
		return list
	}
}

// serve serves a handler of this machine's loopback.
func serve(t *testing.T, h http.Handler) (port int) {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// clients are the modules of npm's clients.
func clients(t *testing.T) string {
	modules, err := npm.FetchClients(t.Context())
	if err != nil {
		t.Skip("needs clients of npm's:", err)
	}
	if _, err := os.Stat(filepath.Join(modules, "node_modules")); err == nil {
		modules = filepath.Join(modules, "node_modules")
	}
	return modules
}

// only is the one path of a pattern.
func only(t *testing.T, parts ...string) string {
	list, err := filepath.Glob(filepath.Join(parts...))
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// TaskedAgents are those that tests know how to install and to lead.
var TaskedAgents = map[string]Tasked{
	"claude": {
		Install: func(t *testing.T, p Project) []string {
			program, err := claude.Fetch(t.Context())
			if err != nil {
				t.Skip("needs claude code:", err)
			}
			require.NoError(t, p.Install(program))
			return nil
		},
		Play: func(t *testing.T, p Project, calls []Call, last string) ([]string, func() []string) {
			e, results := messagesOf(t, calls, last)
			return []string{"--local", fmt.Sprint(e.Port()), "--env", fmt.Sprintf("ANTHROPIC_BASE_URL=http://host.pccrun.internal:%d", e.Port())}, results
		},
		Read: Read, Edit: func(file string) Call { return Edit(file, "a - b", "a + b") }, Shell: Bash, By: " " + claude.Version,
	},
	"opencode": {
		Long: true,
		Install: func(t *testing.T, p Project) []string {
			program, err := npm.FetchOpencode(t.Context())
			if err != nil {
				t.Skip("needs opencode:", err)
			}
			inBin(t, p, "opencode", program)
			return []string{"--read", program}
		},
		Play: func(t *testing.T, p Project, calls []Call, last string) ([]string, func() []string) {
			e, results := messagesOf(t, calls, last)
			config := fmt.Sprintf(`{"model": "anthropic/claude-sonnet-4-5", "provider": {"anthropic": {"options": {"baseURL": "http://127.0.0.1:%d/v1"}}}}`, e.Port())
			require.NoError(t, write(filepath.Join(p.Home, ".config/opencode/opencode.json"), config))
			return []string{"--local", fmt.Sprintf("localhost:%d", e.Port())}, results
		},
		Read: func(file string) Call { return Call{"read", map[string]any{"filePath": file}} },
		Edit: func(file string) Call {
			return Call{"edit", map[string]any{"filePath": file, "oldString": "a - b", "newString": "a + b"}}
		},
		Shell: func(command string) Call {
			return Call{"bash", map[string]any{"command": command, "description": "a step of the test"}}
		},
	},
	"gemini": {
		Long: true,
		Install: func(t *testing.T, p Project) []string {
			modules := clients(t)
			inBin(t, p, "gemini", filepath.Join(modules, ".bin/gemini"))
			inBin(t, p, "node", only(t, modules, "node-*", "bin/node"))
			require.NoError(t, write(filepath.Join(p.Home, ".gemini/settings.json"), `{"general": {"maxAttempts": 1, "retryFetchErrors": false}, "security": {"auth": {"selectedType": "gemini-api-key"}}}`))
			return []string{"--read", modules, "--model", "gemini-2.5-flash", "--env", "GEMINI_API_KEY=AIzaOfTheTest"}
		},
		Play: func(t *testing.T, p Project, calls []Call, last string) ([]string, func() []string) {
			g := &generator{calls: calls, last: last}
			port := serve(t, g)
			return []string{"--local", fmt.Sprintf("localhost:%d", port), "--env", fmt.Sprintf("GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:%d", port)}, func() []string { return g.results }
		},
		Read: func(file string) Call { return Call{"read_file", map[string]any{"file_path": file}} },
		Edit: func(file string) Call {
			return Call{"replace", map[string]any{"file_path": file, "old_string": "a - b", "new_string": "a + b", "instruction": "mend Add"}}
		},
		Shell: func(command string) Call {
			return Call{"run_shell_command", map[string]any{"command": command, "description": "a step of the test"}}
		},
	},
	"codex": {
		Long: true,
		Install: func(t *testing.T, p Project) []string {
			program := only(t, clients(t), "@openai/codex-linux-*/vendor/*/bin/codex")
			inBin(t, p, "codex", program)
			return []string{"--read", filepath.Dir(program), "--env", "OPENAI_API_KEY=sk-of-the-test"}
		},
		Play: func(t *testing.T, p Project, calls []Call, last string) ([]string, func() []string) {
			m := &responder{calls: calls, last: last}
			port := serve(t, m)
			config := fmt.Sprintf("model_provider = \"test\"\n[model_providers.test]\nname = \"test\"\nbase_url = \"http://127.0.0.1:%d/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n", port)
			require.NoError(t, write(filepath.Join(p.Home, ".codex/config.toml"), config))
			return []string{"--local", fmt.Sprintf("localhost:%d", port)}, func() []string { return m.results }
		},
		Read: func(file string) Call { return Call{"exec_command", map[string]any{"cmd": "cat " + file}} },
		Edit: func(file string) Call {
			return Call{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Update File: " + file + "\n@@\n-func Add(a, b int) int { return a - b }\n+func Add(a, b int) int { return a + b }\n*** End Patch"}}
		},
		Shell: func(command string) Call { return Call{"exec_command", map[string]any{"cmd": command}} },
	},
}

// A generator plays Google's generateContent, streamed or whole: its model calls one tool a turn,
// and then ends.
type generator struct {
	calls   []Call
	last    string // what it says at the end
	mu      sync.Mutex
	results []string // what the last request brought back
}

func (g *generator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Contents []struct {
			Parts []struct {
				Response *struct {
					Response json.RawMessage `json:"response"`
				} `json:"functionResponse"`
			} `json:"parts"`
		} `json:"contents"`
		Tools []json.RawMessage `json:"tools"`
	}
	_ = json.NewDecoder(r.Body).Decode(&request)
	var results []string
	for _, c := range request.Contents {
		for _, p := range c.Parts {
			if p.Response != nil {
				results = append(results, string(p.Response.Response))
			}
		}
	}
	results = slices.Compact(results) // of a conversation that goes on it sends each twice
	part := object{"text": g.last}
	if len(request.Tools) == 0 {
		part = object{"text": "{}"} // a side question
	} else if g.mu.Lock(); true {
		g.results = results
		g.mu.Unlock()
		if n := len(results); n < len(g.calls) {
			part = object{"functionCall": object{"name": g.calls[n].Tool, "args": g.calls[n].Input}}
		}
	}
	answer, _ := json.Marshal(object{
		"candidates":    []object{{"content": object{"role": "model", "parts": []object{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	})
	if strings.HasSuffix(r.URL.Path, ":streamGenerateContent") {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\r\n\r\n", answer)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// A responder plays OpenAI's Responses API, streamed: its model calls one tool a turn, and then ends. A call whose input is a
// text is one of a custom tool.
type responder struct {
	calls   []Call
	last    string // what it says at the end
	mu      sync.Mutex
	results []string // what the last request brought back
}

func (m *responder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Input []struct {
			Type   string
			Output json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.URL.Path != "/v1/responses" {
		http.NotFound(w, r)
		return
	}
	var results []string
	for _, item := range request.Input {
		if item.Type == "function_call_output" || item.Type == "custom_tool_call_output" {
			results = append(results, string(item.Output))
		}
	}
	m.mu.Lock()
	m.results = results
	m.mu.Unlock()
	n := len(results)
	item := object{"type": "message", "role": "assistant", "id": fmt.Sprint("m", n), "content": []object{{"type": "output_text", "text": m.last}}}
	if n < len(m.calls) {
		c := m.calls[n]
		item = object{"type": "function_call", "id": fmt.Sprint("f", n), "call_id": fmt.Sprint("c", n), "name": c.Tool}
		if text, custom := c.Input["input"].(string); custom {
			item["type"], item["input"] = "custom_tool_call", text
		} else {
			input, _ := json.Marshal(c.Input)
			item["arguments"] = string(input)
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range []object{
		{"type": "response.created", "response": object{"id": fmt.Sprint("r", n)}},
		{"type": "response.output_item.done", "item": item},
		{"type": "response.completed", "response": object{"id": fmt.Sprint("r", n), "usage": object{"input_tokens": 10, "input_tokens_details": nil, "output_tokens": 10, "output_tokens_details": nil, "total_tokens": 20}}},
	} {
		body, _ := json.Marshal(e)
		fmt.Fprintf(w, "data: %s\n\n", body)
		_ = http.NewResponseController(w).Flush()
	}
}
