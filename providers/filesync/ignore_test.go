package filesync

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIgnoreIsGits holds what ignore files mean against `git check-ignore`, with patterns and
// trees of chance.
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
	for round := range 40 {
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
		g := newIgnore(".gitignore", "")
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
			g.add(dir, text.String())
		}
		exclude := pattern() + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(root, ".git/info/exclude"), []byte(exclude), 0o600))
		g.below = []ignoreFile{{".git/info/exclude", parseIgnore(exclude)}}
		out := git(strings.Join(paths, "\x00")+"\x00", "check-ignore", "-z", "--stdin", "--no-index")
		ignored := map[string]bool{}
		for p := range strings.SplitSeq(out, "\x00") {
			ignored[p] = true
		}
		for _, p := range paths {
			checked++
			why := g.Excluded(p, isDir[p])
			if ignored[p] != (why != "") {
				for dir := range g.files {
					b, _ := os.ReadFile(filepath.Join(root, dir, ".gitignore"))
					fmt.Printf("%q/.gitignore: %q\n", dir, b)
				}
				t.Fatalf("round %d: %q: git says %v, we %q; exclude %q", round, p, ignored[p], why, exclude)
			}
		}
	}
	require.Greater(t, checked, 1000)
}

func FuzzWildmatch(f *testing.F) {
	f.Add("a/**/b[!c]*", "a/x/bd")
	f.Add("**/**/**/*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add("[[:alpha:][:x]", "a")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if strings.IndexByte(text, 0) < 0 && strings.IndexByte(pattern, 0) < 0 {
			wildmatch(pattern, text)
		}
	})
}

func TestAlwaysExcluded(t *testing.T) {
	for _, name := range []string{".env", ".env.local", ".envrc", "a/.env.production", ".ENV", "x.pem", "a/b.KEY", "x.p12", "x.pfx", "credentials.json", "service-account.json", "id_rsa", "ssh/id_ed25519", ".aws/credentials", "home/.aws/credentials", ".git-credentials"} {
		require.NotEmpty(t, excludedAlways(name, false), name)
	}
	require.NotEmpty(t, excludedAlways(".gnupg", true))
	require.NotEmpty(t, excludedAlways(".pccrun-extract", true))
	for _, name := range []string{"env", "x.env", ".env.example", "a/.env.local.sample", "id_rsa.pub", ".aws/config", "credentials.json.md", "key", "x.keys"} {
		require.Empty(t, excludedAlways(name, false), name)
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
		selects, err := Selection(strings.Fields(one.patterns))
		require.NoError(t, err)
		var got []string
		for _, name := range []string{"a.log", "dist", "dist/b.log", "dist/c"} {
			if selects(name, name == "dist") {
				got = append(got, name)
			}
		}
		require.Equal(t, one.want, strings.Join(got, " "), one.patterns)
	}
	for _, bad := range []string{"", "#", "!", "!!a", "a\nb", "/"} {
		_, err := Selection([]string{bad})
		require.ErrorContains(t, err, "gitignore has none like it", bad)
	}
}
