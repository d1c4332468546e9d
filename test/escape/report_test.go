//go:build linux

package escape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/joshdk/go-junit"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

var hostile = "a\x1b[31m|`<script>alert(1)</script>\n# SKIP\x00]]>&\u202e"

func sample() *Report {
	var results []Result
	for i, v := range Verdicts {
		results = append(results, Result{
			Schema: Schema, ID: Probes()[i].ID, Name: "name", Guarantee: profiles.FSHide, Severity: Severity(i % 5), Verdict: v, Target: "t " + hostile,
			Reason: hostile, Inside: Outcome{Kind: DidBlock, Detail: hostile}, Control: Escaped("%s", hostile), Expect: "EPERM", Findings: []string{"errno EBADF, want EPERM"}, Refs: []string{"CVE-2024-1"}, Reproduce: "pccrun " + hostile, Duration: time.Second,
		})
	}
	results[0].Accepted = "reason"
	return &Report{
		Schema: Schema, Began: time.Unix(0, 0), Took: time.Second, Results: results, targets: []string{"t " + hostile},
		Environment: []Fact{{"kernel", hostile}}, Claims: map[string][]Claim{"t " + hostile: {{Guarantee: profiles.FSHide, State: "kept", Cause: hostile}}},
		Layers: []LayerRow{{ID: "FS-001", Severity: Critical, Stopped: []string{"hide"}}},
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeJSON(&b, sample()))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, len(Verdicts))
	for i, line := range lines {
		var row map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		for _, key := range []string{"id", "guarantee", "severity", "verdict", "target", "inside", "control", "reproduce"} {
			require.Contains(t, row, key)
		}
		require.Equal(t, string(Verdicts[i]), row["verdict"])
	}
}

// TestSARIF checks what the text of version 2.1.0 asks of the parts that are
// used, and no schema can say.
func TestSARIF(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeSARIF(&b, sample()))
	var log struct {
		Schema  string `json:"$schema"`
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct {
						ID                   string
						ShortDescription     struct{ Text string }
						FullDescription      struct{ Text string }
						Help                 struct{ Text string }
						DefaultConfiguration struct{ Level string }
						Properties           map[string]any
					}
				}
			}
			Invocations []struct {
				ExecutionSuccessful *bool
				StartTimeUtc        string
			}
			Results []struct {
				RuleID       string
				RuleIndex    int
				Level, Kind  string
				Message      struct{ Text string }
				Suppressions []struct{ Kind, Status, Justification string }
			}
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &log))
	require.Equal(t, "2.1.0", log.Version)
	require.Contains(t, log.Schema, "sarif-schema-2.1.0.json")
	require.Len(t, log.Runs, 1)
	run := log.Runs[0]
	require.NotEmpty(t, run.Tool.Driver.Name)
	require.NotNil(t, run.Invocations[0].ExecutionSuccessful)
	_, err := time.Parse(time.RFC3339, run.Invocations[0].StartTimeUtc)
	require.NoError(t, err)
	levels, kinds := []string{"none", "note", "warning", "error"}, []string{"notApplicable", "pass", "fail", "review", "open", "informational"}
	seen := map[string]bool{}
	for _, rule := range run.Tool.Driver.Rules {
		require.False(t, seen[rule.ID])
		seen[rule.ID] = true
		require.Contains(t, levels, rule.DefaultConfiguration.Level)
		for _, text := range []string{rule.ShortDescription.Text, rule.FullDescription.Text, rule.Help.Text} {
			require.NotEmpty(t, text)
		}
		_, err := strconv.ParseFloat(rule.Properties["security-severity"].(string), 64)
		require.NoError(t, err)
	}
	require.NotEmpty(t, run.Results)
	for _, result := range run.Results {
		require.Equal(t, run.Tool.Driver.Rules[result.RuleIndex].ID, result.RuleID)
		require.Contains(t, levels, result.Level)
		require.Contains(t, kinds, result.Kind)
		require.NotEmpty(t, result.Message.Text)
		if result.Kind != "fail" {
			require.Equal(t, "none", result.Level, "3.27.10: a result that is no failure has no level")
		}
	}
	require.Equal(t, "accepted", run.Results[0].Suppressions[0].Status)
	require.Equal(t, "accepted: reason", run.Results[0].Suppressions[0].Justification)
}

