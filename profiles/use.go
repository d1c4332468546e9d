package profiles

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
)

// A UseRule gives the command a service of the host, with all that belongs to it.
type UseRule struct {
	Name   string // of [Services]
	Origin Origin
}

// Services are what `use` can name.
var Services = []string{"ssh-agent", "gpg-agent", "docker", GitConfig, GitCredentials}

// GitConfig is the user's own configuration of git, without what may be secret in it.
const GitConfig = "git-config"

// GitCredentials is what the user's git signs in with at hosts that are allowed by https.
const GitCredentials = "git-credentials"

// displays are what it cannot: each is another user's whole desktop for whoever gets it.
var displays = map[string]string{
	"x11":     "every client of an X server can read and send the keystrokes of all others",
	"wayland": "its socket gives access to the clipboard, and with many compositors to the screen and keyboard",
}

// Uses reports whether a service is given.
func (p *Policy) Uses(name string) bool {
	return slices.ContainsFunc(p.Use, func(u UseRule) bool { return u.Name == name })
}

// use adds the rules that each service stands for.
func (b *builder) use(host *Host) {
	p := b.policy
	for _, u := range p.Use {
		var err error
		switch u.Name {
		case "ssh-agent":
			err = b.sshAgent(host, u.Origin)
		case "gpg-agent":
			err = b.gpgAgent(host, u.Origin)
		case "docker":
			err = b.docker(host, u.Origin)
		case GitCredentials: // which the way out asks for
			if len(p.Network.Allow) == 0 {
				err = hinted{errors.New("no rule allows a host, and a credential goes out to allowed hosts only"), "--allow HOST, as in the remote's address"}
			}
		}
		if err != nil {
			b.at(u.Origin, hintOf(err), "%s: %v", u.Name, err)
		}
	}
}

// socket adds a socket, at another path than its own if there is one.
func (b *builder) socket(name, at string, o Origin) {
	p := b.policy
	rule := PathRule{Path: Physical(name), At: at, Origin: o}
	p.Network.Sockets = unite(p.Network.Sockets, rule, func(r PathRule) bool { return r.Path == rule.Path && r.At == at })
}

// pass passes a variable of which no rule speaks.
func (b *builder) pass(name string, o Origin) {
	p := b.policy
	if p.DecideEnv(name).Action == EnvScrubbed {
		p.Environment.Pass = append(p.Environment.Pass, EnvRule{Pattern: name, Origin: o})
	}
}

func isSocket(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode()&os.ModeSocket != 0
}

// engines are the sockets of what starts containers, machines or programs for whoever
// asks, by the last name of the path, or the directory and it.
var engines = []string{
	"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "cri-dockerd.sock", "buildkitd.sock", "nerdctl.sock",
	"lxd/unix.socket", "incus/unix.socket", "libvirt/libvirt-sock", "snapd.socket",
	"system_bus_socket", "bus", "systemd/private",
}

// warnOfSockets names what a socket gives away that is as good as no sandbox: what
// listens there runs outside of it, and does there what it is asked.
func (p *Policy) warnOfSockets() {
	for _, s := range p.Network.Sockets {
		dir, name := path.Split(s.Path)
		if !slices.Contains(engines, name) && !slices.Contains(engines, path.Base(dir)+"/"+name) {
			continue
		}
		as := "root"
		if strings.HasPrefix(s.Path, "/run/user/") || strings.HasPrefix(s.Path, p.Home+"/") {
			as = "you"
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("the socket %s is shown: its server starts programs for the command, outside the sandbox and as %s (%s)", s.Path, as, s.Origin))
	}
}

func (b *builder) sshAgent(host *Host, o Origin) error {
	if host.UID == 0 {
		return hinted{errors.New("it answers only root and its own user, and a command run by root is neither"), "run pccrun as the user whose agent it is"}
	}
	name := host.Getenv("SSH_AUTH_SOCK")
	if at := identityAgent(b.policy.Home); at != "" && !strings.HasPrefix(name, "/") {
		b.socket(at, "", o)
		if p := b.policy; p.DecideEnv("SSH_AUTH_SOCK").Action == EnvScrubbed {
			p.Environment.Set["SSH_AUTH_SOCK"] = EnvSet{Value: at, Origin: o}
		}
		return nil
	}
	if !strings.HasPrefix(name, "/") {
		return hinted{errors.New("SSH_AUTH_SOCK names no socket: no agent runs here"), `eval "$(ssh-agent)" starts one, ssh-add gives it keys`}
	}
	if !isSocket(name) {
		return hinted{fmt.Errorf("nothing listens at %s, which SSH_AUTH_SOCK names", name), `eval "$(ssh-agent)" starts an agent, ssh-add gives it keys`}
	}
	b.socket(name, "", o)
	b.pass("SSH_AUTH_SOCK", o)
	return nil
}

