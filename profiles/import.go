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
	if err := add(r.importFile(r.home+parallelSettings, unasked, (*importer).parallel)); err != nil {
		return nil, err
	}
	if claude {
		if err := add(r.importFile(r.home+claudeSettings, unasked, (*importer).claude)); err != nil {
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
		if err := add(r.importFile(file, asked, (*importer).either)); err != nil {
			return nil, err
		}
	}
	return layers, nil
}

type askedFor bool

const (
	asked   askedFor = true
	unasked askedFor = false
)

// An importer translates one file of another tool.
type importer struct {
	decoder
	asked askedFor
	dot   string // what relative paths are relative to
}

// importFile reads a file of another tool; one that is not there and was not
// asked for is no layer.
func (r *resolver) importFile(file string, asked askedFor, read func(*importer, value)) (*layer, error) {
	origin := Origin{Source: file}
	if asked {
		origin = Origin{Source: "flag", Key: "--settings"}
	}
	if !bool(asked) && r.req.Host.Elsewhere {
		return nil, nil
	}
	text, err := readFile(file, followLinks)
	if !bool(asked) && err == nil && !r.asks(path.Dir(file), path.Dir(strings.TrimPrefix(file, r.home)), file) {
		return nil, nil
	}
	if !bool(asked) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir)) {
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
	im.layer.unasked = !bool(asked)
	read(im, v)
	return &im.layer, im.err()
}

func (r *resolver) newImporter(source string) *importer {
	s := r.scope
	s.bare = true
	return &importer{
		decoder: decoder{scope: &s, source: source, layer: layer{source: source}},
		dot:     s.workspace,
	}
}

// warn says that a key means nothing here.
func (im *importer) warn(o Origin, why string) {
	im.layer.warnings = append(im.layer.warnings, o.String()+": ignored: "+why)
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

// either tells srt's format from Claude Code's.
func (im *importer) either(v value) {
	for _, m := range v.members {
		if m.key == "sandbox" {
			im.claude(v)
			return
		}
	}
	im.srt(v, "", append(srtRequired, "ignoreViolations", "enableWeakerNestedSandbox", "allowNestedUserNamespaces", "enableWeakerNetworkIsolation",
		"allowAppleEvents", "ripgrep", "mandatoryDenySearchDepth", "allowPty", "seccomp", "bwrapPath", "socatPath", "javaAgentJarPath", "windows", "git"))
	for _, key := range srtRequired[:2] {
		if v.kind == kindObject && !slices.ContainsFunc(v.members, func(m member) bool { return m.key == key }) {
			im.at(im.origin(v.line, key), "want settings of srt, or of Claude Code with a sandbox key", "missing")
		}
	}
}

var srtRequired = []string{"network", "filesystem", "credentials"}

// claude reads the sandbox key of Claude Code's settings. Its own files know
// /x, ~/x and, relative to where they lie, x; older ones wrote //x for /x.
func (im *importer) claude(v value) {
	if dir := im.home + "/.claude"; within(dir, im.source) {
		im.dot = dir
	}
	if !im.is(v, "", kindObject) {
		return
	}
	for _, m := range v.members {
		if m.key == "sandbox" {
			im.srt(m.value, "sandbox", []string{"network", "filesystem", "enabled", "failIfUnavailable", "autoAllowBashIfSandboxed",
				"excludedCommands", "allowUnsandboxedCommands", "ignoreViolations", "enableWeakerNestedSandbox", "enableWeakerNetworkIsolation", "ripgrep", "enabledPlatforms"})
		}
	}
}

// parallel reads ~/.parallel-cc/sandbox.json, of which the native provider
// concerns the policy.
func (im *importer) parallel(v value) {
	im.fields(v, "", func(m member, key string) bool {
		if m.key != "providers" {
			return true
		}
		im.object(m.value, key, nil, func(m member) {
			if m.key != "native" {
				return
			}
			key := join(key, m.key)
			im.fields(m.value, key, func(m member, key string) bool {
				switch m.key {
				case "allowedDomains":
					im.list(m.value, key, im.allow)
				case "filesystem":
					im.filesystem(m.value, key)
				default:
					return false
				}
				return true
			})
		})
		return true
	})
}

// DefaultProvider returns the provider that ~/.parallel-cc/sandbox.json names, "" for none, and
// the file.
func DefaultProvider(host *Host) (name, file string, err error) {
	home, _, err := host.HomeDir()
	if err != nil {
		return "", "", nil // whatever reads the policy says so
	}
	file = home + parallelSettings
	text, err := ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	v, err := parseJSONC(file, string(text))
	if err != nil || v.kind != kindObject {
		return "", "", err
	}
	for _, m := range v.members {
		if m.key == "defaultProvider" && m.value.kind == kindString {
			name = m.value.text
		}
	}
	return name, file, nil
}

// importEnviron reads the variables. The user's shell set them, so they count
// also where they loosen, and then they are named.
func (r *resolver) importEnviron() (*layer, error) {
	if !slices.ContainsFunc(r.req.Host.Environ, func(e string) bool { return strings.HasPrefix(e, "PARALLEL_CC_") }) {
		return nil, nil
	}
	im := r.newImporter("environment")
	each := func(name string, entry func(text string, o Origin)) {
		text := r.req.Host.Getenv(name)
		o := Origin{Source: "environment", Key: name}
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				entry(item, o)
			}
		}
	}
	var loosened []string
	each("PARALLEL_CC_NATIVE_ALLOWED_DOMAINS", func(text string, o Origin) {
		im.allow(text, o)
		loosened = append(loosened, o.Key)
	})
	first := true
	each("PARALLEL_CC_NATIVE_ALLOW_WRITE_PATHS", func(text string, o Origin) {
		if first {
			im.readOnly(o)
			first = false
		}
		im.rule(text, Write, o)
		loosened = append(loosened, o.Key)
	})
	each("PARALLEL_CC_NATIVE_DENY_READ_PATHS", func(text string, o Origin) { im.rule(text, Hide, o) })
	each("PARALLEL_CC_SANDBOX_TIMEOUT", func(text string, o Origin) {
		n, err := parseCount(text)
		if err != nil || n == 0 {
			im.at(o, "", "%q: want a number of seconds", text)
			return
		}
		im.layer.limits[len(limits)-1] = limitEntry{Limit: Limit{Value: n * int64(time.Second), Origin: o}, given: true}
	})
	if r.docker() {
		each("PARALLEL_CC_DOCKER_MEMORY_LIMIT", func(text string, o Origin) { im.limit(slices.Index(resourceKeys, "memory"), text, o) })
		each("PARALLEL_CC_DOCKER_CPU_LIMIT", func(text string, o Origin) { im.limit(slices.Index(resourceKeys, "cpus"), text, o) })
	}
	for _, name := range slices.Compact(loosened) {
		im.layer.warnings = append(im.layer.warnings, name+" allows more than the profile: "+r.req.Host.Getenv(name))
	}
	return &im.layer, im.err()
}

