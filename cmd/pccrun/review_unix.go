//go:build unix && !launcher

package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
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
	known := flags{"--json": &asJSON, "--quiet": &quiet}
	words, err := options(reviewUsage, args, known)
	if err == nil && accept >= 0 {
		paths, err = options(reviewUsage, paths, known)
	}
	var r *review
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
	words, err := options(reviewUsage, args, nil)
	if err == nil && len(words) != 3 {
		err = misuse("flag --save: want a session, a path that was not saved, and a destination", "pccrun review --save SESSION PATH DEST")
	}
	var r *review
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

// review is what a session left, for the verb to print.
type review struct{ *run.Review }

// openReview finds the session that the words name, or the newest that has left
// something in the workspace that the caller stands in; to accept, the one that was shown last.
func openReview(words []string, accept bool) (*review, error) {
	home, err := run.Sessions()
	if err != nil {
		return nil, err
	}
	var candidates []sessions.Entry
	if len(words) > 0 {
		_, e, err := findSession(words)
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
		r, err := run.OpenShown(home, candidates)
		return &review{r}, err
	}
	r, err := run.OpenReview(home, candidates, len(words) > 0)
	return &review{r}, err
}

func (r *review) print(diffs bool) {
	printf("session %s in %s\n", r.ID, printable(r.Workspace))
	if len(r.Found)+len(r.Lost) == 0 {
		printf("nothing to review\n")
	}
	for _, one := range r.Lost {
		printf("not saved: %s (%s)\n", printable(one.Path), run.LostSize(one))
	}
	for _, f := range r.Found {
		printf("%s\n", printable(run.DescribeFinding(f, r.Workspace)))
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

func (r *review) printJSON(diffs bool) {
	list := []object{}
	for _, f := range r.Found {
		o := object{{"kind", string(f.Kind)}, {"path", run.Within(r.Workspace, f.Path)}, {"why", f.Why}, {"what", f.What}, {"quarantined", run.SetAside(f)}}
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
func (r *review) accept(paths []string, asJSON bool) int {
	status := 0
	told := func(text string) {
		if !asJSON {
			say(text)
		}
	}
	done, err := r.Accept(paths, profiles.ThisHost().Cwd, told, func(err error) {
		fail(inWords(err))
		status = failed
	})
	if err != nil {
		return failSession(err)
	}
	if len(done) == 0 && status == 0 {
		say("nothing is in quarantine")
	}
	if asJSON {
		printJSON(object{{"session", r.ID}, {"workspace", r.Workspace}, {"accepted", append([]string{}, done...)}, {"errors", mistakes()}})
	}
	return status
}
