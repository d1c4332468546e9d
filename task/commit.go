//go:build unix

package task

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A verdict says how a task has ended.
type verdict struct {
	state State
	code  int    // the exit status
	why   string // it has not succeeded
}

// worse is the verdict if this is wrong, too. The first reason stays.
func (v verdict) worse(why string) verdict {
	if v.state == Done {
		v.state = Failed
	}
	return verdict{v.state, max(v.code, statusFailed), cmp.Or(v.why, why)}
}

// Exit statuses of a task.
const (
	statusFailed   = 1
	statusTimedOut = 124
)

// A Checked is a task whose end is judged.
type Checked struct {
	*Worked
	verdict verdict
	checked string // what the check said: "", "passed" or "failed"
}

// Check judges what the agent did: by its last record, by what its own rules refused it, and by the user's commands. Until one
// of them succeeds the agent goes on.
func (w *Worked) Check() (c *Checked, err error) {
	c = &Checked{Worked: w, verdict: w.judge()}
	if c.verdict.state == Done && w.order.Until != "" {
		c.verdict, err = w.until()
	}
	if err != nil || c.verdict.state != Done || w.order.Check == "" {
		return c, err
	}
	o, v, err := w.tries(w.order.Check, "check")
	switch c.verdict = v; {
	case v.state == Done:
		c.checked = "passed"
	case o.failed:
		c.checked = "failed"
		for _, line := range o.lastLines(5) {
			w.to.Line("  " + line)
		}
	}
	return c, err
}

// until has the agent go on, in its conversation, until the user's command succeeds or it has run as often as it may.
func (w *Worked) until() (verdict, error) {
	for {
		o, v, err := w.tries(w.order.Until, "until")
		switch {
		case err != nil || !o.failed:
			return v, err
		case w.runs >= w.order.MaxRuns:
			v.why = fmt.Sprintf("%s does not succeed after %s of the agent: exit %d", w.order.Until, Count(w.runs, "run"), o.code)
			return v, nil
		}
		if err := w.turn(fmt.Sprintf("This command does not succeed yet: it has ended with status %d. Go on until it succeeds.\n\n%s\n\nThe end of its output:\n\n%s", o.code, w.order.Until, o.said)); err != nil {
			return verdict{Failed, statusFailed, "the agent did not go on: " + err.Error()}, nil
		}
		w.runs++
		if v := w.judge(); v.state != Done {
			return v, nil
		}
	}
}

// tries runs a command of the user's that decides, and judges how it ended.
func (w *Worked) tries(command, what string) (o outcome, v verdict, err error) {
	o, err = w.shell(command, what)
	why, over := w.money.spent()
	switch {
	case o.refused != nil:
		v = verdict{Failed, statusFailed, "the command of --" + what + " did not start: " + o.refused.Cause}
	case over:
		v = verdict{Stopped, statusTimedOut, why}
	case o.timedOut:
		v = timeOver(w)
	case o.stopped:
		v = verdict{Stopped, statusFailed, "interrupted"}
	case o.code != 0:
		o.failed, v = true, verdict{Failed, statusFailed, fmt.Sprintf("the %s failed: %s: exit %d", what, command, o.code)}
	default:
		v.state = Done
	}
	return o, v, err
}

// judge is the verdict on the agent alone.
func (w *Worked) judge() verdict {
	failed := func(why string) verdict { return verdict{Failed, statusFailed, why} }
	if why, over := w.money.spent(); over {
		return verdict{Stopped, statusTimedOut, why}
	}
	switch {
	case w.last.timedOut:
		return timeOver(w)
	case w.last.stopped:
		return verdict{Stopped, statusFailed, "interrupted"}
	case w.last.code == statusRefused && w.end.Final: // the agent has none of that number
		return failed("what the agent's run has left could not be checked: " + w.last.failure())
	case !w.end.Final:
		for _, line := range w.last.lastLines(5) {
			w.to.Line("  " + line)
		}
		how := fmt.Sprintf("exit status %d", w.last.code)
		if w.last.signal != 0 {
			how = w.last.failure()
		}
		if w.end.Garbage > 0 {
			how += fmt.Sprintf("; lines of its output that are no JSON, or too long: %d", w.end.Garbage)
		}
		return failed("the agent ended without a last record (" + how + ")")
	case !w.end.Success:
		return failed("the agent ended with an error: " + cmp.Or(w.end.Reason, "it does not say which"))
	case len(w.denied) > 0:
		tools := slices.Compact(slices.Sorted(slices.Values(w.denied)))
		return failed(fmt.Sprintf("the agent was denied %s by its own rules: %s", Count(len(w.denied), "tool call"), strings.Join(tools, ", ")))
	}
	return verdict{state: Done}
}

func timeOver(w *Worked) verdict {
	return verdict{Stopped, statusTimedOut, "its time of " + timeText(w.order.Timeout) + " is over"}
}

