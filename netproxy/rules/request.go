package rules

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A Request is what an HTTP request inside a connection says of itself.
type Request struct {
	Scheme string // "https" inside TLS, else "http"
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
	if !s.SpeaksOfRequests(v) {
		v.Action = Allow
		return v
	}
	path, err := canonicalPath(r.Path)
	if err != nil {
		return no(BadPath, "", err.Error())
	}
	allowed := ""
	for _, rule := range s.matching(v) {
		if !rule.matchesRequest(r.Scheme, r.Method, path) {
			continue
		}
		if rule.deny {
			return no(ByRule, rule.text, "")
		}
		allowed = rule.text
	}
	if allowed == "" {
		v = no(ByDefault, "", "no rule allows the request")
		if !isMethod(r.Method) {
			return v // no rule can; and what it is would be read by a shell
		}
		v.AllowWith = "--allow '" + r.Method + " " + r.Scheme + "://" + target(v.Host, v.Addr, port) + literal(r.Path) + "'"
		return v
	}
	v.Action, v.Rule = Allow, allowed
	return v
}

// SpeaksOfRequests says whether some rule tells the requests to v's host and
// port apart, by method or path.
func (s *Set) SpeaksOfRequests(v Verdict) bool {
	return slices.ContainsFunc(s.matching(v), Rule.Inspects)
}

// Rewrites says whether some servers take a request for one with another
// method, host or path because of a field with this name, or read or write
// another path for it. What a rule says of a request would not hold then.
func Rewrites(name string) bool {
	// CGI and its like fold the one into the other.
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	switch name {
	case "x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-original-uri", "x-rewrite-url",
		"x-original-host", "x-forwarded-host", "x-host", "x-forwarded-prefix", "x-forwarded-uri", "x-forwarded-path",
		"forwarded", "x-forwarded-server", "x-http-host-override",
		"destination", "x-copy-from": // of WebDAV (RFC 4918, section 10.3) and Swift
		return true
	}
	return strings.HasSuffix(name, "-copy-source") || strings.HasSuffix(name, "-rename-source") // of S3 and its like, and of Azure
}

// maxLiteral is how long a path may be that a rule is proposed for. A longer one
// would leave no room for the rest of what is told.
const maxLiteral = 1 << 10

// literal spells a path as a rule for it, "" if none can be said to a shell.
func literal(path string) string {
	path, _, _ = strings.Cut(path, "?")
	if len(path) > maxLiteral || strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/@:+,=%") != "" {
		return ""
	}
	return path
}

// is says whether a Host field, with or without a port, names v's host.
func (v Verdict) is(field string) bool {
	port := v.Port
	if port != 80 && port != 443 {
		port = 0 // it has to be named
	}
	host, port, ok := SplitAuthority(field, port)
	if name, err := canonical(host); err == nil {
		host = name
	}
	return ok && host == v.Host && port == v.Port
}

// matchesRequest says whether the rule speaks of a request. One that denies
// does so in whatever scheme: what a server hears in one it may answer in
// another.
func (r Rule) matchesRequest(scheme, method, path string) bool {
	if !r.deny && r.Inspects() && r.scheme != scheme {
		return false
	}
	same := func(m string) bool { return m == method || r.deny && strings.EqualFold(m, method) } // some servers fold it
	if len(r.methods) > 0 && !slices.ContainsFunc(r.methods, same) {
		return false
	}
	return r.path == "" || glob(r.path, path) ||
		r.deny && slices.ContainsFunc(spellings(path), func(p string) bool { return glob(widest(r.path), widest(p)) })
}

// spellings returns a path that was decoded once, and what servers that stand behind one another make of
// it: until nothing is escaped any more, or more often than mostEscaped allows.
func spellings(path string) []string {
	list := []string{path}
	for len(list) <= mostEscaped {
		next := decoded(path)
		if next == path {
			break
		}
		list, path = append(list, next), next
	}
	return list
}

// decoded resolves what escapes there are, as a server does that lets others stand.
func decoded(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' && i+2 < len(path) {
			if n, err := strconv.ParseUint(path[i+1:i+3], 16, 8); err == nil {
				c, i = byte(n), i+2
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// widest spells a path as the least particular server would read it: without
// what follows a semicolon, an escaped slash as a slash, and in one case. What
// denies has to match that too.
func widest(path string) string {
	path = strings.ToLower(strings.ReplaceAll(path, slash, "/"))
	if !strings.Contains(path, ";") {
		return path
	}
	segments := strings.Split(path, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

var (
	errPathForm    = errors.New("the path does not begin with / or has an invalid character")
	errPathPercent = errors.New("the path has a % without two hexadecimal digits")
	errPathSegment = errors.New("the path has an empty or dot segment, a backslash, a control character, overlong UTF-8 or %uXXXX (maybe escaped)")
	errPathDeep    = errors.New("the path is escaped more than three times over")
)

// mostEscaped is how often a path may be escaped: by its client, by a service whose names are URLs (Jenkins
// has /job/feature%252Fx), and once more.
const mostEscaped = 3

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
		once, err := url.PathUnescape(raw)
		if err != nil {
			return "", errPathPercent
		}
		list := spellings(once)
		if len(list) > mostEscaped {
			return "", errPathDeep
		}
		for _, s := range list {
			if !soundSegment(s, i == len(segments)-1) {
				return "", errPathSegment
			}
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
		if c := segment[i]; c < ' ' || c == 0x7f || c == '\\' || misread(segment[i:]) {
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

// misread says whether s begins with what some decoders take for an ASCII character, though no encoder
// writes it: a UTF-8 sequence that is longer than it needs to be, or %uXXXX.
func misread(s string) bool {
	if len(s) >= 2 && s[1]&0xc0 == 0x80 {
		return s[0] == 0xc0 || s[0] == 0xc1 || s[0] == 0xe0 && s[1] < 0xa0 || s[0] == 0xf0 && s[1] < 0x90
	}
	if len(s) < 6 || s[0] != '%' || s[1] != 'u' && s[1] != 'U' {
		return false
	}
	_, err := strconv.ParseUint(s[2:6], 16, 16)
	return err == nil
}

// parsePathGlob returns a rule's path in the form that [canonicalPath] gives
// to requests, and refuses patterns that could match none.
func parsePathGlob(path string) (string, error) {
	switch {
	case path == "":
		return "", nil
	case strings.Contains(path, "***"):
		return "", errors.New("bad path: more than two * in a row")
	case strings.ContainsAny(path, "?"):
		return "", errors.New("bad path: a rule has no ? (queries are ignored)")
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
