//go:build unix

package many

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/task"
)

func TestParse(t *testing.T) {
	tasks, err := Parse("todo", []byte("# five\n#\nfix it\n\n  @plan.md#two  \n#12 is broken\r\n"+`{"prompt": "a\nb", "name": "n", "agent": "codex", "budget": 1.5}`+"\n"+`{"prompt_file":"x"}`))
	require.NoError(t, err)
	require.Equal(t, []Task{
		{Line: 3, Prompt: "fix it"}, {Line: 5, File: "plan.md#two"}, {Line: 6, Prompt: "#12 is broken"},
		{Line: 7, Prompt: "a\nb", Name: "n", Agent: "codex", Budget: "1.5"}, {Line: 8, File: "x"},
	}, tasks)
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "todo has no task",
		"# only this":                            "todo has no task",
		"{":                                      "todo:1: no JSON",
		`{"prompt":"a"`:                          "todo:1: no JSON",
		`{"prompt":"a"} {}`:                      "more than one JSON object",
		`{"prompt":"a"} x`:                       "more than one JSON object",
		`{}`:                                     "want one of the keys prompt and prompt_file",
		`{"prompt":"a","prompt_file":"b"}`:       "want one of the keys",
		`{"prompt":1}`:                           `key "prompt": want a text`,
		`{"prompt":null}`:                        `key "prompt": want a text`,
		`{"prompt":""}`:                          `key "prompt": want a text`,
		`{"prompt":"a","prompt":"b"}`:            `key "prompt" is given twice`,
		`{"prompt":"a","budget":0}`:              `key "budget": want US dollars`,
		`{"prompt":"a","budget":"1","budget":2}`: `key "budget" is given twice`,
		`{"prompt":"a","budget":true}`:           `key "budget": want a text`,
		`{"Prompt":"a"}`:                         `unknown key "Prompt"`,
		`{"prompt":"a","network":{}}`:            `key "network": a line has no policy of its own`,
		`{"prompt":"a","allow":["x"]}`:           `key "allow": a line has no policy of its own`,
		`{"prompt":"a","profile":"x"}`:           `key "profile": a line has no policy of its own`,
		`{"prompt":"a","nested":true}`:           `key "nested": a line has no policy of its own`,
		"ok\n" + `{"a":1}` + "\n{\n":             `todo:2: unknown key "a"`,
		strings.Repeat("x\n", maxTasks+1):        "more than 1000",
	} {
		_, err := Parse("todo", []byte(text))
		require.ErrorContains(t, err, want, text)
		for _, mistake := range profiles.Mistakes(err) {
			require.NotContains(t, mistake.Error(), "\n")
		}
	}
	_, err := Parse("todo", []byte("{\nok\n{\n"))
	require.Len(t, profiles.Mistakes(err), 2, "each is named")
}

func FuzzParse(f *testing.F) {
	f.Add(`{"prompt":"a","name":"b"}`)
	f.Add("@x\n# y\nz")
	f.Fuzz(func(t *testing.T, text string) {
		tasks, err := Parse("f", []byte(text))
		for _, one := range tasks {
			require.True(t, err != nil || (one.Prompt == "") != (one.File == ""))
		}
	})
}