// TestSARIFText holds what is written to the files of testdata, which test/escape/schema
// holds to the schema: its validator takes as long to start as a probe's
// process, so it is no part of this program. UPDATE_TESTDATA=1 writes them again.
func TestSARIFText(t *testing.T) {
	ended := sample()
	ended.Interrupted = &interrupted{syscall.SIGTERM}
	for name, report := range map[string]*Report{"full": sample(), "ended": ended, "empty": {targets: []string{"t"}}, "none": {}} {
		var b bytes.Buffer
		require.NoError(t, writeSARIF(&b, report))
		file := "testdata/" + name + ".sarif"
		if os.Getenv("UPDATE_TESTDATA") != "" {
			require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), b.String(), "%s: UPDATE_TESTDATA=1 writes it again", file)
	}
}

// TestTAPConsumer gives the output to the parser that prove(1) reads it with.
func TestTAPConsumer(t *testing.T) {
	const script = `use TAP::Parser; local $/; binmode STDIN, ":utf8"; binmode STDOUT, ":utf8";
		my $p = TAP::Parser->new({tap => scalar <STDIN>});
		while (my $r = $p->next) {
			printf "%s %s %s\n", $r->number, $r->is_actual_ok ? "ok" : "not", $r->directive || "-" if $r->is_test;
			print "unknown: ", $r->as_string, "\n" if $r->is_unknown;
		}
		print "error: $_\n" for $p->parse_errors;
		printf "version %s, planned %s\n", $p->version, $p->tests_planned;`
	if err := exec.Command("perl", "-MTAP::Parser", "-e", "1").Run(); err != nil {
		t.Skip("needs perl with TAP::Parser")
	}
	var b bytes.Buffer
	require.NoError(t, writeTAP(&b, sample()))
	perl := exec.Command("perl", "-e", script)
	perl.Stdin = &b
	out, err := perl.CombinedOutput()
	require.NoError(t, err, "%s", out)
	want := map[Verdict]string{VerdictBlocked: "ok -", VerdictDegraded: "ok -", VerdictEscaped: "not TODO", VerdictError: "not -", VerdictVacuous: "not TODO", VerdictSkipped: "ok SKIP"}
	var lines []string
	for i, v := range Verdicts {
		lines = append(lines, strconv.Itoa(i+1)+" "+want[v])
	}
	lines = append(lines, fmt.Sprintf("version 13, planned %d", len(Verdicts)))
	require.Equal(t, strings.Join(lines, "\n")+"\n", string(out))
}

// TestTAP reads the output as a consumer does: version, plan, then one line a
// test, numbered, with directives that nothing in a name can forge.
func TestTAP(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeTAP(&b, sample()))
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	require.Equal(t, "TAP version 13", lines[0])
	require.Equal(t, "1.."+strconv.Itoa(len(Verdicts)), lines[1])
	test := regexp.MustCompile(`^(not )?ok (\d+) - (.*?[^\\])( # (SKIP|TODO) .*)?$`)
	n, yaml := 0, false
	for _, line := range lines[2:] {
		switch {
		case line == "  ---":
			yaml = true
		case line == "  ...":
			yaml = false
		case yaml:
			require.Regexp(t, `^  [a-z]+: `, line)
		default:
			m := test.FindStringSubmatch(line)
			require.NotNil(t, m, line)
			n++
			require.Equal(t, strconv.Itoa(n), m[2])
			require.Equal(t, Verdicts[n-1] == VerdictEscaped || Verdicts[n-1] == VerdictError || Verdicts[n-1] == VerdictVacuous, m[1] != "", line)
			require.Equal(t, Verdicts[n-1] == VerdictSkipped, m[5] == "SKIP", line)
			require.Equal(t, Verdicts[n-1] == VerdictVacuous || Verdicts[n-1] == VerdictEscaped, m[5] == "TODO", line)
		}
	}
	require.Equal(t, len(Verdicts), n)
}

