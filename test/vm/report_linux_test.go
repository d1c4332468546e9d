package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/escape"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

const answer = `{"providers":[{"name":"native","runs":true,"guarantees":[{"guarantee":"fs.hide","state":"weak"},{"guarantee":"sys.filter","state":"kept"}],
	"limits":[{"guarantee":"res.memory","state":"kept","mechanism":"cgroup v2"}]},{"name":"docker","runs":false}]}`

const plan = `{"guarantees":[{"guarantee":"fs.hide","state":"kept"},{"guarantee":"res.memory","state":"kept","mechanism":"cgroup v2"},
	{"guarantee":"res.cpu","state":"kept","mechanism":"cgroup v2"},{"guarantee":"res.pids","state":"kept","mechanism":"cgroup v2"}]}`

const escapes = `{"id":"FS-001","guarantee":"fs.hide","verdict":"degraded","claim":"weak"}
{"id":"FS-002","guarantee":"fs.hide","verdict":"escaped","claim":"weak"}
`

func TestJudge(t *testing.T) {
	runs, refuses, fixable := &setup{name: "a", says: "plain"}, &setup{name: "b", refused: "is 0"}, &setup{name: "c", refused: "is 0", fixable: true}
	refused := outcome{Code: 125, Said: "pccrun: clone: x is 0\npccrun: hint: raise it\n", Doctor: `{"providers":[{"name":"native","runs":false}]}`}
	good := outcome{Doctor: answer, Escape: escapes}
	followed := []followed{{By: "the launcher's hint", Script: "sysctl"}, {By: "the doctor", Script: "more"}}
	w := judge(runs, &result{Before: good}, nil)
	require.Empty(t, w.problems)
	require.Equal(t, "runs", w.verdict())
	require.Equal(t, "memory kept by cgroup v2; no tests; 1 probes stopped, **1 not**", w.line())
	require.Equal(t, "weak 1 (1 out)", w.cell("fs.hide"))
	require.Equal(t, "kept", w.cell("sys.filter"))
	require.Equal(t, "not asked", w.cell("fs.readonly"))

	w = judge(refuses, &result{Before: refused}, nil)
	require.Empty(t, w.problems)
	require.Equal(t, "refused", w.verdict())
	require.Equal(t, "refused", w.cell("fs.hide"))
	w = judge(fixable, &result{Before: refused, After: &outcome{Plan: plan}, Followed: followed}, nil)
	require.Empty(t, w.problems)
	require.Contains(t, w.line(), "; after the launcher's hint, then the doctor: runs; memory kept by cgroup v2, cpu kept by cgroup v2, pids kept by cgroup v2")

	bare := outcome{Doctor: `{"providers":[{"name":"native","runs":true,"guarantees":[{"guarantee":"fs.special","state":"weak"}]}]}`}
	require.Empty(t, judge(&setup{weak: "fs.special"}, &result{Before: bare}, nil).problems)

	for name, c := range map[string]struct {
		s   *setup
		r   *result
		err error
	}{
		"more than it can":     {&setup{weak: "sys.filter"}, &result{Before: good}, nil},
		"no machine":           {runs, nil, errors.New("it burnt")},
		"refused":              {runs, &result{Before: refused}, nil},
		"runs":                 {refuses, &result{Before: good}, nil},
		"another cause":        {&setup{refused: "another"}, &result{Before: refused}, nil},
		"no hint":              {refuses, &result{Before: outcome{Code: 125, Said: "pccrun: x is 0", Doctor: refused.Doctor}}, nil},
		"no fix":               {fixable, &result{Before: refused}, nil},
		"a fix of no use":      {fixable, &result{Before: refused, After: &refused}, nil},
		"limits stay weak":     {fixable, &result{Before: refused, After: &outcome{Plan: strings.Replace(plan, `"kept","mechanism"`, `"weak","mechanism"`, 1)}}, nil},
		"no plan afterwards":   {fixable, &result{Before: refused, After: &outcome{}}, nil},
		"the doctor disagrees": {runs, &result{Before: outcome{Doctor: refused.Doctor}}, nil},
		"the doctor is silent": {runs, &result{Before: outcome{}}, nil},
		"a claim is broken":    {runs, &result{Before: outcome{Doctor: answer, Escape: `{"verdict":"escaped","claim":"kept"}`}}, nil},
		"nothing is proved":    {runs, &result{Before: outcome{Doctor: answer, Escape: `{"verdict":"vacuous","claim":"kept"}`}}, nil},
		"the suite broke":      {runs, &result{Before: outcome{Doctor: answer, EscapeSaid: "no"}}, nil},
		"half an answer":       {runs, &result{Before: outcome{Doctor: answer, Escape: `{"verdict"`}}, nil},
		"a tweak failed":       {runs, &result{Before: good, Problem: "tweak"}, nil},
	} {
		w := judge(c.s, c.r, c.err)
		require.NotEmpty(t, w.problems, name)
		require.Equal(t, "PROBLEM", w.verdict(), name)
	}
}

