package filesync

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/changes"
)

// An entry is a member of an archive that a test makes.
type entry struct {
	tar.Header
	body string
}

func file(name, body string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body)), ModTime: time.Unix(1e9, 0)}, body}
}

func dir(name string) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: time.Unix(1e9, 0)}, ""}
}

func link(name, target string) entry {
	return entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: time.Unix(1e9, 0)}, ""}
}

func hard(name, target string) entry {
	return entry{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}, ""}
}

func special(kind byte, name string) entry {
	return entry{tar.Header{Typeflag: kind, Name: name, Mode: 0o644}, ""}
}

func mode(e entry, mode int64) entry {
	e.Mode = mode
	return e
}

func pax(e entry, key, value string) entry {
	e.PAXRecords = map[string]string{key: value}
	e.Format = tar.FormatPAX
	return e
}

func makeTar(t testing.TB, list ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range list {
		require.NoError(t, w.WriteHeader(&e.Header), e.Name)
		_, err := io.WriteString(w, e.body)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// raw is a member whose header has fields as they stand, with the checksum that belongs to them.
func raw(name string, kind byte, change func(block []byte)) []byte {
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00        ")
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	if change != nil {
		change(b)
	}
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

var end = make([]byte, 1024)

func hash(c string) string { return strings.Repeat(c, 40) }

var bareHead = file("r/HEAD", "ref: refs/heads/x\n")

const plainConfig = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[remote \"origin\"]\n\turl = https://example.com/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n"

// hostile are archives that must not be extracted, each with one that differs in what makes it so,
// and is.
func hostile(t testing.TB) map[string][2][]byte {
	pointed := func(to string, more ...entry) []entry {
		for _, repository := range []string{"r/.git/", "r/.git/modules/x/"} {
			more = append(more, file(repository+"HEAD", "ref: refs/heads/x\n"), dir(repository+"objects"), dir(repository+"refs"))
		}
		return append(more, file("x/.git", "gitdir: "+to+"\n"))
	}
	tree := func(of string) entry { return file("r/.git/modules/x/config", "[core]\n\tworktree = "+of+"\n") }
	const submodule, back = "../r/.git/modules/x", "../../../../x"
	rows := map[string][2][]entry{
		"absolute path":                  {{file("/etc/x", "")}, {file("etc/x", "")}},
		"dot dot":                        {{file("../x", "")}, {file("x", "")}},
		"dot dot inside":                 {{dir("a"), file("a/../../x", "")}, {dir("a"), file("a/x", "")}},
		"dot dot at the end":             {{dir("a/..")}, {dir("a/b")}},
		"empty component":                {{file("a//x", "")}, {file("a/x", "")}},
		"dot component":                  {{file("a/./x", "")}, {file("./a/x", "")}},
		"link out":                       {{link("x", "../y")}, {link("x", "y")}},
		"absolute link":                  {{link("x", "/etc/passwd")}, {link("x", "etc/passwd")}},
		"link out from below":            {{dir("a"), link("a/x", "../../y")}, {dir("a"), link("a/x", "../y")}},
		"link through a link":            {{dir("a/b"), link("l", "a/b"), link("x", "l/../../..")}, {dir("a/b"), link("l", "a/b"), link("x", "l/../..")}},
		"link to the top and up":         {{link("a", "."), link("x", "a/a/a/../../..")}, {link("a", "."), link("x", "a/a/a")}},
		"link made later":                {{link("x", "a/../y"), link("a", "b/../../c")}, {link("x", "a/../y"), link("a", "b")}},
		"link through what may be":       {{link("x", "no/../../y")}, {link("x", "no/../y")}},
		"link of no target":              {{link("x", "")}, {link("x", ".")}},
		"link into git":                  {{link("x", ".git/config")}, {link("x", ".github/config")}},
		"link into git through one":      {{link("a", "sub"), link("x", "a/.GIT/hooks")}, {link("a", "sub"), link("x", "a/hooks")}},
		"file through a link":            {{link("a", "dir"), file("a/x", "")}, {dir("a"), file("a/x", "")}},
		"file below a file":              {{file("a", ""), file("a/x", "")}, {dir("a"), file("a/x", "")}},
		"hard link out":                  {{hard("x", "../etc/passwd")}, {file("y", "1"), hard("x", "y")}},
		"absolute hard link":             {{hard("x", "/etc/passwd")}, {file("etc", "1"), hard("x", "etc")}},
		"hard link to what is not there": {{hard("x", "file")}, {file("y", "1"), hard("x", "./y")}},
		"hard link to a link":            {{link("y", "file"), hard("x", "y")}, {file("y", ""), hard("x", "y")}},
		"hard link to what follows":      {{hard("x", "y"), file("y", "")}, {file("y", ""), hard("x", "y")}},
		"hard link in git":               {{file("y", "ref: refs/heads/x\n"), hard(".git/HEAD", "y")}, {file(".git/HEAD", "ref: refs/heads/x\n")}},
		"hard link out of git":           {{file(".git/HEAD", "ref: refs/heads/x\n"), hard("x", ".git/HEAD")}, {file("y", ""), hard("x", "y")}},
		"link of a terminal":             {{link("x", "a\x1b[2J")}, {link("x", "a[2J")}},
		"link of Windows":                {{link("x", `a\..\..\b`)}, {link("x", "a-b")}},
		"device":                         {{special(tar.TypeChar, "x")}, {file("x", "")}},
		"block device":                   {{special(tar.TypeBlock, "x")}, {file("x", "")}},
		"FIFO":                           {{special(tar.TypeFifo, "x")}, {file("x", "")}},
		"unknown type":                   {{special('Z', "x")}, {file("x", "")}},
		"contiguous file":                {{special(tar.TypeCont, "x")}, {file("x", "")}},
		"set-user-ID":                    {{mode(file("x", ""), 0o4755)}, {mode(file("x", ""), 0o755)}},
		"set-group-ID":                   {{mode(file("x", ""), 0o2755)}, {mode(file("x", ""), 0o755)}},
		"set-group-ID directory":         {{mode(dir("x"), 0o2755)}, {mode(dir("x"), 0o1755)}},
		"twice":                          {{file("x", "1"), file("x", "2")}, {file("x", "1"), file("y", "2")}},
		"twice by dot slash":             {{file("x", "1"), file("./x", "2")}, {file("x", "1"), file("./y", "2")}},
		"directory twice":                {{dir("x"), dir("x")}, {file("x/y", ""), dir("x")}},
		"link, then a file":              {{link("x", "y"), file("x", "2")}, {link("x", "y"), file("y", "2")}},
		"case":                           {{file("readme", ""), file("README", "")}, {file("readme", ""), file("READ", "")}},
		"case of a directory":            {{file("a/x", ""), file("A/y", "")}, {file("a/x", ""), file("b/y", "")}},
		"composed":                       {{file("\u00e9", ""), file("e\u0301", "")}, {file("\u00e9", ""), file("e", "")}},
		"folded":                         {{file("ſ", ""), file("s", "")}, {file("ß", ""), file("s", "")}},
		"left out by HFS+":               {{file("a\u200db", ""), file("ab", "")}, {file("a\u200db", ""), file("ac", "")}},
		"git by case":                    {{file(".GIT/config", "")}, {file(".git2/config", "")}},
		"git by HFS+":                    {{file(".g\u200cit/config", "")}, {file(".g\u200citx/config", "")}},
		"git by NTFS":                    {{file("git~1/config", "")}, {file("git-1/config", "")}},
		"git by its end":                 {{file(".git./config", "")}, {file(".git.x/config", "")}},
		"git by a stream":                {{file(".git::$INDEX_ALLOCATION/config", "")}, {file(".git-INDEX/config", "")}},
		"git that is a file":             {{file(".git", "gitdir: ../x\n")}, {file("git", "gitdir: ../x\n")}},
		"git that leads out":             {pointed("../../r/.git/modules/x", tree(back)), pointed(submodule, tree(back))},
		"git that is absolute":           {pointed("/r/.git/modules/x", tree(back)), pointed(submodule, tree(back))},
		"git's tree of the host":         {pointed(submodule, tree("/x")), pointed(submodule, tree(back))},
		"git's tree above":               {pointed(submodule, tree("../../../../../../../../x")), pointed(submodule, tree(back))},
		"git of no submodule":            {pointed("../r/.git"), pointed(submodule, tree(back))},
		"git that is a link":             {{link(".git", "dir")}, {link("git", "dir")}},
		"git hook":                       {{mode(file(".git/hooks/post-commit", "#!/bin/sh\n"), 0o755)}, {file(".git/hooks/post-commit.sample", "")}},
		"git configuration":              {{file(".git/config", "[core]\n\tfsmonitor = touch /tmp/x\n")}, {file(".git/config", plainConfig)}},
		"git filter":                     {{file(".git/config", "[filter \"x\"]\n\tsmudge = sh\n")}, {file(".git/config", plainConfig)}},
		"git remote of a program":        {{file(".git/config", "[remote \"o\"]\n\turl = ext::sh\n")}, {file(".git/config", plainConfig)}},
		"git alternates":                 {{file(".git/objects/info/alternates", "/\n")}, {dir(".git/objects/info")}},
		"git rebase":                     {{file(".git/rebase-merge/git-rebase-todo", "exec sh\n")}, {file(".git/MERGE_MSG", "x\n")}},
		"git HEAD":                       {{file(".git/HEAD", "ref: ../../x\n")}, {file(".git/HEAD", "ref: refs/heads/main\n")}},
		"git reference":                  {{file(".git/refs/heads/--upload-pack=x", hash("a")+"\n")}, {file(".git/refs/heads/x", hash("a")+"\n")}},
		"git reference's content":        {{file(".git/refs/heads/x", "x\n")}, {file(".git/refs/heads/x", hash("a")+"\n")}},
		"git replaced object":            {{file(".git/refs/replace/"+hash("a"), hash("b")+"\n")}, {file(".git/refs/tags/a", hash("b")+"\n")}},
		"git packed references":          {{file(".git/packed-refs", hash("a")+" refs/replace/"+hash("b")+"\n")}, {file(".git/packed-refs", "# pack-refs with: peeled\n"+hash("a")+" refs/heads/x\n^"+hash("b")+"\n")}},
		"git index":                      {{file(".git/index", "DIRC")}, {file(".git/shallow", hash("a")+"\n")}},
		"git index that leads out":       {{file(".git/index", indexOf(".git/hooks/x"))}, {file(".git/index", indexOf("hooks/x"))}},
		"git lock":                       {{file(".git/refs/heads/x.lock", hash("a")+"\n")}, {file(".git/refs/heads/x-lock", hash("a")+"\n")}},
		"git module":                     {{file(".git/modules/x/config", "[core]\n\tfsmonitor = touch /tmp/x\n")}, {file(".git/modules/x/config", plainConfig)}},
		"git merge":                      {{file(".git/MERGE_HEAD", hash("a")+"\n")}, {file(".git/ORIG_HEAD", hash("a")+"\n")}},
		"git worktree":                   {{file(".git/worktrees/x/gitdir", "/x\n")}, {dir(".git/branches")}},
		"git below git":                  {{file(".git/objects/.git/config", plainConfig)}, {file("objects/.git/config", plainConfig)}},
		"git of one below":               {{file("a/.git/hooks/x", "")}, {file("a/.git/description", "")}},
		"link in git":                    {{link(".git/COMMIT_EDITMSG", "refs/heads/y")}, {link(".git/refs/heads/z", "refs/heads/y"), file(".git/refs/heads/x", "ref: refs/heads/y\n")}},
		"bare repository":                {{bareHead, dir("r/objects"), dir("r/refs"), file("r/hooks/post-update", "")}, {bareHead, dir("r/objects"), dir("r/refs"), file("r/hooks/post-update.sample", "")}},
		"bare repository's program":      {{bareHead, dir("r/objects"), dir("r/refs"), file("r/config", "[core]\n\tpager = sh\n")}, {bareHead, dir("r/objects"), dir("r/refs"), file("r/config", plainConfig)}},
		"terminal":                       {{file("x\x1b[2J", "")}, {file("x[2J", "")}},
		"newline":                        {{file("x\ny", "")}, {file("xy", "")}},
		"right to left":                  {{file("x\u202egpj.exe", "")}, {file("xgpj.exe", "")}},
		"not UTF-8":                      {{file("x\xff", "")}, {file("xÿ", "")}},
		"backslash":                      {{file(`a\..\x`, "")}, {file("a-x", "")}},
		"drive":                          {{file("c:x", "")}, {file("c-x", "")}},
		"device of Windows":              {{file("a/aux.txt", "")}, {file("a/auxi.txt", "")}},
		"port of Windows":                {{file("com1", "")}, {file("com10", "")}},
		"dot at the end":                 {{file("x.", "")}, {file("x.y", "")}},
		"space at the end":               {{file("x ", "")}, {file("x y", "")}},
		"long name":                      {{file(strings.Repeat("x", 256), "")}, {file(strings.Repeat("x", 255), "")}},
		"deep":                           {{file(strings.Repeat("x/", 128)+"x", "")}, {file(strings.Repeat("x/", 127)+"x", "")}},
		"long path":                      {{file(strings.Repeat(strings.Repeat("x", 200)+"/", 21)+"x", "")}, {file(strings.Repeat(strings.Repeat("x", 200)+"/", 19)+"x", "")}},
		"own name":                       {{file(".pccrun-extract/x", "")}, {file(".pccrun-x", "")}},
		"attribute":                      {{pax(file("x", ""), "SCHILY.xattr.security.capability", "1")}, {pax(file("x", ""), "LIBARCHIVE.creationtime", "1")}},
		"time":                           {{entry{tar.Header{Typeflag: tar.TypeReg, Name: "x", Mode: 0o644, ModTime: time.Unix(1<<40, 0), Format: tar.FormatGNU}, ""}}, {file("x", "")}},
		"too much":                       {{file("x", strings.Repeat("x", 1<<20)), file("y", strings.Repeat("x", 1))}, {file("x", strings.Repeat("x", 1<<20))}},
		"too many":                       {{file("1", ""), file("2", ""), file("3", ""), file("4", ""), file("5", ""), file("6", ""), file("7/x/y/"+strings.Repeat("x/", 123)+"y", "")}, {file("1", ""), file("2", ""), file("3", ""), file("4", ""), file("5", ""), file("6", "")}},
	}
	list := map[string][2][]byte{}
	for name, row := range rows {
		list[name] = [2][]byte{makeTar(t, row[0]...), makeTar(t, row[1]...)}
	}
	one := makeTar(t, file("x", "1"), file("y", "2"))
	list["cut in a member"] = [2][]byte{one[:700], one}
	list["cut between members"] = [2][]byte{one[:1024], one}
	list["cut before the end"] = [2][]byte{one[:2048], one}
	list["cut in the end"] = [2][]byte{one[:2560], one}
	list["nothing"] = [2][]byte{nil, end}
	list["something behind the end"] = [2][]byte{append(slices.Clone(one), one...), append(slices.Clone(one), make([]byte, 9000)...)}
	list["no tar"] = [2][]byte{bytes.Repeat([]byte("x"), 2048), end}
	list["wrong checksum"] = [2][]byte{append(bytes.Replace(raw("x", '0', nil), []byte("x"), []byte("y"), 1), end...), append(raw("x", '0', nil), end...)}
	list["no name"] = [2][]byte{append(raw("./", '0', nil), end...), append(raw("./", '5', nil), end...)}
	list["file with a slash"] = [2][]byte{append(raw("x/", '0', nil), end...), append(raw("x", '0', nil), end...)}
	list["global header"] = [2][]byte{global(t, "path", "../../x", file("x", "")), global(t, "comment", "of git archive", file("x", ""))}
	list["global size"] = [2][]byte{global(t, "size", "4096", file("x", "")), global(t, "comment", "1", file("x", ""))}
	list["old sparse"] = [2][]byte{append(raw("x", 'S', func(b []byte) { copy(b[257:], "ustar  \x00") }), end...), append(raw("x", '0', func(b []byte) { copy(b[257:], "ustar  \x00") }), end...)}
	list["negative size"] = [2][]byte{append(raw("x", '0', func(b []byte) { copy(b[124:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff") }), end...), append(raw("x", '0', nil), end...)}
	list["large size"] = [2][]byte{append(raw("x", '0', func(b []byte) { copy(b[124:], "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff") }), end...), append(raw("x", '0', nil), end...)}
	list["NUL in a path"] = [2][]byte{extended("path", "x\x00y"), extended("path", "xy")}
	list["sparse by PAX"] = [2][]byte{extended("GNU.sparse.major", "1"), extended("comment", "1")}
	list["sparse by PAX, before 1.0"] = [2][]byte{extended("GNU.sparse.realsize", "1000000000"), extended("comment", "1")}
	list["charset"] = [2][]byte{extended("hdrcharset", "BINARY"), extended("uname", "x")}
	return list
}

// global puts a global header in front of members.
func global(t testing.TB, key, value string, list ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{key: value}}))
	require.NoError(t, w.Flush())
	return append(b.Bytes(), makeTar(t, list...)...)
}

// extended is a member with an extended header of our own making.
func extended(key, value string) []byte {
	record := " " + key + "=" + value + "\n"
	body := fmt.Sprintf("%d%s", len(record)+2, record)
	x := raw("pax", 'x', func(b []byte) { copy(b[124:], fmt.Sprintf("%011o\x00", len(body))) })
	x = append(append(x, body...), make([]byte, 512-len(body))...)
	return append(append(x, raw("y", '0', nil)...), end...)
}

// indexOf is an index of git that lists one path.
func indexOf(path string) string {
	dir, err := os.MkdirTemp("", "index")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	at := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			panic(string(out))
		}
	}
	at("init", "-q")
	plain := strings.ReplaceAll(path, ".git", "_git") // which git itself would not take
	at("update-index", "--add", "--cacheinfo", "100755,e69de29bb2d1d6434b8b29ae775ad8c2e48c5391,"+plain)
	b, err := os.ReadFile(filepath.Join(dir, ".git/index"))
	if err != nil {
		panic(err)
	}
	return strings.Replace(string(b), plain, path, 1)
}

// place is where a directory may come to be, beside a file.
func place(t testing.TB) string {
	top := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(top, "y"), []byte("outside"), 0o644))
	return filepath.Join(top, "in")
}

var small = Limits{Bytes: 1 << 20, Files: 130}

func TestHostileArchives(t *testing.T) {
	for name, row := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			root := place(t)
			before := listing(t, filepath.Dir(root))
			_, err := Extract(t.Context(), root, bytes.NewReader(row[0]), Down{Limits: small})
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.NotEmpty(t, refused.Why)
			require.Equal(t, before, listing(t, filepath.Dir(root)), "nothing of it may stay")

			out, err := Extract(t.Context(), root, bytes.NewReader(row[1]), Down{Limits: small})
			require.NoError(t, err, "control")
			require.Empty(t, out.NotExtracted)
			there, err := os.ReadDir(filepath.Dir(root))
			require.NoError(t, err)
			require.Len(t, there, 2, "the directory, and what was there")
		})
	}
}

