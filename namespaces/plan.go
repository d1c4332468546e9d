package namespaces

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

// What stands at a path, and where access changes, is a survey's to say.
type (
	Node  = survey.Node
	Place = survey.Place
)

// The kinds of nodes that the plan tells apart.
const (
	Absent    = survey.Absent
	File      = survey.File
	Directory = survey.Directory
	Link      = survey.Link
	Special   = survey.Special
)

// Kind says how a mount is made.
type Kind uint8

// The kinds of mounts.
const (
	Bind        Kind = iota // the host's file or directory
	Fresh                   // a directory of the sandbox's own tmpfs
	Mask                    // an unreadable file
	Text                    // a file with content of the plan's own
	Copy                    // the host's directory, whose changes go to a directory of the session
	Scratch                 // the host's directory, whose changes go to the sandbox's own tmpfs; where the kernel makes no overlay of it, read-only
	Persist                 // the launcher's own directory for the home, which is there in the next run
	PrivateCopy             // a link over a file of the host's, to a copy of it in a private directory
	Trace                   // a link over a file of the persistent home, to an empty directory: see secret_probes_linux.go
)

var kindNames = [...]string{"bind", "fresh", "mask", "text", "overlay", "scratch", "persist", "apart", "trace"}

// String returns the kind as --dry-run prints it.
func (k Kind) String() string { return kindNames[k] }

// A Mount is one step of the plan: it puts something on a path that then
// exists, be it on the host or as a stub in a fresh directory.
type Mount struct {
	Kind         Kind
	Target       string
	Source       string // Bind, Copy, Scratch, Persist, PrivateCopy: the host's path
	Dev, Ino     uint64 // Bind, Copy, Scratch, Persist, PrivateCopy: what the survey saw there
	Tree         bool   // Bind, Scratch: with what is mounted below it
	Upper        string // Copy: the directory that holds [UpperTree] and [UpperWork]; Scratch: one of the host's that lies between, or ""
	ReadOnly     bool
	Donated      int    // Bind, Copy, Scratch, Persist: a detached mount that the launcher hands in, -1 for none
	DonatedUpper int    // Copy, if Donated is: the same of Upper
	Protect      bool   // it pins a file that a host tool would execute later
	Optional     bool   // nothing is lost if the target is gone or out of reach
	OverLink     bool   // the target is a symbolic link and is covered itself
	Mode         uint32 // Fresh, Text
	Text         string // Text, and of what the copy of PrivateCopy is of: the content
	Link         string // PrivateCopy, Trace: where it leads
	Stubs        []Stub // Fresh, Persist: what must stand in it for later mounts, parents first
	Why          string
}

// A Stub is a name in a fresh directory.
type Stub struct {
	Name string // relative
	Node Node
	Link string

	Trace  bool // Link: whether it was read is told at the end
	Closed bool // Directory: to others

	Text string // File: what is in it, for the command to change; "" where something is mounted
}

// String returns the mount as --dry-run prints it.
func (m Mount) String() string {
	var b strings.Builder
	b.WriteString(m.Kind.String())
	if (m.Kind == Bind || m.Kind == Persist) && m.Source != m.Target {
		b.WriteString(" " + m.Source)
	}
	b.WriteString(" on " + m.Target)
	if m.ReadOnly {
		b.WriteString(" read-only")
	}
	return b.String()
}

func below(path, dir string) bool { return survey.Below(path, dir) }

