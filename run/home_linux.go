package run

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
)

// What a run does about a persistent home.

// left says what the command has left in the home that no tool keeps there, and what copies it to the host: the user will
// look for it outside, and in vain. "" for nothing. needs are those of the plan.
func (m *home) left(needs []homes.Need) (text, hint string) {
	if m.kept == nil {
		return "", ""
	}
	needed := func(path string) bool { // something of the host's is shown there, or below; or it is a cache of Go's
		return path == "go" || slices.ContainsFunc(needs, func(n homes.Need) bool {
			return n.Name == path || strings.HasPrefix(n.Name, path+"/")
		})
	}
	var made []string
	for _, dir := range m.searched() {
		for _, name := range m.kept.Shown(dir) {
			if path := filepath.Join(dir, name); !slices.Contains(m.stood[dir], name) && !needed(path) {
				made = append(made, path)
			}
		}
	}
	if len(made) == 0 {
		return "", ""
	}
	hint = "pccrun home" + m.flags() + " export " + shell.Quote(made[0]) + " DEST copies it to the host"
	for i, name := range made {
		made[i] = strconv.Quote("~/" + name)
	}
	return "saved only in the home of this workspace: " + messages.Few(made, 3), hint
}

// giveBack has a log-in that the run has renewed taken over into the user's own file, by the whole
// program, as far as that needs no question.
func (m *home) giveBack(local bool) {
	if m.kept == nil || !local {
		return
	}
	renewable := false
	for _, s := range m.kept.Renewed(m.policy) {
		if renewable = renewable || s.Renew != ""; s.Renew == "" && !m.req.Quiet {
			if _, err := os.Lstat(s.Path); errors.Is(err, os.ErrNotExist) {
				messages.Say("a new login stays in the home of this workspace: " + strconv.Quote(s.Path))
			}
		}
	}
	m.kept.Close()
	if renewable && m.uid == 0 {
		messages.Say("a renewed login stays in the home of this workspace: root privileges were dropped")
		messages.Say("hint: pccrun home login" + m.flags() + " asks and copies it")
		return
	}
	if !renewable {
		return
	}
	exe, err := m.program.Whole()
	if err == nil {
		defer exe.Close()
		args := []string{"pccrun", "home", "login", "--renewed", "--workspace", m.policy.Workspace, "--profile", m.kept.Record.Name}
		var p *os.Process
		if p, err = os.StartProcess("/proc/self/fd/3", args, &os.ProcAttr{Dir: "/", Env: m.req.Host.Environ, Files: []*os.File{nil, os.Stderr, os.Stderr, exe}}); err == nil {
			timer := time.AfterFunc(loginWithin, func() { _ = p.Kill() })
			_, err = p.Wait()
			timer.Stop()
		}
	}
	if err != nil {
		messages.Say("a renewed login stays in the home of this workspace: " + messages.InWords(err))
	}
}

// loginWithin is how long a run waits at its end for a log-in to be taken over.
const loginWithin = 30 * time.Second

// flags name the home of this run where it is not the one that `pccrun home` takes by itself.
func (m *home) flags() string {
	flags := " --profile " + shell.Quote(m.kept.Record.Name)
	if m.req.Workspace != "" || m.policy.WorkDir != m.policy.Workspace {
		flags += " --workspace " + shell.Quote(m.policy.Workspace)
	}
	return flags
}