// listing is a tree as lines: path, mode, time, content or target.
func listing(t testing.TB, root string) (lines []string) {
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		line := fmt.Sprintf("%s %s", rel, info.Mode())
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x", info.ModTime().UnixNano(), b)
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			line += fmt.Sprintf(" %d -> %s", info.ModTime().UnixNano(), to)
		}
		lines = append(lines, line)
		return nil
	}))
	return lines
}

// A member that was not asked for is refused.
func TestWhatNobodyAskedFor(t *testing.T) {
	asked := map[string]bool{"a": true, "d": true, "d/b": true}
	root := place(t)
	_, err := Extract(t.Context(), root, bytes.NewReader(makeTar(t, file("a", "x"), dir("d"), file("./d/b", "x"))), Down{Asked: asked})
	require.NoError(t, err)
	for _, e := range []entry{file("c", "x"), file("d/c", "x"), link("c", "a"), dir("e")} {
		root := place(t)
		_, err := Extract(t.Context(), root, bytes.NewReader(makeTar(t, file("a", "x"), e)), Down{Asked: asked})
		require.ErrorContains(t, err, "it was not requested")
		require.NoDirExists(t, root)
	}
}

// What is protected is withheld, all else comes, and what is named comes too.
func TestWithheld(t *testing.T) {
	protect := func(rel string, isLink bool) string {
		if rel == ".envrc" || rel == ".vscode" || strings.HasPrefix(rel, ".vscode/") || strings.HasPrefix(rel, "a/.vscode") {
			return "deny"
		}
		return ""
	}
	b := makeTar(t, file("x", "1"), file(".envrc", "2"), dir(".vscode"), file(".vscode/tasks.json", "3"), file("a/.vscode/x", "4"), hard("y", ".envrc"))
	root := place(t)
	out, err := Extract(t.Context(), root, bytes.NewReader(b), Down{Protect: protect})
	require.NoError(t, err)
	require.Equal(t, []Withheld{{".envrc", "deny"}, {".vscode", "deny"}, {".vscode/tasks.json", "deny"}, {"a/.vscode/x", "deny"}, {"y", "deny"}}, out.NotExtracted)
	require.FileExists(t, filepath.Join(root, "x"))
	require.NoFileExists(t, filepath.Join(root, ".envrc"))
	require.NoDirExists(t, filepath.Join(root, ".vscode"))
	root = place(t)
	out, err = Extract(t.Context(), root, bytes.NewReader(b), Down{Protect: protect, Accept: []string{".vscode", "a"}})
	require.NoError(t, err)
	require.Len(t, out.NotExtracted, 3, "a does not name what is protected in it")
	require.FileExists(t, filepath.Join(root, ".vscode/tasks.json"))
	root = place(t)
	out, err = Extract(t.Context(), root, bytes.NewReader(b), Down{Protect: protect, Trust: true})
	require.NoError(t, err)
	require.Empty(t, out.NotExtracted)
	require.FileExists(t, filepath.Join(root, "y"))
}

