package profiles

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"
)

// Files and variables that other tools have made are read as they are:
//
//   - settings of srt (sandbox-runtime), and the sandbox key of Claude Code's
//     settings, which is the same in large part: by --settings, and for the
//     profile claude ~/.claude/settings.json too;
//   - ~/.parallel-cc/sandbox.json and the variables PARALLEL_CC_*.
//
// Their defaults are open where ours are closed, so what they say of reading
// only ever adds: their "everything else is readable" opens no home. What
// they forbid holds. A key that is known and means nothing here is named; an
// unknown one is refused in a file that the command line names, and named in
// one that is read unasked, so that another tool's update stops no run.

// What is read unasked, below the home.
const (
	parallelSettings = "/.parallel-cc/sandbox.json"
	claudeSettings   = "/.claude/settings.json"
)

// importLayers returns what other tools' files and variables say.
func (r *resolver) importLayers(claude bool) ([]*layer, error) {
	var layers []*layer
	add := func(l *layer, err error) error {
		if l != nil && err == nil {
			layers = append(layers, l)
		}
		return err
	}
	if err := add(r.importFile(r.home+parallelSettings, false, (*importer).parallel)); err != nil {
		return nil, err
	}
	if claude {
		if err := add(r.importFile(r.home+claudeSettings, false, (*importer).ofClaude)); err != nil {
			return nil, err
		}
	}
	if err := add(r.importEnviron()); err != nil {
		return nil, err
	}
	for _, text := range r.req.Settings {
		file, err := r.argument(text, r.cwd)
		if err != nil {
			return nil, &Error{Origin: Origin{Source: "flag", Key: "--settings"}, Cause: err.Error()}
		}
		if err := add(r.importFile(file, true, (*importer).either)); err != nil {
			return nil, err
		}
	}
	return layers, nil
}

// An importer translates one file of another tool into entries, as those of a profile are.
type importer struct {
	decoder
	asked    bool   // the command line names the file
	claude   bool   // it is Claude Code's
	provider string // at which the command runs, "" if nobody said
}

// A foreignKey is one row of what such a file can hold: keys, and what is made of their values.
type foreignKey struct {
	in    string // the object that they stand in, by its last name
	names string // with blanks between
	as    meaning
	why   string // with some, what is said
}

// A meaning says what is made of a value.
type meaning uint8

const (
	asNothing        meaning = iota // nothing: it is so anyway, or nobody is asked
	asSection                       // an object with rows of its own
	saidUnless                      // said, unless it is false or empty
	said                            // said
	asMistake                       // a mistake
	asAllow                         // hosts to allow; one that the grammar refuses is left out, which is stricter
	asDeny                          // hosts to deny
	asHide                          // paths
	asRead                          // paths
	asWrite                         // paths; but for Claude Code's, nothing else in the workspace can be written
	asReadOnly                      // paths that can be read at most
	asNested                        // user namespaces
	asGitConfig                     // git's configuration may change
	asSecretFile                    // paths of secrets
	asSecretVariable                // variables with secrets
	asImage                         // of the place where the command runs
	asRegion                        // likewise
	asMemory                        // a limit
	asCPUs                          // likewise
	asSeconds                       // the time that a run has
)

const meaningless = "it has no meaning here"

