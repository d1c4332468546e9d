package survey

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeHome makes a home: a path that ends in "/" is a directory, one with " ->
// " a link, one with "#!" a script, any other an empty program. HOME stands
// for the home itself.
func fakeHome(t *testing.T, paths ...string) string {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, p := range paths {
		p = strings.ReplaceAll(p, "HOME", home)
		path, target, isLink := strings.Cut(p, " -> ")
		path, script, isScript := strings.Cut(path, " #!")
		full := filepath.Join(home, path)
		if strings.HasSuffix(path, "/") {
			require.NoError(t, os.MkdirAll(full, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		switch {
		case isLink:
			require.NoError(t, os.Symlink(target, full))
		case isScript:
			require.NoError(t, os.WriteFile(full, []byte("#!"+script+"\nexit 0\n"), 0o755))
		default:
			mode := os.FileMode(0o755)
			if filepath.Ext(path) == ".txt" {
				mode = 0o644
			}
			require.NoError(t, os.WriteFile(full, nil, mode))
		}
	}
	return home
}

func TestToolchains(t *testing.T) {
	// What must never be shown, whatever else is. All of it exists in each home.
	secrets := []string{".ssh/id", ".aws/credentials", ".cargo/credentials.toml", ".local/share/keyrings/login", ".npmrc", ".config/gh/hosts.yml",
		".gem/credentials", ".claude/.credentials.json", "notes.txt", "ws/main.go", ".gradle/gradle.properties"}
	for name, c := range map[string]struct {
		files []string
		path  string // below the home, but for what begins with /
		env   map[string]string
		want  []string
	}{
		"nothing":         {path: "/usr/bin:/bin", want: nil},
		"relative":        {files: []string{"bin/x"}, path: "+bin:+.:+", want: nil},
		"the home itself": {files: []string{"x"}, path: ".", want: nil},
		"the workspace":   {files: []string{"ws/bin/x", "ws/bin/y -> HOME/.ssh/id", "lib/ws -> ../ws/bin"}, path: "ws/bin:lib/ws", want: nil},
		"absent":          {path: "go/bin:.local/bin", want: nil},
		"home bin":        {files: []string{"bin/x", "lib/secret"}, path: "bin", want: []string{"bin"}},
		"local bin": {
			files: []string{".local/bin/x", ".local/lib/python3.12/site-packages/"},
			path:  ".local/bin", want: []string{".local/bin"}, // ~/.local/lib has a layer
		},
		"a login beside versions": {
			files: []string{".pulumi/bin/pulumi", ".pulumi/versions/3/pulumi", ".pulumi/credentials.json"},
			path:  ".pulumi/bin", want: []string{".pulumi/bin", ".pulumi/versions"},
		},
		"a version that was added as a link": {
			files: []string{".exenv/shims/x", ".exenv/version.txt", "elixirs/1/bin/x", "elixirs/1/lib/l", "elixirs/1/notes.txt", ".exenv/versions/1 -> HOME/elixirs/1"},
			path:  ".exenv/shims", want: []string{".exenv/shims", ".exenv/versions", "elixirs/1/bin", "elixirs/1/lib"},
		},
		"claude": {
			files: []string{".local/share/claude/versions/1.0.3", ".local/bin/claude -> HOME/.local/share/claude/versions/1.0.3"},
			path:  ".local/bin", want: []string{".local/bin", ".local/share/claude"},
		},
		"through the workspace": {
			files: []string{".local/share/app/run", ".local/share/app/token.txt", "ws/tool -> HOME/.local/share/app/run", ".local/bin/mytool -> HOME/ws/tool"},
			path:  ".local/bin", want: []string{".local/bin"},
		},
		"a script for no program": {
			files: []string{"Documents/priv.txt", ".local/bin/evil #!HOME/Documents/priv.txt"},
			path:  ".local/bin", want: []string{".local/bin"},
		},
		"a project's links": {
			files: []string{".local/share/app/run", ".local/share/app/token.txt", "proj/bin/a -> HOME/.local/share/app/run", "proj/bin/b #!HOME/.local/share/app/run",
				".pyenv/versions/3/bin/python", "proj/bin/c -> HOME/.pyenv/versions/3/bin/python"},
			path: "proj/bin", want: []string{".pyenv", "proj/bin"},
		},
		"no program in it": {files: []string{"Documents/letter.txt"}, path: "Documents", want: nil},
		"claude, older": {
			files: []string{".claude/local/claude", ".local/bin/claude -> ../../.claude/local/claude"},
			path:  ".local/bin", want: []string{".claude/local/claude", ".local/bin"},
		},
		"pipx on pyenv": {
			files: []string{
				".pyenv/versions/3.12.1/bin/python3.12", ".local/share/pipx/venvs/black/bin/python -> HOME/.pyenv/versions/3.12.1/bin/python3.12",
				".local/share/pipx/venvs/black/bin/black #!HOME/.local/share/pipx/venvs/black/bin/python",
				".local/bin/black -> HOME/.local/share/pipx/venvs/black/bin/black",
			},
			path: ".local/bin", want: []string{".local/bin", ".local/share/pipx", ".pyenv"},
		},
		"uv": {
			files: []string{
				".local/share/uv/python/cpython-3.13/bin/python3", ".local/share/uv/tools/ruff/bin/ruff",
				".local/bin/uv", ".local/bin/ruff -> HOME/.local/share/uv/tools/ruff/bin/ruff",
			},
			path: ".local/bin", want: []string{".local/bin", ".local/share/uv"},
		},
		"pip --user": {
			files: []string{".pyenv/versions/3.9/bin/python", ".local/bin/tool #!HOME/.pyenv/versions/3.9/bin/python -E"},
			path:  ".local/bin", want: []string{".local/bin", ".pyenv"},
		},
		"nvm": {
			files: []string{".nvm/versions/node/v22.1.0/bin/node", ".nvm/versions/node/v22.1.0/lib/node_modules/npm/bin/npm-cli.js",
				".nvm/versions/node/v22.1.0/bin/npm -> ../lib/node_modules/npm/bin/npm-cli.js", ".nvm/alias/default"},
			path: ".nvm/versions/node/v22.1.0/bin", want: []string{".nvm"},
		},
		"npm link into the workspace": {
			files: []string{".npm-global/lib/node_modules/mine -> ../../../ws", ".npm-global/bin/mine -> ../lib/node_modules/mine/main.go"},
			path:  ".npm-global/bin", want: []string{".npm-global/bin", ".npm-global/lib"},
		},
		"pyenv": {files: []string{".pyenv/shims/python", ".pyenv/bin/pyenv", ".pyenv/version"}, path: ".pyenv/shims:.pyenv/bin", want: []string{".pyenv"}},
		"rustup, said to be elsewhere": {
			files: []string{".cargo/bin/cargo", "Documents/letter.txt"}, env: map[string]string{"RUSTUP_HOME": "HOME/Documents"},
			path: ".cargo/bin", want: []string{".cargo/bin"},
		},
		"pyenv moved": {files: []string{"opt/py/shims/python"}, env: map[string]string{"PYENV_ROOT": "HOME/opt/py"}, path: "opt/py/shims", want: []string{"opt/py"}},
		"a root that is the home": {
			files: []string{"shims/python"}, env: map[string]string{"PYENV_ROOT": "HOME"}, path: "shims", want: []string{"shims"},
		},
		"cargo": {
			files: []string{".cargo/bin/rustup", ".cargo/bin/cargo -> rustup", ".rustup/toolchains/stable/bin/cargo", ".cargo/config.toml"},
			path:  ".cargo/bin", want: []string{".cargo/bin", ".rustup"},
		},
		"choosenim": {
			files: []string{".nimble/bin/nim", ".choosenim/current", ".choosenim/toolchains/nim-2.2.0/bin/nim", ".nimble/nimbledata2.json"},
			path:  ".nimble/bin", want: []string{".choosenim", ".nimble/bin"},
		},
		"choosenim, of which nothing is installed": {files: []string{".nimble/bin/nim", ".choosenim/current"}, path: ".nimble/bin", want: []string{".nimble/bin"}},
		"go":     {files: []string{"go/bin/gopls", "go/src/private/main.go"}, path: "go/bin", want: []string{"go/bin"}},
		"volta":  {files: []string{".volta/bin/node", ".volta/tools/image/node/22/bin/node"}, path: ".volta/bin", want: []string{".volta"}},
		"asdf":   {files: []string{".asdf/shims/node", ".tool-versions"}, path: ".asdf/shims", want: []string{".asdf", ".tool-versions"}},
		"mise":   {files: []string{".local/share/mise/installs/node/22/bin/node"}, path: ".local/share/mise/installs/node/22/bin", want: []string{".local/share/mise"}},
		"sdkman": {files: []string{".sdkman/candidates/java/21/bin/java", ".sdkman/candidates/java/current -> 21", ".sdkman/etc/config"}, path: ".sdkman/candidates/java/current/bin", want: []string{".sdkman/candidates"}},
		"Java, in no PATH": {
			files: []string{".jdks/21/bin/java", ".jdks/21/lib/modules", ".jdks/21/release"}, env: map[string]string{"JAVA_HOME": "HOME/.jdks/21"},
			path: "/usr/bin", want: []string{".jdks/21"},
		},
		"Java, said to be elsewhere": {
			files: []string{"ws/bin/java"}, env: map[string]string{"JAVA_HOME": "HOME/ws"}, path: "/usr/bin", want: nil,
		},
		"Java, said to be where none is": {
			files: []string{"letters/bin/print", "letters/lib/letter"}, env: map[string]string{"JAVA_HOME": "HOME/letters"}, path: "/usr/bin", want: nil,
		},
		"deno": {files: []string{".deno/bin/deno"}, path: ".deno/bin", want: []string{".deno"}},
		"flutter in a directory of code": {
			files: []string{"development/flutter/bin/flutter", "development/flutter/bin/internal/shared.sh", "development/flutter/packages/x", "development/other/notes"},
			path:  "development/flutter/bin", want: nil, // a layer: see below
		},
		"golang.org/dl": {
			files: []string{"go/bin/go1.99", "sdk/go1.99/pkg/tool/", "sdk/go1.99/bin/go", "sdk/notes"}, path: "go/bin", want: []string{"go/bin", "sdk/go1.99"},
		},
		"Go that was unpacked in the home": {
			files: []string{"work/go/bin/go", "work/go/pkg/tool/", "work/go/src/fmt/", "work/x"}, path: "work/go/bin", want: []string{"work/go"},
		},
		"an editor by its path": {
			files: []string{"tools/ed #!HOME/.pyenv/versions/3/bin/python", ".pyenv/versions/3/bin/python", "tools/notes"}, env: map[string]string{"EDITOR": "HOME/tools/ed --wait", "PAGER": "less"},
			want: []string{".pyenv", "tools/ed"},
		},
		"an editor that is none": {
			files: []string{"tools/ed -> HOME/.ssh/id", "tools/dir/"}, env: map[string]string{"EDITOR": "HOME/tools/ed", "VISUAL": "HOME/.ssh/id", "PAGER": "HOME/tools/dir", "SHELL": "HOME/ws/main.go"},
		},
		"a variable alone": {files: []string{"elsewhere/Sdk/platform-tools/"}, env: map[string]string{"ANDROID_HOME": "HOME/elsewhere/Sdk"}, want: []string{"elsewhere/Sdk"}},
		"a variable that names something else": {
			files: []string{"elsewhere/notes", ".ssh/platform-tools/"}, env: map[string]string{"ANDROID_HOME": "HOME/elsewhere", "ANDROID_SDK_ROOT": "HOME/.ssh", "GOROOT": "HOME", "CONDA_PREFIX": "relative", "QTDIR": "HOME/ws"},
		},
		"bun": {files: []string{".bun/bin/bun", ".bun/install/global/node_modules/x/cli.js", ".bun/bin/x -> ../install/global/node_modules/x/cli.js"}, path: ".bun/bin", want: []string{".bun"}},
		"yarn global": {
			files: []string{".config/yarn/global/node_modules/x/cli.js", ".config/yarn/global/node_modules/.bin/x -> ../x/cli.js"},
			path:  ".config/yarn/global/node_modules/.bin", want: []string{".config/yarn/global/node_modules"},
		},
		"gem":       {files: []string{".gem/ruby/3.2.0/bin/rake", ".gem/bin/x"}, path: ".gem/ruby/3.2.0/bin:.gem/bin", want: []string{".gem/bin"}},
		"a project": {files: []string{"src/app/bin/tool", "src/app/lib/x.rb", "src/app/.env"}, path: "src/app/bin", want: []string{"src/app/bin", "src/app/lib"}},
		"a venv":    {files: []string{"venvs/x/bin/python -> /usr/bin/env", "venvs/x/pyvenv.cfg", "venvs/x/lib/"}, path: "venvs/x/bin", want: []string{"venvs/x/bin", "venvs/x/lib", "venvs/x/pyvenv.cfg"}},
		"a build":   {files: []string{"src/tool/target/release/tool", "src/tool/target/release/.env", "bin/tool -> ../src/tool/target/release/tool"}, path: "bin", want: []string{"bin", "src/tool/target/release/tool"}},
		"a chain":   {files: []string{"src/real", "alias -> src/real", "bin/tool -> ../alias"}, path: "bin", want: []string{"alias", "bin", "src/real"}},
		"secrets in PATH": {
			files: []string{".ssh/bin2/x", ".config/app/x", "bin/key -> ../.ssh/id", "bin/list -> ../notes.txt", "bin/dir -> ../.ssh"},
			path:  ".ssh/bin2:.ssh:.config/app:.config:bin", want: []string{"bin"},
		},
		"an entry that is a link": {files: []string{"opt/tool/bin/x", "current -> opt/tool"}, path: "current/bin", want: []string{"current/bin"}},
		"a loop":                  {files: []string{"bin/a -> b", "bin/b -> a", "l -> l", "bin/s #!HOME/bin/s"}, path: "bin:l", want: []string{"bin"}},
		"twice":                   {files: []string{"go/bin/x"}, path: "go/bin:go/bin/:./go/../go/bin", want: []string{"go/bin"}},
	} {
		t.Run(name, func(t *testing.T) {
			home := fakeHome(t, append(c.files, secrets...)...)
			var path []string
			for _, p := range filepath.SplitList(c.path) {
				if rest, ok := strings.CutPrefix(p, "+"); ok {
					p = rest // as it stands: relative
				} else if !strings.HasPrefix(p, "/") {
					p = home + "/" + p
				}
				path = append(path, p)
			}
			got := Toolchains(ToolQuery{
				Path: strings.Join(path, ":"), Home: home, Workspace: home + "/ws",
				Env: func(name string) string { return strings.ReplaceAll(c.env[name], "HOME", home) },
			})
			var have []string
			for _, tool := range got.Show {
				require.NotEmpty(t, tool.Why)
				have = append(have, strings.TrimPrefix(tool.Path, home+"/"))
			}
			require.Equal(t, c.want, have)
			for _, tool := range got.Show {
				for _, s := range secrets {
					require.False(t, Below(filepath.Join(home, s), tool.Path), "%s shows %s", tool.Path, s)
				}
			}
		})
	}
}

func TestToolchainsCaches(t *testing.T) {
	home := fakeHome(t, "go/pkg/mod/cache/download/", ".cargo/registry/index/", "elsewhere/cargo/git/db/", "elsewhere/gems/specifications/", "gp/pkg/mod/cache/download/",
		".ssh/cache/download/", ".ssh/specifications/", "projects/cache/")
	find := func(env map[string]string) map[string]string {
		all := map[string]string{}
		for _, c := range Toolchains(ToolQuery{Home: home, Workspace: home + "/ws", Env: func(n string) string { return env[n] }}).Caches {
			all[strings.TrimPrefix(c.Path, home+"/")] = strings.ReplaceAll(c.Entry, home, "~")
		}
		return all
	}
	require.Equal(t, map[string]string{"go/pkg/mod": "", ".cargo/registry": ""}, find(nil))
	require.Equal(t, map[string]string{"gp/pkg/mod": "GOMODCACHE=~/gp/pkg/mod", "elsewhere/cargo/git": "CARGO_HOME=~/elsewhere/cargo", "elsewhere/gems": "GEM_HOME=~/elsewhere/gems"},
		find(map[string]string{"GOPATH": home + "/gp", "CARGO_HOME": home + "/elsewhere/cargo", "GEM_HOME": home + "/elsewhere/gems"}))
	for _, bad := range []string{home, home + "/.ssh", home + "/projects", "/", "relative"} {
		for path := range find(map[string]string{"GOMODCACHE": bad, "GEM_HOME": bad}) {
			require.True(t, path == ".cargo/registry" || path == "go/pkg/mod", "%s shows %s", bad, path)
		}
	}
}

// Whatever variable moves a manager, its directory is shown as a whole for a program in it.
func TestToolchainsMoved(t *testing.T) {
	home := fakeHome(t, "elsewhere/m/bin/x", "elsewhere/m/data/y", "elsewhere/n/bin/x")
	find := func(env, value string) (paths []string) {
		for _, tool := range Toolchains(ToolQuery{Path: home + "/elsewhere/m/bin", Home: home, Workspace: home + "/ws", Env: func(n string) string {
			if n == env {
				return value
			}
			return ""
		}}).Show {
			paths = append(paths, strings.TrimPrefix(tool.Path, home+"/"))
		}
		return paths
	}
	for _, r := range roots {
		if r.env != "" {
			require.Equal(t, []string{"elsewhere/m"}, find(r.env, home+"/elsewhere/m"), r.env)
			require.Equal(t, []string{"elsewhere/m/bin"}, find(r.env, home+"/elsewhere/n"), r.env)
			require.Equal(t, []string{"elsewhere/m/bin"}, find(r.env, home), r.env)
		}
	}
}

func TestToolchainsLayers(t *testing.T) {
	home := fakeHome(t, "development/flutter/bin/flutter", "development/flutter/bin/internal/shared.sh")
	found := Toolchains(ToolQuery{Path: home + "/development/flutter/bin", Home: home, Workspace: home + "/ws"})
	require.Equal(t, []Cache{{Path: home + "/development/flutter", Why: "Flutter"}}, found.Caches)
}

// On the machine that the test runs on, whatever its PATH is, each program
// that a shell would find lies in what is shown or in a system directory.
func TestToolchainsHere(t *testing.T) {
	home, err := filepath.EvalSymlinks(os.Getenv("HOME"))
	if err != nil {
		t.Skip("needs a home")
	}
	ws, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	got := Toolchains(ToolQuery{Path: os.Getenv("PATH"), Home: home, Workspace: ws, Env: os.Getenv})
	for _, tool := range got.Show {
		require.NotEqual(t, home, tool.Path)
		_, err := os.Lstat(tool.Path)
		require.NoError(t, err)
		t.Log(tool.Path, "—", tool.Why)
	}
	for _, c := range got.Caches {
		t.Log(c.Path, c.Entry)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) == home {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil || Below(filepath.Clean(dir), "/usr/bin") {
			continue
		}
		for _, e := range entries {
			real, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
			if err != nil {
				continue
			}
			shown := system(real)
			for _, tool := range got.Show {
				shown = shown || Below(real, tool.Path)
			}
			if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				require.True(t, shown, "%s in %s leads to %s, which is not shown", e.Name(), dir, real)
			}
		}
	}
}

func FuzzShebang(f *testing.F) {
	for _, s := range []string{"#!/usr/bin/env node\n", "#! /a/../b -x", "#!sh", "#!", "\x7fELF"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		if path := shebang(head); path != "" {
			require.True(t, filepath.IsAbs(path) && filepath.Clean(path) == path, path)
			require.True(t, strings.HasPrefix(string(head), "#!"))
		}
	})
}
