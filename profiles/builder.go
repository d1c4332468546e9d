package profiles

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// A builder lays layers on each other: maps merge by key, lists unite, null
// removes.
type builder struct {
	policy *Policy
	index  map[string]int  // of policy.Files, by FileRule.key
	tight  map[string]bool // the sources that can only tighten
	mistakes
}

// newBuilder makes a builder with room for that many rules of the file table.
func newBuilder(p *Policy, rules int) *builder {
	p.Syscalls = "default"
	p.Environment.Set = map[string]EnvSet{}
	p.Files = make([]FileRule, 0, rules)
	return &builder{policy: p, index: make(map[string]int, rules)}
}

// homes hides everybody's home: rules of profiles stand on top.
func (b *builder) homes() {
	for _, dir := range b.policy.Homes {
		b.file(fileEntry{FileRule: FileRule{Path: dir, Access: Hide, Origin: Origin{Source: "default", Key: "homes"}}})
	}
}

func (b *builder) file(f fileEntry) {
	key := f.key()
	// A later rule for the same path stands in place of an import's denyWrite.
	b.policy.Tighten = slices.DeleteFunc(b.policy.Tighten, func(t FileRule) bool { return t.key() == key })
	i, ok := b.index[key]
	switch {
	case f.remove && ok:
		// The row stays as a gap until finish, so that the index holds.
		b.policy.Files[i].Path = ""
		delete(b.index, key)
	case f.remove:
		b.at(f.Origin, "", "null has no effect: no rule for that path is inherited")
	case ok:
		b.policy.Files[i] = f.FileRule
	default:
		b.index[key] = len(b.policy.Files)
		b.policy.Files = append(b.policy.Files, f.FileRule)
	}
}

// override adds rules for protection, each in the place of any before it that has the
// same pattern.
func override(have, more []ProtectRule) []ProtectRule {
	last := make(map[string]int, len(more))
	for i := range more {
		last[more[i].Pattern] = i
	}
	if len(more) > 0 {
		have = slices.DeleteFunc(have, func(r ProtectRule) bool {
			_, again := last[r.Pattern]
			return again
		})
	}
	have = slices.Grow(have, len(more))
	for i := range more {
		if last[more[i].Pattern] == i {
			have = append(have, more[i])
		}
	}
	return have
}

func (b *builder) apply(l *layer) {
	p := b.policy
	b.removeLists(l.clear)
	b.subtract(l, true)
	for _, f := range l.files {
		b.file(f)
	}
	p.Tighten = append(p.Tighten, l.tighten...) // of imports only
	p.Protect = override(p.Protect, l.protect)
	for _, s := range l.seeds {
		p.Seeds = s.onto(p.Seeds)
	}
	n := &p.Network
	n.Allow = unite(n.Allow, l.allow, NetRule.entry)
	n.Deny = unite(n.Deny, l.deny, NetRule.entry)
	n.Local = unite(n.Local, l.local, NetRule.entry)
	n.Publish = unite(n.Publish, l.publish, NetRule.entry)
	n.Sockets = unite(n.Sockets, l.sockets, PathRule.entry)
	p.Use = unite(p.Use, l.use, UseRule.entry)
	n.Inject = unite(n.Inject, l.inject, Injection.entry)
	for _, s := range l.sources {
		i := slices.IndexFunc(n.Inject, func(in Injection) bool { return in.Env == s.Env })
		if i < 0 {
			b.at(s.Origin, "--inject "+s.Env+"=HOST", "%s goes to no host", s.Env)
			continue
		}
		n.Inject = slices.Clone(n.Inject)
		n.Inject[i].File, n.Inject[i].Command = s.File, s.Command
	}
	e := &p.Environment
	e.Pass = unite(e.Pass, l.pass, EnvRule.entry)
	for _, r := range l.pass {
		delete(e.Set, r.Pattern) // to pass a variable undoes what an earlier layer set it to
	}
	e.Scrub = unite(e.Scrub, l.scrub, EnvRule.entry)
	for _, s := range l.set {
		_, stood := e.Set[s.name]
		switch {
		case !s.remove:
			e.Set[s.name] = s.EnvSet
		case !stood:
			b.at(s.Origin, "", "null has no effect: no value is inherited")
		default:
			delete(e.Set, s.name)
		}
	}
	for i, limit := range l.limits {
		if limit.given {
			*p.Resources.at(i) = limit.Limit
		}
	}
	if l.syscalls != nil {
		p.Syscalls, p.SyscallsAt = l.syscalls.Path, l.syscalls.Origin
	}
	if l.nested != nil {
		p.Nested, p.nestedAt = l.nested.value, l.nested.origin
	}
	if l.strict != nil {
		p.Strict, p.strictAt = l.strict.value, l.strict.origin
	}
	if l.report != nil {
		p.Attempts = l.report.value
	}
	if l.forbid != nil {
		p.ProtectStrict = l.forbid.value
	}
	p.Warnings = append(p.Warnings, l.warnings...)
}

