package profiles

// A Request is what one command line asks for, and what the machine tells of
// the user. [Resolve] makes a [Policy] of it.
type Request struct {
	Command []string // what to run, and its arguments; its name picks a profile

	// The policy, in the words of the flags; "" and nil where a flag is not given.
	Profile     string   // --profile: a name, or a path
	Workspace   string   // --workspace
	Settings    []string // --settings: files in the format of srt or Claude Code
	Files       []FileFlag
	Allow       []string // --allow
	Deny        []string
	Local       []string
	Publish     []string
	Sockets     []string
	Use         []string // --use
	Env         []string // --env: NAME, or NAME=VALUE
	Inject      []string // --inject: NAME=HOST
	InjectFiles []string // --inject-file: NAME=PATH
	InjectRun   []string // --inject-command: NAME=PROGRAM, or NAME=["PROGRAM", "ARGUMENT", …]
	GitHubToken string   // --github-token: OWNER/NAME, or origin
	Protect     []string
	Review      []string
	Limits      [numLimits]string // --memory …, in the order of [Resources]; "none" takes a limit away
	Image       string            // --image, or one of the next two
	DockerImage string            // --docker-image
	E2BTemplate string            // --e2b-template
	Size        string            // --size
	Region      string            // --region, or
	Target      string            // --daytona-target
	Keep        string            // --keep: of a cloud's sandbox, after the run
	Syscalls    string
	Nested      bool
	Strict      bool
	Report      string // --report: attempts or none

	Home          string // --home: persist or private
	FreshHome     bool   // --fresh-home
	NoLogin       bool   // --no-login
	ProtectStrict bool   // --protect-strict
	Without       []string
	AllowMissing  []string

	// How to run it. Of these [Resolve] looks at the provider alone: what other tools' settings say of one counts there.
	Provider string

	Runtime       string // --runtime: of a container engine
	DockerNetwork string // --docker-network

	Budget   string   // --budget: in US dollars
	Spending []string // --spending: files of what was spent

	Conversation []string // --conversation: directories of the home that go to a cloud, and come back

	Install  string // --install: JSON of a program that the place may lack, see package providers
	Detach   bool   // --detach: go on without the caller's terminal
	Terminal bool   // -t: with one of the run's own

	PassFDs []int
	Events  string // a path, or fd:N
	DryRun  bool
	JSON    bool
	Log     bool
	Verbose bool
	Quiet   bool
	Ask     bool
	From    string // --from: a snapshot to begin with
	Learn   bool   // refused reads of files are recorded too

	// Draft stands in place of a profile file that is not written yet, to see
	// what would come of it; nil for none.
	Draft *Draft

	// Resolved stands in place of all of the policy's words: another machine has read them.
	Resolved *Policy
	Seeds    map[string]string // and what the home begins with, by path

	Host Host
}

// A FileFlag is --hide, --read, --write, --overlay or --private.
type FileFlag struct {
	Path   string
	Access Access
}

// Host is what [Resolve] needs to know of the machine and the user. [ThisHost]
// reads it; tests make their own.
type Host struct {
	UID     int
	Home    string   // of the user database; "" if it has none
	Homes   []string // of everybody in its file
	Environ []string // of this process
	Cwd     string   // absolute, without links
	Memory  int64    // bytes

	// Elsewhere: the home is one of a Mac that is not here. Neither it nor a workspace
	// in it is looked at, and no file is read but those that the flags name.
	Elsewhere bool
}

// Getenv returns the value of a variable of the host's environment.
func (h *Host) Getenv(name string) string {
	value, _ := h.lookup(name)
	return value
}

func (h *Host) has(name string) bool {
	_, ok := h.lookup(name)
	return ok
}

func (h *Host) lookup(name string) (string, bool) {
	for _, e := range h.Environ {
		if len(e) > len(name) && e[len(name)] == '=' && e[:len(name)] == name {
			return e[len(name)+1:], true
		}
	}
	return "", false
}
