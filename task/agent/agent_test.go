package agent

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// follow reads a stream with the agent of that name.
func follow(t *testing.T, name string, lines ...string) ([]Step, End) {
	t.Helper()
	a, is := Named(name)
	require.True(t, is)
	var steps []Step
	end, err := a.Follow(strings.NewReader(strings.Join(lines, "\n")), func(s Step, _ End) { steps = append(steps, s) })
	require.NoError(t, err)
	return steps, end
}

func TestClaude(t *testing.T) {
	init := `{"type":"system","subtype":"init","session_id":"s1","model":"m","claude_code_version":"2.1.332","permissionMode":"bypassPermissions"}`
	say := `{"type":"assistant","message":{"id":"a","content":[{"type":"text","text":"I look."}],"usage":{"input_tokens":10,"output_tokens":1}}}`
	use := `{"type":"assistant","message":{"id":"a","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"go test","description":"x"}}],"usage":{"input_tokens":10,"output_tokens":5}}}`
	failed := `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"Exit code 1\nFAIL"}]}}`
	edit := `{"type":"assistant","message":{"id":"b","content":[{"type":"tool_use","id":"t2","name":"Edit","input":{"file_path":"/w/a.go"}}]}}`
	edited := `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t2","content":"ok"}]},"tool_use_result":{"structuredPatch":[{"lines":[" x","-a","+b","+c"]}]}}`
	retry := `{"type":"system","subtype":"api_retry","attempt":1,"retry_delay_ms":1500,"error_status":529}`
	done := `{"type":"result","subtype":"success","is_error":false,"result":"All is well.","total_cost_usd":0.25,"modelUsage":{"m":{"inputTokens":20,"outputTokens":7,"cacheReadInputTokens":3,"cacheCreationInputTokens":2}},"permission_denials":[]}`

	t.Run("a whole stream", func(t *testing.T) {
		steps, end := follow(t, "claude", init, say, use, failed, edit, edited, retry, done)
		require.Equal(t, []Step{
			{Kind: Says, What: "I look."},
			{Kind: Run, What: "go test", Result: "exit 1", Failed: true},
			{Kind: Edit, What: "/w/a.go", Result: "+2 −1"},
			{Kind: Retry, What: "the API", Result: "status 529", Status: 529, Wait: 1500e6},
		}, steps)
		require.True(t, end.Final && end.Success && end.Whole)
		require.Equal(t, Usage{Input: 20, CacheRead: 3, CacheWrite: 2, Output: 7, USD: 0.25, Priced: true}, end.Usage)
		require.Equal(t, []string{"s1", "m", "2.1.332", "All is well.", "go test"}, []string{end.Conversation, end.Model, end.Version, end.Message, end.LastCommand.What})
	})
	t.Run("an interrupt leaves no final record, and usage is counted once a message", func(t *testing.T) {
		steps, end := follow(t, "claude", init, say, use)
		require.False(t, end.Final || end.Success)
		require.Equal(t, Usage{Input: 10, Output: 11}, end.Usage, "its text is more than the output that its beginning says")
		require.Equal(t, Step{Kind: Run, What: "go test", Result: "no result"}, steps[1])
	})
	t.Run("success with every tool denied names them", func(t *testing.T) {
		_, end := follow(t, "claude", init, strings.Replace(done, `"permission_denials":[]`, `"permission_denials":[{"tool_name":"Bash","tool_input":{"command":"rm x"}}]`, 1))
		require.True(t, end.Success)
		require.Equal(t, []string{"Bash: rm x"}, end.Denied)
	})
	t.Run("an error of the API that ends as success is none", func(t *testing.T) {
		_, end := follow(t, "claude", init, `{"type":"result","subtype":"success","is_error":true,"result":"API Error: 500"}`)
		require.True(t, end.Final)
		require.False(t, end.Success)
		require.Equal(t, "API Error: 500", end.Reason)
	})
	t.Run("its own limit", func(t *testing.T) {
		_, end := follow(t, "claude", init, `{"type":"result","subtype":"error_max_turns","is_error":true}`)
		require.Equal(t, "error_max_turns", end.Reason)
	})
}

