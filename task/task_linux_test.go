package task

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/private"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/task/agent"
)

// What git reads of a clone that this program has written: a commit, its objects, and no more remotes than there are.
func TestCloneIsOneForGit(t *testing.T) {
	dir := private.Dir(t)
	git := func(at string, args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", at, "-c", "user.name=x", "-c", "user.email=x@x"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for _, format := range []string{"sha1", "sha256"} {
		top := filepath.Join(dir, format)
		require.NoError(t, os.Mkdir(top, 0o755))
		git(top, "init", "-q", "--object-format="+format)
		git(top, "commit", "-q", "--allow-empty", "-m", "one")
		base := git(top, "rev-parse", "HEAD")
		objects, err := objectDirs(top + "/.git/objects")
		require.NoError(t, err)
		r := &repository{top: top, common: top + "/.git", objects: objects, format: format, exclude: []byte("/out\n"), remotes: [][2]string{{"origin", "https://example.com/x.git"}}}
		at := []place{{filepath.Join(dir, "file/trees"), "n"}, {filepath.Join(dir, format+"-worktrees"), "n"}}
		c, err := makeClone(r, at, "task/n", base)
		require.NoError(t, err)
		require.Equal(t, at[1].path(), c.path, "a place that cannot be made is passed over")
		require.Equal(t, base, git(c.path, "rev-parse", "HEAD"))
		require.Equal(t, "task/n", git(c.path, "branch", "--show-current"))
		require.Equal(t, "https://example.com/x.git", git(c.path, "config", "remote.origin.url"))
		git(c.path, "reset", "-q", "--hard")
		git(c.path, "commit", "-q", "--allow-empty", "-m", "two")
		require.Equal(t, base, git(top, "rev-parse", "HEAD"), "the user's branch does not move")
		git(c.path, "fsck")
		info, err := os.Stat(c.path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())

		_, err = makeClone(r, at[1:], "task/n", base)
		require.ErrorContains(t, err, "stands already")

		// The agent has it borrow from elsewhere, and that is undone.
		require.NoError(t, os.WriteFile(c.path+"/"+alternates, []byte("/etc\n"), 0o600))
		require.NoError(t, r.lendTo(&Record{Worktree: c.path}))
		text, err := os.ReadFile(c.path + "/" + alternates)
		require.NoError(t, err)
		require.Equal(t, r.alternates(), text)

		// A git that was killed leaves its locks, and the next waits for none.
		for _, lock := range []string{"index.lock", "refs/heads/task/n.lock"} {
			require.NoError(t, os.WriteFile(c.path+"/.git/"+lock, nil, 0o600))
		}
		require.Error(t, exec.Command("git", "-C", c.path, "reset", "-q", "--hard").Run(), "the control")
		require.NoError(t, unlock(&Record{Worktree: c.path, Branch: c.branch}))
		git(c.path, "commit", "-q", "--allow-empty", "-m", "three")
	}
	// A link in the place of the directory of work trees leads nowhere.
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "link")))
	_, err := makeClone(&repository{format: "sha1"}, []place{{filepath.Join(dir, "link"), "n"}}, "task/n", "x")
	require.ErrorContains(t, err, "a link leads there")
}

func TestObjectDirs(t *testing.T) {
	dir := private.Dir(t)
	store := func(name, alternates string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(path+"/info", 0o700))
		if alternates != "" {
			require.NoError(t, os.WriteFile(path+"/info/alternates", []byte(alternates), 0o600))
		}
		return path
	}
	a, b, c := store("a", "../b\n# no\n/nosuch\n"), store("b", dir+"/c\n"+dir+"/a\n"), store("c", "")
	got, err := objectDirs(a)
	require.NoError(t, err)
	require.Equal(t, []string{a, b, c}, got)
	var many strings.Builder
	for i := range maxObjectDirs + 1 {
		many.WriteString(store("m"+string(rune('a'+i)), "") + "\n")
	}
	_, err = objectDirs(store("d", many.String()))
	require.Error(t, err)
}

