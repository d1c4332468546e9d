package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
)

// A flagKind says what stands after a flag.
type flagKind uint8

const (
	takesValue flagKind = iota
	alone
)

// A flagDef is one flag of `pccrun run`.
type flagDef struct {
	name string // with its dashes
	kind flagKind
	arg  string // how usage names the value
	line string // what it does
	set  func(r *profiles.Request, value string) error
}

// by returns the setter of a field, as of [profiles.Flag].
func by(field func(*profiles.Request) any) func(*profiles.Request, string) error {
	return (&profiles.Flag{Field: field}).Set
}

func on(field func(*profiles.Request) *bool) func(*profiles.Request, string) error {
	return func(r *profiles.Request, _ string) error {
		*field(r) = true
		return nil
	}
}

// policyFlags are the flags that say what the policy is; `why` and `profile
// show` take them too.
func policyFlags() []flagDef {
	defs := make([]flagDef, len(profiles.Flags), len(profiles.Flags)+16)
	for i := range profiles.Flags {
		f := &profiles.Flags[i]
		defs[i] = flagDef{f.Name, takesValue, f.Arg, f.Help, f.Set}
		if f.Arg == "" {
			defs[i].kind = alone
		}
	}
	return defs
}

// runFlags are all flags of `pccrun run`.
func runFlags() []flagDef {
	return append(policyFlags(),
		flagDef{"--ask", alone, "", "ask at the terminal before a host is denied", on(func(r *profiles.Request) *bool { return &r.Ask })},
		flagDef{"--provider", takesValue, "NAME", "where to run: native, auto, …", provider},
		flagDef{"--runtime", takesValue, "NAME", "with --provider docker: runc, or runsc for gVisor", by(func(r *profiles.Request) any { return &r.Runtime })},
		flagDef{"--docker-image", takesValue, "NAME", "with --provider docker: use the programs of this image", by(func(r *profiles.Request) any { return &r.DockerImage })},
		flagDef{"--docker-network", takesValue, "none|bridge|host", "with --provider docker: a network without rules (default none)", by(func(r *profiles.Request) any { return &r.DockerNetwork })},
		flagDef{"--keep", takesValue, "DURATION", "keep the cloud's sandbox for the next run with --keep here", keep},
		flagDef{"--history", takesValue, "N", "copy the last N commits to the cloud, without secrets", history},
		flagDef{"--from", takesValue, "SNAPSHOT", "start from the changes of a snapshot, in overlays", by(func(r *profiles.Request) any { return &r.From })},
		flagDef{"--pass-fd", takesValue, "N", "pass this file descriptor", passFD},
		flagDef{"--dry-run", alone, "", "print the plan, with -v in full, and do nothing", on(func(r *profiles.Request) *bool { return &r.DryRun })},
		flagDef{"--json", alone, "", "with --dry-run: print the plan as JSON", on(func(r *profiles.Request) *bool { return &r.JSON })},
		flagDef{"--events", takesValue, "FILE|fd:N", "write events as JSON lines", by(func(r *profiles.Request) any { return &r.Events })},
		flagDef{"--log", alone, "", "save the output in the session", on(func(r *profiles.Request) *bool { return &r.Log })},
		flagDef{"-v", alone, "", "print more", on(func(r *profiles.Request) *bool { return &r.Verbose })},
		flagDef{"-q", alone, "", "print errors only", on(func(r *profiles.Request) *bool { return &r.Quiet })},
	)
}

// provider sets --provider. That one is not built is said when it is to be used.
func provider(r *profiles.Request, v string) error {
	var unusable *providers.UnusableError
	if _, err := providers.KindOf(v); v != providers.Auto && errors.As(err, &unusable) {
		return misuse(quote(v)+": "+unusable.Cause, unusable.Hint())
	}
	return by(func(r *profiles.Request) any { return &r.Provider })(r, v)
}

