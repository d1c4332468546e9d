package escape

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// Severity says how bad an escape is.
type Severity uint8

// The severities, from the mildest: info must match the profile; low and medium
// are hardening; high is one step away from critical; critical is a broken
// boundary: a host write, a secret read, free egress, execution on the host.
const (
	Info Severity = iota
	Low
	Medium
	High
	Critical
)

var severityNames = [...]string{"info", "low", "medium", "high", "critical"}

func (s Severity) String() string { return severityNames[s] }

// MarshalText writes the severity as reports show it.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Severity) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSeverity(string(text))
	return err
}

// ParseSeverity returns the severity that a word names.
func ParseSeverity(word string) (Severity, error) {
	for i, name := range severityNames {
		if word == name {
			return Severity(i), nil
		}
	}
	return 0, fmt.Errorf("severity %q: want one of %s", word, strings.Join(severityNames[:], ", "))
}

// A Probe is one attempt to break one guarantee.
type Probe struct {
	ID         string // stable: reports, baselines and issue trackers refer to it
	Name       string
	Guarantee  profiles.Guarantee
	Severity   Severity
	Expect     string  // how a correct sandbox blocks it
	Errnos     []Errno // what a block may look like; nil: any
	References []string
	Explain    string // what is tried and why it matters
	Key        string // the profile key that governs it
	Gap        string // the words by which a launcher's weak claim excludes it: see [Result.Gap]

	Needs   []Need // without these it is skipped, by the name of the first that is missing
	Setting Setting
	Flags   []string // what pccrun needs on its command line for this probe; {names} as in [Wrap]
	ByCalls bool     // it stops the launcher at its system calls
	Long    bool     // runs only when long probes are asked for
	Root    bool     // a launcher of root's stops it by other means than one of a user's

	// Payload tries, inside. A probe without one is a record: its needs cannot
	// be met on this platform.
	Payload func(*Inside) Outcome
	// Control replaces the payload in the control, where that cannot, or need not, do the same.
	Control func(*Inside) Outcome
	// Observe has the last word where the truth is visible only from outside.
	// It is given what the payload said.
	Observe func(*Outside, Outcome) Outcome
	// Drive replaces the single run of the payload for probes that start the
	// sandbox several times or end it in mid-run.
	Drive func(*Drive) Outcome
}

// Area is the part of the id before the number: FS, NET, ….
func (p *Probe) Area() string {
	area, _, _ := strings.Cut(p.ID, "-")
	return area
}

// A Setting says where and how a probe's sandbox is started.
type Setting uint8

// The settings, to be or'ed.
const (
	// Caged starts the launcher inside a cage too: the payload would harm the
	// host if the sandbox did not hold, or needs addresses that only a network
	// namespace of the suite's has.
	Caged Setting = 1 << iota
	// Terminal gives the launcher a terminal in place of pipes.
	Terminal
	// Leaky leaves descriptors of canaries open in the launcher.
	Leaky
	// Proxy gives the control an open proxy, and the target a list of allowed
	// names. A launcher without flags for such a list is skipped.
	Proxy
)

// Kind is what became of one attempt.
type Kind string

// The kinds of outcome.
const (
	DidBlock  Kind = "blocked"
	DidEscape Kind = "escaped"
	Unmet     Kind = "unmet"  // a precondition is missing where the payload ran
	Broke     Kind = "broken" // the attempt could not be made
)

