package profiles

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// A Seed says what of a file of the user's is copied into a persistent home.
type Seed struct {
	Path     string // absolute, below the user's home: where it stands on the host, and inside
	Mode     SeedMode
	Keys     []string    // of a JSON or TOML file, what is copied, as names with dots between; none: the file as it is
	Drop     []string    // of these, what is not
	Server   []string    // keys that hold servers by name: one with a credential is left out unless Allow names it
	Allow    []string    // such servers
	Set      []SeedValue // keys with the value that they have inside
	Renew    string      // of a log-in: whose tokens it holds ([homes.Tokens]), where a renewed one may go back; "" for none that does
	Endpoint string      // and where those tokens are renewed
	Origin   Origin
}

// A SeedValue is a key that is set inside only. `{workspace}` in it is the workspace.
type SeedValue struct {
	Key   string
	Value any // a string, or a bool
}

// A SeedMode says when a file is copied.
type SeedMode uint8

// The modes. A profile says them by these words.
const (
	Once   SeedMode = iota // "once": when a home begins
	Follow                 // "follow": whenever the host's has changed
	Login                  // "login": likewise, also into a home that another run uses
)

var seedModes = [...]string{"once", "follow", "login"}

// String returns the word.
func (m SeedMode) String() string { return seedModes[m] }

var seedKeys = []string{"mode", "keys", "drop", "servers", "allow", "set", "renew", "endpoint"}

// renewers are the forms of log-ins that are known.
var renewers = []string{"claude", "codex", "opencode"}

// seed reads a member of seeds.
func (d *decoder) seed(m member) {
	key := join("seeds", m.key)
	e := &Seed{Origin: d.origin(m.line, key)}
	path, err := d.path(m.key, d.dot)
	switch rest, in := below(d.home, path); {
	case d.bad(e.Origin, err):
		return
	case !in || rest == "":
		d.at(e.Origin, "", "want a file below ~")
		return
	}
	e.Path = path
	if m.value.kind == kindNull {
		d.put(entry{key: keySeeds, op: opRemove, text: path, origin: e.Origin})
		return
	}
	patterns := func(v value, key string) (list []string) {
		d.texts(v, key, func(text string, o Origin) {
			if cause := checkKeys(text); cause != "" {
				d.at(o, "", "%s", cause)
			}
			list = append(list, text)
		})
		return list
	}
	moded := false
	d.object(m.value, key, seedKeys, func(m member) {
		key := join(key, m.key)
		switch m.key {
		case "mode":
			if d.is(m.value, key, kindString) {
				mode := slices.Index(seedModes[:], m.value.text)
				if mode < 0 {
					d.fail(m.line, key, "%q: want once, follow or login", m.value.text)
					return
				}
				e.Mode, moded = SeedMode(mode), true
			}
		case "keys":
			e.Keys = patterns(m.value, key)
		case "drop":
			e.Drop = patterns(m.value, key)
		case "servers":
			e.Server = patterns(m.value, key)
		case "allow":
			d.texts(m.value, key, func(text string, _ Origin) { e.Allow = append(e.Allow, text) })
		case "renew":
			if d.is(m.value, key, kindString) && !slices.Contains(renewers, m.value.text) {
				d.fail(m.line, key, "%q: want claude, codex or opencode", m.value.text)
			}
			e.Renew = m.value.text
		case "endpoint":
			if d.is(m.value, key, kindString) && !safeEndpoint(m.value.text) {
				d.fail(m.line, key, "%q: want an address that begins with https://, or http:// of this machine's loopback", m.value.text)
			}
			e.Endpoint = m.value.text
		case "set":
			d.object(m.value, key, nil, func(m member) {
				v := SeedValue{Key: m.key, Value: m.value.text}
				switch m.value.kind {
				case kindBool:
					v.Value = m.value.text == "true"
				case kindString:
				default:
					d.fail(m.line, join(key, m.key), "%s: want a string, true or false", kindNames[m.value.kind])
				}
				e.Set = append(e.Set, v)
			})
		}
	})
	if !moded && m.value.kind == kindObject {
		d.fail(m.line, key, "want a mode: once, follow or login")
	}
	if moded && (e.Renew == "") != (e.Endpoint == "") || e.Renew != "" && e.Mode != Login {
		d.fail(m.line, key, "renew and endpoint belong together, and to the mode login")
	}
	d.put(entry{key: keySeeds, text: path, seed: e, origin: e.Origin})
}

// safeEndpoint reports whether a token can be sent to an address: nobody on the way reads it.
func safeEndpoint(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Host == "" || u.Fragment != "" {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && err == nil && addr.IsLoopback()
}

// checkKeys returns what is wrong with a pattern of keys, "" for nothing.
func checkKeys(pattern string) string {
	for name := range strings.SplitSeq(pattern, ".") {
		if name == "" || strings.ContainsAny(name, `?[]\`) || strings.Count(name, "*") > 1 {
			return "want names with dots between, each with no more than one *"
		}
	}
	return ""
}
