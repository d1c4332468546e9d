package workspace

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// The index is one file a workspace and rule set, outside the workspace:
//
//	magic, version, sum of rules, root's path
//	inodes whose other names were looked for
//	what git's index said of files, by git directory
//	the tree of directories, each before those below it
//	a checksum of all that
//
// It is believed only as far as (device, inode, ctime) of each directory say
// that its list of names is still the same. A ctime cannot be set by a program,
// but it is only as fine as the clock that it is taken from: a directory that
// changed just before it was read could change again without a new ctime, so
// that one is written down as unknown.
const (
	indexMagic   = "pccrun workspace index\n"
	indexVersion = 13
	maxIndex     = 512 << 20
	maxIndexes   = 256 // files: what was not used for longest goes when one more is made
)

// indexPrefix begins the name of each.
const indexPrefix = "workspace-"

// An index is what the last scan left.
type index struct {
	linked []uint64 // inodes with several names; their names are hits of classAlias
	blobs  []blobs
	root   *dir
	all    []dir // root and all below it
}

// blobs is what one git index records of some files, valid while the index
// file is the same.
type blobs struct {
	gitDir string
	id     identity
	ids    map[string]string // by path in the worktree; "" for a file that is not tracked
}

// An identity changes when the content of a file may have.
type identity struct {
	dev, ino    uint64
	ctime, size int64
}

func identityOf(st *unix.Stat_t) identity {
	return identity{st.Dev, st.Ino, st.Ctim.Nano(), st.Size}
}

// indexPath returns the file for a root and rule set.
func indexPath(q Query, sum uint64) string {
	return filepath.Join(q.IndexDir, fmt.Sprintf(indexPrefix+"%016x", sum))
}

// loadIndex returns what the last scan left, nil if there is nothing that can
// be believed.
func loadIndex(q Query, c *rules, sum uint64) *index {
	if q.IndexDir == "" || !ownDir(q.IndexDir) {
		return nil
	}
	fd, err := unix.Open(indexPath(q, sum), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || !own(&st) {
		unix.Close(fd)
		return nil
	}
	b, err := beneath.ReadFile(fd, maxIndex)
	if err != nil || len(b) < 8 {
		return nil
	}
	body := b[:len(b)-8]
	if checksum(body) != binary.LittleEndian.Uint64(b[len(body):]) {
		return nil
	}
	return decodeIndex(body, c, sum)
}

// checksum tells a damaged index from a whole one: FNV-1a over words, which
// needs no table to be built at each start.
func checksum(b []byte) uint64 {
	h := uint64(14695981039346656037)
	for ; len(b) >= 8; b = b[8:] {
		h = (h ^ binary.LittleEndian.Uint64(b)) * 1099511628211
		h ^= h >> 32 // a multiplication carries upwards only
	}
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// own reports whether nobody but this user can have written a file or directory.
func own(st *unix.Stat_t) bool {
	return int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

func ownDir(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && own(&st)
}

// save writes the index beside the old one and puts it in its place. It is
// there to save time: that it cannot be written is nobody's error.
func (x *index) save(q Query, sum uint64) {
	if os.MkdirAll(q.IndexDir, 0o700) != nil || !ownDir(q.IndexDir) {
		return
	}
	path := indexPath(q, sum)
	fresh := path + ".new"
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		// Another launch is writing, or one was killed while it did.
		if info, err := os.Lstat(fresh); err == nil && time.Since(info.ModTime()) > time.Minute {
			_ = os.Remove(fresh)
		}
		return
	}
	b := x.encode(q.Root, sum)
	_, err = f.Write(binary.LittleEndian.AppendUint64(b, checksum(b)))
	if e := f.Close(); err == nil {
		err = e
	}
	var st unix.Stat_t
	first := unix.Lstat(path, &st) != nil
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		_ = os.Remove(fresh)
	} else if first {
		prune(q.IndexDir)
	}
}

// prune removes the indexes that nobody has read for longest, down to maxIndexes. What is needed
// again is made again.
func prune(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, indexPrefix) })
	if len(names) <= maxIndexes {
		return
	}
	used := map[string]int64{}
	for _, name := range names {
		var st unix.Stat_t
		_ = unix.Fstatat(int(f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		used[name] = max(st.Atim.Nano(), st.Mtim.Nano())
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(used[a], used[b]) })
	for _, name := range names[:len(names)-maxIndexes] {
		_ = unix.Unlinkat(int(f.Fd()), name, 0)
	}
}

