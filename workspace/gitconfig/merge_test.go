package gitconfig

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const plain = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n[remote \"origin\"]\n\turl = https://example.org/a\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n"

// shown is what a run of the tests was shown.
var shown = Context{Shown: func(path string) bool { return strings.HasPrefix(path, "/srv/") || path == "../part" }}

// said is what a configuration says, a line a setting.
func said(t testing.TB, text []byte) []string {
	_, all, err := parse(text)
	require.NoError(t, err, "%q", text)
	list := make([]string, len(all.Settings))
	for i := range all.Settings {
		list[i] = all.Settings[i].Name() + "=" + all.Settings[i].Value
	}
	return list
}

// What git does inside is what the host has afterwards, as far as it is on the list.
func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		copied  string
		want    []string // beside what stood
		without []string // of what stood
		refused string
		changes string
	}{
		"nothing":        {copied: plain},
		"an upstream":    {copied: plain + "[branch \"x\"]\n\tremote = origin\n\tmerge = refs/heads/x\n", want: []string{"branch.x.remote=origin", "branch.x.merge=refs/heads/x"}},
		"a remote":       {copied: plain + "[remote \"up\"]\n\turl = git@example.org:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/up/*\n", want: []string{"remote.up.url=git@example.org:a/b.git", "remote.up.fetch=+refs/heads/*:refs/remotes/up/*"}, changes: "remote.up.url: git@example.org:a/b.git"},
		"a path":         {copied: plain + "[remote \"p\"]\n\turl = /srv/a\n\turl = ../part\n\tpushurl = file:///srv/b\n", want: []string{"remote.p.url=/srv/a", "remote.p.url=../part", "remote.p.pushurl=file:///srv/b"}, changes: "remote.p.url: /srv/a ../part, remote.p.pushurl: file:///srv/b"},
		"another url":    {copied: strings.Replace(plain, "https://example.org/a", "https://u:secret@example.org/b", 1), want: []string{"remote.origin.url=https://u:secret@example.org/b"}, without: []string{"remote.origin.url=https://example.org/a"}, changes: "remote.origin.url: https://example.org/a -> https://u:***@example.org/b"},
		"a remote less":  {copied: "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n", without: []string{"remote.origin.url=https://example.org/a", "remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*", "branch.main.remote=origin", "branch.main.merge=refs/heads/main"}, changes: "remote.origin.url: https://example.org/a -> "},
		"an empty file":  {refused: "core.repositoryformatversion: the run emptied the file, core.filemode: the run emptied the file, remote.origin.url: the run emptied the file, remote.origin.fetch: the run emptied the file, branch.main.remote: the run emptied the file, branch.main.merge: the run emptied the file"},
		"another file":   {copied: "[user]\n\tname = x\n[remote \"origin\"]\n\turl = https://example.org/b\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", want: []string{"user.name=x", "remote.origin.url=https://example.org/b"}, without: []string{"remote.origin.url=https://example.org/a"}, refused: "core.repositoryformatversion: the run emptied the file, core.filemode: the run emptied the file, branch.main.remote: the run emptied the file, branch.main.merge: the run emptied the file", changes: "remote.origin.url: https://example.org/a -> https://example.org/b"},
		"a user":         {copied: plain + "[user]\n\tname = A \\\"B\\\" # C\n\temail = \"a#b@example.org\"\n", want: []string{`user.name=A "B"`, "user.email=a#b@example.org"}},
		"other spelling": {copied: plain + "[PULL] Rebase = true\n[color]\n\tui\n", want: []string{"pull.rebase=true", "color.ui="}},
		"a submodule":    {copied: plain + "[submodule \"lib/x y\"]\n\tactive = true\n\turl = ssh://git@example.org:22/x\n\tupdate = none\n", want: []string{"submodule.lib/x y.active=true", "submodule.lib/x y.url=ssh://git@example.org:22/x"}, refused: "submodule.lib/x y.update: pccrun does not save this key", changes: "submodule.lib/x y.url: ssh://git@example.org:22/x"},
		"lfs":            {copied: plain + "[lfs]\n\trepositoryformatversion = 0\n\turl = https://example.org/lfs\n[lfs \"https://example.org/lfs\"]\n\taccess = basic\n[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\trequired = true\n", want: []string{"lfs.repositoryformatversion=0", "lfs.url=https://example.org/lfs", "lfs.https://example.org/lfs.access=basic"}, refused: "filter.lfs.clean: it names a program, filter.lfs.required: it names programs", changes: "lfs.url: https://example.org/lfs"},
		"a fork":         {copied: plain + "[branch \"pr\"]\n\tremote = https://example.org/fork\n\tpushRemote = https://example.org/fork\n\tmerge = refs/heads/pr\n", want: []string{"branch.pr.merge=refs/heads/pr"}, refused: "branch.pr.remote: its value is no remote that is configured, branch.pr.pushremote: its value is no remote that is configured"},
		"sparse":         {copied: plain + "[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = false\n[index]\n\tsparse = true\n", want: []string{"core.sparsecheckout=true", "core.sparsecheckoutcone=false", "index.sparse=true"}},
		"an extension":   {copied: plain + "[extensions]\n\tworktreeConfig = true\n", refused: "extensions.worktreeconfig: it changes the format of the repository"},
		"own keys go":    {copied: strings.Replace(plain, "\tfilemode = true\n", "", 1), refused: "core.filemode: pccrun does not save this key"},
		"a description":  {copied: plain + "[branch \"main\"]\n\tdescription = \"one\\ntwo\\n\"\n", want: []string{"branch.main.description=one\ntwo\n"}},
		"a negative one": {copied: plain + "[remote \"origin\"]\n\tfetch = ^refs/heads/x\n", want: []string{"remote.origin.fetch=^refs/heads/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Merge([]byte(plain), []byte(c.copied), []byte(plain), shown)
			require.NoError(t, err)
			want := slices.DeleteFunc(said(t, []byte(plain)), func(s string) bool { return slices.Contains(c.without, s) })
			require.ElementsMatch(t, append(want, c.want...), said(t, r.Host), "%s", r.Host)
			var refused, changes []string
			for _, f := range r.Refused {
				refused = append(refused, f.Key+": "+f.Reason)
			}
			for _, f := range r.Changes {
				changes = append(changes, strings.TrimPrefix(f.Key+": "+f.Old+" -> "+f.New, f.Key+":  -> "))
				if f.Old == "" {
					changes[len(changes)-1] = f.Key + ": " + f.New
				}
			}
			require.Equal(t, c.refused, strings.Join(refused, ", "))
			require.Equal(t, c.changes, strings.Join(changes, ", "))
			// What is taken over is so once.
			again, err := Merge([]byte(plain), []byte(c.copied), r.Host, shown)
			require.NoError(t, err)
			require.Equal(t, string(r.Host), string(again.Host))
			require.Equal(t, r.Changes, again.Changes)
			require.Len(t, again.Refused, len(r.Refused))
			// Who looks at what was not accepts it.
			host := r.Host
			for _, f := range r.Refused {
				var ok bool
				host, ok, err = Accept(f.Before, f.After, host)
				require.NoError(t, err)
				require.True(t, ok)
			}
			require.ElementsMatch(t, said(t, []byte(c.copied)), said(t, host))
		})
	}
}