// A linked work tree names its repository, and the repository names it: a .git file alone names nothing.
func TestGitDirs(t *testing.T) {
	dir := private.Dir(t)
	git := func(args ...string) {
		out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@x"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	git("init", "-q", "main")
	git("-C", "main", "commit", "-q", "--allow-empty", "-m", "one")
	git("-C", "main", "worktree", "add", "-q", "../linked")
	main := dir + "/main/.git"
	own, common, err := gitDirs(dir + "/main")
	require.NoError(t, err)
	require.Equal(t, []string{main, main}, []string{own, common})
	own, common, err = gitDirs(dir + "/linked")
	require.NoError(t, err)
	require.Equal(t, []string{main + "/worktrees/linked", main}, []string{own, common})
	require.NoError(t, os.Mkdir(dir+"/hostile", 0o700))
	for _, names := range []string{main + "/worktrees/linked", main, "../nosuch"} {
		require.NoError(t, os.WriteFile(dir+"/hostile/.git", []byte("gitdir: "+names+"\n"), 0o600))
		_, _, err = gitDirs(dir + "/hostile")
		require.Error(t, err, names)
	}
	_, _, err = gitDirs(dir)
	require.Error(t, err)
}

func TestConfigure(t *testing.T) {
	r := &repository{common: "/r/.git"}
	r.configure("core.hookspath\n.husky\x00user.name\nA B\x00remote.origin.url\nhttps://u:secret@example.com/x.git\x00remote.s.url\nssh://git:pw@example.com/x\x00" +
		"remote.scp.url\ngit@example.com:x.git\x00remote.bad.url\nhttps://example.com/\"\n[core]\x00extensions.objectformat\nsha256\x00")
	require.Equal(t, ".husky", r.hooks)
	require.Equal(t, "A B", r.user.Name)
	require.Equal(t, [][2]string{{"origin", "https://example.com/x.git"}, {"s", "ssh://git@example.com/x"}, {"scp", "git@example.com:x.git"}}, r.remotes)
	require.NotContains(t, r.cloneConfig(), "secret")
	require.Contains(t, r.cloneConfig(), "objectFormat = sha256")
}

const aCommit = "0123456789abcdef0123456789abcdef01234567"

func TestStore(t *testing.T) {
	s := StoreIn(private.Dir(t))
	list, err := s.List()
	require.NoError(t, err)
	require.Empty(t, list)
	r := Record{Name: "n", Key: keyOf("n", "/r/.git"), Repository: "/r", Worktree: "/r-worktrees/n", Base: aCommit, Begun: time.Now(), State: Working}
	first, err := s.begin(r, "")
	require.NoError(t, err)
	_, err = s.begin(r, "")
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = s.Open(r)
	require.ErrorIs(t, err, ErrRunning)
	require.True(t, s.Running(r))
	first.close()
	require.False(t, s.Running(r))

	// Two tasks of one repository in place: one at a time.
	here := Record{Name: "here", Key: "here-1", Repository: "/r", Worktree: "/r", Base: aCommit, InPlace: true}
	one, err := s.begin(here, "")
	require.NoError(t, err)
	here.Name, here.Key = "there", "there-1"
	_, err = s.begin(here, "")
	require.ErrorIs(t, err, ErrRunning)
	one.close()

	again, err := s.Open(r)
	require.NoError(t, err)
	again.Fetched = aCommit
	require.NoError(t, again.save())
	again.close()
	found, err := s.Find("n", "/elsewhere")
	require.NoError(t, err)
	require.Equal(t, aCommit, found.Fetched)
	_, err = s.Find("nosuch", "/r")
	require.Error(t, err)

	// A record of another version, or one that was damaged, is named, and the others are listed.
	require.NoError(t, os.Mkdir(s.dir+"/odd", 0o700))
	require.NoError(t, os.WriteFile(s.dir+"/odd/task.json", []byte(`{"V": 99}`), 0o600))
	list, err = s.List()
	require.ErrorContains(t, err, "another version")
	require.Len(t, list, 2)
	// A commit that is none would be given to git, and cut.
	require.NoError(t, os.WriteFile(s.dir+"/odd/task.json", []byte(`{"V": 1, "Name": "odd", "Key": "odd", "Base": "`+aCommit+`", "Fetched": "abc"}`), 0o600))
	_, err = s.List()
	require.ErrorContains(t, err, "damaged")
	again, err = s.Open(r)
	require.NoError(t, err)
	require.NoError(t, again.forget(s))
	_, err = s.Find("n", "/r")
	require.Error(t, err)
}

func TestSection(t *testing.T) {
	page := "# Plan\nall\n## Phase 1\none\n```\n# no heading\n```\n### Detail\nmore\n## Phase 2!\ntwo\n# End\n"
	text, err := section(page, "phase-1")
	require.NoError(t, err)
	require.Equal(t, "## Phase 1\none\n```\n# no heading\n```\n### Detail\nmore\n", text)
	text, err = section(page, "Phase 2")
	require.NoError(t, err)
	require.Equal(t, "## Phase 2!\ntwo\n", text)
	named := "## Phase 20\ntwenty\n## Phase 2: the parser\ntwo\n"
	text, err = section(named, "phase-2") // by its first words, where none has the name
	require.NoError(t, err)
	require.Equal(t, "## Phase 2: the parser\ntwo\n", text)
	text, err = section(named+"## Phase 2\nexact\n", "phase-2")
	require.NoError(t, err)
	require.Equal(t, "## Phase 2\nexact\n", text)
	_, err = section(page, "phase-3")
	require.Equal(t, "the headings are #plan #phase-1 #detail #phase-2 #end", profiles.Hint(err))
}

func TestCheckPrompt(t *testing.T) {
	require.NoError(t, CheckPrompt("fix it"))
	for _, bad := range []string{"", " \n", "a\x00b", strings.Repeat("x", PromptSize+1)} {
		require.Error(t, CheckPrompt(bad))
	}
	require.ErrorContains(t, CheckPrompt("one\nkey AKIAIOSFODNN7EXAMPLQ"), "line 2")
}

// What decides is the last record, what the agent's own rules refused, and the run; never the exit status.
func TestJudge(t *testing.T) {
	good := agent.End{Final: true, Success: true}
	for name, c := range map[string]struct {
		end    agent.End
		denied []string
		last   outcome
		want   State
		code   int
	}{
		"success":                {end: good, want: Done},
		"success, and status 1":  {end: good, last: outcome{code: 1}, want: Done},
		"no record, status 0":    {want: Failed, code: 1},
		"an error, status 0":     {end: agent.End{Final: true, Reason: "error_max_turns"}, want: Failed, code: 1},
		"tools were denied":      {end: good, denied: []string{"Bash"}, want: Failed, code: 1},
		"interrupted, status 0":  {last: outcome{stopped: true}, want: Stopped, code: 1},
		"the time is over":       {end: good, last: outcome{timedOut: true, code: 124}, want: Stopped, code: 124},
		"its run was killed":     {last: outcome{code: statusRefused, signal: syscall.SIGKILL}, want: Failed, code: 1},
		"denied in an early run": {end: good, denied: []string{"Edit", "Edit"}, want: Failed, code: 1},
	} {
		w := &Worked{Placed: &Placed{to: silent{}}, end: c.end, denied: c.denied, last: c.last}
		got := w.judge()
		require.Equal(t, c.want, got.state, name)
		require.Equal(t, c.code, got.code, name)
		require.Equal(t, c.want == Done, got.why == "", name)
	}
}

type silent struct{}

func (silent) AgentRuns()                          {}
func (silent) Line(string)                         {}
func (silent) Step(time.Duration, agent.Step)      {}
func (silent) Denied(time.Duration, events.Denial) {}

// An agent that counts its whole conversation is not counted twice.
func TestCount(t *testing.T) {
	w := &Worked{Placed: &Placed{task: &Task{}}}
	w.count(&agent.End{Whole: true, Usage: agent.Usage{Input: 10, USD: 0.5, Priced: true}})
	w.count(&agent.End{Whole: true, Usage: agent.Usage{Input: 15, USD: 0.75, Priced: true}})
	w.count(&agent.End{Usage: agent.Usage{Input: 1}})
	require.Equal(t, agent.Usage{Input: 16, USD: 0.75, Priced: true}, w.usage)
	require.Equal(t, w.usage, w.task.Usage)
	require.Equal(t, "16 tokens in, 0 out, $0.75 (claude's own count)", usageText(w.usage, "claude"))
	require.Empty(t, usageText(agent.Usage{}, "claude"))
	require.Equal(t, "1h", timeText(time.Hour))
	require.Equal(t, "1h30m", timeText(90*time.Minute))
	require.Equal(t, "10m", timeText(10*time.Minute))
	require.Equal(t, "0s", timeText(0))
}

func TestMessage(t *testing.T) {
	d := &Committed{Placed: &Placed{task: &Task{Record: Record{Agent: "claude", Version: "2.1"}}, order: Order{Prompt: "\nfix it\nwith care"}}, work: &Worked{end: agent.End{Message: "I did.\n"}}}
	require.Equal(t, "unfinished: fix it\n\nI did.\n\nAssisted-by: claude 2.1\n", d.message("unfinished: "))
	d.order.Commit = "own subject\n\nown body"
	require.Equal(t, "own subject\n\nown body\n\nAssisted-by: claude 2.1\n", d.message(""))
	d.order = Order{Prompt: strings.Repeat("ä", 100)}
	subject, _, _ := strings.Cut(d.message(""), "\n")
	require.Len(t, []rune(subject), maxSubject)
}

func TestTail(t *testing.T) {
	var last tail
	for range 3 {
		_, _ = last.Write(bytes.Repeat([]byte("x"), tailSize))
	}
	_, _ = last.Write([]byte("\nend\xff\n"))
	require.Len(t, last.text, tailSize)
	require.Equal(t, []string{"end\uFFFD"}, outcome{said: last.String()}.lastLines(1))
	require.Equal(t, "why", outcome{code: 1, said: "fatal: why\n"}.failure())
	require.Empty(t, outcome{said: "a warning"}.failure())
	require.Equal(t, "why", outcome{code: 128, said: "warning: x\nfatal: why\n\nadvice\nmore of it.\n"}.failure())
	require.Equal(t, "its run was ended by a signal: killed", outcome{code: statusRefused, signal: syscall.SIGKILL}.failure())
	require.Equal(t, verdict{Stopped, statusTimedOut, "first"}, verdict{Stopped, statusTimedOut, "first"}.worse("then"))
	require.Equal(t, verdict{Failed, statusFailed, "then"}, verdict{state: Done}.worse("then"))
	require.NoError(t, outcome{}.refusal("x"))
	err := outcome{refused: &events.Refused{Cause: "no", Hint: "do"}}.refusal("checkout")
	require.EqualError(t, err, "checkout: no")
	require.Equal(t, "do", profiles.Hint(errors.Join(err)))
}

// Until the clone is made a record has no work tree, and what removes the task removes nothing else. One that has the user's
// repository there is refused.
func TestRemoveWithoutClone(t *testing.T) {
	s := StoreIn(private.Dir(t))
	dir := private.Dir(t)
	repo := filepath.Join(dir, "repo")
	require.NoError(t, os.MkdirAll(repo+"/.git", 0o700))
	begin := func(name, worktree string) Record {
		r := Record{Name: name, Key: keyOf(name, repo), Repository: repo, Common: repo + "/.git", Worktree: worktree, Base: aCommit, State: Working}
		made, err := s.begin(r, "")
		require.NoError(t, err)
		made.close()
		return r
	}
	t.Chdir(repo)
	_, err := Remove(t.Context(), s, begin("killed", ""), true)
	require.NoError(t, err)
	require.DirExists(t, repo+"/.git")
	_, err = s.Find("killed", "")
	require.Error(t, err)
	for _, worktree := range []string{repo, dir, repo + "/.git"} {
		r := begin("own", worktree)
		_, err = Remove(t.Context(), s, r, true)
		require.ErrorContains(t, err, "your own repository", worktree)
		require.ErrorContains(t, (&Placed{store: s, task: &Task{Record: r}}).resumable(), "your own repository")
		require.DirExists(t, repo+"/.git")
		require.NoError(t, os.RemoveAll(filepath.Join(s.dir, r.Key)))
	}
	// The control: a work tree elsewhere goes.
	other := filepath.Join(dir, "trees/other")
	require.NoError(t, os.MkdirAll(other, 0o700))
	// Until then what only a cloud has of it is work, too.
	at := sessions.In(filepath.Dir(s.dir)).Begin(sessions.Info{Workspace: other, Resource: &sessions.Resource{Provider: "e2b"}})
	session, err := at.Want("test")
	require.NoError(t, err)
	require.NoError(t, session.WriteFile(sessions.UnfetchedName, nil, 0o600))
	require.NoError(t, at.End(0))
	r := begin("other", other)
	_, err = Remove(t.Context(), s, r, false)
	require.ErrorContains(t, err, "changes that only a cloud has (pccrun download "+at.ID()+")")
	require.DirExists(t, other)
	_, err = Remove(t.Context(), s, r, true)
	require.NoError(t, err)
	require.NoDirExists(t, other)
}

// A directory whose maker was killed before it wrote a record blocks no name.
func TestBeginAgain(t *testing.T) {
	s := StoreIn(private.Dir(t))
	r := Record{Name: "n", Key: "n-1", Repository: "/r", Base: aCommit, State: Working}
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "n-1"), 0o700))
	made, err := s.begin(r, "")
	require.NoError(t, err)
	_, err = s.begin(r, "")
	require.ErrorIs(t, err, fs.ErrExist)
	made.Message = strings.Repeat("x", recordSize)
	require.ErrorContains(t, made.save(), "its record would take")
	made.close()
	list, err := s.List()
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// A deadline that has passed is a timeout; only none is none.
func TestPastDeadline(t *testing.T) {
	timeouts := func(d time.Duration) string {
		cmd, err := phase{dir: "/", timeout: d, command: []string{"true"}}.child(nil)
		require.NoError(t, err)
		return strings.Join(cmd.Args, " ")
	}
	require.Contains(t, timeouts(-time.Hour), "--timeout 1ms ")
	require.Contains(t, timeouts((&Worked{deadline: time.Now().Add(-time.Hour)}).left()), "--timeout 1ms ")
	require.Contains(t, timeouts(time.Minute), "--timeout 60000ms ")
	require.NotContains(t, timeouts(0), "--timeout")
	require.Contains(t, timeouts(0), "--provider native")
}

