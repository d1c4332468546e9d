package workspace

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	time  time.Duration   // that is left of one that is used from time to time: see [store.apart]
	stop  <-chan struct{} // ends it; nil for never
}

// apart reads by another allowance; the time that this takes is none of the first's.
func (s *store) apart(other *allowance, read func() error) error {
	had, began := s.left, time.Now()
	other.until = began.Add(other.time)
	s.left = other
	err := read()
	took := time.Since(began)
	other.time -= took
	had.until = had.until.Add(took)
	s.left = had
	return err
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
	opened []opened
	packs  []*pack
	forged string // the first object that is not what its name says
	broken error  // what is there and cannot be read
	most   belief // what is read of what git believes
}

// An opened is a directory of objects, and the one of its packs, -1 for none.
type opened struct {
	path        string
	dir, packed int
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
	packed, err := s.list(fd, path)
	if err != nil {
		return err
	}
	s.opened = append(s.opened, opened{path, fd, packed})
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

// list notes the packs of a directory of objects, and returns theirs.
func (s *store) list(objects int, path string) (fd int, err error) {
	fd, err = s.guard.openDir(objects, "pack")
	if err != nil {
		if gone(err) {
			err = nil
		}
		return -1, err
	}
	s.dirs = append(s.dirs, fd)
	names, err := beneath.Entries(fd)
	if err != nil {
		return fd, err
	}
	for _, name := range names {
		base, is := strings.CutSuffix(name, ".idx")
		if !is {
			continue
		}
		p := &pack{dir: fd, name: base}
		p.fresh = s.guard.exchanged(path + "/pack")
		for _, name := range [...]string{name, base + ".pack"} {
			var st unix.Stat_t
			if err := beneath.Stat(fd, name, &st); err != nil || s.guard.touched(&st) {
				p.fresh = true
			}
		}
		if s.packs = append(s.packs, p); len(s.packs) > maxPacks {
			return fd, ErrTooMuch
		}
	}
	return fd, nil
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
	if err != nil && !gone(err) && s.broken == nil {
		s.broken = fmt.Errorf("%s.idx: %w", p.name, err)
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

// begins returns the objects whose names begin with these digits, as far as they are few.
func (s *store) begins(digits string) (ids []string) {
	const few = 16
	for _, dir := range s.dirs {
		fd, err := openDirOf(dir, digits[:2])
		if err != nil {
			continue
		}
		names, _ := beneath.Entries(fd)
		unix.Close(fd)
		for _, name := range names {
			if id, f, ok := vcs.ParseID(digits[:2] + name); ok && f == s.format && strings.HasPrefix(name, digits[2:]) && len(ids) < few {
				ids = append(ids, id)
			}
		}
	}
	for _, p := range s.packs {
		if _, err := s.find(p, strings.Repeat("\x00", s.format.Digits()/2)); err == nil {
			more, _ := p.read.Begins(digits, few)
			ids = append(ids, more...)
		}
	}
	return ids
}

// fresh reports whether the run has brought an object, which was nowhere before.
func (s *store) fresh(id string) bool {
	came, stood := false, false
	s.loose(id, func(_ int, _ string, st *unix.Stat_t) bool {
		came, stood = came || s.guard.touched(st), stood || !s.guard.touched(st)
		return !stood
	})
	came = came || s.packed(id, true)
	return came && !stood && !s.packed(id, false) && !s.held(id) // those that stood only for what came
}

// packed reports whether a pack has an object: one that the run has made, or one that stood.
func (s *store) packed(id string, fresh bool) bool {
	return slices.ContainsFunc(s.packs, func(p *pack) bool {
		if p.fresh != fresh {
			return false
		}
		at, err := s.find(p, id)
		return err == nil && at >= 0
	})
}

// stood reports whether an object is there that the run has not brought.
func (s *store) stood(id string) bool {
	came, stood := false, false
	s.loose(id, func(_ int, _ string, st *unix.Stat_t) bool {
		came, stood = true, !s.guard.touched(st)
		return !stood
	})
	return stood || s.packed(id, false) || (came || s.packed(id, true)) && s.held(id)
}

// get reads an object. What has its name and is something else is passed over, and noted:
// git would take it.
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
			s.isForged(id)
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

func (s *store) isForged(id string) {
	if s.forged == "" {
		s.forged = hex.EncodeToString([]byte(id))
	}
}

func readLoose(dir int, path string, limit int64) (o vcs.Object, err error) {
	err = withLoose(dir, path, func(r io.Reader) error {
		o, err = vcs.Loose(r, limit)
		return err
	})
	if errors.Is(err, vcs.ErrLarge) {
		err = ErrTooMuch
	}
	return o, err
}

func withLoose(dir int, path string, read func(r io.Reader) error) error {
	fd, err := beneath.Open(dir, path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return beneath.ErrNotRegular
	}
	return read(f)
}

// sound reads the objects that the run has left in files of their own, whether they are
// what their names say: git believes that, and writes what it finds. It goes on while there is room, and
// says whether it has seen all.
//
// A file that is written to in its place changes nothing of its directory, so that each is
// asked when it changed: where nobody packs them there are tens of thousands, at more than
// a microsecond of the kernel's, and two workers share them.
func (s *store) sound() bool {
	for _, d := range s.opened {
		fans, err := beneath.Entries(d.dir)
		if err != nil {
			continue
		}
		fans = slices.DeleteFunc(fans, func(name string) bool { return !vcs.IsFan(name) })
		var st unix.Stat_t
		changed := unix.Fstat(d.dir, &st) != nil || s.guard.touched(&st)
		all := s.guard.came(d.path)
		var reading sync.Mutex // and seen
		seen := true
		byTwo(len(fans), func(i int, buf []byte) (more bool) {
			fd, names, err := s.come(d.dir, fans[i], all, changed, buf)
			reading.Lock()
			defer reading.Unlock()
			seen = seen && err == nil && s.soundIn(fd, fans[i], names)
			if fd >= 0 {
				unix.Close(fd)
			}
			return seen
		})
		if !seen {
			return false
		}
	}
	return true
}

// byTwo calls work with each number below n, and with room for what getdents64(2) says, until
// that reports that no more is wanted: two at once where there are many.
func byTwo(n int, work func(i int, buf []byte) (more bool)) {
	var next atomic.Int32
	worker := func() {
		buf := make([]byte, 32<<10)
		for i := int(next.Add(1)) - 1; i < n && work(i, buf); {
			i = int(next.Add(1)) - 1
		}
	}
	var second sync.WaitGroup
	if n > pile {
		second.Go(worker)
	}
	worker()
	second.Wait()
}

// come opens one of the directories that objects are spread over, and returns the names
// of those that may have come with the run: all, if that may be true of the directory, as it is
// of one that changed in one that did. The descriptor is negative if there is none: what is no
// directory, or may not be read by who runs git here, git reads nothing from.
func (s *store) come(dir int, fan string, all, changed bool, buf []byte) (fd int, names []string, err error) {
	var st unix.Stat_t
	if beneath.Stat(dir, fan, &st) == nil {
		all = all || changed && s.guard.touched(&st) // with it all comes as old as it was
	}
	fd, err = s.guard.openDir(dir, fan)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EACCES:
		return -1, nil, nil
	default:
		return -1, nil, err
	}
	err = beneath.Each(fd, buf, func(name []byte) {
		if len(fan)+len(name) != s.format.Digits() {
			return
		}
		if ctime, ok := beneath.Ctime(fd, name); ok && (all || latest(ctime) >= s.guard.begun()) {
			names = append(names, string(name))
		}
	})
	return fd, names, err
}

// soundIn is [store.sound] for some names of a directory.
func (s *store) soundIn(dir int, fan string, names []string) bool {
	for _, name := range names {
		id, f, ok := vcs.ParseID(fan + name)
		if !ok || f != s.format {
			continue
		}
		err := s.left.spend(64)
		var is string
		if err == nil {
			err = withLoose(dir, name, func(r io.Reader) (err error) {
				is, err = vcs.LooseID(r, f, s.left.spend)
				return err
			})
		}
		if errors.Is(err, ErrTooMuch) {
			return false
		}
		if err == nil && is != id {
			s.isForged(id)
		}
	}
	return true
}