// Whatever a run writes there, nothing of it that names a program, a file or a place to write is the host's.
func TestHostile(t *testing.T) {
	for name, text := range map[string]string{
		"a program":               "[core]\n\tfsmonitor = ./x\n",
		"in other letters":        "[CORE]\n\tFsMonitor = ./x\n",
		"on one line":             "[core] fsmonitor = ./x\n",
		"of two sections":         "[user] [core] fsmonitor = ./x\n",
		"quoted":                  "[core]\n\tfsmonitor = \"./\"x\n",
		"a duplicate":             "[core]\n\tfsmonitor = false\n\tfsmonitor = ./x\n",
		"behind a comment":        "[core] # [user]\n\tsshCommand = ./x\n",
		"a dotted section":        "[diff.x]\n\ttextconv = ./x\n",
		"hooks":                   "[core]\n\thooksPath = .\n",
		"an alias":                "[alias]\n\tst = !./x\n",
		"a filter":                "[filter \"x\"]\n\tsmudge = ./x\n",
		"a merge driver":          "[merge \"x\"]\n\tdriver = ./x\n",
		"a driver in one word":    "[merge]\n\tdriver = ./x\n",
		"a credential helper":     "[credential]\n\thelper = !./x\n",
		"signing":                 "[user]\n\tsigningKey = x\n[gpg]\n\tprogram = ./x\n[commit]\n\tgpgSign = true\n",
		"an include":              "[include]\n\tpath = x\n",
		"a conditional include":   "[includeIf \"gitdir:/\"]\n\tpath = x\n",
		"other addresses":         "[url \"ext::./x \"]\n\tinsteadOf = https://\n",
		"a push that goes there":  "[url \"https://evil.example/\"]\n\tpushInsteadOf = https://\n",
		"a program as an address": "[remote \"e\"]\n\turl = ext::./x\n",
		"a user for a shell":      "[remote \"e\"]\n\turl = \"ssh://$(./x)@h/p\"\n",
		"the same for scp":        "[remote \"e\"]\n\turl = \"`./x`@h:p\"\n",
		"another helper":          "[remote \"e\"]\n\turl = x::y\n\tvcs = x\n",
		"a scheme":                "[remote \"e\"]\n\turl = ftp://x/y\n",
		"an option":               "[remote \"e\"]\n\turl = --upload-pack=./x\n",
		"an option of ssh":        "[remote \"e\"]\n\turl = ssh://-oProxyCommand=x/y\n",
		"one in the scp form":     "[remote \"e\"]\n\turl = -oProxyCommand=x:y\n",
		"one as a user":           "[remote \"e\"]\n\turl = ssh://-l@x/y\n",
		"a path":                  "[remote \"e\"]\n\turl = /home/u/secret\n",
		"a path in a repository":  "[remote \"e\"]\n\turl = /srv/a/.git/x\n",
		"an escaped path":         "[remote \"e\"]\n\turl = file:///srv/%2e%2e/x\n",
		"no address":              "[remote \"e\"]\n\turl = \"\"\n",
		"programs of a remote":    "[remote \"origin\"]\n\tuploadpack = ./x\n\treceivepack = ./x\n\tproxy = x\n",
		"a mirror":                "[remote \"origin\"]\n\tmirror = true\n\tpush = +refs/*:refs/*\n",
		"a promisor":              "[remote \"origin\"]\n\tpromisor = true\n\tpartialCloneFilter = blob:none\n",
		"a fetch into branches":   "[remote \"origin\"]\n\tfetch = +refs/heads/*:refs/heads/*\n",
		"a fetch without a place": "[remote \"origin\"]\n\tfetch = refs/heads/main\n",
		"a fetch above":           "[remote \"origin\"]\n\tfetch = refs/heads/x:refs/remotes/../heads/x\n",
		"a remote's name":         "[remote \"--upload-pack=x\"]\n\tprune = true\n",
		"another one":             "[remote \"ext::x\"]\n\tprune = true\n",
		"a branch's name":         "[branch \"-x\"]\n\trebase = true\n",
		"a branch without remote": "[branch \"main\"]\n\tpushRemote = evil\n",
		"an address as a remote":  "[branch \"main\"]\n\tpushRemote = ext::./x\n",
		"no reference":            "[branch \"main\"]\n\tmerge = main\n",
		"a submodule's update":    "[submodule \"x\"]\n\tupdate = !./x\n",
		"a submodule's name":      "[submodule \"../x\"]\n\tactive = true\n",
		"a submodule's option":    "[submodule \"x\"]\n\turl = -u./x\n",
		"another working tree":    "[core]\n\tworktree = /\n\tbare = false\n",
		"the format":              "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n\trefStorage = files:///x\n",
		"what protects":           "[core]\n\tprotectNTFS = false\n\tsymlinks = true\n\tignoreCase = true\n\tsharedRepository = 0666\n\tsplitIndex = true\n",
		"a proxy":                 "[http]\n\tproxy = evil:1\n\tsslVerify = false\n",
		"an lfs transfer":         "[lfs \"customtransfer.x\"]\n\tpath = ./x\n[lfs]\n\tstandalonetransferagent = x\n",
		"lfs of a path":           "[lfs]\n\turl = /home/u\n",
		"services":                "[receive]\n\tdenyCurrentBranch = updateInstead\n[uploadpack]\n\tpackObjectsHook = ./x\n[gc]\n\trecentObjectsHook = ./x\n",
		"a value over two lines":  "[user]\n\tname = a\\\n\tb\n",
		"an escape in a name":     "[user]\n\tname = \"a\\nb\"\n",
		"a tab":                   "[user]\n\tname = a\tb\n",
		"a right-to-left name":    "[user]\n\tname = a\u202eb\n",
		"a long value":            "[user]\n\tname = " + strings.Repeat("x", 3000) + "\n",
		"no colour":               "[color \"x\"]\n\ty = $(x)\n",
		"a comment of letters":    "[core]\n\tcommentChar = a\n",
		"no name of a branch":     "[init]\n\tdefaultBranch = ../x\n",
		"unknown":                 "[core]\n\tnextYearsKey = x\n",
	} {
		for _, at := range []string{"behind", "before"} {
			copied := plain + text
			if at == "before" {
				copied = text + plain
			}
			r, err := Merge([]byte(plain), []byte(copied), []byte(plain), shown)
			require.NoError(t, err, name)
			require.Equal(t, plain, string(r.Host), "%s, %s", name, at)
			require.NotEmpty(t, r.Refused, name)
			require.Empty(t, r.Changes, name)
			// The control: beside it what is allowed is taken over.
			r, err = Merge([]byte(plain), []byte(copied+"\n[push]\n\tdefault = current\n"), []byte(plain), shown)
			require.NoError(t, err, name)
			require.Equal(t, plain+"[push]\n\tdefault = current\n", string(r.Host), name)
		}
	}
}