// A run on this machine that does not end with its time is killed, and that is said; elsewhere, and without a time, it is not.
func TestOverdue(t *testing.T) {
	for _, c := range []struct {
		phase
		killed bool
	}{{phase{timeout: time.Millisecond}, true}, {phase{timeout: time.Hour}, false}, {phase{}, false}, {phase{timeout: time.Millisecond, place: []string{"--provider", "docker"}}, false}} {
		child := exec.Command("cat") // ends with what it reads
		in, err := child.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		var said []events.Event
		c.seen = func(e events.Event) { said = append(said, e) }
		ended := c.killOverdue(child.Process, 0)
		if !c.killed {
			in.Close()
		}
		_ = child.Wait()
		require.Equal(t, c.killed, ended())
		require.Equal(t, c.killed, !child.ProcessState.Success())
		require.Len(t, said, map[bool]int{true: 1}[c.killed])
	}
}

// Whoever is killed while the branch moves leaves it at the one commit or the other: both are the task's.
func TestBrought(t *testing.T) {
	for tip, fetched := range map[string]string{"": "one", "one": "one", "two": "two", "three": "one"} {
		r := Record{Fetched: "one", Bringing: "two"}
		brought(&r, tip)
		require.Equal(t, fetched, r.Fetched, tip)
	}
	r := Record{}
	brought(&r, "")
	require.Equal(t, Record{}, r)
}

