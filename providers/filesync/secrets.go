package filesync

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"regexp/syntax"
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

	re      func() *regexp.Regexp
	local   bool // each match holds a keyword
	forward int  // how many bytes a match may have from its keyword on
	guard   func(after []byte) (n int, ok bool)
}

type allowlist struct {
	Condition   string
	Paths       []string
	RegexTarget string `toml:"regexTarget"`
	Regexes     []string
	Stopwords   []string

	paths, regexes func() *regexp.Regexp
}

// secretRules are all rules, and the automaton that finds their keywords.
type secretRules struct {
	rules     []secretRule
	global    allowlist
	byKeyword [][]int // rules, by keyword
	words     []string
	longest   int // of the words, in bytes
	classes   [256]byte
	width     int
	next      []uint32 // by state and class: where the row of the next state begins, with ends if it has hits
	hits      [][]int  // keywords, by state
}

// ends marks a state in which a keyword ends.
const ends = 1 << 31

// How much of a text is looked at around a keyword.
const (
	before  = 128
	forward = 16 << 10 // where a match has no bound: a private key of RSA with 8,192 bits has 7 KB
)

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
	s := &secretRules{global: file.Allowlist}
	s.global.compile()
	numbers := map[string]int{}
	for _, r := range file.Rules {
		if r.Regex == "" {
			continue // by its name alone, which excludes it always
		}
		tree, err := syntax.Parse(r.Regex, syntax.Perl)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		r.re = lazy(r.Regex)
		r.local = r.ID == generic || holds(tree, r.Keywords)
		if r.forward = longest(tree); r.forward < 0 {
			r.forward = forward
		}
		r.guard = guards[r.ID]
		for i := range r.Allowlists {
			r.Allowlists[i].compile()
		}
		for _, k := range r.Keywords {
			k = strings.ToLower(k)
			n, ok := numbers[k]
			if !ok {
				n = len(s.words)
				numbers[k], s.words, s.byKeyword = n, append(s.words, k), append(s.byKeyword, nil)
			}
			s.byKeyword[n] = append(s.byKeyword[n], len(s.rules))
		}
		s.rules = append(s.rules, r)
	}
	if len(s.rules) == 0 {
		return nil, errors.New("rules for secrets: there are none")
	}
	s.build()
	return s, nil
})

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

// guards look at the bytes behind keywords that are parts of many words, so that an expression
// is not tried on each of them: `s.` of vault-service-token stands in every text. They return how
// many bytes a match has from the keyword's end on, and want no more than the expression does.
var guards = map[string]func(after []byte) (n int, ok bool){
	"twilio-api-key": func(after []byte) (int, bool) { return 40, run(after, isHex) >= 32 },
	"lob-api-key":    func(after []byte) (int, bool) { return 40, run(after, isHex) >= 35 },
	"jwt": func(after []byte) (int, bool) {
		n := run(after, isAlnum)
		return forward, n >= 17 && bytes.HasPrefix(after[n:], []byte(".ey"))
	},
	"vault-service-token": func(after []byte) (int, bool) { // of 24 characters, or 90 with a dash perhaps
		return 200, run(after, isToken) >= 24
	},
	generic: func(after []byte) (int, bool) {
		n := min(run(after, isWord), 20)
		n += min(run(after[n:], isSpace), 3)
		sign := min(run(after[n:], isSign), 4)
		if sign == 0 {
			return 0, false
		}
		n += sign
		n += min(run(after[n:], isGap), 5)
		// Of fewer characters none has an entropy of 3.5.
		value := run(after[n:], isValue)
		return n + value + 16, value >= 11
	},
}

// run returns how many bytes are of a kind, from the first on.
func run(text []byte, is *[256]bool) int {
	for i, c := range text {
		if !is[c] {
			return i
		}
	}
	return len(text)
}

// The kinds of bytes that guards know.
const (
	hexes = "0123456789abcdefABCDEF"
	alnum = hexes + "ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ"
	space = " \t\n\r\f'\""
)

var (
	isAlnum = kind(alnum)
	isHex   = kind(hexes)
	isToken = kind(alnum + "_-")
	isWord  = kind(alnum + " \t_.-")
	isSpace = kind(space)
	isGap   = kind(space + "`=")
	isSign  = kind("=>:|?,")
	isValue = kind(alnum + "_.=-+/")
)

func kind(list string) *[256]bool {
	var is [256]bool
	for i := range len(list) {
		is[list[i]] = true
	}
	return &is
}

// holds reports whether each match of an expression holds one of the words.
func holds(re *syntax.Regexp, words []string) bool {
	all := func(texts []string) bool {
		return texts != nil && !slices.ContainsFunc(texts, func(text string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, strings.ToLower(w)) })
		})
	}
	switch re.Op {
	case syntax.OpCapture, syntax.OpPlus:
		return holds(re.Sub[0], words)
	case syntax.OpRepeat:
		return re.Min > 0 && holds(re.Sub[0], words)
	case syntax.OpConcat:
		texts := []string{""}
		for _, sub := range re.Sub {
			if holds(sub, words) {
				return true
			}
			if all(product(texts, prefixes(sub))) {
				return true
			}
			if texts = product(texts, exact(sub)); texts == nil {
				texts = []string{""}
			}
		}
		return false
	case syntax.OpAlternate:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !holds(sub, words) })
	}
	return all(exact(re))
}

