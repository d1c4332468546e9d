package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/workspace"
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
	flag := func(name string, _ func() string) bool {
		switch name {
		case "--json":
			asJSON = true
		case "--quiet":
			quiet = true
		default:
			return false
		}
		return true
	}
	words, err := options(reviewUsage, args, flag)
	if err == nil && accept >= 0 {
		paths, err = options(reviewUsage, paths, flag)
	}
	var r *review
	if err == nil {
		r, err = openReview(words)
	}
	if err != nil {
		return failSession(err)
	}
	defer r.dir.Close()
	switch {
	case accept >= 0:
		return r.accept(paths, asJSON)
	case asJSON:
		r.printJSON(!quiet)
	default:
		r.print(!quiet)
	}
	return 0
}

// saveLost copies what a session has kept of what was lost: SESSION PATH DEST.
func saveLost(args []string) int {
	words, err := options(reviewUsage, args, func(string, func() string) bool { return false })
	if err == nil && len(words) != 3 {
		err = &usageError{"flag --save: want a session, a path of what is gone, and where it is to be copied to", "pccrun review --save SESSION PATH DEST"}
	}
	var r *review
	if err == nil {
		r, err = openReview(words[:1])
	}
	if err != nil {
		return failSession(err)
	}
	defer r.dir.Close()
	if r.State == sessions.Running {
		return failSession(fmt.Errorf("session %s: %w", r.ID, sessions.ErrAlive))
	}
	path, err := filepath.Abs(words[1])
	if err == nil {
		words[2], err = workspace.SaveLost(r.dir, r.lost, path, filepath.Clean(words[2]))
	}
	if err != nil {
		return failSession(err)
	}
	say("copied: " + path + " to " + words[2])
	return 0
}

// A review is a session and what is left to be looked at of it.
type review struct {
	sessions.Entry
	home  sessions.Home
	dir   *os.Root
	found []workspace.Finding
	lost  []workspace.Lost
}

// openReview finds the session that the words name, or the newest that has left
// something in the workspace that the caller stands in.
func openReview(words []string) (*review, error) {
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
	for _, e := range candidates {
		dir, err := home.Open(e.ID)
		if err != nil {
			return nil, err
		}
		r := &review{Entry: e, home: home, dir: dir}
		if r.found, err = workspace.ReadFindings(dir); err == nil {
			r.lost, err = workspace.ReadLost(dir)
		}
		if err != nil {
			dir.Close()
			return nil, err
		}
		if len(r.found)+len(r.lost) > 0 || len(words) > 0 {
			return r, nil
		}
		dir.Close()
	}
	return nil, errNoReview
}

func (r *review) print(diffs bool) {
	printf("session %s in %s\n", r.ID, printable(r.Workspace))
	if len(r.found)+len(r.lost) == 0 {
		printf("nothing to review\n")
	}
	for _, one := range r.lost {
		printf("gone: %s (%s)\n", printable(one.Path), run.LostSize(one))
	}
	for _, f := range r.found {
		printf("%s\n", printable(run.DescribeFinding(f, r.Workspace)))
		if !diffs {
			continue
		}
		for line := range strings.Lines(r.diff(f)) {
			printf("    %s\n", printableLine(strings.TrimSuffix(line, "\n")))
		}
	}
}

func (r *review) printJSON(diffs bool) {
	list := []object{}
	for _, f := range r.found {
		o := object{{"kind", string(f.Kind)}, {"path", run.Within(r.Workspace, f.Path)}, {"why", f.Why}, {"what", f.What}, {"set_aside", f.Stash != "" && f.Kind != workspace.Review}}
		if diffs {
			o = append(o, field{"diff", r.diff(f)})
		}
		list = append(list, o)
	}
	lost := []object{}
	for _, one := range r.lost {
		lost = append(lost, object{{"path", one.Path}, {"files", one.Files}, {"bytes", one.Size}, {"kept", one.Kept != ""}})
	}
	printJSON(object{{"session", r.ID}, {"workspace", r.Workspace}, {"state", string(r.State)}, {"changes", list}, {"lost", lost}})
}