// TestFormatsAgree holds what a reader of each format makes of a run to the
// exit status: all is well in all of them, or in none.
func TestFormatsAgree(t *testing.T) {
	held := Result{ID: "FS-001", Guarantee: profiles.FSHide, Severity: High, Verdict: VerdictBlocked, Target: "x"}
	but := func(change func(*Result)) []Result {
		other := held
		other.ID, other.Verdict, other.Claim = "FS-002", VerdictEscaped, "kept"
		change(&other)
		return []Result{held, other}
	}
	for name, row := range map[string]struct {
		results  []Result
		untested []profiles.Guarantee
		exit     int
		note     string
	}{
		"held":                {results: []Result{held}},
		"an escape":           {results: but(func(*Result) {}), exit: 1},
		"not claimed":         {results: but(func(res *Result) { res.Claim = "missing" }), note: "known gap: not claimed"},
		"accepted":            {results: but(func(res *Result) { res.Accepted = "meant" }), note: "accepted: meant"},
		"below the threshold": {results: but(func(res *Result) { res.Severity = Low }), note: "below --fail-on medium"},
		"an error":            {results: but(func(res *Result) { res.Verdict = VerdictError }), exit: 2},
		"untested":            {results: []Result{held}, untested: []profiles.Guarantee{profiles.NetDNS}, exit: 2},
		"nothing meaningful":  {results: but(func(res *Result) { res.Verdict = VerdictVacuous })[1:], exit: 3},
		"nothing":             {exit: 3},
	} {
		r := &Report{Results: row.results, targets: []string{"x"}, failOn: Medium, Untested: map[string][]profiles.Guarantee{}}
		if row.untested != nil {
			r.Untested["x"] = row.untested
		}
		require.Equal(t, row.exit, r.Exit(), name)

		var text bytes.Buffer
		require.NoError(t, writeJUnit(&text, r))
		suites, err := junit.Ingest(text.Bytes())
		require.NoError(t, err)
		require.Equal(t, row.exit != 0, suites[0].Totals.Failed+suites[0].Totals.Error > 0, "%s: %s", name, &text)
		require.Contains(t, text.String(), row.note, name)

		text.Reset()
		require.NoError(t, writeTAP(&text, r))
		failed := strings.Contains(text.String(), "Bail out!")
		for _, line := range strings.Split(text.String(), "\n") {
			failed = failed || strings.HasPrefix(line, "not ok") && !strings.Contains(line, " # TODO ")
		}
		require.Equal(t, row.exit != 0, failed, "%s: %s", name, &text)
		require.Contains(t, text.String(), row.note, name)

		text.Reset()
		require.NoError(t, writeSARIF(&text, r))
		require.Contains(t, text.String(), fmt.Sprintf(`"exitCode": %d,`, row.exit), name)

		for _, write := range []format{writeMarkdown, func(w io.Writer, r *Report) error { return writeTable(w, r, tableStyle{}) }} {
			text.Reset()
			require.NoError(t, write(&text, r))
			require.Contains(t, text.String(), row.note, name)
		}
	}
}

func TestMarkdown(t *testing.T) {
	var md bytes.Buffer
	r := sample()
	require.NoError(t, writeMarkdown(&md, r))
	require.Regexp(t, `(?m)^\d+ escaped; .*\d+ skipped$`, md.String())
	require.NotContains(t, md.String(), "<script>")
	require.NotContains(t, md.String(), "\x1b")
	second := *r
	second.targets = append(second.targets, "other")
	for _, res := range r.Results {
		res.Target = "other"
		second.Results = append(second.Results, res)
	}
	md.Reset()
	require.NoError(t, writeMarkdown(&md, &second))
	require.Contains(t, md.String(), "| escapes |")
}