// What a prompt may be read from is what the agent may read.
func TestFill(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	dir := filepath.Join(home, "src")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "docs"), 0o755))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("docs/plan.md", "# One\na\n# Two\nb\n")
	write(".env", "x")
	write("../outside", "x")
	require.NoError(t, os.Symlink("docs/plan.md", filepath.Join(dir, "link")))
	policy := &profiles.Policy{Workspace: dir, Files: []profiles.FileRule{{Path: "/", Access: profiles.Read}, {Path: dir, Access: profiles.Write}, {Path: filepath.Join(dir, ".env"), Access: profiles.Hide}}}
	taken := func(name string) bool { return name == "taken" }
	fill := func(tasks ...Task) ([]Task, error) {
		for i := range tasks {
			tasks[i].Line = i + 1
		}
		return tasks, Fill("todo", tasks, dir, policy, taken)
	}
	got, err := fill(Task{File: "docs/plan.md#two"}, Task{Prompt: "fix the test"}, Task{Prompt: "fix the test"}, Task{Prompt: "x", Name: "mine"})
	require.NoError(t, err)
	require.Equal(t, "# Two\nb\n", got[0].Prompt)
	require.Regexp(t, "^fix-test-..$", got[1].Name)
	require.NotEqual(t, got[1].Name, got[2].Name)
	require.Equal(t, "mine", got[3].Name)
	same := make([]Task, maxTasks)
	for i := range same {
		same[i].Prompt = "fix the test"
	}
	got, err = fill(same...)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, one := range got {
		names[one.Name] = task.CheckName(one.Name) == nil
	}
	require.Len(t, names, maxTasks)
	require.NotContains(t, slices.Collect(maps.Values(names)), false)
	for want, bad := range map[string]Task{
		"not in the workspace, or hidden": {File: "../outside"}, "hidden there": {File: ".env"}, "read prompt": {File: "link"}, "no heading": {File: "docs/plan.md#x"},
		"holds a secret in line 1": {Prompt: "use ghp_0123456789abcdefghijABCDEFGHIJ012345"}, `name "../x"`: {Prompt: "x", Name: "../x"},
		"task taken stands already": {Prompt: "x", Name: "taken"}, "no such file": {File: "none"},
	} {
		_, err := fill(bad)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "todo:1: ")
	}
	_, err = fill(Task{Prompt: "a", Name: "n"}, Task{File: ".env"}, Task{Prompt: "b", Name: "n"})
	require.Len(t, profiles.Mistakes(err), 2)
	require.ErrorContains(t, err, `todo:3: name "n" is that of line 1`)
}

func TestRead(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	path := filepath.Join(dir, "todo")
	require.NoError(t, os.WriteFile(path, []byte("x\n"), 0o600))
	require.NoError(t, os.Symlink("todo", path+".link"))
	text, err := Read(path, nil)
	require.NoError(t, err)
	require.Equal(t, "x\n", string(text))
	_, err = Read(path+".link", nil)
	require.Error(t, err)
	text, err = Read("-", strings.NewReader("y"))
	require.NoError(t, err)
	require.Equal(t, "y", string(text))
	_, err = Read("-", strings.NewReader(strings.Repeat("y", FileSize+1)))
	require.Error(t, err)
}

// A stage is where tests have tasks done by nobody: each ends when it is let go, or stopped.
type stage struct {
	mu      sync.Mutex
	running int
	most    int
	begun   []string
	changes []string
	gates   map[string]chan string // the line that it ends with
}

func newStage(names ...string) (*stage, Plan) {
	s := &stage{gates: map[string]chan string{}}
	var p Plan
	for i, name := range names {
		p.Tasks = append(p.Tasks, Task{Line: i + 1, Name: name})
		s.gates[name] = make(chan string, 1)
	}
	return s, p
}

func (s *stage) work(stop task.Stop, index int, t Task, said chan<- Said) {
	s.mu.Lock()
	s.running++
	s.most = max(s.most, s.running)
	s.begun = append(s.begun, t.Name)
	s.mu.Unlock()
	line := ""
	select {
	case line = <-s.gates[t.Name]:
	case <-stop.Soft.Done():
		line = `{"type":"result","status":1,"state":"stopped","why":"interrupted"}`
	}
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
	if line != "" {
		said <- Said{Index: index, Line: []byte(line)}
	}
	said <- Said{Index: index, End: &End{Status: 2, How: "exit status 2"}}
}

func (s *stage) Tick(*State) {}

func (s *stage) Changed(state *State, i int, line []byte) {
	if line == nil {
		s.changes = append(s.changes, state.Change(i))
	}
}

const done = `{"type":"result","status":0,"state":"done"}`

func stops() (task.Stop, func()) {
	soft, end := context.WithCancel(context.Background())
	return task.Stop{Soft: soft, Hard: context.Background()}, end
}

