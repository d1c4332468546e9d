package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// claude is Claude Code, as of 2.1.332.
var claude = Agent{
	Name:          "claude",
	Unattended:    "--dangerously-skip-permissions",
	Environment:   []string{"IS_SANDBOX=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"},
	OwnIDs:        true,
	UsageAsItGoes: true,
	command: func(s Start) []string {
		argv := []string{"claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"}
		if s.Model != "" {
			argv = append(argv, "--model", s.Model)
		}
		switch {
		case s.Resume:
			argv = append(argv, "--resume", s.Conversation)
		case s.Conversation != "":
			argv = append(argv, "--session-id", s.Conversation)
		}
		return append(append(argv, s.Args...), "--", s.Prompt)
	},
	refuses: []refusal{
		{[]string{"-w", "--worktree", "--tmux"}, "the task has a work tree of its own: --name NAME"},
		{[]string{"--bg", "--background"}, "a task needs no background of the agent's"},
		{[]string{"--cloud", "--teleport", "--remote"}, "it would leave the sandbox"},
		{[]string{"-r", "--resume", "-c", "--continue", "--session-id", "--fork-session", "--no-session-persistence"}, "pccrun task --continue NAME goes on"},
		{[]string{"-p", "--print", "--output-format", "--input-format"}, "pccrun reads the stream, and prints it with --json"},
		{[]string{"--permission-mode", "--dangerously-skip-permissions", "--allow-dangerously-skip-permissions", "--permission-prompts", "--restricted"}, "the sandbox stands in for its questions"},
		{[]string{"--model"}, "use pccrun task --model"},
	},
	line: claudeLine,
}

// A claudeRecord is a line of `claude -p --output-format stream-json`, less what no task wants.
type claudeRecord struct {
	Type, Subtype   string
	SessionID       string `json:"session_id"`
	Model           string
	Version         string `json:"claude_code_version"`
	ParentToolUseID string `json:"parent_tool_use_id"`
	Message         struct {
		ID      string
		Content json.RawMessage // a text, or a list of blocks
		Usage   *claudeUsage
	}
	ToolUseResult json.RawMessage `json:"tool_use_result"`

	// of api_retry
	Delay  float64 `json:"retry_delay_ms"`
	Status int     `json:"error_status"`

	// of result
	IsError    bool `json:"is_error"`
	Result     string
	Errors     []string
	USD        float64 `json:"total_cost_usd"`
	ModelUsage map[string]struct {
		InputTokens, OutputTokens, CacheReadInputTokens, CacheCreationInputTokens int64
	}
	Denials []struct {
		Tool  string          `json:"tool_name"`
		Input json.RawMessage `json:"tool_input"`
	} `json:"permission_denials"`
}

type claudeUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

// A claudeBlock is a part of a message.
type claudeBlock struct {
	Type, Text, ID, Name string
	Input                json.RawMessage
	ToolUseID            string `json:"tool_use_id"`
	IsError              bool   `json:"is_error"`
	Content              json.RawMessage
}

func claudeLine(f *follower, line []byte) {
	r := decode[claudeRecord](line)
	switch {
	case r.Type == "system" && r.Subtype == "init":
		f.end.Conversation, f.end.Model, f.end.Version = r.SessionID, r.Model, r.Version
	case r.Type == "system" && r.Subtype == "api_retry":
		s := Step{Kind: Retry, What: "the API", Status: r.Status, Wait: time.Duration(r.Delay * float64(time.Millisecond))}
		if s.Status != 0 {
			s.Result = fmt.Sprintf("status %d", s.Status)
		}
		f.step(s)
	case r.Type == "assistant":
		blocks := decode[[]claudeBlock](r.Message.Content)
		if u := r.Message.Usage; u != nil {
			text := 0
			for _, b := range blocks {
				text += len(b.Text) + len(b.Input)
			}
			f.count(r.Message.ID, Usage{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output}, text)
		}
		for _, b := range blocks {
			switch {
			case b.Type == "text" && r.ParentToolUseID == "":
				f.says(b.Text)
			case b.Type == "tool_use":
				f.begin(b.ID, toolStep(b.Name, b.Input))
			}
		}
	case r.Type == "user":
		for _, b := range decode[[]claudeBlock](r.Message.Content) {
			if b.Type == "tool_result" {
				f.finish(b.ToolUseID, func(s *Step) { claudeResult(s, b, r.ToolUseResult) })
			}
		}
	case r.Type == "result":
		f.flush()
		f.end.Final, f.end.Success = true, r.Subtype == "success" && !r.IsError
		if !f.end.Success {
			f.end.Reason = cut(strings.Join(append([]string{r.Subtype}, r.Errors...), ": "), maxText)
			if r.Subtype == "success" {
				f.end.Reason = firstLine(r.Result)
			}
		}
		if r.Result != "" {
			f.end.Message = cut(r.Result, maxMessage)
		}
		for _, d := range r.Denials {
			s := toolStep(d.Tool, d.Input)
			f.denied(strings.TrimSuffix(d.Tool+": "+s.What, ": "))
		}
		f.end.Usage, f.end.Whole = Usage{USD: r.USD, Priced: true}, true
		for _, u := range r.ModelUsage {
			f.end.Usage.Input += u.InputTokens
			f.end.Usage.Output += u.OutputTokens
			f.end.Usage.CacheRead += u.CacheReadInputTokens
			f.end.Usage.CacheWrite += u.CacheCreationInputTokens
		}
	}
}

