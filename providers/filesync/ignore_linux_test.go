package filesync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainGit is [RunGit] without a sandbox.
func plainGit(ctx context.Context, _, args []string, prepare func(dir string) error, in io.Reader, out io.Writer) error {
	dir, err := os.MkdirTemp("", "filesync-git")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := prepare(dir); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME="+dir, "XDG_CONFIG_HOME="+dir, "GIT_WORK_TREE=.")
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	return nil
}

// TestIgnoreIsGits holds what is left out against what git says of the tree itself, with patterns and trees of chance: where
// directories are gone through one after the other, and where all names are asked at once.
func TestIgnoreIsGits(t *testing.T) {
	r := rand.New(rand.NewPCG(40, 3))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	name := func() string { return pick("a", "b", "ab", "abc", "x.y", "x.log", "a b", "-", "[a]", `a\b`, "ä") }
	pattern := func() string {
		var b strings.Builder
		b.WriteString(pick("", "", "", "!", "!", "/", `\!`, "#", "**/", "  "))
		for range 1 + r.IntN(3) {
			for range 1 + r.IntN(3) {
				b.WriteString(pick("a", "b", "ab", "abc", "*", "**", "?", "x.", "log", "[ab]", "[!a]", "[^b]", "[a-c]", "[[:alpha:]]", "[[:nope:]]", `\*`, `\a`, "[", "[]-]", `[\]]`, "ä", " ", "***", "[a-", "[[:a]", `\ `))
			}
			b.WriteString(pick("", "/", "/", "/**", "/**/", "/*/"))
		}
		return b.String() + pick("", "", "/", " ", `\ `, `\`, "\r", "\t")
	}
	checked := 0
	for round := range 20 {
		root := t.TempDir()
		git := func(stdin string, args ...string) string {
			cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
			cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME="+root, "XDG_CONFIG_HOME="+root)
			cmd.Stdin = strings.NewReader(stdin)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 {
				require.NoError(t, err, stderr.String())
			}
			return string(out)
		}
		git("", "init", "-q")
		texts := map[string]string{}
		dirs := []string{""}
		isDir := map[string]bool{}
		var paths []string
		for range 60 {
			dir := dirs[r.IntN(len(dirs))]
			p := strings.TrimPrefix(dir+"/"+name(), "/")
			if _, err := os.Lstat(filepath.Join(root, p)); err == nil {
				continue
			}
			if r.IntN(2) == 0 {
				require.NoError(t, os.Mkdir(filepath.Join(root, p), 0o700))
				dirs, isDir[p] = append(dirs, p), true
			} else {
				require.NoError(t, os.WriteFile(filepath.Join(root, p), nil, 0o600))
			}
			paths = append(paths, p)
		}
		for i, dir := range dirs {
			if i > 0 && r.IntN(3) > 0 {
				continue
			}
			var text strings.Builder
			for range 1 + r.IntN(6) {
				text.WriteString(pattern() + "\n")
			}
			require.NoError(t, os.WriteFile(filepath.Join(root, dir, ".gitignore"), []byte(text.String()), 0o600))
			texts[dir] = text.String()
		}
		exclude := pattern() + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(root, ".git/info/exclude"), []byte(exclude), 0o600))
		out := git(strings.Join(paths, "\x00")+"\x00", "check-ignore", "-z", "--stdin", "--no-index")
		ignored := map[string]bool{}
		for p := range strings.SplitSeq(out, "\x00") {
			ignored[p] = true
		}
		tree, err := Open(t.Context(), root, Up{Git: plainGit})
		require.NoError(t, err)
		tree.Close()
		goes := tree.Manifest.byPath()
		asking := make([]string, len(paths))
		for i, p := range paths {
			asking[i] = asked(p, isDir[p])
		}
		all, err := excludedBy(t.Context(), plainGit, []map[string]map[string]string{{gitIgnore: texts}}, asking)
		require.NoError(t, err)
		for _, p := range paths {
			if checkPath(p) != nil {
				continue
			}
			checked++
			require.Equal(t, ignored[p], goes[p] == nil, "round %d: %q; exclude %q, files %q", round, p, exclude, texts)
			if !ignored[p] {
				require.Empty(t, all[p], "round %d: %q; exclude %q, files %q", round, p, exclude, texts)
			}
		}
	}
	require.Greater(t, checked, 500)
}

// What the user keeps on this machine no file of the tree takes along, and what a copy has made of that name stays there.
func TestKept(t *testing.T) {
	root := t.TempDir()
	write(t, root, "dump.sql", "1")
	write(t, root, "sub/dump.sql", "2")
	write(t, root, "a", "3")
	write(t, root, ".pccrunignore", "!dump.sql\n")
	write(t, root, ".gitignore", "!dump.sql\n")
	b, _ := pack(t, root, Up{})
	require.Contains(t, members(t, b), "dump.sql", "the control")
	b, sent := pack(t, root, Up{Kept: "# mine\n*.sql\n", KeptBy: "~/list"})
	require.Equal(t, []string{".", ".gitignore", ".pccrunignore", "a", "sub"}, members(t, b))
	require.Equal(t, "~/list:2", sent.Left()[0].Why)
	by, err := sent.Manifest.LeftOut(t.Context(), plainGit, []string{"new.sql", "b"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"new.sql": "~/list:2"}, by)
}

// Where git is missing, or says something else, nothing is packed.
func TestIgnoreFailsClosed(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a", "1")
	missing := func(context.Context, []string, []string, func(string) error, io.Reader, io.Writer) error {
		return errors.New("there is no git")
	}
	_, err := Pack(t.Context(), root, io.Discard, Up{Git: missing})
	require.NoError(t, err, "the control: nothing is to be asked")
	write(t, root, ".pccrunignore", "b\n")
	says := func(answer string) RunGit {
		return func(_ context.Context, _, _ []string, prepare func(dir string) error, in io.Reader, out io.Writer) error {
			if err := prepare(t.TempDir()); err != nil {
				return err
			}
			_, err := io.WriteString(out, answer)
			return err
		}
	}
	for want, git := range map[string]RunGit{"there is no git": missing, "no git to read them": nil, "it ended before": says(""), "is no answer": says("x\x00y\x00z\x00a\x00"), "of no ignore file": says("9/.gitignore\x001\x00z\x00a\x00")} {
		_, err := Pack(t.Context(), root, io.Discard, Up{Git: git})
		require.ErrorContains(t, err, want)
	}

	// Of a repository that git cannot read nothing counts as tracked, and that is told.
	write(t, root, ".gitignore", "a\n")
	require.NoError(t, os.Mkdir(filepath.Join(root, ".git"), 0o755))
	b, sent := pack(t, root, Up{})
	require.Equal(t, []string{".", ".gitignore", ".pccrunignore"}, members(t, b))
	require.Equal(t, ".", sent.Left()[0].Path)
	require.True(t, sent.Left()[0].Notable())
	require.Contains(t, sent.Left()[0].Why, "git cannot list what it tracks")
}

func TestAlwaysExcluded(t *testing.T) {
	for _, name := range []string{".env", ".env.local", ".envrc", "a/.env.production", ".ENV", "x.pem", "a/b.KEY", "x.p12", "x.pfx", "credentials.json", "service-account.json", "id_rsa", "ssh/id_ed25519", ".aws/credentials", "home/.aws/credentials", ".git-credentials"} {
		require.NotEmpty(t, excludedAlways(name), name)
	}
	require.NotEmpty(t, excludedAlways(".gnupg"))
	require.NotEmpty(t, excludedAlways(".pccrun-extract"))
	for _, name := range []string{"env", "x.env", ".env.example", "a/.env.local.sample", "id_rsa.pub", ".aws/config", "credentials.json.md", "key", "x.keys"} {
		require.Empty(t, excludedAlways(name), name)
	}
}

func TestSelection(t *testing.T) {
	for _, one := range []struct {
		patterns string
		want     string
	}{
		{"", "a.log dist dist/b.log dist/c"},
		{"*.log", "a.log dist/b.log"},
		{"dist/", "dist dist/b.log dist/c"},
		{"!*.log", "dist dist/c"},
		{"!b.log dist", "dist dist/c"},
		{"/*.log dist/c", "a.log dist/c"},
	} {
		selection, err := ParseSelection(strings.Fields(one.patterns))
		require.NoError(t, err)
		selected, err := selection.Of(t.Context(), plainGit, []string{"a.log", "dist/", "dist/b.log", "dist/c"})
		require.NoError(t, err)
		var got []string
		for _, name := range []string{"a.log", "dist", "dist/b.log", "dist/c"} {
			if selected[name] {
				got = append(got, name)
			}
		}
		require.Equal(t, one.want, strings.Join(got, " "), one.patterns)
	}
	for _, bad := range []string{"", "#", "!", "!!a", "a\nb", "/"} {
		_, err := ParseSelection([]string{bad})
		require.ErrorContains(t, err, "gitignore has none like it", bad)
	}
}
