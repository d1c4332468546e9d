package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const answer = `{"providers":[{"name":"native","runs":true,"guarantees":[{"guarantee":"fs.hide","state":"weak"},{"guarantee":"sys.filter","state":"kept"}],
	"limits":[{"guarantee":"res.memory","state":"kept","mechanism":"cgroup v2"}],"trials":[{"name":"seccomp","verdict":"holds"}]}]}`

const escapes = `{"id":"FS-001","guarantee":"fs.hide","verdict":"degraded","claim":"weak"}
{"id":"FS-002","guarantee":"fs.hide","verdict":"escaped","claim":"weak"}
`

func TestJudge(t *testing.T) {
	runs, refuses, fixable := &setup{name: "a", says: "plain"}, &setup{name: "b", refused: "is 0"}, &setup{name: "c", refused: "is 0", fixable: true}
	refused := outcome{Code: 125, Said: "pccrun: clone: x is 0\npccrun: hint: raise it\n", Doctor: `{"providers":[{"runs":false}]}`}
	good := outcome{Doctor: answer, Escape: escapes, Tests: []testRun{{Package: "p", Passed: 3}}}
	w := judge(runs, &result{Before: good}, nil)
	require.Empty(t, w.problems)
	require.Equal(t, "runs", w.verdict())
	require.Equal(t, "memory kept by cgroup v2; 1 probes stopped, 1 not; 3 tests", w.line())
	require.Equal(t, "weak 1 (1 out)", w.cell("fs.hide"))
	require.Equal(t, "kept", w.cell("sys.filter"))
	require.Equal(t, "not asked", w.cell("fs.readonly"))

	w = judge(refuses, &result{Before: refused}, nil)
	require.Empty(t, w.problems)
	require.Equal(t, "refused", w.verdict())
	require.Equal(t, "–", w.cell("fs.hide"))
	w = judge(fixable, &result{Before: refused, After: &outcome{}}, nil)
	require.Empty(t, w.problems)
	require.Contains(t, w.line(), "runs after the fix")

	for name, c := range map[string]struct {
		s   *setup
		r   *result
		err error
	}{
		"no machine":           {runs, nil, errors.New("it burnt")},
		"refused":              {runs, &result{Before: refused}, nil},
		"runs":                 {refuses, &result{Before: good}, nil},
		"another cause":        {&setup{refused: "another"}, &result{Before: refused}, nil},
		"no hint":              {refuses, &result{Before: outcome{Code: 125, Said: "pccrun: x is 0", Doctor: refused.Doctor}}, nil},
		"no fix":               {fixable, &result{Before: refused}, nil},
		"a fix of no use":      {fixable, &result{Before: refused, After: &refused}, nil},
		"the doctor disagrees": {runs, &result{Before: outcome{Doctor: refused.Doctor}}, nil},
		"the doctor is silent": {runs, &result{Before: outcome{}}, nil},
		"a layer is open":      {runs, &result{Before: outcome{Doctor: `{"providers":[{"runs":true,"trials":[{"verdict":"open"}]}]}`}}, nil},
		"a test fails":         {runs, &result{Before: outcome{Doctor: answer, Tests: []testRun{{Code: 1, Names: []string{"TestX"}}}}}, nil},
		"a claim is broken":    {runs, &result{Before: outcome{Doctor: answer, Escape: `{"verdict":"escaped","claim":"kept"}`}}, nil},
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
		judge(&setup{name: "b", says: "off", refused: "is 0", fixable: true}, &result{Release: "6.1", Before: outcome{Code: 125, Said: "pccrun: x is 0\npccrun: hint: raise it", Doctor: `{"providers":[{}]}`}, After: &outcome{}}, nil),
		judge(&setup{name: "c", says: "gone"}, nil, errors.New("it burnt")),
	}
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+tableBegins+"old\n"+tableEnds+"after\n"), 0o644))
	require.NoError(t, writeTable(page, rows))
	require.NoError(t, writeTable(page, rows), "again")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, "before\n"+tableBegins+table(rows)+tableEnds+"after\n", string(text))
	require.Contains(t, string(text), "| A | plain | 6.1 | runs; memory kept by cgroup v2 |\n")
	require.Contains(t, string(text), "refused: `x is 0`; hint: raise it; **runs after the doctor's fix**")
	require.Contains(t, string(text), "not tried: it burnt")
	require.Contains(t, string(text), "| fs.hide | weak | – | – |\n")
	require.NoError(t, os.WriteFile(page, nil, 0o644))
	require.ErrorContains(t, writeTable(page, rows), "no place")
	require.Error(t, writeTable(page+"x", rows))
}

func TestCount(t *testing.T) {
	var r testRun
	r.count("=== RUN\n--- PASS: TestA (0s)\n    --- PASS: TestA/b\n--- FAIL: TestB (0s)\n--- SKIP: TestC\n")
	require.Equal(t, testRun{Passed: 1, Failed: 1, Skipped: 1, Names: []string{"TestB"}}, r)
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
		require.True(t, !s.fixable || s.refused != "", s.name)
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