func TestNote(t *testing.T) {
	set := map[string]bool{}
	require.True(t, note(set, strings.Repeat("x", 1<<20)))
	require.False(t, note(set, strings.Repeat("x", 1<<20)))
	for i := range 2 * maxNoted {
		note(set, strings.Repeat("y", i))
	}
	require.Len(t, set, maxNoted)
	for text := range set {
		require.LessOrEqual(t, len(text), noteBytes+len("…"))
	}
}

// What a program of the user's gets acts on nothing, whatever the agent said, and no shell reads which program that is.
func TestNotifier(t *testing.T) {
	require.Equal(t, "a b [31m c\uFFFD d", harmless("a\nb\x1b[31m\u202ec\xff\u0085d"))
	require.Len(t, []rune(harmless(strings.Repeat("ä", 2*messageRunes))), messageRunes+1)
	finder := &programs.Finder{Environ: []string{"PATH=/usr/bin:/bin"}}
	for _, bad := range []string{"", " ", "cat > /x", "cat; cat", "cat $HOME", "cat `x`", "cat \"x\"", "cat 'x", "cat *", "cat\nx"} {
		_, err := FindNotifier(bad, finder)
		require.Error(t, err, bad)
	}
	path := filepath.Join(private.Dir(t), "notice")
	n, err := FindNotifier("tee '"+path+"'", finder)
	require.NoError(t, err)
	var bell strings.Builder
	n.Bell = &bell
	(&Placed{order: Order{Notifier: n}, task: &Task{Record: Record{Name: "n", State: Done, Message: "one\ntwo\x07"}}}).Notify(0, errors.New("no\tway"))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), `{"v":1,"event":"end","status":125,"name":"n","state":"done","why":"no way",`)
	require.Contains(t, string(text), `"message":"one two "}`)
	require.Equal(t, "\a", bell.String())
}

