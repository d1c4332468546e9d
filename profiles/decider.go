package profiles

import "strings"

// A Decider answers as [Policy.Decide] does, and finds the rules that name a path
// by that path: a launch asks about each of hundreds of rules. What it was made of
// must not change any more; any number of goroutines may ask.
type Decider struct{ tables []table }

// table is the rules of one source.
type table struct {
	rules []FileRule
	named map[string]int // by path; where several name it, the one that decides
	globs []int
}

// Decider returns the answers of the policy as it is now.
func (p *Policy) Decider() *Decider {
	d := &Decider{tables: []table{tableOf(p.Files)}}
	for rest := p.Tighten; len(rest) > 0; {
		n := sameSource(rest)
		d.tables = append(d.tables, tableOf(rest[:n]))
		rest = rest[n:]
	}
	return d
}

func tableOf(rules []FileRule) table {
	t := table{rules: rules, named: make(map[string]int, len(rules))}
	for i := range rules {
		r := &rules[i]
		if r.Glob != "" {
			t.globs = append(t.globs, i)
		} else if j, ok := t.named[r.Path]; !ok || r.Access < rules[j].Access {
			t.named[r.Path] = i
		}
	}
	return t
}

// Decide returns the access to an absolute, clean path.
func (d *Decider) Decide(path string) Decision {
	best, ok := d.tables[0].decide(path)
	if !ok {
		best = Decision{Access: Hide, Rule: nothing}
	}
	for i := range d.tables[1:] {
		if t, ok := d.tables[1+i].decide(path); ok && t.Access < best.Access {
			best = t
		}
	}
	return best
}

func (t *table) decide(path string) (Decision, bool) {
	best, length, exact := -1, -1, false
	for dir := path; dir != ""; {
		if i, ok := t.named[dir]; ok {
			best, length, exact = i, len(dir), true
			break
		}
		switch i := strings.LastIndexByte(dir, '/'); {
		case i > 0:
			dir = dir[:i]
		case dir != "/":
			dir = "/"
		default:
			dir = ""
		}
	}
	for _, i := range t.globs {
		r := &t.rules[i]
		if n := r.covers(path); n > length || n == length && n >= 0 && !exact && r.Access < t.rules[best].Access {
			best, length, exact = i, n, false
		}
	}
	if best < 0 {
		return Decision{}, false
	}
	return Decision{Access: t.rules[best].Access, Rule: t.rules[best]}, true
}
