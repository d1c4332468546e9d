package remote

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// inPlace does what a word says.
func inPlace(word string, in input, args []string) (answer any, err error) {
	unix.Umask(0o022)
	from, err := in.open()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	switch word {
	case prepareWord: // the program stays: the answer may be lost
		return prepare(in.file, from, args[0], args[1], args[2])
	case installWord:
		return install(args[0], args[1], args[2])
	case adoptWord:
		return adopt(args[0], args[1])
	case toolsWord:
		return tools(args[0], args[1], args[2] != "")
	case listWord:
		return list(args[0], args[1] == "sums", args[1] == "busy")
	case usageWord:
		return usage(args[0])
	case packWord:
		answer, err = packNames(args[0], from, args[1], args[2], args[3] != "")
	case extractWord:
		err = extract(from, args[0])
	case removeWord:
		err = removeNames(args[0], from)
	case repositoryWord:
		err = makeRepository(args[0], args[1])
	default:
		err = errNoWord
	}
	if err != nil {
		return nil, err
	}
	for i := range in.parts { // one that is gone: the word was executed twice at the same time
		if e := os.Remove(partName(in.file, i, in.parts)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return answer, err
}

// files are read one after the other.
type files struct {
	io.Reader
	list []*os.File
}

// Close closes them.
func (f *files) Close() (err error) {
	for _, one := range f.list {
		err = errors.Join(err, one.Close())
	}
	return err
}

// open opens what came, if it is what was sent.
func (in input) open() (_ *files, err error) {
	all, sum := &files{}, sha256.New()
	defer func() {
		if err != nil {
			all.Close()
		}
	}()
	var list []io.Reader
	for i := range in.parts {
		f, err := os.Open(partName(in.file, i, in.parts))
		if errors.Is(err, fs.ErrNotExist) { // the word was done, and the answer was lost: once more
			return nil, errSum
		} else if err != nil {
			return nil, err
		}
		all.list, list = append(all.list, f), append(list, f)
		if _, err = io.Copy(sum, f); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			return nil, err
		}
	}
	if in.parts > 0 && hex.EncodeToString(sum.Sum(nil)) != in.sum {
		return nil, errSum
	}
	all.Reader = io.MultiReader(list...)
	return all, nil
}

// namesIn are the names that [namesOf] wrote.
func namesIn(from io.Reader) ([]string, error) {
	text, err := io.ReadAll(from)
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), err
}

// prepare copies pccrun's own program out of the directory that it was uploaded to, and makes the directories.
func prepare(uploaded string, program io.Reader, name, own, home string) (*prepared, error) {
	p := &prepared{Home: inside.Text(cmp.Or(home, os.Getenv("HOME"))), Path: inside.Text(os.Getenv("PATH")), User: inside.Text(strconv.Itoa(os.Getuid()))}
	if u, err := user.Current(); err == nil {
		p.User, p.Home = inside.Text(u.Username), cmp.Or(p.Home, inside.Text(u.HomeDir))
	}
	home = string(p.Home)
	if !filepath.IsAbs(home) || filepath.Clean(home) != home {
		return nil, fmt.Errorf("no home directory: HOME is %q", home)
	}
	dir, copied := filepath.Join(home, own), filepath.Join(home, name)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(copied, 0o755)); err != nil {
		return nil, err
	}
	if there, err := os.ReadDir(copied); err != nil || len(there) > 0 {
		return nil, errors.Join(fmt.Errorf("%s is not empty", copied), err)
	}
	if to := filepath.Join(dir, "pccrun"); to != uploaded {
		return p, writeProgram(program, to)
	}
	return p, nil
}

// writeProgram makes a program, or leaves what was there.
func writeProgram(from io.Reader, to string) error {
	fresh := to + ".new"
	out, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return err
	}
	return os.Rename(fresh, to)
}

// rootsDir is where pccrun's own program is as root.
func rootsDir(name string) string { return filepath.Join("/opt", name) }

