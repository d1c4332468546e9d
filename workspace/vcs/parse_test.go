package vcs

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseGitFile(t *testing.T) {
	for in, want := range map[string]string{
		"gitdir: /x":              "/x",
		"gitdir: ../x\n":          "../x",
		"gitdir: x\r\n\r\n\n":     "x",
		"gitdir:  x ":             " x ",
		"gitdir: x\n y\n":         "x\n y",
		"gitdir: x\x00/../../etc": "x",
		"gitdir: x\x00\n":         "x",
		"gitdir: x\n\x00":         "x\n", // the NUL comes last, so the newline is part of the name
	} {
		got, err := ParseGitFile([]byte(in))
		require.NoError(t, err, "%q", in)
		require.Equal(t, want, got, "%q", in)
	}
	for _, in := range []string{"", "gitdir:", "gitdir: ", "gitdir: \n\n", "gitdir:x", "Gitdir: x", "\uFEFFgitdir: x", " gitdir: x", "\ngitdir: x", "gitdir: \x00x"} {
		_, err := ParseGitFile([]byte(in))
		require.ErrorIs(t, err, errNoGitFile, "%q", in)
	}
}

// Git itself is asked where each spelling of a .git file leads.
func TestGitFileAsGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, exec.Command("git", "init", "-q", "--bare", top+"/meta").Run())
	require.NoError(t, os.MkdirAll(top+"/w/a", 0o755))
	require.NoError(t, os.Symlink("../meta", top+"/w/to"))
	for _, content := range []string{
		"gitdir: ../meta", "gitdir: ../meta\n", "gitdir: ../meta\r\n", "gitdir: ../meta\x00junk", "gitdir: ../meta\x00\n", "gitdir:  ../meta",
		"gitdir: ../meta ", "gitdir:../meta", "\uFEFFgitdir: ../meta", "gitdir: to/../meta", "gitdir: a/../../meta", "gitdir: " + top + "/meta\n", "gitdir: to",
		"gitdir: to/.", "gitdir: ./to//", "gitdir: ../meta\n\n\r\n", "gitdir: ../meta\nx", "", "gitdir: ",
	} {
		require.NoError(t, os.WriteFile(top+"/w/.git", []byte(content), 0o644))
		cmd := exec.Command("git", "-C", top+"/w", "rev-parse", "--absolute-git-dir")
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+top, "GIT_CONFIG_GLOBAL=/dev/null")
		out, gitErr := cmd.Output()
		path, err := ParseGitFile([]byte(content))
		if err == nil {
			if !filepath.IsAbs(path) {
				path = top + "/w/" + path
			}
			path, err = realPath(path)
		}
		if gitErr != nil {
			if err == nil {
				require.NotEqual(t, top+"/meta", path, "%q: git refuses", content)
			}
			continue
		}
		require.NoError(t, err, "%q", content)
		require.Equal(t, strings.TrimSpace(string(out)), path, "%q", content)
	}
}

// realPath is realpath(3): unlike filepath.EvalSymlinks, `..` comes after the link.
func realPath(path string) (string, error) {
	out, err := exec.Command("realpath", "-e", "--", path).Output()
	return strings.TrimSuffix(string(out), "\n"), err
}

func TestParseConfig(t *testing.T) {
	const text = "\uFEFF# c\n[core]\r\n\thooksPath = a b ; c\n[Filter \"My.\\\"X\"] clean = \"sh -c \\\"x\\\"\" # y\n\tbare\n[a.B]k=1\\\n2\n"
	got, err := ParseConfig([]byte(text))
	require.NoError(t, err)
	require.Equal(t, []Setting{
		{"core", "", "hookspath", "a b", false},
		{"filter", `My."X`, "clean", `sh -c "x"`, false},
		{"filter", `My."X`, "bare", "", true},
		{"a", "b", "k", "12", false},
	}, got)
	c, err := ParseConfigPlaces([]byte(text))
	require.NoError(t, err)
	require.Equal(t, []Place{{16, 36}, {54, 80}, {81, 86}, {91, 98}}, c.Places)
	require.Equal(t, `filter.My."X.clean`, got[1].Name())
	require.Equal(t, "core.hookspath", got[0].Name())
	// What stands before a mistake counts.
	got, err = ParseConfig([]byte("[core]\nhooksPath=x\n]"))
	require.ErrorIs(t, err, errConfigSyntax)
	require.Len(t, got, 1)
}

