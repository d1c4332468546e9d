package rules

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// A Request is what an HTTP request inside a connection says of itself.
type Request struct {
	Host   string // the Host field or :authority
	Method string
	Path   string // as sent; a query is ignored
}

// DecideRequest answers for a request on a connection to host and port, that
// [Set.Decide] allows or wants inspected.
func (s *Set) DecideRequest(host string, port uint16, r Request) Verdict {
	v := s.Decide(host, port)
	if v.Action == Deny {
		return v
	}
	no := func(reason Reason, rule, detail string) Verdict {
		return Verdict{Host: v.Host, Port: v.Port, Addr: v.Addr, Reason: reason, Rule: rule, Detail: detail}
	}
	if !v.is(r.Host) {
		return no(BadMatch, "", "the Host field is not the host of the connection")
	}
	path, err := canonicalPath(r.Path)
	if err != nil {
		return no(BadPath, "", err.Error())
	}
	if v.Action == Allow {
		return v
	}
	name := v.Host
	if v.Addr.IsValid() {
		name = ""
	}
	allowed := ""
	for rule := range s.candidates(name, v.Addr, port) {
		if !rule.matchesRequest(r.Method, path) {
			continue
		}
		if rule.deny {
			return no(ByRule, rule.text, "")
		}
		allowed = rule.text
	}
	if allowed == "" {
		return no(ByDefault, "", "no rule allows the request")
	}
	v.Action, v.Rule = Allow, allowed
	return v
}

// is says whether a Host field, with or without a port, names v's host.
func (v Verdict) is(field string) bool {
	host, port := field, ""
	if i := strings.LastIndexByte(field, ':'); i > strings.LastIndexByte(field, ']') {
		host, port = field[:i], field[i+1:]
	}
	if inside, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inside, "]")
	} else if name, err := canonical(host); err == nil {
		host = name
	}
	return host == v.Host && (port == "" && (v.Port == 80 || v.Port == 443) || port == strconv.Itoa(int(v.Port)))
}

func (r Rule) matchesRequest(method, path string) bool {
	if len(r.methods) > 0 && !slices.Contains(r.methods, method) {
		return false
	}
	return r.path == "" || glob(r.path, path)
}

var (
	errPathForm    = errors.New("the path does not begin with / or holds a character that does not belong in one")
	errPathPercent = errors.New("the path holds a % that begins no escape")
	errPathSegment = errors.New("the path holds an empty or dot segment, a backslash or a control character, maybe escaped")
)

// slash stands for a slash that was escaped: it does not end a segment. Paths
// hold no control characters.
const slash = "\x01"

// canonicalPath returns a path with its escapes resolved, and an escaped slash
// as [slash]. A path that servers could read in different ways is an error.
func canonicalPath(path string) (string, error) {
	path, _, _ = strings.Cut(path, "?")
	if !strings.HasPrefix(path, "/") {
		return "", errPathForm
	}
	for i := range len(path) {
		if path[i] <= ' ' || path[i] >= 0x7f || path[i] == '#' {
			return "", errPathForm
		}
	}
	segments := strings.Split(path[1:], "/")
	for i, raw := range segments {
		once, ok := unescape(raw)
		if !ok {
			return "", errPathPercent
		}
		twice, ok := unescape(once)
		if !ok {
			twice = once
		}
		last := i == len(segments)-1
		if !soundSegment(once, last) || !soundSegment(twice, last) {
			return "", errPathSegment
		}
		segments[i] = strings.ReplaceAll(once, "/", slash)
	}
	return "/" + strings.Join(segments, "/"), nil
}

// soundSegment looks at a segment as a server would that takes an escaped
// slash for a slash, or drops what follows a semicolon.
func soundSegment(segment string, last bool) bool {
	if segment == "" {
		return last
	}
	for i := range len(segment) {
		if c := segment[i]; c < ' ' || c == 0x7f || c == '\\' {
			return false
		}
	}
	for part := range strings.SplitSeq(segment, "/") {
		name, _, _ := strings.Cut(part, ";")
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return true
}

// unescape resolves %XX once.
func unescape(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), true
}

// parsePathGlob returns a rule's path in the form that [canonicalPath] gives
// to requests, and refuses patterns that could match none.
func parsePathGlob(path string) (string, error) {
	switch {
	case path == "":
		return "", nil
	case strings.Contains(path, "***"):
		return "", errors.New("bad path: more than two * together")
	case strings.ContainsAny(path, "?"):
		return "", errors.New("bad path: ? does not belong in a rule (queries are ignored)")
	}
	canonical, err := canonicalPath(path)
	if err != nil {
		return "", errors.New("bad path: " + err.Error())
	}
	if strings.Count(canonical, "*") != strings.Count(path, "*") {
		return "", errors.New("bad path: an escaped * would be a pattern")
	}
	return canonical, nil
}

// glob says whether path matches pattern, in which "*" is anything within a
// segment and "**" anything. It takes time in proportion to both lengths
// multiplied, whatever they hold.
func glob(pattern, path string) bool {
	reached := make([]bool, len(path)+1) // where in path the pattern so far can end
	reached[0] = true
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '*' {
			for j := len(path); j > 0; j-- {
				reached[j] = reached[j-1] && path[j-1] == pattern[i]
			}
			reached[0] = false
			continue
		}
		across := strings.HasPrefix(pattern[i:], "**")
		if across {
			i++
		}
		for j := 1; j <= len(path); j++ {
			reached[j] = reached[j] || reached[j-1] && (across || path[j-1] != '/')
		}
	}
	return reached[len(path)]
}