// accept puts back what was set aside at the paths, or all of it.
func (r *review) accept(paths []string, asJSON bool) int {
	if r.State == sessions.Running {
		return failSession(fmt.Errorf("session %s: %w, and could change what you accept", r.ID, sessions.ErrAlive))
	}
	cwd := profiles.ThisHost().Cwd
	status := 0
	var done []string
	wrong := func(err error) {
		fail(inWords(err))
		status = failed
	}
	live, err := r.live()
	if err != nil {
		return failSession(err)
	}
	matched := make([]bool, len(paths))
	back, taken := map[string]bool{}, map[string]map[string]bool{}
	for i := len(r.found) - 1; i >= 0; i-- { // of several versions the last
		f := r.found[i]
		wanted := len(paths) == 0
		for j, p := range paths {
			if f.Path == filepath.Clean(p) || f.Path == filepath.Join(r.Workspace, p) || f.Path == filepath.Join(cwd, p) { // a shell ends a directory's name with a slash
				wanted, matched[j] = true, true
			}
		}
		if !wanted || f.Kind != workspace.Stashed && f.Kind != workspace.Inert && f.Kind != workspace.Setting || f.Stash == "" && f.Kind == workspace.Setting {
			continue
		}
		if f.Kind == workspace.Setting { // each key is one by itself
			if id := live(f.Path); id != "" {
				wrong(fmt.Errorf("%s: session %s runs in that workspace: accept it when that has ended", run.Within(r.Workspace, f.Path), id))
			} else if err := f.Restore(r.dir); err != nil {
				wrong(err)
			} else {
				done = append(done, strings.TrimSuffix(run.Within(r.Workspace, f.Path)+": "+f.What, ": "))
				if !asJSON {
					say("taken over: " + done[len(done)-1])
				}
			}
			continue
		}
		if back[f.Path] {
			// What was taken out of a configuration before is missing in the version that is back.
			if names := taken[f.Path]; f.Kind == workspace.Inert && names != nil {
				if err := f.Amend(r.dir, names); err != nil {
					wrong(err)
				}
			}
			continue
		}
		back[f.Path] = true
		if id := live(f.Path); id != "" {
			wrong(fmt.Errorf("%s: session %s runs in that workspace, and would set it aside again: accept it when that has ended", run.Within(r.Workspace, f.Path), id))
			continue
		}
		names := f.Taken(r.dir)
		if err := f.Restore(r.dir); err != nil {
			wrong(err)
			continue
		}
		taken[f.Path] = names
		done = append(done, run.Within(r.Workspace, f.Path))
		if !asJSON {
			say("put back: " + done[len(done)-1])
		}
	}
	for j, ok := range matched {
		if !ok {
			wrong(fmt.Errorf("%s: nothing of that path was set aside in session %s", paths[j], r.ID))
		}
	}
	if len(done) == 0 && status == 0 {
		say("nothing is set aside")
	}
	if asJSON {
		printJSON(object{{"session", r.ID}, {"workspace", r.Workspace}, {"accepted", append([]string{}, done...)}, {"errors", mistakes()}})
	}
	return status
}

// live returns what says which run goes on that looks after a path, "" for none.
func (r *review) live() (func(path string) string, error) {
	runs := map[string][]*workspace.Standing{}
	err := r.home.Owed(func(id, text string) error {
		s, _, err := workspace.ParseStandings(text)
		if err == nil {
			runs[id] = s
		} else if !workspace.Unfinished(err) {
			return fmt.Errorf("session %s: %w", id, err)
		}
		return nil
	})
	return func(path string) string {
		for id, s := range runs {
			if slices.ContainsFunc(s, func(one *workspace.Standing) bool { return one.Overlaps(path) }) {
				return id
			}
		}
		return ""
	}, err
}

// maxDiff bounds the lines of a diff.
const maxDiff = 400

// diff shows what a finding is about.
func (r *review) diff(f workspace.Finding) string {
	var b strings.Builder
	one := func(path string, before, after []byte) {
		path = printable(path) // a newline in a name is no line of the diff
		if !isText(before) || !isText(after) {
			fmt.Fprintf(&b, "%s: binary, %d bytes\n", path, len(after))
			return
		}
		text := diff.Diff("a/"+path, before, "b/"+path, after)
		_, text, _ = bytes.Cut(text, []byte("\n")) // the line "diff a b"
		n := 0
		for line := range bytes.Lines(text) {
			if n++; n > maxDiff {
				b.WriteString("…\n")
				break
			}
			b.Write(line)
		}
	}
	path := run.Within(r.Workspace, f.Path)
	switch {
	case f.Kind == workspace.Program || f.Kind == workspace.Grown || f.Kind == workspace.Address:
	case f.Kind == workspace.Review && f.What == "new":
		now, err := workspace.ReadNow(f.Path)
		if err != nil {
			return notShown(err)
		}
		one(path, nil, now)
	case f.Kind == workspace.Review && strings.HasPrefix(f.What, "in "):
		return "git show shows it\n"
	case f.Stash == "":
		return "what it held before was not kept\n"
	case f.Kind == workspace.Review:
		now, err := workspace.ReadNow(f.Path)
		if err != nil && f.What != "removed" {
			return notShown(err)
		}
		err = f.Show(r.dir, func(_ string, before []byte, why string) {
			if why == "" {
				one(path, before, now)
			}
		})
		if err != nil {
			return notShown(err)
		}
	default:
		left := f.Left(r.dir)
		err := f.Show(r.dir, func(below string, content []byte, why string) {
			if why != "" {
				fmt.Fprintf(&b, "%s: %s\n", path+below, why)
				return
			}
			one(path+below, left, content)
		})
		if err != nil {
			return notShown(err)
		}
	}
	return b.String()
}

func notShown(err error) string { return "not shown: " + err.Error() + "\n" }

func isText(b []byte) bool { return bytes.IndexByte(b, 0) < 0 && utf8.Valid(b) }
