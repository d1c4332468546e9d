package sbpl

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Rules are a profile that has been read.
type Rules struct {
	Default bool // what no rule matches is allowed
	List    []Rule
}

// A Rule is one form of a profile.
type Rule struct {
	Line       int
	Allow      bool
	Operations []string
	filters    []filter // one of which has to match; none for all
}

// Filters is how many filters it has, one of which has to match: 0 for a rule that always does.
func (r *Rule) Filters() int { return len(r.filters) }

// A Param is a parameter, which sandbox-exec takes as -D NAME=VALUE.
type Param struct{ Name, Value string }

// links are those of every Mac's root: a rule that names one never matches, since the kernel
// compares the path to which it leads.
var links = [...]string{"/tmp", "/var", "/etc", "/run"}

// A filter is a condition, or one made of others.
type filter struct {
	head   string
	inner  []filter // of require-all, require-any, require-not; of remote and local unix-socket
	text   string   // a path, a name, a protocol, a target
	host   string   // of remote and local ip: "localhost" or "*"
	port   string   // digits or "*"
	regexp *regexp.Regexp
}

// Bounds within which a profile is read.
const (
	maxText  = 1 << 20
	maxDepth = 16
)

// Parse reads a profile. It refuses what the evaluator has no model of: each form,
// operation and filter that it does not know, and each that is known not to do what
// it seems to say. A parameter without a value is an error, as it is for Seatbelt.
func Parse(text string, params []Param) (*Rules, error) {
	forms, err := Read(text)
	if err != nil {
		return nil, err
	}
	return Compile(forms, params)
}

// A Form is an item of the text: a list, a string, an expression or a word.
type Form struct {
	Line int
	Kind byte // '(' a list, '"' a string, '#' an expression, 'a' a word
	Text string
	List []Form
}

func (n Form) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: %w", n.Line, fmt.Errorf(format, args...))
}

// Read returns the forms of a text.
func Read(text string) ([]Form, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("profile of %d bytes: want at most %d", len(text), maxText)
	}
	r := reader{text: text, line: 1}
	forms, err := r.list(0)
	if err == nil && r.at < len(text) {
		err = fmt.Errorf("line %d: ) without (", r.line)
	}
	return forms, err
}

type reader struct {
	text     string
	at, line int
}

// list reads items up to a parenthesis that closes, or to the end.
func (r *reader) list(depth int) (items []Form, err error) {
	for r.at < len(r.text) {
		start := Form{Line: r.line}
		switch c := r.text[r.at]; {
		case c == '\n':
			r.line++
			r.at++
		case c == ' ' || c == '\t':
			r.at++
		case c == ';':
			if n := strings.IndexByte(r.text[r.at:], '\n'); n >= 0 {
				r.at += n
			} else {
				r.at = len(r.text)
			}
		case c == ')':
			return items, nil
		case c == '(':
			if depth == maxDepth {
				return nil, start.fail("more than %d lists in each other", maxDepth)
			}
			r.at++
			start.Kind = '('
			if start.List, err = r.list(depth + 1); err != nil {
				return nil, err
			}
			if r.at == len(r.text) {
				return nil, start.fail("( without )")
			}
			r.at++
			items = append(items, start)
		case c == '"' || c == '#':
			if err := r.quoted(&start); err != nil {
				return nil, err
			}
			items = append(items, start)
		default:
			n := strings.IndexFunc(r.text[r.at:], func(c rune) bool { return !isWord(c) })
			if n < 0 {
				n = len(r.text) - r.at
			}
			if n == 0 {
				return nil, start.fail("%q: not a part of a profile", c)
			}
			start.Kind, start.Text = 'a', r.text[r.at:r.at+n]
			r.at += n
			items = append(items, start)
		}
	}
	return items, nil
}

func isWord(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '*' || c == '_'
}