// keep sets --keep: clouds count in minutes, and sell no more than a day.
func keep(r *profiles.Request, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d < time.Minute || d > 24*time.Hour || d%time.Minute != 0 {
		return errors.New(quote(v) + ": want minutes, from 1m to 24h")
	}
	if r.Keep != 0 && r.Keep != d {
		return errors.New("given twice, as " + r.Keep.String() + " and " + v)
	}
	r.Keep = d
	return nil
}

// history sets --history.
func history(r *profiles.Request, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 10_000 {
		return errors.New(quote(v) + ": want a number of commits, from 1 to 10000")
	}
	r.History = n
	return nil
}

func passFD(r *profiles.Request, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 3 || n > 1<<20 {
		return errors.New(quote(v) + ": want a descriptor from 3 on")
	}
	if !slices.Contains(r.PassFDs, n) {
		r.PassFDs = append(r.PassFDs, n)
	}
	return nil
}

// misuse is a mistake in the command line, with its hint.
func misuse(text, hint string) *messages.UsageError {
	return &messages.UsageError{Text: text, Hint: hint}
}

// parseFlags reads flags up to -- or to the first argument that is none, and
// returns the rest: the command if dashes was seen.
func parseFlags(defs []flagDef, req *profiles.Request, args []string) (rest []string, dashes bool, err error) {
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" {
			return args[1:], true, nil
		}
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			return args, false, nil
		}
		if args, err = readFlag(args, func(name string) (*flagDef, string) {
			if i := slices.IndexFunc(defs, func(d flagDef) bool { return d.name == name }); i >= 0 {
				return &defs[i], ""
			}
			return nil, suggestFlag(defs, name)
		}, func(d *flagDef, value string) error { return d.set(req, value) }); err != nil {
			return nil, false, err
		}
	}
	return nil, false, nil
}

// readFlag reads the flag that stands first, and returns what follows it and its value. find
// returns a flag by its name, or a hint.
func readFlag(args []string, find func(string) (*flagDef, string), set func(*flagDef, string) error) (rest []string, err error) {
	name, value, joined := args[0], "", false
	if strings.HasPrefix(name, "--") {
		name, value, joined = strings.Cut(name, "=")
	}
	args = args[1:]
	mistake := func(text, hint string) ([]string, error) { return nil, misuse("flag "+name+": "+text, hint) }
	d, hint := find(name)
	switch {
	case d == nil:
		return nil, misuse("unknown flag "+quote(name), hint)
	case d.kind == alone && joined:
		return mistake("takes no value", "")
	case d.kind == takesValue && !joined:
		if len(args) == 0 || args[0] == "--" {
			return mistake("value missing", strings.TrimSuffix("write "+name+" "+d.arg, "write "+name+" "))
		}
		value, args = args[0], args[1:]
	}
	if d.kind == takesValue && value == "" {
		return mistake("empty value", "")
	}
	if strings.IndexByte(value, 0) >= 0 {
		return mistake("NUL in the value", "")
	}
	if err := set(d, value); err != nil {
		var u *messages.UsageError
		if !errors.As(err, &u) {
			u = misuse(err.Error(), "")
		}
		return mistake(u.Text, u.Hint)
	}
	return args, nil
}

// elsewhere are flags of other programs that do the like, by what is said here.
var elsewhere = [...]struct{ flag, others string }{
	{"--allow", " --network --net --allow-net --share-net --allow-host --allowed-domains --domain "},
	{"--read", " --ro --ro-bind --readonly --read-only --allow-read "},
	{"--write", " --rw --bind --mount --volume --allow-write --read-write --add-dir "},
	{"--hide", " --deny-read --mask --blacklist "},
	{"--private", " --tmpfs --private-home "},
	{"--overlay", " --overlay-src --tmp-overlay --cow "},
	{"--env", " --setenv --allow-env -e "},
	{"--workspace", " --cwd --chdir --dir --workdir --project -C -w "},
	{"--profile", " --config --policy --preset --agent -p "},
	{"--memory", " --mem --memory-max --rlimit-as --rlimit_as -m "},
	{"--pids", " --pids-limit --max-pids --nproc --rlimit-nproc --rlimit_nproc "},
	{"--files", " --nofile --rlimit-nofile --rlimit_nofile "},
	{"--filesize", " --rlimit-fsize --rlimit_fsize "},
	{"--timeout", " --time --time-limit --time_limit -t "},
	{"--syscalls", " --seccomp --seccomp-profile --seccomp_policy "},
	{"-v", " --verbose --debug "},
	{"-q", " --quiet --silent "},
}

