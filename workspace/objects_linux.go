package workspace

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// How much is read of a repository's objects at the end of a run, of all its repositories
// together, and how long that may take.
const (
	maxObject  = 64 << 20
	maxTree    = 16 << 20 // what it lists takes ten times as much memory
	maxObjects = 512 << 20
	maxRead    = 2 * time.Second
	maxStores  = 8 // that one borrows from
	maxPacks   = 4096
)

var (
	errMissing = errors.New("object is not there")
	errForged  = errors.New("object is not what its name says")
)

// An allowance is how much may still be read.
type allowance struct {
	room  int64
	until time.Time
	stop  <-chan struct{} // ends it; nil for never
}

func (a *allowance) spend(n int64) error {
	select {
	case <-a.stop:
		return ErrTooMuch
	default:
	}
	if a.room -= n; a.room < 0 || time.Now().After(a.until) {
		return ErrTooMuch
	}
	return nil
}

// A store is where a repository has its objects: its own directory, and those from which
// it borrows (objects/info/alternates).
type store struct {
	guard  *Guard
	format vcs.Format
	left   *allowance
	dirs   []int // open
	packs  []*pack
}

// A pack is one of a store's, opened when something is looked for.
type pack struct {
	dir         int // its directory
	name        string
	fresh       bool // the run has made it, or changed it
	opened      bool
	index, file *os.File
	read        *vcs.Pack
	err         error
}

// store opens the objects of a repository.
func (g *Guard) store(objects string, f vcs.Format, left *allowance) (*store, error) {
	s := &store{guard: g, format: f, left: left}
	if err := s.add(objects, 0); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *store) add(path string, depth int) error {
	dir, name, err := s.guard.parent(path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if b := make([]byte, unix.PathMax); depth < maxStores {
		if n, err := unix.Readlinkat(dir, name, b); err == nil { // as git-new-workdir has it
			return s.add(from(filepath.Dir(path), string(b[:n])), depth+1)
		}
	}
	fd, err := openDirOf(dir, name)
	if err != nil {
		return err
	}
	s.dirs = append(s.dirs, fd)
	if err := s.list(fd); err != nil {
		return err
	}
	b, err := readOwn(fd, "info/alternates", vcs.MaxConfig)
	if err != nil {
		if gone(err) || err == unix.ELOOP {
			return nil
		}
		return err
	}
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if line[0] == '"' { // git reads escapes in it, and writes none
			return errors.New("objects/info/alternates: a path in quotes")
		}
		if depth >= maxStores || len(s.dirs) >= maxStores {
			return ErrTooMuch
		}
		// One that is not there git goes on without.
		if err := s.add(from(path, string(line)), depth+1); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// from returns where a path leads that is said in a directory.
func from(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// list notes the packs of a directory of objects.
func (s *store) list(objects int) error {
	fd, err := s.guard.openDir(objects, "pack")
	if err != nil {
		if gone(err) {
			err = nil
		}
		return err
	}
	s.dirs = append(s.dirs, fd)
	names, err := beneath.Entries(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		base, is := strings.CutSuffix(name, ".idx")
		if !is {
			continue
		}
		p := &pack{dir: fd, name: base}
		for _, name := range [...]string{name, base + ".pack"} {
			var st unix.Stat_t
			if err := beneath.Stat(fd, name, &st); err != nil || s.guard.touched(&st) {
				p.fresh = true
			}
		}
		if s.packs = append(s.packs, p); len(s.packs) > maxPacks {
			return ErrTooMuch
		}
	}
	return nil
}

func (s *store) close() {
	for _, p := range s.packs {
		p.index.Close()
		p.file.Close()
	}
	for _, fd := range s.dirs {
		unix.Close(fd)
	}
}

// find returns where a pack has an object, -1 where it has none of the name.
func (s *store) find(p *pack, id string) (at int64, err error) {
	if !p.opened {
		p.opened = true
		p.err = s.open(p)
	}
	at = -1
	if err = p.err; err == nil {
		at, err = p.read.Find(id)
	}
	return at, err
}

func (s *store) open(p *pack) error {
	for ext, to := range map[string]**os.File{".idx": &p.index, ".pack": &p.file} {
		fd, err := beneath.Open(p.dir, p.name+ext, unix.O_RDONLY)
		if err != nil {
			return err
		}
		*to = os.NewFile(uintptr(fd), p.name+ext)
	}
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	if index, err := p.index.Stat(); err != nil || !index.Mode().IsRegular() || !info.Mode().IsRegular() {
		return beneath.ErrNotRegular
	}
	p.read, err = vcs.OpenPack(p.index, p.file, info.Size(), s.format)
	return err
}

// loose opens the file of an object.
func (s *store) loose(id string, each func(dir int, path string, st *unix.Stat_t) (more bool)) {
	text := hex.EncodeToString([]byte(id))
	path := text[:2] + "/" + text[2:]
	for _, dir := range s.dirs {
		var st unix.Stat_t
		if beneath.Stat(dir, path, &st) == nil && !each(dir, path, &st) {
			return
		}
	}
}

// stood reports whether an object is there that the run has not brought.
func (s *store) stood(id string) bool {
	stood := false
	s.loose(id, func(_ int, _ string, st *unix.Stat_t) bool {
		stood = !s.guard.touched(st)
		return !stood
	})
	return stood || slices.ContainsFunc(s.packs, func(p *pack) bool {
		if p.fresh {
			return false
		}
		at, err := s.find(p, id)
		return err == nil && at >= 0
	})
}

// get reads an object. What has its name and is something else is passed over.
func (s *store) get(id string) (o vcs.Object, err error) { return s.within(id, maxObject, 0) }

func (s *store) within(id string, limit int64, depth int) (o vcs.Object, err error) {
	// What cannot be read costs as much as what can, and is asked for as often.
	if err := s.left.spend(64); err != nil {
		return o, err
	}
	err = errMissing
	if depth > 64 { // of deltas that name their base, which git makes for the network alone
		return o, ErrTooMuch
	}
	take := func(got vcs.Object, e error) (done bool) {
		if e == nil {
			e = s.left.spend(int64(len(got.Body)))
		}
		if e == nil && s.format.ID(got) != id {
			e = errForged
		}
		o, err = got, e
		return err == nil || errors.Is(err, ErrTooMuch)
	}
	s.loose(id, func(dir int, path string, _ *unix.Stat_t) bool {
		got, e := readLoose(dir, path, limit)
		return !take(got, e)
	})
	if err == nil || errors.Is(err, ErrTooMuch) {
		return o, err
	}
	for _, p := range s.packs {
		at, e := s.find(p, id)
		if e != nil || at < 0 {
			continue
		}
		got, e := p.read.Read(at, limit, func(base string, limit int64) (vcs.Object, error) {
			return s.within(base, limit, depth+1)
		}, func() error { return s.left.spend(0) })
		if errors.Is(e, vcs.ErrLarge) {
			e = ErrTooMuch
		}
		if take(got, e) {
			break
		}
	}
	return o, err
}

func readLoose(dir int, path string, limit int64) (o vcs.Object, err error) {
	fd, err := beneath.Open(dir, path, unix.O_RDONLY)
	if err != nil {
		return o, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return o, beneath.ErrNotRegular
	}
	o, err = vcs.Loose(f, limit)
	if errors.Is(err, vcs.ErrLarge) {
		err = ErrTooMuch
	}
	return o, err
}