var foreignKeys = [...]foreignKey{
	{"", "network filesystem credentials", asSection, ""},
	{"", "allowNestedUserNamespaces", asNested, ""},
	{"", "excludedCommands", saidUnless, "pccrun runs nothing outside the sandbox"},
	{"", "enableWeakerNestedSandbox enableWeakerNetworkIsolation allowAppleEvents seccomp git", saidUnless, meaningless},
	{"", "ignoreViolations ripgrep mandatoryDenySearchDepth allowPty bwrapPath socatPath javaAgentJarPath windows", asNothing, ""},
	{"", "enabled failIfUnavailable autoAllowBashIfSandboxed allowUnsandboxedCommands enabledPlatforms", asNothing, ""},

	{"native", "allowedDomains", asAllow, ""},
	{"native", "filesystem", asSection, ""},

	{"network", "allowedDomains", asAllow, ""},
	{"network", "deniedDomains deniedResolvedAddresses", asDeny, ""},
	// Another proxy may be what keeps secrets in: to go round it would loosen.
	{"network", "mitmProxy parentProxy httpProxyPort socksProxyPort filterRequest", asMistake, "another proxy is not supported"},
	{"network", "allowUnixSockets allowAllUnixSockets", saidUnless, "name each socket with --socket PATH"},
	{"network", "tlsTerminate stripResponseHeaders refuseOpaqueTunnels allowMachLookup", said, meaningless},
	{"network", "deniedDomainReasons strictAllowlist allowLocalBinding allowPlaintextHeaderSet requireHostMatch ambiguousRequestTarget allowManagedDomainsOnly", asNothing, ""},

	{"filesystem", "denyRead", asHide, ""},
	{"filesystem", "allowRead", asRead, ""},
	{"filesystem", "allowWrite", asWrite, ""},
	{"filesystem", "denyWrite", asReadOnly, ""},
	{"filesystem", "allowGitConfig", asGitConfig, ""},
	{"filesystem", "disabled", saidUnless, "files stay protected"},
	{"filesystem", "allowManagedReadPathsOnly", asNothing, ""},

	{"docker", "image", asImage, ""},
	{"docker", "memoryLimit", asMemory, ""},
	{"docker", "cpuLimit", asCPUs, ""},
	{"docker", "network", saidUnless, "--docker-network names one"},
	{"e2b", "template", asImage, ""},
	{"e2b", "defaultTimeout", asSeconds, ""},
	{"daytona", "target", asRegion, ""},
	{"daytona", "autoStopInterval autoArchiveInterval", said, "pccrun ends its sandboxes itself; --keep says for how long one stands"},
	{"cloudflare", "timeout", asSeconds, ""},

	{"credentials", "files", asSecretFile, ""},
	{"credentials", "envVars", asSecretVariable, ""},
	{"credentials", "allowPlaintextInject awsPairs sigv4", saidUnless, meaningless},
}

// importFile reads a file of another tool; one that is not there and was not
// asked for is no layer.
func (r *resolver) importFile(file string, asked bool, read func(*importer, value)) (*layer, error) {
	origin := Origin{Source: file}
	if asked {
		origin = Origin{Source: "flag", Key: "--settings"}
	}
	if !asked && r.req.Host.Elsewhere {
		return nil, nil
	}
	text, err := ReadFile(file)
	if !asked && err == nil && !r.asks(path.Dir(file), path.Dir(strings.TrimPrefix(file, r.home)), file) {
		return nil, nil
	}
	if !asked && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir)) {
		return nil, nil
	}
	if err != nil {
		return nil, &Error{Origin: origin, Cause: cause(err)}
	}
	v, err := parseJSONC(file, string(text))
	if err != nil {
		return nil, err
	}
	im := r.newImporter(file)
	im.asked = asked
	im.layer.unasked = !asked
	read(im, v)
	return &im.layer, im.err()
}

func (r *resolver) newImporter(source string) *importer {
	s := r.scope
	s.bare, s.dot = true, s.workspace
	return &importer{decoder: decoder{scope: &s, source: source, layer: layer{source: source}}, provider: cmp.Or(r.req.Provider, r.req.Host.Getenv("PARALLEL_CC_SANDBOX_PROVIDER"))}
}

// warn says that a key means nothing here.
func (im *importer) warn(o Origin, why string) {
	im.layer.warnings = append(im.layer.warnings, o.String()+": ignored: "+why)
}

// either tells srt's format from Claude Code's.
func (im *importer) either(v value) {
	if v.member("sandbox") != nil {
		im.ofClaude(v)
		return
	}
	im.section(v, "", "")
	for _, key := range [...]string{"network", "filesystem"} {
		if v.kind == kindObject && v.member(key) == nil {
			im.at(im.origin(v.line, key), "want settings of srt, or of Claude Code with a sandbox key", "missing")
		}
	}
}

// ofClaude reads the sandbox key of Claude Code's settings. Its own files know
// /x, ~/x and, relative to where they lie, x; older ones wrote //x for /x.
func (im *importer) ofClaude(v value) {
	im.claude = true
	if dir := im.home + "/.claude"; within(dir, im.source) {
		im.dot = dir
	}
	im.is(v, "", kindObject)
	for _, m := range v.members {
		if m.key == "sandbox" {
			im.section(m.value, "sandbox", "")
		}
	}
}