// Random configurations mean to git what they mean here.
func TestConfigAsGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	pieces := []string{
		"[core]", "[a.b]", "[s \"sub\"]", "[S \"A \\\" b\"]", "[a.b \"c\"]", "[", "]", "\"", "\n", "\n", "\r\n", "\r", " ", "key", "Key-2 ", "=", " = ", "value",
		"; c", "# c", "\\", "\\n", "\\\n", "\\\"", "\\x", "1", "-", ".", "\x00", "ü", "\uFEFF", "_", "x = y\n", "[x]\n", "path = ../a b/c\n", "\"q # ; \"",
	}
	file := filepath.Join(t.TempDir(), "config")
	agreed := 0
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		text := "[z]\n"
		for range rnd.IntN(14) {
			text += pieces[rnd.IntN(len(pieces))]
		}
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		cmd := exec.Command("git", "config", "--no-includes", "-z", "--list", "-f", file)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, gitErr := cmd.Output()
		all, err := ParseConfig([]byte(text))
		if gitErr != nil {
			require.Error(t, err, "%q: git says %s", text, out)
			continue
		}
		require.NoError(t, err, "%q", text)
		var b strings.Builder
		for _, s := range all {
			b.WriteString(s.Name() + "\n" + s.Value + "\x00")
		}
		// git lists a key without a value on a line alone.
		want := strings.Builder{}
		for _, line := range strings.SplitAfter(string(out), "\x00") {
			if line != "" && !strings.Contains(line, "\n") {
				line = strings.TrimSuffix(line, "\x00") + "\n\x00"
			}
			want.WriteString(line)
		}
		require.Equal(t, want.String(), b.String(), "%q", text)
		agreed++
	}
	require.Greater(t, agreed, 40) // or the pieces no longer make anything that parses
}

func TestUse(t *testing.T) {
	for name, want := range map[string]Use{
		"include.path": UseInclude, "includeif.gitdir:x.path": UseInclude, "include.other": UseNone,
		"core.hookspath": UseHooks, "core.fsmonitor": UseCommand, "core.editor": UseCommand, "core.bare": UseNone,
		"init.templatedir": UseDir, "credential.helper": UseCommand, "credential.https://x.helper": UseCommand,
		"gpg.program": UseCommand, "gpg.ssh.program": UseCommand, "gpg.ssh.defaultkeycommand": UseCommand, "filter.x.process": UseCommand, "filter.x.required": UseNone,
		"diff.external": UseCommand, "diff.x.textconv": UseCommand, "merge.x.driver": UseCommand, "merge.tool": UseNone,
		"mergetool.x.cmd": UseCommand, "difftool.x.path": UseCommand, "guitool.x.cmd": UseCommand, "browser.x.cmd": UseCommand, "man.x.path": UseCommand,
		"pager.log": UseCommand, "hook.x.command": UseCommand, "remote.o.uploadpack": UseCommand, "remote.o.url": UseNone,
		"uploadpack.packobjectshook": UseCommand, "sequence.editor": UseCommand, "interactive.difffilter": UseCommand, "trailer.x.cmd": UseCommand,
		"tar.x.command": UseCommand, "gc.recentobjectshook": UseCommand, "sendemail.x.smtpserver": UseCommand, "imap.tunnel": UseCommand, "web.browser": UseCommand,
		"lfs.customtransfer.x.path": UseCommand, "lfs.extension.x.clean": UseCommand, "lfs.url": UseNone, "svn.authorsprog": UseCommand, "secrets.providers": UseCommand,
		"annex.freezecontent-command": UseCommand, "remote.o.annex-cost-command": UseCommand, "annex.x-store-hook": UseCommand, "annex.uuid": UseNone,
		"gitflow.path.hooks": UseHooks, "gitflow.branch.master": UseNone,
		"user.name": UseNone,
	} {
		i, j := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.')
		s := Setting{Section: name[:i], Key: name[j+1:], Value: "v"}
		if i < j {
			s.Sub = name[i+1 : j]
		}
		require.Equal(t, want, s.Use(), name)
	}
	for value, want := range map[string]Use{"!sh x": UseCommand, "log": UseNone} {
		require.Equal(t, want, (&Setting{Section: "alias", Key: "x", Value: value}).Use())
		require.Equal(t, want, (&Setting{Section: "remote", Sub: "x", Key: "url", Value: strings.Replace(value, "!", "ext::", 1)}).Use())
		require.Equal(t, want, (&Setting{Section: "submodule", Sub: "x", Key: "update", Value: value}).Use())
	}
}