// Mounts turns places into mounts, each after the one that contains it. It is
// pure: what it knows of the machine is in the survey.
//
// The root is not rebuilt: in its own mount namespace the sandbox keeps the
// host's tree, made read-only as a whole, and covers what it must not see.
// That saves a clone of the whole tree and a pivot_root, and leaves no old root
// behind that something could climb back to.
func Mounts(places []Place) ([]Mount, error) {
	places = slices.Clone(places)
	slices.SortStableFunc(places, func(a, b Place) int { return survey.Less(a.Path, b.Path) })
	mounts := make([]Mount, 0, len(places))
	type frame struct {
		path   string
		access profiles.Access
		mount  int // index of its Fresh or Persist mount, -1 for the host's own tree
	}
	stack := []frame{{path: "/", access: profiles.Read, mount: -1}}
	for i, p := range places {
		if p.Path == "/" {
			if p.Access != profiles.Read {
				return nil, fmt.Errorf("filesystem /: %s: the root directory can only have the access read", p.Access)
			}
			continue
		}
		for !below(p.Path, stack[len(stack)-1].path) {
			stack = stack[:len(stack)-1]
		}
		around := stack[len(stack)-1]
		fresh := around.mount >= 0
		persist := fresh && mounts[around.mount].Kind == Persist
		if persist && p.Node == Absent && p.Access == profiles.Private {
			p.Node = Directory
		}
		switch {
		case p.Node == Absent:
			// Nothing stands there, so nothing need be covered. What would
			// need a name on the host's disk is refused: it would stay there.
			if !p.Optional && !p.Scratch && (p.Access == profiles.Private && !fresh || p.Access >= profiles.Overlay && around.access != p.Access) {
				return nil, hint.Errorf("mkdir -p "+p.Path+", or give its parent the access",
					"filesystem %s: %s: does not exist, and an empty one would stay on the host (%s)", p.Path, p.Access, p.Why)
			}
			continue
		case p.Kept && persist: // it is there
			continue
		case p.Access == around.access && !p.Pin && p.Node != Link:
			if fresh && p.Access == profiles.Private && p.Node == Directory {
				mounts[around.mount].addStub(p, around.path) // it is there, and empty
			}
			continue
		case p.Access == profiles.Overlay && around.access == profiles.Overlay:
			continue // there a directory of the host's cannot be renamed anyway (EXDEV), and a file is a copy
		case fresh && p.Access == profiles.Hide && (p.Node != Directory || !showsBelow(places[i+1:], p.Path)), around.access == profiles.Hide && p.Access == profiles.Private && p.Node != Directory:
			continue // it is not there to begin with
		}
		copied := p.Copied && fresh && !persist && !mounts[around.mount].ReadOnly
		if p.Copied && !copied && !persist && p.Ino == 0 {
			continue // a text of the survey's, and no place for it
		}
		if fresh {
			mounts[around.mount].addStub(p, around.path)
			if p.Node == Link || copied {
				continue
			}
		} else if p.Node == Link && !p.Pin {
			continue // the link stands; where it leads has a place of its own
		}
		m := Mount{Target: p.Path, Why: p.Why, ReadOnly: true, Donated: -1, Protect: p.Protect, Optional: p.Optional}
		if p.Node == Link { // mounted on itself it works as before, and nothing can take its name
			m.Kind, m.Source, m.Dev, m.Ino, m.OverLink = Bind, p.Path, p.Dev, p.Ino, true
			mounts = append(mounts, m)
			continue
		}
		if p.Copied && persist && p.Ino == 0 { // no file of the home's, which other runs see
			m.Kind, m.Mode, m.Text = Text, 0o444, p.Text
			mounts = append(mounts, m)
			continue
		}
		switch p.Access {
		case profiles.Write, profiles.Read:
			m.Kind, m.Source, m.Dev, m.Ino = Bind, cmp.Or(p.Source, p.Path), p.Dev, p.Ino
			m.Tree = p.Node == Directory
			m.ReadOnly = p.Access == profiles.Read
			if p.PrivateCopy && m.ReadOnly {
				m.Kind, m.Text = PrivateCopy, p.Text
			}
		case profiles.Persist:
			m.Kind, m.Source, m.Dev, m.Ino, m.ReadOnly = Persist, p.Source, p.Dev, p.Ino, false
		case profiles.Hide, profiles.Private:
			switch {
			case p.Node == Directory:
				m.Kind, m.Mode, m.ReadOnly = Fresh, 0o755, p.Access == profiles.Hide
				if persist || keptClosed(p.Path) {
					m.Mode = 0o700 // gpg and ssh warn of others
				}
			case p.Access == profiles.Private:
				return nil, &profiles.Error{Cause: fmt.Sprintf("filesystem %s: private: only a directory can be private (%s)", p.Path, p.Why), Hint: "--hide " + shell.Quote(p.Path)}
			default:
				m.Kind = Mask
			}
		case profiles.Overlay:
			if p.Node != Directory {
				return nil, hint.Errorf("--overlay "+shell.Quote(filepath.Dir(p.Path)),
					"filesystem %s: overlay: only a directory can be an overlay (%s)", p.Path, p.Why)
			}
			m.Kind, m.Source, m.Dev, m.Ino, m.ReadOnly = Copy, p.Path, p.Dev, p.Ino, false
			if p.Scratch {
				m.Kind, m.Tree, m.Upper = Scratch, true, p.Layer
			}
		}
		mounts = append(mounts, m)
		if p.Node == Directory {
			f := frame{path: p.Path, access: p.Access, mount: -1}
			if m.Kind == Fresh || m.Kind == Persist {
				f.mount = len(mounts) - 1
			}
			stack = append(stack, f)
		}
	}
	giveCopies(mounts)
	return mounts, nil
}