// parallel reads ~/.parallel-cc/sandbox.json, of which the native provider and the one that the command runs at concern the
// policy.
func (im *importer) parallel(v value) {
	im.object(v, "", nil, func(m member) {
		if m.key != "providers" || m.value.kind == kindNull {
			return
		}
		im.object(m.value, "providers", nil, func(m member) {
			if m.key == "native" || m.key == im.provider {
				im.section(m.value, "providers."+m.key, m.key)
			}
		})
	})
}

// fields calls each for the members of an object that are not null; a key for
// which it returns false is unknown.
func (im *importer) fields(v value, key string, each func(m member, key string) bool) {
	im.object(v, key, nil, func(m member) {
		key := join(key, m.key)
		if m.value.kind == kindNull || each(m, key) {
			return
		}
		if o := im.origin(m.line, key); im.asked {
			im.at(o, "", "unknown key")
		} else {
			im.warn(o, "unknown key")
		}
	})
}

// section reads an object by the rows that are in it.
func (im *importer) section(v value, key, in string) {
	im.fields(v, key, func(m member, key string) bool {
		for i := range foreignKeys {
			f := &foreignKeys[i]
			if f.in == in && slices.Contains(strings.Fields(f.names), m.key) {
				im.field(f, m, key)
				return true
			}
		}
		return false
	})
}

// field reads the value of a key as its row says.
func (im *importer) field(f *foreignKey, m member, key string) {
	v, o := m.value, im.origin(m.line, key)
	on := func() bool { return im.is(v, key, kindBool) && v.text == "true" }
	switch f.as {
	case asSection:
		im.section(v, key, m.key)
	case saidUnless:
		if v.text != "false" && v.text != "none" && !(v.kind == kindArray && len(v.items) == 0) {
			im.warn(o, f.why)
		}
	case said:
		im.warn(o, f.why)
	case asMistake:
		im.at(o, "remove the key, and name the hosts in network.allowedDomains", "%s", f.why)
	case asAllow:
		im.texts(v, key, im.allow)
	case asDeny:
		im.texts(v, key, func(text string, o Origin) { im.read(keyDeny, opAdd, bracketed(text), o) })
	case asHide:
		im.paths(v, key, Hide)
	case asRead:
		im.paths(v, key, Read)
	case asWrite:
		if !im.claude { // there the list adds to the workspace
			im.readOnly(o)
		}
		im.paths(v, key, Write)
	case asReadOnly:
		im.eachPath(v, key, func(rule FileRule) {
			rule.Access = Read // as the strictest that it asks for: it opens nothing
			im.layer.atMost = append(im.layer.atMost, rule)
		})
	case asNested:
		if im.claude { // which does not have it
			im.warn(o, meaningless)
		} else if on() {
			im.read(keyNested, opAdd, "true", o)
		}
	case asGitConfig:
		if on() {
			im.read(keyProtectReview, opAdd, ".git/config", o)
		}
	case asImage, asRegion, asMemory, asCPUs, asSeconds:
		switch k := (map[meaning]keyID{asImage: keyImage, asRegion: keyRegion, asMemory: keyMemory, asCPUs: keyCPUs})[f.as]; {
		case v.kind != kindString && v.kind != kindNumber:
			im.at(o, "", "%s: want a string or a number", kindNames[v.kind])
		case f.as == asSeconds:
			im.seconds(v.text, o)
		default:
			im.read(k, opAdd, v.text, o)
		}
	case asSecretFile, asSecretVariable:
		if im.holds(v, key, kindArray) {
			for _, item := range v.items {
				im.credential(item, key, f.as)
			}
		}
	}
}

// allow adds an allowed domain. One that the grammar refuses is left out,
// which is stricter, and named.
func (im *importer) allow(text string, o Origin) {
	if err := checkNet("allow", text); err != nil {
		im.warn(o, err.Error())
		return
	}
	im.read(keyAllow, opAdd, text, o)
}

