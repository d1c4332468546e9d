package sessions

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/state"
)

// What is kept of the sessions that ended and left something: one goes when
// it is neither among the newest nor young.
const (
	keepCount = 100
	keepAge   = 7 * 24 * time.Hour
)

// What a launch does on average to find those that can go, however many stand:
// one in gcTurn lists them, and gcShare are looked at, by some 30 system calls
// each.
const (
	gcTurn  = 16
	gcShare = 16
)

// stillborn is the age at which a directory without session.json is taken
// for what a crash left, not for a session that begins.
const stillborn = time.Minute

// trash begins the names of directories that are being removed.
const trash = ".gc-"

// GCOptions says what [Home.GC] does.
type GCOptions struct {
	DryRun    bool              // remove nothing
	All       bool              // whatever was kept goes too
	EndedOnly bool              // sessions that crashed are left for a gc that knows what else they left
	Crashed   func(Entry) error // clears what a crashed session left elsewhere (cgroups); on error its directory stays
	Now       time.Time         // the zero value is now
}

// GC removes what nobody needs: sessions that crashed and left nothing that
// is wanted, ended ones that are old, and the remains of removals that did
// not finish. What was not downloaded from a cloud, and a sandbox that stands, stays, but for All. It returns the ids that it removed, or would remove. Several
// may run at once. Sessions of another version stay.
func (h Home) GC(o GCOptions) (removed []string, err error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	root, ids, err := h.open()
	if root == nil {
		return nil, err
	}
	defer root.Close()
	var errs []error
	newer := 0 // kept ones
	stands := map[string]bool{}
	for _, id := range slices.Backward(ids) {
		e, err := look(root, id)
		old, ok := false, false
		switch {
		case errors.Is(err, fs.ErrNotExist):
			old, ok = o.Now.Sub(modified(root, id)) > stillborn, true
		case err != nil:
			// Another version's, or hostile: not ours to judge.
		case (e.Unfetched || e.Standing) && !o.All:
		case e.State == Ended || e.State == Crashed && !o.EndedOnly:
			last := e.Ended
			if e.State == Crashed {
				last = e.Started
			}
			if len(e.Kept) > 0 {
				newer++
			}
			old, ok = o.All || len(e.Kept) == 0 || newer > keepCount && o.Now.Sub(last) >= keepAge, true
			if !old && e.State == Crashed && !o.DryRun && o.Crashed != nil { // what it wanted kept is still wanted, but not what still runs
				if err := o.Crashed(e); err != nil {
					errs = append(errs, fmt.Errorf("session %s: %w", id, err))
				}
			}
		}
		if !ok || !old || o.DryRun {
			stands[markName(e.Workspace)] = true
		}
		if !ok || !old {
			continue
		}
		done, err := h.remove(root, e, id, o)
		if done {
			removed = append(removed, id)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("session %s: %w", id, err))
		}
	}
	if !o.DryRun {
		errs = append(errs, sweep(root, func(name string) bool {
			return strings.HasPrefix(name, trash) || strings.HasPrefix(name, markPrefix) && !stands[name] ||
				strings.HasPrefix(name, toldPrefix) && o.Now.Sub(modified(root, name)) > keepAge
		}))
		if records, err := state.OpenExisting(h.unfinished(), ""); err == nil {
			errs = append(errs, sweep(records, func(name string) bool {
				mark, is := strings.CutPrefix(name, heldPrefix)
				return is && !stands[mark] || strings.HasPrefix(name, reportedPrefix) && o.Now.Sub(modified(records, name)) > keepAge
			}))
			records.Close()
		}
	}
	return removed, errors.Join(errs...)
}

// Renew says that what a session that has ended has kept is in use: it is as young as if it ended now.
func (h Home) Renew(id string) error {
	return h.change(id, func(i *Info) { i.Ended = time.Now().UTC() })
}

// Retain says that a session that has ended is kept for one reason more.
func (h Home) Retain(id, why string) error {
	return h.change(id, func(i *Info) { i.Kept = append(without(i.Kept, why), why) })
}

// Release says that what a session that has ended was kept for is not wanted
// any more; with the last reason its directory goes.
func (h Home) Release(id, why string) error {
	return h.change(id, func(i *Info) { i.Kept = without(i.Kept, why) })
}

func without(list []string, word string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == word })
}

// change changes the record of a session that has ended.
func (h Home) change(id string, change func(*Info)) error {
	root, err := state.OpenExisting(h.dir, "")
	if err != nil {
		return err
	}
	defer root.Close()
	e, err := look(root, id)
	if err != nil {
		return err
	}
	if e.State == Running {
		return fmt.Errorf("session %s: %w", id, ErrAlive)
	}
	change(&e.Info)
	if len(e.Kept) == 0 && e.State == Ended {
		_, err = h.remove(root, e, id, GCOptions{})
		return err
	}
	dir, err := openDir(root, id)
	if err != nil {
		return err
	}
	defer dir.Close()
	return state.WriteFile(dir, infoName, e.append(nil), state.Fast)
}

func modified(root *os.Root, id string) time.Time {
	info, err := root.Lstat(id)
	if err != nil {
		return time.Now()
	}
	return info.ModTime()
}

// remove removes one session, unless somebody else is at it.
func (h Home) remove(root *os.Root, e Entry, id string, o GCOptions) (bool, error) {
	dir, err := openDir(root, id)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	if o.DryRun {
		return true, nil
	}
	lock, err := state.TryLock(dir, lockName)
	if errors.Is(err, state.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return false, nil // another gc is at it, or has been
	}
	if err != nil {
		return false, err
	}
	defer lock.Release()
	if e.State == Crashed && o.Crashed != nil {
		if err := o.Crashed(e); err != nil {
			return false, err
		}
	}
	// Out of sight first: whoever looks sees the session or does not, never
	// half of it.
	gone := trash + strconv.FormatUint(rand.Uint64(), 36)
	if err := root.Rename(id, gone); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	return true, state.RemoveAll(root, gone)
}

// sweep removes what nobody needs of a directory, such as what an interrupted gc left, and the marks of workspaces that
// have no session.
func sweep(root *os.Root, useless func(name string) bool) error {
	all, err := names(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range all {
		if useless(name) {
			errs = append(errs, state.RemoveAll(root, name))
		}
	}
	return errors.Join(errs...)
}
