package escape

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// These are the formats that other programs read.

// writeTAP writes version 13 of the Test Anything Protocol.
func writeTAP(w io.Writer, r *Report) error {
	planned := len(r.Results)
	for _, target := range r.targets {
		planned += len(r.Untested[target])
	}
	fmt.Fprintf(w, "TAP version 13\n1..%d\n", planned)
	escape := strings.NewReplacer("#", "\\#", "\\", "\\\\")
	for i := range r.Results {
		res := &r.Results[i]
		name := escape.Replace(printable(fmt.Sprintf("%s %s: %s", res.Target, res.ID, res.Name)))
		note := escape.Replace(res.evidence())
		if excuse := res.excuse(r.failOn); excuse != "" {
			fmt.Fprintf(w, "not ok %d - %s # TODO %s: %s\n", i+1, name, escape.Replace(excuse), note)
			continue
		}
		switch res.Verdict {
		case VerdictSkipped:
			fmt.Fprintf(w, "ok %d - %s # SKIP %s\n", i+1, name, note)
		case VerdictVacuous:
			fmt.Fprintf(w, "not ok %d - %s # TODO vacuous: %s\n", i+1, name, note)
		case VerdictEscaped, VerdictError:
			if _, err := fmt.Fprintf(w, "not ok %d - %s\n  ---\n  verdict: %s\n  severity: %s\n  message: %s\n  reproduce: %s\n  ...\n",
				i+1, name, res.Verdict, res.Severity, strconv.Quote(res.evidence()), strconv.Quote(res.Reproduce)); err != nil {
				return err
			}
		default:
			fmt.Fprintf(w, "ok %d - %s\n", i+1, name)
		}
	}
	n := len(r.Results)
	for _, target := range r.targets {
		for _, g := range r.Untested[target] {
			n++
			fmt.Fprintf(w, "not ok %d - %s %s: claimed and not tested\n", n, escape.Replace(printable(target)), g)
		}
	}
	if err := r.whole(); err != nil {
		_, err := fmt.Fprintf(w, "Bail out! %v\n", err)
		return err
	}
	return nil
}

type junitCase struct {
	Class   string  `xml:"classname,attr"`
	Name    string  `xml:"name,attr"`
	Seconds string  `xml:"time,attr"`
	Failure *junit1 `xml:"failure,omitempty"`
	Error   *junit1 `xml:"error,omitempty"`
	Skipped *junit1 `xml:"skipped,omitempty"`
}

type junit1 struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Seconds  string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

