package sbpl

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Target is what an operation is done to; which fields count goes by the operation.
type Target struct {
	Path      string // of a file or a unix socket, as the kernel has it: no part is a link
	Extension string // what the kernel has lent the process for the file, e.g. "com.apple.sandbox.pty"
	Host      string // "localhost" for the machine's own addresses, anything else for another
	Port      uint16
	Name      string // of a service, a setting, a class of IOKit's, shared memory
	Process   string // "self", "same-sandbox" or "others"
	Domain    string // of a socket that is made: "AF_UNIX", …
}

// A Verdict is what a profile says.
type Verdict struct {
	Allowed bool
	Line    int // of the rule that says it, 0 for the default
}

// An AmbiguousError says that the answer depends on how Seatbelt orders rules.
type AmbiguousError struct {
	Operation   string
	Last, Other Verdict // the last rule that matches; what another order has
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%s: line %d or line %d: which of them decides depends on how Seatbelt orders rules",
		e.Operation, e.Last.Line, e.Other.Line)
}

// Evaluate says whether a profile allows an operation. Three orders are reported of
// Seatbelt: the last rule that matches decides; the last that has a filter, and one
// without only where there is none; the last that names the operation, and one that
// names its group only where there is none. All are asked; where they differ it is an
// error.
func Evaluate(r *Rules, op string, t Target) (Verdict, error) {
	known, ok := operations[op]
	if !ok {
		return Verdict{}, fmt.Errorf("operation %q: want one that is modelled, and no group", op)
	}
	if err := t.check(known.kind); err != nil {
		return Verdict{}, fmt.Errorf("%s: %w", op, err)
	}
	last := Verdict{Allowed: r.Default}
	filtered, unfiltered, named, grouped := last, last, last, last
	found, isNamed := false, false
	for i := range r.List {
		rule := &r.List[i]
		if !slices.ContainsFunc(rule.Operations, func(name string) bool { return covers(name, op) }) || !rule.matches(&t) {
			continue
		}
		last = Verdict{rule.Allow, rule.Line}
		if len(rule.filters) == 0 {
			unfiltered = last
		} else {
			filtered, found = last, true
		}
		if slices.Contains(rule.Operations, op) {
			named, isNamed = last, true
		} else {
			grouped = last
		}
	}
	if !found {
		filtered = unfiltered
	}
	if !isNamed {
		named = grouped
	}
	for _, other := range [...]Verdict{filtered, named} {
		if last.Allowed != other.Allowed {
			return Verdict{}, &AmbiguousError{op, last, other}
		}
	}
	return last, nil
}

// check refuses a target that says less than the operation's rules may ask.
func (t *Target) check(k Kind) error {
	isPath := strings.HasPrefix(t.Path, "/") && path.Clean(t.Path) == t.Path
	switch {
	case k == OnFile && !isPath:
		return fmt.Errorf("path %q: want an absolute and clean one", t.Path)
	case k == OnNetwork && (t.Host == "") == (t.Path == "") || k == OnNetwork && t.Path != "" && !isPath ||
		k == OnNetwork && t.Host != "" && t.Port == 0:
		return fmt.Errorf("want the path of a socket, or a host and a port")
	case (k == OnService || k == OnSetting || k == OnDevice || k == OnMemory) && t.Name == "":
		return fmt.Errorf("want a name")
	case k == OnProcess && !slices.Contains([]string{"self", "same-sandbox", "others"}, t.Process):
		return fmt.Errorf("process %q: want self, same-sandbox or others", t.Process)
	case k == OnSocket && t.Domain == "":
		return fmt.Errorf("want a domain")
	}
	return nil
}

// Address returns the target for a host, by name or address, and a port. Of addresses
// of this machine only two are the localhost of a rule.
func Address(host string, port uint16) Target {
	if addr, err := netip.ParseAddr(host); err == nil && !addr.Is4In6() && addr.IsLoopback() {
		host = "localhost"
	}
	return Target{Host: host, Port: port}
}

func (r *Rule) matches(t *Target) bool {
	return len(r.filters) == 0 || slices.ContainsFunc(r.filters, func(f filter) bool { return f.matches(t) })
}

func (f *filter) matches(t *Target) bool {
	matches := func(inner filter) bool { return inner.matches(t) }
	switch f.head {
	case "require-all":
		return !slices.ContainsFunc(f.inner, func(inner filter) bool { return !inner.matches(t) })
	case "require-any":
		return slices.ContainsFunc(f.inner, matches)
	case "require-not":
		return !f.inner[0].matches(t)
	case "literal":
		return t.Path == f.text
	case "subpath":
		return t.Path != "" && within(f.text, t.Path)
	case "prefix":
		return strings.HasPrefix(t.Path, f.text)
	case "regex":
		return t.Path != "" && f.regexp.MatchString(t.Path)
	case "extension":
		return t.Extension == f.text
	case "ipc-posix-name-regex":
		return f.regexp.MatchString(t.Name)
	case "remote", "local":
		if f.text == "unix-socket" {
			return f.inner[0].matches(t)
		}
		return t.Host != "" && (f.host == "*" || t.Host == f.host) && (f.port == "*" || f.port == strconv.Itoa(int(t.Port)))
	case "target":
		return t.Process == f.text || t.Process == "self" && f.text == "same-sandbox"
	case "socket-domain":
		return t.Domain == f.text
	case "sysctl-name-prefix":
		return strings.HasPrefix(t.Name, f.text)
	}
	return t.Name == f.text // global-name, sysctl-name, iokit-registry-entry-class, ipc-posix-name
}

// within reports whether a path is a directory's own or lies below it.
func within(dir, name string) bool {
	return dir == "/" || name == dir || strings.HasPrefix(name, dir) && name[len(dir)] == '/'
}
