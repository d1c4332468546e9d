// Package events is what pccrun tells other programs about a run: one JSON
// object a line, each with the same head.
//
//	{"v":1,"seq":3,"time":"2026-11-21T12:00:00.123456789Z","session":"…","type":"denial",…}
//
// The table of all types and their fields is cmd/pccrun/help/events.txt. It promises:
//   - a line is one event, whatever a payload puts into a path, a host name or
//     an argument: control characters, also the 8-bit ones and those that turn
//     the direction of text, are escaped, and long strings are cut ([Append]);
//   - a slow or dead reader never stalls a run: what does not fit is dropped,
//     and the number is told ([Log]);
//   - within v 1, types and fields are only added: readers ignore those that
//     they do not know ([Parse]).
package events

import "strconv"

// Version is the schema's: the "v" of every event.
const Version = 1

// Type names what an event is about.
type Type string

// An Event is one of the structures of this package.
type Event interface {
	Type() Type
}

// Start is the first event of a session.
type Start struct {
	Version      string   `json:"version"`                 // pccrun's
	Pid          int      `json:"pid"`                     // the launcher's
	Argv         []string `json:"argv,omitempty"`          // pccrun's own, secrets blanked: see [Redact]
	Workspace    string   `json:"workspace"`               // absolute
	WorkDir      string   `json:"workdir"`                 // where the command starts
	Profile      string   `json:"profile"`                 // the one that picked the defaults
	Provider     string   `json:"provider"`                // "native", "docker", …
	Without      []string `json:"without,omitempty"`       // layers that were switched off
	AllowMissing []string `json:"allow_missing,omitempty"` // guarantees that the user gave up
}

// Plan says what the provider answered for each guarantee of the policy.
type Plan struct {
	Guarantees []Guarantee `json:"guarantees,omitempty"`
}

// Guarantee is one answer of a [Plan].
type Guarantee struct {
	Name      string `json:"name"`
	State     string `json:"state"` // "kept", "weak" or "missing"
	Mechanism string `json:"mechanism,omitempty"`
	Cause     string `json:"cause,omitempty"` // weak: the gap; missing: why
}

// Running says that the command runs: it was not refused, and what has to be made for it is there.
type Running struct{}

