package profiles

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
)

//go:embed schema.json
var schema string

// Schema returns the JSON Schema of profile files.
func Schema() string { return schema }

// A Listed is one profile that can be named.
type Listed struct {
	Name        string
	Source      string // "built-in", or the path
	Description string
	Err         error // it does not load
	InPlace     bool  // it is the user's, and stands in place of a built-in one of its name
}

// List returns the built-in profiles and the user's own; one of the user's
// stands in place of the built-in one of its name.
func List(req Request) ([]Listed, error) {
	r := &resolver{req: &req, policy: &Policy{}}
	if err := r.findHome(); err != nil {
		return nil, err
	}
	r.workspace = "" // names do not depend on it; paths in the files are not looked at
	r.memory = req.Host.Memory
	r.findConfig()
	var list []Listed
	add := func(name, source, file string) {
		l, err := r.load(name, "", Origin{}, "")
		row := Listed{Name: name, Source: source, Err: err}
		if file != "" {
			row.Source, row.InPlace = file, source != ""
		}
		if err == nil {
			row.Description = l.description
		}
		list = append(list, row)
	}
	own := map[string]string{}
	if r.configDir != "" {
		dir := r.configDir + "/profiles"
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, &Error{Cause: cause(err)}
		}
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), ".jsonc"); ok && isProfileName(name) {
				own[name] = dir + "/" + e.Name()
			}
		}
	}
	for _, name := range Builtin() {
		add(name, "built-in", own[name])
		delete(own, name)
	}
	var names []string
	for name := range own {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		add(name, "", own[name])
	}
	return list, nil
}

// DefaultProtect returns the rules of the built-in default profile for names that a host tool would
// execute: what holds where there is no run whose policy could be asked.
func DefaultProtect() (list []ProtectRule) {
	v, err := parseBuiltin("default")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for _, section := range v.members {
		if section.key != "protect" {
			continue
		}
		for _, kind := range section.value.members {
			for _, item := range kind.value.items {
				list = append(list, ProtectRule{Pattern: item.text, Review: kind.key == "review", Home: kind.key == "home", Origin: Origin{Source: "default"}})
			}
		}
	}
	return list
}