// always are flags of other programs that ask for what each run has here.
const always = " --unshare-all --unshare-net --unshare-pid --unshare-ipc --unshare-uts --unshare-user --unshare-cgroup --disable-userns --die-with-parent --new-session " +
	"--cap-drop --caps.drop --no-new-privs --nonewprivs --noroot --proc --dev --private-tmp --private-dev --no-network "

// suggestFlag returns the hint for a flag that does not exist.
func suggestFlag(defs []flagDef, name string) string {
	if strings.Contains(always, " "+name+" ") {
		return "leave it out: every run does this"
	}
	for _, d := range defs {
		for _, e := range elsewhere {
			if e.flag == d.name && strings.Contains(e.others, " "+name+" ") {
				return "did you mean " + strings.TrimSpace(d.name+" "+d.arg) + "?"
			}
		}
	}
	return suggestName(flagNames(defs), name)
}

// suggestName is suggestFlag for flags of which the names alone are known.
func suggestName(flags []string, name string) string {
	var names []string
	for _, f := range flags {
		if word, long := strings.CutPrefix(f, "--"); long {
			names = append(names, word)
		}
	}
	if word := strings.TrimLeft(name, "-"); len(word) > 1 {
		if near := profiles.Nearest(word, names); near != "" {
			return "did you mean --" + near + "?"
		}
	}
	return "--help lists the flags"
}

// runCommand is `pccrun run`, and `pccrun -- …`.
func runCommand(args []string) int {
	req, code := runRequest(args)
	if req == nil {
		return code
	}
	return run.Run(*req, thisProgram())
}

// runRequest reads the command line of a run; nil if there is nothing to run,
// with the status to exit with.
func runRequest(args []string) (*profiles.Request, int) {
	req := &profiles.Request{}
	rest, dashes, err := parseFlags(runFlags(), req, args)
	switch {
	case err != nil:
		return nil, failUsage(err)
	case !dashes && slices.Contains(rest, "--") && len(rest) < len(args):
		return nil, fail("unexpected argument "+quote(rest[0]), "a flag takes one value: repeat the flag for each value, and quote patterns")
	case !dashes && len(rest) > 0:
		// What stood before is kept: who copies the hint means it, too.
		before := ""
		if len(rest) < len(args) {
			before = "… "
		}
		hint := "put -- before the command: pccrun " + before + "-- " + rest[0] + " …"
		if slices.ContainsFunc(verbs(), func(v verb) bool { return v.name == rest[0] }) {
			hint = "put the verb first: pccrun " + rest[0] + " …; " + hint
		}
		return nil, fail("unexpected argument "+quote(rest[0]), hint)
	case len(rest) == 0:
		return nil, fail("no command", "put -- before the command: pccrun -- COMMAND")
	case rest[0] == "":
		return nil, fail("empty command name")
	case req.JSON && !req.DryRun:
		return nil, fail("flag --json: standard output belongs to the command", "--dry-run --json prints the plan, --events FILE writes the result")
	case req.Quiet && req.Verbose:
		return nil, fail("flags -q and -v contradict each other")
	}
	req.Command = rest
	req.Host = profiles.ThisHost()
	return req, 0
}

func failUsage(err error) int { return messages.FailUsage(err) }