// bracketed writes an address of IPv6 as the grammar has it.
func bracketed(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is6() {
		return fmt.Sprintf("[%s]/%d", p.Addr(), p.Bits())
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Is6() {
		return "[" + text + "]"
	}
	return text
}

// readOnly takes the workspace's write access back: there, only what is listed
// can be written.
func (im *importer) readOnly(o Origin) {
	im.put(entry{key: keyFilesystem, text: im.workspace, number: int64(Read), origin: o})
}

// paths reads a list of paths that get an access.
func (im *importer) paths(v value, key string, access Access) {
	im.eachPath(v, key, func(rule FileRule) {
		rule.Access = access
		im.grant(rule)
	})
}

// rule reads one path that gets an access.
func (im *importer) rule(text string, access Access, o Origin) {
	if rule, err := im.foreignRule(text); !im.bad(o, err) {
		rule.Access, rule.Origin = access, o
		im.grant(rule)
	}
}

// grant adds a rule. Where two lists name the same path, hide wins; otherwise
// the later stands, since read and write are both granted.
func (im *importer) grant(rule FileRule) {
	e := entry{key: keyFilesystem, text: rule.Path, more: rule.Glob, number: int64(rule.Access), origin: rule.Origin}
	for have := range im.layer.each(keyFilesystem) {
		if have.text != e.text || have.more != e.more {
			continue
		}
		if have.number != int64(Hide) && (rule.Access == Hide || e.number > have.number) {
			*have = e
		}
		return
	}
	im.put(e)
}

// foreignRule expands a path as the tools do whose settings these are.
func (im *importer) foreignRule(text string) (FileRule, error) {
	if strings.HasPrefix(text, "//") {
		text = text[1:]
	}
	return im.fileRule(text, im.dot)
}

// eachPath reads a list of strings, or of objects with path and literal.
func (im *importer) eachPath(v value, key string, each func(FileRule)) {
	if !im.holds(v, key, kindArray) {
		return
	}
	for _, item := range v.items {
		o := im.origin(item.line, key)
		text, literal := item, false
		if item.kind == kindObject {
			text = value{}
			im.fields(item, key, func(m member, key string) bool {
				switch m.key {
				case "path":
					text = m.value
				case "literal":
					literal = m.value.text == "true"
				default:
					return false
				}
				return true
			})
		}
		if !im.is(text, key, kindString) {
			continue
		}
		rule, err := im.foreignRule(text.text)
		if im.bad(o, err) {
			continue
		}
		if literal && rule.Glob != "" {
			rule = FileRule{Path: strings.TrimSuffix(rule.Path, "/") + "/" + rule.Glob}
		}
		rule.Origin = o
		each(rule)
	}
}

// credential reads one secret of srt's list: deny hides, mask puts the value
// into requests only.
func (im *importer) credential(v value, key string, as meaning) {
	o := im.origin(v.line, key)
	var name, mode string
	var hosts []string
	im.fields(v, key, func(m member, key string) bool {
		switch m.key {
		case "path", "name":
			name = m.value.text
		case "mode":
			mode = m.value.text
		case "injectHosts":
			im.texts(m.value, key, func(text string, _ Origin) { hosts = append(hosts, text) })
		case "extract", "onExtractNoMatch", "decode", "maskClaims", "maskDuplicates":
		default:
			return false
		}
		return true
	})
	switch {
	case mode != "deny" && mode != "mask":
		im.at(o, "", "mode %q: want deny or mask", mode)
	case as == asSecretFile:
		if mode == "mask" {
			im.warn(o, "pccrun hides the file and does not mask it")
		}
		im.rule(name, Hide, o)
	case !isEnvName(name):
		im.at(o, "", "name %q: want the name of a variable", name)
	case mode == "deny" || len(hosts) == 0:
		im.put(entry{key: keyScrub, text: name, origin: o})
	case slices.ContainsFunc(hosts, func(h string) bool { return checkNet("inject", h) != nil }):
		im.at(o, "", "injectHosts: want names of hosts")
	default:
		im.put(entry{key: keyInject, inject: &Injection{Env: name, Hosts: hosts, Origin: o}, origin: o})
	}
}

// DefaultProvider returns the provider that ~/.parallel-cc/sandbox.json names, "" for none, and
// the file.
func DefaultProvider(host *Host) (name, file string, err error) {
	home, _, err := host.HomeDir()
	if err != nil {
		return "", "", nil // whatever reads the policy says so
	}
	v, file, err := readParallel(home)
	if err != nil || v.kind != kindObject {
		return "", "", err
	}
	if named := v.member("defaultProvider"); named != nil && named.kind == kindString {
		name = named.text
	}
	return name, file, nil
}

// UploadIgnore returns what uploadIgnorePatterns in ~/.parallel-cc/sandbox.json keeps on this machine, as lines of an ignore
// file, "" for nothing, and the file.
func UploadIgnore(home string) (lines, file string, err error) {
	v, file, err := readParallel(home)
	if err != nil || v.kind != kindObject {
		return "", file, err
	}
	list := v.member("uploadIgnorePatterns")
	if list == nil || list.kind == kindNull {
		return "", file, nil
	}
	im := &decoder{source: file, layer: layer{source: file}}
	im.texts(*list, "uploadIgnorePatterns", func(text string, o Origin) {
		if strings.Trim(text, "/ \t\r") == "" || strings.ContainsAny(text, "\n\x00") {
			im.at(o, "", "pattern %q: gitignore has none like it", text)
		}
		lines += text + "\n"
	})
	return lines, file, im.err()
}

// readParallel reads ~/.parallel-cc/sandbox.json, which need not be there.
func readParallel(home string) (v value, file string, err error) {
	file = home + parallelSettings
	text, err := ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return value{}, file, nil
	}
	if err != nil {
		return value{}, file, err
	}
	v, err = parseJSONC(file, string(text))
	return v, file, err
}