// Warning is what pccrun says on stderr without ending the run.
type Warning struct {
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// Refused says why the command was not run. An [Exit] with code 125, 126 or
// 127 follows.
type Refused struct {
	Guarantee string `json:"guarantee,omitempty"` // "" if it was no guarantee's fault
	Uncounted bool   `json:"uncounted,omitempty"` // what requests cost could not be counted
	Cause     string `json:"cause"`
	Hint      string `json:"hint,omitempty"`
}

// Denial is one thing that the payload tried and was refused.
type Denial struct {
	Guarantee string `json:"guarantee"`      // the one that was held, e.g. "net.allowlist"
	What      string `json:"what"`           // e.g. "connect evil.example:443"
	Rule      string `json:"rule,omitempty"` // what refused it, with its origin; "" for a default
	Hint      string `json:"hint,omitempty"` // what would allow it, e.g. "--allow evil.example"; "" if nothing does
}

// Hidden is one thing that the host has, that the command line names, and that a payload
// which failed did not see. It counts as no denial.
type Hidden struct {
	What string `json:"what"`           // e.g. "read /home/u/p/.env"
	Rule string `json:"rule,omitempty"` // what hides it, with its origin
	Hint string `json:"hint,omitempty"` // what would show it
}

// NetDecision is the answer to one connection or name. A refused one is
// followed by its [Denial]: [Log.Emit] sees to it.
type NetDecision struct {
	Allowed   bool   `json:"allowed"`
	Host      string `json:"host"`                // as the payload named it
	Port      int    `json:"port,omitempty"`      // 0 for a name alone
	Address   string `json:"address,omitempty"`   // what was dialled; "" if it did not come to that
	Upstream  bool   `json:"upstream,omitempty"`  // by way of the host's own proxy, which resolves the name itself
	Via       string `json:"via"`                 // "http", "socks5", "transparent", "dns", "local", "publish"
	Request   string `json:"request,omitempty"`   // method and path, where they were seen
	Rule      string `json:"rule,omitempty"`      // what decided, with its origin
	Guarantee string `json:"guarantee,omitempty"` // of a refusal
	Hint      string `json:"hint,omitempty"`
	// Times is how many refusals like this one the event stands for, those
	// since the last that was told. 0 is one. Only one that stands for one is
	// followed by its Denial.
	Times int64 `json:"times,omitempty"`
}

// NetClosed says how a connection ended that a [NetDecision] allowed. It bears
// the decision's host, port and way.
type NetClosed struct {
	Host       string `json:"host"`
	Port       int    `json:"port,omitempty"`
	Address    string `json:"address,omitempty"`
	Via        string `json:"via"`
	Up         int64  `json:"up"` // bytes from the payload, HTTP heads aside
	Down       int64  `json:"down"`
	DurationMS int64  `json:"duration_ms"`     // since the decision
	Error      string `json:"error,omitempty"` // why it was not reached; "" if it was
}

// Denial returns the refusal that d is. It means nothing if d was allowed.
func (d NetDecision) Denial() Denial {
	what := "connect " + d.Host
	switch {
	case d.Via == "dns":
		what = "resolve " + d.Host
	case d.Request != "":
		what = "request " + d.Request
	}
	if d.Port != 0 && d.Request == "" {
		what += ":" + strconv.Itoa(d.Port)
	}
	return Denial{Guarantee: d.Guarantee, What: what, Rule: d.Rule, Hint: d.Hint}
}

// Denial is what is hidden as a denial.
func (h Hidden) Denial() Denial { return Denial{What: h.What, Rule: h.Rule, Hint: h.Hint} }

// OOM says that the kernel killed processes for want of memory.
type OOM struct {
	Limit int64 `json:"limit"` // bytes
	Kills int64 `json:"kills"`
}

// Timeout says that the wall time was up.
type Timeout struct {
	AfterMS int64 `json:"after_ms"`
}

// Spending says what one answer of a model's API has cost, or, with over, that a request was refused since the budget is
// spent: by pccrun's table of prices, in US dollars.
type Spending struct {
	Model      string  `json:"model,omitempty"`
	Input      int64   `json:"input,omitempty"` // tokens, those of the cache aside
	CacheRead  int64   `json:"cache_read,omitempty"`
	CacheWrite int64   `json:"cache_write,omitempty"`
	Output     int64   `json:"output,omitempty"`
	USD        float64 `json:"usd"`
	Before     float64 `json:"before"`          // what all that count together had spent
	Total      float64 `json:"total"`           // and have now
	Limit      float64 `json:"limit,omitempty"` // 0: none
	Over       bool    `json:"over,omitempty"`
	Note       string  `json:"note,omitempty"` // what of it is a guess, and why
}

// Changed is one thing that the run left and the user should look at: what was
// quarantined at the moment when it was, the rest at the end.
type Changed struct {
	Path string `json:"path"`          // absolute
	Kind string `json:"kind"`          // "review", "stashed", "inert", "keys", "made"
	What string `json:"what"`          // what has become of it: "new", "changed", what kind of file was quarantined
	Why  string `json:"why,omitempty"` // the pattern, or what would execute it
}

// Exec is another command that was started in the run, by `pccrun exec`.
type Exec struct {
	Number int      `json:"number"` // of this run's, from 1
	Argv   []string `json:"argv"`
}

// ExecEnd says how it ended.
type ExecEnd struct {
	Number int    `json:"number"`
	Code   int    `json:"code"` // 128+n where signal n ended it
	WallMS int64  `json:"wall_ms"`
	Error  string `json:"error,omitempty"` // why it was not started
}

// Dropped says that events are missing here, since a reader was too slow or
// a bound was met.
type Dropped struct {
	Count int64 `json:"count"`
}

// Exit is the last event of a session.
type Exit struct {
	Code       int      `json:"code"`             // what pccrun exits with
	Signal     string   `json:"signal,omitempty"` // "SIGKILL", if one ended the command
	TimedOut   bool     `json:"timed_out"`
	OOM        bool     `json:"oom"`
	WallMS     int64    `json:"wall_ms"`
	UserMS     int64    `json:"user_ms,omitempty"`
	SystemMS   int64    `json:"system_ms,omitempty"`
	MaxMemory  int64    `json:"max_memory,omitempty"` // bytes, the peak of all together
	ReadBytes  int64    `json:"read_bytes,omitempty"`
	WriteBytes int64    `json:"write_bytes,omitempty"`
	IOBy       string   `json:"io_by,omitempty"`     // what counted the two before: "cgroup v2" or "rusage"
	Processes  int64    `json:"processes,omitempty"` // and threads, the most at a time; 0 if not counted
	PriceUSD   float64  `json:"price_usd,omitempty"` // of the cloud's sandbox, in US dollars
	Denials    int64    `json:"denials"`
	Changed    []Change `json:"changed,omitempty"` // what the user should look at, not every file
}

// Change is one path of an [Exit].
type Change struct {
	Path string `json:"path"` // relative to the workspace
	Kind string `json:"kind"` // "review", "stashed", "inert", "keys"
}

func (Start) Type() Type       { return "session.start" }
func (Plan) Type() Type        { return "plan" }
func (Running) Type() Type     { return "running" }
func (Warning) Type() Type     { return "warning" }
func (Refused) Type() Type     { return "refused" }
func (Denial) Type() Type      { return "denial" }
func (Hidden) Type() Type      { return "hidden" }
func (NetDecision) Type() Type { return "net.decision" }
func (NetClosed) Type() Type   { return "net.closed" }
func (OOM) Type() Type         { return "oom" }
func (Timeout) Type() Type     { return "timeout" }
func (Spending) Type() Type    { return "spending" }
func (Changed) Type() Type     { return "changed" }
func (Exec) Type() Type        { return "exec" }
func (ExecEnd) Type() Type     { return "exec.end" }
func (Dropped) Type() Type     { return "dropped" }
func (Exit) Type() Type        { return "exit" }
