package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/providers/native"
)

// beside tells of what was made beside the workspace and is gone, since the directory there
// was the sandbox's own: the command had no error (git clone . ../other).
func (l *launch) beside(s *native.Started) {
	workspace := l.policy.Workspace
	names, err := s.Beside(workspace)
	if err != nil {
		say(inWords(err))
	}
	dir := filepath.Dir(workspace)
	if dir == l.policy.Home { // where Go keeps what it has fetched
		names = slices.DeleteFunc(names, func(name string) bool { return name == "go" })
	}
	if len(names) == 0 {
		return
	}
	const most = 3
	var paths []string
	for _, name := range names[:min(len(names), most)] {
		paths = append(paths, filepath.Join(dir, name))
	}
	text := "gone: " + strings.Join(paths, ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	w := events.Warning{Text: text + ", made where the directory was the sandbox's own"}
	// Nothing of the host's is to be given away for a name that the command has chosen.
	var st unix.Stat_t
	if unix.Lstat(paths[0], &st) == unix.ENOENT {
		w.Hint = "what stands there before the run is kept by --write " + shell.Quote(paths[0])
	}
	l.log.Emit(w)
	if !l.req.Quiet {
		say(w.Text)
		if w.Hint != "" {
			say("hint: " + w.Hint)
		}
	}
}
