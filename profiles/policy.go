package profiles

import (
	"fmt"
	"strings"
	"time"
)

// Access says what the payload may do with a path.
type Access uint8

// The access words, from the strictest to the loosest: of two rules for the
// same path, the smaller wins.
const (
	Hide    Access = iota // the content is never readable
	Private               // empty, writable, gone at exit
	Persist               // for ~: a home of pccrun's own for this workspace and profile, there again in the next run
	Read                  // readable, never changed
	Overlay               // copy-on-write, kept or dropped afterwards
	Write                 // the host's own file
)

var accessNames = [...]string{"hide", "private", "persist", "read", "overlay", "write"}

// String returns the word that the policy language uses.
func (a Access) String() string {
	if int(a) < len(accessNames) {
		return accessNames[a]
	}
	return fmt.Sprintf("BUG: access %d", uint8(a))
}

// ParseAccess returns the access that a word of the policy language names.
func ParseAccess(word string) (Access, error) {
	for i, name := range accessNames {
		if word == name {
			return Access(i), nil
		}
	}
	return 0, fmt.Errorf("access %q: want one of hide, private, persist, read, overlay, write", word)
}

// Origin says where a rule was written, for `why` and for errors.
type Origin struct {
	Source string // a path, "flag", "built-in NAME", "environment"
	Line   int    // 1-based; 0 where lines mean nothing
	Key    string // e.g. `filesystem."~/.ssh"` or "--read"
}

// String returns "source:line: key", less what is not known.
func (o Origin) String() string {
	switch {
	case o.Source == "flag" || o.Source == "":
		return strings.TrimSpace(o.Source + " " + o.Key)
	case o.Line > 0 && o.Key == "":
		return fmt.Sprintf("%s:%d", o.Source, o.Line)
	case o.Line > 0:
		return fmt.Sprintf("%s:%d: %s", o.Source, o.Line, o.Key)
	case o.Key != "":
		return o.Source + ": " + o.Key
	}
	return o.Source
}

// A FileRule is one row of the file table.
type FileRule struct {
	Path   string // absolute and clean; for a glob, the directory that it starts at
	Glob   string // "" or a pattern below Path: `*` within a name, `**` any depth, `?`, `[…]`
	Access Access
	Origin Origin
}

// A ProtectRule names files that a host tool would execute later.
type ProtectRule struct {
	Pattern string // a path relative to the workspace, or with no slash a name at any depth; globs as in FileRule
	Review  bool   // may change, and is reported at exit; else cannot change
	Home    bool   // a tool executes it only from a home: what stands cannot change, what is new is reported at exit
	Origin  Origin
}

// List is the list of a profile's "protect" in which the rule stands. Their names sort by what they allow.
func (r *ProtectRule) List() string {
	switch {
	case r.Review:
		return "review"
	case r.Home:
		return "home"
	}
	return "deny"
}

// Network says which hosts the payload may reach. The zero value is no
// network at all, name resolution included.
type Network struct {
	Allow   []NetRule // grammar: netproxy/rules
	Deny    []NetRule
	Local   []NetRule // host loopback ports: "5432", "localhost:5432"
	Publish []NetRule // ports inside that the host may reach
	Sockets []PathRule
	Inject  []Injection
}

// A NetRule is a rule's text, already checked by netproxy/rules.
type NetRule struct {
	Text   string
	Origin Origin
}

// A PathRule is an absolute path and where it was written.
type PathRule struct {
	Path   string
	At     string // where a socket stands inside; "" for Path
	Origin Origin
}

// An Injection puts a secret into requests to hosts on their way out. Its value
// is what File holds or what Command prints, else the host's variable. No file
// of a workspace names either: one is read and the other run outside.
type Injection struct {
	Env     string
	Hosts   []string // or some requests to them: https://HOST/PATH
	File    string   // absolute
	Command []string // a program and its arguments
	Origin  Origin

	// Repository is OWNER/NAME of what Hosts are, at GitHub, with whose paths alone the value goes out; "" for none.
	// There no path has a case, and git inside signs in with the placeholder.
	Repository string
}

// Source says where the value comes from.
func (in *Injection) Source() string {
	switch {
	case in.File != "":
		return "the file " + in.File
	case len(in.Command) > 0:
		return "the command " + in.Command[0]
	}
	return "the environment"
}

// Environment says which variables the payload gets.
type Environment struct {
	Pass []EnvRule         // names, or prefixes that end in *; see [Policy.DecideEnv]
	Set  map[string]EnvSet // by name

	// Scrub beats Pass and Set. Only other tools' settings have such a list.
	Scrub []EnvRule
}

// An EnvRule passes the host's variables whose names match.
type EnvRule struct {
	Pattern string
	Origin  Origin
}

