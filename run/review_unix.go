//go:build unix

package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A Review is a session and what is left to be looked at of it.
type Review struct {
	sessions.Entry
	home  sessions.Home
	dir   *os.Root
	Found []workspace.Finding
	Lost  []quarantine.Lost
	More  []string // sessions beside it that have something in quarantine
	named bool     // by the user
	last  shown    // what the user has seen
	now   shown
}

// shown is what a review has shown of a session, which may be restored without that session's name.
type shown struct {
	At      time.Time         `json:"at"`
	Digests map[string]string `json:"digests"` // of what was shown whole, by its name in the stash
}

// shownName is the record of that, in the session's directory.
const shownName = "shown"

// OpenReview opens the first of some sessions that has left something; the first at all if
// it was named.
func OpenReview(home sessions.Home, candidates []sessions.Entry, named bool) (first *Review, err error) {
	for _, e := range candidates {
		r, err := openReview(home, e)
		switch {
		case err != nil && first == nil:
			return nil, err
		case err != nil:
			continue
		case first == nil && (r.left() || named):
			first, r.named = r, named
			continue
		case slices.ContainsFunc(r.Found, SetAside):
			first.More = append(first.More, e.ID)
		}
		r.Close()
	}
	if first == nil {
		return nil, ErrNoReview
	}
	return first, nil
}

// OpenShown opens the one of some sessions, the newest first, that was shown last. It is refused while the newest of those
// that have left something and ended was not shown: the user means that one, or does not know of it.
func OpenShown(home sessions.Home, candidates []sessions.Entry) (last *Review, err error) {
	var newest sessions.Entry
	unseen := false
	for _, e := range candidates {
		r, err := openReview(home, e)
		if err == nil && (newest.ID == "" || newest.State == sessions.Running) && r.left() {
			newest, unseen = e, r.last.At.IsZero()
		}
		if err == nil && r.left() && !r.last.At.IsZero() && (last == nil || r.last.At.After(last.last.At)) {
			last, r = r, last
		}
		if r != nil {
			r.Close()
		}
		if err != nil {
			if last != nil {
				last.Close()
			}
			return nil, err
		}
	}
	if newest.ID == "" {
		return nil, ErrNoReview
	}
	if last == nil || unseen {
		if last != nil {
			last.Close()
		}
		return nil, hint.Errorf("pccrun review shows it; pccrun review "+newest.ID+" --accept restores it unseen", "session %s: pccrun review has not shown it", newest.ID)
	}
	return last, nil
}

