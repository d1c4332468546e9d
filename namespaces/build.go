package namespaces

import (
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// Command is what runs inside.
type Command struct {
	Paths []string // tried in order, as execvp(3) does
	Argv  []string
	Env   []string
	Dir   string
	Umask int
}

// Plan is a run, decided down to each mount. It is a value: nothing in it
// depends on the kernel any more, and --dry-run prints it.
type Plan struct {
	Shell
	Mounts     []Mount
	Disk       int64 // bytes of all fresh directories together; 0: half of the memory, as tmpfs(5) has it
	Inodes     int64
	Landlock   int // ABI version to use, 0 for none
	Filter     []byte
	FilterName string
	Rlimits    []Rlimit
	Deadline   time.Duration
	Grace      time.Duration
	ProxyPort  uint16 // a listener on the sandbox's loopback that the launcher serves; 0 for none
	Await      bool   // the launcher has work between the set-up and the command
	Command    Command
	Answers    []profiles.Answer
}

// Rlimit is one setrlimit(2) of the command.
type Rlimit struct {
	Resource   int
	Name       string
	Soft, Hard uint64
}

// Shell is the part of a plan that does not depend on the survey, so that it
// can be started before it.
type Shell struct {
	Identity Identity
	Nested   bool
	Without  []profiles.Layer
}

// has reports whether a layer is on.
func (p Shell) has(l profiles.Layer) bool {
	for _, w := range p.Without {
		if w == l {
			return false
		}
	}
	return true
}

// Build plans a run. It is pure.
func Build(policy *profiles.Policy, s *Survey, c Command) (*Plan, error) {
	mounts, err := layout(s.Places)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		Shell:    Shell{Identity: s.Identity, Nested: policy.Nested, Without: policy.Without},
		Mounts:   mounts,
		Disk:     policy.Resources.Disk.Value,
		Landlock: s.Landlock,
		Deadline: policy.Resources.Deadline(),
		Grace:    5 * time.Second,
		Command:  c,
	}
	p.Inodes = max(p.Disk>>15, 128) // one for each 32 KiB: many empty files fill a disk as well
	return p, nil
}
