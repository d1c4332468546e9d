package filesync

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

// rulesText is gitleaks' own set of rules (github.com/gitleaks/gitleaks, v8.30.1,
// config/gitleaks.toml, MIT: gitleaks/LICENSE), as it is published. Its library would link
// seventy modules, among them readers of every kind of archive, for what stands in this file.
//
//go:embed gitleaks/gitleaks.toml
var rulesText []byte

// A Finding is a secret in a file. It never holds the secret.
type Finding struct {
	File        string // relative to the top
	Line        int
	Rule        string
	Fingerprint string // of the rule, the file and the secret
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s (fingerprint %s)", f.File, f.Line, f.Rule, f.Fingerprint)
}

// fingerprint names a secret without telling it: 48 bits, which many texts share.
func fingerprint(rule, file, secret string) string {
	sum := sha256.Sum256([]byte("pccrun secret 1\x00" + rule + "\x00" + file + "\x00" + secret))
	return hex.EncodeToString(sum[:6])
}

// A secretRule is one of gitleaks' rules.
type secretRule struct {
	ID          string
	Regex       string
	Path        string
	Entropy     float64
	SecretGroup int `toml:"secretGroup"`
	Keywords    []string
	Allowlists  []allowlist

	re     func() *regexp.Regexp
	path   func() *regexp.Regexp // of the files that it is for
	named  bool                  // the expression begins with a keyword, after the rest of a name; re is the one from the keyword on
	anyway bool                  // a match need not hold a keyword
}

type allowlist struct {
	Condition   string
	Paths       []string
	RegexTarget string `toml:"regexTarget"`
	Regexes     []string
	Stopwords   []string

	paths, regexes func() *regexp.Regexp
}

// secretRules are all rules, and their keywords.
type secretRules struct {
	rules    []secretRule
	global   allowlist
	keywords []keyword
	byStart  [1 << 15]uint16 // which of starts a text begins with, by [startOf]
	starts   [][]int         // keywords that begin alike, of the first none
}

// A keyword is a text without which a rule matches nothing. Letters of both cases count as one.
type keyword struct {
	text    string // in lower case
	rules   []int
	follows *regexp.Regexp // what every match has behind it; nil: nothing that is worth a look
}

// How much of a text is searched around a keyword.
const (
	before  = 1 << 10
	forward = 16 << 10 // a private key of RSA with 8,192 bits has 7 KB
	value   = 1 << 10  // of a name that is a keyword: both
)

// anyName is what rules for values with a name have in front of the keyword.
const anyName = `[\w.-]{0,50}?`

// notFirst are the rules with such a name whose keyword is a part of the value: these are tried around it.
var notFirst = []string{"lob-api-key", "lob-pub-api-key", "new-relic-browser-api-token", "new-relic-insert-key", "new-relic-user-api-key", "typeform-api-token"}

// anywhere are the rules whose match need not hold a keyword: these are tried in all of a text.
var anywhere = []string{"facebook-access-token", "sourcegraph-access-token", "airtable-personnal-access-token"}

// follows are what stands in every match behind keywords that are parts of many words. Each begins with a character of
// [inName].
var follows = map[string]string{
	"ey": `^[a-zA-Z0-9]{17}`, "s.": `^(?i)[a-z0-9]{24}`, "sk": `^[a-fA-F0-9]{32}`, "test_": `^[a-fA-F0-9]{35}`, "live_": `^[a-fA-F0-9]{35}`,
	"_pub": `^_[a-fA-F0-9]{31}`, "ext_": `^(?i)[a-z0-9]{5,30}\.`, "sc_": `^(?i)[a-z0-9]{5,30}\.`, "api-": `^[A-Z0-9]{26}`,
}

// generic is the rule that goes by names such as "token" alone. It alone passes over the files that
// gitleaks takes for made by tools: what begins with a prefix of its own is a secret anywhere.
const generic = "generic-api-key"

