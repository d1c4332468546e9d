package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// opencode is opencode, as of 1.18.33. Its stream has no final record: it is done when a step ended with the reason stop. Its
// conversations are in a database, ~/.local/share/opencode/opencode.db, that has tables of logins too.
var opencode = Agent{
	Name:          "opencode",
	Unattended:    "--auto",
	Environment:   []string{"OPENCODE_DISABLE_AUTOUPDATE=1"},
	UsageAsItGoes: true,
	install:       byNpm("opencode-ai"),
	command: func(s Start) []string {
		argv := []string{"opencode", "run", "--format", "json", "--auto"}
		if s.Model != "" {
			argv = append(argv, "-m", s.Model)
		}
		if s.Resume {
			argv = append(argv, "-s", s.Conversation)
		}
		return append(append(argv, s.Args...), "--", s.Prompt)
	},
	refuses: []refusal{
		{[]string{"--attach", "--dir", "-p", "--password", "-u", "--username"}, "it would leave the sandbox"},
		{[]string{"--share"}, "it would publish the conversation"},
		{[]string{"-s", "--session", "-c", "--continue", "--fork"}, "pccrun task --continue NAME goes on"},
		{[]string{"--format", "-i", "--interactive", "--command"}, "pccrun reads the stream, and prints it with --json"},
		{[]string{"--auto"}, "the sandbox stands in for its questions"},
		{[]string{"-m", "--model"}, "use pccrun task --model"},
	},
	line: opencodeLine,
}

// An opencodeRecord is a line of `opencode run --format json`.
type opencodeRecord struct {
	Type      string
	SessionID string
	Error     struct {
		Name string
		Data struct{ Message string }
	}
	Part struct {
		ID, Text, Tool, Reason string
		State                  struct {
			Status, Error string
			Input         json.RawMessage
			Metadata      struct {
				Exit *int
				Diff string
			}
		}
		Tokens struct {
			Input, Output, Reasoning int64 // Input without what came from a cache
			Cache                    struct{ Read, Write int64 }
		}
		Cost float64
	}
}

func opencodeLine(f *follower, line []byte) {
	r := decode[opencodeRecord](line)
	f.end.Conversation = cmp.Or(r.SessionID, f.end.Conversation)
	part := r.Part
	switch r.Type {
	case "step_start":
		f.end.Final, f.end.Success = false, false
	case "text":
		f.says(part.Text)
	case "tool_use": // comes once, with its result
		s := toolStep(part.Tool, part.State.Input)
		s.Failed = part.State.Status == "error"
		s.Denied = s.Failed && strings.Contains(part.State.Error, "rule which prevents")
		switch {
		case s.Denied:
			s.Result = "denied by the agent's permissions"
			f.denied(part.Tool + ": " + s.What)
		case s.Failed:
			s.Result = firstLine(part.State.Error)
		case part.State.Metadata.Exit != nil:
			s.Result, s.Failed = fmt.Sprintf("exit %d", *part.State.Metadata.Exit), *part.State.Metadata.Exit != 0
		case s.Kind == Edit && part.State.Metadata.Diff != "":
			s.Result = diffStat(part.State.Metadata.Diff)
		}
		f.step(s)
	case "step_finish":
		t := part.Tokens
		f.count(part.ID, Usage{Input: t.Input, CacheRead: t.Cache.Read, CacheWrite: t.Cache.Write, Output: t.Output + t.Reasoning, USD: part.Cost}, 0)
		f.end.Usage.Priced = true
		if part.Reason == "stop" {
			f.end.Final, f.end.Success = true, f.end.Reason == ""
		}
	case "error":
		f.end.Success = false
		f.end.Reason = cut(cmp.Or(r.Error.Data.Message, r.Error.Name, "it reports an error"), maxText)
		f.step(Step{Kind: Warn, What: f.end.Reason, Failed: true})
	}
}

// diffStat counts the lines of a unified diff that add and remove.
func diffStat(diff string) string {
	plus, minus := 0, 0
	for l := range strings.Lines(diff) {
		plus += count(strings.HasPrefix(l, "+") && !strings.HasPrefix(l, "+++ "))
		minus += count(strings.HasPrefix(l, "-") && !strings.HasPrefix(l, "--- "))
	}
	return changed(plus, minus)
}
