//go:build unix

package survey

import (
	"bytes"
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What a policy allows is of no use without what belongs to it: a host without the
// authorities that certify it, ssh without the keys of hosts, an agent's socket without
// the variable that names it. None of this is a secret.

// needs adds it to a survey.
type needs struct{ *finder }

// networked reports whether a run reaches anything.
func (o *Options) networked(p *profiles.Policy) bool {
	return o.Network || len(p.Network.Allow)+len(p.Network.Local) > 0
}

// certificates passes the variables that name certificate authorities, and shows what
// they name; and so with what git's configuration names, which not every profile shows.
func (f needs) certificates(o *Options, found *workspace.Found) (env []Variable) {
	if before := len(f.notes); !o.networked(f.policy) { // at the loopback inside there may be a server, but who has none misses nothing
		defer func() { f.notes = f.notes[:before] }()
	}
	const why = "certificate authorities that your environment names"
	causes := map[string]string{} // of a path, which several variables name
	certificate := func(path string) string {
		cause, known := causes[path]
		if !known {
			cause = f.certificate(path, why)
			causes[path] = cause
		}
		return cause
	}
	for i, name := range slices.Concat(profiles.CertificateFiles[:], profiles.CertificateDirs[:]) {
		value, pass := o.Getenv(name), false
		switch d := f.policy.DecideEnv(name); {
		case d.Action == profiles.EnvSetTo:
			value = d.Value
		case d.Action == profiles.EnvScrubbed && free(f.policy, name):
			pass = true
		case d.Action != profiles.EnvPassed:
			continue
		}
		if value == "" {
			continue
		}
		paths := []string{value}
		if i >= len(profiles.CertificateFiles) {
			paths = filepath.SplitList(value)
		}
		for _, path := range paths {
			if cause := certificate(path); cause != "" {
				f.notes = append(f.notes, name+" names "+path+", "+cause+": it is not passed")
				pass = false
			}
		}
		if pass {
			env = append(env, Variable{name + "=" + value, why})
		}
	}
	for _, entry := range o.Environ {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case !free(f.policy, name):
		case profiles.CertificateSwitch(name, value):
			env = append(env, Variable{entry, "which certificate authorities are trusted"})
		case profiles.NamesCertificates(name, value) && holds(value, isCertificates) && certificate(value) == "":
			env = append(env, Variable{entry, why})
		}
	}
	for _, path := range found.Certificates {
		const why, name = "certificate authorities that your git configuration names", "GIT_SSL_CAINFO"
		if f.certificate(path, why) == "" && !f.git() && o.Getenv(name) == "" && free(f.policy, name) {
			env = append(env, Variable{name + "=" + path, why})
		}
	}
	return env
}

// userGit gives the command the user's configuration of git where nothing but the defaults hides it, and says what of it
// it does not get.
func (f needs) userGit(o *Options, found *workspace.Found) {
	g, outside := readUserGit(f.policy, o), found.Outside
	for i, t := range g.texts {
		from := g.from[i]
		if _, end, err := f.hops(from); err != nil || f.shown(t.Path) >= profiles.Read || !ByDefault(f.policy, t.Path) || !ByDefault(f.policy, from) && f.shown(from) < profiles.Read {
			continue
		} else if f.shown(end.Path) < profiles.Read && !f.lends(end.Path) || f.policy.Decide(t.Path).Access <= profiles.Hide {
			outside = append(outside, from)
			continue
		}
		f.put(Place{Path: t.Path, Node: File, Access: profiles.Read, Copied: true, Text: t.Content, Why: whyGit, Kept: g.keeps && t.Path == g.written()})
	}
	if _, known := f.seen[g.written()]; !known && g.keeps && ByDefault(f.policy, g.written()) {
		f.put(Place{Path: g.written(), Node: File, Access: profiles.Read, Copied: true, Why: whyGit, Kept: true})
	}
	for _, path := range outside {
		const why = "what your git configuration names"
		f.lend(path, why)
		if _, end, err := f.hops(path); err == nil && end.Node != Absent && f.shown(end.Path) < profiles.Read && ByDefault(f.policy, path) {
			f.notes = append(f.notes, path+" is hidden, and your git configuration names it: git does without it inside (to allow: --read "+shell.Quote(path)+")")
		}
	}
	for _, said := range g.unread {
		f.notes = append(f.notes, said+": it is not shown")
	}
	_, settings := f.repository(found)
	for i := range settings {
		g.sets(&settings[i])
	}
	f.signing = g.signing(f.policy, func(path string) bool { return f.shown(path) < profiles.Read })
}

