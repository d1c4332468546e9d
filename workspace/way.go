package workspace

import (
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/internal/beneath"
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
	if p.Review {
		return nil
	}
	pattern, prefix := filepath.Clean(p.Pattern), ""
	if strings.HasPrefix(pattern, "/") {
		rel, in := beneath.Path(root, pattern)
		if !in {
			return nil
		}
		pattern, prefix = rel, strings.TrimSuffix(root, "/")+"/"
	}
	names := strings.Split(pattern, "/")
	for k := 1; k < len(names); k++ {
		d := Way{last: names[k-1], rule: *p, top: k == 1, rest: strings.Join(names[k:], "/"), Whole: p.Pattern}
		if d.last == "**" {
			continue
		}
		d.rule.Pattern = prefix + strings.Join(names[:k], "/")
		if strings.ContainsAny(d.last, "*?[") {
			d.last = ""
		}
		list = append(list, d)
	}
	return list
}

// Matches reports whether a path is what the first half names.
func (d *Way) Matches(root, path string) bool {
	rel, _ := beneath.Path(root, path)
	return (d.last == "" || d.last == rel[strings.LastIndexByte(rel, '/')+1:]) && (!d.top || !strings.Contains(rel, "/")) && d.rule.Matches(root, path)
}
