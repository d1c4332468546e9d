package profiles

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// warnOfSecrets says which [SearchedPlaces] a rule of the user's shows: that may be meant, and is
// no less than to show the home.
func (b *builder) warnOfSecrets() {
	p := b.policy
	if d := p.Decide(p.Home); d.Access >= Read {
		p.Warnings = append(p.Warnings, fmt.Sprintf("your home %s is shown, with the secrets in it (%s)", p.Home, d.Rule.Origin))
		return
	}
	for _, name := range SearchedPlaces() {
		d := p.Decide(p.Home + "/" + name)
		if _, err := os.Lstat(p.Home + "/" + name); err == nil && d.Access >= Read && !strings.HasPrefix(d.Rule.Origin.Source, "built-in ") {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s/%s is shown, with the secrets in it (%s)", p.Home, name, d.Rule.Origin))
		}
	}
}

// secretWords are parts of the names of variables that hold secrets.
var secretWords = [...]string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "AUTH_SOCK"}

// Withheld returns the names of the host's variables that look like secrets
// and that the payload does not get, in order. A value that is put into requests
// on their way out counts as given.
func (p *Policy) Withheld(host []string) []string {
	var names []string
	for _, entry := range host {
		name, value, ok := strings.Cut(entry, "=")
		if ok && value != "" && isEnvName(name) && looksSecret(name) && p.DecideEnv(name).Action == EnvScrubbed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func looksSecret(name string) bool {
	name = strings.ToUpper(name)
	return strings.HasSuffix(name, "_KEY") || strings.HasSuffix(name, "_PAT") ||
		slices.ContainsFunc(secretWords[:], func(word string) bool { return strings.Contains(name, word) })
}
