package seatbelt

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
	byDefault bool // what no rule matches is allowed
	rules     []rule
}

// A rule is one form of a profile.
type rule struct {
	line       int
	allow      bool
	operations []string
	filters    []filter // one of which has to match; none for all
}

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
	forms, err := read(text)
	if err != nil {
		return nil, err
	}
	return compile(forms, params)
}

// A node is an item of the text: a list, a string, an expression or a word.
type node struct {
	line int
	kind byte // '(' a list, '"' a string, '#' an expression, 'a' a word
	text string
	list []node
}

func (n node) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: %w", n.line, fmt.Errorf(format, args...))
}

// read returns the forms of a text.
func read(text string) ([]node, error) {
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
func (r *reader) list(depth int) (items []node, err error) {
	for r.at < len(r.text) {
		start := node{line: r.line}
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
			start.kind = '('
			if start.list, err = r.list(depth + 1); err != nil {
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
			start.kind, start.text = 'a', r.text[r.at:r.at+n]
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
func (r *reader) quoted(n *node) error {
	n.kind = '"'
	if r.text[r.at] == '#' {
		n.kind = '#'
		if r.at++; r.at == len(r.text) || r.text[r.at] != '"' {
			return n.fail(`# without "`)
		}
	}
	var b strings.Builder
	for r.at++; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c == '"':
			r.at++
			n.text = b.String()
			return nil
		case c < ' ' || c == 0x7f:
			return n.fail("control character in a string")
		case c == '\\' && n.kind == '"':
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

// compile makes rules of forms.
func compile(forms []node, params []Param) (*Rules, error) {
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
			r.byDefault = true
		default:
			rule, err := c.rule(n)
			if err != nil {
				return nil, err
			}
			r.rules = append(r.rules, rule)
		}
	}
	if defaults != 1 {
		return nil, fmt.Errorf("%d rules for default: want one", defaults)
	}
	return r, nil
}

// unmarked returns a rule that denies without what it says of the log: (with message "…"), last.
func unmarked(n node) (node, error) {
	if n.head() != "deny" || n.list[len(n.list)-1].head() != "with" {
		return n, nil
	}
	words := n.list[len(n.list)-1].list
	if len(words) != 3 || words[1].kind != 'a' || words[1].text != "message" || words[2].kind != '"' || !isTag(words[2].text) {
		return n, n.fail(`with: want (with message "…") of letters, digits and -`)
	}
	n.list = n.list[:len(n.list)-1]
	return n, nil
}

func isTag(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool { return !isWord(c) || c == '*' || c == '_' })
}

// is reports whether a node is a list of these words.
func (n node) is(words ...string) bool {
	return n.kind == '(' && slices.EqualFunc(n.list, words, func(item node, w string) bool {
		return item.kind == 'a' &&
			item.text == w
	})
}

// head returns the word with which a list begins, "" for anything else.
func (n node) head() string {
	if n.kind != '(' || len(n.list) == 0 || n.list[0].kind != 'a' {
		return ""
	}
	return n.list[0].text
}

type compiler struct{ params map[string]string }

func (c *compiler) rule(n node) (r rule, err error) {
	if head := n.head(); head != "allow" && head != "deny" {
		return r, n.fail("want a rule, (allow …) or (deny …)")
	}
	r.line, r.allow = n.line, n.head() == "allow"
	rest := n.list[1:]
	for len(rest) > 0 && rest[0].kind == 'a' {
		if !isOperation(rest[0].text) || rest[0].text == "default" {
			return r, rest[0].fail("operation %q is not modelled", rest[0].text)
		}
		r.operations = append(r.operations, rest[0].text)
		rest = rest[1:]
	}
	if len(r.operations) == 0 {
		return r, n.fail("a rule without an operation")
	}
	r.filters, err = c.filters(rest, r.operations)
	return r, err
}

func (c *compiler) filters(nodes []node, operations []string) (list []filter, err error) {
	for _, n := range nodes {
		f, err := c.filter(n, operations)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

func (c *compiler) filter(n node, operations []string) (f filter, err error) {
	f.head = n.head()
	if f.head == "" {
		return f, n.fail("want a filter, (NAME …)")
	}
	args := n.list[1:]
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
		if !slices.Contains(kinds, kindOf(op)) {
			return f, n.fail("filter %s says nothing of %s", f.head, op)
		}
	}
	switch f.head {
	case "remote", "local":
		return f, c.address(&f, n, operations)
	case "regex", "ipc-posix-name-regex":
		if len(args) != 1 || args[0].kind != '#' {
			return f, n.fail(`want (%s #"…")`, f.head)
		}
		if f.regexp, err = expression(args[0].text); err != nil {
			return f, n.fail("%v", err)
		}
		return f, nil
	case "target", "socket-domain":
		if len(args) != 1 || args[0].kind != 'a' || !slices.Contains([]string{"self", "same-sandbox", "others", "AF_UNIX"},
			args[0].text) {
			return f, n.fail("%s: a value that is not modelled", f.head)
		}
		f.text = args[0].text
		return f, nil
	}
	if f.text, err = c.text(n, args); err != nil {
		return f, err
	}
	if slices.Contains(kinds, onFile) && f.head != "extension" {
		err = checkPath(n, f.head, f.text)
	}
	return f, err
}

// text reads the one argument of a filter: a string, or a parameter.
func (c *compiler) text(n node, args []node) (string, error) {
	switch {
	case len(args) == 1 && args[0].kind == '"' && args[0].text != "":
		return args[0].text, nil
	case len(args) == 1 && args[0].head() == "param" && len(args[0].list) == 2 && args[0].list[1].kind == '"':
		value, ok := c.params[args[0].list[1].text]
		if !ok || value == "" {
			return "", n.fail("parameter %q has no value", args[0].list[1].text)
		}
		return value, nil
	}
	return "", n.fail(`%s: want one "…" or (param "…")`, n.head())
}

// checkPath refuses a path that the kernel would never compare with one: where it
// denies something, nothing would be denied.
func checkPath(n node, head, text string) error {
	if !strings.HasPrefix(text, "/") || path.Clean(text) != text {
		return n.fail("path %q: want an absolute one without . and .., and no / at its end", text)
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return n.fail("path %q: control character", text)
	}
	for _, l := range systemLinks {
		if within(l.From, text) && (text != l.From || head == "subpath") && l.To != "/" {
			return n.fail("path %q: %s is a link, and what a rule says of it never holds", text, l.From)
		}
	}
	return nil
}

// address reads (remote|local ip "HOST:PORT") and (remote|local unix-socket FILTER).
func (c *compiler) address(f *filter, n node, operations []string) error {
	args := n.list[1:]
	for _, op := range operations {
		if outbound := op == "network-outbound"; outbound != (f.head == "remote") {
			return n.fail("%s: what it says of %s is not modelled", f.head, op)
		}
	}
	if len(args) != 2 || args[0].kind != 'a' {
		return n.fail(`%s: want ip "HOST:PORT", or unix-socket and a path`, f.head)
	}
	switch f.text = args[0].text; f.text {
	case "unix-socket":
		inner := args[1]
		if head := inner.head(); head == "path-literal" { // the name that literal has here
			inner.list = slices.Clone(inner.list)
			inner.list[0].text = "literal"
		} else if head != "subpath" {
			return inner.fail("want (path-literal …) or (subpath …)")
		}
		of, err := c.filter(inner, operations)
		f.inner = []filter{of}
		return err
	case "ip", "tcp", "udp":
		if args[1].kind != '"' {
			return n.fail("want an address in quotes")
		}
		f.host, f.port, _ = strings.Cut(args[1].text, ":")
		if f.host != "localhost" && f.host != "*" {
			return n.fail("address %q: the host must be * or localhost", args[1].text)
		}
		if port, err := strconv.ParseUint(f.port, 10, 16); f.port != "*" && (err != nil || port == 0 ||
			strconv.FormatUint(port, 10) != f.port) {
			return n.fail("address %q: want a port or *", args[1].text)
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