// install copies pccrun's own program to a directory that is root's, or beside the copy where nobody is root, and removes
// the one that it was uploaded to. What is there already is its own, of a call that was answered too late.
func install(from, name, uploaded string) (inside.Text, error) {
	dir := filepath.Join(from, "inside")
	if os.Getuid() == 0 {
		dir = rootsDir(name)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if _, other := os.Lstat(filepath.Join(dir, "own")); other != nil {
			return "", err
		}
	}
	program, err := os.Open(filepath.Join(from, "pccrun"))
	if err != nil {
		return "", err
	}
	defer program.Close()
	if err := writeProgram(program, filepath.Join(dir, "pccrun")); err != nil {
		return "", err
	}
	if uploaded != from {
		err = state.RemovePath(uploaded)
	}
	return inside.Text(dir), errors.Join(err, makeOwn(dir))
}

// makeOwn makes what pccrun keeps of runs beside its program.
func makeOwn(dir string) error {
	return errors.Join(os.MkdirAll(filepath.Join(dir, toolsOwn), 0o755), os.MkdirAll(filepath.Join(dir, commandsOwn), 0o755))
}

// tools makes the directory for what is installed, anew where something else stands there. It is the user's, whose installer writes
// it; as root it lies where nothing above it is anybody's, so that a command has nothing but what it reads there.
func tools(copied, key string, done bool) (*toolsDir, error) {
	dir := rootsDir(toolsName)
	if os.Getuid() != 0 {
		dir = filepath.Join(filepath.Dir(copied), toolsName)
	}
	name := dir + ".is"
	answer := &toolsDir{Dir: inside.Text(dir)}
	if done {
		answer.Stands = true
		return answer, os.WriteFile(name, []byte(key), 0o644)
	}
	if text, err := os.ReadFile(name); err == nil && string(text) == key {
		answer.Stands = true
		return answer, nil
	}
	var st unix.Stat_t
	err := unix.Stat(copied, &st)
	if err == nil {
		err = errors.Join(state.RemovePath(name), state.RemovePath(dir), os.MkdirAll(dir, 0o755), os.Lchown(dir, int(st.Uid), int(st.Gid)))
	}
	return answer, err
}

// adopt moves the program that an earlier run installed.
func adopt(from, name string) (inside.Text, error) {
	if os.Getuid() != 0 {
		return "", errors.New("pccrun is not root there")
	}
	dir := rootsDir(name)
	if err := makeOwn(dir); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "pccrun")
	if _, err := os.Lstat(program); err != nil {
		if err := os.Rename(filepath.Join(from, "pccrun"), program); err != nil {
			return "", err
		}
	}
	return inside.Text(dir), state.RemovePath(from)
}

// list lists a directory, but what lies in a .git. Where busy, what cannot be looked at is left out.
func list(dir string, sums, busy bool) (*listing, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &listing{}
	if info, err := os.Lstat(filepath.Join(dir, ".git/logs/HEAD")); err == nil {
		l.Reflog = info.Size()
	}
	limits := beneath.Limits{Entries: maxListed, Depth: maxListedDepth, Time: usual.script, Shut: func(path string, err error) error {
		if busy {
			return nil
		}
		return fmt.Errorf("open %q: %w", path, err)
	}}
	err = beneath.Walk(int(f.Fd()), limits, func(dir int, name string, st *unix.Stat_t, path func() string) error {
		e, err := entryOf(dir, name, st, sums)
		switch {
		case err != nil && busy:
			return nil
		case err != nil:
			return fmt.Errorf("%q: %w", path(), err)
		}
		l.Entries = append(l.Entries, listed{inside.Text(path()), e})
		if name == ".git" {
			st.Mode &^= unix.S_IFMT // nobody goes down into it
		}
		return nil
	})
	return l, err
}

