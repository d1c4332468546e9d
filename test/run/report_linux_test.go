package main

import (
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
	root, user := identity{name: "root"}, identity{name: "user"}
	row := func(name string, took time.Duration, who verdicts.Who, root string) testPackage {
		return testPackage{path: verdicts.Module + name, root: root, row: verdicts.PackageRow{Package: name, Took: took, Who: who}}
	}
	packages := []testPackage{
		row("quick", 1, verdicts.Both, ""), row("slow", 9, verdicts.Both, ""), row("once", 5, verdicts.Once, ""),
		row("marked", 3, verdicts.Marked, "^TestA$"), row("plain", 4, verdicts.Marked, ""),
	}
	order := func(o options, workers ...worker) string {
		l := lay(packages, identities(workers), o)
		var took []string
		for _, w := range workers {
			for who, p, ok := l.next(w); ok; who, p, ok = l.next(w) {
				took = append(took, who.name+" "+p.row.Package)
			}
		}
		return strings.Join(took, ", ")
	}
	require.Equal(t, "root slow, root marked, root quick, root once, user slow, user plain, user marked, user quick", order(options{}, worker{root}, worker{user}))
	require.Equal(t, "root slow, root marked, root quick, user slow, user plain, user marked, user quick, root once", order(options{}, worker{root, user}, worker{user}))
	require.Equal(t, "user slow, user once, user plain, user marked, user quick", order(options{}, worker{user}))
	require.Equal(t, "root slow, root once, root plain, root marked, root quick", order(options{long: true, pass: everything}, worker{root}))
	require.Empty(t, order(options{long: true, pass: longOnes}, worker{root}, worker{user}))
	packages = append(packages, row("test/some", 1, verdicts.Marked, ""), row("test/rules", 1, verdicts.Once, ""))
	packages[5].check = "^TestB$"
	require.Contains(t, order(options{pass: check}, worker{user}), "user test/some, user test/rules")
	pattern, has := packages[5].tests(user, options{pass: check})
	require.True(t, has)
	require.Equal(t, "^TestB$", pattern)
}

func TestSlow(t *testing.T) {
	took := func(name string, row, took time.Duration) lane {
		return lane{"user", verdicts.PackageRow{Package: name, Took: row * time.Second}, took * time.Second}
	}
	names := func(lanes ...lane) (list []string) {
		for _, l := range slow(lanes) {
			list = append(list, l.row.Package)
		}
		return list
	}
	require.Equal(t, []string{"new", "slower"}, names(took("new", 0, 31), took("slower", 20, 61), took("same", 20, 20), took("other", 40, 40)))
	require.Equal(t, []string{"slower"}, names(took("new", 0, 31), took("slower", 20, 130), took("same", 20, 40), took("other", 40, 80)), "on a machine that takes twice as long")
	require.Empty(t, names())
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

func TestUnlike(t *testing.T) {
	var groups []string
	for _, g := range unlike([]testPackage{{path: "m/a"}, {path: "m/x/a"}, {path: "m/b"}, {path: "m/y/a"}}) {
		var paths []string
		for _, p := range g {
			paths = append(paths, p.path)
		}
		groups = append(groups, strings.Join(paths, " "))
	}
	require.Equal(t, []string{"m/a m/b", "m/x/a", "m/y/a"}, groups)
}