// exact returns all texts that an expression matches, in lower case; nil if they are many.
func exact(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(re.Rune))}
	case syntax.OpCapture:
		return exact(re.Sub[0])
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []string{""}
	case syntax.OpCharClass:
		var list []string
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i+1]-re.Rune[i] > 8 || len(list) > 8 {
				return nil
			}
			for c := re.Rune[i]; c <= re.Rune[i+1]; c++ {
				list = append(list, strings.ToLower(string(c)))
			}
		}
		return list
	case syntax.OpConcat:
		texts := []string{""}
		for _, sub := range re.Sub {
			texts = product(texts, exact(sub))
		}
		return texts
	case syntax.OpAlternate, syntax.OpQuest:
		var texts []string
		if re.Op == syntax.OpQuest {
			texts = []string{""}
		}
		for _, sub := range re.Sub {
			list := exact(sub)
			if list == nil {
				return nil
			}
			texts = append(texts, list...)
		}
		return texts
	}
	return nil
}

// prefixes returns texts with one of which each match of an expression begins, in lower case.
func prefixes(re *syntax.Regexp) []string {
	if texts := exact(re); texts != nil {
		return texts
	}
	texts := []string{""}
	switch re.Op {
	case syntax.OpCapture, syntax.OpPlus:
		return prefixes(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return prefixes(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			list := exact(sub)
			if list == nil {
				return product(texts, prefixes(sub))
			}
			texts = product(texts, list)
		}
	case syntax.OpAlternate:
		texts = nil
		for _, sub := range re.Sub {
			texts = append(texts, prefixes(sub)...)
		}
	}
	return texts
}

func product(a, b []string) (all []string) {
	if len(a)*len(b) > 64 {
		return nil
	}
	for _, x := range a {
		for _, y := range b {
			all = append(all, x+y)
		}
	}
	return all
}

// longest returns how many bytes a match can have, -1 if there is no bound below [forward].
func longest(re *syntax.Regexp) int {
	sum := 0
	switch re.Op {
	case syntax.OpLiteral:
		return 4 * len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 4
	case syntax.OpStar, syntax.OpPlus:
		return -1
	case syntax.OpRepeat:
		n := longest(re.Sub[0])
		if re.Max < 0 || n < 0 || n*re.Max > forward {
			return -1
		}
		return n * re.Max
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n := longest(sub)
			if n < 0 {
				return -1
			}
			sum = max(sum, n)
		}
		return sum
	}
	for _, sub := range re.Sub {
		n := longest(sub)
		if n < 0 || sum+n > forward {
			return -1
		}
		sum += n
	}
	return sum
}

// build makes the automaton of Aho and Corasick (1975) over the keywords, as a table.
func (s *secretRules) build() {
	s.width = 1
	for _, w := range s.words {
		for i := range len(w) {
			if s.classes[w[i]] == 0 {
				s.classes[w[i]] = byte(s.width)
				s.width++
			}
		}
	}
	for c := byte('A'); c <= 'Z'; c++ {
		s.classes[c] = s.classes[c|0x20]
	}
	s.next, s.hits = make([]uint32, s.width), make([][]int, 1)
	for n, w := range s.words {
		s.longest = max(s.longest, len(w))
		state := 0
		for i := range len(w) {
			to := &s.next[state*s.width+int(s.classes[w[i]])]
			if *to == 0 {
				*to = uint32(len(s.hits))
				s.next, s.hits = append(s.next, make([]uint32, s.width)...), append(s.hits, nil)
			}
			state = int(s.next[state*s.width+int(s.classes[w[i]])])
		}
		s.hits[state] = append(s.hits[state], n)
	}
	fail := make([]int, len(s.hits))
	var queue []int
	for c := range s.width {
		if to := int(s.next[c]); to != 0 {
			queue = append(queue, to)
		}
	}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		s.hits[state] = append(s.hits[state], s.hits[fail[state]]...)
		for c := range s.width {
			to := &s.next[state*s.width+c]
			back := s.next[fail[state]*s.width+c]
			if *to == 0 {
				*to = back
				continue
			}
			fail[*to] = int(back)
			queue = append(queue, int(*to))
		}
	}
	for i, state := range s.next {
		s.next[i] = state * uint32(s.width)
		if len(s.hits[state]) > 0 {
			s.next[i] |= ends
		}
	}
}

// A found is a match in a text.
type found struct {
	start  int
	rule   string
	secret string
}

// A block of a text goes through the automaton in lanes, side by side: a step waits for the one before it
// in its own lane alone.
const (
	lanes = 4
	block = 16 << 10
)