func states(s State) string {
	var words []string
	for _, t := range s.Tasks {
		words = append(words, string(t.State))
	}
	return strings.Join(words, ",")
}

func TestRun(t *testing.T) {
	s, p := newStage("a", "b", "c", "d")
	p.Jobs = 2
	for _, gate := range s.gates {
		gate <- done
	}
	<-s.gates["c"]
	s.gates["c"] <- "" // it dies
	stop, end := stops()
	defer end()
	got := p.Run(stop, s.work, s, nil)
	require.Equal(t, "done,done,failed,done", states(got))
	require.LessOrEqual(t, s.most, 2)
	require.ElementsMatch(t, []string{"a", "b", "c", "d"}, s.begun)
	require.Equal(t, "its process ended without a result (exit status 2)", got.Tasks[2].Why)
	require.Contains(t, s.changes, "task d begins")
	require.Contains(t, s.changes, "task a: done after 0s, nothing changed")
}

func TestFailFast(t *testing.T) {
	s, p := newStage("a", "b", "c", "d")
	p.Jobs, p.FailFast = 2, true
	s.gates["a"] <- `{"type":"result","status":1,"state":"failed","why":"x"}`
	stop, end := stops()
	defer end()
	got := p.Run(stop, s.work, s, nil)
	require.Equal(t, "failed,stopped,not begun,not begun", states(got))
	require.Len(t, s.begun, 2)
}

func TestStop(t *testing.T) {
	s, p := newStage("a", "b", "c")
	p.Jobs = 2
	stop, end := stops()
	end()
	require.Equal(t, "not begun,not begun,not begun", states(p.Run(stop, s.work, s, nil)))
	stop, end = stops()
	s.gates["a"] <- `{"type":"step","kind":"retry","status":429,"wait_ms":3600000}`
	go func() {
		s.gates["b"] <- done
		end()
	}()
	got := p.Run(stop, s.work, s, nil)
	require.Equal(t, NotBegun, got.Tasks[2].State)
}

// Nothing begins while the API wants no requests.
func TestHold(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := State{Tasks: make([]Status, 1)}
	s.read(0, []byte(`{"type":"step","kind":"retry","status":500,"wait_ms":1000}`), now)
	require.Zero(t, s.Hold)
	s.read(0, []byte(`{"type":"step","kind":"retry","status":529,"wait_ms":2000}`), now)
	s.read(0, []byte(`{"type":"step","kind":"retry","status":429,"wait_ms":1000}`), now)
	require.Equal(t, now.Add(2*time.Second), s.Hold)
	s.read(0, []byte("no JSON"), now)

	stage, p := newStage("a", "b")
	p.Jobs = 1
	stage.gates["a"] <- `{"type":"step","kind":"retry","status":429,"wait_ms":200}`
	stage.gates["b"] <- done
	stop, end := stops()
	defer end()
	got := p.Run(stop, stage.work, stage, nil)
	require.Equal(t, "failed,done", states(got))
	require.False(t, got.Tasks[1].Began.Before(got.Hold))
}

// A spent is what tasks have spent together.
type spent func() spending.State

func (s spent) Read() (spending.State, error) { return s(), nil }

// Nothing begins when the budget of all is spent.
func TestBudget(t *testing.T) {
	s, p := newStage("a", "b", "c")
	p.Jobs = 1
	for _, gate := range s.gates {
		gate <- done
	}
	p.Together = spent(func() spending.State {
		return spending.State{Limit: 2e6, Spent: spending.USD(1e6 * len(s.begun))}
	})
	stop, end := stops()
	defer end()
	got := p.Run(stop, s.work, s, nil)
	require.Equal(t, "done,done,not begun", states(got))
	require.Equal(t, "the budget of all is spent", got.Tasks[2].Why)
	require.Equal(t, ", $2.00 of $2.00", got.costText())
	until := time.Now().Add(time.Hour)
	got.spent(spending.State{Until: until})
	require.Equal(t, until, got.Hold)
}