// docker reports whether a container engine is asked for, whose limits the founding
// documents have names for.
func (r *resolver) docker() bool {
	return cmp.Or(r.req.Provider, r.req.Host.Getenv("PARALLEL_CC_SANDBOX_PROVIDER")) == "docker"
}

// srt reads the object that holds network, filesystem and the rest.
func (im *importer) srt(v value, key string, known []string) {
	im.fields(v, key, func(m member, key string) bool {
		if !slices.Contains(known, m.key) {
			return false
		}
		switch m.key {
		case "network":
			im.srtNetwork(m.value, key)
		case "filesystem":
			im.filesystem(m.value, key)
		case "credentials":
			im.credentials(m.value, key)
		case "allowNestedUserNamespaces":
			if im.is(m.value, key, kindBool) && m.value.text == "true" {
				im.layer.nested = &boolEntry{true, im.origin(m.line, key)}
			}
		case "excludedCommands":
			if len(m.value.items) > 0 {
				im.warn(im.origin(m.line, key), "pccrun runs nothing outside the sandbox")
			}
		case "seccomp", "git", "enableWeakerNestedSandbox", "enableWeakerNetworkIsolation", "allowAppleEvents":
			if m.value.text != "false" {
				im.warn(im.origin(m.line, key), "it has no meaning here")
			}
		}
		return true
	})
}

func (im *importer) srtNetwork(v value, key string) {
	im.fields(v, key, func(m member, key string) bool {
		o := im.origin(m.line, key)
		switch m.key {
		case "allowedDomains":
			im.list(m.value, key, im.allow)
		case "deniedDomains":
			im.list(m.value, key, im.deny)
		case "deniedResolvedAddresses":
			im.list(m.value, key, func(text string, o Origin) {
				if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is6() {
					text = fmt.Sprintf("[%s]/%d", p.Addr(), p.Bits())
				} else if a, err := netip.ParseAddr(text); err == nil && a.Is6() {
					text = "[" + text + "]"
				}
				im.deny(text, o)
			})
		case "mitmProxy", "parentProxy", "httpProxyPort", "socksProxyPort", "filterRequest":
			// Another proxy may be what keeps secrets in: to go round it would loosen.
			im.at(o, "remove the key, and name the hosts in network.allowedDomains", "another proxy is not supported")
		case "allowUnixSockets", "allowAllUnixSockets":
			if m.value.text != "false" && !(m.value.kind == kindArray && len(m.value.items) == 0) {
				im.warn(o, "name each socket with --socket PATH")
			}
		case "tlsTerminate", "stripResponseHeaders", "refuseOpaqueTunnels", "allowMachLookup":
			im.warn(o, "it has no meaning here")
		case "deniedDomainReasons", "strictAllowlist", "allowLocalBinding", "allowPlaintextHeaderSet", "requireHostMatch", "ambiguousRequestTarget", "allowManagedDomainsOnly":
			// Kept anyway, or never asked.
		default:
			return false
		}
		return true
	})
}