func TestWords(t *testing.T) {
	for in, want := range map[string][]string{
		"":                         nil,
		"a":                        {"a"},
		"!f() { x/y \"$@\"; }; f":  {"f", "{", "x/y", "$@", "}", "f"},
		"sh 'a b' \"c d\"e f\\ g":  {"sh", "a b", "c de", "f g"},
		"a|b&&c;d>e<f":             {"a", "b", "c", "d", "e", "f"},
		"''":                       {""},
		"\"a\\\"b\" 'c\\d' 'open ": {"a\"b", "c\\d", "open "},
	} {
		require.Equal(t, want, shellWords(in), "%q", in)
	}
}

func TestMentioned(t *testing.T) {
	for in, want := range map[string]string{
		"tools/x %f":                  "tools/x* %f",
		"sh tools/x.sh":               "sh tools/x.sh*",
		"sh -c 'tools/x %f'":          "sh -c tools/x %f tools/x* %f",
		`sh -c "sh -c 'tools/x y'" z`: "sh -c sh -c 'tools/x y' sh -c tools/x y tools/x* y z",
		"python3 -m x":                "python3 -m x",
	} {
		var got []string
		for word, program := range Mentioned(in) {
			if program {
				word += "*"
			}
			got = append(got, word)
		}
		require.Equal(t, want, strings.Join(got, " "), in)
	}
}

// gitIndex makes an index of the version with the names, as git would write it.
func gitIndex(version uint32, f Format, names ...string) []byte {
	var b bytes.Buffer
	b.WriteString("DIRC")
	_ = binary.Write(&b, binary.BigEndian, version)
	_ = binary.Write(&b, binary.BigEndian, uint32(len(names)))
	last := ""
	for i, name := range names {
		start := b.Len()
		var fixed [40]byte
		binary.BigEndian.PutUint32(fixed[24:], 0o100644)
		b.Write(fixed[:])
		b.Write(bytes.Repeat([]byte{byte(i + 1)}, f.size()))
		flags := uint16(min(len(name), 0xfff))
		if version == 3 {
			flags |= 0x4000
		}
		_ = binary.Write(&b, binary.BigEndian, flags)
		if version == 3 {
			b.Write([]byte{0, 0})
		}
		if version == 4 {
			same := 0
			for same < len(name) && same < len(last) && name[same] == last[same] {
				same++
			}
			b.WriteByte(byte(len(last) - same))
			b.WriteString(name[same:] + "\x00")
			last = name
			continue
		}
		b.WriteString(name)
		b.Write(make([]byte, 8-(b.Len()-start)%8))
	}
	b.WriteString("TREE\x00\x00\x00\x03abc")
	b.Write(make([]byte, f.size()))
	return b.Bytes()
}

