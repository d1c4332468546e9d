//go:build !launcher

package main

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

const specUsage = `usage: pccrun spec [--bundle DIR] [--terminal] [--dry-run] [--json] [FLAGS] -- COMMAND [ARG…]
       pccrun spec --format seatbelt [--home DIR] [--json] [FLAGS] -- COMMAND [ARG…]

Writes an OCI runtime bundle that does what pccrun run would do with these flags:
config.json, an empty rootfs, and files that replace hidden ones. Or prints the
same policy as a profile for macOS's sandbox-exec, on any system.

  --format NAME  oci or seatbelt (default: oci)
  --bundle DIR   the directory to write, created if needed (default: the current
                 one)
  --terminal     give the command a terminal
  --home DIR     seatbelt: the home of a user on a Mac; --workspace is then a
                 directory there (default: DIR/workspace). Both need not exist
                 here, and only the files of --profile and --settings are read
  --dry-run      print the plan, and write nothing
  --json         print the result, or the plan, as JSON

What the format cannot express is left out, and named on stderr and in an
annotation of the file (org.pccrun.loss.NAME). The bundle lists the files of this
host as they are now, and the runtime finds them by name. It contains the values
of the command's environment. Run it as the user who wrote it: as root the
command gets an identity that is not root.

In a profile for macOS the paths are parameters, which stderr lists as arguments
of sandbox-exec; its directories and ports are examples. docs/macos.md says what
was tested.

example: pccrun spec --bundle /tmp/b -- make test && runc run --bundle /tmp/b NAME
         pccrun spec --format seatbelt --home /Users/me --workspace /Users/me/src -- claude
`

// specOptions are the flags of the verb's own.
type specOptions struct {
	format, bundle, home string
	terminal             bool
}

func (o *specOptions) flags() []flagDef {
	text := func(at *string) func(*profiles.Request, string) error {
		return func(_ *profiles.Request, v string) error { *at = v; return nil }
	}
	return append(homeElsewhere(policyFlags(), &o.home),
		flagDef{"--format", takesValue, "oci|seatbelt", "", text(&o.format)},
		flagDef{"--bundle", takesValue, "DIR", "", text(&o.bundle)},
		flagDef{"--terminal", alone, "", "", func(*profiles.Request, string) error { o.terminal = true; return nil }},
		flagDef{"--dry-run", alone, "", "", on(func(r *profiles.Request) *bool { return &r.DryRun })},
		flagDef{"--json", alone, "", "", on(func(r *profiles.Request) *bool { return &r.JSON })},
	)
}

// homeElsewhere lets --home name a directory too: the home of somebody on a Mac that is not here.
func homeElsewhere(defs []flagDef, at *string) []flagDef {
	i := slices.IndexFunc(defs, func(d flagDef) bool { return d.name == "--home" })
	word := defs[i].set
	defs[i].set = func(r *profiles.Request, v string) error {
		if !strings.Contains(v, "/") {
			return word(r, v)
		}
		*at = v
		return nil
	}
	return defs
}

// readSpec reads the command line, and refuses what does not go together.
func readSpec(args []string) (req *profiles.Request, o specOptions, err error) {
	req = &profiles.Request{}
	rest, dashes, err := parseFlags(o.flags(), req, args)
	req.Command = rest
	mistake := func(text, hint string) error { return misuse("spec: "+text, hint) }
	switch {
	case err != nil:
		return nil, o, err
	case !dashes || len(rest) == 0 || rest[0] == "":
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