func (x *index) encode(root string, sum uint64) []byte {
	e := encoder{b: make([]byte, 0, 64<<10)}
	e.b = append(e.b, indexMagic...)
	e.num(indexVersion)
	e.num(sum)
	e.text(root)
	e.num(uint64(len(x.linked)))
	for _, ino := range x.linked {
		e.num(ino)
	}
	e.num(uint64(len(x.blobs)))
	for _, bl := range x.blobs {
		e.text(bl.gitDir)
		e.num(bl.id.dev)
		e.num(bl.id.ino)
		e.num(uint64(bl.id.ctime))
		e.num(uint64(bl.id.size))
		e.num(uint64(len(bl.ids)))
		for path, id := range bl.ids {
			e.text(path)
			e.text(id)
		}
	}
	// The tree is written apart, since how many there are stands before it.
	tree := encoder{b: make([]byte, 0, 64<<10)}
	tree.dir(x.root)
	e.num(tree.dirs)
	return append(e.b, tree.b...)
}

type encoder struct {
	b    []byte
	dirs uint64
}

func (e *encoder) num(n uint64) { e.b = binary.AppendUvarint(e.b, n) }

func (e *encoder) text(s string) {
	e.num(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) dir(d *dir) {
	e.dirs++
	e.text(d.rel)
	e.num(d.dev)
	e.num(d.ino)
	e.num(uint64(d.ctime))
	flags := uint64(d.state) << 1
	if d.git {
		flags |= 1
	}
	e.num(flags)
	e.num(uint64(d.why))
	e.num(uint64(len(d.hits)))
	for _, h := range d.hits {
		e.num(uint64(h.class)<<2 | uint64(h.kind))
		e.num(uint64(h.arg))
		e.num(h.ino)
		e.text(h.name)
	}
	e.num(uint64(len(d.kids)))
	for _, k := range d.kids {
		e.dir(k)
	}
}

// decodeIndex reads an index whose checksum is right. One that was written for
// another root, other rules or by another version is nil.
func decodeIndex(b []byte, c *rules, sum uint64) *index {
	rest, ok := strings.CutPrefix(string(b), indexMagic)
	if !ok {
		return nil
	}
	d := decoder{s: rest, rules: c}
	if d.num() != indexVersion || d.num() != sum || d.text() != c.root {
		return nil
	}
	x := &index{}
	for n := d.count(); n > 0; n-- {
		x.linked = append(x.linked, d.num())
	}
	for n := d.count(); n > 0; n-- {
		bl := blobs{gitDir: d.text(), id: identity{d.num(), d.num(), int64(d.num()), int64(d.num())}, ids: map[string]string{}}
		for n := d.count(); n > 0; n-- {
			path := d.text()
			bl.ids[path] = d.text()
		}
		x.blobs = append(x.blobs, bl)
	}
	n := d.count()
	if d.bad || n == 0 {
		return nil
	}
	d.slab, d.links = make([]dir, 0, n), make([]*dir, n)
	x.root = d.dir("", 0)
	x.all = d.slab
	if d.bad || d.s != "" || len(x.all) != n {
		return nil
	}
	return x
}

// A decoder reads what an encoder wrote; bad once something did not fit.
type decoder struct {
	s     string
	rules *rules
	slab  []dir  // directories yet to come are cut from here, all in one allocation
	links []*dir // and the lists of them from here
	bad   bool
}

// fail makes all that is read from here on zero.
func (d *decoder) fail() { d.bad, d.s = true, "" }

func (d *decoder) num() uint64 {
	var n uint64
	for i := 0; i < len(d.s) && i < binary.MaxVarintLen64; i++ {
		c := d.s[i]
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			d.s = d.s[i+1:]
			return n
		}
	}
	d.fail()
	return 0
}