// entryOf is what a listing says of an entry of a directory.
func entryOf(dir int, name string, st *unix.Stat_t, sums bool) (e entry, err error) {
	e = entry{Kind: beneath.KindOf(st.Mode), Mode: st.Mode & 0o7777, Size: st.Size, Inode: st.Ino, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}
	if sums {
		e.Names = int(st.Nlink)
	}
	switch {
	case e.Kind == beneath.Link:
		target, n := make([]byte, unix.PathMax), 0
		n, err = unix.Readlinkat(dir, name, target)
		e.Target = inside.Text(target[:max(n, 0)])
	case e.Kind == beneath.File && sums && e.Size <= maxSummed:
		e.Sum, err = sumAt(dir, name)
	}
	return e, err
}

// sumAt is the SHA-256 of a file in a directory, in hexadecimal digits.
func sumAt(dir int, name string) (string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// maxSummed is the size of the largest file that could have come up.
const maxSummed = 512 << 20

// openFile opens a file of a copy, and waits for nobody where it is none any more.
func openFile(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// partWriter writes a directory of files of so many bytes at most, one after the other.
type partWriter struct {
	dir   string
	most  int64
	left  int64 // in the part that is written
	parts int
	file  *os.File
}

func (w *partWriter) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		if w.left == 0 {
			if err = w.Close(); err == nil {
				w.file, err = os.OpenFile(downName(w.dir, w.parts), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
			}
			if err != nil {
				break
			}
			w.parts, w.left = w.parts+1, w.most
		}
		var k int
		k, err = w.file.Write(b[n:][:min(int64(len(b)-n), w.left)])
		n, w.left = n+k, w.left-int64(k)
	}
	return n, err
}

// Close ends the last part.
func (w *partWriter) Close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// packNames makes an archive of names, those alone and nothing below them. Where busy, what goes or shrinks meanwhile is
// left out, or ends in zeros.
func packNames(dir string, from io.Reader, into, most string, busy bool) (*packed, error) {
	names, err := namesIn(from)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	to := &partWriter{dir: into}
	to.most, err = strconv.ParseInt(most, 10, 64)
	if err = errors.Join(err, state.RemovePath(into), os.Mkdir(into, 0o755)); err != nil {
		return nil, err
	}
	sum, counted := sha256.New(), &shown{}
	buffered := bufio.NewWriterSize(io.MultiWriter(to, sum), 1<<20)
	counted.to = buffered
	small, err := filesync.Compress(counted)
	if err != nil {
		return nil, err
	}
	p := &packer{archive: tar.NewWriter(small), root: root, busy: busy, buf: make([]byte, 64<<10)}
	defer p.close()
	for _, name := range names {
		if err := p.pack(name); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), to.Close())
		}
	}
	if err := errors.Join(p.archive.Close(), small.Close(), buffered.Flush(), to.Close()); err != nil {
		return nil, err
	}
	return &packed{hex.EncodeToString(sum.Sum(nil)), counted.done, to.parts}, nil
}

// A packer writes an archive of names. The directory of the last one stays open: a way from the top for each would be most
// of the work.
type packer struct {
	archive *tar.Writer
	root    *os.Root
	busy    bool
	dir     *os.Root // nil: none is open
	at      string   // its path
	buf     []byte
}

func (p *packer) close() {
	if p.dir != nil {
		p.dir.Close()
	}
	p.dir = nil
}

// in opens the directory of a name.
func (p *packer) in(name string) (err error) {
	if at := filepath.Dir(name); p.dir == nil || p.at != at {
		p.close()
		p.at = at
		p.dir, err = p.root.OpenRoot(at)
	}
	return err
}

func (p *packer) pack(name string) error {
	err := p.in(name)
	base := filepath.Base(name)
	var info fs.FileInfo
	if err == nil {
		info, err = p.dir.Lstat(base)
	}
	if p.busy && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(info.Sys().(*syscall.Stat_t).Mode & 0o7777), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = p.dir.Readlink(base); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		f, err := openFile(p.dir, base)
		if p.busy && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
		if err := p.archive.WriteHeader(h); err != nil {
			return err
		}
		n, err := io.CopyBuffer(p.archive, io.LimitReader(f, h.Size), p.buf)
		switch {
		case err != nil || n == h.Size:
			return err
		case !p.busy:
			return io.EOF
		}
		_, err = io.CopyN(p.archive, filesync.Zeros{}, h.Size-n)
		return err
	default:
		return errors.New("neither a file, a directory nor a link any more")
	}
	return p.archive.WriteHeader(h)
}