// A Committed is a task whose work stands in commits of its work tree, as far as it is to.
type Committed struct {
	*Placed
	work    *Worked
	verdict verdict
	checked string
	head    string // the commit that the work tree is at
	left    bool   // nothing was to be committed, or could be
	hooks   string // what became of the user's hooks
}

// Commit commits what the agent has left uncommitted, by the user's own hooks, inside.
func (c *Checked) Commit() (*Committed, error) {
	d := &Committed{Placed: c.Placed, work: c.Worked, verdict: c.verdict, checked: c.checked, left: c.order.Leave}
	if c.last.stopped || c.last.code == statusRefused || c.verdict.state == Stopped { // see resumable
		if _, err := d.git("", nil, "version"); err != nil {
			return nil, err
		}
	}
	if err := unlock(&d.task.Record); err != nil {
		d.verdict = d.verdict.worse("the git directory of the work tree is damaged: " + err.Error())
	}
	if !c.order.Leave {
		if err := d.commit(); err != nil {
			d.left = true
			c.to.Line("not committed: " + err.Error() + "; it is in " + c.task.Worktree)
			d.verdict = d.verdict.worse("what the agent has left is not committed")
		}
	}
	var err error
	if d.head, err = d.printed("rev-parse", "--verify", "HEAD^{commit}"); err != nil {
		d.head = ""
		d.verdict = d.verdict.worse("the git directory of the work tree is damaged: " + err.Error())
	}
	return d, nil
}

// commit makes the one commit, if there is something to commit.
func (d *Committed) commit() error {
	staged, err := d.stage()
	if err != nil || !staged {
		return err
	}
	said := ""
	if d.verdict.state == Done {
		if said, err = d.commitBy(d.hookOptions(), ""); err != nil || said == "" {
			if d.hooked() {
				d.hooks = "your hooks passed, in the sandbox"
			}
			return err
		}
		if said, err = d.mend(said); err != nil || said == "" {
			return err
		}
		if d.verdict.state != Stopped {
			d.verdict = verdict{Failed, statusFailed, "the repository's hooks refuse the commit: " + said}
		}
	}
	d.hooks = "hooks not run"
	if said, err = d.commitBy([]string{"-c", "core.hooksPath=/dev/null"}, "unfinished: "); err == nil && said != "" {
		err = fmt.Errorf("git commit: %s", said)
	}
	return err
}

// mend hands what a hook said to the agent, once, and commits again. It returns what the hooks say then, "" if they pass.
func (d *Committed) mend(said string) (string, error) {
	d.to.Line("a hook of the repository refuses the commit: the agent gets its output")
	if err := d.work.turn("git commit failed in a hook of this repository. Repair what it complains of, and do not commit. It said:\n\n" + said); err != nil {
		return "", err
	}
	again, err := d.work.Check()
	if err != nil {
		return "", err
	}
	if d.verdict, d.checked = again.verdict, again.checked; again.verdict.state != Done {
		return again.verdict.why, nil
	}
	if staged, err := d.stage(); err != nil || !staged {
		return "", err
	}
	said, err = d.commitBy(d.hookOptions(), "")
	if said == "" {
		d.hooks = "your hooks passed after the agent had their output"
	}
	return said, err
}

// stage adds all that is not ignored, and reports whether there is something to commit.
func (d *Committed) stage() (bool, error) {
	o, err := d.add()
	if err != nil {
		return false, err
	}
	if failure := o.failure(); failure != "" {
		return false, fmt.Errorf("git add: %s", failure)
	}
	if err := d.noRepositoryWithin(); err != nil {
		return false, err
	}
	o, err = d.git("", nil, "diff", "--cached", "--quiet", "--no-ext-diff")
	if err == nil && o.code > 1 {
		err = fmt.Errorf("git diff: %s", o.failure())
	}
	return o.code == 1, err
}

// add adds all but what rules hide.
func (d *Committed) add() (outcome, error) {
	var hidden []string
	var err error
	if d.task.InPlace {
		hidden, _, err = tracked(d.Placed, d.repo.git)
	}
	all := func() (outcome, error) {
		return d.git(except(hidden), nil, "add", "-A", "--pathspec-from-file=-", "--pathspec-file-nul")
	}
	if err != nil {
		return outcome{}, err
	}
	o, err := all()
	if err != nil || o.code == 0 || o.stopped {
		return o, err
	}
	var list bytes.Buffer
	if _, err := d.git("", func(r io.Reader) { _, _ = io.Copy(&list, io.LimitReader(r, statusSize)) }, "ls-files", "-z", "--others", "--modified", "--exclude-standard"); err != nil {
		return o, err
	}
	unread := slices.DeleteFunc(strings.Split(list.String(), "\x00"), func(path string) bool { return path == "" || !hides(d.Placed, path) })
	if len(unread) == 0 {
		return o, nil
	}
	hidden = append(hidden, unread...)
	if o, err = all(); err == nil && o.code == 0 {
		d.to.Line("not committed, since a rule hides it: " + strings.Join(unread[:min(len(unread), copiesSaid)], ", "))
	}
	return o, err
}

