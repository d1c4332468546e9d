package profiles

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// A builder merges layers into a policy, the most basic first.
type builder struct {
	policy  *Policy
	texts   [numKeys]rows[NetRule] // of the keys that hold texts, by text
	files   rows[FileRule]         // by FileRule.key
	protect rows[ProtectRule]      // by pattern
	tight   map[string]bool        // the sources that can only tighten
	mistakes
}

// rows are a list in which a key has one row at most.
type rows[T any] struct {
	list []T
	at   map[string]int // by key, the index in the list
}

// put adds a row, or replaces that of the same key in its place.
func (r *rows[T]) put(key string, row T) {
	if i, ok := r.at[key]; ok {
		r.list[i] = row
		return
	}
	if r.at == nil {
		r.at = make(map[string]int, 128) // about as many as the default profile has
	}
	r.at[key] = len(r.list)
	r.list = append(r.list, row)
}

// remove takes a row out, and reports whether there was one.
func (r *rows[T]) remove(key string) bool {
	at, ok := r.at[key]
	if ok {
		r.list = slices.Delete(r.list, at, at+1)
		delete(r.at, key)
		for other, i := range r.at {
			if i > at {
				r.at[other] = i - 1
			}
		}
	}
	return ok
}

// newBuilder makes a builder for a policy of which no layer has said anything.
func newBuilder(p *Policy) *builder {
	p.Syscalls = "default"
	p.Environment.Set = map[string]EnvSet{}
	return &builder{policy: p}
}

// homes hides everybody's home: rules of profiles stand on top.
func (b *builder) homes() {
	for _, dir := range b.policy.Homes {
		b.file(FileRule{Path: dir, Access: Hide, Origin: Origin{Source: "default", Key: "homes"}})
	}
}

// file adds a rule, or replaces that for the same path.
func (b *builder) file(f FileRule) {
	key := f.key()
	// A later rule for the same path stands in place of an import's denyWrite.
	b.policy.Tighten = slices.DeleteFunc(b.policy.Tighten, func(t FileRule) bool { return t.key() == key })
	b.files.put(key, f)
}

// last adds a rule after all others, and removes one with the same pattern.
func (b *builder) last(r ProtectRule) {
	b.protect.remove(r.Pattern)
	b.protect.put(r.Pattern, r)
}

// apply merges a layer that may loosen. Its removals go first: a file that empties a list by -* can
// add to it in the same list.
func (b *builder) apply(l *layer) {
	for i := range l.entries {
		e := &l.entries[i]
		switch {
		case e.key == keyPass && e.op == opAdd:
			delete(b.policy.Environment.Set, e.text) // to pass a variable undoes what an earlier layer set it to
		case e.op == opRemove || e.op == opClear:
			b.remove(e)
		}
	}
	for i := range l.entries {
		if e := &l.entries[i]; e.op == opAdd || e.op == opSource {
			b.add(e)
		}
	}
	b.policy.Files = b.files.list // by which the next layer is judged
	b.policy.Tighten = append(b.policy.Tighten, l.atMost...)
	b.policy.Warnings = append(b.policy.Warnings, l.warnings...)
}

// add merges an entry that adds something.
func (b *builder) add(e *entry) {
	p := b.policy
	switch keys[e.key].kind {
	case holdsFiles:
		b.file(e.file())
	case holdsProtected:
		b.last(e.protect())
	case holdsSeeds:
		p.Seeds = append(without(p.Seeds, func(s Seed) bool { return s.Path == e.text }), *e.seed)
	case holdsVariables:
		p.Environment.Set[e.text] = EnvSet{Value: e.more, Origin: e.origin}
	case holdsTexts:
		b.texts[e.key].put(e.text, NetRule{e.text, e.origin})
	case holdsInjected:
		b.inject(e)
	case holdsLimit:
		*p.limit(e.key) = Limit{Value: e.number, Origin: e.origin}
	case holdsToggle:
		value, at := p.toggle(e.key)
		*value = e.number == 1
		if at != nil {
			*at = e.origin
		}
	case holdsWord:
		value, at := wordOf(p, e.key)
		*value, *at = e.text, e.origin
	}
}

