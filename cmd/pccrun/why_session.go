//go:build !launcher

package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
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
	home, e, err := findSession([]string{name}, anySession, errNotHere)
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

// look collects what the session's events say of an answer's subject, asked for
// as asked: of a path also what lies above and below it, and of a host without a
// port every port.
func (s *past) look(a *answer, asked string) error {
	var about func(what string) bool
	var paths []string
	switch a.question {
	case "read", "write", "exec":
		paths = s.paths(a, asked)
		deeds := []string{"write ", "change "}
		if a.question != "write" {
			deeds = []string{"read "}
		}
		about = func(what string) bool {
			return slices.ContainsFunc(deeds, func(deed string) bool {
				path, ok := strings.CutPrefix(what, deed)
				return ok && near(path, paths)
			})
		}
	case "connect":
		host, port, err := splitTarget(asked)
		if err != nil { // a socket: no denial names one
			return nil
		}
		anyPort := asked == host || asked == "["+host+"]"
		host = strings.ToLower(host)
		about = func(what string) bool {
			what = strings.ToLower(what) // as the command spelled it
			digits, ok := strings.CutPrefix(what, "connect "+host+":")
			return what == "resolve "+host || ok && (anyPort || digits == strconv.Itoa(int(port)))
		}
	case "env":
		return nil
	default:
		url := asked
		if end := strings.IndexAny(url, "?#"); end >= 0 { // events tell no query
			url = url[:end]
		}
		about = func(what string) bool { return what == "request "+a.question+" "+url }
	}
	return eachEvent(s.home, s.entry, func(r events.Record) {
		at := clock(r.Time) + " "
		switch e := r.Event.(type) {
		case events.Changed:
			if near(e.Path, paths) {
				s.lines = append(s.lines, at+changedText(e)+": pccrun review "+s.entry.ID+" shows it")
			}
		case events.Denial:
			if about(e.What) {
				s.lines = append(s.lines, at+"denied:"+denialText(e))
			}
		}
	})
}

// paths are the spellings under which events may have the path that was asked
// for: as it stands, where it leads, and, since what a run says at its end is
// relative to its workspace, there too.
func (s *past) paths(a *answer, asked string) []string {
	list := []string{a.subject}
	if a.leadsTo != "" {
		list = append(list, a.leadsTo)
	}
	if !filepath.IsAbs(asked) && !strings.HasPrefix(asked, "~") {
		list = append(list, filepath.Join(s.entry.Workspace, asked))
	}
	return list
}

// near reports whether a path is one of a list, or lies above or below one.
func near(path string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool {
		return path == p || strings.HasPrefix(path, p+"/") || strings.HasPrefix(p, path+"/")
	})
}

// changedText says what became of a path.
func changedText(e events.Changed) string {
	path := printable(e.Path)
	switch e.Kind {
	case "stashed":
		return path + " was quarantined (protected by " + printable(e.Why) + ")"
	case "inert":
		return path + " was quarantined (" + printable(e.Why) + ")"
	}
	return path + ": " + printable(e.What) + " (" + printable(e.Why) + ")"
}

func (s *past) print() {
	if len(s.lines) == 0 {
		printf("session %s recorded no denial and no change of it\n", s.entry.ID)
		printf("  started as: %s\n", commandLine(s.entry.Argv)) // its flags, which decided then, are none of the question's
		printf("its policy, as far as it is recorded, says:\n")
		return
	}
	printf("session %s:\n", s.entry.ID)
	for _, line := range s.lines {
		printf("  %s\n", line)
	}
}
