package profiles

import (
	"fmt"
	"strings"
	"time"
)

// The policy language is one table. Whatever reads an entry (of a file, a flag or another tool's
// settings) and whatever merges one (as it is, or only where it tightens) is a loop that asks the
// row of the entry's key what to do. A new key is a row of keys, one of [Flags] if it has a flag,
// a field of [Policy] with its line in [builder.fill] or [Policy.toggle], and its description in
// schema.json, which a test compares with the table.

// A keyID is the index of a row.
type keyID uint8

const (
	keyNone keyID = iota
	keySchema
	keyDescription
	keyExtends
	keyFilesystem
	keyProtect
	keyProtectDeny
	keyProtectHome
	keyProtectReview
	keySeeds
	keyNetwork
	keyAllow
	keyDeny
	keyLocal
	keyPublish
	keySockets
	keyInject
	keyEnvironment
	keyPass
	keySet
	keyScrub
	keyResources
	keyMemory
	keyCPUs
	keyPids
	keyFiles
	keyFileSize
	keyDisk
	keyTimeout
	keyUse
	keyPlace
	keyImage
	keySize
	keyRegion
	keyKeep
	keySyscalls
	keyNested
	keyStrict
	keyReport
	keyProtectStrict
	numKeys
)

// numLimits counts the keys of resources.
const numLimits = int(keyTimeout-keyMemory) + 1

// A keyKind says what the value of a key is, and so how a later layer merges with an earlier one.
type keyKind uint8

const (
	holdsKeys      keyKind = iota // an object of other keys
	holdsNote                     // a text for people and editors
	holdsBase                     // what the profile extends, which is resolved before layers are merged
	holdsFiles                    // access by path: a later rule replaces that of the same path, null removes it
	holdsSeeds                    // likewise what is copied into a home
	holdsVariables                // likewise values by name
	holdsTexts                    // a list: lists unite, -X removes X, null removes all
	holdsProtected                // likewise, but of the lists of protect a pattern stays in the last that names it
	holdsInjected                 // a list of objects: they unite by variable, null removes all
	holdsLimit                    // a number: the later counts, null is no limit
	holdsToggle                   // one of two: the later counts
	holdsWord                     // a text: the later counts
)

// A trusting says what counts of a key in a file that is not trusted, which may only tighten.
type trusting uint8

const (
	trustNothing   trusting = iota // whatever it says is ignored
	trustRemovals                  // what it removes counts, what it adds is ignored
	trustAdditions                 // what it adds counts, what it removes is ignored or, by name, a mistake
	trustStricter                  // what is stricter than before counts
)

// A key is one row of the table.
type key struct {
	in, name  string // the object that it stands in, "" for the profile; and its name there
	kind      keyKind
	untrusted trusting
	rivals    keyID // none, or the same for keys of which only one can have a text in one file

	// check reads one text of a list, or a word: it returns what the rule is then.
	check func(s *scope, k *key, text string) (string, error)

	// Of a limit: how it is read, what is too little to be meant (such as a number that lacks its
	// unit), how to write that, and what the limit requires.
	parse     func(string) (int64, error)
	least     int64
	want      string
	guarantee Guarantee

	// Of a toggle: whether it is stricter when it is on, and its two words.
	strictOn bool
	off, on  string
}

var keys = [numKeys]key{
	keySchema:      {name: "$schema", kind: holdsNote},
	keyDescription: {name: "description", kind: holdsNote},
	keyExtends:     {name: "extends", kind: holdsBase},
	keyFilesystem:  {name: "filesystem", kind: holdsFiles, untrusted: trustStricter, rivals: keyFilesystem},

	keyProtect:       {name: "protect", kind: holdsKeys},
	keyProtectDeny:   {in: "protect", name: "deny", kind: holdsProtected, untrusted: trustAdditions, rivals: keyProtect, check: checkProtect},
	keyProtectHome:   {in: "protect", name: "home", kind: holdsProtected, untrusted: trustAdditions, rivals: keyProtect, check: checkProtect},
	keyProtectReview: {in: "protect", name: "review", kind: holdsProtected, untrusted: trustAdditions, rivals: keyProtect, check: checkProtect},
	keyProtectStrict: {in: "protect", name: "strict", kind: holdsToggle, untrusted: trustStricter, strictOn: true, off: "false", on: "true"},

	keySeeds: {name: "seeds", kind: holdsSeeds},

	keyNetwork: {name: "network", kind: holdsKeys},
	keyAllow:   {in: "network", name: "allow", kind: holdsTexts, untrusted: trustRemovals, rivals: keyNetwork, check: checkNetwork},
	keyDeny:    {in: "network", name: "deny", kind: holdsTexts, untrusted: trustAdditions, rivals: keyNetwork, check: checkNetwork},
	keyLocal:   {in: "network", name: "local", kind: holdsTexts, untrusted: trustRemovals, check: checkNetwork},
	keyPublish: {in: "network", name: "publish", kind: holdsTexts, untrusted: trustRemovals, check: checkNetwork},
	keySockets: {in: "network", name: "sockets", kind: holdsTexts, untrusted: trustRemovals, check: checkSocket},
	keyInject:  {in: "network", name: "inject", kind: holdsInjected},

	keyEnvironment: {name: "environment", kind: holdsKeys},
	keyPass:        {in: "environment", name: "pass", kind: holdsTexts, untrusted: trustRemovals, check: checkPass},
	keySet:         {in: "environment", name: "set", kind: holdsVariables},
	keyScrub:       {in: "environment", kind: holdsTexts, untrusted: trustAdditions}, // of other tools' settings only

	keyResources: {name: "resources", kind: holdsKeys},
	keyMemory:    {in: "resources", name: "memory", kind: holdsLimit, untrusted: trustStricter, parse: ParseSize, least: 1 << 20, want: "1m", guarantee: ResMemory},
	keyCPUs:      {in: "resources", name: "cpus", kind: holdsLimit, untrusted: trustStricter, parse: parseCPUs, least: 10, want: "0.01", guarantee: ResCPU},
	keyPids:      {in: "resources", name: "pids", kind: holdsLimit, untrusted: trustStricter, parse: parseCount, least: 2, want: "2", guarantee: ResPids}, // pid 1 of the sandbox is one
	keyFiles:     {in: "resources", name: "files", kind: holdsLimit, untrusted: trustStricter, parse: parseCount, least: 16, want: "16", guarantee: ResFiles},
	keyFileSize:  {in: "resources", name: "filesize", kind: holdsLimit, untrusted: trustStricter, parse: ParseSize, least: 1, want: "1", guarantee: ResFiles},
	keyDisk:      {in: "resources", name: "disk", kind: holdsLimit, untrusted: trustStricter, parse: ParseSize, least: 1 << 20, want: "1m", guarantee: ResDisk},
	keyTimeout:   {in: "resources", name: "timeout", kind: holdsLimit, untrusted: trustStricter, parse: parseTimeout, least: int64(time.Millisecond), want: "1ms", guarantee: ResTime},

	keyUse: {name: "use", kind: holdsTexts, untrusted: trustRemovals, check: checkUse},

	keyPlace:  {name: "place", kind: holdsKeys},
	keyImage:  {in: "place", name: "image", kind: holdsWord, check: checkPlace},
	keySize:   {in: "place", name: "size", kind: holdsWord, check: checkPlace},
	keyRegion: {in: "place", name: "region", kind: holdsWord, check: checkPlace},
	keyKeep:   {in: "place", name: "keep", kind: holdsWord, check: checkPlace},

	keySyscalls: {name: "syscalls", kind: holdsWord, check: checkSyscalls},
	keyNested:   {name: "nested", kind: holdsToggle, untrusted: trustStricter, off: "false", on: "true"},
	keyStrict:   {name: "strict", kind: holdsToggle, untrusted: trustStricter, strictOn: true, off: "false", on: "true"},
	keyReport:   {name: "report", kind: holdsToggle, untrusted: trustStricter, strictOn: true, off: "none", on: "attempts"},
}