// An entry is what a rule stands in its list by, and where it was written.
func (r NetRule) entry() (string, Origin)    { return r.Text, r.Origin }
func (r PathRule) entry() (string, Origin)   { return r.Path, r.Origin }
func (r EnvRule) entry() (string, Origin)    { return r.Pattern, r.Origin }
func (r UseRule) entry() (string, Origin)    { return r.Name, r.Origin }
func (in Injection) entry() (string, Origin) { return in.Env, in.Origin }

// indexOf returns where a list has an entry for what m is for, -1 for nowhere.
func indexOf[T any](have []T, m T, entry func(T) (string, Origin)) int {
	text, _ := entry(m)
	return slices.IndexFunc(have, func(h T) bool { t, _ := entry(h); return t == text })
}

// unite appends what is new; what stands in both keeps its place and takes
// the later origin.
func unite[T any](have, more []T, entry func(T) (string, Origin)) []T {
	for _, m := range more {
		if i := indexOf(have, m, entry); i >= 0 {
			have[i] = m
		} else {
			have = append(have, m)
		}
	}
	return have
}

// removeLists empties the lists that a layer set to null.
func (b *builder) removeLists(origins []Origin) {
	p := b.policy
	for _, o := range origins {
		switch o.Key {
		case "protect.deny", "protect.home", "protect.review":
			p.Protect = slices.DeleteFunc(p.Protect, func(r ProtectRule) bool {
				return "protect."+r.List() == o.Key || r.Home && o.Key == "protect.deny"
			})
		case "network.allow":
			p.Network.Allow = nil
		case "network.deny":
			p.Network.Deny = nil
		case "network.local":
			p.Network.Local = nil
		case "network.publish":
			p.Network.Publish = nil
		case "network.sockets":
			p.Network.Sockets = nil
		case "network.inject":
			p.Network.Inject = nil
		case "use":
			p.Use = nil
		case "environment.pass":
			p.Environment.Pass = nil
		default:
			b.at(o, "", "BUG: unknown list")
		}
	}
}

// subtract takes out of the lists what a layer names with a - before it. What takes
// nothing out is a mistake, and so is what would loosen, unless that may be.
func (b *builder) subtract(l *layer, loosen bool) {
	if l.minus == nil {
		return
	}
	n := &b.policy.Network
	less(b, &n.Allow, l.minus.allow, l.allow, true, NetRule.entry)
	less(b, &n.Deny, l.minus.deny, l.deny, loosen, NetRule.entry)
	less(b, &n.Local, l.minus.local, l.local, true, NetRule.entry)
	less(b, &n.Publish, l.minus.publish, l.publish, true, NetRule.entry)
	less(b, &n.Sockets, l.minus.sockets, l.sockets, true, PathRule.entry)
	less(b, &b.policy.Use, l.minus.use, l.use, true, UseRule.entry)
	less(b, &b.policy.Environment.Pass, l.minus.pass, l.pass, true, EnvRule.entry)
	less(b, &b.policy.Protect, l.minus.protect, l.protect, loosen, func(r ProtectRule) (string, Origin) {
		if r.Review { // another list
			return "review " + r.Pattern, r.Origin
		}
		return r.Pattern, r.Origin
	})
}

