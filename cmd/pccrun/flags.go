package main

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
)

// A flagDef is one flag of a verb.
type flagDef struct {
	name string // with its dashes
	arg  string // how usage names the value
	line string // what it does
	to   any    // what it sets: *bool, *string, or what func(string) error makes of its value, and func() error of none
}

// isSwitch reports whether a flag takes no value.
func (d *flagDef) isSwitch() bool {
	switch d.to.(type) {
	case *bool, func() error:
		return true
	}
	return false
}

func (d *flagDef) set(value string) error {
	switch to := d.to.(type) {
	case *bool:
		*to = true
	case *string:
		*to = value
	case func() error:
		return to()
	case func(string) error:
		return to(value)
	}
	return nil
}

// through is the flag with a function in place of what it sets, which gets "" of a switch.
func (d flagDef) through(set func(value string) error) flagDef {
	if d.isSwitch() {
		d.to = func() error { return set("") }
	} else {
		d.to = set
	}
	return d
}

// words are the flag with a value, as a command line has them.
func (d *flagDef) words(value string) []string {
	if d.isSwitch() {
		return []string{d.name}
	}
	return []string{d.name, value}
}

// flags are those of a verb's own, and what each sets, as in a [flagDef]; nil for one that is read elsewhere.
type flags map[string]any

func (f flags) defs() (defs []flagDef) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		defs = append(defs, flagDef{name: name, to: f[name]})
	}
	return defs
}

// policyFlags are the flags that say what the policy is; `why` and `profile
// show` take them too.
func policyFlags(req *profiles.Request) []flagDef {
	defs := make([]flagDef, len(profiles.Flags), len(profiles.Flags)+16)
	for i := range profiles.Flags {
		f := &profiles.Flags[i]
		var to any = func(v string) error { return f.Set(req, v) }
		if f.Arg == "" {
			to = func() error { return f.Set(req, "") }
		}
		defs[i] = flagDef{f.Name, f.Arg, f.Help, to}
	}
	return defs
}

// runFlags are all flags of `pccrun run`.
func runFlags(r *profiles.Request) []flagDef {
	once := func(field any) func(string) error {
		return func(v string) error {
			return (&profiles.Flag{Field: func(*profiles.Request) any { return field }}).Set(r, v)
		}
	}
	of := func(set func(*profiles.Request, string) error) func(string) error {
		return func(v string) error { return set(r, v) }
	}
	return append(policyFlags(r),
		flagDef{"--ask", "", "ask at the terminal before a host is denied", &r.Ask},
		flagDef{"--provider", "NAME", "where to run: native, auto, …", of(provider)},
		flagDef{"--runtime", "NAME", "with --provider docker: runc, or runsc for gVisor", once(&r.Runtime)},
		flagDef{"--docker-network", "none|bridge|host", "with --provider docker: a network without rules (default none)", once(&r.DockerNetwork)},
		flagDef{"--from", "SNAPSHOT", "start from the changes of a snapshot, in overlays", once(&r.From)},
		flagDef{"--budget", "USD", "what the command's requests to model APIs may cost; then INT, KILL and exit status 124", of(budget)},
		flagDef{"--spending", "FILE", "count in this file too, with other runs: its limit is theirs together", func(v string) error { r.Spending = append(r.Spending, v); return nil }},
		flagDef{"--conversation", "DIR", "a directory of the persistent home that goes to a cloud, and comes back: pccrun task uses it", func(v string) error {
			if !filepath.IsLocal(v) || filepath.Clean(v) != v || v == "." {
				return errors.New(quote(v) + ": want a directory relative to the home, such as .claude/projects")
			}
			r.Conversation = append(r.Conversation, v)
			return nil
		}},
		flagDef{"--install", "JSON", "what a cloud's sandbox may lack, and how it is installed: pccrun task uses it", once(&r.Install)},
		flagDef{"--detach", "", "print the run's id, and go on without this terminal: pccrun attach", &r.Detach},
		flagDef{"-t", "", "with --detach: give the command a terminal, also if standard input is none", &r.Terminal},
		flagDef{"--pass-fd", "N", "pass this file descriptor", of(passFD)},
		flagDef{"--dry-run", "", "print the plan, with -v in full, and do nothing", &r.DryRun},
		flagDef{"--json", "", "with --dry-run: print the plan as JSON", &r.JSON},
		flagDef{"--events", "FILE|fd:N", "write events as JSON lines", once(&r.Events)},
		flagDef{"--log", "", "save the output in the session", &r.Log},
		flagDef{"-v", "", "print more", &r.Verbose},
		flagDef{"-q", "", "print errors only", &r.Quiet},
	)
}

// provider sets --provider. That one is not built is said when it is to be used.
func provider(r *profiles.Request, v string) error {
	var unusable *providers.UnusableError
	if _, err := providers.KindOf(v); v != providers.Auto && errors.As(err, &unusable) {
		return misuse(quote(v)+": "+unusable.Cause, unusable.Hint())
	}
	return (&profiles.Flag{Field: func(r *profiles.Request) any { return &r.Provider }}).Set(r, v)
}

