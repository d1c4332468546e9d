//go:build linux

package escape

import (
	"bytes"
	"encoding/xml"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/joshdk/go-junit"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeJUnit(&b, sample()))
	var got struct {
		Suites []junitSuite `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal(b.Bytes(), &got))
	require.Len(t, got.Suites, 1)
	s := got.Suites[0]
	require.Equal(t, [4]int{len(Verdicts), 0, 1, 3}, [4]int{s.Tests, s.Failures, s.Errors, s.Skipped})
	require.Len(t, s.Cases, s.Tests)
	require.NotContains(t, b.String(), "\x1b")
}

// TestJUnitConsumer has a reader of the format that others use read the output,
// and count.
func TestJUnitConsumer(t *testing.T) {
	for what, r := range junitReports() {
		var b bytes.Buffer
		require.NoError(t, writeJUnit(&b, r))
		suites, err := junit.Ingest(b.Bytes())
		require.NoError(t, err)
		require.Len(t, suites, len(r.targets), what)
		for i, s := range suites {
			require.Equal(t, printable(r.targets[i]), s.Name)
			n := r.counts(r.targets[i])
			want := junit.Totals{
				Passed: n[VerdictBlocked] + n[VerdictDegraded], Error: n[VerdictError] + len(r.Untested[r.targets[i]]),
				Skipped: n[VerdictSkipped] + n[VerdictVacuous] + n[VerdictEscaped], Duration: s.Totals.Duration, // the one escape is accepted
			}
			if len(r.Results) == 0 {
				want.Error++
				require.Equal(t, errNothing.Error(), s.Tests[len(s.Tests)-1].Message)
			}
			if r.Interrupted != nil {
				want.Error++
				require.Equal(t, "interrupted by SIGINT", s.Tests[len(s.Tests)-1].Message)
			}
			want.Tests = want.Passed + want.Failed + want.Error + want.Skipped
			require.Equal(t, want, s.Totals, what)
		}
	}
}

// TestJUnitSchema holds the output to a schema: testdata/README.md says whose.
func TestJUnitSchema(t *testing.T) {
	if _, err := exec.LookPath("xmllint"); err != nil {
		t.Skip("needs xmllint")
	}
	lint := func(document string) error {
		cmd := exec.Command("xmllint", "--nonet", "--noout", "--schema", "testdata/junit.xsd", "-")
		cmd.Stdin = strings.NewReader(document)
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	for what, r := range junitReports() {
		var b bytes.Buffer
		require.NoError(t, writeJUnit(&b, r))
		require.NoError(t, lint(b.String()), what)
	}
	var b bytes.Buffer
	require.NoError(t, writeJUnit(&b, sample()))
	for old, wrong := range map[string]string{
		`<skipped `: `<omitted `, `tests="6"`: `tests="six"`, `time="1.000"`: `time="1s"`, `classname="`: `class="`, `type="error"`: `type=""`, `<testsuites>`: `<testsuites xmlns="urn:x">`,
	} {
		require.Contains(t, b.String(), old)
		document := strings.Replace(b.String(), old, wrong, 1)
		if old == "<skipped " {
			document = strings.Replace(document, "</skipped>", "</omitted>", 1)
		}
		require.Error(t, lint(document), "%s: the schema is not asked", wrong)
	}
}

func junitReports() map[string]*Report {
	two, ended, untested := sample(), sample(), sample()
	untested.Untested = map[string][]profiles.Guarantee{untested.targets[0]: {profiles.FSHide, profiles.NetDNS}}
	two.targets = append(two.targets, "other")
	for _, res := range two.Results {
		res.Target = "other"
		two.Results = append(two.Results, res)
	}
	ended.Interrupted = &interrupted{syscall.SIGINT}
	return map[string]*Report{"a report": sample(), "two launchers": two, "nothing ran": {targets: []string{"t"}}, "no target": {}, "interrupted": ended, "untested": untested}
}