// less takes minus out of a list. Plus is what the same layer adds to it.
func less[T any](b *builder, have *[]T, minus, plus []T, may bool, entry func(T) (string, Origin)) {
	for _, m := range minus {
		text, o := entry(m)
		i := indexOf(*have, m, entry)
		text = strings.TrimPrefix(text, "review ")
		switch {
		case indexOf(plus, m, entry) >= 0:
			b.at(o, "", "-%s: the same list adds it", text)
		case i < 0:
			b.at(o, "pccrun profile show prints what is inherited", "-%s: no such entry is inherited", text)
		case !may:
			b.at(o, "read the file and run pccrun trust, or remove the line", "-%s: would allow more, and the file is not trusted", text)
		default:
			*have = slices.Delete(slices.Clone(*have), i, i+1) // a built-in list is everybody's
		}
	}
}

// planted reports whether a file that was read unasked lies where what stands
// below it lets the command write: an earlier run may have made it.
func (b *builder) planted(l *layer) bool {
	return l.unasked && max(b.policy.Decide(l.source).Access, b.policy.Decide(real(l.source)).Access) >= Overlay
}

// tighten applies a file that is not trusted: what makes the policy stricter
// counts, what would loosen it is named and ignored. A rule of the file table
// needs no judgement, since Tighten cannot loosen.
func (b *builder) tighten(l *layer) {
	p := b.policy
	b.subtract(l, false)
	if b.tight == nil {
		b.tight = map[string]bool{}
	}
	b.tight[l.source] = true
	var ignored []string
	ignore := func(o Origin) { ignored = append(ignored, fmt.Sprintf("line %d: %s", o.Line, o.Key)) }

	if l.extends != "" || l.noExtends {
		ignore(l.extendsAt)
	}
	for _, f := range l.files {
		if f.remove {
			ignore(f.Origin)
			continue
		}
		if p.Decide(f.Path).Access < f.Access {
			ignore(f.Origin)
		}
		p.Tighten = append(p.Tighten, f.FileRule)
	}
	p.Tighten = append(p.Tighten, l.tighten...)
	p.Environment.Scrub = unite(p.Environment.Scrub, l.scrub, EnvRule.entry)
	p.Warnings = append(p.Warnings, l.warnings...)
	for _, r := range l.protect {
		if i := slices.IndexFunc(p.Protect, func(old ProtectRule) bool { return old.Pattern == r.Pattern }); i < 0 {
			p.Protect = append(p.Protect, r)
		} else if r.List() > p.Protect[i].List() { // deny, home, review: each allows more than the one before
			ignore(r.Origin)
		} else {
			p.Protect[i] = r
		}
	}
	for _, s := range l.seeds {
		ignore(s.Origin)
	}
	n := &p.Network
	n.Deny = unite(n.Deny, l.deny, NetRule.entry)
	ignoreNew(ignore, n.Allow, l.allow, NetRule.entry)
	ignoreNew(ignore, n.Local, l.local, NetRule.entry)
	ignoreNew(ignore, n.Publish, l.publish, NetRule.entry)
	ignoreNew(ignore, n.Sockets, l.sockets, PathRule.entry)
	ignoreNew(ignore, p.Use, l.use, UseRule.entry)
	ignoreNew(ignore, nil, l.inject, Injection.entry)
	ignoreNew(ignore, p.Environment.Pass, l.pass, EnvRule.entry)
	for _, s := range l.set {
		ignore(s.Origin)
	}
	for i, limit := range l.limits {
		have := p.Resources.at(i)
		switch {
		case !limit.given:
		case limit.Value > 0 && (have.Value == 0 || limit.Value <= have.Value):
			*have = limit.Limit
		default:
			ignore(limit.Origin)
		}
	}
	if l.syscalls != nil && l.syscalls.Path != p.Syscalls {
		ignore(l.syscalls.Origin)
	}
	if l.nested != nil {
		if l.nested.value && !p.Nested {
			ignore(l.nested.origin)
		} else if !l.nested.value {
			p.Nested = false
		}
	}
	if l.strict != nil {
		if l.strict.value {
			p.Strict, p.strictAt = true, l.strict.origin
		} else if p.Strict {
			ignore(l.strict.origin)
		}
	}
	// A report loosens nothing, and neither does more of it.
	for _, pair := range [...]struct {
		have *bool
		said *boolEntry
	}{{&p.Attempts, l.report}, {&p.ProtectStrict, l.forbid}} {
		if pair.said != nil && *pair.have && !pair.said.value {
			ignore(pair.said.origin)
		} else if pair.said != nil {
			*pair.have = pair.said.value
		}
	}
	var cleared []Origin
	for _, o := range l.clear {
		switch o.Key {
		case "protect.deny", "protect.home", "protect.review", "network.deny", "network.inject":
			ignore(o)
		default:
			cleared = append(cleared, o)
		}
	}
	b.removeLists(cleared)
	if ignored != nil {
		hint := ""
		if l.source == filepath.Join(p.Workspace, WorkspaceFile) { // another is not the workspace's to trust
			hint = " (to allow: pccrun trust)"
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s is not trusted and cannot allow more: ignored %s%s", l.source, strings.Join(slices.Compact(ignored), ", "), hint))
	}
}

// ignoreNew ignores the entries that a list does not have.
func ignoreNew[T any](ignore func(Origin), have, more []T, entry func(T) (string, Origin)) {
	for _, m := range more {
		if text, o := entry(m); indexOf(have, m, entry) < 0 {
			o.Key += " " + strconv.Quote(text)
			ignore(o)
		}
	}
}

// finish checks what only the whole can be checked for, and derives the rest.
func (b *builder) finish(req Request, dirs state.Dirs) error {
	p := b.policy
	p.Files = slices.DeleteFunc(p.Files, func(r FileRule) bool { return r.Path == "" })
	b.unlinked(req.Host.Elsewhere)
	if d := p.Decide(p.Workspace); d.Access == Hide {
		b.at(d.Rule.Origin, "name another with --workspace DIR", "hides the workspace %s", p.Workspace)
	}
	if i := slices.IndexFunc(p.Files, func(r FileRule) bool { return r.key() == "/" }); i >= 0 && p.Files[i].Access != Read {
		r := p.Files[i] // said here, since a launch looks first through all that may be written
		b.at(r.Origin, "name directories in it: --"+r.Access.String()+" DIR", "/: the root directory can only have the access read")
	}
	if p.Decide(p.WorkDir).Access < Read {
		p.WorkDir = p.Workspace
	}
	if p.ProtectStrict || b.partOfHome(&req.Host) {
		p.Protect = denied(p.Protect)
	}
	b.home(req)
	b.network()
	b.use(&req.Host)
	b.warnOfSockets()
	if !req.Host.Elsewhere {
		b.own(dirs, req.Host.Home)
		b.moved(&req.Host)
		b.open()
		b.warnOfSecrets()
	}
	for _, name := range req.Env {
		if !strings.ContainsAny(name, "=*") && !req.Host.has(name) {
			p.Warnings = append(p.Warnings, "flag --env: "+name+" is not set here")
		}
	}
	slices.SortFunc(p.Files, compareRules)
	slices.SortFunc(p.Tighten, func(a, b FileRule) int {
		return cmp.Or(strings.Compare(a.Origin.Source, b.Origin.Source), compareRules(a, b))
	})
	for _, name := range req.AllowMissing {
		b.flagWord("--allow-missing", name, GuaranteeNames(), func() { p.AllowMissing = append(p.AllowMissing, Guarantee(name)) })
	}
	for _, name := range req.Without {
		b.flagWord("--without", name, LayerNames(), func() { p.Without = append(p.Without, Layer(name)) })
	}
	b.barred()
	p.Requirements = requirements(p)
	return b.err()
}

// home leaves log-ins out where nobody wants them, and makes the home private where the run is to begin with a fresh one.
func (b *builder) home(req Request) {
	p := b.policy
	switch d := p.Decide(p.Home); {
	case d.Access != Persist && req.NoLogin:
		b.at(Origin{Source: "flag", Key: "--no-login"}, "", "~ is %s, so no seeds are copied (%s)", d.Access, d.Rule.Origin)
	case d.Access != Persist:
		if req.FreshHome {
			b.at(Origin{Source: "flag", Key: "--fresh-home"}, "--home persist gives one", "~ is %s and has no seeds (%s)", d.Access, d.Rule.Origin)
		}
		p.Seeds = nil
	case req.FreshHome || req.Home == "" && req.Host.Getenv("CI") != "" && req.Host.Getenv("CI") != "false":
		p.FreshHome = true
		i := slices.IndexFunc(p.Files, func(r FileRule) bool { return r.key() == p.Home })
		p.Files[i].Access, p.Files[i].Origin = Private, Origin{Source: "flag", Key: "--fresh-home"}
		if !req.FreshHome {
			p.Files[i].Origin = Origin{Source: "environment", Key: "CI"}
		}
	}
	if p.NoLogin = req.NoLogin; p.NoLogin {
		p.Seeds = slices.DeleteFunc(p.Seeds, func(s Seed) bool { return s.Mode == Login })
	}
}

// open lets a file change, and lists it at exit, that a review rule of the user's names by
// its path and that is protected by its name, or stands in a directory which is protected as a
// whole: the rest stays as it is. Such a rule for anything else would do nothing.
func (b *builder) open() {
	p := b.policy
	for i := range p.Protect {
		r := &p.Protect[i]
		path := r.Pattern
		if !strings.HasPrefix(path, "/") {
			path = p.Workspace + "/" + path
		}
		if !r.Review || r.Origin.BuiltIn() || b.tight[r.Origin.Source] || isGlob(path) || strings.Count(path, "/") < 2 {
			continue
		}
		at := slices.IndexFunc(p.Protect, func(d ProtectRule) bool {
			return !d.Review && d.Pattern != r.Pattern && (d.Matches(p.Workspace, parentOf(path)) || strings.IndexByte(r.Pattern, '/') > 0 && d.Matches(p.Workspace, path))
		})
		if at < 0 || p.Protect[at].Pattern == r.Pattern {
			continue
		}
		d := &p.Protect[at]
		info, err := os.Lstat(path)
		if err == nil && !info.Mode().IsRegular() {
			b.at(r.Origin, "--review "+d.Pattern, "review %s: has no effect: it is in %s, which is protected, and is a link or a directory", r.Pattern, d.Pattern)
			continue
		}
		if err != nil {
			b.at(r.Origin, "name a file that is there", "review %s: has no effect: it is in %s, which is protected, and does not exist", r.Pattern, d.Pattern)
			continue
		}
		if !d.Origin.builtin() {
			b.at(r.Origin, "", "review %s: %s protects %s", r.Pattern, d.Origin, d.Pattern)
			continue
		}
		p.Opened = append(p.Opened, path)
		b.file(fileEntry{FileRule: FileRule{Path: path, Access: Write, Origin: r.Origin}})
	}
}

// barred refuses rules that would let a protected name change, and do nothing: it stays as it is
// until it is named for review.
func (b *builder) barred() {
	p := b.policy
	if slices.Contains(p.Without, LayerProtect) {
		return
	}
	for i := range p.Files {
		r := &p.Files[i]
		if r.Access < Overlay || r.Glob != "" || r.Origin.BuiltIn() || b.tight[r.Origin.Source] || r.Path == p.Workspace || !within(p.Workspace, r.Path) {
			continue
		}
		if d, is := p.Protected(r.Path); is && !d.Review && !d.Matches(p.Workspace, parentOf(r.Path)) {
			name, hint := r.Path[len(p.Workspace)+1:], ""
			if !strings.HasPrefix(d.Pattern, ".git/") || strings.HasPrefix(d.Pattern, ".git/config") {
				hint = "add --review " + shell.Quote(name) + ": then it may change, and is listed"
				if info, err := os.Lstat(r.Path); err == nil && info.IsDir() {
					hint += "; --review " + shell.Quote(name) + "/FILE, or --write " + shell.Quote(name) + "/DIR, opens less"
				}
			}
			b.at(r.Origin, hint, "%s %s: it is protected as %s, and stays as it is", r.Access, name, d.Pattern)
		}
	}
}

// ReviewFlag is the flag that lets a path change that a rule protects: the file alone, where
// it stands in a directory that is protected as a whole. Of such a directory nothing else is
// opened, and no flag is named that opens all of it.
func (p *Policy) ReviewFlag(path string, r ProtectRule) string {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.IsDir():
		return ""
	case !r.Matches(p.Workspace, parentOf(path)):
		return "--review " + shell.Quote(r.Pattern)
	case err != nil:
		return p.newBelow(path, false)
	case !info.Mode().IsRegular():
		return ""
	}
	if rest, in := below(p.Workspace, path); in {
		path = rest
	}
	return "--review " + shell.Quote(path)
}

