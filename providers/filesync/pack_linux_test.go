package filesync

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/changes"
)

// Pack writes what of a directory may leave this machine as a plain tar.
func Pack(ctx context.Context, dir string, to io.Writer, up Up) (*Sent, error) {
	t, err := Open(ctx, dir, up)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return t.Write(ctx, to)
}

func write(t testing.TB, root, name, text string) {
	p := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
	require.NoError(t, os.WriteFile(p, []byte(text), 0o644))
}

func git(t testing.TB, dir string, args ...string) {
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

func pack(t testing.TB, root string, up Up) ([]byte, *Sent) {
	var b bytes.Buffer
	up.Git = plainGit
	sent, err := Pack(t.Context(), root, &b, up)
	require.NoError(t, err)
	return b.Bytes(), sent
}

// members are the names in an archive.
func members(t testing.TB, b []byte) (names []string) {
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return names
		}
		require.NoError(t, err)
		names = append(names, strings.TrimSuffix(h.Name, "/"))
	}
}

// withTimes is [listing] with the times of directories.
func withTimes(t testing.TB, root string) (lines []string) {
	lines = listing(t, root)
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			info, _ := d.Info()
			lines = append(lines, fmt.Sprintf("%s at %d", p[len(root):], info.ModTime().UnixNano()))
		}
		return err
	}))
	return lines
}

// TestPackExtractIsTheTree: what comes out is what went in, with modes, times to the nanosecond, links
// and empty directories, whoever runs it; and as rsync and tar would have it, where they are there.
func TestPackExtractIsTheTree(t *testing.T) {
	r := rand.New(rand.NewPCG(40, 2))
	for round := range 5 {
		top := t.TempDir()
		root := filepath.Join(top, "from")
		require.NoError(t, os.Mkdir(root, 0o755))
		dirs, all := []string{""}, []string{}
		for i := range 80 {
			dir := dirs[r.IntN(len(dirs))]
			rel := filepath.Join(dir, fmt.Sprintf("%s%d", []string{"a", "Ä", "x y", "日本", "-f", strings.Repeat("n", 120)}[r.IntN(6)], i))
			p := filepath.Join(root, rel)
			switch r.IntN(5) {
			case 0:
				require.NoError(t, os.Mkdir(p, 0o755))
				dirs = append(dirs, rel)
			case 1:
				if len(all) == 0 {
					continue
				}
				to, err := filepath.Rel(filepath.Join("/", dir), filepath.Join("/", all[r.IntN(len(all))]))
				require.NoError(t, err)
				require.NoError(t, os.Symlink(to, p))
			default:
				body := make([]byte, []int{0, 1, 511, 512, 513, 70_000, 3000, 10, []int{100, piece, piece + 1, 2*piece + 77}[r.IntN(4)]}[r.IntN(9)])
				for i := range body {
					body[i] = "mnopqruvwz"[r.IntN(10)]
				}
				require.NoError(t, os.WriteFile(p, body, 0o600))
				require.NoError(t, os.Chmod(p, []fs.FileMode{0o644, 0o600, 0o755, 0o444, 0o640, 0o500}[r.IntN(6)]))
			}
			all = append(all, rel)
			at := time.Unix(r.Int64N(2e9), r.Int64N(1e9))
			require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{{}, unix.NsecToTimespec(at.UnixNano())}, unix.AT_SYMLINK_NOFOLLOW))
		}
		for i, dir := range slices.Backward(dirs) {
			if i > 0 {
				require.NoError(t, os.Chmod(filepath.Join(root, dir), []fs.FileMode{0o755, 0o700, 0o555, 0o1777}[r.IntN(4)]))
			}
			require.NoError(t, os.Chtimes(filepath.Join(root, dir), time.Time{}, time.Unix(r.Int64N(2e9), r.Int64N(1e9))))
		}
		t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwX", top).Run() })
		b, sent := pack(t, root, Up{})
		require.Empty(t, sent.Left())
		to := filepath.Join(top, "to")
		_, err := Extract(t.Context(), to, bytes.NewReader(b), Down{})
		require.NoError(t, err)
		require.Equal(t, withTimes(t, root), withTimes(t, to), "round %d", round)
		again, _ := pack(t, to, Up{})
		require.True(t, bytes.Equal(b, again), "the same tree is the same archive")
		if _, err := exec.LookPath("rsync"); err == nil {
			out, err := exec.Command("rsync", "-anic", "--delete", root+"/", to+"/").CombinedOutput()
			require.NoError(t, err)
			require.Empty(t, string(out))
		}
		cmd := exec.Command("tar", "-d", "-C", root, "-f", "-")
		cmd.Stdin = bytes.NewReader(b)
		out, _ := cmd.CombinedOutput()
		for line := range strings.Lines(string(out)) { // owners are not in the archive
			require.Regexp(t, `: [UG]id differs$`, strings.TrimSpace(line))
		}
	}
}

