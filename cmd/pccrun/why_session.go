package main

import (
	"strings"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/sessions"
)

// A past is what a session did about the thing that `why --session` asks for.
type past struct {
	home  sessions.Home
	entry sessions.Entry
	lines []string
}

// findPast finds the session, and makes the request ask for the policy that it
// ran under, as far as the session tells: its workspace and its profile.
func findPast(name string, req *profiles.Request) (*past, error) {
	home, e, err := findSession([]string{name})
	if err != nil {
		return nil, err
	}
	if req.Workspace == "" {
		req.Workspace = e.Workspace
	}
	if req.Profile == "" {
		req.Profile = e.Profile
	}
	return &past{home: home, entry: e}, nil
}

// look collects what the session's events say of an answer's subject: of a path
// also what lies above and below it.
func (s *past) look(a *answer, p *profiles.Policy, host *profiles.Host) error {
	subject := a.subject
	if a.question == "read" || a.question == "write" || a.question == "exec" {
		path, err := expand(subject, p, host)
		if err != nil {
			return err
		}
		subject = path
	}
	return eachEvent(s.home, s.entry, func(r events.Record) {
		at := r.Time.UTC().Format("15:04:05.000 ")
		switch e := r.Event.(type) {
		case events.Changed:
			if e.Path == subject || strings.HasPrefix(e.Path, subject+"/") || strings.HasPrefix(subject, e.Path+"/") {
				s.lines = append(s.lines, at+changedText(e)+": pccrun review "+s.entry.ID+" shows it")
			}
		case events.Denial:
			if (a.question == "read" || a.question == "write") && about(e.What, a.question, subject) {
				s.lines = append(s.lines, at+"denied:"+denialText(e))
			}
			if a.question == "connect" && (e.What == "connect "+subject || e.What == "resolve "+subject || strings.HasPrefix(e.What, "connect "+subject+":")) {
				s.lines = append(s.lines, at+"denied:"+denialText(e))
			}
		}
	})
}

// about reports whether a denial is of that question, and of that path or one
// above or below it.
func about(what, question, subject string) bool {
	path, ok := strings.CutPrefix(what, question+" ")
	return ok && (path == subject || strings.HasPrefix(path, subject+"/") || strings.HasPrefix(subject, path+"/"))
}

// changedText says what became of a path.
func changedText(e events.Changed) string {
	path := printable(e.Path)
	switch e.Kind {
	case "stashed":
		return path + " was set aside (protect " + printable(e.Why) + ")"
	case "inert":
		return path + " was made inert (" + printable(e.Why) + ")"
	}
	return path + ": " + printable(e.What) + " (" + printable(e.Why) + ")"
}

func (s *past) print() {
	if len(s.lines) == 0 {
		printf("session %s has recorded nothing about it; its policy, as far as it is known, says:\n", s.entry.ID)
		return
	}
	printf("session %s:\n", s.entry.ID)
	for _, line := range s.lines {
		printf("  %s\n", line)
	}
}
