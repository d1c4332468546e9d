package escape

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// A Report is all that a run of the suite has to say; the formats are views of it.
type Report struct {
	Schema      int                             `json:"schema"`
	Began       time.Time                       `json:"began"`
	Took        time.Duration                   `json:"took_ns"`
	Environment []Fact                          `json:"environment"`
	Claims      map[string][]Claim              `json:"claims,omitempty"`
	Untested    map[string][]profiles.Guarantee `json:"untested,omitempty"` // claimed, and no probe said anything
	Results     []Result                        `json:"results"`
	Layers      []LayerRow                      `json:"layers,omitempty"`
	Interrupted *interrupted                    `json:"-"` // nil: it ran to its end

	targets []string
	failOn  Severity // the mildest escape that fails
	strict  bool     // the target of Layers is: see depths
}

// A Fact is one line of the environment block.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// environmentFacts describes the machine and the launcher.
func environmentFacts(t *Target) []Fact {
	var u unix.Utsname
	unix.Uname(&u)
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			return "absent"
		}
		return strings.TrimSpace(string(data))
	}
	facts := []Fact{
		{"kernel", unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])},
		{"uid", strconv.Itoa(os.Getuid())},
		{"security modules", read("/sys/kernel/security/lsm")},
		{"Landlock ABI", landlockABI()},
		{"seccomp actions", read("/proc/sys/kernel/seccomp/actions_avail")},
		{"control groups", cgroupVersion()},
	}
	for _, name := range []string{"user.max_user_namespaces", "kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns", "kernel.yama.ptrace_scope", "kernel.kptr_restrict", "kernel.unprivileged_bpf_disabled", "dev.tty.legacy_tiocsti", "kernel.core_pattern"} {
		facts = append(facts, Fact{name, read("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))})
	}
	sum := func(name, prefix string, data []byte, err error) {
		if err == nil {
			facts = append(facts, Fact{name, fmt.Sprintf("%ssha256:%x", prefix, sha256.Sum256(data))})
		}
	}
	data, err := os.ReadFile(t.Launcher)
	sum("launcher", filepath.Base(t.Launcher)+" ", data, err)
	if t.plan != nil {
		facts = append(facts, Fact{"version", t.version}, Fact{"profile", t.profile})
		sum("plan", "", t.plan, nil)
		data, err := os.ReadFile(t.Profile)
		sum("profile's file", "", data, err)
	}
	return facts
}

func landlockABI() string {
	const version = 1
	abi, err := Call(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if err != nil {
		return err.Error()
	}
	return strconv.Itoa(int(abi))
}

func cgroupVersion() string {
	var st unix.Statfs_t
	if unix.Statfs("/sys/fs/cgroup", &st) != nil {
		return "none"
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return "v2"
	}
	return "v1"
}

// counts of verdicts.
type counts map[Verdict]int

// tally counts the results that are wanted.
func (r *Report) tally(wanted func(*Result) bool) counts {
	n := counts{}
	for i := range r.Results {
		if wanted(&r.Results[i]) {
			n[r.Results[i].Verdict]++
		}
	}
	return n
}

// counts are those of one target.
func (r *Report) counts(target string) counts {
	return r.tally(func(res *Result) bool { return res.Target == target })
}

// join writes them, each as it is painted; the zeros too, if all are wanted.
func (n counts) join(separator string, all bool, paint func(Verdict, string) string) string {
	var parts []string
	for _, v := range Verdicts {
		if all || n[v] > 0 {
			parts = append(parts, paint(v, fmt.Sprintf("%d %s", n[v], v)))
		}
	}
	return strings.Join(parts, separator)
}

func plain(_ Verdict, text string) string { return text }

// excuse says why an escape does not count against the target, "" where it
// does: it is accepted, or a gap that is not claimed, or below the threshold.
func (res *Result) excuse(threshold Severity) string {
	switch {
	case res.Verdict != VerdictEscaped:
		return ""
	case res.Accepted != "":
		return "accepted: " + printable(res.Accepted)
	case res.Claim == profiles.Missing.String():
		return "known gap: not claimed"
	case res.Gap != "":
		return "known gap: " + res.Gap
	case res.Severity < threshold:
		return "below --fail-on " + threshold.String()
	}
	return ""
}

// failed says whether a result counts against the target.
func (res *Result) failed(threshold Severity) bool {
	return res.Verdict == VerdictEscaped && res.excuse(threshold) == ""
}

// errNothing is of a run of which no result says anything.
var errNothing = errors.New("nothing meaningful ran: all that was chosen is vacuous, skipped, or did not start")

// whole returns why the results do not make a run, nil where they do.
func (r *Report) whole() error {
	if r.Interrupted != nil {
		return r.Interrupted
	}
	if !slices.ContainsFunc(r.Results, func(res Result) bool {
		return res.Verdict == VerdictBlocked || res.Verdict == VerdictDegraded || res.Verdict == VerdictEscaped
	}) {
		return errNothing
	}
	return nil
}

// Exit is the status of the whole: 0 all claims hold; 1 an escape at or above
// the threshold; 2 the suite itself failed, or left a claim untested; 3 nothing
// meaningful ran; 128 and the number of the signal that ended it before it was
// through, whatever was known by then.
func (r *Report) Exit() int {
	err := r.whole()
	switch {
	case r.Interrupted != nil:
		return r.Interrupted.exit()
	case slices.ContainsFunc(r.Results, func(res Result) bool { return res.failed(r.failOn) }):
		return 1
	case err != nil:
		return 3
	case len(r.Untested) > 0 || slices.ContainsFunc(r.Results, func(res Result) bool { return res.Verdict == VerdictError }):
		return 2
	}
	return 0
}

// verdict says in one line what [Report.Exit] says in a number.
func (r *Report) verdict() string {
	n := r.tally(func(*Result) bool { return true })
	switch r.Exit() {
	case 0:
		text := fmt.Sprintf("every claim that was tried holds: %d probes were stopped", n[VerdictBlocked]+n[VerdictDegraded])
		if n[VerdictDegraded] > 0 {
			text += fmt.Sprintf(", %d of them by a weak mechanism", n[VerdictDegraded])
		}
		return text
	case 1:
		failed := r.tally(func(res *Result) bool { return res.failed(r.failOn) })
		return fmt.Sprintf("a claim does not hold: %d probes escaped", failed[VerdictEscaped])
	case 2:
		untested := 0
		for _, list := range r.Untested {
			untested += len(list)
		}
		return fmt.Sprintf("not known: %d probes failed, %d claims are untested", n[VerdictError], untested)
	case 3:
		return errNothing.Error()
	}
	return r.Interrupted.Error() + ": what was not tried by then is not known"
}

// A format writes a report for one kind of reader.
type format func(io.Writer, *Report) error

// formats by the flag that asks for them, and by the ending of a file's name.
var formats = []struct {
	flag, ending string
	write        format
}{
	{"json", ".json", writeJSON},
	{"junit", ".xml", writeJUnit},
	{"sarif", ".sarif", writeSARIF},
	{"tap", ".tap", writeTAP},
	formatMarkdown: {"markdown", ".md", writeMarkdown},
}

// formatMarkdown is the place of Markdown among the formats.
const formatMarkdown = 4

// writeJSON writes one object a line, one line a probe.
func writeJSON(w io.Writer, r *Report) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for i := range r.Results {
		if err := enc.Encode(&r.Results[i]); err != nil {
			return err
		}
	}
	return nil
}

// printable makes a line of what may hold anything: evidence comes from inside.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return ' '
		case !strconv.IsPrint(c):
			return '\uFFFD'
		}
		return c
	}, s)
}

