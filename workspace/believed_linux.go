package workspace

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Git takes an object for what the index of a pack calls it, looks where a multi-pack-index
// says, and takes of a commit what a commit-graph says: it reads none of what that is about.
// So that is read here, as far as the run has written it: of a repository that stood as much as the
// time allows, and what is more is said not to have been read; of a new one as far as it is little.

// toBelieve is what this may take in all repositories together. Tests set it.
var toBelieve = allowance{room: maxObjects, time: maxRead}

// A belief bounds what is read of what git believes.
type belief struct {
	packed int64 // bytes of a pack of which all objects are read
	names  int64 // that a pack, a multi-pack-index or a commit-graph has
	cache  int64 // bytes of one of the latter two
}

var (
	ofStanding = belief{math.MaxInt64, vcs.MaxEntries, 64 << 20}
	ofNew      = belief{16 << 20, 30_000, 16 << 20}
)

const (
	notRead    = "it is too much to be read, and git believes it; `git fsck` tells whether it is what it says"
	multiPack  = "multi-pack-index"
	graphChain = "info/commit-graphs/commit-graph-chain"
)

// believed looks at what git would believe, and tells of what is not so, by the path in a
// directory of objects. Of a new repository it is not said what is too much.
func (s *store) believed(stood bool, tell func(path, what, why string)) error {
	if s.most = ofNew; stood {
		s.most = ofStanding
	}
	much := func(path, what string) {
		if stood {
			tell(path, what, notRead)
		}
	}
	var all error
	for _, d := range s.opened {
		for _, look := range [...]func(opened, func(path, what string)) (string, string, error){s.packsOf, s.placesOf, s.graphOf} {
			path, id, err := look(d, much)
			if errors.Is(err, ErrTooMuch) {
				if !stood {
					return err
				}
				much(d.path+"/"+path, "new or changed")
				continue
			}
			if err != nil {
				all = cmp.Or(all, fmt.Errorf("%s: %w", path, err))
			}
			if id != "" {
				tell(d.path+"/"+path, "what it says of "+hex.EncodeToString([]byte(id))+" is not so", forged)
			}
		}
	}
	return all
}

// packsOf looks at the objects of the packs.
func (s *store) packsOf(d opened, much func(path, what string)) (path, id string, err error) {
	for _, p := range s.packs {
		if !p.fresh || p.dir != d.packed {
			continue
		}
		path = "pack/" + p.name + ".idx"
		if _, err := s.find(p, strings.Repeat("\x00", s.format.Digits()/2)); err != nil {
			if gone(err) { // git goes on without
				continue
			}
			return path, "", err
		}
		info, err := p.file.Stat()
		if err != nil {
			return path, "", err
		}
		unseen := func() { much(d.path+"/pack/"+p.name+".pack", fmt.Sprintf("%d MiB, new or changed", info.Size()>>20)) }
		if info.Size() > s.most.packed || p.read.Count() > s.most.names {
			unseen()
			continue
		}
		id, err = p.read.Forged(s.holds(d.path), maxObject, func(base string, limit int64) (vcs.Object, error) { return s.within(base, limit, 1) }, s.left.spend)
		if errors.Is(err, vcs.ErrLarge) || errors.Is(err, ErrTooMuch) && s.most == ofStanding {
			unseen()
			continue
		}
		if err != nil || id != "" {
			return path, id, err
		}
	}
	return "", "", nil
}

// written reads a file of a directory of objects that the run has written.
func (s *store) written(dir int, name, around string) (b []byte, large bool, err error) {
	var st unix.Stat_t
	if err := beneath.Stat(dir, name, &st); err != nil || !s.guard.touched(&st) && !s.guard.exchanged(around) {
		return nil, false, err
	}
	if st.Size > s.most.cache {
		return nil, true, nil
	}
	b, err = readOwn(dir, name, s.most.cache)
	return b, false, cmp.Or(err, s.left.spend(int64(len(b))))
}

// errSaid ends a look at what is not so.
var errSaid = errors.New("it is not so")

// looked returns what went wrong in a look at a file, of which it says that it was too much.
func (d opened) looked(path string, err error, much func(path, what string)) error {
	switch {
	case errors.Is(err, vcs.ErrLarge):
		much(d.path+"/"+path, "new or changed")
		return nil
	case err == errSaid:
		return nil
	}
	return err
}

// placesOf compares a multi-pack-index with the indices of the packs.
func (s *store) placesOf(d opened, much func(path, what string)) (path, id string, err error) {
	path = "pack/" + multiPack
	if d.packed < 0 {
		return "", "", nil
	}
	if s.inParts(d) {
		much(d.path+"/"+path+".d", "new or changed")
	}
	b, large, err := s.written(d.packed, multiPack, d.path+"/pack")
	switch {
	case gone(err):
		return "", "", nil
	case err != nil:
		return path, "", err
	case large:
		much(d.path+"/"+path, "new or changed")
	}
	if b == nil {
		return "", "", nil
	}
	names := map[string]*pack{}
	for _, p := range s.packs {
		if p.dir == d.packed {
			names[p.name+".idx"] = p
		}
	}
	n := int64(0)
	err = vcs.EachPlace(b, s.format, func(name, in string, at int64) error {
		if n++; n > s.most.names {
			return vcs.ErrLarge
		}
		if err := s.left.spend(64); err != nil {
			return err
		}
		p := names[in]
		if p == nil { // git goes on without
			return nil
		}
		if is, err := s.find(p, name); err != nil || is != at {
			id = name
			return errSaid
		}
		return nil
	})
	return path, id, d.looked(path, err, much)
}