var loadRules = sync.OnceValues(func() (*secretRules, error) {
	var file struct {
		Allowlist allowlist
		Rules     []secretRule
	}
	if err := toml.Unmarshal(rulesText, &file); err != nil {
		return nil, fmt.Errorf("rules for secrets: %w", err)
	}
	s := &secretRules{global: file.Allowlist, starts: [][]int{nil}}
	s.global.compile()
	numbers := map[string]int{}
	for _, r := range file.Rules {
		if r.Regex == "" {
			continue // by its name alone, which excludes it always
		}
		if r.named = strings.Contains(r.Regex, anyName) && !slices.Contains(notFirst, r.ID); r.named {
			r.Regex = "^(?:" + strings.ReplaceAll(r.Regex, anyName, "") + ")"
		}
		r.re, r.path, r.anyway = lazy(r.Regex), lazy(r.Path), slices.Contains(anywhere, r.ID)
		for i := range r.Allowlists {
			r.Allowlists[i].compile()
		}
		for _, k := range r.Keywords {
			k = strings.ToLower(k)
			n, ok := numbers[k]
			if !ok {
				n = len(s.keywords)
				numbers[k] = n
				s.addKeyword(k)
			}
			s.keywords[n].rules = append(s.keywords[n].rules, len(s.rules))
		}
		s.rules = append(s.rules, r)
	}
	if len(s.rules) == 0 {
		return nil, errors.New("rules for secrets: there are none")
	}
	return s, nil
})

func (s *secretRules) addKeyword(text string) {
	k := keyword{text: text}
	if behind := follows[text]; behind != "" {
		k.follows = regexp.MustCompile(behind)
	}
	for third := range byte(32) { // of a keyword with two characters any
		start := []byte{text[0], text[1], third}
		if len(text) > 2 && third != text[2]&31 {
			continue
		}
		number := &s.byStart[startOf(start)]
		if *number == 0 {
			*number = uint16(len(s.starts))
			s.starts = append(s.starts, nil)
		}
		s.starts[*number] = append(s.starts[*number], len(s.keywords))
	}
	s.keywords = append(s.keywords, k)
}

// startOf is a number of the three characters that a text begins with: the same for letters of both cases.
func startOf(text []byte) int {
	return int(text[0]&31)<<10 | int(text[1]&31)<<5 | int(text[2]&31)
}

