//go:build !launcher

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/detach"
	"github.com/pccrun/pccrun/task"
)

// detachStage is what holds the terminal of a run that goes on by itself.
func detachStage(args []string) (code int, is bool) {
	if len(args) == 0 || args[0] != detach.Verb {
		return 0, false
	}
	return detach.Hold(args[1:]), true
}

// detached starts what holds a run's terminal, and prints the id, unless that has started this one: then program tells it.
func detached(req *profiles.Request, program *run.Program) (code int, gone bool) {
	if report := detach.Reporter(); report != nil {
		req.Host = profiles.ThisHost() // without the variable
		program.Started = func(s *sessions.Session) {
			_, err := s.Dir()
			if err = errors.Join(err, report(detach.Started{ID: s.ID(), Dir: s.Path()})); err != nil {
				say("detach: " + inWords(err))
			}
		}
		return 0, false
	}
	order := detach.Order{Line: os.Args[1:]}
	if req.Terminal || terminal.IsTerminal(int(os.Stdin.Fd())) {
		order.Terminal = [2]int{80, 24}
		if size, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
			order.Terminal = [2]int{int(size.Col), int(size.Row)}
		}
	}
	return startDetached(order, req.Quiet), true
}

// startDetached prints the id of what goes on, once it does.
func startDetached(o detach.Order, quiet bool) int {
	if !quiet {
		defer slow("it starts; Ctrl-C ends it")()
	}
	o.Say = func(line string) { _, _ = os.Stderr.WriteString(printableLine(line) + "\n") }
	id, code, err := detach.Start(o)
	switch {
	case err != nil:
		return fail("detach: " + inWords(err))
	case id == "":
		return code
	}
	printf("%s\n", id)
	return 0
}

// detachedTask is the same of a task.
func detachedTask(args []string, started *func(dir, name string)) (code int, gone bool) {
	if report := detach.Reporter(); report != nil {
		*started = func(dir, name string) {
			if err := report(detach.Started{ID: name, Dir: dir}); err != nil {
				say("detach: " + inWords(err))
			}
		}
		return 0, false
	}
	order := detach.Order{Line: os.Args[1:]}
	if given(args, "-") { // the prompt
		order.Input = os.Stdin
	}
	return startDetached(order, given(args, "-q")), true
}

// heldHere finds the run or the task that the words name, without words the newest run of this workspace that can be attached
// to, or else task, and opens its directory.
func heldHere(verb string, words []string) (name string, dir *os.Root, err error) {
	dirs, err := run.Dirs()
	if err != nil {
		return "", nil, err
	}
	if len(words) == 1 {
		r, err := task.StoreIn(dirs.State).Find(words[0], profiles.ThisHost().Cwd)
		if err == nil {
			dir, err = os.OpenRoot(task.StoreIn(dirs.State).Path(r))
			return r.Name, dir, err
		}
	}
	none := hint.Errorf("pccrun ps lists the running sessions, pccrun task list the tasks", "%s: nothing that was started with --detach runs in this workspace", verb)
	home, e, err := findSession(words, func(e sessions.Entry) bool { return e.State == sessions.Running && e.Detached() }, none)
	if errors.Is(err, none) {
		if name, dir := heldTask(); dir != nil {
			return name, dir, nil
		}
	}
	if err == nil {
		dir, err = home.Open(e.ID)
	}
	return e.ID, dir, err
}

// heldTask finds the newest task of this repository that goes on by itself; nil if there is none.
func heldTask() (name string, dir *os.Root) {
	store, _, list, err := tasksHere(false)
	if err != nil {
		return "", nil
	}
	for _, r := range slices.Backward(list) {
		if !store.Running(r) {
			continue
		}
		if dir, err := os.OpenRoot(store.Path(r)); err == nil {
			if _, err := dir.Lstat(sessions.TerminalName); err == nil {
				return r.Name, dir
			}
			dir.Close()
		}
	}
	return "", nil
}

