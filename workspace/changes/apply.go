package changes

import (
	"fmt"
	"path"
	"path/filepath"
	"strconv"

	"github.com/pccrun/pccrun/workspace"
)

// A Selection says which changes to apply.
type Selection struct {
	Paths []string // absolute and clean; what lies below counts too. None: all
	Force bool     // also where the host has changed since
}

// takes reports whether a change is selected. What is protected must be named
// by what protects it, or deeper: "." is not enough.
func (s *Selection) takes(u *Upper, root string, c *Change) (selected, withheld bool) {
	full := filepath.Join(root, c.Path)
	if len(s.Paths) == 0 {
		return c.Protect == "", c.Protect != ""
	}
	for _, p := range s.Paths {
		if !contains(p, full) && p != "/" {
			continue
		}
		selected = true
		if c.Protect == "" {
			return true, false
		}
		if rule, _ := u.protected(p, false); rule != "" || p == full {
			return true, false
		}
	}
	return false, selected
}

// An Outcome is what an apply did.
type Outcome struct {
	Applied  []string // paths on the host
	Withheld []Change // selected, but protected and not named
	Left     int      // changes that are still only in the overlay

	Committed []workspace.Finding // protected names that git would write by what was applied
}

// A ConflictError says that the host's files are not those that the run saw.
// Nothing was applied.
type ConflictError struct {
	Root    string
	Changes []Change
}

func (e *ConflictError) Error() string {
	c := e.Changes[0]
	text := fmt.Sprintf("%s: %s", filepath.Join(e.Root, c.Path), c.Conflict)
	if n := len(e.Changes) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return text
}

// Hint says what to do about it.
func (e *ConflictError) Hint() string {
	return "pccrun diff shows both; apply other paths, or use --force to overwrite them"
}

// A plan is what an apply is about to do to one layer.
type applyPlan struct {
	layer int
	set   *Set
	take  []bool // by index of the change
}

// plan selects changes, and adds steps of them to a journal. A new directory is one step
// with all that is selected in it, and so is one that goes as a whole.
func (u *Upper) plan(j *journal, layer int, set *Set, sel *Selection, token string) (*applyPlan, []Change, error) {
	p := &applyPlan{layer: layer, set: set, take: make([]bool, len(set.Changes))}
	var withheld, conflicts []Change
	for i := range set.Changes {
		c := &set.Changes[i]
		held := false
		if p.take[i], held = sel.takes(u, set.Root, c); held {
			withheld = append(withheld, *c)
		}
	}
	p.parents()
	for i := range set.Changes {
		// A directory that would take something withheld with it stays.
		if c := &set.Changes[i]; p.take[i] && c.Before != nil && c.Before.Kind == workspace.Dir && (c.After == nil || c.After.Kind != workspace.Dir) && !p.whole(i) {
			p.take[i] = false
			withheld = append(withheld, *c)
		}
	}
	for i := range set.Changes {
		if c := &set.Changes[i]; p.take[i] && c.Conflict != "" && !sel.Force {
			conflicts = append(conflicts, *c)
		}
	}
	if len(conflicts) > 0 {
		return nil, nil, &ConflictError{Root: set.Root, Changes: conflicts}
	}
	for i := range set.Changes {
		if c := &set.Changes[i]; p.take[i] && c.inWay {
			return nil, nil, fmt.Errorf("apply %s: the host replaced the directory by a %s", filepath.Join(set.Root, c.Path), c.Before.Kind)
		}
	}
	done := "" // the directory that the last step took as a whole
	for i := range set.Changes {
		c := &set.Changes[i]
		if !p.take[i] || done != "" && contains(done, c.Path) {
			continue
		}
		s := step{Op: put, Layer: layer, Path: c.Path, Temp: path.Join(path.Dir(c.Path), tempPrefix+token+"-"+strconv.Itoa(len(j.Steps)))}
		wasDir, isDir := c.Before != nil && c.Before.Kind == workspace.Dir, c.After != nil && c.After.Kind == workspace.Dir
		if c.Before != nil {
			s.Old = c.Before.Stamp.Ino
		}
		switch {
		case wasDir && isDir:
			s.Op, s.Modes = mode, [2]uint32{c.Before.Mode, c.After.Mode}
		case wasDir || isDir:
			done = c.Path
		}
		if c.After == nil {
			s.Op = remove
		}
		j.Steps = append(j.Steps, s)
	}
	return p, withheld, nil
}

// parents takes the new directories that hold something that is taken, also where the host
// has put something else.
func (p *applyPlan) parents() {
	for i := len(p.take) - 1; i >= 0; i-- {
		if !p.take[i] {
			continue
		}
		for dir := path.Dir(p.set.Changes[i].Path); ; dir = path.Dir(dir) {
			if j, ok := p.set.find(dir); ok && p.set.Changes[j].After != nil && (p.set.Changes[j].Before == nil || p.set.Changes[j].inWay) {
				p.take[j] = true
			}
			if dir == "." {
				break
			}
		}
	}
}

// whole reports whether all that was in a directory which is gone is taken.
func (p *applyPlan) whole(i int) bool {
	for j := range p.set.below(i) {
		if c := &p.set.Changes[i+1+j]; c.Before != nil && !p.take[i+1+j] {
			return false
		}
	}
	return true
}
