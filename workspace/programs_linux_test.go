package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A tool of the host finds a program by the names of directories, also where one of those is a
// link: that it runs what the command has left is the control.
func TestGuardTellsOfPrograms(t *testing.T) {
	const evil = `; printf '#!/bin/sh\ntouch "%s/ran"\n' "$PWD" > `
	for name, c := range map[string]struct {
		before, run string
		found       string // as which a tool of the host runs it
		want        []string
	}{
		"by a new link for the first name":    {"mkdir -p .venv/bin e/bin", "rmdir .venv/bin .venv; ln -s e .venv" + evil + "e/bin/x", ".venv/bin/x", []string{"program .venv"}},
		"by a new link for the last":          {"mkdir -p node_modules sub/e", "ln -s ../sub/e node_modules/.bin" + evil + "sub/e/x", "node_modules/.bin/x", []string{"program node_modules/.bin"}},
		"by a link that stood":                {"mkdir -p e/bin; ln -s e venv", ":" + evil + "e/bin/x", "venv/bin/x", []string{"program e/bin/x"}},
		"written to where it is":              {"mkdir -p e/bin; ln -s e venv; touch e/bin/x; chmod +x e/bin/x", ":" + evil + "e/bin/x", "venv/bin/x", []string{"program e/bin/x"}},
		"by one behind it that is new":        {"mkdir -p e/bin f/bin; ln -s e l; ln -s l venv", "rm l; ln -s f l" + evil + "f/bin/x", "venv/bin/x", []string{"program f/bin/x", "program l"}},
		"in what has come to where it leads":  {"mkdir -p e/bin f/bin; ln -s e venv; touch f/bin/x; chmod +x f/bin/x" + evil + "f/bin/x", "mv e o; mv f e", "venv/bin/x", []string{"program e/bin/x"}},
		"by a link that is moved":             {"mkdir -p d/p/bin q/bin; ln -s p d/venv", "mkdir s; mv d s/d" + evil + "s/d/p/bin/x", "s/d/venv/bin/x", []string{"program s/d/venv"}},
		"in an environment that direnv has":   {"mkdir .direnv e", "mkdir -p e/bin; ln -s ../e .direnv/python-3.13" + evil + "e/bin/x", ".direnv/python-3.13/bin/x", []string{"program .direnv/python-3.13"}},
		"in a switch of opam":                 {"", "mkdir -p _opam/bin" + evil + "_opam/bin/x", "_opam/bin/x", []string{"program _opam/bin/x"}},
		"in an environment of Conda, or Pixi": {"", "mkdir -p .pixi/envs/default/bin .conda/bin" + evil + ".pixi/envs/default/bin/x; cp .pixi/envs/default/bin/x .conda/bin/; chmod +x .conda/bin/x", ".conda/bin/x", []string{"program .conda/bin/x", "program .pixi/envs/default/bin/x"}},
		"named by a file":                     {"mkdir -p e/bin", "echo ../e > .venv" + evil + "e/bin/x", "e/$(cat .venv)/bin/x", []string{"program .venv"}},
		"named by a file that is written to":  {"mkdir -p sub e/bin; echo n > sub/.venv", "echo e > sub/.venv" + evil + "e/bin/x", "$(cat sub/.venv)/bin/x", []string{"program sub/.venv"}},
		"named by a file that is moved":       {"mkdir -p s/p e/bin; echo e > s/p/.venv", "mv s/p q" + evil + "e/bin/x", "$(cat q/.venv)/bin/x", []string{"program q/.venv"}},
		"named by a file behind a link":       {"mkdir -p e/bin; echo n > f; ln -s f .venv", "echo e > f" + evil + "e/bin/x", "$(cat .venv)/bin/x", []string{"program f"}},
		"named by a file by a new link":       {"mkdir -p e/bin; echo e > f", "ln -s f .venv" + evil + "e/bin/x", "$(cat .venv)/bin/x", []string{"program .venv"}},
		"named by a file beside one written":  {"mkdir -p sub e/bin; echo e > sub/.venv", "echo x > sub/f; mkdir g" + evil + "e/bin/x", "$(cat sub/.venv)/bin/x", nil},
		"named by a file that stood":          {"mkdir -p e/bin; echo e > .venv", ":" + evil + "e/bin/x", "$(cat .venv)/bin/x", nil},
		"a file of the name":                  {"mkdir -p e/bin", "ln -s x e/bin/env; ln -s bin/x e/vendor" + evil + "e/bin/x", "e/vendor", nil},
		"in no such directory":                {"mkdir -p e/bin", "ln -s e environment" + evil + "e/bin/x", "environment/bin/x", nil},
		"nothing of what a link leads to":     {"mkdir -p e/bin; ln -s e venv; touch e/bin/x; chmod +x e/bin/x" + evil + "e/bin/x", "echo x > e/bin/data", "venv/bin/x", nil},
		"a directory is no program":           {"mkdir -p e/bin; ln -s e venv; touch e/bin/x; chmod +x e/bin/x" + evil + "e/bin/x", "mkdir e/bin/d", "venv/bin/x", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh(c.before)
			w.begin()
			w.sh(c.run + "; find . -name x -type f ! -perm -u+x -exec chmod +x {} +")
			w.sh(c.found + "; test -e ran")
			require.Equal(t, c.want, w.end())
		})
	}
}