// quoted reads a string, or an expression, in which nothing is escaped.
func (r *reader) quoted(n *Form) error {
	n.Kind = '"'
	if r.text[r.at] == '#' {
		n.Kind = '#'
		if r.at++; r.at == len(r.text) || r.text[r.at] != '"' {
			return n.fail(`# without "`)
		}
	}
	var b strings.Builder
	for r.at++; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c == '"':
			r.at++
			n.Text = b.String()
			return nil
		case c < ' ' || c == 0x7f:
			return n.fail("control character in a string")
		case c == '\\' && n.Kind == '"':
			if r.at++; r.at == len(r.text) || r.text[r.at] != '"' && r.text[r.at] != '\\' {
				return n.fail(`\ before something else than " and \`)
			}
			b.WriteByte(r.text[r.at])
		default:
			b.WriteByte(c)
		}
	}
	return n.fail("a string without end")
}

// Compile makes rules of forms.
func Compile(forms []Form, params []Param) (*Rules, error) {
	c := compiler{params: map[string]string{}}
	for _, p := range params {
		if _, twice := c.params[p.Name]; twice || p.Name == "" {
			return nil, fmt.Errorf("parameter %q: want each once, with a name", p.Name)
		}
		c.params[p.Name] = p.Value
	}
	if len(forms) == 0 || !forms[0].is("version", "1") {
		return nil, errors.New("a profile begins with (version 1)")
	}
	r := &Rules{}
	defaults := 0
	for _, n := range forms[1:] {
		n, err := unmarked(n)
		if err != nil {
			return nil, err
		}
		switch {
		case n.is("deny", "default"):
			defaults++
		case n.is("allow", "default"):
			defaults++
			r.Default = true
		default:
			rule, err := c.rule(n)
			if err != nil {
				return nil, err
			}
			r.List = append(r.List, rule)
		}
	}
	if defaults != 1 {
		return nil, fmt.Errorf("%d rules for default: want one", defaults)
	}
	return r, nil
}

// unmarked returns a rule that denies without what it says of the log: (with message "…"), last.
func unmarked(n Form) (Form, error) {
	if n.Head() != "deny" || n.List[len(n.List)-1].Head() != "with" {
		return n, nil
	}
	words := n.List[len(n.List)-1].List
	if len(words) != 3 || words[1].Kind != 'a' || words[1].Text != "message" || words[2].Kind != '"' || !isTag(words[2].Text) {
		return n, n.fail(`with: want (with message "…") of letters, digits and -`)
	}
	n.List = n.List[:len(n.List)-1]
	return n, nil
}

func isTag(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool { return !isWord(c) || c == '*' || c == '_' })
}

// is reports whether a Form is a list of these words.
func (n Form) is(words ...string) bool {
	return n.Kind == '(' && slices.EqualFunc(n.List, words, func(item Form, w string) bool {
		return item.Kind == 'a' &&
			item.Text == w
	})
}

// Head returns the word with which a list begins, "" for anything else.
func (n Form) Head() string {
	if n.Kind != '(' || len(n.List) == 0 || n.List[0].Kind != 'a' {
		return ""
	}
	return n.List[0].Text
}

type compiler struct{ params map[string]string }

func (c *compiler) rule(n Form) (r Rule, err error) {
	if head := n.Head(); head != "allow" && head != "deny" {
		return r, n.fail("want a rule, (allow …) or (deny …)")
	}
	r.Line, r.Allow = n.Line, n.Head() == "allow"
	rest := n.List[1:]
	for len(rest) > 0 && rest[0].Kind == 'a' {
		if !isOperation(rest[0].Text) || rest[0].Text == "default" {
			return r, rest[0].fail("operation %q is not modelled", rest[0].Text)
		}
		r.Operations = append(r.Operations, rest[0].Text)
		rest = rest[1:]
	}
	if len(r.Operations) == 0 {
		return r, n.fail("a rule without an operation")
	}
	r.filters, err = c.filters(rest, r.Operations)
	return r, err
}

func (c *compiler) filters(nodes []Form, operations []string) (list []filter, err error) {
	for _, n := range nodes {
		f, err := c.filter(n, operations)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

func (c *compiler) filter(n Form, operations []string) (f filter, err error) {
	f.head = n.Head()
	if f.head == "" {
		return f, n.fail("want a filter, (NAME …)")
	}
	args := n.List[1:]
	switch f.head {
	case "require-all", "require-any", "require-not":
		if len(args) == 0 || f.head == "require-not" && len(args) != 1 {
			return f, n.fail("%s of %d filters", f.head, len(args))
		}
		f.inner, err = c.filters(args, operations)
		return f, err
	}
	kinds, known := filterKinds[f.head]
	if !known {
		return f, n.fail("filter %q is not modelled", f.head)
	}
	for _, op := range operations {
		if !slices.Contains(kinds, KindOf(op)) {
			return f, n.fail("filter %s says nothing of %s", f.head, op)
		}
	}
	switch f.head {
	case "remote", "local":
		return f, c.address(&f, n, operations)
	case "regex", "ipc-posix-name-regex":
		if len(args) != 1 || args[0].Kind != '#' {
			return f, n.fail(`want (%s #"…")`, f.head)
		}
		if f.regexp, err = expression(args[0].Text); err != nil {
			return f, n.fail("%v", err)
		}
		return f, nil
	case "target", "socket-domain":
		if len(args) != 1 || args[0].Kind != 'a' || !slices.Contains([]string{"self", "same-sandbox", "others", "AF_UNIX"},
			args[0].Text) {
			return f, n.fail("%s: a value that is not modelled", f.head)
		}
		f.text = args[0].Text
		return f, nil
	}
	if f.text, err = c.text(n, args); err != nil {
		return f, err
	}
	if slices.Contains(kinds, OnFile) && f.head != "extension" {
		err = checkPath(n, f.head, f.text)
	}
	return f, err
}

// text reads the one argument of a filter: a string, or a parameter.
func (c *compiler) text(n Form, args []Form) (string, error) {
	switch {
	case len(args) == 1 && args[0].Kind == '"' && args[0].Text != "":
		return args[0].Text, nil
	case len(args) == 1 && args[0].Head() == "param" && len(args[0].List) == 2 && args[0].List[1].Kind == '"':
		value, ok := c.params[args[0].List[1].Text]
		if !ok || value == "" {
			return "", n.fail("parameter %q has no value", args[0].List[1].Text)
		}
		return value, nil
	}
	return "", n.fail(`%s: want one "…" or (param "…")`, n.Head())
}

// checkPath refuses a path that the kernel would never compare with one: where it
// denies something, nothing would be denied.
func checkPath(n Form, head, text string) error {
	if !strings.HasPrefix(text, "/") || path.Clean(text) != text {
		return n.fail("path %q: want an absolute one without . and .., and no / at its end", text)
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return n.fail("path %q: control character", text)
	}
	for _, l := range links {
		if within(l, text) && (text != l || head == "subpath") {
			return n.fail("path %q: %s is a link, and what a rule says of it never holds", text, l)
		}
	}
	return nil
}

// address reads (remote|local ip "HOST:PORT") and (remote|local unix-socket FILTER).
func (c *compiler) address(f *filter, n Form, operations []string) error {
	args := n.List[1:]
	for _, op := range operations {
		if outbound := op == "network-outbound"; outbound != (f.head == "remote") {
			return n.fail("%s: what it says of %s is not modelled", f.head, op)
		}
	}
	if len(args) != 2 || args[0].Kind != 'a' {
		return n.fail(`%s: want ip "HOST:PORT", or unix-socket and a path`, f.head)
	}
	switch f.text = args[0].Text; f.text {
	case "unix-socket":
		inner := args[1]
		if head := inner.Head(); head == "path-literal" { // the name that literal has here
			inner.List = slices.Clone(inner.List)
			inner.List[0].Text = "literal"
		} else if head != "subpath" {
			return inner.fail("want (path-literal …) or (subpath …)")
		}
		of, err := c.filter(inner, operations)
		f.inner = []filter{of}
		return err
	case "ip", "tcp", "udp":
		if args[1].Kind != '"' {
			return n.fail("want an address in quotes")
		}
		f.host, f.port, _ = strings.Cut(args[1].Text, ":")
		if f.host != "localhost" && f.host != "*" {
			return n.fail("address %q: the host must be * or localhost", args[1].Text)
		}
		if port, err := strconv.ParseUint(f.port, 10, 16); f.port != "*" && (err != nil || port == 0 ||
			strconv.FormatUint(port, 10) != f.port) {
			return n.fail("address %q: want a port or *", args[1].Text)
		}
		return nil
	}
	return n.fail("protocol %q is not modelled", f.text)
}

// expression compiles an expression of which every reader makes the same: no
// escapes of letters, no counts, no classes with names.
func expression(text string) (*regexp.Regexp, error) {
	for _, form := range []string{"(?", "{", "}", "*?", "+?", "??", "[[:", "[[.", "[[=", "*+", "++", "?+"} {
		if strings.Contains(text, form) {
			return nil, fmt.Errorf("expression %q: %s is not modelled", text, form)
		}
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if i++; i == len(text) || isWord(rune(text[i])) && text[i] != '-' && text[i] != '*' {
			return nil, fmt.Errorf(`expression %q: \ before a letter is not modelled`, text)
		}
	}
	if text == "" {
		return nil, errors.New("an empty expression")
	}
	return regexp.Compile("(?s)" + text)
}