func TestStates(t *testing.T) {
	s := State{Tasks: []Status{{Task: Task{Name: "n"}, State: task.Working}}}
	read := func(line string) *Status {
		s.Tasks[0].State = task.Working
		s.read(0, []byte(line), time.Now())
		return &s.Tasks[0]
	}
	require.Equal(t, "edit a.go", read(`{"type":"step","kind":"edit","what":"a.go"}`).Last)
	require.Equal(t, "denied x:443", read(`{"type":"denied","what":"x:443"}`).Last)
	refusal := read(`{"type":"refused","errors":[{"text":"no","hint":"yes"}]}`)
	require.Equal(t, []any{Refused, "no", "yes", 125}, []any{refusal.State, refusal.Why, refusal.Hint, refusal.Status})
	s.end(0, End{Status: 125}, s.Tasks[0].Began)
	require.Equal(t, Refused, refusal.State)
	got := read(`{"type":"result","status":124,"state":"stopped","why":"late","branch":"task/n","fetched":"abc","files":2,"added":3,"removed":4,"usage":{"usd":0.5,"priced":true}}`)
	require.Equal(t, "stopped after 0s, 2 files, +3 −4, $0.50: late", got.outcome())
}

func sample() State {
	now := time.Unix(1e9, 0)
	s := State{Began: now, Tasks: []Status{
		{Task: Task{Line: 1, Name: "one"}, State: task.Done, Began: now, Took: 106 * time.Second, Result: Result{Branch: "task/one", Fetched: "abc", Files: 2, Added: 9, Removed: 2, Usage: Usage{USD: 0.31, Priced: true}}},
		{Task: Task{Line: 2, Name: "two"}, State: task.Working, Began: now.Add(time.Minute), Last: "run go test ./...\x1b[31m 日本語日本語日本語日本語"},
		{Task: Task{Line: 4, Name: "three"}, State: task.Failed, Began: now, Why: "the check | failed: <b>", Hint: "do it", Result: Result{Branch: "task/three", Fetched: "def", Status: 1}},
		{Task: Task{Line: 5, Name: "four"}, State: Waiting},
	}}
	return s
}

func TestTable(t *testing.T) {
	s := sample()
	v := View{Width: 70, Height: 24, Now: s.Began.Add(3 * time.Minute)}
	want := []string{
		"   #  TASK   STATE         TIME     COST  FILES  LAST",
		"   1  one    done          1:46    $0.31      2  task/one",
		"   2  two    working       2:00        –      –  run go test ./...\\x1b…",
		"   4  three  failed        0:00        –      0  the check | failed: <b…",
		"   5  four   waiting          –        –      –",
		"1 of 4 done, 1 working, 1 waiting; 3:00, $0.31",
	}
	got := Table(&s, v)
	for i := range got {
		require.LessOrEqual(t, Cells(got[i]), v.Width)
	}
	require.Equal(t, want[0], got[0])
	require.Equal(t, want[4:], got[4:])
	require.Equal(t, "   1  one    done          1:46    $0.31      2  task/one", got[1])
	require.NotContains(t, strings.Join(got, ""), "\x1b")
	v.Colours = true
	require.Contains(t, Table(&s, v)[2], "\x1b[36mworking  \x1b[m")
	require.Equal(t, Cells(got[2]), Cells(Table(&s, v)[2]))
	for width := range 90 {
		for height := range 12 {
			v.Width, v.Height, v.Colours = width+1, height+1, width%2 == 0
			rows := Table(&s, v)
			require.True(t, len(rows) < v.Height || v.Height < 5, "%d rows of %d", len(rows), v.Height)
			for _, row := range rows {
				require.LessOrEqual(t, Cells(row), v.Width, row)
			}
		}
	}
	// Where there is no room for all, those are shown that work, and then those that failed.
	v = View{Width: 80, Height: 6, Now: s.Began}
	rows := strings.Join(Table(&s, v), "\n")
	require.Contains(t, rows, "two")
	require.Contains(t, rows, "three")
	require.Contains(t, rows, "and 2 more")
	s.Hold = s.Began.Add(38 * time.Second)
	v.Width = 100
	require.Contains(t, strings.Join(Table(&s, v), "\n"), "the API limits the rate: all wait 38s")
}