func lazy(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

func (a *allowlist) compile() {
	a.paths, a.regexes = joined(a.Paths), joined(a.Regexes)
}

func joined(list []string) func() *regexp.Regexp {
	if len(list) == 0 {
		return func() *regexp.Regexp { return nil }
	}
	return lazy("(?:" + strings.Join(list, ")|(?:") + ")")
}

// A found is a match in a text.
type found struct {
	start  int
	rule   string
	secret string
}

// A trial is what a scan knows of a rule.
type trial struct {
	tried, skipped bool
	end            int      // of the last match
	windows        [][2]int // that are searched
}

// scan returns what a text of a file holds, in the order of the text.
func (s *secretRules) scan(file string, text []byte) []found {
	var all []found
	var trials []trial // of most files none is needed
	for i := range len(text) - 2 {
		start := s.byStart[startOf(text[i:i+3])]
		if start == 0 {
			continue
		}
		for _, n := range s.starts[start] {
			k := &s.keywords[n]
			end := i + len(k.text)
			if end > len(text) || !equalFold(text[i:end], k.text) {
				continue
			}
			if k.follows != nil && (end == len(text) || !inName[text[end]] || !k.follows.Match(text[end:min(len(text), end+128)])) {
				continue
			}
			for _, number := range k.rules {
				r := &s.rules[number]
				if r.ID == generic && !assigned(text[end:min(len(text), end+80)]) {
					continue // before the expressions for its name, which cost more
				}
				if trials == nil {
					trials = make([]trial, len(s.rules))
				}
				t := &trials[number]
				if !t.tried {
					t.tried, t.skipped = true, r.ID == generic && matches(s.global.paths(), file) || r.passes(file)
				}
				switch {
				case t.skipped || i < t.end:
				case r.named:
					f, end := s.match(r, file, text, [2]int{i, min(len(text), i+value)})
					all, t.end = append(all, f...), max(t.end, end)
				case r.anyway:
					t.windows = [][2]int{{0, len(text)}}
				default:
					t.add([2]int{max(0, i-before), min(len(text), i+forward)})
				}
			}
		}
	}
	for number := range trials {
		for _, w := range trials[number].windows {
			f, _ := s.match(&s.rules[number], file, text, w)
			all = append(all, f...)
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Or(a.start-b.start, strings.Compare(a.rule, b.rule)) })
	return slices.DeleteFunc(all, func(f found) bool { // the same secret, by a rule that knows more
		return f.rule == generic && slices.ContainsFunc(all, func(o found) bool {
			return o.rule != generic && strings.Contains(o.secret, f.secret)
		})
	})
}

// assigned reports whether a value that the generic rule could take stands behind a name, with an operator between them. A
// program has "token" or "key" in every other line: the rule's expression is for the few that this lets pass.
func assigned(behind []byte) bool {
	rest := named.trim(behind)
	if len(rest) == 0 || !operator[rest[0]] {
		return false
	}
	value := operated.trim(rest)
	tail := valued.trim(value)
	return len(value)-len(tail) >= 10 && (len(tail) == 0 || ending[tail[0]]) // with fewer its entropy is too low
}

// What the generic rule's expression has behind a name: more of it and space, an operator and space, a value, and
// what ends that. A call ("token := auth.Token(") has no end of a value.
const (
	letters   = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-\u017f\u212a" // the last two are letters "s" and "k" to an expression without case
	spaces    = " \t\n\f\r`'\""
	operators = "=>:|?,"
	ends      = spaces + ";\\"
)

var inName, named, operator, operated, valued, ending = setOf(letters), setOf(letters + spaces), setOf(operators), setOf(operators + spaces), setOf(letters + "=+/"), setOf(ends)

// A byteSet is a set of characters.
type byteSet [256]bool

func setOf(chars string) (s byteSet) {
	for _, c := range []byte(chars) {
		s[c] = true
	}
	return s
}

// trim returns a text from the first character on that is not in the set.
func (s *byteSet) trim(text []byte) []byte {
	for i, c := range text {
		if !s[c] {
			return text[i:]
		}
	}
	return nil
}

// add adds a window behind the others, or widens the last.
func (t *trial) add(w [2]int) {
	if last := len(t.windows) - 1; last >= 0 && w[0] <= t.windows[last][1] {
		t.windows[last][1] = max(t.windows[last][1], w[1])
	} else {
		t.windows = append(t.windows, w)
	}
}

// equalFold reports whether a text is a keyword, in any case of its letters.
func equalFold(text []byte, keyword string) bool {
	for i, c := range text {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != keyword[i] {
			return false
		}
	}
	return true
}

// passes reports whether a rule is not for a file.
func (r *secretRule) passes(file string) bool {
	if !matches(r.path(), file) {
		return true
	}
	return slices.ContainsFunc(r.Allowlists, func(a allowlist) bool {
		return !a.all() && matches(a.paths(), file)
	})
}

// all reports whether every part of an allowlist has to hold, not any.
func (a *allowlist) all() bool { return strings.EqualFold(a.Condition, "and") }

func matches(re *regexp.Regexp, text string) bool { return re != nil && re.MatchString(text) }

// match returns the matches of a rule in a window of a text, and where the last ends, of those too that are allowed.
func (s *secretRules) match(r *secretRule, file string, text []byte, w [2]int) (all []found, last int) {
	for _, at := range r.re().FindAllSubmatchIndex(text[w[0]:w[1]], -1) {
		start, end := w[0]+at[0], w[0]+at[1]
		last = end
		for n := 0; r.named && n < 50 && start > 0 && inName[text[start-1]]; n++ {
			start--
		}
		whole := string(bytes.Trim(text[start:end], "\n"))
		secret := whole
		for i := 2; i+1 < len(at); i += 2 {
			if at[i] >= 0 && at[i+1] > at[i] && (r.SecretGroup == 0 || r.SecretGroup == i/2) {
				secret = string(text[w[0]+at[i] : w[0]+at[i+1]])
				break
			}
		}
		if r.Entropy != 0 && entropy(secret) <= r.Entropy {
			continue
		}
		line := text[bytes.LastIndexByte(text[:start], '\n')+1:]
		if i := bytes.IndexByte(line[min(len(line), len(whole)):], '\n'); i >= 0 {
			line = line[:len(whole)+i]
		}
		allowed := func(a *allowlist) bool { return a.allows(file, secret, whole, string(line)) }
		if allowed(&s.global) || slices.ContainsFunc(r.Allowlists, func(a allowlist) bool { return allowed(&a) }) {
			continue
		}
		all = append(all, found{start, r.ID, secret})
	}
	return all, last
}

// allows reports whether an allowlist takes a match for none.
func (a *allowlist) allows(file, secret, whole, line string) bool {
	target := secret
	switch a.RegexTarget {
	case "match":
		target = whole
	case "line":
		target = line
	}
	lower := strings.ToLower(secret)
	stop := slices.ContainsFunc(a.Stopwords, func(w string) bool { return strings.Contains(lower, strings.ToLower(w)) })
	if !a.all() {
		return stop || matches(a.regexes(), target)
	}
	return (len(a.Paths) == 0 || matches(a.paths(), file)) && (len(a.Regexes) == 0 || matches(a.regexes(), target)) && (len(a.Stopwords) == 0 || stop)
}

// entropy is Shannon's, in bits, as gitleaks reckons it.
func entropy(text string) (bits float64) {
	counts := map[rune]int{}
	for _, c := range text {
		counts[c]++
	}
	for _, n := range counts {
		f := float64(n) / float64(len(text))
		bits -= f * math.Log2(f)
	}
	return bits
}

// The pieces in which a large file is read. What a piece ends with begins the next, so that
// no secret is cut in two.
const (
	piece   = 1 << 20
	overlap = 64 << 10
)

// all scans a text as a whole.
func (s *secretRules) all(file string, text []byte, allowed func(fingerprint string) bool) (list []Finding) {
	line, at := 1, 0
	for _, f := range s.scan(file, text) {
		line, at = line+bytes.Count(text[at:f.start], []byte{'\n'}), f.start
		if print := fingerprint(f.rule, file, f.secret); !allowed(print) {
			list = append(list, Finding{file, line, f.rule, print})
		}
	}
	return list
}

// read scans all of a reader, and calls passed with what has been scanned, piece
// by piece; a piece in which a secret is found that is not allowed is not passed, nor is what follows.
func (s *secretRules) read(file string, r io.Reader, allowed func(fingerprint string) bool, passed func([]byte) error) (list []Finding, err error) {
	buf := make([]byte, overlap+piece)
	held, line, offset := 0, 1, 0
	known := map[found]bool{}
	for {
		n, err := io.ReadFull(r, buf[held:])
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return list, err
		}
		text := buf[:held+n]
		for _, f := range s.scan(file, text) {
			print := fingerprint(f.rule, file, f.secret)
			at := f
			at.start += offset
			if known[at] || allowed(print) {
				continue
			}
			known[at] = true
			list = append(list, Finding{file, line + bytes.Count(text[:f.start], []byte{'\n'}), f.rule, print})
		}
		done := len(text)
		if !last {
			done -= overlap
		}
		if passed != nil && len(list) == 0 {
			if err := passed(text[:done]); err != nil {
				return list, err
			}
		}
		if last {
			return list, nil
		}
		line += bytes.Count(text[:done], []byte{'\n'})
		offset += done
		held = copy(buf, text[done:])
	}
}