// What tar makes is extracted as well, as it stands.
func TestExtractOfTar(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a/b", "1")
	require.NoError(t, os.Link(filepath.Join(root, "a/b"), filepath.Join(root, "a/c")))
	require.NoError(t, os.Symlink("b", filepath.Join(root, "a/l")))
	for _, format := range []string{"gnu", "pax", "ustar", "v7"} {
		b, err := exec.Command("tar", "-c", "--format", format, "-C", root, ".").Output()
		require.NoError(t, err)
		to := filepath.Join(t.TempDir(), "to")
		_, err = Extract(t.Context(), to, bytes.NewReader(b), Down{})
		require.NoError(t, err, format)
		var one, two unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Join(to, "a/b"), &one))
		require.NoError(t, unix.Stat(filepath.Join(to, "a/c"), &two))
		require.Equal(t, one.Ino, two.Ino)
	}
}

func TestWhatGoes(t *testing.T) {
	top := t.TempDir()
	root := filepath.Join(top, "repo")
	require.NoError(t, os.Mkdir(root, 0o755))
	git(t, root, "init", "-q")
	for name, text := range map[string]string{
		".gitignore": "*.log\n!keep.log\n/build/\n", ".e2bignore": "videos/\n", "sub/.pccrunignore": "private\n",
		"a.go": "package a", "x.log": "1", "keep.log": "1", "build/out": "1", "build/tracked": "1", "videos/v.mp4": "1", "sub/private": "1", "private": "1",
		".env": "A=1", "sub/.env.local": "1", ".env.example": "A=", "id_rsa": "1", "cert.PEM": "1", ".git/x": "1", "CON.txt": "1", "a:b": "1", "readme": "1", "README": "1",
	} {
		write(t, root, name, text)
	}
	git(t, root, "add", "-f", ".gitignore", "build/tracked", ".env.example", "id_rsa")
	write(t, top, "outside", "1")
	for name, to := range map[string]string{"in": "a.go", "out": "../outside", "abs": "/etc/passwd", "gitlink": ".git/x", "through": "dirl/../../outside", "dirl": "sub"} {
		require.NoError(t, os.Symlink(to, filepath.Join(root, name)))
	}
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	b, sent := pack(t, root, Up{Excludes: "README\n"})
	require.Equal(t, []string{".", ".e2bignore", ".env.example", ".gitignore", "a.go", "build", "build/tracked", "dirl", "in", "keep.log", "private", "readme", "sub", "sub/.pccrunignore"}, members(t, b))
	why := map[string]string{}
	for _, l := range sent.Left() {
		why[l.Path] = l.Why
	}
	require.Equal(t, map[string]string{
		".env": "may hold keys: .env*", "sub/.env.local": "may hold keys: .env*", "id_rsa": "may hold keys: id_rsa", "cert.PEM": "may hold keys: *.pem",
		".git": "a .git directory", "x.log": ".gitignore:1", "build/out": ".gitignore:3", "videos": ".e2bignore:1", "sub/private": "sub/.pccrunignore:1",
		"CON.txt": "it is the name of a device on Windows", "a:b": "':' is part of a path on Windows", "README": "the user's ignore file:1",
		"out": "the link leads outside: ../outside", "abs": "the link leads outside: /etc/passwd", "gitlink": "the link leads into a .git directory: .git/x",
		"through": "the link leads outside: dirl/../../outside", "fifo": "neither a file, a directory nor a link",
	}, why)
	// What goes up is extracted.
	_, err := Extract(t.Context(), filepath.Join(top, "to"), bytes.NewReader(b), Down{})
	require.NoError(t, err)

	// A directory below, and a linked worktree, go by the rules of the repository around.
	write(t, root, "build/y.log", "1")
	b, _ = pack(t, filepath.Join(root, "build"), Up{})
	require.Equal(t, []string{".", "out", "tracked"}, members(t, b), "it is named itself: no rule for it holds")
	git(t, root, "commit", "-qm", "x")
	git(t, root, "worktree", "add", "-q", "../tree", "HEAD")
	write(t, top, "tree/y.log", "1")
	write(t, top, "tree/build/new", "1")
	b, _ = pack(t, filepath.Join(top, "tree"), Up{})
	require.Equal(t, []string{".", ".env.example", ".gitignore", "build", "build/tracked"}, members(t, b))
}