// Of a text that may be read in several ways nothing is taken over, nor into one.
func TestUnclear(t *testing.T) {
	more := plain + "[push]\n\tdefault = current\n"
	for name, text := range map[string]string{
		"a byte order mark": "\uFEFF" + more,
		"a NUL":             more + "[user]\n\tname = a\x00b\n",
		"a bell":            more + "# \a\n",
		"a lone return":     more + "[user]\r\tname = x\n",
		"no UTF-8":          more + "[user]\n\tname = \xff\n",
		"no syntax":         more + "[core\n",
		"a key alone":       "x = y\n" + more,
		"an empty name":     more + "[core \"\"]\n\tfsmonitor = ./x\n",
	} {
		r, err := Merge([]byte(plain), []byte(text), []byte(plain), shown)
		require.Error(t, err, name)
		require.Equal(t, plain, string(r.Host), name)
		r, err = Merge([]byte(plain), []byte(more), []byte(text), shown)
		require.Error(t, err, name)
		require.Equal(t, text, string(r.Host), name)
	}
	_, err := Merge([]byte(plain), []byte(more+strings.Repeat("# x\n", MaxSize/4)), []byte(plain), shown)
	require.ErrorIs(t, err, ErrSize)
	r, err := Merge([]byte(plain), []byte(more), []byte(plain), shown) // the control
	require.NoError(t, err)
	require.Equal(t, more, string(r.Host))
}

