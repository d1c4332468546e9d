package profiles

import (
	"maps"
	"slices"
	"strings"
)

// A Decision is what the table says of a path, and the rule that said it.
type Decision struct {
	Access Access
	Rule   FileRule
}

// Text says what decides, and where it is written.
func (d *Decision) Text() string {
	return d.Access.String() + " " + d.Rule.Text() + " (" + d.Rule.Origin.String() + ")"
}

// nothing is the rule that decides where no other does.
var nothing = FileRule{Path: "/", Access: Hide, Origin: Origin{Source: "default", Key: "no rule shows it"}}

// Decide returns the access to an absolute, clean path. It looks at nothing
// but the table: where links lead is the caller's part.
//
// The rule that matches the longest part of the path decides, whether it names
// a directory, a file or a pattern; at the same length a name beats a pattern,
// and of two patterns the stricter wins. A rule covers what lies below what it
// matches. Each source that may only tighten has a table of its own, and none of
// them can make the answer looser than another.
func (p *Policy) Decide(path string) Decision {
	d, ok := decide(p.Files, path)
	if !ok {
		d = Decision{Access: Hide, Rule: nothing}
	}
	for rest := p.Tighten; len(rest) > 0; {
		n := sameSource(rest)
		if t, ok := decide(rest[:n], path); ok && t.Access < d.Access {
			d = t
		}
		rest = rest[n:]
	}
	return d
}

// Changes reports whether what stands at an absolute, clean path may change by the run, now or when an
// overlay is applied. The workspace always counts.
func (p *Policy) Changes(path string) bool {
	return within(p.Workspace, path) || p.Decide(path).Access >= Overlay
}

// sameSource returns how many rules at the beginning are of one source.
func sameSource(rules []FileRule) int {
	n := 1
	for n < len(rules) && rules[n].Origin.Source == rules[0].Origin.Source {
		n++
	}
	return n
}

func decide(rules []FileRule, path string) (Decision, bool) {
	best, length, exact := -1, -1, false
	for i := range rules {
		r := &rules[i]
		// A launch decides on each rule's path among hundreds: what cannot
		// cover it goes by two bytes.
		if n := len(r.Path); n > len(path) || n > 1 && (n < len(path) && path[n] != '/' || path[n-1] != r.Path[n-1]) {
			continue
		}
		n := r.covers(path)
		if n < 0 || n < length {
			continue
		}
		named := r.Glob == ""
		if n > length || named && !exact || named == exact && r.Access < rules[best].Access {
			best, length, exact = i, n, named
		}
	}
	if best < 0 {
		return Decision{}, false
	}
	return Decision{Access: rules[best].Access, Rule: rules[best]}, true
}

// Matches reports whether the rule names this very path, not only a directory
// above it. A hiding pattern leaves templates alone (`.env.example`, `.sample`,
// `.template`), unless its own last name ends so. A pattern also matches its
// own spelling, so that `pages/[id].js` finds the file of that name.
func (r *FileRule) Matches(path string) bool {
	if r.Glob == "" {
		return path == r.Path
	}
	rest, ok := below(r.Path, path)
	if !ok || rest == "" {
		return false
	}
	if !globMatch(r.Glob, rest) && rest != r.Glob {
		return false
	}
	return r.Access != Hide || !isTemplate(rest) || isTemplate(r.Glob)
}

// covers returns the length of the longest part of path, path itself or a
// directory above it, that the rule matches; -1 if there is none.
func (r *FileRule) covers(path string) int {
	rest, ok := below(r.Path, path)
	if !ok {
		return -1
	}
	if r.Glob == "" {
		return len(r.Path)
	}
	for end := len(path); end > len(path)-len(rest); {
		if r.Matches(path[:end]) {
			return end
		}
		end = strings.LastIndexByte(path[:end], '/')
	}
	return -1
}