// repository returns the git directory of the repository that the workspace is of, and what its configuration says.
func (f needs) repository(found *workspace.Found) (git string, settings []vcs.Setting) {
	for i := range found.Pins {
		dir, is := strings.CutSuffix(found.Pins[i].Path, "/config")
		if is && found.Pins[i].Private && (dir == f.policy.Workspace+"/.git" || slices.Contains(f.commons, dir)) {
			git = dir
			settings, _ = vcs.ParseConfig([]byte(found.Pins[i].Text))
		}
	}
	return git, settings
}

// unsigned says at the start that git cannot sign, where nobody would see that it looks for keys.
func (f needs) unsigned(o *Options, traced []string) {
	if f.signing.Flags != "" && (f.signing.Dir == "" || traced == nil && !f.policy.Attempts) && len(o.Command) > 0 && filepath.Base(o.Command[0]) == "git" {
		f.notes = append(f.notes, "your git configuration has commits signed, which fails inside without its agent (to allow: "+f.signing.Flags+")")
	}
}

// cargo gives the command what the user's configuration of cargo says of registries, where @cargo is allowed: no variable
// says what crates.io is replaced by (https://doc.rust-lang.org/cargo/reference/config.html#source).
func (f needs) cargo(o *Options) {
	at := f.policy.Home + "/.cargo/config.toml"
	if !slices.ContainsFunc(f.policy.Network.Allow, func(r profiles.NetRule) bool { return r.Text == "@cargo" }) || f.shown(at) >= profiles.Read || !ByDefault(f.policy, at) {
		return
	}
	dir := cmp.Or(o.Getenv("CARGO_HOME"), filepath.Dir(at))
	if Below(profiles.Physical(dir), f.policy.Workspace) {
		return
	}
	for _, name := range [...]string{"/config", "/config.toml"} { // the first wins
		if text, err := profiles.ReadFile(dir + name); err == nil {
			f.put(Place{Path: at, Node: File, Access: profiles.Read, Copied: true, Text: registries(string(text)), Why: "which registries your cargo goes to"})
			return
		}
	}
}

