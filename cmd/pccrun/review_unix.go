//go:build unix && !launcher

package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/review"
)

func reviewVerb(args []string) int {
	if i := slices.Index(args, "--save"); i >= 0 && !slices.Contains(args, "--accept") {
		return saveLost(slices.Delete(slices.Clone(args), i, i+1))
	}
	var paths []string
	accept := slices.Index(args, "--accept")
	if accept >= 0 {
		paths = args[accept+1:]
		args = args[:accept]
	}
	asJSON, quiet := false, false
	known := flags{"--json": &asJSON, "--quiet": &quiet, "--accept": nil, "--save": nil} // which are read above
	words, err := options(args, known)
	if err == nil && accept >= 0 {
		paths, err = options(paths, known)
	}
	var r *reviewed
	if err == nil {
		r, err = openReview(words, accept >= 0)
	}
	if err != nil {
		return failSession(err)
	}
	defer r.Close()
	switch {
	case accept >= 0:
		return r.accept(paths, asJSON)
	case asJSON:
		r.printJSON(!quiet)
	default:
		r.print(!quiet)
	}
	if !quiet && stdout.Err == nil {
		if err := r.Shown(); err != nil {
			return failSession(err)
		}
	}
	return 0
}

// saveLost copies what a session has kept of what was lost: SESSION PATH DEST.
func saveLost(args []string) int {
	words, err := options(args, nil)
	if err == nil && len(words) != 3 {
		err = misuse("flag --save: want a session, a path that was not saved, and a destination", "pccrun review --save SESSION PATH DEST")
	}
	var r *reviewed
	if err == nil {
		r, err = openReview(words[:1], false)
	}
	if err != nil {
		return failSession(err)
	}
	defer r.Close()
	path, err := filepath.Abs(words[1])
	if err == nil {
		words[2], err = r.SaveLost(path, filepath.Clean(words[2]))
	}
	if err != nil {
		return failSession(err)
	}
	say("copied: " + path + " to " + words[2])
	return 0
}

// reviewed is a session, for the verb to print what it left.
type reviewed struct{ *review.Session }

// openReview finds the session that the words name, or the newest that has left
// something in the workspace that the caller stands in; to accept, the one that was shown last.
func openReview(words []string, accept bool) (*reviewed, error) {
	home, err := run.Sessions()
	if err != nil {
		return nil, err
	}
	var candidates []sessions.Entry
	if len(words) > 0 {
		_, e, err := findSession(words, anySession, errNotHere)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, e)
	} else {
		list, err := home.List()
		if err != nil {
			return nil, err
		}
		slices.Reverse(list)
		candidates = slices.DeleteFunc(list, func(e sessions.Entry) bool {
			return !slices.Contains(e.Kept, run.KeepChanges) && !slices.Contains(e.Kept, run.KeepLost) || !standsIn(e.Workspace)
		})
	}
	if accept && len(words) == 0 {
		r, err := review.OpenShown(home, candidates)
		return &reviewed{r}, err
	}
	r, err := review.Open(home, candidates, len(words) > 0)
	return &reviewed{r}, err
}

func (r *reviewed) print(diffs bool) {
	printf("session %s in %s\n", r.ID, printable(r.Workspace))
	if len(r.Found)+len(r.Lost) == 0 {
		printf("nothing to review\n")
	}
	for _, one := range r.Lost {
		printf("not saved: %s (%s)\n", printable(one.Path), review.LostSize(one))
	}
	for _, f := range r.Found {
		printf("%s\n", printable(review.Describe(f, r.Workspace, "")))
		if !diffs {
			continue
		}
		for line := range strings.Lines(r.Diff(f)) {
			printf("    %s\n", printableLine(strings.TrimSuffix(line, "\n")))
		}
	}
	if len(r.More) > 0 {
		printf("more in quarantine: pccrun review %s\n", strings.Join(r.More, ", pccrun review "))
	}
}

func (r *reviewed) printJSON(diffs bool) {
	list := []object{}
	for _, f := range r.Found {
		o := object{{"kind", string(f.Kind)}, {"path", messages.Within(r.Workspace, f.Path)}, {"why", f.Why}, {"what", f.What}, {"quarantined", review.Quarantined(f)}}
		if diffs {
			o = append(o, field{"diff", r.Diff(f)})
		}
		list = append(list, o)
	}
	lost := []object{}
	for _, one := range r.Lost {
		lost = append(lost, object{{"path", one.Path}, {"files", one.Files}, {"bytes", one.Size}, {"kept", one.Kept != ""}})
	}
	printJSON(object{{"session", r.ID}, {"workspace", r.Workspace}, {"state", string(r.State)}, {"changes", list}, {"lost", lost}})
}

// accept puts back what was quarantined at the paths, or all of it.
func (r *reviewed) accept(paths []string, asJSON bool) int {
	home, err := run.Sessions()
	if err != nil {
		return failSession(err)
	}
	checking, err := run.Checking(home)
	if err != nil {
		return failSession(err)
	}
	done, wrong := r.Accept(paths, profiles.ThisHost().Cwd, checking)
	names, status := []string{}, 0
	for _, one := range done {
		what := "restored: "
		if one.Saved {
			what = "saved: "
		}
		if names = append(names, one.Name); !asJSON {
			say(what + one.Name)
		}
	}
	for _, err := range wrong {
		status = failSession(err)
	}
	if len(done)+len(wrong) == 0 {
		say("nothing is in quarantine")
	}
	if asJSON {
		printJSON(object{{"session", r.ID}, {"workspace", r.Workspace}, {"accepted", names}, {"errors", mistakes()}})
	}
	return status
}