func detachVerb(args []string) int {
	asJSON := false
	words, err := options(args, flags{"--json": &asJSON})
	if err = errors.Join(err, unexpected(words, 1, "name one session or task")); err != nil {
		return failSession(err)
	}
	name, dir, err := heldHere("detach", words)
	if err != nil {
		return failSession(err)
	}
	defer dir.Close()
	c, err := detach.Dial(dir)
	n := 0
	if err == nil {
		n, err = c.Detach()
	}
	if err != nil {
		return failSession(notHeld("detach", name, dir, err))
	}
	if asJSON {
		printJSON(object{{"id", name}, {"detached", n}})
	} else if n == 0 {
		say(name + ": no terminal is attached")
	}
	return 0
}

// notHeld is why nobody answers for a run.
func notHeld(verb, name string, dir *os.Root, err error) error {
	switch _, over := detach.Ended(dir); {
	case !errors.Is(err, detach.ErrNoHolder):
		return err
	case over:
		return hint.Errorf("pccrun attach "+name+" shows what it printed last", "%s: %s has ended", verb, name)
	case errors.Is(err, fs.ErrNotExist):
		return hint.Errorf("while it runs pccrun exec runs another command in it, and pccrun logs shows what happens", "%s: %s was not started with --detach", verb, name)
	}
	return hint.Errorf("pccrun ps says what became of it", "%s: %s: what held its terminal was killed", verb, name)
}

func attachVerb(args []string) int {
	keys, _ := detach.ParseKeys(detach.UsualKeys)
	words, err := options(args, flags{"--detach-keys": func(text string) (err error) {
		keys, err = detach.ParseKeys(text)
		return err
	}})
	if err = errors.Join(err, unexpected(words, 1, "name one session or task")); err != nil {
		return failSession(err)
	}
	name, dir, err := heldHere("attach", words)
	if err != nil {
		return failSession(err)
	}
	defer dir.Close()
	c, err := detach.Dial(dir)
	if errors.Is(err, detach.ErrNoHolder) {
		if end, over := detach.Ended(dir); over {
			return showEnded(name, dir, end)
		}
	}
	if err != nil {
		return failSession(notHeld("attach", name, dir, err))
	}
	return showHeld(c, name, dir, keys)
}

// showEnded prints the end of what a run printed, and returns its status.
func showEnded(name string, dir *os.Root, end detach.End) int {
	text, err := detach.Screen(dir)
	if err == nil {
		out, reset := run.Replayed(os.Stdout)
		_, err = out.Write(text)
		reset()
	}
	if err != nil {
		return failSession(err)
	}
	say(name + " has ended with status " + itoa(int64(end.Status)))
	return end.Status
}

// showHeld shows a run at this terminal.
func showHeld(c *detach.Client, name string, dir *os.Root, keys detach.Keys) int {
	var in *os.File
	var user *providers.Terminal
	out, giveBack := run.Replayed(os.Stdout)
	switch {
	case c.Terminal && terminal.IsTerminal(int(os.Stdin.Fd())) && terminal.IsTerminal(int(os.Stdout.Fd())):
		run.LeaveSignals()
		f, t, stop, err := run.UserTerminal()
		if err != nil {
			return failSession(err)
		}
		in, user, out, giveBack = f, t, f, stop
	case terminal.IsTerminal(int(os.Stdout.Fd())):
		say(name + " goes on when this ends, by Ctrl-C")
	}
	ends := make(chan os.Signal, 1)
	if user != nil {
		signal.Notify(ends, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGINT)
	}
	type shown struct {
		end detach.End
		err error
	}
	done := make(chan shown, 1)
	go func() {
		end, err := c.Show(out, in, user, keys)
		done <- shown{end, err}
	}()
	var last shown
	select {
	case sig := <-ends:
		giveBack()
		return 128 + int(sig.(syscall.Signal))
	case last = <-done:
	}
	giveBack()
	switch {
	case last.err != nil:
		if end, over := detach.Ended(dir); over { // it ended at this moment
			return showEnded(name, dir, end)
		}
		fail("attach: "+name+": "+inWords(last.err), "pccrun ps says what became of it")
		return messages.Refused
	case last.end.Over:
		return last.end.Status
	}
	say(name + ": " + last.end.Why + "; it goes on")
	return 0
}
