package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

func TestTap(t *testing.T) {
	r, err := tap([]byte("TAP version 13\n1..6\n# file t0001\nok 1 - plain #1\nnot ok 2 - breaks\nok 3 # skip needs a thing (missing THING)\n" +
		"not ok 4 - known # TODO known breakage\n# file fs_test\nok 5 global.a\nok 6 global.b # SKIP no namespaces\nok - bare\n# ok 7 is a comment\nokay\n"))
	require.NoError(t, err)
	require.Equal(t, results{"t0001 plain #1": verdicts.Pass, "t0001 breaks": verdicts.Failed, "t0001 needs a thing": verdicts.Skipped,
		"t0001 known": verdicts.Skipped, "fs_test global.a": verdicts.Pass, "fs_test global.b": verdicts.Skipped, "fs_test bare": verdicts.Pass}, r)
}

func TestTestJSON(t *testing.T) {
	r, err := testJSON([]byte(`{"Action":"run","Package":"os/exec","Test":"TestA"}
{"Action":"pass","Package":"os/exec","Test":"TestA/b"}
{"Action":"fail","Package":"os/exec","Test":"TestA"}
{"Action":"fail","Package":"os/exec"}
`))
	require.NoError(t, err)
	require.Equal(t, results{"os/exec.TestA/b": verdicts.Pass, "os/exec.TestA": verdicts.Failed}, r)
	_, err = testJSON([]byte("no JSON"))
	require.Error(t, err)
}

func TestJUnit(t *testing.T) {
	r, err := jUnit([]byte(`<testsuites><testsuite package="http2/3.5" name="Preface"><testcase classname="Sends" time="0"/>` +
		`<testcase classname="Sends wrong"><failure>GOAWAY</failure></testcase></testsuite>` +
		`<testsuite><testcase name="test.test_os.A.test_b"><skipped>no</skipped></testcase></testsuite></testsuites>`))
	require.NoError(t, err)
	require.Equal(t, results{"http2/3.5 Sends": verdicts.Pass, "http2/3.5 Sends wrong": verdicts.Failed, "test.test_os.A.test_b": verdicts.Skipped}, r)
}

func TestFindings(t *testing.T) {
	r, err := found(`^\[\+\] (.+?) \.{2,} *(.*)$`, "No|")([]byte("[+] Docker Sock ............. Yes\n[+] Privileged Mode ......... No\nelse\n"))
	require.NoError(t, err)
	require.Equal(t, results{"Docker Sock: Yes": verdicts.Failed, "Privileged Mode: No": verdicts.Pass}, r)
	r, err = probeReport([]byte(`{"findings":[{"findingType":"writeable_paths","value":["/tmp","/ws"]},{"findingType":"hostname_detection","value":"pccrun"}]}`))
	require.NoError(t, err)
	require.Equal(t, results{"writeable_paths /tmp": verdicts.Failed, "writeable_paths /ws": verdicts.Failed, "hostname_detection pccrun": verdicts.Failed}, r)
}

func TestCompare(t *testing.T) {
	known := [][]string{{"go", "os:exec.TestKnown*", "why"}}
	r := row{suite: suite{name: "go"}, without: results{"a": verdicts.Pass, "b": verdicts.Pass, "c": verdicts.Failed, "os/exec.TestKnown/x": verdicts.Pass, "gone": verdicts.Pass, "skips": verdicts.Skipped},
		within: results{"a": verdicts.Pass, "b": verdicts.Failed, "c": verdicts.Failed, "os/exec.TestKnown/x": verdicts.Skipped, "only": verdicts.Failed, "more": verdicts.Pass}}
	require.NoError(t, r.compare(known))
	require.Equal(t, []string{"b: fail inside", "gone: no result inside", "only: fail inside"}, r.new)
	require.Equal(t, map[string]int{"why": 1}, r.explained)

	a := row{suite: suite{name: "deepce", judge: attacks}, without: results{"sock": verdicts.Failed, "key": verdicts.Failed}, within: results{"sock": verdicts.Failed, "key": verdicts.Pass}}
	require.NoError(t, a.compare(known))
	require.Equal(t, []string{"sock: fail inside"}, a.new)
	a.without = results{"sock": verdicts.Pass}
	require.Error(t, a.compare(known), "a control that finds nothing")
}

func TestMarkdown(t *testing.T) {
	r := row{suite: suite{name: "go"}, version: "go1", within: results{"a": verdicts.Pass}}
	require.Regexp(t, "^\\| go1 \\| .* \\| `make test-others SUITE=go` \\| – \\| 1, 0, 0 \\| 0, 0 \\|\n$", r.markdown("", nil))
}

// Each suite can be run, and each known difference is one's.
func TestSuites(t *testing.T) {
	names := map[string]bool{}
	for _, s := range suites {
		require.False(t, names[s.name], s.name)
		names[s.name] = true
		require.NotEmpty(t, s.about)
		require.NotEmpty(t, s.run)
		require.NotEmpty(t, s.version)
		require.NotNil(t, s.read)
	}
	rows, err := verdicts.Rows("known.txt", 3)
	require.NoError(t, err)
	for _, row := range rows {
		require.True(t, names[row[0]], row)
		_, err := filepath.Match(row[1], "")
		require.NoError(t, err, row)
	}
}