// What the host has changed meanwhile stays, beside what the run has.
func TestMergeWithHost(t *testing.T) {
	copied := plain + "[user]\n\tname = run\n[pull]\n\trebase = true\n"
	host := "; mine\n[Core] FileMode = true # one line\n[user]\n\tname = host ; or not\n\temail = h@example.org\n" + strings.ReplaceAll(plain, "\n", "\r\n")
	r, err := Merge([]byte(plain), []byte(copied), []byte(host), shown)
	require.NoError(t, err)
	require.Equal(t, host+"[pull]\n\trebase = true\n", string(r.Host))
	require.Len(t, r.Refused, 1)
	require.Equal(t, "user.name: "+moved, r.Refused[0].Key+": "+r.Refused[0].Reason)
	_, ok, err := Accept(r.Refused[0].Before, r.Refused[0].After, []byte(host))
	require.NoError(t, err)
	require.False(t, ok)

	// The same by both is no conflict.
	r, err = Merge([]byte(plain), []byte(copied), []byte(copied), shown)
	require.NoError(t, err)
	require.Equal(t, copied, string(r.Host))
	require.Empty(t, r.Refused)

	// Where the working tree of a submodule is git writes anew.
	place := Context{Submodule: true}
	r, err = Merge([]byte("[core]\n\tworktree = /x\n"), []byte("[core]\n\tworktree = ../x\n"), []byte("[core]\n\tworktree = /x\n"), place)
	require.NoError(t, err)
	require.Empty(t, r.Refused)
	require.Equal(t, "[core]\n\tworktree = /x\n", string(r.Host))
}