// DirFlag is [Policy.ReviewFlag] for a directory that the command wants to make.
func (p *Policy) DirFlag(path string, r ProtectRule) string {
	if !r.Matches(p.Workspace, parentOf(path)) {
		return ""
	}
	return p.newBelow(path, true)
}

// newBelow says how a file or directory can be made in a directory that is protected as a whole:
// a mount needs something to stand on, which only the user can make there. Names that a program
// means to rename are not worth it.
func (p *Policy) newBelow(path string, dir bool) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	above, err := os.Lstat(parentOf(path))
	rest, in := below(p.Workspace, path)
	if err != nil || !above.IsDir() || !in || (strings.HasPrefix(rest, ".git/") || strings.Contains(rest, "/.git/")) && !strings.HasSuffix(rest, ".git/hooks/"+name) ||
		strings.Contains(name, "tmp") || strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".lock") {
		return ""
	}
	if rest = shell.Quote(rest); dir {
		return "mkdir " + rest + " and --write " + rest
	}
	return "touch " + rest + " and --review " + rest
}

// MakeFlag is the flag by which names can be made and taken away where a path is: a rule needs
// something to stand on, so it is the directory's, unless that opens a home or the workspace.
func (p *Policy) MakeFlag(path string, file bool) string {
	dir := cmp.Or(parentOf(path), "/")
	for _, whole := range append([]string{p.Home, p.Workspace}, p.Homes...) {
		if !within(dir, whole) {
			continue
		} else if !file {
			return ""
		}
		return "touch " + shell.Quote(path) + " and --write " + shell.Quote(path)
	}
	return p.WriteFlag(dir)
}