// allow adds an allowed domain. One that the grammar refuses is left out,
// which is stricter, and named.
func (im *importer) allow(text string, o Origin) {
	if err := checkNet("allow", text); err != nil {
		im.warn(o, err.Error())
		return
	}
	im.layer.allow = append(im.layer.allow, NetRule{Text: text, Origin: o})
}

func (im *importer) deny(text string, o Origin) { im.net("deny", text, o) }

// readOnly takes the workspace's write access back: there, only what is listed
// can be written.
func (im *importer) readOnly(o Origin) {
	im.layer.files = append(im.layer.files, fileEntry{FileRule: FileRule{Path: im.workspace, Access: Read, Origin: o}})
}

func (im *importer) filesystem(v value, key string) {
	im.fields(v, key, func(m member, key string) bool {
		o := im.origin(m.line, key)
		switch m.key {
		case "denyRead":
			im.paths(m.value, key, Hide)
		case "allowRead":
			im.paths(m.value, key, Read)
		case "allowWrite":
			// In Claude Code's settings the list adds to the workspace.
			if !strings.HasPrefix(key, "sandbox.") {
				im.readOnly(o)
			}
			im.paths(m.value, key, Write)
		case "denyWrite":
			im.eachPath(m.value, key, func(rule FileRule) {
				rule.Access = Read // as the strictest that it asks for: it opens nothing
				im.layer.tighten = append(im.layer.tighten, rule)
			})
		case "allowGitConfig":
			if im.is(m.value, key, kindBool) && m.value.text == "true" {
				im.layer.protect = append(im.layer.protect, ProtectRule{Pattern: ".git/config", Review: true, Origin: o})
			}
		case "disabled":
			if m.value.text != "false" {
				im.warn(o, "files stay protected")
			}
		case "allowManagedReadPathsOnly":
		default:
			return false
		}
		return true
	})
}

// eachPath reads a list of strings, or of objects with path and literal.
func (im *importer) eachPath(v value, key string, each func(FileRule)) {
	if !im.is(v, key, kindArray) || !im.few(v, key, len(v.items)) {
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

// foreignRule expands a path as the tools do whose settings these are.
func (im *importer) foreignRule(text string) (FileRule, error) {
	if strings.HasPrefix(text, "//") {
		text = text[1:]
	}
	return im.fileRule(text, im.dot)
}

func (im *importer) paths(v value, key string, access Access) {
	im.eachPath(v, key, func(rule FileRule) {
		rule.Access = access
		im.put(rule)
	})
}

func (im *importer) rule(text string, access Access, o Origin) {
	if rule, err := im.foreignRule(text); !im.bad(o, err) {
		rule.Access, rule.Origin = access, o
		im.put(rule)
	}
}

// put adds a rule. Where two lists name the same path, hide wins; otherwise
// the later stands, since read and write are both granted.
func (im *importer) put(rule FileRule) {
	for i := range im.layer.files {
		f := &im.layer.files[i].FileRule
		if f.key() != rule.key() {
			continue
		}
		if f.Access != Hide && (rule.Access == Hide || rule.Access > f.Access) {
			*f = rule
		}
		return
	}
	im.layer.files = append(im.layer.files, fileEntry{FileRule: rule})
}

// credentials reads srt's list of secrets: deny hides, mask puts the value
// into requests only.
func (im *importer) credentials(v value, key string) {
	im.fields(v, key, func(m member, key string) bool {
		switch m.key {
		case "files", "envVars":
			if im.is(m.value, key, kindArray) && im.few(m.value, key, len(m.value.items)) {
				for _, item := range m.value.items {
					im.credential(item, key, m.key == "files")
				}
			}
		case "allowPlaintextInject", "awsPairs", "sigv4":
			if m.value.text != "false" {
				im.warn(im.origin(m.line, key), "it has no meaning here")
			}
		default:
			return false
		}
		return true
	})
}

func (im *importer) credential(v value, key string, file bool) {
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
			im.list(m.value, key, func(text string, o Origin) { hosts = append(hosts, text) })
		case "extract", "onExtractNoMatch", "decode", "maskClaims", "maskDuplicates":
		default:
			return false
		}
		return true
	})
	switch {
	case mode != "deny" && mode != "mask":
		im.at(o, "", "mode %q: want deny or mask", mode)
	case file:
		if mode == "mask" {
			im.warn(o, "pccrun hides the file and does not mask it")
		}
		im.rule(name, Hide, o)
	case !isEnvName(name):
		im.at(o, "", "name %q: want the name of a variable", name)
	case mode == "deny" || len(hosts) == 0:
		im.layer.scrub = append(im.layer.scrub, EnvRule{Pattern: name, Origin: o})
	case slices.ContainsFunc(hosts, func(h string) bool { return checkNet("inject", h) != nil }):
		im.at(o, "", "injectHosts: want names of hosts")
	default:
		im.layer.inject = append(im.layer.inject, Injection{Env: name, Hosts: hosts, Origin: o})
	}
}
