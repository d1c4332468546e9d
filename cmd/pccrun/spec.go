//go:build !launcher

package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/macos"
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

// specSeatbelt prints a policy as a profile for macOS: the text on standard output,
// the parameters on standard error. Of a home that is elsewhere the links are unknown.
func specSeatbelt(req *profiles.Request, home string) int {
	resolve := resolveLinks
	if req.Host = profiles.ThisHost(); home != "" {
		if err := named(req); err != nil {
			return failWith(err)
		}
		if req.Workspace == "" {
			req.Workspace = filepath.Join(home, "workspace")
		}
		req.Host, resolve = profiles.Host{Home: home, Elsewhere: true, Memory: 16 << 30, Cwd: req.Workspace}, nil
	}
	p, err := profiles.Resolve(*req)
	if err != nil {
		return failWith(err)
	}
	for _, w := range p.Warnings {
		say(w)
	}
	doc, err := macos.Example(p, resolve)
	if err != nil {
		return failWith(err)
	}
	if req.JSON {
		params := make(object, len(doc.Params))
		for i, param := range doc.Params {
			params[i] = field{param.Name, param.Value}
		}
		printJSON(object{{"text", doc.Text}, {"parameters", params}, {"profile", p.Profile}, {"home", p.Home},
			{"workspace", p.Workspace}})
		return 0
	}
	printf("%s", doc.Text)
	for _, param := range doc.Params {
		say("parameter: -D " + shell.Quote(param.Name+"="+param.Value))
	}
	return 0
}

// named makes the files that flags name absolute: they are this machine's.
func named(req *profiles.Request) (err error) {
	list := []*string{}
	if strings.Contains(req.Profile, "/") || strings.HasSuffix(req.Profile, ".json") || strings.HasSuffix(req.Profile,
		".jsonc") {
		list = append(list, &req.Profile)
	}
	for i := range req.Settings {
		list = append(list, &req.Settings[i])
	}
	for _, file := range list {
		if *file, err = filepath.Abs(*file); err != nil {
			return err
		}
	}
	return nil
}
