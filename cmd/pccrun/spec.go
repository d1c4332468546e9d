//go:build !launcher

package main

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// specOptions are the flags of the verb's own.
type specOptions struct {
	format, bundle, home string
	terminal             bool
}

// homeElsewhere lets --home name a directory too: the home of somebody on a Mac that is not here.
func homeElsewhere(defs []flagDef, at *string) []flagDef {
	i := slices.IndexFunc(defs, func(d flagDef) bool { return d.name == "--home" })
	word := defs[i]
	defs[i].to = func(v string) error {
		if !strings.Contains(v, "/") {
			return word.set(v)
		}
		*at = v
		return nil
	}
	return defs
}

// readSpec reads the command line, and refuses what does not go together.
func readSpec(args []string) (req *profiles.Request, o specOptions, err error) {
	req = &profiles.Request{}
	own := flags{"--format": &o.format, "--bundle": &o.bundle, "--terminal": &o.terminal, "--dry-run": &req.DryRun, "--json": &req.JSON}
	words, rest, _, err := parse(args, append(homeElsewhere(policyFlags(req), &o.home), own.defs()...))
	req.Command = rest
	mistake := func(text, hint string) error { return misuse("spec: "+text, hint) }
	switch {
	case err != nil && len(words) == 0:
		return nil, o, err
	case len(words) > 0 || len(rest) == 0 || rest[0] == "":
		return nil, o, mistake("no command", "pccrun spec [FLAGS] -- COMMAND")
	case len(req.Without) > 0:
		return nil, o, mistake("--without works only with pccrun run", "")
	case o.format != "" && o.format != "oci" && o.format != "seatbelt":
		return nil, o, mistake("format "+quote(o.format)+": want oci or seatbelt", "")
	case o.format == "seatbelt" && (o.bundle != "" || o.terminal || req.DryRun):
		return nil, o, mistake("--bundle, --terminal and --dry-run are about bundles: a profile for macOS is printed", "")
	case o.format != "seatbelt" && o.home != "":
		return nil, o, mistake("--home DIR works only with --format seatbelt", "")
	}
	return req, o, nil
}
