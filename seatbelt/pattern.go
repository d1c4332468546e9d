package seatbelt

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A glob is what is left of a pattern of the policy's below some directory, name
// by name; "**" stands for any number of names.
type glob []name

// A name is a part of a pattern between slashes, as it is written and as an
// expression.
type name struct {
	text       string
	expression string
}

var anyNames = name{text: "**"}

// globsOf translates a pattern: it may match its own spelling too, so that
// pages/[id].js finds the file of that name.
func globsOf(pattern string) ([]glob, error) {
	for _, r := range pattern {
		if r == '"' || r < ' ' || r > '~' {
			return nil, fmt.Errorf("pattern %q: no expression of Seatbelt's for %q", pattern, r)
		}
	}
	var g, literal glob
	for text := range strings.SplitSeq(pattern, "/") {
		literal = append(literal, name{text, quoteName(text)})
		switch {
		case text != "**":
			expression, err := nameExpression(text)
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", pattern, err)
			}
			g = append(g, name{text, expression})
		case len(g) == 0 || g[len(g)-1] != anyNames:
			g = append(g, anyNames)
		}
	}
	if len(g) > 1 && g[len(g)-1] == anyNames {
		g = g[:len(g)-1] // a/** covers what a covers
	}
	if strings.Contains(pattern, "[") {
		return []glob{g, literal}, nil
	}
	return []glob{g}, nil
}

// nameExpression translates a pattern for one name. Letters match in both cases, as they do
// on the disk of a Mac: a new .ENVRC is what looks for .envrc finds.
func nameExpression(text string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '*':
			b.WriteString("[^/]*")
		case '?':
			b.WriteString("[^/]")
		case '[':
			end := i + 1
			if text[end] == '!' || text[end] == '^' {
				end++
			}
			end += 1 + strings.IndexByte(text[end+1:], ']')
			class, err := classExpression(text[i+1 : end])
			if err != nil {
				return "", err
			}
			b.WriteString(class)
			i = end
		default:
			b.WriteString(quoteByte(c))
		}
	}
	return b.String(), nil
}

// classExpression translates what stands in brackets. What an expression makes of a
// sign between brackets differs from one reader to the next, so that none stands there.
func classExpression(members string) (string, error) {
	negated := members[0] == '!' || members[0] == '^'
	if negated {
		members = members[1:]
	}
	var has [128]bool
	for i := 0; i < len(members); i++ {
		low, high := members[i], members[i]
		if i+2 < len(members) && members[i+1] == '-' {
			high = members[i+2]
			i += 2
		}
		for c := int(low); c <= int(high); c++ {
			if has[c] = true; !negated && isLetter(byte(c)) {
				has[c^caseBit] = true
			}
		}
	}
	var plain, signs []string
	for c := byte(' '); c <= '~'; c++ {
		switch {
		case !has[c] || c == '/':
		case c == '"':
			return "", fmt.Errorf("no expression of Seatbelt's for %q", c)
		case isPlain(c):
			plain = append(plain, string(c))
		default:
			signs = append(signs, quotePlain(c))
		}
	}
	switch in := strings.Join(plain, ""); {
	case negated && len(signs) > 0:
		return "", fmt.Errorf("[!%s]: no expression of Seatbelt's for all but a sign", members)
	case negated:
		return "[^/" + in + "]", nil
	case in == "":
		return "(" + strings.Join(signs, "|") + ")", nil
	default:
		return "(" + strings.Join(append(signs, "["+in+"]"), "|") + ")", nil
	}
}

// A letter's other case differs in this bit.
const caseBit = 0x20

func isLetter(c byte) bool { return 'a' <= c|caseBit && c|caseBit <= 'z' }
func isPlain(c byte) bool  { return isLetter(c) || '0' <= c && c <= '9' }

// quoteName returns an expression for a name that stands for itself.
func quoteName(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.WriteString(quoteByte(text[i]))
	}
	return b.String()
}

func quoteByte(c byte) string {
	if isLetter(c) {
		return "[" + string([]byte{c, c ^ caseBit}) + "]"
	}
	return quotePlain(c)
}

// quotePlain needs no backslash but for the two characters that brackets do not
// take: a raw string of Scheme's and the expression in it may read one differently.
func quotePlain(c byte) string {
	switch {
	case isPlain(c), strings.IndexByte("_-,=@%~:;!#&'<> /`", c) >= 0:
		return string(c)
	case c == '^' || c == '\\':
		return `\` + string(c)
	}
	return "[" + string(c) + "]"
}

// expression is the glob as an expression for what follows a directory's slash.
func (g glob) expression() string {
	var b strings.Builder
	for i, n := range g {
		switch {
		case n == anyNames && i == len(g)-1:
			b.WriteString("[^/]+")
		case n == anyNames:
			b.WriteString("([^/]+/)*")
		case i == len(g)-1:
			b.WriteString(n.expression)
		default:
			b.WriteString(n.expression + "/")
		}
	}
	return b.String()
}

// below anchors an expression at a directory: by how deep it lies, since its name
// is a parameter that stands beside the expression.
func below(dir, expression string) string {
	return "^" + strings.Repeat("/[^/]+", depth(dir)) + "/" + expression
}

// whole ends an expression at the end of a name: what it matches, and what lies below.
func whole(expression string) string { return expression + "(/|$)" }

func depth(dir string) int {
	if dir == "/" {
		return 0
	}
	return strings.Count(dir, "/")
}

// after returns what is left of a glob below a directory in its own: the ways
// in which the names of rel can be part of it, none if they cannot.
func (g glob) after(rel string) []glob {
	states := []int{0}
	for part := range strings.SplitSeq(rel, "/") {
		if rel == "" {
			break
		}
		var next []int
		add := func(i int) {
			if i < len(g) && !slices.Contains(next, i) {
				next = append(next, i)
			}
		}
		for _, i := range states {
			if g[i] == anyNames {
				add(i)
				if i+1 < len(g) && g[i+1].matches(part) {
					add(i + 2)
				}
			} else if g[i].matches(part) {
				add(i + 1)
			}
		}
		states = next
	}
	var left []glob
	for _, i := range states {
		left = append(left, g[i:])
	}
	return left
}

func (n name) matches(text string) bool {
	return regexp.MustCompile("(?s)^" + n.expression + "$").MatchString(text)
}

// templates end the names that a hiding pattern leaves alone, in this case alone:
// [profiles.FileRule.Matches].
const templates = "[.](example|sample|template)"

// template returns what of a hiding glob is a template's name, "" for nothing.
func (g glob) template() string {
	last := g[len(g)-1]
	if !strings.HasSuffix(last.text, "*") || last == anyNames {
		return ""
	}
	return g.expression() + templates
}

// twice matches where a glob that takes any number of names matches two names of one
// path: a template below something that is hidden.
func (g glob) twice() string {
	if !slices.Contains(g, anyNames) {
		return ""
	}
	return g.expression() + "/([^/]+/)*" + g[len(g)-1].expression
}

// above returns what a glob says of the directories on the way to what it matches,
// as far as they have names.
func (g glob) above() []glob {
	var list []glob
	for n := 1; n < len(g); n++ {
		if g[n-1] != anyNames {
			list = append(list, g[:n])
		}
	}
	return list
}