// What is left where the user's shell finds programs is told, by whatever name. The controls:
// the shell runs it, and without the variable nothing is said.
func TestGuardTellsOfProgramsInPath(t *testing.T) {
	const evil = `printf '#!/bin/sh\ntouch "%s/ran"\n' "$PWD" > `
	for name, c := range map[string]struct {
		before, run string
		path        []string // relative to the workspace
		want        []string
	}{
		"a new one":               {"mkdir bin; touch bin/y; chmod +x bin/y", evil + "bin/x", []string{"bin"}, []string{"program bin/x"}},
		"beside other work":       {"mkdir -p a/b; touch a/b/y; chmod +x a/b/y", "touch f a/f; " + evil + "a/b/x", []string{"a/b"}, []string{"program a/b/x"}},
		"written to":              {"mkdir bin; touch bin/x; chmod +x bin/x", evil + "bin/x", []string{"bin"}, []string{"program bin/x"}},
		"in a new directory":      {"", "mkdir -p s/t; " + evil + "s/t/x", []string{"s/t"}, []string{"program s/t/x"}},
		"in what has come there":  {"mkdir bin e; " + evil + "e/x; chmod +x e/x", "mv bin o; mv e bin", []string{"bin"}, []string{"program bin/x"}},
		"by a new link":           {"mkdir -p d e; " + evil + "e/x; chmod +x e/x", "rmdir d; ln -s e d", []string{"d"}, []string{"program d"}},
		"by a link that stood":    {"mkdir -p e; ln -s e d", evil + "e/x", []string{"d", "e"}, []string{"program e/x"}},
		"in the root":             {"", evil + "x", []string{""}, []string{"program x"}},
		"once, by a name as well": {"mkdir -p venv/bin", evil + "venv/bin/x", []string{"venv/bin"}, []string{"program venv/bin/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, told := range []bool{true, false} {
				w := newWatchman(t)
				w.sh(c.before)
				var path []string
				for _, dir := range c.path {
					path = append(path, filepath.Clean(w.path(dir)))
				}
				if told {
					w.query.Path = append(path, "/usr/local/bin")
				}
				w.begin()
				w.sh(c.run + "; find . -name x -type f ! -perm -u+x -exec chmod +x {} +")
				w.sh("PATH=" + strings.Join(path, ":") + ":$PATH; x; test -e ran")
				if found := w.end(); told || strings.HasPrefix(name, "once") {
					require.Equal(t, c.want, found)
				} else {
					require.Empty(t, found)
				}
			}
		})
	}
}

// What cannot be looked at is told: nobody knows what programs are there.
func TestGuardTellsOfProgramsUnseen(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir -p .venv/bin e/bin; ln -s e venv")
	w.begin()
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 3
	g := w.guard
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	g.programsIn(".venv/bin", false, false)
	g.programsIn("nowhere/bin", false, false)
	g.programLinks(&dir{links: true}, nil)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	g.programsIn("nowhere/bin", false, false)
	g.programsIn(".venv/bin", false, false)
	require.Equal(t, []string{"review .venv/bin", "review " + w.root, "review nowhere/bin"}, w.end())
}

