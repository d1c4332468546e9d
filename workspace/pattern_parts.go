package workspace

import (
	"path"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// A Way is a pattern of several names, cut in two: what is made at the
// first half must not hold the second.
type Way struct {
	last  string // name of the first half; "" if it is a pattern
	rule  profiles.ProtectRule
	top   bool // it names something in the root itself
	rest  string
	Whole string
}

// Ways cuts a pattern in two at each of its directories below the root.
func Ways(root string, p *profiles.ProtectRule) (list []Way) {
	if p.Review || !strings.Contains(p.Pattern, "/") {
		return nil
	}
	pattern, prefix := path.Clean(p.Pattern), ""
	if strings.HasPrefix(pattern, "/") {
		rel, in := beneath.Path(root, pattern)
		if !in {
			return nil
		}
		pattern, prefix = rel, strings.TrimSuffix(root, "/")+"/"
	}
	for from := 0; ; {
		n := strings.IndexByte(pattern[from:], '/')
		if n < 0 {
			return list
		}
		end := from + n
		d := Way{last: pattern[from:end], rule: *p, top: from == 0, rest: pattern[end+1:], Whole: p.Pattern}
		from = end + 1
		if d.last == "**" {
			continue
		}
		d.rule.Pattern = prefix + pattern[:end]
		if strings.ContainsAny(d.last, "*?[") {
			d.last = ""
		}
		list = append(list, d)
	}
}

// Matches reports whether a path is what the first half names.
func (d *Way) Matches(root, path string) bool {
	rel, _ := beneath.Path(root, path)
	return (d.last == "" || d.last == rel[strings.LastIndexByte(rel, '/')+1:]) && (!d.top || !strings.Contains(rel, "/")) && d.rule.Matches(root, path)
}
