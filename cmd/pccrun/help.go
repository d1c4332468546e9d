//go:build !launcher

package main

import (
	"embed"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/escape"
)

// pages are the helps: one of each verb, pccrun.txt, of the program itself, and
// json.txt, events.txt and environment.txt, of what is printed and read. What a page says of flags is what
// completion offers: see [helpFlags].
//
//go:embed help
var pages embed.FS

// page returns one of them.
func page(name string) string {
	text, err := pages.ReadFile("help/" + name + ".txt")
	if err != nil {
		panic("BUG: no help of " + name) // a test reads each
	}
	return string(text)
}

// help is what `pccrun help` says of a verb.
func (v *verb) help() string {
	switch v.name {
	case "run":
		return page("run") + flagTable(rare)
	case "escape": // which probes there are goes by the system
		return escape.Usage
	}
	return page(v.name)
}

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
		printf(page("pccrun"), lines.String())
		return 0
	}
	table, name := verbs(), current(args[:1])[0]
	i := slices.IndexFunc(table, func(v verb) bool { return v.name == name })
	if len(args) > 1 {
		return fail("unexpected argument "+quote(args[1]), "pccrun help lists the verbs")
	}
	if slices.Contains([]string{"json", "events", "environment"}, name) {
		printf("%s", page(name))
		return 0
	}
	if i < 0 {
		return fail("help: no verb "+quote(args[0]), "pccrun help lists the verbs"+suggestVerb(args[0], table))
	}
	if all && i == 0 {
		printf("%s", page("run")+flagTable(""))
		return 0
	}
	printf("%s", table[i].help())
	return 0
}

// rare are flags that the help of run leaves out, but for -v.
const rare = " --settings --files --filesize --report --inject-command --docker-network --docker-image --e2b-template --daytona-target --conversation --install "

// flagTable sets the flags of run in two columns, without some; one that is too wide for its
// column has a line to itself.
func flagTable(without string) string {
	const width = 26
	var b strings.Builder
	for _, d := range runFlags(&profiles.Request{}) {
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
	if commit != "" {
		v += " (" + commit + ", " + date + ")"
	}
	printf("pccrun %s %s/%s %s\n", v, runtime.GOOS, runtime.GOARCH, runtime.Version())
	return 0
}

var (
	flagWord = regexp.MustCompile(`\B--?[a-z][a-z0-9-]*`)
	flagLine = regexp.MustCompile(`(?m)^  -.*?(  |$)`) // what begins a line of a list, up to what it does
)

// helpFlags returns the flags that a help describes: in its first lines, and at the beginning of a line of its list.
// Where it says FLAGS those are meant that say what the policy is.
func helpFlags(help string) (names []string) {
	head, list, _ := strings.Cut(help, "\n\n")
	found := flagWord.FindAllString(head+"\n"+strings.Join(flagLine.FindAllString(list, -1), "\n"), -1)
	if strings.Contains(head, "FLAGS") {
		found = append(found, flagNames(policyFlags(&profiles.Request{}))...)
	}
	for _, name := range found {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
