package agent

import (
	"cmp"
	"encoding/json"
)

// gemini is Gemini CLI, as of 0.61.0. Its stream tells usage in the last record alone, and no cost.
var gemini = Agent{
	Name:          "gemini",
	Unattended:    "--approval-mode yolo",
	Environment:   []string{"GEMINI_CLI_TRUST_WORKSPACE=true"},
	OwnIDs:        true,
	Conversations: []string{".gemini/tmp"},
	install:       byNpm("@google/gemini-cli"),
	command: func(s Start) []string {
		argv := []string{"gemini", "-o", "stream-json", "--approval-mode", "yolo"}
		if s.Model != "" {
			argv = append(argv, "-m", s.Model)
		}
		switch {
		case s.Resume:
			argv = append(argv, "-r", s.Conversation)
		case s.Conversation != "":
			argv = append(argv, "--session-id", s.Conversation)
		}
		return append(append(argv, s.Args...), "--prompt="+s.Prompt)
	},
	refuses: []refusal{
		{[]string{"-w", "--worktree"}, "the task has a work tree of its own: --name NAME"},
		{[]string{"--session-id", "--session-file", "-r", "--resume"}, "pccrun task --continue NAME goes on"},
		{[]string{"-p", "--prompt", "-i", "--prompt-interactive", "-o", "--output-format", "--acp", "--experimental-acp"}, "pccrun reads the stream, and prints it with --json"},
		{[]string{"-y", "--yolo", "--approval-mode", "-s", "--sandbox", "--skip-trust"}, "the sandbox stands in for its questions"},
		{[]string{"-m", "--model"}, "use pccrun task --model"},
	},
	line: geminiLine,
}

// A geminiRecord is a line of `gemini -o stream-json`.
type geminiRecord struct {
	Type, Model, Role, Content, Status, Severity, Message string
	Delta                                                 bool
	SessionID                                             string `json:"session_id"`
	ToolName                                              string `json:"tool_name"`
	ToolID                                                string `json:"tool_id"`
	Parameters                                            json.RawMessage
	Output                                                string
	Error                                                 struct{ Type, Message string }
	Stats                                                 struct {
		Input  int64 // without what came from a cache
		Cached int64
		Output int64 `json:"output_tokens"`
	}
}

func geminiLine(f *follower, line []byte) {
	r := decode[geminiRecord](line)
	if r.Type == "message" && r.Role == "assistant" {
		if f.text.Len() < maxMessage {
			f.text.WriteString(r.Content)
		}
		if !r.Delta {
			f.flushText()
		}
		return
	}
	f.flushText()
	switch r.Type {
	case "init":
		f.end.Conversation, f.end.Model = r.SessionID, r.Model
	case "tool_use":
		f.begin(r.ToolID, toolStep(r.ToolName, r.Parameters))
	case "tool_result":
		f.finish(r.ToolID, func(s *Step) {
			s.Failed = r.Status == "error"
			s.Denied = r.Error.Type == "policy_violation"
			switch {
			case s.Denied:
				s.Result = "denied by the agent's policy"
				f.denied(s.What)
			case s.Failed:
				s.Result = firstLine(r.Error.Message)
			case s.Kind == Run:
				s.Result = "done" // the stream has no exit status
			}
		})
	case "error":
		f.step(Step{Kind: Warn, What: r.Message, Failed: r.Severity == "error"})
	case "result":
		f.flush()
		f.end.Final, f.end.Success = true, r.Status == "success"
		f.end.Usage = Usage{Input: r.Stats.Input, CacheRead: r.Stats.Cached, Output: r.Stats.Output}
		if !f.end.Success {
			f.end.Reason = cut(cmp.Or(r.Error.Message, r.Error.Type, "it reports an error"), maxText)
		}
	}
}