// What came from elsewhere is judged when it is applied: a repository is taken, and what git would execute of it is not.
func TestFetchedRepository(t *testing.T) {
	host := t.TempDir()
	session, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer session.Close()
	layer, err := changes.LayerOf(host)
	require.NoError(t, err)
	require.NoError(t, changes.CreateUpper(session, &changes.Record{Workspace: host, Layers: []changes.Layer{layer}, Started: changes.Clock()}, nil))
	b := makeTar(t, bareHead, dir("r/objects"), dir("r/refs"), file("r/config", "[core]\n\tpager = sh\n"), file("r/hooks/post-update", ""), file("r/hooks/post-update.sample", ""))
	tree := filepath.Join(session.Name(), changes.TreeDir(0)) // which is empty
	_, err = Extract(t.Context(), tree, bytes.NewReader(b), Down{Trust: true})
	require.NoError(t, err)
	upper, err := changes.OpenUpper(session, nil)
	require.NoError(t, err)
	defer upper.Close()
	sets, err := upper.Changes()
	require.NoError(t, err)
	_, err = upper.Keep(sets)
	require.NoError(t, err)
	require.NoError(t, upper.Begin())
	out, err := upper.Apply(changes.Selection{})
	require.NoError(t, err)
	require.Len(t, out.Withheld, 2)
	require.FileExists(t, filepath.Join(host, "r/HEAD"))
	require.FileExists(t, filepath.Join(host, "r/hooks/post-update.sample"))
	require.NoFileExists(t, filepath.Join(host, "r/config"))
	require.NoFileExists(t, filepath.Join(host, "r/hooks/post-update"))
}