// inParts reports whether the run has written any of a multi-pack-index in parts. Git makes
// one only where it is asked to, so that nobody reads it here.
func (s *store) inParts(d opened) bool {
	var st unix.Stat_t
	if beneath.Stat(d.packed, multiPack+".d", &st) != nil {
		return false
	}
	if s.guard.touched(&st) || s.guard.exchanged(d.path+"/pack") {
		return true
	}
	fd, err := beneath.Open(d.packed, multiPack+".d", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	names, err := beneath.Entries(fd)
	return err != nil || slices.ContainsFunc(names, func(name string) bool { return beneath.Stat(fd, name, &st) != nil || s.guard.touched(&st) })
}

// graphOf compares a commit-graph with the commits.
func (s *store) graphOf(d opened, much func(path, what string)) (path, id string, err error) {
	var files [][]byte
	path = "info/commit-graph"
	b, large, err := s.written(d.dir, path, d.path+"/info")
	switch {
	case err == nil && b != nil:
		files = append(files, b)
	case err == nil && !large, err != nil && !gone(err): // else git looks for a chain
		return path, "", err
	case err != nil:
		path = graphChain
		var fresh bool
		if files, fresh, large, err = s.chain(d); err != nil || !fresh && !large {
			return path, "", err
		}
	}
	if large {
		much(d.path+"/"+path, "new or changed")
		return path, "", nil
	}
	n := int64(0)
	err = vcs.EachCommit(files, s.format, func(name, tree string, parents []string) error {
		if n++; n > s.most.names {
			return vcs.ErrLarge
		}
		o, err := s.get(name)
		if errors.Is(err, errMissing) { // git has nothing to show of that
			return nil
		}
		if err != nil {
			return err
		}
		is, behind, err := vcs.ParseCommit(o.Body)
		if err != nil || is != tree || !slices.Equal(behind, parents) {
			id = name
			return errSaid
		}
		return nil
	})
	return path, id, d.looked(path, err, much)
}

// chain reads the files of a commit-graph in parts, and whether the run has written one.
func (s *store) chain(d opened) (files [][]byte, fresh, large bool, err error) {
	dir := d.dir
	list, err := readOwn(dir, graphChain, vcs.MaxConfig)
	if err != nil {
		if gone(err) {
			err = nil
		}
		return nil, false, false, err
	}
	names, err := vcs.GraphChain(list)
	if err != nil {
		return nil, false, false, err
	}
	size := int64(0)
	var in, above unix.Stat_t // with its directory it comes as old as it was
	fresh = s.guard.exchanged(d.path+"/info") || beneath.Stat(dir, filepath.Dir(graphChain), &in) == nil && beneath.Stat(dir, "info", &above) == nil && s.guard.touched(&in) && s.guard.touched(&above)
	for _, name := range append(names, graphChain[strings.LastIndexByte(graphChain, '/')+1:]) {
		var st unix.Stat_t
		if err := beneath.Stat(dir, "info/commit-graphs/"+name, &st); err != nil {
			if gone(err) { // of another repository, or of none
				return nil, false, true, nil
			}
			return nil, false, false, err
		}
		fresh, size = fresh || s.guard.touched(&st), size+st.Size
	}
	if !fresh || size > s.most.cache {
		return nil, fresh, fresh, nil
	}
	for _, name := range names {
		b, err := readOwn(dir, "info/commit-graphs/"+name, s.most.cache)
		if err = cmp.Or(err, s.left.spend(int64(len(b)))); err != nil {
			return nil, false, false, err
		}
		files = append(files, b)
	}
	return files, true, false, nil
}

// know notes directories with which all would come that is in them, as old as it was.
func (g *Guard) know(dir string, names ...string) {
	for _, name := range names {
		path := dir + "/" + name
		if _, known := g.places[path]; known {
			continue
		}
		var st, above unix.Stat_t
		if g.stat(path, &st) != nil || g.stat(filepath.Dir(path), &above) != nil || g.touched(&above) {
			st.Ino = 0 // it is not there, or another could be there already
		}
		g.places[path] = st.Ino
	}
}

// exchanged reports whether such a directory is not the one that stood.
func (g *Guard) exchanged(path string) bool {
	had, known := g.places[path]
	var st unix.Stat_t
	return known && g.stat(path, &st) == nil && st.Ino != had
}

// came reports whether a directory may have been moved where it is, as far as nobody noted which
// stood there by what that writes to: itself, and the one above.
func (g *Guard) came(path string) bool {
	if g.places[path] != 0 {
		return g.exchanged(path)
	}
	var st, above unix.Stat_t
	return g.stat(path, &st) != nil || g.touched(&st) && (g.stat(filepath.Dir(path), &above) != nil || g.touched(&above))
}
