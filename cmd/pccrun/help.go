//go:build !launcher

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

const usage = `usage: pccrun [FLAGS] -- COMMAND [ARG…]
       pccrun VERB [ARG…]

Runs a command, usually a coding agent, in a sandbox. The command sees the files
that the policy shows, reaches the hosts that the policy allows, and leaves
nothing that runs later outside. By default the current git repository is writable, homes are
hidden, the rest of the system is readable, and there is no network. The name of
an agent (aider, amp, claude, cline, codex, copilot, gemini, opencode, qwen)
picks its profile, which adds what it needs; that of a tool that builds (go, npm,
make, …) picks build, whose home stays.

Verbs:
%s
Common flags (pccrun help run lists them):
  --profile NAME|FILE     use this profile
  --write PATH            let the command change a path (also --read, --hide, …)
  --allow HOST            allow a host, e.g. github.com
  --env NAME[=VALUE]      pass a variable of the host, or set one
  --memory 4g --cpus 2 --timeout 10m
  --dry-run               print the plan, and do nothing

Exit status: the command's own; 124 timed out; 125 pccrun refused or failed
before the command ran; 126 not executable; 127 not found; 128+n signal n.

Examples:
  pccrun -- claude
  pccrun --allow @npm -- npm install
  pccrun --profile strict --timeout 5m -- ./untrusted.sh
  pccrun why read ~/.ssh/id_rsa
`

const runUsage = `usage: pccrun run [FLAGS] -- COMMAND [ARG…]
       pccrun [FLAGS] -- COMMAND [ARG…]

Put flags before --. Flags that name a path, host or variable can be repeated.
Flags cannot be abbreviated; --flag VALUE and --flag=VALUE are the same. Relative
paths are relative to the current directory. Sizes (512m, 4g) use powers of 1024.
pccrun help run -v lists the rest, that few need.

`

const completionUsage = `usage: pccrun completion bash|zsh|fish

Prints the completion script of a shell.

example: pccrun completion bash > ~/.local/share/bash-completion/completions/pccrun
`

func helpVerb(args []string) int {
	all := slices.Contains(args, "-v")
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "-v" })
	if len(args) == 0 && all {
		args = []string{"run"}
	}
	if len(args) == 0 {
		var lines strings.Builder
		for _, v := range verbs() {
			if v.line != "" {
				fmt.Fprintf(&lines, "  %-12s%s\n", v.name, v.line)
			}
		}
		printf(usage, lines.String())
		return 0
	}
	table, name := verbs(), current(args[:1])[0]
	i := slices.IndexFunc(table, func(v verb) bool { return v.name == name })
	if len(args) > 1 {
		return fail("unexpected argument "+quote(args[1]), "pccrun help lists the verbs")
	}
	if i < 0 {
		return fail("help: no verb "+quote(args[0]), "pccrun help lists the verbs"+suggestVerb(args[0], table))
	}
	if all && i == 0 {
		printf("%s", runUsage+flagTable(""))
		return 0
	}
	printf("%s", table[i].help())
	return 0
}

// rare are flags that the help of run leaves out, but for -v.
const rare = " --settings --files --filesize --report --inject-command --docker-network "

// flagTable sets the flags of run in two columns, without some; one that is too wide for its
// column has a line to itself.
func flagTable(without string) string {
	const width = 26
	var b strings.Builder
	for _, d := range runFlags() {
		if strings.Contains(without, " "+d.name+" ") {
			continue
		}
		flag := strings.TrimSpace(d.name + " " + d.arg)
		if len(flag) >= width {
			fmt.Fprintf(&b, "  %s\n", flag)
			flag = ""
		}
		fmt.Fprintf(&b, "  %-*s%s\n", width, flag, d.line)
	}
	return b.String()
}

func versionVerb(args []string) int {
	if len(args) > 0 {
		return fail("version: takes no argument")
	}
	v := version
	if info, ok := debug.ReadBuildInfo(); ok && v == unreleased && info.Main.Version != "" {
		v = info.Main.Version
	}
	printf("pccrun %s %s/%s %s\n", v, runtime.GOOS, runtime.GOARCH, runtime.Version())
	return 0
}