// WriteFlag is the flag by which a path can be written. Two flags for one path are refused.
func (p *Policy) WriteFlag(path string) string {
	flag := "--write " + shell.Quote(path)
	if rule := p.Decide(path).Rule; rule.Origin.Source == "flag" && rule.Path == path && rule.Glob == "" {
		flag += " in place of " + rule.Origin.Key + " " + shell.Quote(path)
	}
	return flag
}

// NewFlag is the flag that lets the command make what is quarantined as a rule's pattern has it, ""
// where there is none: of git's own names more is looked at than a rule says.
func (p *Policy) NewFlag(pattern string) string {
	named := func(r ProtectRule) bool { return r.Pattern == pattern && !r.Review }
	if strings.HasPrefix(pattern, ".git/") || !slices.ContainsFunc(p.Protect, named) {
		return ""
	}
	return "--review " + shell.Quote(pattern)
}

// Lists reports whether a file that is new at a path is listed at exit, where r protects what stands: it
// is executed only from a home, and none of its kind stands beside it.
func (p *Policy) Lists(path string, r ProtectRule) bool {
	stands := func(at string) bool { _, err := os.Lstat(at); return err == nil }
	return r.Home && !stands(path) && p.Decide(path).Access == Write && !slices.ContainsFunc(p.Protect, func(r ProtectRule) bool {
		return r.Home && stands(parentOf(path)+"/"+r.Pattern)
	})
}

func parentOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// own keeps pccrun's own directories from the payload where a rule would show
// them: what is written there would loosen the next run.
func (b *builder) own(dirs state.Dirs, home string) {
	p := b.policy
	list := []string{dirs.State, dirs.Config, dirs.Cache}
	if real, err := state.Real(home); err == nil && dirs.State != "" { // a variable adds to these, and replaces none
		if usual, err := state.Find(func(string) string { return "" }, real); err == nil {
			list = append(list, usual.State, usual.Config, usual.Cache)
		}
	}
	for i, dir := range list {
		if dir == "" || slices.Contains(list[:i], dir) || p.Decide(dir).Access < Read {
			continue
		}
		o := Origin{Source: "default", Key: "pccrun's own files"}
		p.Tighten = append(p.Tighten, FileRule{Path: dir, Access: Hide, Origin: o})
		p.Protect = append(p.Protect, ProtectRule{Pattern: dir, Origin: o})
		p.Own = append(p.Own, dir)
	}
	// The files that this policy was read from, wherever they lie, and those
	// that the next run would read unasked: the payload would write its own.
	for _, file := range slices.Concat(p.Layers, []string{p.Syscalls, p.Home + parallelSettings, p.Home + claudeSettings}, others(dirs.Config)) {
		if !strings.HasPrefix(file, "/") {
			continue
		}
		for _, file := range [...]string{file, leads(file)} {
			if r, ok := p.Protected(file); ok && !r.Review || p.Decide(file).Access <= Read {
				continue
			}
			if within(file, p.Workspace) {
				b.at(Origin{Source: "default", Key: "pccrun's own files"}, "", "%s is in %s, where your profiles are: a run could change the policy of the next run", p.Workspace, file)
				return
			}
			if rest, ok := below(p.Workspace, file); ok {
				file = rest
			}
			p.Protect = append(p.Protect, ProtectRule{Pattern: file, Origin: Origin{Source: "default", Key: "the policy is read from it"}})
		}
	}
}

