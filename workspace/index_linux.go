package workspace

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/internal/codec"
)

// The index is one file a workspace and rule set, outside the workspace: its magic, what an [index] holds in the form of
// an unfinished-run record, and a checksum of both.
//
// It is believed only as far as (device, inode, ctime) of each directory say
// that its list of names is still the same. A ctime cannot be set by a program,
// but it is only as fine as the clock that it is taken from: a directory that
// changed just before it was read could change again without a new ctime, so
// that one is written down as unknown.
//
// The magic has a number, to be raised with the format and with what [compile] makes of a query: hits name rules by theirs.
const (
	indexMagic = "pccrun workspace index 15\n"
	maxIndex   = 512 << 20
	maxIndexes = 256 // files: what was not used for longest goes when one more is made
)

// indexPrefix begins the name of each.
const indexPrefix = "workspace-"

// An index is what the last scan left.
type index struct {
	Sum    uint64 // [rules.sum]
	Root   string
	Linked []uint64 // inodes with several names; their names are hits of classAlias
	Tree   *dir

	all []*dir // Tree and all below it
}

// indexPath returns the file for a root and rule set.
func indexPath(q Query, sum uint64) string {
	return filepath.Join(q.IndexDir, fmt.Sprintf(indexPrefix+"%016x", sum))
}

// loadIndex returns what the last scan left, nil if there is nothing that can
// be believed.
func loadIndex(q Query, sum uint64) *index {
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
	text, ok := strings.CutPrefix(string(body), indexMagic)
	if !ok || checksum(body) != binary.LittleEndian.Uint64(b[len(body):]) {
		return nil
	}
	x := &index{}
	if !codec.Read(text, x) || x.Tree == nil || x.Sum != sum || x.Root != q.Root {
		return nil
	}
	x.list(x.Tree)
	return x
}

func (x *index) list(d *dir) {
	x.all = append(x.all, d)
	for _, k := range d.Kids {
		x.list(k)
	}
}

// checksum tells a damaged index from a whole one.
func checksum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
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
	x.Sum, x.Root = sum, q.Root
	b := codec.Append([]byte(indexMagic), x)
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

// verify marks the directories that are as they were. One is if its inode and
// ctime are, and its parent is, so that it stands where it stood: the walk
// asks for the parent first.
func (x *index) verify(fd int, dev uint64) {
	check := func(some []*dir) {
		var st unix.Stat_t
		for _, d := range some {
			d.same = d.Ctime != 0 && beneath.Stat(fd, d.Rel, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR &&
				st.Dev == dev && st.Dev == d.Dev && st.Ino == d.Ino && st.Ctim.Nano() == d.Ctime
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
	if changedSince(d.Ctime, start) || d.Dev != dev || d.shut {
		d.Ctime = 0
	}
	d.Kids = slices.DeleteFunc(d.Kids, func(k *dir) bool { return k.gone })
	for _, k := range d.Kids {
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