func TestCodex(t *testing.T) {
	start := `{"type":"thread.started","thread_id":"c1"}`
	run := `{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"/bin/bash -lc 'go test ./...'","exit_code":2,"status":"failed"}}`
	warning := `{"type":"item.completed","item":{"id":"2","type":"error","message":"no metadata for this model"}}`
	change := `{"type":"item.completed","item":{"id":"3","type":"file_change","changes":[{"path":"a.go","kind":"update"},{"path":"b.go","kind":"add"}],"status":"completed"}}`
	declined := `{"type":"item.completed","item":{"id":"4","type":"command_execution","command":"rm x","status":"declined"}}`
	say := `{"type":"item.completed","item":{"id":"5","type":"agent_message","text":"Done."}}`
	done := `{"type":"turn.completed","usage":{"input_tokens":2000,"cached_input_tokens":1500,"output_tokens":30}}`

	steps, end := follow(t, "codex", start, `{"type":"turn.started"}`, run, warning, change, declined, say, done)
	require.Equal(t, []Step{
		{Kind: Run, What: "go test ./...", Result: "exit 2", Failed: true},
		{Kind: Warn, What: "no metadata for this model"},
		{Kind: Edit, What: "a.go, b.go"},
		{Kind: Run, What: "rm x", Result: "declined", Denied: true},
		{Kind: Says, What: "Done."},
	}, steps)
	require.True(t, end.Final && end.Success && end.Whole)
	require.Equal(t, Usage{Input: 500, CacheRead: 1500, Output: 30}, end.Usage)
	require.Equal(t, []string{"rm x"}, end.Denied)
	require.Equal(t, "c1", end.Conversation)

	_, end = follow(t, "codex", start, `{"type":"turn.failed","error":{"message":"stream disconnected"}}`)
	require.True(t, end.Final)
	require.False(t, end.Success)
	require.Equal(t, "stream disconnected", end.Reason)

	_, end = follow(t, "codex", start, say)
	require.False(t, end.Final, "it was interrupted")
}

func TestGemini(t *testing.T) {
	init := `{"type":"init","session_id":"g1","model":"gm"}`
	ask := `{"type":"message","role":"user","content":"do"}`
	use := `{"type":"tool_use","tool_name":"run_shell_command","tool_id":"x","parameters":{"command":"npm test"}}`
	result := `{"type":"tool_result","tool_id":"x","status":"error","error":{"type":"policy_violation","message":"no"}}`
	one, two := `{"type":"message","role":"assistant","content":"It is ","delta":true}`, `{"type":"message","role":"assistant","content":"done.","delta":true}`
	done := `{"type":"result","status":"success","stats":{"input_tokens":9,"cached":4,"input":5,"output_tokens":2}}`
	steps, end := follow(t, "gemini", init, ask, use, result, one, two, done)
	require.Equal(t, []Step{
		{Kind: Run, What: "npm test", Result: "denied by the agent's policy", Failed: true, Denied: true},
		{Kind: Says, What: "It is done."},
	}, steps)
	require.True(t, end.Final && end.Success && !end.Whole)
	require.Equal(t, Usage{Input: 5, CacheRead: 4, Output: 2}, end.Usage)
	require.Equal(t, []string{"npm test"}, end.Denied)

	_, end = follow(t, "gemini", init, `{"type":"result","status":"error","error":{"type":"FatalTurnLimitedError","message":"too many turns"}}`)
	require.Equal(t, "too many turns", end.Reason)
	require.False(t, end.Success)
}

func TestOpencode(t *testing.T) {
	use := `{"type":"tool_use","sessionID":"o1","part":{"tool":"bash","state":{"status":"completed","input":{"command":"go test"},"metadata":{"exit":1}}}}`
	denied := `{"type":"tool_use","sessionID":"o1","part":{"tool":"edit","state":{"status":"error","input":{"filePath":"a"},"error":"The user has specified a rule which prevents you from using this specific tool call."}}}`
	say := `{"type":"text","sessionID":"o1","part":{"text":"Done."}}`
	finish := func(id, reason string) string {
		return `{"type":"step_finish","sessionID":"o1","part":{"id":"` + id + `","reason":"` + reason + `","cost":0.5,"tokens":{"input":10,"output":2,"reasoning":1,"cache":{"read":3,"write":4}}}}`
	}
	steps, end := follow(t, "opencode", use, denied, finish("1", "tool-calls"), say, finish("2", "stop"))
	require.Equal(t, []Step{
		{Kind: Run, What: "go test", Result: "exit 1", Failed: true},
		{Kind: Edit, What: "a", Result: "denied by the agent's permissions", Failed: true, Denied: true},
		{Kind: Says, What: "Done."},
	}, steps)
	require.True(t, end.Final && end.Success)
	require.Equal(t, Usage{Input: 20, CacheRead: 6, CacheWrite: 8, Output: 6, USD: 1, Priced: true}, end.Usage)
	require.Equal(t, []string{"edit: a"}, end.Denied)

	_, end = follow(t, "opencode", use, finish("1", "tool-calls"))
	require.False(t, end.Final, "it ended between two steps")
}

