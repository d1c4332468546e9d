package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

func TestReportCounts(t *testing.T) {
	r := report{who: "user"}
	skipped := verdicts.Verdict{Outcome: verdicts.Skipped, Package: "p", Test: "TestC", Reason: "needs a kernel", Output: "c\n"}
	for _, v := range []verdicts.Verdict{{Outcome: verdicts.Pass, Package: "p", Test: "TestA", Output: "a\n"}, {Outcome: verdicts.Failed, Package: "p", Test: "TestB", Output: "b\n"}, skipped} {
		r.take(v)
	}
	require.Equal(t, 1, r.passed)
	require.Equal(t, []string{"p TestB (user)"}, r.failures)
	require.Equal(t, []skip{{skipped, "user"}}, r.skips)
	require.Equal(t, "b\n", r.output(false))
	require.Equal(t, "a\nb\nc\n", r.output(true))
}

func TestLanes(t *testing.T) {
	row := func(name string, took time.Duration, once, alone bool) testPackage {
		return testPackage{path: verdicts.Module + name, row: verdicts.PackageRow{Package: name, Took: took, Once: once, Alone: alone}}
	}
	l := lay([]testPackage{
		row("quick", 1, false, false), row("slow", 9, false, false), row("once", 5, true, false),
		row("clock", 2, false, true), row("test/rules", 3, true, false),
	}, []identity{{name: "root"}, {name: "user"}})
	var took []string
	for _, who := range []string{"root", "root", "user", "root", "user", "user"} {
		p, ok := l.next(who)
		took = append(took, fmt.Sprint(who, " ", p.row.Package, " ", ok))
	}
	require.Equal(t, []string{
		"root slow true", "root quick true", "user slow true", "root once true", "user quick true", "user  false",
	}, took)
	require.Equal(t, "clock", l.alone[0].row.Package)
	require.Equal(t, "test/rules", l.last[0].row.Package)
}

func TestCoverageSums(t *testing.T) {
	profile := `mode: set
m/a/x.go:1.1,2.2 3 1
m/a/x.go:1.1,2.2 3 0
m/a/y.go:1.1,2.2 1 0
m/a/z.go:1.1,2.2 96 0
m/b/x.go:1.1,2.2 1 0
`
	got, err := coverage(strings.NewReader(profile), func(file string) bool { return file == "m/a/z.go" })
	require.NoError(t, err)
	require.Equal(t, []packageCoverage{{"m/a", 3, 4, map[string]int{"y.go": 1}}, {"m/b", 0, 1, map[string]int{"x.go": 1}}}, got)
	require.Equal(t, "1 in y.go", got[0].worst(5))
	require.Equal(t, 75.0, got[0].percent())
	for _, bad := range []string{"one two\n", "m/a.go:1.1,2.2 x 1\n"} {
		_, err := coverage(strings.NewReader(bad), func(string) bool { return false })
		require.Error(t, err, bad)
	}
}