// budget sets --budget.
func budget(r *profiles.Request, v string) error {
	if _, err := spending.ParseUSD(v); err != nil {
		return errors.New(quote(v) + ": " + err.Error())
	}
	return (&profiles.Flag{Field: func(r *profiles.Request) any { return &r.Budget }}).Set(r, v)
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

// parse reads a command line: flags, the words before, between and behind them, and what follows --, if dashes says that
// it stood there. With an error the words are those before the mistake.
func parse(args []string, defs []flagDef) (words, rest []string, dashes bool, err error) {
	for len(args) > 0 {
		name, value, joined := args[0], "", false
		switch {
		case name == "--":
			return words, args[1:], true, nil
		case !strings.HasPrefix(name, "-") || name == "-":
			words, args = append(words, name), args[1:]
			continue
		case strings.HasPrefix(name, "--"):
			name, value, joined = strings.Cut(name, "=")
		}
		args = args[1:]
		i := slices.IndexFunc(defs, func(d flagDef) bool { return d.name == name && d.to != nil })
		if i < 0 {
			return words, nil, false, misuse("unknown flag "+quote(name), suggestFlag(defs, name))
		}
		d, isSwitch := &defs[i], defs[i].isSwitch()
		mistake := func(text, hint string) ([]string, []string, bool, error) {
			return words, nil, false, misuse("flag "+name+": "+text, hint)
		}
		switch {
		case isSwitch && joined:
			return mistake("takes no value", "")
		case !isSwitch && !joined && (len(args) == 0 || args[0] == "--") && d.arg != "":
			return mistake("value missing", "write "+name+" "+d.arg)
		case !isSwitch && !joined && (len(args) == 0 || args[0] == "--"):
			return mistake("value missing", "")
		case !isSwitch && !joined:
			value, args = args[0], args[1:]
		}
		switch {
		case !isSwitch && value == "":
			return mistake("empty value", "")
		case strings.IndexByte(value, 0) >= 0:
			return mistake("NUL in the value", "")
		}
		if err := d.set(value); err != nil {
			u := misuse(err.Error(), "")
			errors.As(err, &u)
			return mistake(u.Text, u.Hint)
		}
	}
	return words, nil, false, nil
}

// options reads the flags of a verb that takes no command: what follows -- are words too. A run can leave a file of any
// name, and a shell puts it in the place of a *.
func options(args []string, known flags) ([]string, error) {
	words, rest, _, err := parse(args, known.defs())
	if words = append(words, rest...); err == nil && slices.Contains(words, "") { // of a variable that is not set: it would mean the newest, or all
		err = misuse("empty argument", "")
	}
	return words, err
}

// unexpected is a mistake where there are more words than a verb takes.
func unexpected(words []string, most int, hint string) error {
	if len(words) <= most {
		return nil
	}
	return misuse("unexpected argument "+quote(words[most]), hint)
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

func flagNames(defs []flagDef) []string {
	var names []string
	for _, d := range defs {
		names = append(names, d.name)
	}
	return names
}

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
	var names []string
	for _, d := range defs {
		if word, long := strings.CutPrefix(d.name, "--"); long {
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
	program := thisProgram()
	if req.Detach && !req.DryRun {
		if code, gone := detached(req, &program); gone {
			return code
		}
	}
	return run.Run(*req, program)
}

// runRequest reads the command line of a run; nil if there is nothing to run,
// with the status to exit with.
func runRequest(args []string) (*profiles.Request, int) {
	req := &profiles.Request{}
	words, rest, _, err := parse(args, runFlags(req))
	behind := len(words) > 0 && args[0] != words[0] // a flag stands before the first word
	switch {
	case behind && slices.Contains(args, "--"):
		return nil, fail("unexpected argument "+quote(words[0]), "a flag takes one value: repeat the flag for each value, and quote patterns")
	case len(words) > 0:
		// What stood before is kept: who copies the hint means it, too.
		before := ""
		if behind {
			before = "… "
		}
		hint := "put -- before the command: pccrun " + before + "-- " + words[0] + " …"
		if slices.ContainsFunc(verbs(), func(v verb) bool { return v.name == words[0] }) {
			hint = "put the verb first: pccrun " + words[0] + " …; " + hint
		}
		return nil, fail("unexpected argument "+quote(words[0]), hint)
	case err != nil:
		return nil, failUsage(err)
	case len(rest) == 0:
		return nil, fail("no command", "put -- before the command: pccrun -- COMMAND")
	case rest[0] == "":
		return nil, fail("empty command name")
	case req.JSON && !req.DryRun:
		return nil, fail("flag --json: standard output belongs to the command", "--dry-run --json prints the plan, --events FILE writes the result")
	case req.Terminal && !req.Detach:
		return nil, fail("flag -t: goes with --detach", "without it the command has a terminal where pccrun has one")
	case req.Detach && (len(req.PassFDs) > 0 || strings.HasPrefix(req.Events, "fd:")):
		return nil, fail("flag --detach: not with --pass-fd or --events fd:N: what this process has open is not passed on", "--events FILE")
	case req.Quiet && req.Verbose:
		return nil, fail("flags -q and -v contradict each other")
	}
	req.Command = rest
	req.Host = profiles.ThisHost()
	return req, 0
}

func failUsage(err error) int { return messages.FailUsage(err) }

// given reports whether a word, or a flag with its value, stands in a command line before its --.
func given(args []string, word string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.ContainsFunc(args, func(arg string) bool { return arg == word || strings.HasPrefix(arg, word+"=") })
}