func TestReadIndex(t *testing.T) {
	long := strings.Repeat("d/", 3000) + "x"
	names := []string{".env", "a/.env", "a/.env.local", "a/b", long}
	want := map[string]bool{".env": true, "a/.env.local": true, long: true, "absent": true}
	for _, f := range []Format{FormatSHA1, FormatSHA256} {
		for version := uint32(2); version <= 4; version++ {
			b := gitIndex(version, f, names...)
			got, err := ReadIndex(b, f, want)
			require.NoError(t, err)
			require.Len(t, got, 3)
			require.Equal(t, strings.Repeat("\x01", f.size()), got[".env"])
			require.Equal(t, strings.Repeat("\x03", f.size()), got["a/.env.local"])
			require.Equal(t, strings.Repeat("\x05", f.size()), got[long])
			// Cut anywhere in its entries, it is an error.
			for n := 0; n < 300; n += 7 {
				_, err := ReadIndex(b[:n], f, want)
				require.ErrorIs(t, err, errIndexSyntax, "%d", n)
			}
		}
	}
	for name, b := range map[string][]byte{
		"version 1":          gitIndex(1, FormatSHA1),
		"version 5":          gitIndex(5, FormatSHA1),
		"split":              append(append([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00link\x00\x00\x00\x02xx"), make([]byte, 20)...), 0),
		"a long extension":   append([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00TREE\xff\xff\xff\xff"), make([]byte, 40)...),
		"a name without end": append(gitIndex(4, FormatSHA1, "a")[:12+62+1], bytes.Repeat([]byte("x"), 1<<16)...),
		"too much stripped":  bytes.Replace(gitIndex(4, FormatSHA1, "abc"), []byte("\x00abc\x00"), []byte("\x09abc\x00"), 1),
		"not an index":       []byte("DIRX\x00\x00\x00\x02\x00\x00\x00\x00"),
	} {
		_, err := ReadIndex(b, FormatSHA1, want)
		require.ErrorIs(t, err, errIndexSyntax, name)
	}
}

func FuzzGitFile(f *testing.F) {
	for _, s := range []string{"gitdir: ../x\r\n", "gitdir: \x00", "", "gitdir: /a/b\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path, err := ParseGitFile(b)
		if err == nil && (path == "" || strings.IndexByte(path, 0) >= 0) {
			t.Fatalf("%q: %q", b, path)
		}
		if strings.IndexByte(ParsePathFile(b), 0) >= 0 {
			t.Fatalf("%q", b)
		}
	})
}

func FuzzConfig(f *testing.F) {
	for _, s := range []string{"[core]\nhooksPath=x\n", "[a \"b\"]c=\"d\\\ne\" ; f", "\uFEFF[x]y", "[a.b \"c\"]d", "[a]\r\nb = c\\"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _ := ParseConfig(b)
		for i := range all {
			s := &all[i]
			if s.Key == "" || strings.ContainsAny(s.Key, " \n=") || strings.IndexByte(s.Value, 0) >= 0 {
				t.Fatalf("%q: %+v", b, *s)
			}
			_ = s.Use()
			for _, w := range shellWords(s.Value) {
				if len(w) > len(s.Value) {
					t.Fatalf("%q: %q", s.Value, w)
				}
			}
		}
	})
}

func FuzzReadIndex(f *testing.F) {
	for version := uint32(2); version <= 4; version++ {
		f.Add(gitIndex(version, FormatSHA1, ".env", "a/.env", "b"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, format := range []Format{FormatSHA1, FormatSHA256} {
			got, err := ReadIndex(b, format, map[string]bool{".env": true, "a/.env": true})
			if err == nil && got == nil {
				t.Fatal("nothing and no error")
			}
			for path, id := range got {
				if path != ".env" && path != "a/.env" || len(id) != format.size() {
					t.Fatalf("%q %q", path, id)
				}
			}
		}
	})
}
