package proposals

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// Bounds of what a rule for a directory may show beyond what was asked for.
const (
	groupFrom  = 3   // files of a directory, for which one rule may do
	surplus    = 8   // files beyond twice those, that the rule shows as well
	maxShown   = 256 // files of a directory that was opened itself
	maxListing = 4096
)

// A want is a path and what it is to be.
type want struct {
	Denial
	word  profiles.Access
	below []string // what was wanted, if this is a rule for several
}

// files proposes rules of the file table, and for what is protected one that
// lets it be reviewed.
func (b *maker) files(denials []Denial) (list []Proposal) {
	var wants, named []want
	ends := map[string]want{} // what is behind links, by their paths
	for _, d := range denials {
		if d.Deed == Write {
			if p, ok := b.policy.Protected(d.What); ok && !p.Review {
				list = append(list, b.review(d, p))
				if b.policy.Decide(d.What).Access >= profiles.Overlay {
					continue
				}
			}
		}
		if d.Deed != Read && d.Deed != Write || b.policy.Passing(d.What) {
			continue
		}
		w := b.wants(d)
		if d.Named == "" {
			wants = append(wants, w)
			continue
		}
		d.What = d.Named
		n := b.wants(d)
		named = append(named, n)
		ends[n.What] = w
	}
	direct := b.group(b.simplify(wants))
	for _, w := range direct {
		list = append(list, b.file(w))
	}
	for i := range named {
		// A rule for a path by a link decides on what it leads to, also where another proposes
		// to write there: it must not take back what that one gives.
		end := ends[named[i].What].What
		for _, o := range direct {
			if o.word > named[i].word && (o.What == end || o.Dir && within(o.What, end)) && b.ask(o) == "" && unwritable(o.What) == "" {
				named[i].word = o.word
			}
		}
	}
	for _, w := range b.simplify(named) {
		// What is asked, and what is never proposed, goes by what the links lead to as well.
		p, end := b.file(w), b.file(ends[w.What])
		p.Never, p.Ask = cmp.Or(p.Never, end.Never), cmp.Or(end.Ask, p.Ask)
		list = append(list, p)
	}
	slices.SortStableFunc(list, func(a, b Proposal) int { return strings.Compare(a.What, b.What) })
	return slices.CompactFunc(list, func(a, b Proposal) bool { return a.What == b.What && a.Key == b.Key && slices.Equal(a.Keys, b.Keys) })
}

// wants is what a denial needs.
func (b *maker) wants(d Denial) want {
	if d.Deed == Write {
		return b.writes(d)
	}
	return want{Denial: d, word: profiles.Read}
}

// writes is what a write needs: the file, or, where it is to be made, the
// directory, unless that may be written already and a rule of the name's own is
// what refuses it.
func (b *maker) writes(d Denial) want {
	w := want{Denial: d, word: profiles.Write}
	if d.Absent && b.policy.Decide(path.Dir(d.What)).Access < profiles.Write {
		w.below, w.What, w.Dir = []string{path.Base(d.What)}, path.Dir(d.What), true
	}
	return w
}

// simplify leaves each path once, with the most that was wanted of it, without
// those that another covers which needs no question, and without directories that were only passed by.
func (b *maker) simplify(wants []want) []want {
	slices.SortStableFunc(wants, func(a, b want) int { return strings.Compare(a.What, b.What) })
	var list []want
	for _, w := range wants {
		if n := len(list); n > 0 && list[n-1].What == w.What {
			last := &list[n-1]
			last.Times += w.Times
			last.Opened = last.Opened || w.Opened
			last.below = append(last.below, w.below...)
			if w.word > last.word {
				last.word, last.Call, last.Program = w.word, w.Call, w.Program
			}
			continue
		}
		list = append(list, w)
	}
	return slices.DeleteFunc(slices.Clone(list), func(w want) bool {
		return slices.ContainsFunc(list, func(o want) bool {
			covered := within(o.What, w.What) && o.What != w.What && o.Dir && o.word >= w.word && (o.Opened || o.word == profiles.Write) && b.ask(o) == ""
			passed := within(w.What, o.What) && o.What != w.What && w.Dir && !w.Opened && w.word == profiles.Read
			return covered || passed
		})
	})
}

// group puts one rule for a directory in place of many below it, as long as it
// shows little more.
func (b *maker) group(wants []want) []want {
	for {
		byDir := map[string][]int{}
		for i, w := range wants {
			dir := path.Dir(w.What)
			byDir[dir] = append(byDir[dir], i)
		}
		dirs := make([]string, 0, len(byDir))
		for dir := range byDir {
			dirs = append(dirs, dir)
		}
		slices.Sort(dirs)
		grouped := false
		for _, dir := range dirs {
			if w, ok := b.together(dir, wants, byDir[dir]); ok {
				wants = slices.DeleteFunc(wants, func(o want) bool { return within(dir, o.What) && o.word == w.word })
				wants = append(wants, w)
				grouped = true
				break
			}
		}
		if !grouped {
			return wants
		}
	}
}