// identityAgent is the socket that the user's configuration of ssh names for an agent, as that of a password manager; ""
// for none.
func identityAgent(home string) string {
	text, err := ReadFile(home + "/.ssh/config")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		word, value, _ := strings.Cut(strings.Replace(strings.TrimSpace(line), "=", " ", 1), " ")
		value = strings.Trim(strings.TrimSpace(value), `"`)
		if rest, ok := strings.CutPrefix(value, "~/"); ok {
			value = home + "/" + rest
		}
		if strings.EqualFold(word, "IdentityAgent") && strings.HasPrefix(value, "/") && isSocket(value) {
			return value
		}
	}
	return ""
}

// public are the files of GnuPG's home that hold no secrets.
var public = [...]string{"pubring.kbx", "pubring.gpg", "gpg.conf", "common.conf", "trustdb.gpg"}

func (b *builder) gpgAgent(host *Host, o Origin) error {
	home := b.policy.Home + "/.gnupg"
	usual := home
	if dir := host.Getenv("GNUPGHOME"); strings.HasPrefix(dir, "/") {
		home = real(dir)
		b.pass("GNUPGHOME", o)
	}
	// _gnupg_socketdir_internal of GnuPG's common/homedir.c: by the user in /run, else in its home.
	dirs := []string{fmt.Sprintf("/run/user/%d/gnupg", host.UID), home}
	if home != usual {
		sum := sha1.Sum([]byte(home))
		dirs[0] += "/d." + zbase32(sum[:15])
	}
	var found, dir string
	// Of the two that an agent listens at, .extra lets no key be taken out.
	for _, dir = range dirs {
		for _, name := range [...]string{"/S.gpg-agent.extra", "/S.gpg-agent"} {
			if found == "" && isSocket(dir+name) {
				found = dir + name
			}
		}
		if found != "" {
			break
		}
	}
	if found == "" {
		return hinted{fmt.Errorf("no agent listens in %s", strings.Join(dirs, " or ")), "gpgconf --launch gpg-agent starts one"}
	}
	for _, at := range dirs {
		b.socket(found, at+"/S.gpg-agent", o)
	}
	for _, name := range public {
		file := home + "/" + name
		named := slices.ContainsFunc(b.policy.Files, func(r FileRule) bool { return r.Path == file })
		if _, err := os.Stat(file); err == nil && !named {
			b.policy.Files = append(b.policy.Files, FileRule{Path: file, Access: Read, Origin: o})
		}
	}
	return nil
}

// zbase32 spells 15 bytes in 24 letters, five bits each.
func zbase32(b []byte) string {
	const letters = "ybndrfg8ejkmcpqxot1uwisza345h769"
	var text []byte
	for i := 0; i < len(b)*8; i += 5 {
		pair := uint16(b[i/8]) << 8
		if i/8+1 < len(b) {
			pair |= uint16(b[i/8+1])
		}
		text = append(text, letters[pair>>(11-i%8)&31])
	}
	return string(text)
}

func (b *builder) docker(host *Host, o Origin) error {
	names := []string{"/var/run/docker.sock", path.Join(host.Getenv("XDG_RUNTIME_DIR"), "docker.sock")}
	if at := host.Getenv("DOCKER_HOST"); at != "" {
		name, unix := strings.CutPrefix(at, "unix://")
		if !unix {
			rule := "--allow HOST:PORT"
			if u, err := url.Parse(at); err == nil && u.Port() != "" {
				rule = "--allow " + u.Host
				if ip, _ := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || ip.IsLoopback() {
					rule = "--local localhost:" + u.Port()
				}
			}
			return hinted{fmt.Errorf("DOCKER_HOST is %s, which is no socket", at), rule + " --env DOCKER_HOST reaches it"}
		}
		names = []string{name}
		b.pass("DOCKER_HOST", o)
	}
	for _, name := range names {
		if isSocket(name) {
			b.socket(name, "", o)
			return nil
		}
	}
	return hinted{fmt.Errorf("nothing listens at %s", strings.Join(names, " or ")), "start Docker, or set DOCKER_HOST"}
}
