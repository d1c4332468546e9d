package workspace

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/internal/codec"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A Standing is what stood in a workspace when a run began, as far as the look
// at its end needs it. It is written down before the command starts, so that
// the look can be made by somebody else if the launcher is killed.
type Standing struct {
	Session string    // of the run
	Root    string    // the workspace
	Start   time.Time // what has a ctime before it was not changed by the run
	Files   []profiles.FileRule
	Protect []profiles.ProtectRule

	Names    []string              // relative to Root: protected names that stood
	Repos    []string              // and directories of git
	Shut     []string              // and directories that could not be listed: they are hidden inside
	Vacant   []string              // absolute: names that no pattern finds, and that did not exist
	Late     map[string]string     // absolute: names config.worktree that do not exist, and the configuration that does not have git read them (extensions.worktreeConfig)
	GitDirs  []string              // absolute: directories of git outside of the workspace that the command writes in
	Formats  map[string]vcs.Format // of those, as far as their configuration leaves no doubt: as root that is given up, nobody can read it at the end
	Stores   []string              // absolute: directories of objects, references and logs that it writes in with them
	Reviewed []string              // absolute: what is for review outside of the workspace
	Awaited  map[string]string     // absolute, and why: what is for review in the workspace and no pattern finds, directories and names that did not exist
	Closed   []Node                // absolute: directories that the command does not see, or sees empty; by path or, moved, by inode
	Hooks    []string              // relative to a working tree: where a configuration that stood makes git look for hooks
	Commands []string              // relative to a working tree: programs that a configuration that stood names
	Executed []string              // absolute: what Hooks and Commands led to, where it stood and cannot be changed
	Known    []Known               // files whose change is reported
	Git      map[string]GitEntry   // absolute: what stood in git directories, see [Standing.noteGit]; nil if nobody knows
	Keys     map[string][]string   // of reviewed configurations of git: the settings that execute something, as name=value

	tips map[string]map[string][]byte // by directories of git: the files in which references stood; not in the record
}

// policy returns the rules of the record, under which the workspace can be written.
func (r *Standing) policy() *profiles.Policy {
	files := append([]profiles.FileRule{{Path: r.Root, Access: profiles.Write}}, r.Files...)
	return &profiles.Policy{Workspace: r.Root, Files: files}
}

// A GitEntry is what stood in a git directory when a run began.
type GitEntry struct {
	Ino uint64
	Sum uint64 // of inodes and ctimes of what git acts on; of what it does not read the kind
}

// A Known is a file that stood: one for review, or one that is pinned and
// cannot have been changed from inside.
type Known struct {
	Node
	Ctime int64 // nanoseconds
	Pin   bool
	Why   string
}

// standingMagic begins a record, and has the number of its schema: the exported fields of a [Standing] in their order. The
// length of what follows makes one known that was cut short, whose command never started.
const standingMagic = "pccrun record 8\n"

var (
	errNoStanding   = errors.New("not an unfinished-run record")
	errOtherVersion = errors.New("an unfinished-run record of another version of pccrun")
	errUnfinished   = errors.New("the record was never finished")
)

// Append appends the record's text.
func (r *Standing) Append(b []byte) []byte {
	body := codec.Append(make([]byte, 0, 32<<10), r)
	b = binary.BigEndian.AppendUint32(append(b, standingMagic...), uint32(len(body)))
	return append(b, body...)
}

// ParseStanding reads what [Standing.Append] wrote, and what stands behind its end.
// The error of a record that was cut short, whose command never started, is
// one that [CutShort] knows.
func ParseStanding(text string) (*Standing, string, error) {
	rest, ok := strings.CutPrefix(text, standingMagic)
	switch {
	case strings.HasPrefix(standingMagic, text):
		return nil, "", errUnfinished
	case !ok && strings.Contains(text, "pccrun record "):
		return nil, "", errOtherVersion
	case !ok:
		return nil, "", errNoStanding
	case len(rest) < 4:
		return nil, "", errUnfinished
	}
	size := int(binary.BigEndian.Uint32([]byte(rest[:4])))
	if rest = rest[4:]; len(rest) < size {
		return nil, "", errUnfinished
	}
	r := &Standing{}
	if !codec.Read(rest[:size], r) {
		return nil, "", errNoStanding
	}
	return r, rest[size:], nil
}

// ParseStandings reads the records of one run, one behind the other, and what stands
// behind the last.
func ParseStandings(text string) (list []*Standing, rest string, err error) {
	for {
		r, rest, err := ParseStanding(text)
		if err != nil {
			return nil, "", err
		}
		list = append(list, r)
		if rest == "" || rest[0] != standingMagic[0] {
			return list, rest, nil
		}
		text = rest
	}
}

// CutShort reports whether an error says that a record was cut short.
func CutShort(err error) bool { return errors.Is(err, errUnfinished) }

// OtherVersion reports whether an error says that another version of pccrun wrote a record.
func OtherVersion(err error) bool { return errors.Is(err, errOtherVersion) }
