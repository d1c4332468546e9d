//go:build (linux || darwin) && !launcher

package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/homes/login"
	"github.com/pccrun/pccrun/internal/outgoing/client"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
)

// policy is that by which the home was filled.
func (r *homeRequest) policy(e *homes.Entry) (*profiles.Policy, error) {
	name := strings.TrimPrefix(strings.TrimSuffix(e.Record.Profile, homes.NoLogin), "built-in ")
	return profiles.Resolve(profiles.Request{Host: profiles.ThisHost(), Workspace: r.workspace, Profile: name, Home: profiles.Persist.String(), NoLogin: strings.HasSuffix(e.Record.Profile, homes.NoLogin)})
}

// login takes the log-ins of a home over into the user's own files: where a run has just renewed
// them, as far as that needs no question, else after one.
func (r *homeRequest) login(stateDir string, e *homes.Entry) int {
	p, err := r.policy(e)
	if err != nil {
		return failWith(err)
	}
	tty := openTerminal(false)
	if tty == nil && !r.renewed {
		fail("home login: nothing was copied: no terminal to ask at", "")
		return failed
	}
	h, err := homes.OpenAlone(stateDir, e.Key)
	if errors.Is(err, homes.ErrInUse) && r.renewed {
		return 0 // whoever uses it finds the same when it ends
	}
	if err != nil {
		fail("home login: "+err.Error(), "")
		return failed
	}
	defer h.Close()
	host := profiles.ThisHost()
	sends := client.New(host.Home, host.Environ, say)
	code, found := 0, false
	for i := range p.Seeds {
		s := &p.Seeds[i]
		name, below := strings.CutPrefix(s.Path, p.Home+"/")
		if !below || s.Mode != profiles.Login || s.Renew == "" {
			continue
		}
		l := login.Login{
			Form: s.Renew, Endpoint: s.Endpoint, Path: s.Path, UserHome: p.Home, Inside: h.Read(name), Client: sends,
			Keep:   func(text []byte) error { return h.Write(name, text) },
			Copied: func(t homes.Tokens) (bool, bool) { return h.Copied(name, t) },
		}
		short := "~/" + filepath.ToSlash(name)
		if !r.renewed {
			l.Ask = func(a homes.Account) bool {
				return yes(tty, "copy the login of "+whose(a)+" to "+short+"?")
			}
		}
		a, err := l.Renew(context.Background())
		switch {
		case errors.Is(err, login.ErrNone), errors.Is(err, login.ErrSame):
			continue
		case err == nil:
			say("the renewed login of " + whose(a) + " was copied to " + short)
		case r.renewed:
			say("login not copied to the host: " + short + ": " + inWords(err))
			say("hint: pccrun home login --workspace " + shell.Quote(e.Record.Workspace.Path) + " --profile " + shell.Quote(e.Record.Name) + " asks and copies it")
		default:
			fail("home login: "+short+": "+inWords(err), "")
			code = failed
		}
		found = true
	}
	if !found && !r.renewed {
		say("no login in this home differs from yours")
	}
	return code
}

// whose names an account as far as it is known.
func whose(a homes.Account) string {
	name := a.Name
	if name == "" {
		name = a.User
	}
	if name == "" {
		name = "an account that the service does not name"
	}
	if a.Organisation != "" {
		name += " (organisation " + a.Organisation + ")"
	}
	return name
}
