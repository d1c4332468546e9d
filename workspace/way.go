package workspace

import (
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// A deepRule is a pattern of several names, cut in two: what is made at the
// first half must not hold the second.
type deepRule struct {
	last  string // name of the first half; "" if it is a pattern
	rule  profiles.ProtectRule
	top   bool // it names something in the root itself
	rest  string
	whole string
}

// ways cuts a pattern in two at each of its directories below the root.
func ways(root string, p *profiles.ProtectRule) (list []deepRule) {
	if p.Review {
		return nil
	}
	pattern, prefix := filepath.Clean(p.Pattern), ""
	if strings.HasPrefix(pattern, "/") {
		rel, in := below(root, pattern)
		if !in {
			return nil
		}
		pattern, prefix = rel, strings.TrimSuffix(root, "/")+"/"
	}
	names := strings.Split(pattern, "/")
	for k := 1; k < len(names); k++ {
		d := deepRule{last: names[k-1], rule: *p, top: k == 1, rest: strings.Join(names[k:], "/"), whole: p.Pattern}
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

// matches reports whether a path is what the first half names.
func (d *deepRule) matches(root, path string) bool {
	rel, _ := below(root, path)
	return (d.last == "" || d.last == rel[strings.LastIndexByte(rel, '/')+1:]) && (!d.top || !strings.Contains(rel, "/")) && d.rule.Matches(root, path)
}

// below returns path relative to dir, "" if it is dir, and whether it is dir
// or lies below it. Both are absolute and clean.
func below(dir, path string) (rest string, ok bool) {
	if dir == "/" {
		return strings.TrimPrefix(path, "/"), true
	}
	if !strings.HasPrefix(path, dir) {
		return "", false
	}
	if len(path) == len(dir) {
		return "", true
	}
	return path[len(dir)+1:], path[len(dir)] == '/'
}
