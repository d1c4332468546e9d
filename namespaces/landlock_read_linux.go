package namespaces

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

// Under strict what is hidden is hidden twice: the mounts cover it, and
// Landlock gives no right to read it. Landlock only grants, and by hierarchy:
// what is shown in a directory with something hidden has to be named, entry by entry, as it
// stands when the run starts. What the host puts there later is not readable.
// Within a directory that may be written nothing can be left out, since what the
// command makes there must be its own to read.

// A Readable is a path of the host that Landlock lets the command read and execute.
type Readable struct {
	Path  string
	Node  Node // File or Directory
	Names bool // of a directory only the names of what is in it: something below is hidden
}

// String returns the grant as --dry-run prints it.
func (r Readable) String() string {
	if r.Names {
		return r.Path + " (names only)"
	}
	return r.Path
}

// Rights are those of Landlock's that the grant gives, landlock(7).
func (r Readable) Rights() uint64 {
	switch {
	case r.Names:
		return unix.LANDLOCK_ACCESS_FS_READ_DIR
	case r.Node == Directory:
		return landlockRead
	}
	return landlockRead &^ unix.LANDLOCK_ACCESS_FS_READ_DIR
}

// maxReadable bounds how many names are shown in directories with something hidden: each costs the
// launch three system calls.
const maxReadable = 2048

// A shower finds what is shown among places, each with what surrounds it.
type shower struct {
	places map[string]Place
	list   func(dir string) ([]fs.DirEntry, error)
	found  []Readable
}

// hashes are files of root's with what passwords were made into. The identity
// of a run that root starts may not read them; Landlock leaves them out too, and
// /etc is granted name by name there. For a user they are not his to begin with.
var hashes = [...]string{"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-"}

// readable returns what strict lets the command read, in addition to what it may write.
func readable(policy *profiles.Policy, places []Place, root bool) ([]Readable, error) {
	places = slices.Clip(places)
	for _, path := range hashes {
		if root && policy.Decide(path).Access == profiles.Read && survey.ByDefault(policy, path) {
			places = append(places, Place{Path: path, Node: File, Access: profiles.Hide})
		}
	}
	return Readables(places, os.ReadDir)
}

// Readables returns what of the host's tree is shown for reading, given how
// directories are listed. What may be written is granted with its mount.
func Readables(places []Place, list func(string) ([]fs.DirEntry, error)) ([]Readable, error) {
	s := &shower{places: make(map[string]Place, len(places)), list: list}
	sorted := slices.SortedFunc(slices.Values(places), func(a, b Place) int { return survey.Less(a.Path, b.Path) })
	for _, p := range sorted {
		s.places[p.Path] = p
	}
	if err := s.show("/", Directory); err != nil {
		return nil, err
	}
	for _, p := range sorted {
		if p.Access == profiles.Read && p.Path != "/" && s.around(p.Path) < profiles.Read {
			if err := s.show(p.Path, p.Node); err != nil {
				return nil, err
			}
		}
	}
	return s.found, nil
}

// Programs returns the files that can be executed where the
// launcher opens all others ([Watch.Opens]), as they stand: to execute a file the
// kernel opens it for the process, and asks Landlock for the right to read it
// (Linux 5.13 to 6.18, hook_file_open). What the command makes there it cannot execute.
func (p *Plan) Programs(hidden func(path string) bool) (list []Readable, err error) {
	for _, m := range p.Mounts {
		if m.Kind != Bind || !m.Tree || m.ReadOnly || !p.At(m.Target).OpensFiles {
			continue
		}
		err := filepath.WalkDir(m.Target, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil // what cannot be looked at cannot be executed
			}
			if path != m.Target && (hidden(path) || p.apart(path)) {
				if e.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
			if !e.Type().IsRegular() {
				return nil
			}
			info, err := e.Info()
			if err != nil || info.Mode()&0o111 == 0 {
				return nil
			}
			if len(p.Readable)+len(list) >= maxReadable {
				return hint.Errorf("--allow-missing fs.hide,fs.protect,fs.special protects its files by mounts alone",
					"strict: more than %d files in %s can be executed, up to %s", maxReadable, m.Target, path)
			}
			list = append(list, Readable{Path: path, Node: File})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// apart reports whether what the host has at a path is not what stands there, or
// is looked through with a mount of its own.
func (p *Plan) apart(path string) bool {
	return slices.ContainsFunc(p.Mounts, func(m Mount) bool {
		return m.Target == path && !p.skips(&m) && (m.Kind != Bind || m.Tree && !m.ReadOnly)
	})
}

// show grants a file, or a directory as far as nothing in it is hidden.
func (s *shower) show(path string, node Node) error {
	switch {
	case len(s.found) == maxReadable:
		return fmt.Errorf("strict: more than %d names in directories with hidden files, up to %s: hide or show whole directories", maxReadable, path)
	case node == File, node == Directory && !s.hides(path):
		s.found = append(s.found, Readable{Path: path, Node: node})
		return nil
	case node != Directory:
		return nil // a link leads to what has a place of its own; sockets and FIFOs are not for reading
	}
	entries, err := s.list(path)
	if os.IsPermission(err) {
		return nil // neither can the command list it
	}
	if err != nil {
		return fmt.Errorf("strict: list directories with hidden files: %w", err)
	}
	s.found = append(s.found, Readable{Path: path, Node: Directory, Names: true})
	for _, e := range entries {
		child, node := filepath.Join(path, e.Name()), survey.NodeOfType(e.Type())
		if p, ok := s.places[child]; ok && p.Access != profiles.Read {
			continue
		}
		if err := s.show(child, node); err != nil {
			return err
		}
	}
	return nil
}

// hides reports whether something below a directory is hidden or replaced, or
// will be if it comes into being; a directory that may be written has its rights
// from its mount, and would have these in addition. A socket that is covered has no content.
func (s *shower) hides(dir string) bool {
	for path, p := range s.places {
		covered := p.Access < profiles.Read && p.Node != Special && p.Node != Link
		if (covered || p.Access == profiles.Write && p.Node == Directory) && path != dir && below(path, dir) {
			return true
		}
	}
	return false
}

// around is the access of what a path lies in.
func (s *shower) around(path string) profiles.Access {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if p, ok := s.places[dir]; ok && p.Node == Directory {
			return p.Access
		}
	}
	return profiles.Read
}