// claudeResult puts the result of a tool into its step. The record beside the message says more than its text.
func claudeResult(s *Step, b claudeBlock, beside json.RawMessage) {
	text := resultText(b.Content)
	s.Failed = b.IsError
	switch s.Kind {
	case Run:
		s.Result = "exit 0"
		if status, is := strings.CutPrefix(firstLine(text), "Exit code "); b.IsError && is {
			s.Result = "exit " + status
		} else if b.IsError {
			s.Result = firstLine(text)
		}
	case Edit:
		if s.Result = firstLine(text); b.IsError {
			return
		}
		edit := decode[struct {
			Content         string
			StructuredPatch []struct{ Lines []string }
		}](beside)
		plus, minus := 0, 0
		for _, hunk := range edit.StructuredPatch {
			for _, l := range hunk.Lines {
				plus += count(strings.HasPrefix(l, "+"))
				minus += count(strings.HasPrefix(l, "-"))
			}
		}
		if len(edit.StructuredPatch) == 0 {
			plus = lineCount(edit.Content)
		}
		s.Result = changed(plus, minus)
	default:
		if b.IsError {
			s.Result = firstLine(text)
		}
	}
}

// resultText is the text of a tool's result, which is a text or a list of blocks.
func resultText(content json.RawMessage) string {
	if text := decode[string](content); text != "" {
		return text
	}
	var parts []string
	for _, b := range decode[[]claudeBlock](content) {
		parts = append(parts, b.Text)
	}
	return strings.Join(parts, "\n")
}

// tools are the agents' names of their tools, in lower case and without what joins words, by what they do.
var tools = map[Kind][]string{
	Read:  {"read", "readfile", "readmanyfiles", "glob", "grep", "ls", "list", "listdirectory", "searchfilecontent", "grepsearch", "notebookread", "lsp"},
	Edit:  {"edit", "multiedit", "write", "writefile", "replace", "notebookedit", "patch", "applypatch"},
	Run:   {"bash", "runshellcommand", "shell"},
	Fetch: {"webfetch", "websearch", "googlewebsearch"},
}

// toolStep is the use of a tool, by its name and by the words that agents have for what it is used on.
func toolStep(name string, input json.RawMessage) Step {
	plain := strings.ToLower(strings.ReplaceAll(name, "_", ""))
	s := Step{Kind: OtherTool, What: name}
	for kind, names := range tools {
		if slices.Contains(names, plain) {
			s.Kind = kind
		}
	}
	fields := decode[map[string]json.RawMessage](input)
	for _, field := range []string{"command", "file_path", "filePath", "absolute_path", "notebook_path", "path", "dir_path", "pattern", "query", "url", "prompt", "description"} {
		if what := decode[string](fields[field]); what != "" {
			if s.What = what; s.Kind == OtherTool {
				s.What = name + " " + what
			}
			break
		}
	}
	return s
}

// changed says how many lines an edit added and removed.
func changed(plus, minus int) string { return fmt.Sprintf("+%d −%d", plus, minus) }

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

func lineCount(text string) int {
	if text == "" {
		return 0
	}
	return strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
