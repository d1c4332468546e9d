//go:build unix

package programs

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/private"
)

// A world is a user with a record, and directories of PATH: his own, and one that a run could write.
type world struct {
	t     *testing.T
	dir   string
	own   string
	tree  string
	notes []string
	*Finder
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: private.Dir(t)}
	w.own, w.tree = w.dir+"/.local/bin", w.dir+"/a"
	for _, dir := range []string{w.own, w.tree + "/.venv/bin"} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	w.Finder = &Finder{Records: Records(w.dir, w.dir+"/state"), Note: func(text string) { w.notes = append(w.notes, text) }}
	w.path(w.tree+"/.venv/bin", w.own)
	return w
}

func (w *world) path(dirs ...string) {
	w.Environ = []string{"PATH=" + strings.Join(append(dirs, "/usr/bin", "/bin"), ":"), "HOME=" + w.dir}
}

func (w *world) program(path, first string) string {
	require.NoError(w.t, os.WriteFile(path, []byte(first+"\necho "+path+"\n"), 0o755))
	return path
}

// found returns what a name stands for, or why nothing.
func (w *world) found(name string) string {
	p, err := w.Find(name, nil)
	if err != nil {
		require.Nil(w.t, p)
		return err.Error()
	}
	return p.Path
}

// What an earlier run could write is passed over, whatever leads there, and the next of the name is taken.
func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		lay  func(w *world) // beside an honest tool in the user's own directory
		why  string         // "": what was laid passes, which comes first
		none bool           // nothing passes
	}{
		"in a tree":          {lay: func(w *world) { w.program(w.tree+"/.venv/bin/tool", "#!/bin/sh") }, why: "can write $/a"},
		"a link into one":    {lay: func(w *world) { w.program(w.tree+"/tool", "#!/bin/sh"); w.link(w.dir+"/first/tool", w.tree+"/tool") }, why: "can write $/a"},
		"a link through one": {lay: func(w *world) { w.link(w.tree+"/l", w.own); w.link(w.dir+"/first", w.tree+"/l") }, why: "can write $/a"},
		"its interpreter": {lay: func(w *world) {
			w.program(w.dir+"/first/tool", "#!"+w.program(w.tree+"/sh", "#!/bin/sh"))
		}, why: "by its #! line: $/a/sh: sandboxed commands can write $/a"},
		"what env finds": {lay: func(w *world) {
			w.program(w.dir+"/first/tool", "#!/usr/bin/env -S node --x")
			w.program(w.tree+"/node", "#!/bin/sh")
			w.link(w.dir+"/first/node", w.tree+"/node")
		}, why: "by its #! line: $/first/node: sandboxed"},
		"what env finds nowhere": {lay: func(w *world) {
			w.program(w.dir+"/first/tool", "#!/usr/bin/env nosuchnode")
			w.program(w.tree+"/.venv/bin/nosuchnode", "#!/bin/sh")
		}, why: "by its #! line: nosuchnode: no such program"},
		"an option of env's":             {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/usr/bin/env -C /x node") }, why: "cannot be followed"},
		"an argument of its interpreter": {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/bin/sh "+w.tree+"/x") }, why: "by its #! line: $/a/x: sandboxed commands can write it"},
		"an option of its interpreter":   {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/usr/bin/perl -I"+w.tree+"/x") }, why: "by its #! line: -I$/a/x: sandboxed"},
		"a variable that env sets":       {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/usr/bin/env -S NODE_OPTIONS=-r"+w.tree+"/x sh") }, why: "can write it"},
		"a variable that env expands":    {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/usr/bin/env -S X=${HOME}/a/x sh") }, why: "cannot be followed"},
		"env by another name": {lay: func(w *world) {
			w.link(w.dir+"/other", "/usr/bin/env")
			w.program(w.dir+"/first/tool", "#!"+w.dir+"/other node")
			w.link(w.dir+"/first/node", w.program(w.tree+"/node", "#!/bin/sh"))
		}, why: "by its #! line: $/first/node: sandboxed"},
		"everybody's argument": {lay: func(w *world) {
			w.program(w.dir+"/x", "")
			w.mode("x", 0o646)
			w.program(w.dir+"/first/tool", "#!/bin/sh "+w.dir+"/x")
		}, why: "everybody can write $/x"},
		"control: an argument":       {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/bin/sh "+w.program(w.dir+"/x", "")) }},
		"an interpreter in sight":    {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!./sh") }, why: "cannot be followed"},
		"a script of itself":         {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!"+w.dir+"/first/tool") }, why: "cannot be followed"},
		"everybody's directory":      {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/bin/sh"); w.mode("first", 0o777|fs.ModeSticky) }, why: "everybody can write $/first"},
		"everybody's file":           {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/bin/sh"); w.mode("first/tool", 0o757) }, why: "everybody can write $/first/tool"},
		"the run's own":              {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/bin/sh"); w.Writes = w.below("first") }, why: "can write $/first"},
		"the run's own, for env":     {lay: func(w *world) { w.program(w.own+"/tool", "#!/usr/bin/env sh"); w.Writes = w.below(".local") }, why: "can write $/.local", none: true},
		"control: the user's":        {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/bin/sh") }},
		"control: a group's":         {lay: func(w *world) { w.program(w.dir+"/first/tool", "#!/bin/sh"); w.mode("first", 0o775) }},
		"control: a link to another": {lay: func(w *world) { w.program(w.dir+"/x", "#!/bin/sh"); w.link(w.dir+"/first/tool", "../x") }},
		"control: node by env": {lay: func(w *world) {
			w.program(w.dir+"/first/tool", "#!/usr/bin/env -S node --x")
			w.program(w.dir+"/first/node", "#!/bin/sh")
			w.program(w.tree+"/.venv/bin/node", "#!/bin/sh") // in a directory that is left out of its PATH
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			require.NoError(t, w.Cover([]string{w.tree}))
			honest := w.program(w.own+"/tool", "#!/bin/sh")
			w.path(w.tree+"/.venv/bin", w.dir+"/first", w.own)
			if name != "a link through one" {
				require.NoError(t, os.Mkdir(w.dir+"/first", 0o755))
			}
			c.lay(w)
			got, notes := w.found("tool"), strings.ReplaceAll(strings.Join(w.notes, "\n"), w.dir, "$")
			switch {
			case c.why == "":
				require.Equal(t, w.dir+"/first/tool", got)
				require.Empty(t, notes)
				return
			case c.none:
				require.Contains(t, strings.ReplaceAll(got, w.dir, "$"), "tool: $/.local/bin/tool skipped: sandboxed commands can write $/.local")
			default:
				require.Equal(t, honest, got, notes)
			}
			require.Contains(t, notes, c.why)
		})
	}
}

func (w *world) link(path, to string) { require.NoError(w.t, os.Symlink(to, path)) }

func (w *world) mode(name string, mode fs.FileMode) {
	require.NoError(w.t, os.Chmod(filepath.Join(w.dir, name), mode))
}

func (w *world) below(name string) func(string) bool {
	return func(path string) bool { return within(path, filepath.Join(w.dir, name)) }
}

func TestFindNone(t *testing.T) {
	w := newWorld(t)
	_, err := w.Find("nosuchprogram", nil)
	require.ErrorIs(t, err, ErrNone)
	w.program(w.tree+"/.venv/bin/x", "#!/bin/sh")
	require.NoError(t, w.Cover([]string{w.tree}))
	_, err = w.Find("x", nil)
	require.ErrorIs(t, err, ErrSkipped)
	var hint interface{ Hint() string }
	require.ErrorAs(t, err, &hint)
	require.Equal(t, "pccrun trust --program "+w.tree+"/.venv/bin/x trusts its present content", hint.Hint())
	t.Chdir(w.own)
	w.program("y", "#!/bin/sh")
	w.path(".")
	require.Contains(t, w.found("y"), "PATH has its directory by a relative path")
}

// A program is executed with what a list has of the user's variables, and a PATH of directories that pass.
func TestCommand(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.Cover([]string{w.tree}))
	show := w.own + "/show"
	require.NoError(t, os.WriteFile(show, []byte("#!/bin/sh\npwd\nenv\n"), 0o755))
	w.Environ = append(w.Environ, "NODE_OPTIONS=-r /x", "PYTHONPATH=/x", "GIT_DIR=/x", "LD_PRELOAD=/x", "LD_LIBRARY_PATH=/x", "GOFLAGS=-x", "GOTOOLCHAIN=go9", "BASH_ENV=/x",
		"LC_ALL=C", "NPM_TOKEN=t", "XDG_CONFIG_HOME="+w.tree+"/c", "GNUPGHOME="+w.dir+"/gnupg", "NPM_FILE="+w.tree)
	p, err := w.Find("show", func(name string) bool { return strings.HasPrefix(name, "NPM_") })
	require.NoError(t, err)
	out, err := p.Command(context.Background()).Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Equal(t, "/", lines[0])
	require.Subset(t, []string{"PATH=" + w.own + ":/usr/bin:/bin", "HOME=" + w.dir, "PWD=/", "LC_ALL=C", "NPM_TOKEN=t", "GNUPGHOME=" + w.dir + "/gnupg", "GOTOOLCHAIN=local", "OLDPWD=/", "SHLVL=1", "SHLVL=0", "_=/usr/bin/env", "_=/bin/env"}, lines[1:])
	require.Contains(t, lines, "NPM_TOKEN=t", "the control")
}

// The record lies in the home that the user database has. Another state directory adds one.
func TestRecord(t *testing.T) {
	w := newWorld(t)
	one, two := w.dir+"/one", w.dir+"/two"
	require.NoError(t, os.Mkdir(one, 0o755))
	w.link(two, one)
	require.NoError(t, w.Cover([]string{two, one}))
	file := w.dir + "/.local/state/pccrun/" + recordName
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, recorded(one), string(text))
	before, err := os.Stat(file)
	require.NoError(t, err)
	require.NoError(t, w.Cover([]string{one}))
	after, err := os.Stat(file)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "it is written once")
	for _, elsewhere := range []string{w.dir + "/state", "/nonexistent/state", ""} {
		f := &Finder{Records: Records(w.dir, elsewhere), Environ: w.Environ}
		covers, err := f.Covers(one + "/new/deep")
		require.NoError(t, err)
		require.True(t, covers, elsewhere)
		covers, err = f.Covers(w.dir + "/onerous")
		require.NoError(t, err)
		require.False(t, covers)
	}
	// The same directory by another name, as a bind mount or another case is.
	require.NoError(t, os.Rename(one, w.dir+"/moved"))
	w.link(one, w.dir+"/moved")
	w.path(w.dir + "/moved")
	w.program(w.dir+"/moved/x", "#!/bin/sh")
	require.Contains(t, w.found("x"), "sandboxed commands can write "+w.dir+"/moved")
	for path, want := range map[string]bool{"/moved/new/deep": true, "/moved": true, "/mo": false} {
		covers, err := w.Covers(w.dir + path)
		require.NoError(t, err)
		require.Equal(t, want, covers, path)
	}

	// Who cannot trust the record executes nothing.
	require.NoError(t, os.Chmod(file, 0o622))
	_, err = w.Find("sh", nil)
	require.ErrorContains(t, err, "that only you can write")
	require.NoError(t, os.Chmod(file, 0o600))
	require.Equal(t, "/usr/bin/sh", w.found("sh"), "the control")
	f := &Finder{Records: Records("/nonexistent", "/dev/null")}
	require.ErrorContains(t, f.Cover([]string{one}), "record what this run can write")
}

// recorded are the lines of a tree.
func recorded(path string) string {
	if inode(path) == "" {
		return treeLine(path)
	}
	return treeLine(path) + inodeLine(inode(path), path)
}

// The record is bounded: what is gone is forgotten first, and what stands is not.
func TestRecordIsBounded(t *testing.T) {
	w := newWorld(t)
	file := w.dir + "/.local/state/pccrun/" + recordName
	require.NoError(t, w.Cover([]string{w.tree}))
	fill := func(line func(int) string) {
		var b strings.Builder
		b.WriteString(treeLine(w.tree))
		for i := 0; b.Len() < maxRecord-200; i++ {
			b.WriteString(line(i))
		}
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	}
	deep := w.own + "/" + strings.Repeat("long", 50)
	require.NoError(t, os.Mkdir(deep, 0o755))
	fill(func(i int) string { return treeLine(fmt.Sprint("/nonexistent/", strings.Repeat("x", 150), i)) })
	require.NoError(t, w.Cover([]string{deep}))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, treeLine(w.tree)+recorded(deep), string(text), "nothing of what is gone")
	fill(func(int) string { return treeLine(w.own) })
	w.Records = w.Records[:1]
	require.ErrorContains(t, w.Cover([]string{deep}), "more than 256 KiB")
	covers, err := w.Covers(w.tree)
	require.NoError(t, err)
	require.True(t, covers)
}

// What the user trusts passes as long as it has its content.
func TestTrust(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.Cover([]string{w.tree}))
	path := w.program(w.tree+"/.venv/bin/x", "#!/bin/sh")
	require.Contains(t, w.found("x"), "skipped")
	real, err := w.Trust(path)
	require.NoError(t, err)
	require.Equal(t, path, real)
	require.Equal(t, path, w.found("x"), "the control")
	w.NoTrust = true
	require.Contains(t, w.found("x"), "skipped", "the record lies where a variable says")
	require.Equal(t, "/usr/bin/env", w.found("env"), "the system's own")
	w.path(w.own)
	w.program(w.own+"/y", "#!/bin/sh")
	info, err := os.Stat(w.own)
	require.NoError(t, err)
	if uid, _ := owner(info); uid != 0 {
		_, err = w.Find("y", nil)
		require.ErrorContains(t, err, "who has no home in the user database executes only what root alone can change, and not /")
		var mends interface{ Hint() string }
		require.ErrorAs(t, err, &mends)
		require.Empty(t, mends.Hint(), "none could be followed")
	}
	w.path(w.tree+"/.venv/bin", w.own)
	_, err = w.Trust(path)
	require.ErrorContains(t, err, "no home of your own")
	w.NoTrust = false
	w.program(path, "#!/bin/bash")
	require.Contains(t, w.found("x"), "skipped", "it has changed")
	list, err := w.Trusted()
	require.NoError(t, err)
	require.Equal(t, map[string]bool{path: false}, list)
	_, err = w.Trust(path)
	require.NoError(t, err)
	require.Equal(t, path, w.found("x"))
	w.program(path, "#!"+w.program(w.tree+"/sh", "#!/bin/sh"))
	_, err = w.Trust(path)
	require.NoError(t, err)
	require.Contains(t, w.found("x"), "by its #! line", "each is trusted by itself")
	_, err = w.Distrust(path)
	require.NoError(t, err)
	_, err = w.Distrust(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	list, err = w.Trusted()
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = w.Trust(w.tree)
	require.ErrorContains(t, err, "not a regular file")

	// A record where XDG_STATE_HOME says may be a run's own: it can add trees, and trusts nothing.
	sum, err := hash(w.program(path, "#!/bin/sh"))
	require.NoError(t, err)
	line := "program " + sum + " \"" + path + "\"\n"
	for dir, want := range map[string]string{w.Records[1]: "x: " + path + " skipped: sandboxed commands can write " + w.tree, w.Records[0]: path} {
		_, err := edit(dir, func(have []string) []string { return append(have, line) })
		require.NoError(t, err)
		require.Equal(t, want, w.found("x"))
		_, err = edit(dir, func(have []string) []string { return have[:len(have)-1] })
		require.NoError(t, err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(treeLine("/a b\n") + "program 00 \"/x\"\nx\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r record
		r.add(text)
		for _, tree := range r.trees {
			var again record
			again.add([]byte(treeLine(tree)))
			require.Equal(t, []string{tree}, again.trees)
		}
	})
}