// What is there already is not touched, an empty directory apart, and what ends early leaves nothing.
func TestExtractEnds(t *testing.T) {
	root := place(t)
	top := filepath.Dir(root)
	before := listing(t, top)
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write(makeTar(t, file("x", "1"), mode(dir("closed"), 0o500))[:1024])
		cancel()
		w.Close()
	}()
	_, err := Extract(ctx, root, r, Down{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, listing(t, top))
	broken := errors.New("broken")
	_, err = Extract(t.Context(), root, io.MultiReader(bytes.NewReader(makeTar(t, file("x", "1"))[:600]), failing{broken}), Down{})
	require.ErrorIs(t, err, broken)
	require.Equal(t, before, listing(t, top))

	_, err = Extract(t.Context(), filepath.Join(top, "no/no"), bytes.NewReader(end), Down{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, there := range []string{"y", "full", "link"} {
		full := filepath.Join(top, "full")
		require.NoError(t, os.MkdirAll(filepath.Join(full, "in"), 0o755))
		_ = os.Symlink("empty", filepath.Join(top, "link"))
		before := listing(t, top)
		_, err = Extract(t.Context(), filepath.Join(top, there), bytes.NewReader(end), Down{})
		require.ErrorContains(t, err, "it exists already", there)
		require.Equal(t, before, listing(t, top))
	}
	empty := filepath.Join(top, "empty")
	require.NoError(t, os.Mkdir(empty, 0o755))
	_, err = Extract(t.Context(), empty, bytes.NewReader(makeTar(t, mode(dir("."), 0o700), file("x", "1"))), Down{})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(empty, "x"))
	info, err := os.Stat(empty)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
}

// A name that comes into being meanwhile is not replaced.
func TestExtractRaced(t *testing.T) {
	root := place(t)
	r, w := io.Pipe()
	go func() {
		b := makeTar(t, file("z", "2"))
		_, _ = w.Write(b[:600]) // it has begun
		write(t, root, "z", "the host's")
		_, _ = w.Write(b[600:])
		w.Close()
	}()
	_, err := Extract(t.Context(), root, r, Down{})
	require.ErrorIs(t, err, unix.EEXIST)
	there, err := os.ReadDir(filepath.Dir(root))
	require.NoError(t, err)
	require.Len(t, there, 2)
	text, err := os.ReadFile(filepath.Join(root, "z"))
	require.NoError(t, err)
	require.Equal(t, "the host's", string(text))
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// As root, what is made in somebody's directory is his.
//
//test:root
func TestExtractOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := place(t)
	require.NoError(t, os.Chown(filepath.Dir(root), 12345, 12346))
	_, err := Extract(t.Context(), root, bytes.NewReader(makeTar(t, file("a/x", "1"), link("a/l", "x"))), Down{})
	require.NoError(t, err)
	for _, name := range []string{".", "a", "a/x", "a/l"} {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(filepath.Join(root, name), &st))
		require.EqualValues(t, 12345, st.Uid, name)
		require.EqualValues(t, 12346, st.Gid, name)
	}
}