// count is a number of things that take at least a byte each.
func (d *decoder) count() int {
	n := d.num()
	if n > uint64(len(d.s)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) text() string {
	n := d.count()
	s := d.s[:n]
	d.s = d.s[n:]
	return s
}

func (d *decoder) dir(parent string, depth int) *dir {
	if len(d.slab) == cap(d.slab) || depth > math.MaxUint16 {
		d.fail()
		return nil
	}
	d.slab = d.slab[:len(d.slab)+1]
	n := &d.slab[len(d.slab)-1]
	n.rel = d.text()
	if !isBelow(parent, n.rel, depth) {
		d.fail()
	}
	n.dev, n.ino, n.ctime = d.num(), d.num(), int64(d.num())
	flags := d.num()
	n.git, n.state = flags&1 != 0, state(flags>>1)
	n.why = uint32(d.num())
	if !d.rules.explains(n.state, n.why) {
		d.fail()
	}
	if c := d.count(); c > 0 {
		n.hits = make([]hit, c)
		for i := range n.hits {
			flags := d.num()
			h := hit{class: class(flags >> 2), kind: Kind(flags & 3), arg: uint32(d.num()), ino: d.num(), name: d.text()}
			if !d.rules.has(h) {
				d.fail()
			}
			n.hits[i] = h
		}
	}
	c := d.count()
	if d.bad || c > len(d.links) {
		d.fail()
		return nil
	}
	n.kids, d.links = d.links[:c:c], d.links[c:]
	for i := range n.kids {
		n.kids[i] = d.dir(n.rel, depth+1)
	}
	return n
}

// isBelow reports whether rel is a name in parent, or the root at depth 0.
func isBelow(parent, rel string, depth int) bool {
	if depth == 0 {
		return rel == ""
	}
	if parent != "" {
		if len(rel) <= len(parent) || rel[:len(parent)] != parent || rel[len(parent)] != '/' {
			return false
		}
		rel = rel[len(parent)+1:]
	}
	return rel != "" && rel != "." && rel != ".." && strings.IndexByte(rel, '/') < 0 && strings.IndexByte(rel, 0) < 0
}

// verify marks the directories that are as they were. One is if its inode and
// ctime are, and its parent is, so that it stands where it stood: the walk
// asks for the parent first.
func (x *index) verify(fd int, dev uint64) {
	check := func(some []dir) {
		var st unix.Stat_t
		for i := range some {
			d := &some[i]
			d.same = d.ctime != 0 && beneath.Stat(fd, d.rel, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR &&
				st.Dev == dev && st.Dev == d.dev && st.Ino == d.ino && st.Ctim.Nano() == d.ctime
		}
	}
	if len(x.all) < 4*pile {
		check(x.all)
		return
	}
	var second sync.WaitGroup
	half := len(x.all) / 2
	second.Go(func() { check(x.all[half:]) })
	check(x.all[:half])
	second.Wait()
}

// forget makes unknown what may change without a trace: directories that
// changed just before start, that lie on another file system, or that could
// not be read.
func forget(d *dir, start time.Time, dev uint64) {
	if changedSince(d.ctime, start) || d.dev != dev || d.shut {
		d.ctime = 0
	}
	d.kids = slices.DeleteFunc(d.kids, func(k *dir) bool { return k.gone })
	for _, k := range d.kids {
		forget(k, start, dev)
	}
}

// keepsCtime reports whether a file system is known to change a directory's
// ctime with each change of its names, by the clock of this machine.
func keepsCtime(fd int) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil {
		return false
	}
	switch int64(fs.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC,
		unix.F2FS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.BCACHEFS_SUPER_MAGIC, zfsMagic:
		return true
	}
	return false
}

// zfsMagic is ZFS_SUPER_MAGIC of OpenZFS.
const zfsMagic = 0x2fc12fc1