func TestTable(t *testing.T) {
	var plain, colour bytes.Buffer
	require.NoError(t, writeTable(&plain, sample(), tableStyle{All: true}))
	require.NotContains(t, plain.String(), "\x1b")
	require.Contains(t, plain.String(), "[accepted: reason]")
	require.Regexp(t, `(?m)^  breaches of a claim: \S+.*\n  leaks that nobody claims to stop, or that are accepted: \S+`, plain.String())
	require.NoError(t, writeTable(&colour, sample(), tableStyle{Colour: true}))
	require.Contains(t, colour.String(), "\x1b[31;1m")
	require.NotContains(t, colour.String(), "\x1b[31m|")
}

// The table ends with one line that says what the exit status says.
func TestVerdict(t *testing.T) {
	blocked, degraded := Result{Verdict: VerdictBlocked, Severity: High}, Result{Verdict: VerdictDegraded, Severity: High}
	escaped, failed := Result{Verdict: VerdictEscaped, Severity: High}, Result{Verdict: VerdictError}
	for want, c := range map[string]struct {
		code    int
		results []Result
		report  Report
	}{
		"every claim that was tried holds: 2 probes were stopped, 1 of them by a weak mechanism": {0, []Result{blocked, degraded}, Report{}},
		"every claim that was tried holds: 1 probes were stopped":                                {0, []Result{blocked}, Report{}},
		"a claim does not hold: 1 probes escaped":                                                {1, []Result{blocked, escaped}, Report{}},
		"not known: 1 probes failed, 0 claims are untested":                                      {2, []Result{blocked, failed}, Report{}},
		errNothing.Error(): {3, nil, Report{}},
		"interrupted by SIGINT: what was not tried by then is not known": {130, []Result{escaped}, Report{Interrupted: &interrupted{syscall.SIGINT}}},
	} {
		r := c.report
		r.Results, r.failOn = c.results, Low
		require.Equal(t, c.code, r.Exit(), want)
		var b bytes.Buffer
		require.NoError(t, writeTable(&b, &r, tableStyle{}))
		require.True(t, strings.HasSuffix(b.String(), "\nverdict: "+want+"\n") || b.String() == "verdict: "+want+"\n", "%s: %s", want, b.String())
	}
}

func TestBaseline(t *testing.T) {
	today := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	good := `{"accept": [{"id": "FS-001", "reason": "known", "expires": "2026-11-21"}]}`
	waivers, err := parseBaseline("b", []byte(good), today)
	require.NoError(t, err)
	results := []Result{{ID: "FS-001", Verdict: VerdictEscaped, Severity: Critical}, {ID: "FS-002", Verdict: VerdictEscaped}}
	require.Empty(t, accept(results, waivers))
	require.Equal(t, "known (until 2026-11-21)", results[0].Accepted)
	require.Empty(t, results[1].Accepted)
	require.Equal(t, waivers, accept([]Result{{ID: "FS-001", Verdict: VerdictBlocked}}, waivers), "what is stopped need not be accepted")
	require.Empty(t, accept([]Result{{ID: "FS-001", Verdict: VerdictSkipped}}, waivers), "not tried")
	for name, text := range map[string]string{
		"expired":       strings.Replace(good, "2026-11-21", "2026-11-20", 1),
		"no reason":     strings.Replace(good, "known", "", 1),
		"no day":        strings.Replace(good, "2026-11-21", "never", 1),
		"no probe":      strings.Replace(good, "FS-001", "FS-999", 1),
		"unknown key":   strings.Replace(good, `"reason"`, `"because"`, 1),
		"text after":    good + good,
		"not an object": `[]`,
	} {
		_, err := parseBaseline("b", []byte(text), today)
		require.Error(t, err, name)
		require.Contains(t, err.Error(), "baseline b: ")
	}
}

func FuzzBaseline(f *testing.F) {
	f.Add([]byte(`{"accept": [{"id": "FS-001", "reason": "known", "expires": "2026-11-21"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseBaseline("b", data, time.Now())
		if err != nil {
			return
		}
		for _, w := range list {
			require.NotEmpty(t, w.Reason)
			require.NotNil(t, Find(w.ID))
		}
	})
}
