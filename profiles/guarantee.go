package profiles

import "slices"

// A Guarantee is one named promise of a sandbox. The list is closed: a
// provider answers for each, and each escape probe belongs to exactly one.
type Guarantee string

// The guarantees. What each promises, and what it does not, stands in
// [Guarantees].
const (
	FSHide          Guarantee = "fs.hide"
	FSReadonly      Guarantee = "fs.readonly"
	FSSpecial       Guarantee = "fs.special"
	FSProtect       Guarantee = "fs.protect"
	FSOverlay       Guarantee = "fs.overlay"
	NetAllowlist    Guarantee = "net.allowlist"
	NetAddress      Guarantee = "net.address"
	NetDNS          Guarantee = "net.dns"
	NetTransparent  Guarantee = "net.transparent"
	NetInject       Guarantee = "net.inject"
	IPCUnix         Guarantee = "ipc.unix"
	IPCSysV         Guarantee = "ipc.sysv"
	ProcIsolated    Guarantee = "proc.isolated"
	ProcNoSurvivors Guarantee = "proc.no-survivors"
	SysFilter       Guarantee = "sys.filter"
	SysNoNewUserns  Guarantee = "sys.no-new-userns"
	PrivNone        Guarantee = "priv.none"
	EnvScrub        Guarantee = "env.scrub"
	ResMemory       Guarantee = "res.memory"
	ResCPU          Guarantee = "res.cpu"
	ResPids         Guarantee = "res.pids"
	ResFiles        Guarantee = "res.files"
	ResDisk         Guarantee = "res.disk"
	ResTime         Guarantee = "res.time"
	TTYIsolated     Guarantee = "tty.isolated"
	TTYOutput       Guarantee = "tty.output"
	InfoKernel      Guarantee = "info.kernel"
	InfoHost        Guarantee = "info.host"
	LaunchIntegrity Guarantee = "launch.integrity"
	SyncUp          Guarantee = "sync.up"
	SyncDown        Guarantee = "sync.down"
)

// A Requirement is what a policy asks of a provider about one guarantee.
type Requirement struct {
	Guarantee Guarantee
	Required  bool   // false: wanted; a run without it is told on stderr, not refused
	Strong    bool   // a weak mechanism does not do
	Origin    Origin // the rule, flag or default that asks
}

// State says how far a provider keeps a guarantee.
type State uint8

// The states, from best to worst.
const (
	Kept State = iota
	Weak
	Missing
)

// String returns the state's name as users and JSON see it.
func (s State) String() string {
	switch s {
	case Kept:
		return "kept"
	case Weak:
		return "weak"
	case Missing:
		return "missing"
	}
	return "BUG: unknown state"
}

// ParseState returns the state of a name; any other word is [Missing].
func ParseState(name string) State {
	for _, s := range [...]State{Kept, Weak} {
		if s.String() == name {
			return s
		}
	}
	return Missing
}

// An Answer is what a provider says of one guarantee, for one policy on one host.
type Answer struct {
	Guarantee Guarantee
	State     State
	Mechanism string // what keeps it: "mount namespace", "cgroup v2", …
	Cause     string // weak: the gap; missing: why
	Hint      string // one command or flag that mends it, if known
}

// KeptBy is an answer.
func KeptBy(mechanism string) Answer { return Answer{Mechanism: mechanism} }

// WeakBy names what the mechanism leaves open.
func WeakBy(mechanism, gap, hint string) Answer {
	return Answer{State: Weak, Mechanism: mechanism, Cause: gap, Hint: hint}
}

// MissingFor says why nothing keeps it.
func MissingFor(cause, hint string) Answer { return Answer{State: Missing, Cause: cause, Hint: hint} }

// AnswerEach answers for each guarantee: always says what keeps one in every run, judge decides on the others, and is
// false for one that is not of its provider.
func AnswerEach(always map[Guarantee]string, judge func(Guarantee) (Answer, bool)) (list []Answer) {
	for i := range Guarantees {
		g := Guarantees[i].Guarantee
		a, ok := KeptBy(always[g]), always[g] != ""
		if !ok {
			a, ok = judge(g)
		}
		if a.Guarantee = g; ok {
			list = append(list, a)
		}
	}
	return list
}

// HidesPatterns reports whether names are hidden that may come into being.
func (p *Policy) HidesPatterns() bool {
	hides := func(r FileRule) bool { return r.Glob != "" && r.Access == Hide }
	return slices.ContainsFunc(p.Files, hides) || slices.ContainsFunc(p.Tighten, hides)
}