// showsBelow reports whether the first of places show something in a directory, which has to be there for it.
func showsBelow(places []Place, dir string) bool {
	for _, p := range places {
		if !below(p.Path, dir) {
			return false
		}
		if p.Access > profiles.Hide && p.Node != Absent {
			return true
		}
	}
	return false
}

// copiesDir holds the copies of [PrivateCopy], each in a directory of its own: who replaces one
// makes a lock beside it.
const copiesDir = "/run/pccrun.git"

// giveCopies puts what programs replace where they can. Where the policy has no private
// directory for that, it is read-only as any pin is.
func giveCopies(mounts []Mount) {
	home := slices.IndexFunc(mounts, func(m Mount) bool {
		return m.Kind == Fresh && !m.ReadOnly && m.Target == filepath.Dir(copiesDir)
	})
	for i := range mounts {
		m := &mounts[i]
		switch {
		case m.Kind != PrivateCopy:
		case home < 0:
			m.Kind, m.Text = Bind, ""
		default:
			m.Link = copiesDir + "/" + strconv.Itoa(i) + "/" + filepath.Base(m.Target)
			mounts[home].addStub(Place{Path: m.Link, Node: File, Text: m.Text}, mounts[home].Target)
		}
	}
}

// addStub makes a name in the fresh directory at path, with its parents.
func (m *Mount) addStub(p Place, path string) {
	name := strings.TrimPrefix(p.Path[len(path):], "/")
	for i := 0; i < len(name); i++ {
		if name[i] == '/' {
			m.stub(Stub{Name: name[:i], Node: Directory, Closed: p.Copied || keptClosed(name[:i])})
		}
	}
	s := Stub{Name: name, Node: p.Node, Link: p.Link, Text: p.Text}
	if s.Node == Special {
		s.Node = File // anything that is no directory can carry a mount of a file
	}
	m.stub(s)
}

// keptClosed reports whether programs refuse a directory that is open to others: ssh, gpg.
func keptClosed(name string) bool {
	base := filepath.Base(name)
	return base == ".ssh" || base == ".gnupg" || base == "gnupg"
}

func (m *Mount) stub(s Stub) {
	if i := slices.IndexFunc(m.Stubs, func(have Stub) bool { return have.Name == s.Name }); i >= 0 {
		m.Stubs[i].Closed = m.Stubs[i].Closed || s.Closed
		return
	}
	m.Stubs = append(m.Stubs, s)
}

// What every sandbox has, whatever the policy says.
var (
	// The kernel's files that container runtimes make read-only or mask
	// (runtime-spec, config-linux.md: readonlyPaths, maskedPaths), and some
	// that tell of the host. Each is covered where the kernel has it.
	procReadOnly = [...]string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	procMasks    = [...]string{"/proc/cmdline", "/proc/config.gz", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/latency_stats", "/proc/sched_debug", "/proc/timer_list"}
	procEmpty    = [...]string{"/proc/acpi", "/proc/asound", "/proc/scsi"}
	sysEmpty     = [...]string{"/sys/devices/virtual/dmi", "/sys/devices/virtual/powercap", "/sys/firmware", "/sys/hypervisor", "/sys/devices/soc0", "/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/tracing"}
)

// KernelFiles returns which of the kernel's own files each sandbox makes read-only, and which it
// covers, where the kernel has them.
func KernelFiles() (readOnly, covered []string) {
	return procReadOnly[:], slices.Concat(procMasks[:], procEmpty[:], sysEmpty[:])
}

// Hostname is what uname(2) says inside.
const Hostname = "pccrun"