// noRepositoryWithin refuses a repository in the work tree that the base does not have as a submodule: a commit would have
// its head's name alone, and its files would go with the work tree.
func (d *Committed) noRepositoryWithin() error {
	var within string
	var failed error
	o, err := d.git("", func(r io.Reader) { within, failed = repositoryWithin(r) }, rawChanges(d.task.Base)...)
	switch {
	case err != nil:
		return err
	case within != "":
		return fmt.Errorf("%s is a repository of its own: a commit would not have its files", within)
	case failed != nil:
		return fmt.Errorf("git diff-index: %w", failed)
	case o.code != 0:
		return fmt.Errorf("git diff-index: %s", o.failure())
	}
	return nil
}

// rawChanges are arguments of git for what the index has over the base.
func rawChanges(base string) []string {
	return []string{"diff-index", "--cached", "--raw", "--no-renames", "--no-ext-diff", "--ignore-submodules=none", base}
}

// repositoryWithin returns a path that has become a repository of its own, "" for none.
func repositoryWithin(changes io.Reader) (within string, err error) {
	lines := bufio.NewScanner(changes)
	for lines.Scan() {
		modes, path, _ := strings.Cut(lines.Text(), "\t")
		if was, now, _ := strings.Cut(modes, " "); strings.HasPrefix(now, gitlink+" ") && was != ":"+gitlink {
			within = path
		}
	}
	return within, lines.Err()
}

// gitlink is the mode of a tree's entry that is a commit of another repository.
const gitlink = "160000"

// hookOptions has git execute the repository's own hooks, where the sandbox shows them read-only.
func (d *Committed) hookOptions() []string { return []string{"-c", "core.hooksPath=" + d.hookDir()} }

// hookDir is where the user's hooks are: those below a work tree are in the task's own.
func (d *Committed) hookDir() string {
	dir := d.repo.hooks
	if rest, is := strings.CutPrefix(dir, "~/"); is {
		return filepath.Join(d.order.Home, rest)
	}
	return dir
}

// hooked reports whether there is a hook that a commit executes.
func (d *Committed) hooked() bool {
	dir := d.hookDir()
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(d.task.Worktree, dir)
	}
	return slices.ContainsFunc([]string{"pre-commit", "prepare-commit-msg", "commit-msg"}, func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode()&0o111 != 0
	})
}

// commitBy commits what is staged, and returns what git said if it failed.
func (d *Committed) commitBy(options []string, prefix string) (said string, err error) {
	flags := d.flags(d.profile())
	if dir := d.hookDir(); filepath.IsAbs(dir) && !d.task.InPlace && isDir(dir) {
		flags = append(flags, "--read", dir)
	}
	out := &tail{}
	o, err := d.work.counting(phase{
		dir: d.task.Worktree, place: gitPlace(d.order.Place), flags: flags, in: d.message(prefix), seen: d.work.event, keepOn: true, timeout: hookTime,
		command: slices.Concat([]string{"git", "-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "commit.gpgSign=false"}, options, d.identity(), []string{"commit", "-q", "-F", "-"}),
		out:     func(r io.Reader) { _, _ = io.Copy(out, r) },
	})
	if err == nil {
		err = o.refusal("commit")
	}
	if err != nil || o.code == 0 {
		return "", err
	}
	return cmp.Or(strings.TrimSpace(o.said+out.String()), o.failure()), nil
}

// hookTime bounds how long the hooks of a commit may take.
const hookTime = 10 * time.Minute

// maxSubject bounds the first line of a commit's message, in characters.
const maxSubject = 72

// message is that of the commit.
func (d *Committed) message(prefix string) string {
	subject, body := d.order.Commit, ""
	if subject == "" {
		subject, body = firstLine(d.order.Prompt), d.work.end.Message
	} else {
		subject, body, _ = strings.Cut(subject, "\n")
	}
	if subject = prefix + subject; len([]rune(subject)) > maxSubject {
		subject = string([]rune(subject)[:maxSubject-1]) + "…"
	}
	text := subject + "\n\n"
	if body = strings.TrimSpace(body); body != "" {
		text += body + "\n\n"
	}
	return text + "Assisted-by: " + strings.TrimSpace(d.task.Agent+" "+d.task.Version) + "\n"
}

// firstLine is the first line of a text that says something.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

// printed returns what git prints in the work tree: one line.
func (d *Committed) printed(args ...string) (string, error) {
	var out bytes.Buffer
	o, err := d.git("", func(r io.Reader) { _, _ = io.Copy(&out, io.LimitReader(r, 4<<10)) }, args...)
	if err == nil && o.code != 0 {
		err = fmt.Errorf("git %s: %s", args[0], o.failure())
	}
	return strings.TrimSpace(out.String()), err
}