func openReview(home sessions.Home, e sessions.Entry) (*Review, error) {
	dir, err := home.Open(e.ID)
	if err != nil {
		return nil, err
	}
	r := &Review{Entry: e, home: home, dir: dir, now: shown{Digests: map[string]string{}}}
	if r.Found, err = quarantine.ReadFindings(dir); err == nil {
		r.Lost, err = quarantine.ReadLost(dir)
	}
	text, unread := state.ReadFile(dir, shownName, maxShownRecord)
	if unread == nil {
		unread = json.Unmarshal(text, &r.last)
	}
	if unread != nil { // it has shown nothing
		r.last = shown{}
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return r, nil
}

// maxShownRecord bounds the record of what was shown, in bytes: some 100 for each of a stash's entries.
const maxShownRecord = 1 << 20

func (r *Review) left() bool { return len(r.Found)+len(r.Lost) > 0 }

// Shown notes that the user has seen the diffs. What a run that goes on has in quarantine may still change.
func (r *Review) Shown() error {
	if r.State == sessions.Running {
		return nil
	}
	r.now.At = time.Now()
	text, err := json.Marshal(r.now)
	if err == nil {
		err = state.WriteFile(r.dir, shownName, text, state.Fast)
	}
	return err
}

// asShown says why what the session holds is not what the user has seen of a finding. Who names the session need not
// have seen it, but nothing is restored that has changed since.
func (r *Review) asShown(f workspace.Finding) error {
	path := Within(r.Workspace, f.Path)
	digests, err := f.Seal(r.dir, r.named)
	if err != nil && (r.named || !errors.Is(err, quarantine.ErrUnseen)) {
		return fmt.Errorf("restore %s: %w", path, err)
	}
	unseen := err != nil
	for name, digest := range digests {
		was, seen := r.last.Digests[name]
		if seen && was != digest {
			return hint.Errorf("pccrun review "+r.ID+" shows it", "restore %s: it has changed since it was shown", path)
		}
		unseen = unseen || !seen
	}
	if unseen && !r.named {
		return hint.Errorf("pccrun review "+r.ID+" --accept PATH restores it unseen", "restore %s: pccrun review has not shown all of it", path)
	}
	return nil
}

// Close closes it.
func (r *Review) Close() { r.dir.Close() }

// SaveLost copies what the session has kept of what was lost at a path, and says where to.
func (r *Review) SaveLost(path, dest string) (string, error) {
	if r.State == sessions.Running {
		return "", fmt.Errorf("session %s: %w", r.ID, sessions.ErrAlive)
	}
	return quarantine.SaveLost(r.dir, r.Lost, path, dest)
}

// SetAside reports whether a finding can be put back.
func SetAside(f workspace.Finding) bool {
	return f.Stash != "" && f.Kind != workspace.Review || slices.ContainsFunc(f.Parts, SetAside)
}

// Accept puts back what was quarantined at the paths and below them, relative ones from a directory too, or
// all of it. It tells of each thing as it is done, and of each that cannot be.
func (r *Review) Accept(paths []string, cwd string, told func(text string), wrong func(error)) (done []string, err error) {
	if r.State == sessions.Running {
		return nil, fmt.Errorf("session %s: %w: accept it when it has ended", r.ID, sessions.ErrAlive)
	}
	live, err := r.live()
	if err != nil {
		return nil, err
	}
	matched := make([]bool, len(paths))
	back := map[string]bool{}
	for i := len(r.Found) - 1; i >= 0; i-- { // of several versions the last
		f := r.Found[i]
		wants := func(path string) bool {
			wanted := len(paths) == 0
			for j, p := range paths {
				if within(filepath.Clean(p), path) || within(filepath.Join(r.Workspace, p), path) || within(filepath.Join(cwd, p), path) {
					wanted, matched[j] = true, true
				}
			}
			return wanted
		}
		wanted := wants(f.Path)
		if !wanted && f.Parts != nil {
			f.Parts = slices.DeleteFunc(slices.Clone(f.Parts), func(p workspace.Finding) bool { return !wants(p.Path) })
			wanted = len(f.Parts) > 0
		}
		if !wanted || f.Kind != workspace.Stashed && f.Kind != workspace.Inert && f.Kind != workspace.Setting || f.Stash == "" && f.Kind == workspace.Setting {
			continue
		}
		if f.Kind == workspace.Setting { // each key is one by itself
			if id := live(f.Path); id != "" {
				wrong(fmt.Errorf("%s: session %s runs in that workspace: accept it when that session has ended", Within(r.Workspace, f.Path), id))
			} else if err := r.restore(f, workspace.Finding.Restore); err != nil {
				wrong(err)
			} else {
				done = append(done, strings.TrimSuffix(Within(r.Workspace, f.Path)+": "+f.What, ": "))
				told("saved: " + done[len(done)-1])
			}
			continue
		}
		if back[f.Path] {
			// What was taken out of a configuration before is missing in the version that is back.
			if f.Kind == workspace.Inert && f.Left(r.dir) != nil {
				if err := r.restore(f, workspace.Finding.Complete); err != nil {
					wrong(err)
				}
			}
			continue
		}
		back[f.Path] = true
		if id := live(f.Path); id != "" {
			wrong(fmt.Errorf("%s: session %s runs in that workspace and would quarantine it again: accept it when that session has ended", Within(r.Workspace, f.Path), id))
			continue
		}
		if err := r.restore(f, workspace.Finding.Restore); err != nil {
			wrong(err)
			continue
		}
		for _, path := range restored(f) {
			done = append(done, Within(r.Workspace, path))
			told("restored: " + done[len(done)-1])
		}
	}
	for j, ok := range matched {
		if !ok {
			wrong(fmt.Errorf("%s: session %s quarantined nothing at that path", paths[j], r.ID))
		}
	}
	return done, nil
}

// restore puts a finding back that is as it was shown.
func (r *Review) restore(f workspace.Finding, how func(workspace.Finding, *os.Root) error) error {
	if err := r.asShown(f); err != nil {
		return err
	}
	return how(f, r.dir)
}

// restored are the paths that a finding has been put back to.
func restored(f workspace.Finding) (paths []string) {
	for _, p := range f.Parts {
		if p.Stash != "" && !slices.Contains(paths, p.Path) {
			paths = append(paths, p.Path)
		}
	}
	if f.Parts == nil {
		paths = []string{f.Path}
	}
	return paths
}

// within reports whether a path is another, or lies below it.
func within(dir, path string) bool {
	_, in := beneath.Path(dir, path)
	return in
}

// live returns what says which run goes on that looks after a path, "" for none.
func (r *Review) live() (func(path string) string, error) {
	runs := map[string]func(path string) bool{}
	err := r.home.EachUnfinished(func(id, text string) (err error) {
		if runs[id], err = checkedBy(text); err != nil {
			err = fmt.Errorf("session %s: %w", id, err)
		}
		return err
	})
	return func(path string) string {
		for id, checks := range runs {
			if checks(path) {
				return id
			}
		}
		return ""
	}, err
}

// maxDiff bounds the lines of a diff.
const maxDiff = 400

// Diff shows what a finding is about.
func (r *Review) Diff(f workspace.Finding) string {
	var b strings.Builder
	whole := r.State != sessions.Running && SetAside(f)
	one := func(path string, before, after []byte) {
		path = messages.Printable(path) // a newline in a name is no line of the diff
		if !isText(before) || !isText(after) {
			fmt.Fprintf(&b, "%s: binary, %d bytes\n", path, len(after))
			whole = false
			return
		}
		text := diff.Diff("a/"+path, before, "b/"+path, after)
		_, text, _ = bytes.Cut(text, []byte("\n")) // the line "diff a b"
		n := 0
		for line := range bytes.Lines(text) {
			if n++; n > maxDiff {
				b.WriteString("…\n")
				whole = false
				break
			}
			b.Write(line)
		}
	}
	path := Within(r.Workspace, f.Path)
	switch {
	case f.Kind == workspace.Address:
	case f.Kind == workspace.Review && f.What == "new":
		now, err := quarantine.ReadNow(f.Path)
		if err != nil {
			return notShown(err)
		}
		one(path, nil, now)
	case f.Kind == workspace.Review && strings.HasPrefix(f.What, "in "):
		return "git show shows it\n"
	case f.Stash == "" && f.Parts == nil:
		return "the content before the run was not kept\n"
	case f.Kind == workspace.Review:
		now, err := quarantine.ReadNow(f.Path)
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
		var digests map[string]string
		if whole {
			var err error
			digests, err = f.Seal(r.dir, false)
			whole = err == nil
		}
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
		if whole {
			maps.Copy(r.now.Digests, digests)
		}
	}
	return b.String()
}

func notShown(err error) string { return "not shown: " + err.Error() + "\n" }

func isText(b []byte) bool { return bytes.IndexByte(b, 0) < 0 && utf8.Valid(b) }

// LostSize says how much of a run's is gone at a path.
func LostSize(l quarantine.Lost) string {
	text := messages.ByteCount(l.Size)
	if l.Size < 1<<10 {
		text += " bytes"
	}
	if l.Dir {
		files := " files, "
		if l.Files == 1 {
			files = " file, "
		}
		text = strconv.Itoa(l.Files) + files + text
	}
	if l.More {
		text = "more than " + text
	}
	if l.Kept == "" {
		text += ", too large to copy back"
	}
	return text
}