func TestTable(t *testing.T) {
	rows := []row{
		judge(&setup{name: "a", says: "plain"}, &result{Release: "6.1", Before: outcome{Doctor: answer}}, nil),
		judge(&setup{name: "b", says: "off", refused: "is 0", fixable: true}, &result{Release: "6.1", Before: outcome{Code: 125, Said: "pccrun: x is 0\npccrun: hint: raise it", Doctor: `{"providers":[{}]}`}, After: &outcome{Plan: plan}, Followed: []followed{{By: "the doctor"}}}, nil),
		judge(&setup{name: "c", says: "gone"}, nil, errors.New("it burnt")),
	}
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+tableBegins+"old\n"+tableEnds+"after\n"), 0o644))
	require.NoError(t, writeTable(page, table(rows)))
	require.NoError(t, writeTable(page, table(rows)), "again")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, "before\n"+tableBegins+table(rows)+tableEnds+"after\n", string(text))
	require.Contains(t, string(text), "| A | plain | 6.1 | namespaces | runs; memory kept by cgroup v2; no tests; no probes |\n")
	require.Contains(t, string(text), "| refused | `x is 0`; hint: raise it; **after the doctor: runs; memory kept by cgroup v2, cpu kept by cgroup v2, pids kept by cgroup v2** |")
	require.Contains(t, string(text), "| not tried | it burnt |")
	require.Contains(t, string(text), "| fs.hide | weak | refused | not tried |\n")
	require.NoError(t, os.WriteFile(page, nil, 0o644))
	require.ErrorContains(t, writeTable(page, table(rows)), "no place")
	require.Error(t, writeTable(page+"x", ""))
}

// A hint that asks for another machine is followed by another row.
func TestMended(t *testing.T) {
	refused := &result{Before: outcome{Code: 125, Said: "pccrun: x is 0\npccrun: hint: boot", Doctor: `{"providers":[{}]}`}}
	old := judge(&setup{name: "old", refused: "is 0", mended: "new"}, refused, nil)
	rows := []row{judge(&setup{name: "new"}, &result{Before: outcome{Doctor: answer}}, nil), old}
	require.Zero(t, mended(rows))
	require.Contains(t, table(rows), "with what the hint asks for it is row A, which runs")
	rows = []row{judge(&setup{name: "new", refused: "is 0"}, refused, nil), old}
	require.Equal(t, 1, mended(rows))
	rows = []row{old}
	require.Zero(t, mended(rows))
	require.Contains(t, table(rows), "its hint was not followed in this run")
}