func TestResults(t *testing.T) {
	s := sample()
	s.Tasks[1].State, s.Tasks[3].State, s.Took = task.Done, NotBegun, 5*time.Minute
	r := Results{State: s, Clashes: []task.Clash{{A: 0, B: 2, Files: []string{"a|b.go"}}}, Untried: "1 pair"}
	require.False(t, r.Succeeded())
	require.Equal(t, []string{
		"2 of 4 tasks done, 1 failed, 1 not begun; 5m0s, $0.31",
		"  one    task/one    done after 1m46s, 2 files, +9 −2, $0.31",
		"  two                done after 0s, nothing changed",
		"  three  task/three  failed after 0s, 0 files, +0 −0: the check | failed: <b>",
		"hint: do it",
		"  four               not begun",
		"task/one and task/three do not merge with each other: a|b.go",
		"1 pair",
	}, r.Lines())
	var got struct {
		V         int
		Type      string
		Succeeded bool
		Tasks     []struct {
			Name, State string
			Denials     []string
		}
		Conflicts []struct{ Tasks, Files []string }
	}
	require.NoError(t, json.Unmarshal(r.JSON(), &got))
	require.Equal(t, []any{1, "results", false, 4}, []any{got.V, got.Type, got.Succeeded, len(got.Tasks)})
	require.Equal(t, []string{"one", "three"}, got.Conflicts[0].Tasks)
	require.NotNil(t, got.Tasks[3].Denials)
	page := string(r.Markdown())
	require.Contains(t, page, `the check \| failed: \<b\>`)
	require.Contains(t, page, `a\|b.go`)
	for range 100 {
		r.Clashes = append(r.Clashes, r.Clashes[0])
	}
	require.Contains(t, r.Lines()[len(r.Lines())-1], "82 more pairs")
}

func TestDestination(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	r := Results{State: sample()}
	for _, name := range []string{"a.json", "a.md", "a.md"} {
		f, err := Destination(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, f.Write(&r))
	}
	text, err := os.ReadFile(filepath.Join(dir, "a.md"))
	require.NoError(t, err)
	require.Equal(t, string(r.Markdown()), string(text))
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("a.md", filepath.Join(dir, "b.md")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "c.md"), 0o700))
	for _, bad := range []string{"a.txt", "a", "link/a.md", "b.md", "c.md", "none/a.md"} {
		_, err := Destination(filepath.Join(dir, bad))
		require.Error(t, err, bad)
	}
}

func TestUsualJobs(t *testing.T) {
	for want, of := range map[int][2]int64{1: {1, 64 << 30}, 2: {8, 5 << 30}, 4: {4, 64 << 30}, 8: {64, 256 << 30}} {
		require.Equal(t, want, usualJobsOf(int(of[0]), of[1]))
	}
	require.Equal(t, 1, usualJobsOf(4, 0))
	require.Positive(t, UsualJobs(8<<30))
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	for name, text := range map[string]string{"a/memory.max": "3000\n", "a/b/memory.max": "max\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	require.EqualValues(t, 3000, limitIn(dir, "0::/a/b\n", 5000))
	require.EqualValues(t, 5000, limitIn(dir, "0::/\n", 5000))
	require.EqualValues(t, 5000, limitIn(dir, "4:memory:/a\n", 5000))
}

func TestLines(t *testing.T) {
	var got []string
	l := &lines{each: func(line []byte) { got = append(got, string(line)) }}
	for _, text := range []string{"a\nb", "c\n\n", "d"} {
		n, err := l.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
	}
	_, err := l.Write([]byte(strings.Repeat("x", lineSize+1) + "\ne\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "bc", ""}, got[:3])
	require.Equal(t, "e", got[len(got)-1])
}