// network checks the rules together, and takes out what a deny of everything
// makes pointless, so that such a run needs no network at all.
func (b *builder) network() {
	n := &b.policy.Network
	if i := slices.IndexFunc(n.Deny, func(r NetRule) bool { return r.Text == "*" }); i >= 0 && len(n.Allow) > 0 {
		var names []string
		for _, r := range n.Allow {
			names = append(names, r.Text)
		}
		b.policy.Warnings = append(b.policy.Warnings, fmt.Sprintf("%s denies every host: ignored %s", n.Deny[i].Origin, strings.Join(names, ", ")))
		n.Allow = nil
	}
	if len(n.Allow)+len(n.Deny) == 0 {
		return
	}
	for _, r := range n.Allow {
		if rules.IsGroup(r.Text) {
			b.policy.Warnings = append(b.policy.Warnings, fmt.Sprintf("%s: %s is a host of that name; a group is @%[2]s", r.Origin, r.Text))
		}
	}
	// The hosts of a group are the run's to find; here it stands for none.
	none := func(rules.Rule) ([]rules.Rule, error) { return nil, nil }
	if _, err := n.Rules(none); err != nil {
		b.at(Origin{Key: "network"}, "", "%v", err)
	}
}

func compareRules(a, b FileRule) int {
	if c := strings.Compare(a.Path, b.Path); c != 0 {
		return c
	}
	return strings.Compare(a.Glob, b.Glob)
}

// flagWord checks a flag's value against a closed list.
func (b *builder) flagWord(flag, word string, words []string, found func()) {
	if slices.Contains(words, word) {
		found()
		return
	}
	hint := "one of " + strings.Join(words, ", ")
	if near := Nearest(word, words); near != "" {
		hint = "did you mean " + near + "?"
	}
	b.at(Origin{Source: "flag", Key: flag}, hint, "unknown name %q", word)
}