// together makes one want of those of a directory.
func (b *maker) together(dir string, wants []want, these []int) (want, bool) {
	first := wants[these[0]]
	w := want{Denial: first.Denial, word: first.word}
	w.What, w.Dir, w.Opened, w.Times = dir, true, true, 0
	for _, i := range these {
		o := wants[i]
		if o.word != w.word || unwritable(o.What) != "" || b.ask(o) != "" {
			return w, false
		}
		w.Times += o.Times
		if len(o.below) == 0 {
			w.below = append(w.below, path.Base(o.What))
		}
		for _, name := range o.below {
			w.below = append(w.below, path.Base(o.What)+"/"+name)
		}
	}
	if slices.ContainsFunc(b.machine.Own, func(own string) bool { return within(own, dir) || within(dir, own) }) {
		return w, false
	}
	if len(these) < 2 || len(w.below) < groupFrom || b.ask(w) != "" {
		return w, false
	}
	shown, all := b.machine.List(dir, maxListing)
	return w, all && len(shown) <= 2*len(w.below)+surplus
}

// file proposes one rule of the table.
func (b *maker) file(w want) Proposal {
	p := Proposal{Edit: profiles.Edit{Keys: []string{"filesystem"}, Key: b.spell(w.What), Value: w.word.String()}, Deed: w.Deed, What: w.What, Reason: w.reason()}
	if w.word == profiles.Write {
		p.Deed = Write
	}
	if n := len(w.below); n > 0 {
		slices.Sort(w.below)
		w.below = slices.Compact(w.below)
		n = len(w.below)
		names := strings.Join(w.below[:min(n, 3)], ", ")
		if n > 3 {
			names += ", …"
		}
		p.Reason += " on " + strconv.Itoa(n) + " below it: " + names
	}
	p.Never = unwritable(w.What)
	p.Ask = b.ask(w)
	d := b.policy.Decide(w.What)
	switch rule := d.Rule; {
	case slices.ContainsFunc(b.machine.Own, func(dir string) bool { return within(dir, w.What) }):
		p.Never = "it belongs to pccrun"
	case rule.Origin.Source == b.machine.File && rule.Path == w.What && rule.Glob == "":
		// The file's own rule for this path, as it is spelled there.
		if key, err := strconv.Unquote(strings.TrimPrefix(rule.Origin.Key, "filesystem.")); err == nil {
			p.Key = key
		}
	}
	return p
}

// review proposes that a protected name may change, and is listed.
func (b *maker) review(d Denial, rule profiles.ProtectRule) Proposal {
	p := Proposal{
		Edit: profiles.Edit{Keys: []string{"protect", "review"}, Key: rule.Pattern}, Deed: Write, What: d.What, Reason: d.reason() + " on " + b.spell(d.What),
		Ask: "a host tool would execute it later",
	}
	switch {
	case rule.Origin.Source == "default":
		p.Never = "it belongs to pccrun: " + rule.Origin.Key
	case rule.Origin.Source == b.machine.File:
		p.Never = "your profile protects it, in line " + strconv.Itoa(rule.Origin.Line)
	}
	return p
}

// ask says why a rule needs a yes.
func (b *maker) ask(w want) string {
	if why := b.secret(w.What); why != "" {
		return why
	}
	if w.word == profiles.Write {
		for _, dir := range [...]string{"/bin", "/boot", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr"} {
			if within(dir, w.What) {
				return "it belongs to the system"
			}
		}
		if rest, ok := strings.CutPrefix(w.What, b.policy.Home+"/"); ok {
			if rest[0] == '.' {
				return "programs on the host use it"
			}
			first, _, _ := strings.Cut(rest, "/")
			if r, ok := b.policy.Protected(b.policy.Workspace + "/" + first); ok && !r.Review {
				return "a host tool may execute it later"
			}
			for _, dir := range [...]string{"bin", "go/bin"} {
				if within(dir, rest) || within(rest, dir) {
					return "the host may execute it later"
				}
			}
		}
	}
	if !w.Dir {
		return ""
	}
	files, all := b.machine.List(w.What, maxListing)
	for _, f := range files {
		if b.secret(f) != "" {
			return "it holds " + strings.TrimPrefix(f, w.What+"/") + ", which looks like a secret"
		}
	}
	if !all {
		return fmt.Sprintf("it holds more than %d files", maxListing)
	}
	if len(files) > maxShown {
		return fmt.Sprintf("it holds %d files", len(files))
	}
	return ""
}

// within reports whether a path is dir or below it.
func within(dir, name string) bool {
	return dir == "/" || name == dir || strings.HasPrefix(name, dir+"/")
}