func (res *Result) evidence() string {
	switch res.Verdict {
	case VerdictSkipped, VerdictVacuous, VerdictError:
		return printable(res.Reason)
	}
	return printable(res.Inside.Detail)
}

// note is what stands behind the evidence of an escape that does not count.
func (r *Report) note(res *Result) string {
	if excuse := res.excuse(r.failOn); excuse != "" {
		return " [" + excuse + "]"
	}
	return ""
}

// cell makes text fit into a column of a Markdown table.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "`", "'").Replace(printable(s))
}

func writeMarkdown(w io.Writer, r *Report) error {
	if len(r.targets) > 1 {
		return writeMatrix(w, r)
	}
	var b strings.Builder
	writeInterrupted(&b, r)
	for _, target := range r.targets {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n| probe | severity | guarantee | verdict | evidence |\n|---|---|---|---|---|\n",
			cell(target), r.counts(target).join("; ", true, plain))
		for i := range r.Results {
			res := &r.Results[i]
			if res.Target == target && res.Verdict != VerdictBlocked && res.Verdict != VerdictSkipped {
				fmt.Fprintf(&b, "| %s %s | %s | %s | %s | %s |\n", res.ID, cell(res.Name), res.Severity, res.Guarantee, res.Verdict, cell(res.evidence()+r.note(res)))
			}
		}
	}
	b.WriteString("\n| environment | |\n|---|---|\n")
	for _, f := range r.Environment {
		fmt.Fprintf(&b, "| %s | %s |\n", f.Name, cell(f.Value))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeInterrupted heads a report for people that is not whole.
func writeInterrupted(b *strings.Builder, r *Report) {
	if r.Interrupted != nil {
		fmt.Fprintf(b, "%v: what had not ended by then is skipped\n\n", r.Interrupted)
	}
}

// marks of a matrix.
var marks = map[Verdict]string{
	VerdictBlocked: "✓", VerdictDegraded: "~", VerdictEscaped: "✗", VerdictVacuous: "?", VerdictSkipped: "·", VerdictError: "!",
}

// writeMatrix writes launchers by probes, after a summary by severity.
func writeMatrix(w io.Writer, r *Report) error {
	var b strings.Builder
	writeInterrupted(&b, r)
	b.WriteString("| escapes |")
	for _, target := range r.targets {
		b.WriteString(" " + cell(target) + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(r.targets)) + "\n")
	for _, s := range []Severity{Critical, High, Medium, Low, Info} {
		if len(r.tally(func(res *Result) bool { return res.Severity == s })) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s |", s)
		for _, target := range r.targets {
			n := r.tally(func(res *Result) bool { return res.Target == target && res.Severity == s })
			fmt.Fprintf(&b, " %d of %d |", n[VerdictEscaped], n[VerdictEscaped]+n[VerdictBlocked]+n[VerdictDegraded])
		}
		b.WriteString("\n")
	}
	b.WriteString("\n✓ blocked, ~ degraded, ✗ escaped, ? vacuous, · skipped, ! error\n\n| probe | severity |")
	for _, target := range r.targets {
		b.WriteString(" " + cell(target) + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat(":-:|", len(r.targets)) + "\n")
	for _, row := range r.rows() {
		if !slices.ContainsFunc(row, func(res *Result) bool { return res.Verdict != VerdictSkipped }) {
			continue
		}
		fmt.Fprintf(&b, "| %s %s | %s |", row[0].ID, cell(row[0].Name), row[0].Severity)
		for _, res := range row {
			b.WriteString(" " + marks[res.Verdict] + " |")
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// rows are the results by probe, in the order of targets.
func (r *Report) rows() [][]*Result {
	var rows [][]*Result
	for i := range r.Results {
		res := &r.Results[i]
		at := slices.IndexFunc(rows, func(row []*Result) bool { return row[0].ID == res.ID })
		if at < 0 {
			rows = append(rows, []*Result{res})
		} else {
			rows[at] = append(rows[at], res)
		}
	}
	return rows
}

// writeTable writes what a person at a terminal reads: groups by guarantee,
// the worst first within each; blocks and skips are only counted unless all is
// asked for.
func writeTable(w io.Writer, r *Report, style tableStyle) error {
	colours := map[Verdict]string{VerdictBlocked: "32", VerdictDegraded: "33", VerdictEscaped: "31;1", VerdictVacuous: "35", VerdictSkipped: "2", VerdictError: "31"}
	paint := func(v Verdict, text string) string {
		if !style.Colour {
			return text
		}
		return "\x1b[" + colours[v] + "m" + text + "\x1b[0m"
	}
	var b strings.Builder
	writeInterrupted(&b, r)
	for _, target := range r.targets {
		groups := map[profiles.Guarantee][]*Result{}
		var order []profiles.Guarantee
		for i := range r.Results {
			res := &r.Results[i]
			if res.Target != target {
				continue
			}
			if groups[res.Guarantee] == nil {
				order = append(order, res.Guarantee)
			}
			groups[res.Guarantee] = append(groups[res.Guarantee], res)
		}
		fmt.Fprintf(&b, "%s\n", printable(target))
		notRun := func(res Result) bool { return res.Target == target && strings.HasPrefix(res.Reason, notStarted) }
		if i := slices.IndexFunc(r.Results, notRun); i >= 0 {
			fmt.Fprintf(&b, "  %s\n", paint(VerdictError, printable(r.Results[i].Reason)))
			continue
		}
		for _, g := range order {
			n := r.tally(func(res *Result) bool { return res.Target == target && res.Guarantee == g })
			claim := ""
			if c := groups[g][0].Claim; c != "" {
				claim = " (claimed " + c + ")"
			}
			fmt.Fprintf(&b, "  %-18s %s%s\n", g, n.join(", ", false, paint), claim)
			for _, v := range Verdicts {
				if !style.All && (v == VerdictBlocked || v == VerdictSkipped || v == VerdictDegraded) {
					continue
				}
				for _, res := range groups[g] {
					if res.Verdict == v {
						fmt.Fprintf(&b, "    %s %-8s %-8s %s: %s%s\n", paint(v, fmt.Sprintf("%-8s", v)), res.ID, res.Severity, res.Name, res.evidence(), r.note(res))
					}
				}
			}
			for _, res := range groups[g] {
				for _, f := range res.Findings {
					fmt.Fprintf(&b, "    finding  %-8s low      %s: %s\n", res.ID, res.Name, f)
				}
			}
		}
		fmt.Fprintf(&b, "  %s in %s\n", r.counts(target).join(", ", true, paint), r.Took.Round(time.Second/10))
		r.writeEscapes(&b, target, paint)
		for _, g := range r.Untested[target] {
			fmt.Fprintf(&b, "  claimed and not tested: %s\n", g)
		}
	}
	if len(r.Layers) > 0 {
		writeLayers(&b, r.Layers, r.strict)
	}
	fmt.Fprintf(&b, "verdict: %s\n", r.verdict())
	_, err := io.WriteString(w, b.String())
	return err
}

// writeEscapes names a target's escapes: those that break a claim apart from the others.
func (r *Report) writeEscapes(b *strings.Builder, target string, paint func(Verdict, string) string) {
	var breaches, leaks []string
	for i := range r.Results {
		switch res := &r.Results[i]; {
		case res.Target != target || res.Verdict != VerdictEscaped:
		case res.failed(r.failOn):
			breaches = append(breaches, res.ID)
		default:
			leaks = append(leaks, res.ID)
		}
	}
	if len(breaches) > 0 {
		fmt.Fprintf(b, "  breaches of a claim: %s\n", paint(VerdictEscaped, strings.Join(breaches, " ")))
	} else {
		b.WriteString("  breaches of a claim: none\n")
	}
	if len(leaks) > 0 {
		fmt.Fprintf(b, "  leaks that nobody claims to stop, or that are accepted: %s\n", strings.Join(leaks, " "))
	}
}

type tableStyle struct{ Colour, All bool }