// An Outcome is what one attempt came to.
type Outcome struct {
	Kind   Kind   `json:"kind"`
	Errno  Errno  `json:"errno,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Escaped is the outcome of an attempt that succeeded.
func Escaped(format string, args ...any) Outcome {
	return Outcome{Kind: DidEscape, Detail: fmt.Sprintf(format, args...)}
}

// Blocked is the outcome of an attempt that was refused, or found nothing.
func Blocked(format string, args ...any) Outcome {
	return Outcome{Kind: DidBlock, Errno: errnoIn(args), Detail: fmt.Sprintf(format, args...)}
}

// Needing is the outcome of an attempt that lacks something.
func Needing(what string) Outcome { return Outcome{Kind: Unmet, Detail: what} }

// Broken is the outcome of an attempt that went wrong by itself.
func Broken(format string, args ...any) Outcome {
	return Outcome{Kind: Broke, Detail: fmt.Sprintf(format, args...)}
}

// Verdict is what both runs of a probe together say of a sandbox.
type Verdict string

// The verdicts.
const (
	VerdictBlocked  Verdict = "blocked"
	VerdictEscaped  Verdict = "escaped"
	VerdictDegraded Verdict = "degraded" // blocked, by what the launcher itself calls weak
	VerdictVacuous  Verdict = "vacuous"  // the control did not escape: nothing is proven
	VerdictSkipped  Verdict = "skipped"  // a precondition is missing, named
	VerdictError    Verdict = "error"    // the payload did not run to its end
)

// Verdicts lists the verdicts in the order of reports.
var Verdicts = []Verdict{VerdictEscaped, VerdictError, VerdictVacuous, VerdictDegraded, VerdictBlocked, VerdictSkipped}

// A Claim is what the launcher says of a guarantee before anything is tried.
type Claim struct {
	Guarantee profiles.Guarantee `json:"guarantee"`
	State     string             `json:"state"` // kept, weak, missing; "" where the launcher does not say
	Mechanism string             `json:"mechanism,omitempty"`
	Cause     string             `json:"cause,omitempty"`
}

// A Result is the record of one probe against one target.
type Result struct {
	Schema    int                `json:"schema"`
	ID        string             `json:"id"`
	Name      string             `json:"name"`
	Guarantee profiles.Guarantee `json:"guarantee"`
	Severity  Severity           `json:"severity"`
	Verdict   Verdict            `json:"verdict"`
	Target    string             `json:"target"`
	Claim     string             `json:"claim,omitempty"`
	Gap       string             `json:"gap,omitempty"`    // what the launcher says of its weak claim, and this is
	Reason    string             `json:"reason,omitempty"` // why skipped, vacuous or error
	Inside    Outcome            `json:"inside"`
	Control   Outcome            `json:"control"`
	Expect    string             `json:"expected,omitempty"`
	Findings  []string           `json:"findings,omitempty"` // blocked, but not as it should be
	Refs      []string           `json:"references,omitempty"`
	StoppedBy []string           `json:"stopped_by,omitempty"` // the layers that stop it alone, if asked for
	Reproduce string             `json:"reproduce"`
	Accepted  string             `json:"accepted,omitempty"` // the baseline's reason
	Duration  time.Duration      `json:"duration_ns"`
}

// Schema is the number of the shape of [Result].
const Schema = 1

// judge weighs the two outcomes of a probe: the only place where a verdict is made.
func judge(p *Probe, control, inside Outcome, claim Claim) (Verdict, string) {
	switch control.Kind {
	case Unmet:
		return VerdictSkipped, "needs " + control.Detail
	case Broke:
		return VerdictVacuous, "control: " + control.Detail
	case DidBlock:
		if absent(control.Errno) {
			return VerdictSkipped, "needs a kernel that has it: " + control.Detail
		}
		return VerdictVacuous, "control did not escape: " + control.Detail
	}
	switch inside.Kind {
	case Unmet:
		return VerdictSkipped, "needs " + inside.Detail + " inside"
	case DidEscape:
		return VerdictEscaped, ""
	case DidBlock:
		if claim.State == profiles.Weak.String() {
			return VerdictDegraded, claim.Cause
		}
		return VerdictBlocked, ""
	}
	if claim.State == profiles.Missing.String() {
		return VerdictSkipped, "needs " + string(p.Guarantee) + ", which the launcher says is missing: " + inside.Detail
	}
	return VerdictError, inside.Detail
}

// absent says whether an error of the control, which nothing filters, means
// that the kernel does not have what was tried.
func absent(e Errno) bool {
	switch syscall.Errno(e) {
	case syscall.ENOSYS, syscall.EAFNOSUPPORT, syscall.EPROTONOSUPPORT, syscall.ENOPROTOOPT, syscall.ESOCKTNOSUPPORT:
		return true
	}
	return false
}

// findings names what is wrong with a block.
func findings(p *Probe, inside Outcome) []string {
	if inside.Kind != DidBlock || inside.Errno == 0 || len(p.Errnos) == 0 {
		return nil
	}
	want := make([]string, len(p.Errnos))
	for i, e := range p.Errnos {
		if e == inside.Errno {
			return nil
		}
		want[i] = e.String()
	}
	return []string{fmt.Sprintf("errno %s, want %s", inside.Errno, strings.Join(want, " or "))}
}
