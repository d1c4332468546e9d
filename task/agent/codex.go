package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// codex is OpenAI Codex, as of 0.171.0. Its stream tells usage at the end of a turn alone, which is the whole task, and
// neither cost nor the model's name.
var codex = Agent{
	Name:          "codex",
	Unattended:    "--dangerously-bypass-approvals-and-sandbox",
	Conversations: []string{".codex/sessions"},
	install:       byNpm("@openai/codex"),
	command: func(s Start) []string {
		argv := []string{"codex", "exec"}
		if s.Resume {
			argv = append(argv, "resume")
		}
		argv = append(argv, "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "-c", "check_for_update_on_startup=false")
		if s.Model != "" {
			argv = append(argv, "-m", s.Model)
		}
		argv = append(append(argv, s.Args...), "--")
		if s.Resume {
			argv = append(argv, s.Conversation)
		}
		return append(argv, s.Prompt)
	},
	refuses: []refusal{
		{[]string{"--worktree"}, "the task has a work tree of its own: --name NAME"},
		{[]string{"-C", "--cd", "--add-dir"}, "it works in the task's work tree; --read and --write show it more"},
		{[]string{"--remote", "--cloud"}, "it would leave the sandbox"},
		{[]string{"--last", "--all", "--ephemeral"}, "pccrun task --continue NAME goes on"},
		{[]string{"--json", "-o", "--output-last-message"}, "pccrun reads the stream, and prints it with --json"},
		{[]string{"-s", "--sandbox", "--approve-for-me", "--full-auto", "--dangerously-bypass-approvals-and-sandbox"}, "the sandbox stands in for its questions"},
		{[]string{"-m", "--model"}, "use pccrun task --model"},
	},
	line: codexLine,
}

// A codexRecord is a line of `codex exec --json`.
type codexRecord struct {
	Type     string
	ThreadID string `json:"thread_id"`
	Message  string
	Error    struct{ Message string }
	Usage    struct {
		Input      int64 `json:"input_tokens"` // with what came from a cache
		Cached     int64 `json:"cached_input_tokens"`
		CacheWrite int64 `json:"cache_write_input_tokens"`
		Output     int64 `json:"output_tokens"`
	}
	Item codexItem
}

type codexItem struct {
	ID, Type, Text, Message, Status string
	Command                         string
	ExitCode                        *int `json:"exit_code"`
	Changes                         []struct{ Path, Kind string }
	Server, Tool, Query             string
	Error                           struct{ Message string }
}

func codexLine(f *follower, line []byte) {
	r := decode[codexRecord](line)
	switch r.Type {
	case "thread.started":
		f.end.Conversation = r.ThreadID
	case "item.started":
		if s, is := codexStep(r.Item); is {
			f.begin(r.Item.ID, s)
		}
	case "item.completed":
		f.codexItem(r.Item)
	case "turn.started":
		f.end.Final, f.end.Success, f.end.Reason = false, false, ""
	case "turn.completed":
		u := r.Usage
		f.end.Usage = Usage{Input: max(u.Input-u.Cached, 0), CacheRead: u.Cached, CacheWrite: u.CacheWrite, Output: u.Output}
		f.end.Final, f.end.Success, f.end.Whole = true, true, true
	case "turn.failed":
		f.end.Final, f.end.Success, f.end.Reason = true, false, cut(cmp.Or(r.Error.Message, "turn failed"), maxText)
	case "error":
		f.step(Step{Kind: Warn, What: cmp.Or(r.Message, r.Error.Message), Failed: true})
	}
}

func (f *follower) codexItem(item codexItem) {
	switch item.Type {
	case "agent_message":
		f.says(item.Text)
		return
	case "error": // a warning too
		f.step(Step{Kind: Warn, What: item.Message})
		return
	}
	s, is := codexStep(item)
	if !is {
		return
	}
	if _, begun := f.open[cut(item.ID, maxID)]; !begun {
		f.begin(item.ID, s)
	}
	f.finish(item.ID, func(was *Step) {
		*was = s
		was.Failed, was.Denied = item.Status == "failed", item.Status == "declined"
		switch {
		case was.Denied:
			was.Result = "declined"
			f.denied(s.What)
		case item.ExitCode != nil:
			was.Result, was.Failed = fmt.Sprintf("exit %d", *item.ExitCode), *item.ExitCode != 0
		case was.Failed:
			was.Result = firstLine(item.Error.Message)
		}
	})
}

// codexStep is the use of a tool, if the item is one.
func codexStep(item codexItem) (Step, bool) {
	switch item.Type {
	case "command_execution":
		return Step{Kind: Run, What: unwrapShell(item.Command)}, true
	case "file_change":
		paths := make([]string, len(item.Changes))
		for i, c := range item.Changes {
			paths[i] = c.Path
		}
		return Step{Kind: Edit, What: strings.Join(paths, ", ")}, true
	case "mcp_tool_call":
		return Step{Kind: OtherTool, What: item.Server + "." + item.Tool}, true
	case "web_search":
		return Step{Kind: Fetch, What: item.Query}, true
	}
	return Step{}, false
}

// unwrapShell takes the shell away that Codex puts around each command: bash -lc 'go test'.
func unwrapShell(command string) string {
	shell, rest, is := strings.Cut(command, " -lc ")
	if !is || strings.Contains(shell, " ") || !strings.HasSuffix(shell, "sh") {
		return command
	}
	if text := rest; len(text) > 1 && text[0] == '\'' && text[len(text)-1] == '\'' && !strings.Contains(text[1:len(text)-1], "'") {
		return text[1 : len(text)-1]
	}
	return decodeOr(rest)
}

// decodeOr takes double quotes away where they hold a text without escapes of the shell's own.
func decodeOr(text string) string {
	if !strings.ContainsAny(text, "$`\\") {
		if plain := decode[string](json.RawMessage(text)); plain != "" {
			return plain
		}
	}
	return text
}