func TestExtractParts(t *testing.T) {
	large := strings.Repeat("0123456789", 64<<10)
	one, two := []entry{dir("d"), file("d/a", "one"), hard("d/b", "d/a"), file("d/large", large)}, []entry{file("d/c", "two"), file("e", large)}
	extract := func(parts ...[]byte) (string, error) {
		to := place(t)
		_, err := ExtractParts(t.Context(), to, func() (io.Reader, error) {
			if len(parts) == 0 {
				return nil, io.EOF
			}
			part := parts[0]
			parts = parts[1:]
			return bytes.NewReader(part), nil
		}, Down{})
		return to, err
	}
	to, err := extract(makeTar(t, one...), makeTar(t, two...))
	require.NoError(t, err)
	for name, want := range map[string]string{"d/a": "one", "d/b": "one", "d/large": large, "d/c": "two", "e": large} {
		got, err := os.ReadFile(filepath.Join(to, name))
		require.NoError(t, err)
		require.True(t, want == string(got), name)
	}
	for why, second := range map[string][]byte{
		"duplicate name": makeTar(t, file("d/a", "another")),
		"truncated":      makeTar(t, two...)[:256<<10],
	} {
		to, err := extract(makeTar(t, one...), second)
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.ErrorContains(t, err, why)
		require.NoFileExists(t, to)
	}
}