// extract makes what an archive of the engine's holds, in place of what stands there.
func extract(from io.Reader, dir string) error {
	plain, err := filesync.Decompress(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	fresh := dir
	if there, err := os.ReadDir(dir); err != nil || len(there) > 0 { // an earlier run's
		fresh = filepath.Join(filepath.Dir(dir), ".pccrun-"+filepath.Base(dir)+"-fresh")
		if err := errors.Join(err, state.RemovePath(fresh)); err != nil {
			return err
		}
	}
	if _, err := filesync.Extract(context.Background(), fresh, plain, filesync.Down{Trust: true}); err != nil || fresh == dir {
		return err
	}
	if err := merge(fresh, dir); err != nil {
		return err
	}
	return state.RemovePath(fresh)
}

// merge moves all of a tree into another beside it, in place of what stands there. A directory gets its mode and time when
// all is in it. No link is followed: what is in the way of a directory is removed.
func merge(from, to string) error {
	root, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer root.Close()
	tree, err := os.Open(from)
	if err != nil {
		return err
	}
	defer tree.Close()
	top, err := tree.Stat()
	from, to = filepath.Base(from), filepath.Base(to)
	if err = errors.Join(err, root.Chmod(from, 0o700), root.Chmod(to, 0o700)); err != nil {
		return err
	}
	type dir struct {
		name string
		mode fs.FileMode
		time time.Time
	}
	dirs := []dir{{to, top.Mode(), top.ModTime()}}
	err = beneath.Walk(int(tree.Fd()), beneath.Limits{Entries: 2 << 20, Depth: 4096, Time: usual.transfer}, func(_ int, _ string, st *unix.Stat_t, rel func() string) error {
		name, at, isDir := filepath.Join(from, rel()), filepath.Join(to, rel()), beneath.KindOf(st.Mode) == beneath.Dir
		there, missing := root.Lstat(at)
		stands := missing == nil && isDir && there.IsDir()
		if missing == nil && !stands {
			if err := root.Remove(at); err != nil {
				return err
			}
		}
		if !isDir {
			return root.Rename(name, at)
		}
		dirs = append(dirs, dir{at, fs.FileMode(st.Mode), time.Unix(st.Mtim.Unix())})
		err := root.Chmod(name, 0o700)
		if err == nil && !stands {
			err = root.Mkdir(at, 0o700)
		}
		return errors.Join(err, root.Chmod(at, 0o700))
	})
	for _, d := range slices.Backward(dirs) {
		if err == nil {
			err = errors.Join(root.Chmod(d.name, d.mode.Perm()), root.Chtimes(d.name, time.Time{}, d.time))
		}
	}
	return err
}

// removeNames removes names in a directory. No link is followed out of it.
func removeNames(dir string, from io.Reader) error {
	names, err := namesIn(from)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range names {
		if err := state.RemoveAll(root, name); err != nil {
			return err
		}
	}
	return nil
}

// makeRepository makes a repository of a copy, with one commit of all that is in it. Of one that stands there nothing is
// read: a command may have configured it. Without a git in the sandbox there is none.
func makeRepository(dir, branch string) error {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := state.RemoveAll(root, ".git"); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "-q", "--template="}, {"symbolic-ref", "HEAD", branch}, {"add", "-A"}, {"commit", "-q", "--no-verify", "--allow-empty", "-m", "the workspace"}} {
		c := exec.Command(git, append([]string{"-c", "user.name=pccrun", "-c", "user.email=pccrun@localhost", "-c", "commit.gpgsign=false", "-c", "core.autocrlf=false", "-c", "gc.auto=0"}, args...)...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1")
		if said, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, said)
		}
	}
	return nil
}