// importEnviron reads the variables. The user's shell set them, so they count
// also where they loosen, and then they are named.
func (r *resolver) importEnviron() (*layer, error) {
	if !slices.ContainsFunc(r.req.Host.Environ, func(e string) bool { return strings.HasPrefix(e, "PARALLEL_CC_") }) {
		return nil, nil
	}
	im := r.newImporter("environment")
	rule := func(access Access) func(string, Origin) {
		return func(text string, o Origin) { im.rule(text, access, o) }
	}
	as := func(k keyID) func(string, Origin) {
		return func(text string, o Origin) { im.read(k, opAdd, text, o) }
	}
	for _, v := range [...]struct {
		name     string
		read     func(text string, o Origin)
		loosens  bool
		provider string // of which alone it is read
	}{
		{"PARALLEL_CC_NATIVE_ALLOWED_DOMAINS", im.allow, true, ""},
		{"PARALLEL_CC_NATIVE_ALLOW_WRITE_PATHS", rule(Write), true, ""},
		{"PARALLEL_CC_NATIVE_DENY_READ_PATHS", rule(Hide), false, ""},
		{"PARALLEL_CC_SANDBOX_TIMEOUT", im.seconds, false, ""},
		{"PARALLEL_CC_DOCKER_IMAGE", as(keyImage), false, "docker"},
		{"PARALLEL_CC_DOCKER_MEMORY_LIMIT", as(keyMemory), false, "docker"},
		{"PARALLEL_CC_DOCKER_CPU_LIMIT", as(keyCPUs), false, "docker"},
		{"PARALLEL_CC_E2B_TEMPLATE", as(keyImage), false, "e2b"},
		{"PARALLEL_CC_E2B_TIMEOUT", im.seconds, false, "e2b"},
		{"PARALLEL_CC_DAYTONA_TARGET", as(keyRegion), false, "daytona"},
		{"PARALLEL_CC_CF_SANDBOX_TIMEOUT", im.seconds, false, "cloudflare"},
	} {
		if v.provider != "" && v.provider != im.provider {
			continue
		}
		text, o := r.req.Host.Getenv(v.name), Origin{Source: "environment", Key: v.name}
		items := strings.FieldsFunc(text, func(c rune) bool { return c == ',' })
		items = slices.DeleteFunc(items, func(item string) bool { return strings.TrimSpace(item) == "" })
		if v.loosens && len(items) > 0 {
			im.layer.warnings = append(im.layer.warnings, v.name+" allows more than the profile: "+text)
		}
		if v.name == "PARALLEL_CC_NATIVE_ALLOW_WRITE_PATHS" && len(items) > 0 {
			im.readOnly(o)
		}
		for _, item := range items {
			v.read(strings.TrimSpace(item), o)
		}
	}
	return &im.layer, im.err()
}

// seconds reads a time limit.
func (im *importer) seconds(text string, o Origin) {
	n, err := parseCount(text)
	if err != nil || n == 0 {
		im.at(o, "", "%q: want a number of seconds", text)
		return
	}
	im.put(entry{key: keyTimeout, number: n * int64(time.Second), origin: o})
}