// registries returns the tables of a configuration of cargo that say where it fetches from, without lines that may have a
// secret.
func registries(text string) string {
	var b strings.Builder
	within := false
	for line := range strings.Lines(text) {
		if word := strings.TrimLeft(strings.TrimSpace(line), "["); word != strings.TrimSpace(line) {
			table := word[:max(strings.IndexAny(word, " .]"), 0)]
			within = table == "source" || table == "registries" || table == "registry"
		}
		if within && !gitconfig.Secret(line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// readable reports whether the command can read what a variable names, if it is there. A relative path begins where
// the command is.
func (f needs) readable(path string) bool {
	if !filepath.IsAbs(path) {
		return true
	}
	path = profiles.Physical(path)
	if i, ok := f.seen[path]; ok && f.places[i].Copied {
		return true
	}
	_, end, err := f.hops(path)
	return err == nil && f.shown(end.Path) >= profiles.Read
}

// certificate shows a file or directory of certificates wherever nothing but the defaults
// hides it, and says why not.
func (f needs) certificate(path, why string) (cause string) {
	if !filepath.IsAbs(path) {
		return "" // of the current directory, or no path at all
	}
	path = profiles.Physical(path)
	list, end, err := f.hops(path)
	if err != nil || end.Node == Absent {
		return "" // as it is outside
	}
	hidden := f.shown(end.Path) < profiles.Read
	switch {
	case !ByDefault(f.policy, path) && f.policy.Decide(path).Access < profiles.Read || hidden && !ByDefault(f.policy, end.Path):
		return "which a rule hides (" + f.policy.Decide(end.Path).Rule.Origin.String() + ")"
	case hidden && end.Node == Directory && !f.lends(end.Path):
		return "which is a directory with more than certificates"
	case hidden && end.Node != Directory && !holds(end.Path, isCertificates):
		return "which has more than certificates"
	}
	for i := range list {
		if no := f.refuses(&list[i], profiles.Read); hidden && no != "" {
			return "by the link " + list[i].at + ", " + no
		}
	}
	f.through(list, why)
	if hidden {
		end.Access, end.Why = profiles.Read, why
		f.put(end)
	}
	return ""
}

// isPublicKeys reports whether a text is one of OpenSSH's with public keys: one key, keys of
// hosts, or of who signs.
func isPublicKeys(text []byte) bool {
	keys := 0
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		if !slices.ContainsFunc(strings.Fields(string(line)), isKeyType) {
			return false
		}
		keys++
	}
	return keys > 0
}

func isKeyType(word string) bool {
	for _, prefix := range [...]string{"ssh-rsa", "ssh-ed25519", "ssh-dss", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-", "rsa-sha2-"} {
		if strings.HasPrefix(word, prefix) {
			return true
		}
	}
	return false
}

// isPublic reports whether a file below a directory with secrets holds certificates or public
// keys, and nothing else.
func isPublic(path string) bool {
	return holds(path, func(text []byte) bool { return isCertificates(text) || isPublicKeys(text) })
}

// ssh shows what a client needs where a host may be reached by ssh: the keys of hosts, and of
// the user's configuration which hosts there are. What else is in it are keys, programs and
// files, which stay outside.
func (f needs) ssh(agent bool) {
	dir := f.policy.Home + "/.ssh"
	config := sshConfig{home: f.policy.Home, agent: agent, left: maxSSHFiles}
	if text, err := profiles.ReadFile(dir + "/config"); err == nil {
		config.read(string(text), "", 0)
	}
	if !f.reachesSSH(append(config.ports, knownPorts(append(config.hosts, dir+"/known_hosts"))...)) && !agent {
		return
	}
	const why = "the host keys and settings that ssh reads"
	for _, name := range slices.Concat([]string{dir + "/known_hosts", dir + "/known_hosts2"}, config.hosts, config.keys) {
		if isPublic(name) {
			f.lend(name, why)
		}
	}
	at := dir + "/config"
	if d := f.policy.Decide(at); config.text.Len() > 0 && ByDefault(f.policy, at) && d.Access > profiles.Hide && d.Access < profiles.Read {
		f.put(Place{Path: at, Node: File, Access: profiles.Read, Copied: true, Text: config.text.String(), Why: why})
	}
}

// startsSSH reports whether a client of ssh runs: alone, or since a host may be reached.
func (o *Options) startsSSH(p *profiles.Policy) bool {
	return o.networked(p) || p.Uses("ssh-agent") || len(o.Command) > 0 && slices.Contains([]string{"ssh", "scp", "sftp", "rsync", "git"}, filepath.Base(o.Command[0]))
}

// sshSystem gives the command files of its own in place of those that /etc/ssh/ssh_config
// includes: to the command these are nobody's, and ssh ends where one is neither root's nor the user's.
func (f needs) sshSystem() {
	files, _ := filepath.Glob("/etc/ssh/ssh_config.d/*.conf")
	for _, name := range files {
		if text, err := profiles.ReadFile(name); err == nil && f.policy.Decide(name).Access == profiles.Read {
			f.sshTexts = append(f.sshTexts, Text{Path: name, Content: string(text)})
		}
	}
}

// knownPorts returns the ports of the servers whose keys files hold: `[HOST]:PORT` begins a line.
func knownPorts(files []string) (ports []uint16) {
	for _, name := range files {
		text, _ := profiles.ReadFile(name)
		for line := range strings.Lines(string(text)) {
			hosts, _, _ := strings.Cut(line, " ")
			for host := range strings.SplitSeq(hosts, ",") {
				_, port, _ := strings.Cut(host, "]:")
				if n, err := strconv.ParseUint(port, 10, 16); err == nil && host[0] == '[' {
					ports = append(ports, uint16(n))
				}
			}
		}
	}
	return ports
}

// reachesSSH reports whether the policy allows a port at which the user's servers of ssh are.
func (f needs) reachesSSH(ports []uint16) bool {
	reaches := func(text string, parse func(string) (rules.Rule, error)) bool {
		rule, err := parse(text)
		return err == nil && slices.ContainsFunc(append(ports, 22), rule.Covers)
	}
	return slices.ContainsFunc(f.policy.Network.Allow, func(r profiles.NetRule) bool { return reaches(r.Text, rules.Parse) }) ||
		slices.ContainsFunc(f.policy.Network.Local, func(r profiles.NetRule) bool { return reaches(r.Text, rules.ParseLocal) })
}

// trust gives gpg a trust database of its own: it stops where it can read one and not write.
func (f needs) trust() {
	for i := range f.places {
		if p := &f.places[i]; f.policy.Uses("gpg-agent") && filepath.Base(p.Path) == "trustdb.gpg" && p.Access == profiles.Read && p.Node == File {
			if text, err := profiles.ReadFile(p.Path); err == nil && f.shown(filepath.Dir(p.Path)) < profiles.Read {
				p.Copied, p.Text = true, string(text)
			}
		}
	}
}

// An sshConfig is what of a user's configuration of ssh is no secret.
type sshConfig struct {
	home  string
	agent bool
	left  int // how many files are still followed
	text  strings.Builder
	hosts []string // files with the keys of hosts
	keys  []string // public keys that it names
	ports []uint16
}

// sshKeys are the keywords of ssh_config(5) that say where a host is and how it is spoken to,
// in lower case. With an agent, also which of its keys is whose.
var sshKeys = [...]string{
	"host", "hostname", "port", "user", "hostkeyalias", "proxyjump", "ciphers", "macs", "kexalgorithms", "hostkeyalgorithms", "casignaturealgorithms",
	"pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes", "hostbasedacceptedalgorithms", "rekeylimit", "compression", "addressfamily", "connecttimeout",
	"userknownhostsfile", "globalknownhostsfile", "stricthostkeychecking", "checkhostip", "hashknownhosts",
	"canonicalizehostname", "canonicaldomains", "canonicalizefallbacklocal", "canonicalizemaxdots", "serveraliveinterval", "serveralivecountmax", "ignoreunknown",
}

// maxSSHInclude is how deep ssh follows Include, and maxSSHFiles how many are followed here.
const (
	maxSSHInclude = 16
	maxSSHFiles   = 64
)

// read keeps of a file what is on the list. Match is dropped, with what it is about; an included file stands in the place
// of its line. host is the Host of the line that includes it, "" for none.
func (c *sshConfig) read(text, host string, depth int) {
	current, dropped := host, false
	for line := range strings.Lines(text) {
		word, value := sshWords(line)
		switch {
		case word == "match":
			dropped = true
		case word == "host":
			// Within a file that a host's own lines include, ssh wants both to match.
			dropped, current = host != "" && host != "*", value
			if !dropped {
				c.text.WriteString("Host " + value + "\n")
			}
		case dropped:
		case word == "include":
			for _, pattern := range c.paths(strings.Fields(value)...) {
				files, _ := filepath.Glob(pattern)
				for _, name := range files {
					if text, err := profiles.ReadFile(name); err == nil && depth < maxSSHInclude && c.left > 0 {
						c.left--
						c.read(string(text), current, depth+1)
					}
				}
			}
			if depth == 0 || current != "" {
				c.text.WriteString("Host " + cmp.Or(current, "*") + "\n")
			}
		case slices.Contains(sshKeys[:], word), c.agent && (word == "identityfile" || word == "identitiesonly"):
			switch word {
			case "port":
				if n, err := strconv.ParseUint(value, 10, 16); err == nil {
					c.ports = append(c.ports, uint16(n))
				}
			case "userknownhostsfile":
				c.hosts = append(c.hosts, c.paths(strings.Fields(value)...)...)
			case "identityfile":
				for _, name := range c.paths(value) {
					c.keys = append(c.keys, strings.TrimSuffix(name, ".pub")+".pub")
				}
			}
			c.text.WriteString("  " + strings.TrimSpace(line) + "\n")
		}
	}
}

// sshWords returns the keyword of a line in lower case, and its value; nothing of a comment.
func sshWords(line string) (word, value string) {
	line = strings.TrimSpace(line)
	i := strings.IndexAny(line+" ", " \t=")
	if i == 0 || line[0] == '#' {
		return "", ""
	}
	value = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line[i:]), "="))
	return strings.ToLower(strings.Trim(line[:i], `"`)), value
}

// paths are where files of the user's configuration lie.
func (c *sshConfig) paths(names ...string) (paths []string) {
	for _, name := range names {
		name = strings.NewReplacer("%d", c.home, "${HOME}", c.home).Replace(strings.Trim(name, `"`))
		if rest, ok := strings.CutPrefix(name, "~/"); ok {
			name = c.home + "/" + rest
		} else if !filepath.IsAbs(name) {
			name = c.home + "/.ssh/" + name
		}
		paths = append(paths, name)
	}
	return paths
}