// A link that could not be followed is told too, whatever the reason was.
func TestGuardTellsOfProgramsByLinkUnseen(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*testing.T, *Guard, *inerter)
		want []string
	}{
		"for want of time": {func(t *testing.T, g *Guard, i *inerter) { i.scan.until = time.Unix(1, 0) }, []string{"review .venv", "review venv"}},
		"for an error": {func(t *testing.T, g *Guard, i *inerter) { // as of a disk
			i.scan.fd = -1
		}, []string{"review .venv", "review venv"}},
		"control": {func(*testing.T, *Guard, *inerter) {}, nil},
		"control: what leads nowhere": {func(t *testing.T, g *Guard, i *inerter) {
			require.NoError(t, os.RemoveAll(g.abs("e")))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh("mkdir -p e/bin; ln -s e venv; ln -s e .venv")
			w.begin()
			g := w.guard
			i := g.inerter()
			c.fail(t, g, i)
			for _, name := range []string{".venv", "venv"} {
				g.programLink(w.root, name, "bin", i)
			}
			i.close()
			require.Equal(t, c.want, w.end())
		})
	}
}

func TestWayTo(t *testing.T) {
	for _, c := range []struct{ pattern, rel, rest string }{
		{".venv/bin", ".venv", "bin"}, {".venv/bin", "a/.venv/bin", ""}, {".direnv/*/bin", ".direnv", "*/bin"}, {".direnv/*/bin", "a/.direnv/x", "bin"}, {".direnv/*/bin", ".direnv/x/bin", ""},
	} {
		rest, on := wayTo(c.pattern, c.rel)
		require.True(t, on, c.rel)
		require.Equal(t, c.rest, rest, c.rel)
	}
	for _, rel := range []string{"", "bin", "a/bin", "x.venv", ".venv/x", "venv/bin/x", ".direnv/x/y/bin"} {
		for _, pattern := range programDirs {
			_, on := wayTo(pattern, rel)
			require.False(t, on, "%s %s", pattern, rel)
		}
		require.False(t, holdsPrograms(rel), rel)
	}
}

// No name is passed over that wayTo finds on a way.
func TestSteps(t *testing.T) {
	known := steps()
	for _, p := range programDirs {
		dir := "a"
		for _, name := range strings.Split(strings.ReplaceAll(p, "*", "whatever"), "/") {
			_, on := wayTo(p, dir+"/"+name)
			require.True(t, on, "control: %s/%s", dir, name)
			require.True(t, known.names[name] || known.any[filepath.Base(dir)], "%s/%s", dir, name)
			dir += "/" + name
		}
	}
	require.False(t, known.names["whatever"] || known.any["a"], "control")
}

// A commit from a working copy of Subversion's runs the hooks of the repository that it
// names, which may lie in the workspace.
func TestGuardTellsOfSubversionHooks(t *testing.T) {
	for name, c := range map[string]struct {
		before, run string
		want        []string
	}{
		"new":         {"", "mkdir -p r/hooks r/db r/conf r/locks; echo x > r/hooks/pre-commit; chmod +x r/hooks/pre-commit; echo x > r/hooks/pre-commit.tmpl", []string{"program r/hooks/pre-commit"}},
		"moved there": {"mkdir -p r/hooks r/db r/conf r/locks h; echo x > h/pre-lock; chmod +x h/pre-lock", "rmdir r/hooks; mv h r/hooks", []string{"program r/hooks/pre-lock"}},
		"that stood":  {"mkdir -p r/hooks r/db r/conf r/locks h; echo x > r/hooks/pre-lock; chmod +x r/hooks/pre-lock", "echo x > r/db/x", nil},
		"in a source": {"", "mkdir -p r/hooks r/db r/conf; echo x > r/hooks/pre-commit; chmod +x r/hooks/pre-commit", nil},
	} {
		w := newWatchman(t)
		w.sh(c.before)
		w.begin()
		w.sh(c.run)
		require.Equal(t, c.want, w.end(), name)
	}
}