// inject adds a variable that is injected, or where the value of one comes from.
func (b *builder) inject(e *entry) {
	n := &b.policy.Network
	same := func(in Injection) bool { return in.Env == e.inject.Env }
	if e.op == opAdd {
		n.Inject = unite(n.Inject, *e.inject, same)
	} else if i := slices.IndexFunc(n.Inject, same); i >= 0 {
		n.Inject[i].File, n.Inject[i].Command = e.inject.File, e.inject.Command
	} else {
		b.at(e.origin, "--inject "+e.inject.Env+"=HOST", "%s goes to no host", e.inject.Env)
	}
}

// remove removes what an entry names, or all that its key holds. To remove nothing is a mistake.
func (b *builder) remove(e *entry) {
	p := b.policy
	switch kind := keys[e.key].kind; {
	case kind == holdsFiles:
		if f := e.file(); !b.files.remove(f.key()) {
			b.at(e.origin, "", "null has no effect: no rule for that path is inherited")
		}
	case kind == holdsVariables:
		if _, ok := p.Environment.Set[e.text]; !ok {
			b.at(e.origin, "", "null has no effect: no value is inherited")
		}
		delete(p.Environment.Set, e.text)
	case kind == holdsSeeds:
		p.Seeds = without(p.Seeds, func(s Seed) bool { return s.Path == e.text })
	case kind == holdsInjected:
		p.Network.Inject = nil
	case kind == holdsProtected && e.op == opClear:
		for _, r := range slices.Clone(b.protect.list) {
			if r.List() == keys[e.key].name || r.Home && e.key == keyProtectDeny {
				b.protect.remove(r.Pattern)
			}
		}
	case e.op == opClear:
		b.texts[e.key] = rows[NetRule]{}
	case !b.has(e):
		b.at(e.origin, "pccrun profile show prints what is inherited", "-%s: no such entry is inherited", e.text)
	case kind == holdsProtected:
		b.protect.remove(e.text)
	default:
		b.texts[e.key].remove(e.text)
	}
}

// has reports whether a list has the entry. What protect.deny and protect.home hold is one list.
func (b *builder) has(e *entry) bool {
	if keys[e.key].kind == holdsProtected {
		i, ok := b.protect.at[e.text]
		return ok && b.protect.list[i].Review == (e.key == keyProtectReview)
	}
	_, ok := b.texts[e.key].at[e.text]
	return ok
}

// unite adds a rule to a list: one that is the same keeps its place and takes the later origin.
func unite[T any](list []T, rule T, same func(T) bool) []T {
	if i := slices.IndexFunc(list, same); i >= 0 {
		list[i] = rule
		return list
	}
	return append(list, rule)
}

// without returns a list less some of its rules.
func without[T any](list []T, out func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), out)
}

// as returns a list as rules of another type.
func as[T, R any](list []T, one func(T) R) []R {
	if len(list) == 0 {
		return nil
	}
	of := make([]R, len(list))
	for i, r := range list {
		of[i] = one(r)
	}
	return of
}

// planted reports whether a file that no flag names lies where the layers so far
// let the command write: an earlier run may have made it.
func (b *builder) planted(l *layer) bool {
	return l.unasked && max(b.policy.Decide(l.source).Access, b.policy.Decide(real(l.source)).Access) >= Overlay
}

