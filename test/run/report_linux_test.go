package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

func TestReportCounts(t *testing.T) {
	r := report{who: "user"}
	skipped := verdicts.Verdict{Outcome: verdicts.Skipped, Package: "p", Test: "TestC", Reason: "needs a kernel", Output: "c\n"}
	for _, v := range []verdicts.Verdict{{Outcome: verdicts.Passed, Package: "p", Test: "TestA", Output: "a\n"}, {Outcome: verdicts.Failed, Package: "p", Test: "TestB", Output: "b\n"}, skipped} {
		r.take(v)
	}
	require.Equal(t, 1, r.passed)
	require.Equal(t, []string{"p TestB (user)"}, r.failures)
	require.Equal(t, []skip{{skipped, "user"}}, r.skips)
	require.Equal(t, "b\n", r.output(false))
	require.Equal(t, "a\nb\nc\n", r.output(true))
}

func TestReportRunsAgain(t *testing.T) {
	r := report{failures: []string{"p TestA/x (user)", "p TestA (user)", "p TestB (user)"}}
	require.Equal(t, "^(TestA|TestB)$", r.again(options{}).pattern)
	r.broken = true
	require.Empty(t, r.again(options{}).pattern, "the whole package")
}

// A test has failed that failed in each run that could have passed it.
func TestReportSettles(t *testing.T) {
	for _, test := range []struct {
		name          string
		first, again  report
		failed, flaky []string
	}{
		{"it passed", report{failures: []string{"a"}}, report{}, nil, []string{"a"}},
		{"one of two passed", report{failures: []string{"a", "b"}}, report{failures: []string{"b"}}, []string{"b"}, []string{"a"}},
		{"the first run did not get to it", report{failures: []string{"a"}, broken: true}, report{failures: []string{"b"}}, []string{"b"}, []string{"a"}},
		{"the later run did not get to it", report{failures: []string{"a"}}, report{failures: []string{"b"}, broken: true}, []string{"a"}, nil},
		{"it skipped", report{failures: []string{"p TestA (user)"}}, report{skips: []skip{{verdicts.Verdict{Package: "p", Test: "TestA"}, "user"}}}, []string{"p TestA (user)"}, nil},
		{"known as flaky", report{failures: []string{"b"}, flaky: []string{"a"}}, report{failures: []string{"b"}}, []string{"b"}, []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.first.settle(test.again)
			require.ElementsMatch(t, test.failed, got.failures)
			require.ElementsMatch(t, test.flaky, got.flaky)
		})
	}
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
	require.Equal(t, []packageCoverage{{"m/a", 3, 4}, {"m/b", 0, 1}}, got)
	require.Equal(t, 75.0, got[0].percent())
	for _, bad := range []string{"one two\n", "m/a.go:1.1,2.2 x 1\n"} {
		_, err := coverage(strings.NewReader(bad), func(string) bool { return false })
		require.Error(t, err, bad)
	}
}

func TestFuzzTargets(t *testing.T) {
	events := `{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FuzzA\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"output","Package":"q","Output":"FuzzB\n"}
`
	require.Equal(t, []fuzzTarget{{"p", "FuzzA"}, {"q", "FuzzB"}}, fuzzTargets([]byte(events)))
}