func TestWhatIsHidden(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a", "x")
	write(t, root, "private/b", "x")
	b, sent := pack(t, root, Up{Hides: func(rel string) string {
		if rel == "private" {
			return "the policy"
		}
		return ""
	}})
	require.Equal(t, []string{".", "a"}, members(t, b))
	require.Equal(t, []Left{{Path: "private", Why: "the policy", Dir: true}}, sent.Left())
	b, _ = pack(t, root, Up{})
	require.Equal(t, []string{".", "a", "private", "private/b"}, members(t, b))
}

func TestSecretsStay(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.txt", "1\n2\nkey "+key+" x\n")
	write(t, root, "b.txt", "fine")
	write(t, root, "big.txt", strings.Repeat("0123456789abcde\n", 200_000)+key+"\n")
	b, sent := pack(t, root, Up{})
	require.Equal(t, []string{".", "b.txt"}, members(t, b))
	require.NotContains(t, string(b), key)
	require.Len(t, sent.Findings, 2)
	require.Equal(t, "a.txt", sent.Findings[0].File)
	require.Equal(t, 3, sent.Findings[0].Line)
	require.Equal(t, 200_001, sent.Findings[1].Line)
	text, err := json.Marshal(sent)
	require.NoError(t, err)
	require.NotContains(t, string(text), key)
	b, sent = pack(t, root, Up{Allow: []string{sent.Findings[0].Fingerprint, sent.Findings[1].Fingerprint}})
	require.Empty(t, sent.Findings)
	require.Equal(t, []string{".", "a.txt", "b.txt", "big.txt"}, members(t, b))
}

