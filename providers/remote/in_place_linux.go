package remote

import (
	"archive/tar"
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// inPlace does what a word says.
func inPlace(word string, args []string) (any, error) {
	unix.Umask(0o022)
	switch word {
	case prepareWord:
		return prepare(args[0], args[1], args[2], args[3], args[4] != "", args[5])
	case installWord:
		return install(args[0], args[1])
	case adoptWord:
		return adopt(args[0], args[1], args[2])
	case listWord:
		return list(args[0], args[1] == "sums", args[1] == "busy")
	case packWord:
		names, err := readNames(args[1], args[2])
		if err != nil {
			return nil, err
		}
		return packNames(args[0], names, args[3], args[4] != "")
	case extractWord:
		return nil, extract(args[0], args[1], args[2])
	case removeWord:
		names, err := readNames(args[1], args[2])
		if err == nil {
			err = removeNames(args[0], names)
		}
		if err != nil {
			return nil, err
		}
		return nil, os.Remove(args[1])
	case repositoryWord:
		return nil, makeRepository(args[0], args[1])
	}
	return nil, errNoWord
}

// sumOfFile is the SHA-256 of a file in hexadecimal digits.
func sumOfFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// prepare moves pccrun's own program out of the directory that it was uploaded to, and makes the directories.
func prepare(program, sum, name, own string, stands bool, home string) (*prepared, error) {
	p := &prepared{Home: inside.Text(cmp.Or(home, os.Getenv("HOME"))), Path: inside.Text(os.Getenv("PATH"))}
	if u, err := user.Current(); err == nil {
		p.User = inside.Text(u.Username)
		if p.Home == "" {
			p.Home = inside.Text(u.HomeDir)
		}
	} else {
		p.User = inside.Text(strconv.Itoa(os.Getuid()))
	}
	home = string(p.Home)
	if !filepath.IsAbs(home) || filepath.Clean(home) != home {
		return nil, fmt.Errorf("no home directory: HOME is %q", home)
	}
	dir, copied := filepath.Join(home, own), filepath.Join(home, name)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(copied, 0o755)); err != nil {
		return nil, err
	}
	if there, err := os.ReadDir(copied); err != nil || len(there) > 0 && !stands {
		return nil, errors.Join(fmt.Errorf("%s is not empty", copied), err)
	}
	if program == "" { // it was installed by an earlier run
		return p, nil
	}
	to := filepath.Join(dir, "pccrun")
	if was, err := sumOfFile(to); err == nil && was == sum {
		return p, nil
	}
	is, err := sumOfFile(program)
	switch {
	case err != nil:
		return nil, err
	case is != sum:
		return nil, errSum
	}
	if err := copyFile(program, to); err != nil {
		return nil, err
	}
	if filepath.Dir(program) != dir {
		err = state.RemovePath(filepath.Dir(program))
	}
	return p, err
}

// copyFile copies a program.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	fresh := to + ".new"
	out, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return err
	}
	return os.Rename(fresh, to)
}

// rootsDir is where pccrun's own program is as root.
func rootsDir(name string) string { return filepath.Join("/opt", name) }

// install copies pccrun's own program to a directory that is root's, or beside the copy where nobody is root. What is
// there already is its own, of a call that was answered too late.
func install(from, name string) (inside.Text, error) {
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
	if err := copyFile(filepath.Join(from, "pccrun"), filepath.Join(dir, "pccrun")); err != nil {
		return "", err
	}
	return inside.Text(dir), os.MkdirAll(filepath.Join(dir, "own"), 0o755)
}