// tighten merges a file that is not trusted: what makes the policy stricter
// counts, what would allow more is ignored, and named in a warning.
func (b *builder) tighten(l *layer) {
	p := b.policy
	if b.tight == nil {
		b.tight = map[string]bool{}
	}
	b.tight[l.source] = true
	var ignored []string
	if l.extends != "" || l.noExtends {
		ignored = append(ignored, l.extendsAt.short())
	}
	slices.SortStableFunc(l.entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	for i := range l.entries {
		e := &l.entries[i]
		if b.counts(e) {
			continue
		}
		said := e.origin.short()
		switch kind := keys[e.key].kind; {
		case e.op == opClear:
		case kind == holdsInjected:
			said += " " + quote(e.inject.Env)
		case kind == holdsTexts:
			said += " " + quote(e.text)
		}
		ignored = append(ignored, said)
	}
	p.Tighten = append(p.Tighten, l.atMost...)
	p.Warnings = append(p.Warnings, l.warnings...)
	if ignored != nil {
		hint := ""
		if l.source == filepath.Join(p.Workspace, WorkspaceFile) { // another is not the workspace's to trust
			hint = " (to allow: pccrun trust)"
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s is not trusted and cannot allow more: ignored %s%s", l.source, strings.Join(slices.Compact(ignored), ", "), hint))
	}
}

// counts applies an entry of a file that is not trusted as far as it makes the policy stricter, and
// reports whether nothing of it is ignored.
func (b *builder) counts(e *entry) bool {
	p, row := b.policy, &keys[e.key]
	switch {
	case row.untrusted == trustNothing:
		if row.kind != holdsWord {
			return false
		}
		value, _ := wordOf(p, e.key)
		return e.text == *value
	case e.op == opAdd:
	case row.untrusted == trustRemovals, row.untrusted == trustAdditions && e.op == opRemove && !b.has(e):
		b.remove(e)
		return true
	case row.untrusted == trustAdditions && e.op == opRemove:
		b.at(e.origin, "read the file and run pccrun trust, or remove the line", "-%s: would allow more, and the file is not trusted", e.text)
		return true
	default:
		return false
	}
	switch row.kind {
	case holdsFiles:
		looser := p.Decide(e.text).Access < Access(e.number) // which Tighten makes harmless
		p.Tighten = append(p.Tighten, e.file())
		return !looser
	case holdsProtected:
		r := e.protect()
		i, stands := b.protect.at[r.Pattern]
		if stands && r.List() > b.protect.list[i].List() { // deny, home, review: each allows more than the one before
			return false
		}
		b.protect.put(r.Pattern, r)
		return true
	case holdsTexts:
		if row.untrusted == trustRemovals {
			return b.has(e)
		}
	case holdsLimit:
		if have := p.limit(e.key).Value; e.number == 0 || have != 0 && e.number > have {
			return false
		}
	case holdsToggle:
		if value, _ := p.toggle(e.key); (e.number == 1) != row.strictOn {
			return *value == (e.number == 1)
		}
	}
	b.add(e)
	return true
}

// short is an origin in a sentence that names the file already.
func (o Origin) short() string { return fmt.Sprintf("line %d: %s", o.Line, o.Key) }

// fill puts what was merged into the policy.
func (b *builder) fill() {
	n, e := &b.policy.Network, &b.policy.Environment
	b.policy.Files, b.policy.Protect = b.files.list, b.protect.list
	n.Allow, n.Deny, n.Local, n.Publish = b.texts[keyAllow].list, b.texts[keyDeny].list, b.texts[keyLocal].list, b.texts[keyPublish].list
	n.Sockets = as(b.texts[keySockets].list, func(r NetRule) PathRule { return PathRule{Path: r.Text, Origin: r.Origin} })
	b.policy.Use = as(b.texts[keyUse].list, func(r NetRule) UseRule { return UseRule{r.Text, r.Origin} })
	e.Pass = as(b.texts[keyPass].list, func(r NetRule) EnvRule { return EnvRule{r.Text, r.Origin} })
	e.Scrub = as(b.texts[keyScrub].list, func(r NetRule) EnvRule { return EnvRule{r.Text, r.Origin} })
}

// finish checks what only the whole can be checked for, and derives the rest.
func (b *builder) finish(req Request, dirs state.Dirs) error {
	b.fill()
	p := b.policy
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
	if p.ProtectStrict || p.partOfHome(&req.Host) {
		p.Protect = denied(p.Protect)
	}
	b.home(req)
	repositories(p, &req.Host)
	b.network()
	b.use(&req.Host)
	p.warnOfSockets()
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
	b.known("--allow-missing", req.AllowMissing, GuaranteeNames())
	b.known("--without", req.Without, LayerNames())
	p.AllowMissing = as(req.AllowMissing, func(name string) Guarantee { return Guarantee(name) })
	p.Without = as(req.Without, func(name string) Layer { return Layer(name) })
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
		same := func(f FileRule) bool { return f.key() == path }
		p.Files = unite(p.Files, FileRule{Path: path, Access: Write, Origin: r.Origin}, same)
		p.Tighten = slices.DeleteFunc(p.Tighten, same)
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

// known checks the words of a flag against a closed list.
func (b *builder) known(flag string, given, words []string) {
	for _, word := range given {
		if err := known("name", word, words); err != nil {
			b.at(Origin{Source: "flag", Key: flag}, hintOf(err), "%v", err)
		}
	}
}

// known checks a word against a closed list.
func known(what, word string, words []string) error {
	if slices.Contains(words, word) {
		return nil
	}
	hint := "one of " + strings.Join(words, ", ")
	if near := Nearest(word, words); near != "" {
		hint = "did you mean " + near + "?"
	}
	return hinted{fmt.Errorf("unknown %s %q", what, word), hint}
}