// below returns path relative to dir, "" if it is dir, and whether it is dir
// or lies below it. Both are absolute and clean.
func below(dir, path string) (rest string, ok bool) {
	if dir == "/" {
		return strings.TrimPrefix(path, "/"), strings.HasPrefix(path, "/")
	}
	if !strings.HasPrefix(path, dir) {
		return "", false
	}
	if len(path) == len(dir) {
		return "", true
	}
	return path[len(dir)+1:], path[len(dir)] == '/'
}

// within reports whether path is dir or lies below it.
func within(dir, path string) bool {
	_, ok := below(dir, path)
	return ok
}

func isTemplate(path string) bool {
	return strings.HasSuffix(path, ".example") || strings.HasSuffix(path, ".sample") || strings.HasSuffix(path, ".template")
}

// Matches reports whether the rule names this path, or a directory above it.
// The path is absolute and clean, the workspace is the policy's.
//
// A pattern without a slash is a name at any depth of the workspace. One that
// begins with `.git/` holds in every repository of the workspace, its worktrees
// and submodules; one that is absolute holds where it says; any other is
// relative to the workspace.
func (r *ProtectRule) Matches(workspace, path string) bool {
	if strings.HasPrefix(r.Pattern, "/") {
		return within(r.Pattern, path)
	}
	rest, ok := below(workspace, path)
	if !ok {
		return false
	}
	pattern := r.Pattern
	own, git := strings.CutPrefix(pattern, ".git/")
	if git || strings.IndexByte(pattern, '/') < 0 {
		pattern = "**/" + pattern
	}
	last, plain := r.Last() // most are, and a path may have hundreds of names
	for ; rest != ""; rest = rest[:max(0, strings.LastIndexByte(rest, '/'))] {
		if plain && !strings.HasSuffix(rest, last) {
			continue
		}
		if globMatch(pattern, rest) || rest == r.Pattern {
			return true
		}
		if git && (globMatch("**/.git/modules/**/"+own, rest) || globMatch("**/.git/worktrees/*/"+own, rest)) {
			return true
		}
	}
	return false
}

// Last returns the last name of the pattern. If it is plain, every path that the rule matches has it as one of
// its names.
func (r *ProtectRule) Last() (name string, plain bool) {
	name = r.Pattern[strings.LastIndexByte(r.Pattern, '/')+1:]
	return name, name != "" && !isGlob(name)
}

// Protected returns the rule that protects an absolute, clean path: one that
// denies before one that reviews.
func (p *Policy) Protected(path string) (ProtectRule, bool) {
	found := -1
	if slices.Contains(p.Opened, path) {
		at := slices.IndexFunc(p.Protect, func(r ProtectRule) bool {
			return r.Review && (r.Pattern == path || p.Workspace+"/"+r.Pattern == path)
		})
		return p.Protect[at], true
	}
	for i := range p.Protect {
		if r := &p.Protect[i]; (found < 0 || !r.Review) && r.Matches(p.Workspace, path) {
			if !r.Review {
				if root := p.tree(path); root != "" {
					beside := Policy{Workspace: root, Protect: p.ProtectedOutside(false)}
					return beside.Protected(path)
				}
				return *r, true
			}
			found = i
		}
	}
	if found < 0 {
		return ProtectRule{}, false
	}
	return p.Protect[found], true
}

// tree returns the directory in a protected one of the workspace that a rule lets the command
// write, and a path lies in; "" for none. In there names are protected as in the workspace.
func (p *Policy) tree(path string) (root string) {
	for i := range p.Files {
		r := &p.Files[i]
		if r.Access != Write || r.Glob != "" || len(r.Path) <= len(root) || r.Path == p.Workspace || !within(r.Path, path) || !within(p.Workspace, r.Path) {
			continue
		}
		above := parentOf(r.Path)
		in := func(d ProtectRule) bool { return !d.Review && d.Matches(p.Workspace, above) }
		if slices.ContainsFunc(p.Protect, in) && p.Decide(r.Path).Access == Write {
			root = r.Path
		}
	}
	return root
}

// EnvAction says what happens to a variable.
type EnvAction uint8