// Nothing but what is to change does, in whatever form it stands.
func TestEdit(t *testing.T) {
	k := func(section, sub, name string, list ...string) values {
		return values{{Section: section, Sub: sub, Key: name}: list}
	}
	for _, c := range []struct {
		text string
		want values
		out  string
	}{
		{"", k("a", "b\"\\", "c", "d"), "[a \"b\\\"\\\\\"]\n\tc = d\n"},
		{"[a]", k("a", "", "c", "d"), "[a]\n\tc = d\n"},
		{"[a]\n\n\n", k("a", "", "c", "d"), "[a]\n\tc = d\n\n\n"},
		{"[a] # x\n", k("a", "", "c", "d"), "[a]\n\tc = d\n # x\n"},
		{"[a] b = c", k("a", "", "b", "d"), "[a] b = d\n"},
		{"[a] b = c\n[d]\ne = f\n", k("a", "", "b"), "[d]\ne = f\n"},
		{"[a] b = c ; x\n", k("a", "", "b"), ""},
		{"[a] b = c\n# x\n", k("a", "", "b"), "[a] \n# x\n"},
		{"[a]\nb = 1\nb = 2\n# x\nb = 3\n", k("a", "", "b", "1", "4"), "[a]\nb = 1\nb = 4\n# x\n"},
		{"[a]\nb = 1\n[c]\nd = 2\n[A]\nb = 3\n", k("a", "", "b", "1", "3", "5"), "[a]\nb = 1\n[c]\nd = 2\n[A]\nb = 3\n\tb = 5\n"},
		{"[a]\nb = x\\\n y\nc = 1\n", k("a", "", "c", "2"), "[a]\nb = x\\\n y\nc = 2\n"},
		{"[a.B]\nc = 1", k("a", "b", "c", "1", " 2"), "[a.B]\nc = 1\n\tc = \" 2\"\n"},
		{"[a]\nb\n", k("a", "", "b", bare, ""), "[a]\nb\n\tb = \n"},
	} {
		out, err := edit([]byte(c.text), slices.Collect(maps.Keys(c.want)), c.want)
		require.NoError(t, err, "%q", c.text)
		require.Equal(t, c.out, string(out), "%q", c.text)
	}
	_, err := edit([]byte("[a"), nil, k("a", "", "b", "c"))
	require.ErrorIs(t, err, ErrSyntax)
	_, err = edit(nil, []key{{Section: "a", Key: "b!"}}, k("a", "", "b!", "c")) // no key
	require.ErrorIs(t, err, errEdit)
}

// ofGit is what git takes a configuration for, a line a setting; false if it refuses it.
func ofGit(t testing.TB, text []byte) ([]string, bool) {
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	cmd := exec.Command("git", "config", "--list", "-z", "--file", file)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.Output()
	if err != nil {
		return nil, false
	}
	list := []string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if name, value, _ := strings.Cut(entry, "\n"); entry != "" {
			list = append(list, name+"="+value)
		}
	}
	return list, true
}

// What we read is what git reads, and what comes out of a merge differs for git in what is on the list.
func FuzzAsGit(f *testing.F) {
	if _, err := exec.LookPath("git"); err != nil {
		f.Skip("needs git")
	}
	for _, seed := range []string{
		"", plain, "[core] bare = false", "[a]b=c\n", "[a \"x\\\"y\\\\\"]\nb = \"c;d\" ; e\n", "[a.b \"c\"]\nd\n", "[a]\r\nb = c\r\n", "[user] [core] FsMonitor = x", "[a]\nb = c \\\n d\n", "\uFEFF[a]\nb=c\n",
		"[remote \"x\"] url = ext::x\n[remote \"x\"]\nurl=https://x/y", "[branch \"x\"]\nremote=x\nmerge = refs/heads/x # y\n", "[user]\nname = \" a \"b  c\n", "[include]\npath = x\n", "[pull]rebase\n[pull \"\"]ff = only", "[push]\n\tdefault = \"curr\"ent\n",
		"[a]\nb = \"c\n", "[a]\nb-c = d\n[a]\n1 = 2\n", "[a ]\nb = c\n", "[a\t\"b\"]\nc = d\n", "[]\na = b\n", "[a]\nb = \\b\\t\\n\\\\\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		if _, all, err := parse([]byte(text)); err == nil {
			blanks := slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return strings.Contains(strings.Trim(line, "\t"), "\t") }) // of which git before 2.45 makes spaces
			list, ok := ofGit(t, []byte(text))
			require.True(t, ok, "%q: git refuses it", text)
			if !blanks && len(all.Settings) == len(list) {
				require.Equal(t, list, said(t, []byte(text)), "%q", text)
			}
			require.Len(t, all.Settings, len(list), "%q", text)
		}
		for _, host := range []string{plain, text} {
			base := plain
			if host == text {
				base = text
			}
			copied := text
			if host == text {
				copied = text + "\n[push]\n\tdefault = current\n[user]\n\tname = x\n"
			}
			r, err := Merge([]byte(base), []byte(copied), []byte(host), shown)
			if err != nil {
				require.Equal(t, host, string(r.Host))
				continue
			}
			before, ok := ofGit(t, []byte(host))
			require.True(t, ok, "%q", host)
			after, ok := ofGit(t, r.Host)
			require.True(t, ok, "%q became %q", host, r.Host)
			for _, line := range after {
				if slices.Contains(before, line) {
					continue
				}
				name, _, _ := strings.Cut(line, "=")
				section, rest, _ := strings.Cut(name, ".")
				k := key{Section: section, Key: rest}
				if i := strings.LastIndexByte(rest, '.'); i >= 0 {
					k.Sub, k.Key = rest[:i], rest[i+1:]
				}
				require.True(t, allowed[general(k)] != nil || section == "color", "%q: %s is new", text, line)
			}
		}
	})
}