// An EnvSet gives a variable a value.
type EnvSet struct {
	Value  string
	Origin Origin
}

// Limit is a bound and where it was written. The zero value is no limit.
type Limit struct {
	Value  int64
	Origin Origin
}

// Resources bounds what the payload uses.
type Resources struct {
	Memory   Limit // bytes, swap included, all processes and private filesystems together
	CPUs     Limit // thousandths of a processor
	Pids     Limit // processes and threads
	Files    Limit // open files a process
	FileSize Limit // bytes of the largest file
	Disk     Limit // bytes of private and overlay filesystems together
	Timeout  Limit // nanoseconds of wall time: see [Resources.Deadline]
}

// Deadline returns the wall time that the payload has, 0 for no bound.
func (r Resources) Deadline() time.Duration { return time.Duration(r.Timeout.Value) }

// A Layer is one mechanism that tests can switch off, to see what the others stop.
type Layer string

// The layers of the native Linux provider.
const (
	LayerSeccomp     Layer = "seccomp"
	LayerFloor       Layer = "floor" // a second filter, short and made by hand, below the first
	LayerLandlock    Layer = "landlock"
	LayerUsernsLimit Layer = "userns-limit"
	LayerPidns       Layer = "pidns"
	LayerNetns       Layer = "netns"
	LayerIpcns       Layer = "ipcns"
	LayerUtsns       Layer = "utsns"
	LayerCgroupns    Layer = "cgroupns"
	LayerReadonly    Layer = "readonly"   // mounts keep the host's flags
	LayerHide        Layer = "hide"       // nothing is hidden
	LayerProtect     Layer = "protect"    // protected paths are not pinned
	LayerProcMasks   Layer = "proc-masks" // the kernel's dangerous files stay open
	LayerDumpable    Layer = "dumpable"   // pid 1 stays dumpable
	LayerNoNewPrivs  Layer = "no-new-privs"
	LayerCaps        Layer = "capabilities" // bounding set and capabilities are kept inside
	LayerKeyring     Layer = "keyring"
	LayerEnv         Layer = "environment" // nothing is scrubbed
	LayerFds         Layer = "descriptors" // inherited descriptors stay open
	LayerRlimits     Layer = "rlimits"
	LayerSockets     Layer = "sockets"  // listening unix sockets stay reachable
	LayerTTY         Layer = "terminal" // the host's terminal is handed in
)

// Policy is what a run may do: profile files and flags merged, paths made
// absolute, each rule with its origin. It is a value: nothing changes it once
// [Resolve] has returned it. It knows nothing of the machine beyond the user,
// the home and the workspace: that is the survey's part.
type Policy struct {
	Profile   string   // the name or path of the profile, e.g. "claude"
	Source    string   // where that profile was read: a path, or "built-in NAME"
	PickedBy  string   // what picked it: "--profile", "PCCRUN_PROFILE", "the command's name", "default"
	Layers    []string // where rules came from, the later on top: paths, "built-in NAME", "environment", "flag"
	Opened    []string // files for review in a protected directory, each named by its path: see [builder.open]
	Own       []string // pccrun's own directories that a rule would show: hidden, and to be made before the command could make them
	Home      string   // absolute, clean; the user's
	Homes     []string // directories that hold homes, e.g. /home and /root: hidden but for what rules show
	Workspace string   // absolute, clean, without symbolic links
	WorkDir   string   // where the command starts, if the policy shows it; else Workspace

	Files   []FileRule // the table; see [Policy.Decide]
	Tighten []FileRule // what can only make Files stricter, such as the workspace's own untrusted table; by source
	Protect []ProtectRule
	Seeds   []Seed // what of the user's a persistent home begins with

	Network     Network
	Environment Environment
	Resources   Resources
	Use         []UseRule // what they stand for is in the other rules

	Place Place // where the command runs, of those places that give a choice

	Syscalls   string // "default", or the absolute path of an OCI seccomp profile
	SyscallsAt Origin // what says so
	Nested     bool   // user namespaces inside
	Strict     bool   // required guarantees must be strong

	NoLogin   bool // no log-in is copied into the home, and a persistent one is another than that with log-ins
	FreshHome bool // the home is a private directory with what a persistent one would begin with

	Attempts      bool // what the command tried of files and was refused is told at exit
	ProtectStrict bool // a protected name that is absent cannot be made; else it is quarantined as it appears

	Requirements []Requirement
	Without      []Layer     // layers switched off: tests only, named on stderr
	AllowMissing []Guarantee // the user's way round a refusal, named on stderr
	Warnings     []string    // what the user should hear: ignored workspace keys, loosening variables

	toggledAt struct{ nested, strict Origin }
}