// A hit is a state in which keywords end, and where.
type hit struct{ at, row uint32 }

var hitBuffers = sync.Pool{New: func() any { return new([lanes][]hit) }}

// keywords fills in where keywords end in a block that begins at a byte of a text.
func (s *secretRules) keywords(text []byte, begin int, all *[lanes][]hit) {
	next, classes := s.next, &s.classes
	size := min(len(text)-begin, block) / lanes
	var rows [lanes]uint32
	for l := range rows {
		all[l] = all[l][:0]
		from := begin + l*size
		for _, c := range text[max(0, from-s.longest+1):from] { // where a keyword may have begun
			rows[l] = next[rows[l]&^ends+uint32(classes[c])]
		}
	}
	a, b, c, d := rows[0], rows[1], rows[2], rows[3]
	rest := text[begin:]
	t0, t1, t2, t3 := rest[:size], rest[size:2*size], rest[2*size:3*size], rest[3*size:4*size]
	for i := range t0 { // all of an upload goes through these lines
		a = next[a&^ends+uint32(classes[t0[i]])]
		b = next[b&^ends+uint32(classes[t1[i]])]
		c = next[c&^ends+uint32(classes[t2[i]])]
		d = next[d&^ends+uint32(classes[t3[i]])]
		if (a|b|c|d)&ends == 0 {
			continue
		}
		for l, row := range [lanes]uint32{a, b, c, d} {
			if row&ends != 0 {
				all[l] = append(all[l], hit{uint32(begin + l*size + i), row})
			}
		}
	}
	for i, c := range rest[lanes*size : min(len(rest), block)] {
		if d = next[d&^ends+uint32(classes[c])]; d&ends != 0 {
			all[lanes-1] = append(all[lanes-1], hit{uint32(begin + lanes*size + i), d})
		}
	}
}

// around adds the windows of a text in which rules are tried, by what hits say.
func (s *secretRules) around(text []byte, hits []hit, windows map[int][][2]int) map[int][][2]int {
	for _, h := range hits {
		for _, n := range s.hits[int(h.row&^ends)/s.width] {
			end := int(h.at) + 1
			start := end - len(s.words[n])
			for _, number := range s.byKeyword[n] {
				r := &s.rules[number]
				w := [2]int{0, len(text)}
				if r.local {
					n := r.forward
					if r.guard != nil {
						behind, ok := r.guard(text[end:])
						if !ok {
							continue
						}
						n = end - start + behind
					}
					w = [2]int{max(0, start-before), min(len(text), start+n)}
				}
				if windows == nil {
					windows = map[int][][2]int{}
				}
				list := windows[number]
				if last := len(list) - 1; last >= 0 && w[0] <= list[last][1] {
					list[last][1] = max(list[last][1], w[1])
				} else {
					list = append(list, w)
				}
				windows[number] = list
			}
		}
	}
	return windows
}

// scan returns what a text of a file holds, in the order of the text.
func (s *secretRules) scan(file string, text []byte) []found {
	var windows map[int][][2]int
	hits := hitBuffers.Get().(*[lanes][]hit)
	defer hitBuffers.Put(hits)
	for n := range (len(text) + block - 1) / block * lanes {
		if n%lanes == 0 {
			s.keywords(text, n/lanes*block, hits)
		}
		windows = s.around(text, hits[n%lanes], windows)
	}
	var all []found
	for number, list := range windows {
		r := &s.rules[number]
		if r.ID == generic && matches(s.global.paths(), file) || r.passes(file) {
			continue
		}
		for _, w := range list {
			all = append(all, s.match(r, file, text, w)...)
		}
	}
	slices.SortFunc(all, func(a, b found) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return strings.Compare(a.rule, b.rule)
	})
	return slices.DeleteFunc(all, func(f found) bool { // the same secret, by a rule that knows more
		return f.rule == generic && slices.ContainsFunc(all, func(o found) bool {
			return o.rule != generic && strings.Contains(o.secret, f.secret)
		})
	})
}

// passes reports whether a rule is not for a file.
func (r *secretRule) passes(file string) bool {
	if r.Path != "" && !matches(regexp.MustCompile(r.Path), file) {
		return true
	}
	return slices.ContainsFunc(r.Allowlists, func(a allowlist) bool {
		return !a.all() && matches(a.paths(), file)
	})
}

// all reports whether every part of an allowlist has to hold, not any.
func (a *allowlist) all() bool { return strings.EqualFold(a.Condition, "and") }

func matches(re *regexp.Regexp, text string) bool { return re != nil && re.MatchString(text) }

// match returns the matches of a rule in a window of a text.
func (s *secretRules) match(r *secretRule, file string, text []byte, w [2]int) (all []found) {
	for _, at := range r.re().FindAllSubmatchIndex(text[w[0]:w[1]], -1) {
		start, end := w[0]+at[0], w[0]+at[1]
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
	return all
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

// all looks through a text as a whole.
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

// read looks through all of a reader, and calls passed with what has been looked through, piece
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