// A test that fails, and a skip that no list allows, are the set-up's.
func TestTests(t *testing.T) {
	text := "\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16=== RUN   TestB\n    b_test.go:1: needs root\n\x16--- SKIP: TestB (0.00s)\n"
	for want, c := range map[string]struct {
		run     testRun
		allowed verdicts.Skips
	}{
		"":                 {testRun{Package: "p", Output: text + "\x16PASS\n"}, verdicts.Skips{{"vm", "p.TestB", "needs root"}}},
		"does not allow":   {testRun{Package: "p", Output: text + "\x16PASS\n"}, verdicts.Skips{{"root", "p.TestB", "needs root"}}},
		"p.TestC fails":    {testRun{Package: "p", Code: 1, Output: text + "\x16=== RUN   TestC\n\x16--- FAIL: TestC (0.00s)\n\x16FAIL\n"}, verdicts.Skips{{"any", "*", ""}}},
		"exit status 2":    {testRun{Package: "p", Code: 2, Output: "panic: no\n"}, nil},
		"TestD has no end": {testRun{Package: "p", Code: 2, Output: "\x16=== RUN   TestD\nTestD has no end\n"}, nil},
	} {
		w := row{runs: true}
		w.tests(t.Context(), []testRun{c.run}, c.allowed)
		if want == "" {
			require.Empty(t, w.problems)
			require.Equal(t, 1, w.passed)
			require.Equal(t, 1, w.skipped)
			continue
		}
		require.Contains(t, strings.Join(w.problems, "\n"), want)
		if want == "p.TestC fails" {
			w.setup = &setup{says: "plain"}
			require.Contains(t, table([]row{w}), "1 tests of 1 packages passed, 1 skipped, **1 failed**")
		}
	}
}

func TestHinted(t *testing.T) {
	command, ok := hinted("pccrun: clone: no\npccrun: hint: as root: sysctl -w a.b=1 (pccrun doctor --fix makes it last)\n")
	require.True(t, ok)
	require.Equal(t, "sysctl -w a.b=1", command)
	_, ok = hinted("pccrun: hint: boot a newer kernel\n")
	require.False(t, ok)
}

// What is around the user's part is started with what a hint names for it.
func TestHintedOptions(t *testing.T) {
	const said = "pccrun: clone: no\npccrun: hint: docker run --security-opt systempaths=unconfined --security-opt seccomp=unconfined, podman run --user 1000 --security-opt unmask=ALL; or more\n"
	require.Equal(t, []string{"--user", "1000", "--security-opt", "unmask=ALL"}, hintedOptions(said))
	require.Empty(t, hintedOptions("pccrun: hint: boot a newer kernel\n"))
}