// What the payload sees of a variable.
const (
	EnvScrubbed EnvAction = iota // not there
	EnvPassed                    // the host's value, if the host has one
	EnvSetTo                     // the policy's value
	EnvInjected                  // a placeholder; the value goes out with requests only
)

// An EnvDecision is what the policy says of a variable, and the rule that said it.
type EnvDecision struct {
	Action EnvAction
	Value  string // with [EnvSetTo]; with [EnvInjected], where the value comes from; with [EnvScrubbed], why
	Origin Origin
}

// DecideEnv returns what the payload sees of the variable. A placeholder beats
// a value, a value beats passing.
func (p *Policy) DecideEnv(name string) EnvDecision {
	for i := range p.Network.Inject {
		if p.Network.Inject[i].Env == name {
			return EnvDecision{Action: EnvInjected, Value: p.Network.Inject[i].Source(), Origin: p.Network.Inject[i].Origin}
		}
	}
	for i := range p.Environment.Scrub {
		if p.Environment.Scrub[i].Matches(name) {
			return EnvDecision{Action: EnvScrubbed, Origin: p.Environment.Scrub[i].Origin}
		}
	}
	if set, ok := p.Environment.Set[name]; ok {
		return EnvDecision{Action: EnvSetTo, Value: set.Value, Origin: set.Origin}
	}
	for i := range p.Environment.Pass {
		if p.Environment.Pass[i].Matches(name) {
			return EnvDecision{Action: EnvPassed, Origin: p.Environment.Pass[i].Origin}
		}
	}
	return EnvDecision{Action: EnvScrubbed, Origin: Origin{Source: "default", Key: "no rule passes it"}}
}

// DecideEnvOf is DecideEnv for a value of the host's: an address that signs in is passed by no list that holds for every
// command.
func (p *Policy) DecideEnvOf(name, value string) EnvDecision {
	d := p.DecideEnv(name)
	if d.Action == EnvPassed && d.Origin.Source == "built-in default" && signsIn(value) {
		d.Action, d.Value = EnvScrubbed, "its value has an address that signs in"
	}
	return d
}

// signsIn reports whether an address in a text has a user name.
func signsIn(text string) bool {
	for _, rest := range strings.Split(text, "://")[1:] {
		if i := strings.IndexAny(rest, "@/?# \t'\""); i >= 0 && rest[i] == '@' {
			return true
		}
	}
	return false
}

// Matches reports whether the rule passes the variable.
func (r *EnvRule) Matches(name string) bool {
	if n := len(r.Pattern) - 1; n >= 0 && r.Pattern[n] == '*' {
		return strings.HasPrefix(name, r.Pattern[:n])
	}
	return name == r.Pattern
}

// Environ returns what the payload's environment is made of, given the host's:
// the variables that the policy passes, with the host's values, in the host's
// order, and those that it sets, by name. A name that stands twice is taken
// once, as the first, which is what getenv(3) finds. HOME, if it is passed, is
// the policy's home. Placeholders are not in it.
func (p *Policy) Environ(host []string) []string {
	env := make([]string, 0, len(p.Environment.Pass)+len(p.Environment.Set))
	seen := make(map[string]bool, cap(env))
	for _, entry := range host {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" || seen[name] || p.DecideEnvOf(name, value).Action != EnvPassed {
			continue
		}
		seen[name] = true
		if name == "HOME" {
			entry = "HOME=" + p.Home
		}
		env = append(env, entry)
	}
	start := len(env)
	for name, set := range p.Environment.Set {
		if p.DecideEnv(name).Action == EnvSetTo {
			env = append(env, name+"="+set.Value)
		}
	}
	slices.Sort(env[start:])
	return env
}

// SetNames returns the names of the variables that the policy sets, in order.
func (p *Policy) SetNames() []string {
	return slices.Sorted(maps.Keys(p.Environment.Set))
}

// Text returns the path with its pattern, as a profile would write it.
func (r *FileRule) Text() string {
	if r.Glob == "" {
		return r.Path
	}
	return strings.TrimSuffix(r.Path, "/") + "/" + r.Glob
}