// TestHostileStreams holds what an agent may print: a line without end, garbage, fields of another type, too many uses.
func TestHostileStreams(t *testing.T) {
	long := `{"type":"system","x":"` + strings.Repeat("a", 3*maxLine) + `"}`
	many := make([]string, 3*maxOpen)
	for i := range many {
		many[i] = `{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t` + strings.Repeat("i", i%7) + string(rune('a'+i%26)) + `","name":"Bash"}]}}`
	}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			lines := append([]string{"panic: oh", long, `[1]`, `"x"`, `{"type":3,"item":[],"part":"x","message":7}`, "{}", ""}, many...)
			_, end := follow(t, name, lines...)
			require.Equal(t, 4, end.Garbage)
			require.False(t, end.Final)
		})
	}
	steps, end := follow(t, "claude", `{"type":"result","subtype":"success","result":"`+strings.Repeat("ü", maxMessage)+`"}`)
	require.Empty(t, steps)
	require.LessOrEqual(t, len(end.Message), maxMessage)
	require.True(t, strings.HasSuffix(end.Message, "ü…"))
}

func TestCommand(t *testing.T) {
	for _, name := range Names() {
		a, _ := Named(name)
		argv := a.Command(Start{Prompt: "-x", Conversation: "id", Model: "big", Args: []string{"--own"}})
		require.Equal(t, name, argv[0])
		require.Subset(t, argv, append(strings.Fields(a.Unattended), "--own", "big"), name)
		require.True(t, argv[len(argv)-2] == "--" && argv[len(argv)-1] == "-x" || argv[len(argv)-1] == "--prompt=-x", "no prompt is read as a flag: %q", argv)
		require.Equal(t, a.OwnIDs, strings.Contains(strings.Join(argv, " "), " id"), name)
		require.Contains(t, a.Command(Start{Prompt: "go on", Conversation: "id", Resume: true}), "id")
	}
}

func TestRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"claude":   {"-w", "-wx", "--worktree=x", "--bg", "--cloud", "--resume", "--output-format=text", "--model", "--"},
		"codex":    {"--worktree", "-C", "--json", "-s", "-sread-only", "--ephemeral"},
		"gemini":   {"-w", "-p", "--prompt=x", "-y", "--resume"},
		"opencode": {"--attach", "--share", "--session", "--format"},
	} {
		a, _ := Named(name)
		for _, arg := range args {
			require.ErrorContains(t, a.Refuses([]string{arg}), name, arg)
		}
		require.NoError(t, a.Refuses([]string{"--verbose", "--warm", "x"}), "the control")
	}
}

// What is held of ids is bounded, however many and however long they are.
func TestIDsAreBounded(t *testing.T) {
	f := &follower{each: func(Step, End) {}, open: map[string]Step{}, counted: map[string]counted{}}
	for i := range 2 * maxCounted {
		id := strconv.Itoa(i) + strings.Repeat("x", 10_000)
		f.count(id, Usage{Input: 1}, 0)
		f.count(id, Usage{Input: 2}, 0)
		f.begin(id, Step{})
	}
	require.Equal(t, int64(4*maxCounted), f.end.Usage.Input)
	require.Len(t, f.counted, maxCounted)
	require.Len(t, f.open, maxOpen)
	for id := range f.counted {
		require.LessOrEqual(t, len(id), maxID)
	}
	for id := range f.open {
		require.LessOrEqual(t, len(id), maxID)
	}
	f.finish(f.order[0], func(*Step) {})
	require.Len(t, f.open, maxOpen-1)

	_, end := follow(t, "claude", `{"type":"system","subtype":"init","session_id":"`+strings.Repeat("s", 10_000)+`","model":"m"}`)
	require.Len(t, end.Conversation, maxID)
}

// A success that an error follows is none.
func TestErrorAfterSuccess(t *testing.T) {
	done := `{"type":"step_finish","part":{"reason":"stop"}}`
	_, end := follow(t, "opencode", done)
	require.True(t, end.Success)
	_, end = follow(t, "opencode", done, `{"type":"error","error":{"name":"X"}}`)
	require.False(t, end.Success)
	done = `{"type":"turn.completed"}`
	_, end = follow(t, "codex", done)
	require.True(t, end.Success)
	_, end = follow(t, "codex", done, `{"type":"turn.failed"}`)
	require.False(t, end.Success)
}