func TestAsDocker(t *testing.T) {
	filter, err := asDocker([]byte(`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read","clone","mount"],"action":"SCMP_ACT_ALLOW"},{"names":["unshare"],"action":"SCMP_ACT_ALLOW"}]}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW"},
		{"names":["clone"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":2114060288,"valueTwo":0,"op":"SCMP_CMP_MASKED_EQ"}]},
		{"names":["clone3"],"action":"SCMP_ACT_ERRNO","errnoRet":38}]}`, string(filter))
	for _, bad := range []string{"", "{}", `{"syscalls":[1]}`} {
		_, err := asDocker([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestLetter(t *testing.T) {
	require.Equal(t, []string{"A", "Z", "AA", "AB"}, []string{letter(0), letter(25), letter(26), letter(27)})
}

// The whole of a package runs where a set-up says so, its brief where the machine
// is another, the least where one setting is.
func TestPattern(t *testing.T) {
	p := &testedPackage{pkg: "p", brief: "b", least: "l"}
	for want, s := range map[string]*setup{
		".": {whole: []string{"p"}}, "b": {start: bareV1}, "l": {tweaks: []string{"userns-off"}}, "": {start: container, options: []string{"--privileged"}},
	} {
		require.Equal(t, want, p.pattern(s, nil))
		require.Empty(t, p.pattern(s, map[string]bool{"vm.no-tests": true}))
	}
	require.Equal(t, "l", p.pattern(&setup{start: container}, nil))
	require.Equal(t, "b", p.pattern(&setup{whole: []string{"p"}}, map[string]bool{"vm.brief": true}))
	require.Empty(t, p.pattern(&setup{tweaks: []string{"userns-off"}}, map[string]bool{"vm.brief": true}))
	p.kernel = true
	require.Equal(t, "b", p.pattern(&setup{start: session}, nil))
	require.Empty(t, p.pattern(&setup{start: bareV1}, nil))
}

// What is tried of the escape suite has one probe for each guarantee that this
// machine's own provider answers for, but for processor time.
func TestProbes(t *testing.T) {
	var held []string
	for _, id := range probes {
		p := escape.Find(id)
		require.NotNil(t, p, id)
		require.NotContains(t, held, string(p.Guarantee), id)
		held = append(held, string(p.Guarantee))
	}
	require.ElementsMatch(t, guarantees(), append(held, "res.cpu"))
	for _, id := range few {
		require.Contains(t, probes, id)
	}
}

// Those that took longest are first, and before them those of which nobody knows.
func TestOrder(t *testing.T) {
	m := &machine{dir: t.TempDir()}
	for name, took := range map[string]time.Duration{"busybox": time.Minute, "session": 3 * time.Minute} {
		require.NoError(t, m.keep(&result{Setup: name, Took: took}))
	}
	require.Equal(t, []int{2, 1, 0}, m.order([]*setup{findSetup("busybox"), findSetup("session"), findSetup("cgroup-v1")}))
}

func TestTally(t *testing.T) {
	c := tally{began: time.Now(), jobs: 2}
	c.add(&row{took: time.Minute})
	c.add(&row{took: 2 * time.Minute})
	require.Regexp(t, `^2 set-ups in 0s, 2 at the same time, 3m0s of machines, at a load of [0-9]+ to [0-9]+\.$`, c.String())
	c.add(&row{took: time.Hour, earlier: true})
	require.Regexp(t, `2 set-ups .* 3m0s of machines.* 1 were tried in earlier runs, for 1h0m0s\.$`, c.String())
}

// Each set-up names a kernel, a userland and tweaks that there are.
func TestSetups(t *testing.T) {
	names := map[string]bool{}
	for _, s := range setups {
		require.False(t, names[s.name], s.name)
		names[s.name] = true
		require.Contains(t, userlands, s.userland)
		found := false
		for _, k := range kernels {
			found = found || k.name == s.kernel
		}
		require.True(t, found, s.name)
		for _, w := range s.tweaks {
			require.NotNil(t, tweaks[w], w)
		}
		require.NotEmpty(t, s.says)
		for _, pkg := range s.whole {
			require.True(t, slices.ContainsFunc(tested, func(t testedPackage) bool { return t.pkg == pkg }), pkg)
		}
		if s.refused != "" {
			require.True(t, s.fixable || findSetup(s.mended) != nil, "%s: nobody follows its hint", s.name)
		}
		require.Equal(t, s.name, findSetup(s.name).name)
	}
	require.Nil(t, findSetup("none"))
	require.True(t, session.systemd())
	require.False(t, bareV1.systemd())
}

func TestByNumbers(t *testing.T) {
	require.Negative(t, byNumbers("linux-image-6.9.0-9-cloud", "linux-image-6.10.0-1-cloud"))
	require.Positive(t, byNumbers("x-6.1.0-56", "x-6.1.0-9"))
	require.Zero(t, byNumbers("a-1", "b-1"))
}

// The archive is one that cpio(1) would write: magic, sizes, alignment.
func TestCpio(t *testing.T) {
	var a cpioArchive
	a.add("dir", cpioDir|0o755, nil)
	a.add("dir/f", cpioFile|0o644, []byte("12345"))
	b := a.end()
	require.Zero(t, len(b)%4)
	require.Equal(t, "07070100000001000041ed", string(b[:22]))
	require.Contains(t, string(b), "dir/f\x00")
	require.Contains(t, string(b), "TRAILER!!!\x00")
}

func TestResultCrossesTheDisk(t *testing.T) {
	text, err := json.Marshal(result{Setup: "x", Before: outcome{TookMS: map[string]int64{"launch": 1}}})
	require.NoError(t, err)
	var r result
	require.NoError(t, json.Unmarshal(text, &r))
	require.Equal(t, int64(1), r.Before.TookMS["launch"])
}

// What ended in an error is tried again, and its second verdict counts; where
// there is none, the first.
func TestErred(t *testing.T) {
	const a, b, c, again = `{"id":"A-1","verdict":"blocked"}` + "\n", `{"id":"A-2","verdict":"error"}` + "\n", `{"id":"A-3","verdict":"escaped"}` + "\n", `{"id":"A-2","verdict":"blocked"}` + "\n"
	require.Equal(t, []string{"A-2"}, erred(a+b+c))
	require.Equal(t, a+c, without(a+b+c, again))
	require.Empty(t, erred(without(a+b+c, again)+again))
	require.Equal(t, a+b+c, without(a+b+c, ""))
	require.Equal(t, a+b+c, without(a+b+c, "no report\n"))
}