func TestClashesIn(t *testing.T) {
	pairs := []Clash{{A: 0, B: 1}, {A: 0, B: 2}, {A: 1, B: 2}}
	require.Equal(t, []Clash{{A: 0, B: 1, Files: []string{"a", "b c"}}, {A: 1, B: 2, Files: []string{"d"}}},
		clashesIn("0\x00tree\x00a\x00b c\x00\x001\x00tree\x00\x000\x00tree\x00d\x00\x00", pairs))
	require.Empty(t, clashesIn("", pairs))
	require.Equal(t, []Clash{{A: 0, B: 1, Files: []string{"a"}}}, clashesIn("0\x00tree\x00a", pairs), "cut short")
	many := "0\x00tree\x00" + strings.Repeat("x\x00", 3*clashesFiles) + "\x001\x00tree\x00\x00"
	require.Len(t, clashesIn(many, pairs)[0].Files, clashesFiles)
	require.Len(t, clashesIn(many, pairs), 1)
}

// lines are what a task prints.
type lines struct {
	Reporter
	said chan string
}

func (l lines) Line(text string) { l.said <- text }

// The time that --prepare has taken counts: what is over by then is said at once.
func TestTimeThatPrepareTook(t *testing.T) {
	to := lines{said: make(chan string)}
	w := &Worked{Placed: &Placed{order: Order{Kept: Kept{Timeout: time.Hour}}, task: &Task{}, to: to}, began: time.Now().Add(-55 * time.Minute), seen: &seen{}}
	defer warnOfTime(w)()
	require.ElementsMatch(t, []string{"30m of 1h are over (50 %)", "49m48s of 1h are over (83 %)"}, []string{<-to.said, <-to.said})
}
