package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

const (
	// maxLinks is how many links the kernel follows in one path (MAXSYMLINKS).
	maxLinks = 40
	// maxSteps bounds the names that are looked up in all paths that the
	// content of the workspace gives.
	maxSteps = 100_000
)

// A view is a tree as paths lead through it, and what lies outside of it: of one that is looked through, or of one
// in which a run has been.
type view struct {
	*rules
	fd     int // the root
	dev    uint64
	at     *openDir         // the directory that was asked about last
	steps  int              // names looked up on behalf of the workspace
	unseen map[string]error // what could not be looked at, and why
}

func newView(c *rules, fd int, dev uint64) view {
	return view{rules: c, fd: fd, dev: dev, unseen: map[string]error{}}
}

func (s *view) abs(rel string) string {
	if rel == "" {
		return s.root
	}
	return s.root + "/" + rel
}

// stat returns the status of an absolute path, of a link itself if it is one.
// In the workspace, no link on the way is followed: one may have been put
// there in between.
func (s *view) stat(path string, st *unix.Stat_t) error {
	rel, ok := beneath.Path(s.root, path)
	if !ok {
		return beneath.Stat(unix.AT_FDCWD, path, st)
	}
	i := strings.LastIndexByte(rel, '/')
	if i < 0 {
		return beneath.Stat(s.fd, rel, st)
	}
	// Questions about one directory come together: it is kept open for the next.
	if s.at == nil || s.at.rel != rel[:i] {
		fd, err := beneath.Open(s.fd, rel[:i], unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		s.close()
		s.at = &openDir{rel[:i], fd}
	}
	return beneath.Stat(s.at.fd, rel[i+1:], st)
}

// An openDir is a directory of the workspace that is held open.
type openDir struct {
	rel string
	fd  int
}

func (s *view) close() {
	if s.at != nil {
		unix.Close(s.at.fd)
		s.at = nil
	}
}

// node returns what stands at an absolute path, and whether anything does. That
// something of the workspace could not be looked at is remembered ([scan.steady]).
func (s *view) node(path string) (Node, unix.Stat_t, bool) {
	var st unix.Stat_t
	if err := s.stat(path, &st); err != nil {
		if _, in := beneath.Path(s.root, path); in {
			s.unseen[path] = err
		}
		return Node{Path: path}, st, false
	}
	return Node{Path: path, Kind: KindOf(st.Mode), Dev: st.Dev, Ino: st.Ino}, st, true
}

// errUnsteady is for a workspace that changes while it is looked through.
var errUnsteady = errors.New("it changes while it is scanned")

// steady reports what has changed since the walk in a way that a second look
// would tell: a name that was not there when it was asked about, and is there
// now; a directory that was listed, and could not be searched a moment later.
// Another run in the same workspace may do that on purpose, to have a launch
// overlook what it must cover.
func (s *scan) steady() error {
	for path, err := range s.unseen {
		if s.inShut(path) {
			continue // covered as a whole
		}
		var st unix.Stat_t
		now := s.stat(path, &st)
		gone := now == unix.ENOENT || now == unix.ENOTDIR || now == unix.ELOOP || now == unix.ENAMETOOLONG
		if !gone {
			return fmt.Errorf("scan workspace %s: %s: %w (%w)", s.root, beneath.Shorten(path), errUnsteady, cmp.Or(now, err))
		}
	}
	return nil
}

// inShut reports whether a directory above a path could not be listed.
func (s *scan) inShut(path string) bool {
	for dir := filepath.Dir(path); len(dir) >= len(s.root); dir = filepath.Dir(dir) {
		if p, ok := s.pins[dir]; ok && p.Why == Unlisted {
			return true
		}
	}
	return false
}

// A trail is where a path led: the links in the workspace that were met on the
// way, and what stands at its end, or would.
type trail struct {
	links []Node
	end   Node
	found bool
	hops  []string // and those outside of it
	proc  bool     // it came through /proc, where links mean something else to each process
}

// follow resolves a path as the kernel does, `..` after a link included, from
// a base that is absolute and has no links. It looks at names only, and opens
// nothing but links.
func (s *view) follow(base, path string) (trail, error) {
	var t trail
	at := base
	if strings.HasPrefix(path, "/") {
		at = "/"
		// The root has no links in it: begin there and save the steps.
		if rest, ok := beneath.Path(s.root, path); ok {
			at, path = s.root, rest
		}
	}
	t.end, t.found = Node{Path: at, Kind: Dir}, true
	known := false // whether t.end has been looked at
	met := 0
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			t.end, known = Node{Path: at, Kind: Dir}, false
			continue
		}
		if s.steps++; s.steps > maxSteps {
			return t, fmt.Errorf("resolve %s in %s: step %d: %w", beneath.Shorten(path), base, maxSteps, ErrTooMuch)
		}
		n, _, ok := s.node(filepath.Join(at, name))
		t.proc = t.proc || n.Path == "/proc" || n.Path == "/dev/fd"
		if !ok {
			t.end, t.found = Node{Path: filepath.Join(n.Path, path)}, false
			return t, nil
		}
		switch {
		case n.Kind == Link:
			target, err := s.readlink(n.Path)
			if met++; err != nil || met > maxLinks {
				t.end, t.found = Node{Path: filepath.Join(n.Path, path)}, false
				return t, nil
			}
			if _, ok := beneath.Path(s.root, n.Path); ok {
				t.links = append(t.links, n)
			} else {
				t.hops = append(t.hops, n.Path)
			}
			if strings.HasPrefix(target, "/") {
				at = "/"
			}
			path = target + "/" + path
			t.end, known = Node{Path: at, Kind: Dir}, false
			continue
		case n.Kind != Dir && strings.Trim(path, "/") != "":
			t.end, t.found = Node{Path: filepath.Join(n.Path, path)}, false
			return t, nil
		}
		at = n.Path
		t.end, known = n, true
	}
	if !known {
		t.end, _, t.found = s.node(at)
	}
	return t, nil
}

func (s *view) readlink(path string) (string, error) {
	if rel, in := beneath.Path(s.root, path); in {
		return beneath.ReadLinkBelow(s.fd, rel)
	}
	return beneath.ReadLink(unix.AT_FDCWD, path)
}

// readFile returns the content of a regular file, by a path without links.
func (s *view) readFile(path string, limit int64) ([]byte, error) {
	fd, err := s.openFile(path)
	if err != nil {
		return nil, err
	}
	return beneath.ReadFile(fd, limit)
}

func (s *view) openFile(path string) (int, error) {
	if rel, ok := beneath.Path(s.root, path); ok {
		return beneath.Open(s.fd, rel, unix.O_RDONLY)
	}
	return unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// inside reports whether a path is root or lies below it.
func inside(root, path string) bool {
	_, in := beneath.Path(root, path)
	return in
}