// writeJUnit writes one suite a target.
func writeJUnit(w io.Writer, r *Report) error {
	var suites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
	for _, target := range r.targets {
		s := junitSuite{Name: printable(target)}
		var took time.Duration
		for i := range r.Results {
			res := &r.Results[i]
			if res.Target != target {
				continue
			}
			took += res.Duration
			c := junitCase{Class: string(res.Guarantee), Name: res.ID + " " + res.Name, Seconds: seconds(res.Duration)}
			note := &junit1{Message: res.evidence(), Type: string(res.Verdict), Text: printable(res.Reproduce)}
			excuse := res.excuse(r.failOn)
			switch res.Verdict {
			case VerdictEscaped:
				if excuse != "" {
					note.Message = excuse + ": " + note.Message
					c.Skipped, s.Skipped = note, s.Skipped+1
					break
				}
				c.Failure, s.Failures = note, s.Failures+1
			case VerdictError:
				c.Error, s.Errors = note, s.Errors+1
			case VerdictSkipped, VerdictVacuous:
				c.Skipped, s.Skipped = note, s.Skipped+1
			}
			s.Cases, s.Tests = append(s.Cases, c), s.Tests+1
		}
		fail := func(name, message, kind string) {
			s.Cases, s.Tests, s.Errors = append(s.Cases, junitCase{
				Class: "run", Name: name, Seconds: seconds(0), Error: &junit1{Message: message, Type: kind},
			}), s.Tests+1, s.Errors+1
		}
		for _, g := range r.Untested[target] {
			fail(string(g)+" is tested", "claimed and not tested", "untested")
		}
		switch err := r.whole(); { // skipped ones alone would look as if all were well
		case r.Interrupted != nil:
			fail("run to the end", err.Error(), "interrupted")
		case err != nil:
			fail("something is tested", err.Error(), "vacuous")
		}
		s.Seconds = seconds(took)
		suites.Suites = append(suites.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(suites); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// writeSARIF writes version 2.1.0: a run a target, a rule a probe, a result for
// each escape, error, vacuous probe and finding.
func writeSARIF(w io.Writer, r *Report) error {
	type object = map[string]any
	level := func(s Severity) string {
		switch {
		case s >= High:
			return "error"
		case s == Medium:
			return "warning"
		}
		return "note"
	}
	score := [...]string{"0.0", "3.0", "5.5", "8.0", "9.5"}
	invocation := object{"executionSuccessful": r.Interrupted == nil, "startTimeUtc": r.Began.UTC().Format("2006-01-02T15:04:05Z"), "exitCode": r.Exit()}
	if i := r.Interrupted; i != nil {
		invocation["exitSignalName"], invocation["exitSignalNumber"] = unix.SignalName(i.Signal), int(i.Signal)
		invocation["toolExecutionNotifications"] = []object{{"level": "error", "message": object{"text": i.Error() + ": what had not ended by then is not among the results"}}}
	}
	runs := []object{}
	for _, target := range r.targets {
		rules, index, results := []object{}, map[string]int{}, []object{}
		for i := range r.Results {
			res := &r.Results[i]
			if res.Target != target {
				continue
			}
			if _, known := index[res.ID]; !known {
				index[res.ID] = len(rules)
				help := "Expected: " + res.Expect + "."
				explain := res.Name
				if p := Find(res.ID); p != nil && p.Explain != "" {
					explain = p.Explain
				}
				rules = append(rules, object{
					"id": res.ID, "name": strings.ReplaceAll(res.ID, "-", ""),
					"shortDescription":     object{"text": res.Name},
					"fullDescription":      object{"text": explain},
					"help":                 object{"text": help + " Reproduce: " + res.Reproduce},
					"defaultConfiguration": object{"level": level(res.Severity)},
					"properties":           object{"security-severity": score[res.Severity], "tags": []string{"security", string(res.Guarantee)}},
				})
			}
			add := func(level, kind, text string) {
				result := object{
					"ruleId": res.ID, "ruleIndex": index[res.ID], "level": level, "kind": kind, "message": object{"text": text},
					"locations":           []object{{"logicalLocations": []object{{"name": string(res.Guarantee), "fullyQualifiedName": target + "/" + string(res.Guarantee), "kind": "module"}}}},
					"partialFingerprints": object{"probe/v1": target + "/" + res.ID},
				}
				if excuse := res.excuse(Info); excuse != "" { // what is mild its level says
					result["suppressions"] = []object{{"kind": "external", "status": "accepted", "justification": excuse}}
				}
				results = append(results, result)
			}
			switch res.Verdict {
			case VerdictEscaped:
				add(level(res.Severity), "fail", res.Name+": "+res.evidence())
			case VerdictError, VerdictVacuous:
				add("none", "open", string(res.Verdict)+": "+res.evidence())
			}
			for _, f := range res.Findings {
				add("note", "fail", res.Name+": "+f)
			}
		}
		runs = append(runs, object{
			"tool":              object{"driver": object{"name": "pccrun escape", "version": strconv.Itoa(Schema), "rules": rules}},
			"automationDetails": object{"id": "pccrun-escape/" + target + "/"},
			"invocations":       []object{invocation},
			"results":           results,
		})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(object{
		"$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
		"version": "2.1.0", "runs": runs,
	})
}