// keyNamed returns the key of a name in an object.
func keyNamed(in, name string) keyID {
	for k := keyNone + 1; k < numKeys; k++ {
		if keys[k].name == name && keys[k].in == in && name != "" {
			return k
		}
	}
	return keyNone
}

// keysIn returns the names of the keys in an object.
func keysIn(in string) (names []string) {
	for k := keyNone + 1; k < numKeys; k++ {
		if keys[k].in == in && keys[k].name != "" {
			names = append(names, keys[k].name)
		}
	}
	return names
}

// IsKey reports whether a profile has a key of that name.
func IsKey(name string) bool { return keyHome(name) != "" || len(keysIn(name)) > 0 }

// keyHome says which object has a key that another one does not know, "" if none has it.
func keyHome(name string) string {
	for _, in := range keysIn("") {
		if keyNamed(in, name) != keyNone {
			return in
		}
	}
	if keyNamed("", name) != keyNone {
		return "the profile itself, not in a part of it"
	}
	return ""
}

// toggle returns where a policy has a toggle, and what said it, nil where nobody asks.
func (p *Policy) toggle(k keyID) (value *bool, at *Origin) {
	switch k {
	case keyNested:
		return &p.Nested, &p.toggledAt.nested
	case keyStrict:
		return &p.Strict, &p.toggledAt.strict
	case keyReport:
		return &p.Attempts, nil
	}
	return &p.ProtectStrict, nil
}

// wordOf returns where a policy has a word, and what said it.
func wordOf(p *Policy, k keyID) (text *string, at *Origin) {
	if k == keySyscalls {
		return &p.Syscalls, &p.SyscallsAt
	}
	c := p.Place.Choice(keys[k].name)
	return &c.Text, &c.Origin
}

// limit returns where a policy has the limit of a key.
func (p *Policy) limit(k keyID) *Limit { return p.Resources.at(int(k - keyMemory)) }

// What follows checks one text of each key.

func checkProtect(s *scope, _ *key, text string) (string, error) { return s.protectPattern(text) }

func checkNetwork(_ *scope, k *key, text string) (string, error) { return text, checkNet(k.name, text) }

func checkSocket(s *scope, _ *key, text string) (string, error) { return s.path(text, s.dot) }

func checkUse(_ *scope, _ *key, name string) (string, error) {
	if why, refused := displays[name]; refused {
		return "", hinted{fmt.Errorf("%s: not given: %s", name, why), "run programs with windows outside the sandbox"}
	}
	return name, known("service", name, Services)
}

func checkPass(_ *scope, _ *key, text string) (string, error) {
	if isEnvName(strings.TrimSuffix(text, "*")) || text == "*" {
		return text, nil
	}
	hint := ""
	if name, value, sets := strings.Cut(text, "="); sets && isEnvName(name) {
		hint = `environment.set gives a value: "set": {` + quote(name) + ": " + quote(value) + "}"
	}
	return "", hinted{fmt.Errorf("%q: want a variable's name, or a prefix and *", text), hint}
}

// checkSyscalls expands the value of syscalls.
func checkSyscalls(s *scope, _ *key, text string) (string, error) {
	if text == "default" {
		return text, nil
	}
	if !s.bare && !strings.Contains(text, "/") {
		return "", hinted{fmt.Errorf("%q: want default, or the path of a seccomp profile", text), "./" + text + " is a path"}
	}
	return s.path(text, s.base)
}