// A file that changes between the look and the way is looked at again: no secret goes.
func TestChangesWhileItGoes(t *testing.T) {
	root := t.TempDir()
	write(t, root, "big.txt", strings.Repeat("0123456789abcde\n", 300_000))
	tree, err := Open(t.Context(), root, Up{Progress: func(int, int64) {}})
	require.NoError(t, err)
	defer tree.Close()
	// The header of the file is written when it has been looked through.
	var out bytes.Buffer
	once := false
	_, err = tree.Write(t.Context(), writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("big.txt")) && !once {
			once = true
			f, err := os.OpenFile(filepath.Join(root, "big.txt"), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte(" "+key+" "), 2<<20)
			require.NoError(t, err)
			f.Close()
		}
		return out.Write(b)
	}))
	require.ErrorContains(t, err, "it changed while it was read")
	require.NotContains(t, out.String(), key)
	require.True(t, once)
	_, err = Extract(t.Context(), t.TempDir(), bytes.NewReader(out.Bytes()), Down{})
	var refused *RefusedError
	require.ErrorAs(t, err, &refused, "what is cut off is refused")

	broken := writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe })
	_, err = Pack(t.Context(), root, broken, Up{})
	require.ErrorIs(t, err, io.ErrClosedPipe)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Pack(ctx, root, io.Discard, Up{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = tree.Write(ctx, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Pack(t.Context(), filepath.Join(root, "no"), io.Discard, Up{})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Others work in the directory meanwhile: what is saved goes as it is now, what is gone stays, and nothing that a link leads to by
// now goes by another name.
func TestOthersWorkMeanwhile(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"gone", "hidden/in", "in/file", "link", "moved/in", "saved", "still", "swapped/in", "todir"} {
		write(t, root, name, "before\n")
	}
	hides := func(rel string) string {
		if rel == "hidden" {
			return "the policy: hide"
		}
		return ""
	}
	tree, err := Open(t.Context(), root, Up{Hides: hides})
	require.NoError(t, err)
	defer tree.Close()
	at := func(name string) string { return filepath.Join(root, name) }
	write(t, root, "hidden/in", "hidden\n")
	write(t, root, "new", "after\n")
	require.NoError(t, os.Chmod(at("new"), 0o700))
	require.NoError(t, os.Rename(at("new"), at("saved")))
	for _, name := range []string{"gone", "in/file", "link", "todir", "moved", "swapped"} {
		require.NoError(t, os.RemoveAll(at(name)))
	}
	require.NoError(t, os.Symlink("hidden/in", at("link")))
	require.NoError(t, os.Symlink("hidden", at("swapped")))
	require.NoError(t, os.Mkdir(at("todir"), 0o755))
	var out bytes.Buffer
	sent, err := tree.Write(t.Context(), &out)
	require.NoError(t, err)
	require.Equal(t, []string{".", "in", "moved", "saved", "still", "swapped"}, members(t, out.Bytes()))
	require.NotContains(t, out.String(), "hidden\n")
	require.Contains(t, out.String(), "after\n")
	require.Equal(t, uint32(0o700), sent.Manifest.byPath()["saved"].Entry.Mode)
	var left []string
	for _, l := range sent.Left() {
		if l.Notable() {
			left = append(left, l.Path)
		}
	}
	require.Equal(t, []string{"gone", "in/file", "link", "moved/in", "swapped/in", "todir"}, left)

	// A large file that becomes shorter on its way is as long as was said, and that is told.
	write(t, root, "still", strings.Repeat("0123456789abcde\n", 300_000))
	cut := false
	out.Reset()
	sent, err = Pack(t.Context(), root, writerFunc(func(b []byte) (int, error) {
		if !cut && out.Len() > 1<<20 {
			cut = os.Truncate(at("still"), 3<<20) == nil
		}
		return out.Write(b)
	}), Up{Hides: hides})
	require.NoError(t, err)
	require.True(t, cut)
	require.Contains(t, members(t, out.Bytes()), "still")
	require.Contains(t, sent.Left(), Left{Path: "still", Why: "its end, which was cut off while it was read", Size: 4_800_000 - 3<<20, notable: true})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestLimits(t *testing.T) {
	root := t.TempDir()
	write(t, root, "data/x", strings.Repeat("x", 3<<20))
	write(t, root, "y", "1")
	_, err := Pack(t.Context(), root, io.Discard, Up{Limits: Limits{Bytes: 2 << 20}})
	var limit *hint.Error
	require.ErrorAs(t, err, &limit)
	require.Equal(t, "more than 2 MB", limit.Error())
	require.Contains(t, limit.Hint(), "data (3 MB)")
	_, err = Pack(t.Context(), root, io.Discard, Up{Limits: Limits{Files: 2}})
	require.ErrorAs(t, err, &limit)
	require.Equal(t, "more than 2 files", limit.Error())
	pack(t, root, Up{Limits: Limits{Bytes: 4 << 20, Files: 3}}) // the control
}

// A second upload sends what the copy has not as it is here, and says what has to go from there.
func TestSince(t *testing.T) {
	root := t.TempDir()
	write(t, root, ".gitignore", "*.o\n")
	write(t, root, "same", "same")
	write(t, root, "dir/same", "same")
	write(t, root, "locked/a", "a")
	write(t, root, "own/in/changed", "here")
	require.NoError(t, os.Chmod(filepath.Join(root, "own"), 0o700))
	for _, name := range []string{"changed", "mode", "linked", "kind", "new", "shape/in"} {
		write(t, root, name, "here")
	}
	require.NoError(t, os.Symlink("same", filepath.Join(root, "link")))
	require.NoError(t, os.Symlink("same", filepath.Join(root, "moved")))
	sum := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	file := func(text string) Standing {
		return Standing{Kind: workspace.File, Mode: 0o644, Size: int64(len(text)), Names: 1, Sum: sum(text)}
	}
	dir := Standing{Kind: workspace.Dir, Mode: 0o755}
	there := map[string]Standing{
		".gitignore": file("*.o\n"), "same": file("same"), "dir": dir, "dir/same": file("same"), "changed": file("else"), "mode": file("here"), "linked": file("here"),
		"kind": dir, "kind/in": file("x"), "shape": {Kind: workspace.Link, Target: "/etc"}, "link": {Kind: workspace.Link, Target: "same"}, "moved": {Kind: workspace.Link, Target: "else"},
		"own": {Kind: workspace.Dir, Mode: 0o700}, "own/in": dir, "own/in/changed": file("else"),
		"locked": {Kind: workspace.Dir, Mode: 0o500}, "locked/a": file("a"), "made": file("x"), "made.o": file("x"), "sent.o": file("x"), "madedir": dir, "madedir/x.o": file("x"), "odd": {Kind: workspace.Special}, ".git": dir,
	}
	other := file("here")
	other.Mode = 0o755
	there["mode"] = other
	other = file("here")
	other.Names = 2
	there["linked"] = other
	since := &Since{Items: there, Sent: []string{"same", "sent.o"}}
	b, sent := pack(t, root, Up{Since: since})
	require.ElementsMatch(t, []string{".", "changed", "mode", "linked", "kind", "new", "shape", "shape/in", "moved", "locked", "locked/a", "own", "own/in", "own/in/changed"}, members(t, b))
	require.Equal(t, []string{".git", "changed", "kind", "linked", "locked", "made", "madedir", "mode", "moved", "odd", "own/in/changed", "sent.o", "shape"}, sent.Gone)
	require.Len(t, sent.Manifest.Items, 19, "all of them are there afterwards")
	all, sent := pack(t, root, Up{})
	require.Len(t, members(t, all), 19, "the control")
	require.Empty(t, sent.Gone)
}

// TestJudge: a table of what was there, what went up, what came back, and what may come down.
func TestJudge(t *testing.T) {
	top := t.TempDir()
	host, back := filepath.Join(top, "host"), filepath.Join(top, "back")
	for name, text := range map[string]string{
		".gitignore": "ignored\nnode_modules/\n", "same": "1", "modified": "1", "removed": "removed", "raced": "1", "moved": strings.Repeat("m", 100), "dir/x": "dir", "dir/.env": "B=1", "whole/x": "of whole", ".env": "A=1", "ignored": "1",
	} {
		write(t, host, name, text)
	}
	git(t, host, "init", "-q")
	_, sent := pack(t, host, Up{})
	for name, text := range map[string]string{
		".gitignore": "", "same": "1", "modified": "2", "raced": "2", "moved2": strings.Repeat("m", 100), "new": "B=1", ".env": "stolen", "ignored": "2", "node_modules/x": "removed", "later": "of whole", "whole2/x": "whole2/x",
	} {
		write(t, back, name, text)
	}
	require.NoError(t, os.Chmod(filepath.Join(back, "same"), 0o755))
	write(t, host, "raced", "the host's")
	a, err := os.OpenRoot(host)
	require.NoError(t, err)
	defer a.Close()
	b, err := os.OpenRoot(back)
	require.NoError(t, err)
	defer b.Close()
	set, err := changes.Compare(a, b)
	require.NoError(t, err)
	kept, withheld, err := sent.Manifest.Judge(t.Context(), plainGit, set, map[string]map[string]string{gitIgnore: {"": "later\n"}})
	require.NoError(t, err)
	got := map[string]string{}
	for _, c := range kept.Changes {
		got[c.Path] = c.String()
		if c.Conflict != "" {
			got[c.Path] += ": " + c.Conflict
		}
	}
	require.Equal(t, map[string]string{
		".gitignore": "M .gitignore", "same": "M same", "modified": "M modified", "removed": "D removed", "raced": "M raced: changed on the host since the upload",
		"moved": "D moved", "moved2": "A moved2", "new": "A new", "dir/x": "D dir/x", "whole": "D whole", "whole/x": "D whole/x", "whole2": "A whole2", "whole2/x": "A whole2/x",
	}, got)
	why := map[string]string{}
	for _, h := range withheld {
		why[h.Change.Path] = h.Why
	}
	require.Equal(t, map[string]string{
		".env": "the host has a file there that was not uploaded", "ignored": "the host has a file there that was not uploaded", "node_modules": "left out by .gitignore:2", "node_modules/x": "left out by .gitignore:2",
		"later": "left out by .gitignore:1", "dir": "it has files that were not uploaded",
	}, why)

	// What the host took away in between is no new file.
	m := &Manifest{Items: []Item{{"x", changes.Entry{Kind: workspace.File}}}}
	kept, _, err = m.Judge(t.Context(), nil, &changes.Set{Changes: []changes.Change{{Path: "x", After: &changes.Entry{}}}}, nil)
	require.NoError(t, err)
	require.Equal(t, "removed on the host since the upload", kept.Changes[0].Conflict)
}

func TestCompress(t *testing.T) {
	text := bytes.Repeat([]byte("hello, "), 1<<20)
	for _, compress := range []func(io.Writer) (io.WriteCloser, error){
		Compress,
		func(to io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(to), nil },
	} {
		var b, plain bytes.Buffer
		w, err := compress(&b)
		require.NoError(t, err)
		_, err = w.Write(text[:1<<20])
		require.NoError(t, err)
		require.NoError(t, w.Close())
		r, err := Decompress(&b)
		require.NoError(t, err)
		_, err = io.Copy(&plain, r)
		require.NoError(t, err)
		require.True(t, bytes.Equal(text[:1<<20], plain.Bytes()))
	}
	_, err := Decompress(strings.NewReader("neither"))
	require.ErrorContains(t, err, "neither zstd nor gzip")
	_, err = Decompress(bytes.NewReader(nil))
	require.Error(t, err)
}
