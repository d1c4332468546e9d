package survey

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// free reports whether no rule says anything of a variable.
func free(p *profiles.Policy, name string) bool {
	return p.DecideEnv(name).Action == profiles.EnvScrubbed &&
		!slices.ContainsFunc(p.Environment.Scrub, func(r profiles.EnvRule) bool { return r.Matches(name) })
}

// placed passes the variables that say where programs are and what they load, where the command can read all that
// they name.
func (o *Options) placed(p *profiles.Policy, readable func(path string) bool) (env []Variable) {
	for _, name := range PlaceVariables() {
		value := o.Getenv(name)
		if value == "" || !free(p, name) {
			continue
		}
		if !slices.ContainsFunc(filepath.SplitList(value), func(path string) bool { return !readable(path) }) {
			env = append(env, Variable{name + "=" + value, "all that it names can be read"})
		}
	}
	return env
}

// namedSockets passes the variables that name a socket which is shown: SSH_AUTH_SOCK is one,
// DOCKER_HOST another.
func (o *Options) namedSockets(p *profiles.Policy) (env []Variable) {
	for _, entry := range o.Environ {
		name, value, _ := strings.Cut(entry, "=")
		path := strings.TrimPrefix(value, "unix://")
		if !filepath.IsAbs(path) || !free(p, name) {
			continue
		}
		for _, s := range p.Network.Sockets {
			if s.At == "" && sameFile(path, s.Path) {
				env = append(env, Variable{entry, "it names a socket that is shown (" + s.Origin.String() + ")"})
				break
			}
		}
	}
	return env
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, e := os.Stat(b)
	return err == nil && e == nil && os.SameFile(x, y)
}

// holds reports whether a file is one of no more than a megabyte or so, and its content is
// what is says.
func holds(path string, is func(text []byte) bool) bool {
	text, err := profiles.ReadFile(path)
	return err == nil && is(text)
}

// isCertificates reports whether a text has certificates in it, and no key.
func isCertificates(text []byte) bool {
	return bytes.Contains(text, []byte("CERTIFICATE-----")) && !bytes.Contains(text, []byte("PRIVATE KEY"))
}