func FuzzArchive(f *testing.F) {
	names := []string{}
	rows := hostile(f)
	for name := range rows {
		names = append(names, name)
	}
	slices.SortFunc(names, cmp.Compare)
	for _, name := range names {
		for _, b := range rows[name] {
			if len(b) < 1<<16 {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a := &archive{down: &Down{Limits: small}}
		made := map[string]bool{".": true}
		err := a.read(context.Background(), once(bytes.NewReader(b)), func(m *member, body io.Reader) error {
			require.NotContains(t, "/"+m.path+"/", "/../")
			require.False(t, filepath.IsAbs(m.path))
			require.True(t, m.path == "." || made[filepath.Dir(m.path)], "%q before what it lies in", m.path)
			made[m.path] = true
			if body != nil {
				_, err := io.Copy(io.Discard, body)
				return err
			}
			return nil
		})
		_ = err
		require.LessOrEqual(t, a.bytes, small.Bytes)
		require.LessOrEqual(t, len(made), small.Files+1)
	})
}

// What a killed extraction leaves, the next one beside it removes, and nothing of one that goes on.
func TestKilledExtraction(t *testing.T) {
	parent := t.TempDir()
	root, err := os.OpenRoot(parent)
	require.NoError(t, err)
	defer root.Close()
	killed, other := stageName+"-"+strings.Repeat("A", 26), stageName+"-of-mine"
	require.NoError(t, os.MkdirAll(filepath.Join(parent, killed, "a/b"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(parent, killed, "a"), 0))
	require.NoError(t, os.Mkdir(filepath.Join(parent, other), 0o700))
	running, err := newExtraction(filepath.Join(parent, "running"), &Down{})
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(parent, killed))
	_, err = Extract(t.Context(), filepath.Join(parent, "next"), bytes.NewReader(makeTar(t, file("f", "text"))), Down{})
	require.NoError(t, err)
	require.DirExists(t, filepath.Join(parent, running.stage))
	require.NoError(t, running.end())
	require.NoError(t, RemoveStale(parent))
	names, err := filepath.Glob(filepath.Join(parent, ".*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(parent, other)}, names)
}

// TestBombs: a few bytes that unfold to more than the limits allow are refused, be it content, what announces it, or what
// follows. A file of nothing but zeros is one like any other.
func TestBombs(t *testing.T) {
	zeros := make([]byte, 1<<20)
	members := func(n int, e entry) []byte { return bytes.Repeat(bytes.TrimSuffix(makeTar(t, e), end), n) }
	global := entry{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "g", PAXRecords: map[string]string{"comment": strings.Repeat("x", 64<<10)}}}
	disk := file("disk.img", string(bytes.Repeat(zeros, 64)))
	few := Limits{Bytes: 1 << 20, Files: 10}
	for name, c := range map[string]struct {
		text   []byte
		limits Limits
		want   string
	}{
		"zeros":            {makeTar(t, disk), Limits{}, ""},
		"zeros, too many":  {makeTar(t, disk), Limits{Bytes: 63 << 20}, `refused "disk.img": more than 63 MB`},
		"headers":          {append(members(4, global), makeTar(t, file("x", "x"))...), few, ""},
		"headers, no end":  {append(members(64, global), makeTar(t, file("x", "x"))...), few, "the stream is longer than 10 files of 1 MB together need"},
		"padding":          {append(makeTar(t, file("x", "x")), zeros[:512<<10]...), few, ""},
		"padding, no end":  {append(makeTar(t, file("x", "x")), bytes.Repeat(zeros, 2)...), few, "data after the end of the archive"},
		"any size, at all": {makeTar(t, disk), Limits{Bytes: 1<<63 - 1, Files: 1<<63 - 1}, ""},
	} {
		var small bytes.Buffer
		w, err := Compress(&small)
		require.NoError(t, err)
		_, err = w.Write(c.text)
		require.NoError(t, errors.Join(err, w.Close()))
		require.Less(t, small.Len(), len(c.text)/100, name)
		plain, err := Decompress(&small)
		require.NoError(t, err)
		to := filepath.Join(t.TempDir(), "to")
		_, err = Extract(t.Context(), to, plain, Down{Limits: c.limits, Trust: true})
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		var refused *RefusedError
		require.ErrorAs(t, err, &refused, name)
		require.ErrorContains(t, err, c.want, name)
		require.NoFileExists(t, filepath.Join(to, "x"), name)
	}
}