// adopt moves the program that an earlier run installed.
func adopt(from, name, old string) (inside.Text, error) {
	if os.Getuid() != 0 {
		return "", errors.New("pccrun is not root there")
	}
	dir := rootsDir(name)
	if err := os.MkdirAll(filepath.Join(dir, "own"), 0o755); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "pccrun")
	if _, err := os.Lstat(program); err != nil {
		if err := os.Rename(filepath.Join(from, "pccrun"), program); err != nil {
			return "", err
		}
	}
	return inside.Text(dir), errors.Join(state.RemovePath(from), state.RemovePath(old))
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
	limits := beneath.Limits{Entries: 2 << 20, Depth: 4096, Time: usual.script, Shut: func(path string, err error) error {
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
	e = entry{Kind: 'o', Mode: st.Mode & 0o7777, Size: st.Size, Inode: st.Ino, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}
	if sums {
		e.Names = int(st.Nlink)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.Kind = 'd'
	case unix.S_IFLNK:
		e.Kind = 'l'
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, target)
		if err != nil {
			return e, err
		}
		e.Target = inside.Text(target[:n])
	case unix.S_IFREG:
		e.Kind = 'f'
		if sums && e.Size <= maxSummed {
			e.Sum, err = sumAt(dir, name)
		}
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

// packNames makes an archive of names, those alone and nothing below them. Where busy, what goes or shrinks meanwhile is
// left out, or ends in zeros.
func packNames(dir string, names []string, file string, busy bool) (*packed, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	_ = os.Remove(file)
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	sum, counted := sha256.New(), &shown{}
	buffered := bufio.NewWriterSize(io.MultiWriter(to, sum), 1<<20)
	counted.to = buffered
	small, err := filesync.Compress(counted)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(small)
	for _, name := range names {
		if err := packName(archive, root, name, busy); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := errors.Join(archive.Close(), small.Close(), buffered.Flush(), to.Close()); err != nil {
		return nil, err
	}
	return &packed{hex.EncodeToString(sum.Sum(nil)), counted.done}, nil
}

func packName(archive *tar.Writer, root *os.Root, name string, busy bool) error {
	info, err := root.Lstat(name)
	if busy && errors.Is(err, fs.ErrNotExist) {
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
		if h.Linkname, err = root.Readlink(name); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		f, err := openFile(root, name)
		if busy && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		n, err := io.CopyN(archive, f, h.Size)
		if err == io.EOF && busy {
			_, err = io.CopyN(archive, zeros{}, h.Size-n)
		}
		return err
	default:
		return errors.New("neither a file, a directory nor a link any more")
	}
	return archive.WriteHeader(h)
}

// zeros are what a file has beyond its end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// extract makes what an archive of the engine's holds, in place of what stands there, and removes the archive.
func extract(file, sum, dir string) error {
	switch is, err := sumOfFile(file); {
	case errors.Is(err, fs.ErrNotExist): // it was extracted, and the answer was lost: once more
		return errSum
	case err != nil:
		return err
	case is != sum:
		return errSum
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := filesync.Decompress(f)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var dirs []*tar.Header // whose modes and times come when all is in them
	for archive := tar.NewReader(plain); ; {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		h.Name = path.Clean(h.Name)
		if h.Typeflag == tar.TypeDir {
			dirs = append(dirs, h)
		}
		if err := extractOne(root, h, archive); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		h := dirs[i]
		if err := errors.Join(root.Chmod(h.Name, fs.FileMode(h.Mode).Perm()), root.Chtimes(h.Name, time.Time{}, h.ModTime)); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return os.Remove(file)
}

func extractOne(root *os.Root, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		if info, err := root.Lstat(h.Name); err == nil && info.IsDir() {
			return root.Chmod(h.Name, 0o700|fs.FileMode(h.Mode).Perm())
		}
	}
	if h.Name != "." {
		if err := root.Remove(h.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.Mkdir(h.Name, 0o700)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, h.Name)
	case tar.TypeReg:
		f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Chmod(fs.FileMode(h.Mode).Perm()), f.Close(), root.Chtimes(h.Name, time.Time{}, h.ModTime))
	}
	return fmt.Errorf("BUG: the archive has an entry of the type %q", h.Typeflag)
}

// removeNames removes names in a directory. No link is followed out of it.
func removeNames(dir string, names []string) error {
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
