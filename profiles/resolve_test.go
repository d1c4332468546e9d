//go:build linux || darwin

package profiles

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// world is a machine of a test's own: a home, and a repository in it.
type world struct {
	t         testing.TB
	home, dir string
}

func newWorld(t testing.TB) *world {
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	w := &world{t: t, home: root + "/home/u", dir: root + "/home/u/src/project"}
	require.NoError(t, os.MkdirAll(w.dir+"/.git", 0o755))
	return w
}

// write makes a file below the workspace, or where ~ or / says.
func (w *world) write(name, text string) string {
	if rest, ok := strings.CutPrefix(name, "~"); ok {
		name = w.home + rest
	} else if !filepath.IsAbs(name) {
		name = w.dir + "/" + name
	}
	require.NoError(w.t, os.MkdirAll(filepath.Dir(name), 0o700))
	require.NoError(w.t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// trust trusts a content of the workspace's own file.
func (w *world) trust(content string) {
	require.NoError(w.t, TrustIn(w.home+"/.local/state/pccrun").Add(w.dir, []byte(content)))
}

func (w *world) request() Request {
	return Request{Host: Host{
		UID: os.Getuid(), Home: w.home, Cwd: w.dir, Memory: 16 << 30,
		Environ: []string{"HOME=" + w.home, "PATH=/usr/bin", "SECRET=x"},
	}}
}

// with resolves a request that change has changed.
func (w *world) with(change func(*Request)) (*Policy, error) {
	req := w.request()
	if change != nil {
		change(&req)
	}
	return Resolve(req)
}

func (w *world) policy(change func(*Request)) *Policy {
	w.t.Helper()
	p, err := w.with(change)
	require.NoError(w.t, err)
	return p
}

func (w *world) profile(text string) (*Policy, error) {
	file := w.write("~/p.jsonc", text)
	return w.with(func(r *Request) { r.Profile = file })
}

func access(p *Policy, path string) Access { return p.Decide(path).Access }

func TestDefault(t *testing.T) {
	w := newWorld(t)
	p := w.policy(nil)
	require.Equal(t, "default", p.Profile)
	require.Equal(t, w.dir, p.Workspace)
	require.Equal(t, w.dir, p.WorkDir)
	require.Equal(t, int64(12<<30), p.Resources.Memory.Value)
	require.Equal(t, int64(4096), p.Resources.Pids.Value)
	require.Zero(t, p.Resources.Deadline())
	require.Equal(t, []string{"HOME=" + w.home, "PATH=/usr/bin"}, p.Environ(w.request().Host.Environ))
	for path, want := range map[string]Access{
		"/etc/passwd":                      Read,
		"/tmp/x":                           Private,
		"/var/tmp/x":                       Private,
		"/run/docker.sock":                 Private,
		"/home/other/.ssh/id_rsa":          Hide,
		"/root/x":                          Hide,
		filepath.Dir(w.home) + "/v/secret": Hide,
		w.home + "/.ssh/id_rsa":            Private,
		w.dir + "/main.go":                 Write,
		w.dir + "/a/b/.env.local":          Hide,
		w.dir + "/.env.example":            Write,
	} {
		require.Equal(t, want, access(p, path), path)
	}
	more := w.policy(func(r *Request) { r.Profile = "protect-more" })
	for path, review := range map[string]bool{ // what a host tool would execute, or read as an order, under protect-more
		".git/hooks/x": false, "sub/.git/config": false, ".hg/hgrc": false, "sub/.hg/hgrc-not-shared": false, "sub/.hg/sharedpath": false, "sub/.git/sl/config": false, ".git/worktrees/w/sl/config-git-repo": false, "x/.sl/config-git-user": false, ".jj/repo/config.toml": false,
		".devcontainer.json": false, "sub/.pdbrc": false, ".Rprofile": false, "opencode.json": false, ".opencode/plugin/x.js": false, ".pnpmfile.mjs": false, ".nvim.lua": false,
		"sub/.git/lazygit.yml": false, ".git/modules/m/lazygit.yml": false, ".lazygit.yml": false, "sub/.direnv/flake-profile-1.rc": false, ".vimrc": false, ".helix/languages.toml": false, ".vim/coc-settings.json": false,
		"sub/mise.toml": false, "mise.ci.local.toml": false, ".config/mise/config.toml": false, ".envrc.local": false, "sub/.autoenv.zsh": false, ".west/config": true, ".config/wt.toml": true, ".iex.exs": false, ".tool-versions": true, "rust-toolchain.toml": true, ".RData": true,
		"GNUmakefile": true, "lefthook-local.yml": true, ".config/lefthook.json": true, ".lefthook-local/pre-commit/x": true,
		"sub/.git/glab-cli/config.yml": false, ".git/gitweb/gitweb_config.perl": false, ".git/modules/m/pid": false, ".git/modules/m/arc/config": false, ".bzr/branch/branch.conf": false, "x/.bzr/branches/b/branch.conf": false, ".repo/repo/main.py": false, ".reviewboardrc": false,
		"x.code-workspace": false, "sub/.dir-locals.el": false, ".yarn/releases/yarn.cjs": false, "sub/.yarn/plugins/x.cjs": false, "renv/activate.R": false, ".jedi/project.json": false, "hie.yaml": false, ".huskyrc.json": false,
		"mise/config.local.toml": false, ".config/mise/config.ci.toml": false, ".miserc.local.toml": false, ".config/miserc.toml": false, "sub/.psysh.php": false, ".ropeproject/config.py": false, ".ctags.d/x.ctags": false, ".ctags": false, "gtags.conf": false, "rust-analyzer.toml": false, "sub/build.rs": true,
		"sub/tui.json": false, "tui.jsonc": false, ".crushrc": false, "crushrc": false, ".crush/crush.json": false, ".pdm-plugins/lib/x.pth": false, "sub/.poetry/plugins/x.py": false, ".corepack.env": false,
		".crush/skills/x/SKILL.md": true, ".czrc": true, "package.yaml": true, "pyproject.toml": true, "setup.cfg": true, "pylintrc.toml": true, ".mypy.ini": true, ".flake8": true, "tox.ini": true, ".lintr": true, ".oxlintrc.jsonc": true, "oxlint.config.ts": true,
		".markdownlint-cli2.cjs": true, ".config/cspell.config.cjs": true, ".cspell.json": true, ".ncurc.js": true, ".latexmkrc": true, ".rubocop.yml": true, "svelte.config.js": true, "tailwind.config.ts": true, ".luarc.jsonc": true,
		".proverc": false, "sub/.perltidyrc": false, ".actrc": false, ".tflint.d/plugins/x": false, "Directory.Build.rsp": false, ".tmuxinator.yaml": false, ".tmuxp.json": false, "PKG_ADD": false, "PKG_DEL": false, "maxima-init.mac": false, "maxima-init.lisp": false,
		".nvim/local.lua": false, ".exrc.lua": false, ".nvimrc.lua": false, ".nvim-dap.lua": false, ".local.vimrc": false, ".kateproject.local": false, "sub/uv.toml": false,
		"CODEX.md": true, ".simple-git-hooks.cjs": true, "Rakefile": true, "Gemfile": true, "noxfile.py": true, "dodo.py": true, "gulpfile.mjs": true, ".gulp.cjs": true, "Gruntfile.js": true, "dub.json": true, "mkdocs.yml": true, ".config/air.toml": true, ".air.toml": true,
		".env.local": true, ".env.test.local": true, ".env.production": true, "sub/.local.env": true, "NuGet.config": true, ".luacheckrc": true, ".mdlrc": true, ".formatter.exs": true, ".sqlfluff": true, ".ansible-lint": true, ".config/ansible-lint.yml": true,
		".phpcs.xml.dist": true, "phpcs.xml": true, ".tflint.hcl": true, ".remarkrc": true, ".textlintrc.cjs": true, ".yardopts": true, "build/compile_commands.json": true, ".config/stylelintrc.cjs": true, "sub/.config/config.cjs": true,
		"vite.config.ts": true, "vitest.workspace.ts": true, ".postcssrc": true, "babel.config.json": true, ".babelrc.cjs": true, ".webpack/webpack.config.js": true, "next.config.mjs": true, "jest.config.json": true, ".mocharc.json": true, ".nycrc": true,
		"nodemon.json": true, "wrangler.toml": true, ".parcelrc": true, ".terserrc.cjs": true, ".pnp.cjs": true, ".release-it.cjs": true, ".releaserc": true, "pytest.ini": true, ".coveragerc": true, ".rspec-local": true, ".simplecov": true, ".busted": true, "phpunit.xml.dist": true, ".ruby-version": true,
		".github/hooks/x.json": false, "sub/.github/extensions/x/extension.mjs": false, ".clinerules/hooks/PreToolUse": false, ".amp/settings.json": false, "bunfig.toml": false, ".aider.model.settings.yml": false,
		".env": true, "sub/.svn/wc.db": true, ".svn/wc.db-journal": true, "sub/CVS/Root": true, "CVS/Update.prog": false, "_MTN/monotonerc": false, "flake.nix": true, ".mvn/jvm.config": true, "sub/gradle/wrapper/gradle-wrapper.jar": true, "compose.override.yaml": true, ".clinerules/x.md": true, ".lintstagedrc.js": true, "eslint.config.mjs": true,
		"CLAUDE.local.md": true, ".github/copilot-instructions.md": true, ".travis.yml": true,
		".shadowenv.d/x.lisp": false, "azure-pipelines.yaml": true, ".azure-pipelines/x.yml": true, "Jenkinsfile": true, "Jenkinsfile.release": true, ".gitlab/ci/x.yml": true, ".woodpecker.yaml": true, ".cirrus.star": true, ".build.yml": true, ".builds/x.yml": true,
		".semaphore/x.yml": true, ".teamcity/settings.kts": true, ".tekton/x.yaml": true, "zuul.d/x.yaml": true, "cloudbuild.yaml": true, "buildspec.yml": true, "sub/action.yml": true, "netlify.toml": true, ".gitpod.yml": true, ".idx/dev.nix": true,
		"Tiltfile": true, "Guardfile": true, "Steepfile": true, "Pipfile": true, "poetry.toml": true, "pixi.toml": true, "sub/Cargo.toml": true, "Procfile.dev": true, ".moon/tasks.yml": true, "mise-tasks/x": true, ".mise-tasks/x": true, ".config/mise/tasks/x": true,
		"phpstan.neon": true, "phpstan-baseline.neon": true, "phpstan.neon.dist": true, "psalm.xml": true, ".php-cs-fixer.dist.php": true, ".standard.yml": true, ".template-lintrc.js": true, ".graphqlrc.ts": true, "uno.config.ts": true, ".vscode-test.mjs": true,
		"nuxt.config.ts": true, "rspack.config.js": true, ".storybook/main.ts": true, "playwright.config.ts": true, "cypress.config.js": true, ".versionrc.js": true, ".node-version": true, ".terraform-version": true, "sub/.php-version": true, "sub/.nvmrc": true, ".sdkmanrc": true, "flake.lock": true, "devenv.local.nix": true, "devbox.lock": true,
		"rust-project.json": true, ".rust-project.json": true, "sub/analysis_options.yaml": true, ".factorypath": true, ".venv/pyvenv.cfg": true, "x/conda-meta/history": true, "_opam/.opam-switch/environment": true, "sub/_opam/.opam-switch/switch-config": true, ".jdbrc": false, "jdb.ini": false, ".sourcekit-lsp/config.json": false, "sub/.tern-project": false, ".perlcriticrc": false, ".lite_project.lua": false, ".run/all.run.xml": true,
		".ugrep": false, "sub/.hie-bios": false, "bin/activate-hermit": false, "sub/bin/hermit.hcl": false, ".ruby-env": false, ".versions.conf": false, ".tmux-sessionizer": false, ".smug.yml": false, ".ghcid": false, ".mc.menu": false, "codebuff.json": false, ".pixi/config.toml": false, ".luarocks/config-5.4.lua": false,
		"hk.local.pkl": true, ".config/hk.pkl": true, "mise.lock": true, ".overmind.env": true, ".buckconfig.local": true, ".buckconfig.d/x": true, ".gradle/config.properties": true, "pyrefly.toml": true, ".pyre_configuration.local": true, ".phan/config.php": true, ".alexrc.js": true, ".scss-lint.yml": true, "tslint.json": true, "sub/.syntastic_cpp_config": true,
		"conductor.json": true, "sub/.superset/config.json": true, ".workmux.yaml": true, ".dmux-hooks/x": true, "build.zig": true, "settings.gradle.kts": true, "sub/build.gradle": true, "build.sbt": true, "project/plugins.sbt": true, "mix.exs": true, "x.cabal": true, "sub/x.csproj": true,
		"lean-toolchain": true, ".jabbarc": true, ".fvmrc": true, ".fvm/flutter_sdk": true, ".conda/conda-meta/state": true, "env/etc/conda/activate.d/x.sh": true, ".pixi/envs/default/etc/conda/env_vars.d/x.json": true,
	} {
		rule, ok := more.Protected(w.dir + "/" + path)
		require.True(t, ok, path)
		require.Equal(t, review, rule.Review, path)
		rule, ok = p.Protected(w.dir + "/" + path)
		require.True(t, !ok || !review || rule.Review, "default protects no more: %s", path)
	}
	const deny, review, free = "deny", "review", "" // under default, where review is for what runs unasked
	for path, want := range map[string]string{
		".envrc": deny, "sub/.vscode/tasks.json": deny, ".git/sl/config": deny,
		"AGENTS.md": review, "sub/CLAUDE.md": review, ".github/workflows/ci.yml": review, ".gitlab-ci.yml": review, ".gitmodules": review, "sub/.hg/hgrc": review, "sub/.github/hooks/x": review,
		"lefthook-local.yml": review, ".lefthook-local/pre-commit/x": review, ".pre-commit-config.yaml": review, ".lintstagedrc.js": review,
		"package.json": review, "sub/.yarn/plugins/x.cjs": review, "flake.nix": review, "sub/mise.toml": review, ".gdbinit": review,
		"Makefile": free, "justfile": free, "Gruntfile.js": free, "sub/build.gradle": free, "Cargo.toml": free, "eslint.config.mjs": free, "tui.json": free, ".svn/wc.db": free, "conductor.json": free,
	} {
		got := free
		if rule, ok := p.Protected(w.dir + "/" + path); ok {
			if got = deny; rule.Review {
				got = review
			}
		}
		require.Equal(t, want, got, path)
	}
	listed := 0
	for _, r := range p.Protect {
		if r.Review {
			listed++
		}
	}
	require.LessOrEqual(t, listed, 80, "each is compiled at each launch, and each that changes is a line at exit: protect-more has room")
	_, ok := more.Protected(w.dir + "/.hg/store/data/x")
	require.False(t, ok, "a repository is written to")
	_, ok = more.Protected(w.dir + "/.crush/crush.db")
	require.False(t, ok, "crush keeps its sessions in the workspace")
	for _, path := range []string{"conftest.py", "tasks.py", "setup.py", "tsconfig.json", ".env.example", "config.ts", "CMakeLists.txt", "nim.cfg", "Cargo.lock", "Dockerfile", "tasks/x", ".gitlab/issue_templates/x.md", "turbo.json", "package-lock.json", "version", ".version", "go-version", "bin/x", ".gradle/8.9/x", "conda-meta/numpy.json", "hk.json", "activate-hermit"} {
		_, ok = more.Protected(w.dir + "/" + path)
		require.False(t, ok, "%s is written as sources are", path)
	}
	require.Empty(t, p.Network.Allow)
	require.Empty(t, p.Warnings)
	set, err := p.Network.Rules(nil)
	require.NoError(t, err)
	require.True(t, set.Empty())
}

func TestBuiltins(t *testing.T) {
	w := newWorld(t)
	entries, err := builtin.ReadDir("builtin")
	require.NoError(t, err)
	require.Len(t, entries, len(Builtin()))
	for _, name := range Builtin() {
		p := w.policy(func(r *Request) { r.Profile = name })
		require.Equal(t, name, p.Profile)
		require.Empty(t, p.Warnings, name)
		_, err := p.Network.Rules(nil)
		require.NoError(t, err, name)
		want := Private
		if name == "build" || name == "agent" || slices.Contains(agents, name) {
			want = Persist
		}
		require.Equal(t, want, access(p, w.home+"/.ssh"), name)
	}
}

func TestBuiltinPicked(t *testing.T) {
	w := newWorld(t)
	for command, want := range map[string]string{
		"claude": "claude", "/usr/local/bin/codex": "codex", "gemini": "gemini", "aider": "aider", "opencode": "opencode",
		"copilot": "copilot", "qwen": "qwen", "amp": "amp", "cline": "cline",
		"bash": "default", "strict": "default", "./claude": "default", w.dir + "/bin/claude": "default", "../../bin/claude": "claude",
		"make": "build", "/usr/local/go/bin/go": "build", w.dir + "/.venv/bin/pip": "default", "python3": "default", "node": "default",
	} {
		p := w.policy(func(r *Request) { r.Command = []string{command} })
		require.Equal(t, want, p.Profile, command)
	}
	p := w.policy(func(r *Request) { r.Command, r.Profile = []string{"claude"}, "strict" })
	require.Equal(t, "strict", p.Profile)
	require.Equal(t, "--profile", p.PickedBy)
	p = w.policy(func(r *Request) { r.Host.Environ = append(r.Host.Environ, "PCCRUN_PROFILE=build") })
	require.Equal(t, "build", p.Profile)
	require.Equal(t, "PCCRUN_PROFILE", p.PickedBy)
	_, err := w.with(func(r *Request) { r.Host.Environ = append(r.Host.Environ, "PCCRUN_PROFILE=./evil.jsonc") })
	require.EqualError(t, err, `PCCRUN_PROFILE: "./evil.jsonc": want a name`)
}

func TestClaude(t *testing.T) {
	w := newWorld(t)
	p := w.policy(func(r *Request) {
		r.Command = []string{"claude"}
		r.Host.Environ = append(r.Host.Environ, "ANTHROPIC_API_KEY=k", "AWS_SECRET_ACCESS_KEY=s")
	})
	require.Equal(t, Persist, access(p, w.home+"/.claude/projects/x"))
	require.Equal(t, Persist, access(p, w.home+"/.claude.json"))
	require.Equal(t, Persist, access(p, w.home+"/.aws/credentials"))
	require.Equal(t, Read, access(p, w.home+"/.claude/commands/x"))
	require.Equal(t, "built-in claude", p.Source)
	i := slices.IndexFunc(p.Seeds, func(s Seed) bool { return s.Path == w.home+"/.claude/.credentials.json" })
	require.Equal(t, Login, p.Seeds[i].Mode)
	env := p.Environ([]string{"ANTHROPIC_API_KEY=k", "AWS_SECRET_ACCESS_KEY=s"})
	require.Contains(t, env, "ANTHROPIC_API_KEY=k")
	require.NotContains(t, env, "AWS_SECRET_ACCESS_KEY=s")
	set, err := p.Network.Rules(nil)
	require.NoError(t, err)
	require.Equal(t, "allow", set.Decide("api.anthropic.com", 443).Action.String())
	require.Equal(t, "deny", set.Decide("example.com", 443).Action.String())
}

func TestWorkspace(t *testing.T) {
	w := newWorld(t)
	sub := w.dir + "/a/b"
	require.NoError(t, os.MkdirAll(sub, 0o755))
	at := func(cwd string) func(*Request) { return func(r *Request) { r.Host.Cwd = cwd } }
	p := w.policy(at(sub))
	require.Equal(t, w.dir, p.Workspace, "the top of the repository")
	require.Equal(t, sub, p.WorkDir)

	plain := w.home + "/src/plain"
	require.NoError(t, os.MkdirAll(plain, 0o755))
	require.Equal(t, plain, w.policy(at(plain)).Workspace, "no repository: the current directory")

	require.NoError(t, os.Mkdir(w.home+"/.git", 0o755))
	require.Equal(t, plain, w.policy(at(plain)).Workspace, "a repository of dotfiles is no workspace")

	other := w.policy(func(r *Request) { r.Workspace = plain })
	require.Equal(t, plain, other.Workspace)
	require.Equal(t, plain, other.WorkDir, "the current directory is not shown")
	require.Equal(t, Private, access(other, w.dir))

	require.NoError(t, os.Symlink(plain, w.home+"/link"))
	require.Equal(t, plain, w.policy(func(r *Request) { r.Workspace = "~/link" }).Workspace)
	require.Equal(t, w.dir+"/a", w.policy(func(r *Request) { r.Workspace = "a" }).Workspace, "relative to the current directory")
	require.Equal(t, "/usr", w.policy(func(r *Request) { r.Workspace, r.Host.Cwd = w.dir, "/usr" }).WorkDir, "shown, if not the workspace")

	file := w.write("file", "")
	for cwd, want := range map[string]string{
		"/":                  "workspace: /: the root of the file system cannot be the workspace",
		w.home:               "workspace: " + w.home + ": a home, or a directory with homes, cannot be the workspace",
		filepath.Dir(w.home): "workspace: " + filepath.Dir(w.home) + ": a home, or a directory with homes, cannot be the workspace",
		"/proc":              "workspace: /proc: a kernel file system cannot be the workspace",
		"":                   "workspace: the current directory was deleted",
	} {
		_, err := w.with(at(cwd))
		require.EqualError(t, err, want)
		require.NotEmpty(t, Hint(err))
		if cwd != "" {
			_, err = w.with(func(r *Request) { r.Workspace = cwd })
			require.EqualError(t, err, "flag --"+want)
		}
	}
	for dir, want := range map[string]string{
		file:              "flag --workspace: " + file + ": not a directory",
		w.dir + "/gone":   "flag --workspace: " + w.dir + "/gone: no such file or directory",
		"a\nb":            `flag --workspace: "a\nb": control character in a path`,
		"~u/x":            `flag --workspace: "~u/x": homes of other users are not supported`,
		"/dev":            "flag --workspace: /dev: a kernel file system cannot be the workspace",
		w.dir + "/../../": "flag --workspace: " + w.home + ": a home, or a directory with homes, cannot be the workspace",
	} {
		_, err := w.with(func(r *Request) { r.Workspace = dir })
		require.EqualError(t, err, want)
	}
	for _, system := range []string{"/etc", "/usr", "/var/lib", "/usr/lib"} {
		_, err := w.with(at(system))
		require.ErrorContains(t, err, "only with --workspace", system)
		require.Equal(t, system, w.policy(func(r *Request) { r.Workspace = system }).Workspace)
	}
	_, err := w.with(func(r *Request) { r.Host.Cwd, r.Workspace = "", w.dir })
	require.NoError(t, err, "a current directory that is gone, and a workspace that is not")

	// What is protected by its name in a repository is no workspace either.
	bare := w.home + "/src/bare.git"
	for _, dir := range []string{"objects", "refs", "hooks/x", "tree/sub", "worktrees/tree"} {
		require.NoError(t, os.MkdirAll(bare+"/"+dir, 0o755))
	}
	for _, dir := range []string{"hooks", "hooks/x"} {
		require.Equal(t, bare+"/"+dir, w.policy(at(bare+"/"+dir)).Workspace, "the control: no repository yet")
	}
	for _, file := range []string{"HEAD", "tree/.git", "worktrees/tree/HEAD", "worktrees/tree/commondir"} {
		require.NoError(t, os.WriteFile(bare+"/"+file, nil, 0o644))
	}
	for _, dir := range []string{"hooks", "hooks/x", "worktrees"} {
		_, err := w.with(at(bare + "/" + dir))
		require.ErrorContains(t, err, "workspace: "+bare+"/"+dir+": a directory inside .git")
		_, err = w.with(func(r *Request) { r.Workspace = bare + "/" + dir })
		require.ErrorContains(t, err, "a directory inside .git")
	}
	for _, dir := range []string{"", "/tree", "/tree/sub", "/worktrees/tree"} {
		require.Equal(t, bare+dir, w.policy(func(r *Request) { r.Workspace = bare + dir }).Workspace)
	}
}

// A .git that somebody else has put above the current directory makes nothing
// of the directory around it writable.
// What everybody may write, as /tmp, is the workspace only where it is named.
func TestWorkspaceOfEverybody(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Dir(w.dir) + "/shared"
	require.NoError(t, os.MkdirAll(dir+"/own", 0o755))
	at := func(cwd string) func(*Request) { return func(r *Request) { r.Host.Cwd = cwd } }
	for _, c := range []struct {
		dir, repository string
		mode            os.FileMode
		refused         bool
	}{
		{"/tmp", "", 0, true}, {"/var/tmp", "", 0, true},
		{dir, "", 0o777, true}, {dir, "", os.ModeSticky | 0o777, true}, {dir, "", 0o755, false}, {dir, "", 0o775, false}, {dir + "/own", "", 0o755, false},
		{dir, "/.git", 0o777, false}, {dir, "/.git", os.ModeSticky | 0o777, true},
	} {
		if within(c.dir, w.home) {
			continue // it holds a home here
		}
		require.NoError(t, os.RemoveAll(dir+"/.git"))
		if c.repository != "" {
			require.NoError(t, os.Mkdir(dir+c.repository, 0o755))
		}
		if c.mode != 0 {
			require.NoError(t, os.Chmod(c.dir, c.mode))
		}
		p, err := w.with(at(c.dir))
		if !c.refused {
			require.NoError(t, err, "%+v", c)
			require.Equal(t, c.dir, p.Workspace)
			continue
		}
		require.ErrorContains(t, err, c.dir+": everybody can write there: it can be the workspace only with --workspace", "%+v", c)
		p, err = w.with(func(r *Request) { r.Host.Cwd, r.Workspace = c.dir, "." })
		require.NoError(t, err, "control: it is named")
		require.Equal(t, c.dir, p.Workspace)
	}
}

//test:root
func TestWorkspaceOfSomebodyElse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a file of another user")
	}
	w := newWorld(t)
	sub := w.dir + "/sub"
	require.NoError(t, os.Mkdir(sub, 0o755))
	inSub := func(r *Request) { r.Host.Cwd = sub }
	require.Equal(t, w.dir, w.policy(inSub).Workspace)
	require.NoError(t, os.Chown(w.dir+"/.git", 12345, 12345))
	require.Equal(t, sub, w.policy(inSub).Workspace)
	require.NoError(t, os.Chown(w.dir+"/.git", 0, 0))
	require.NoError(t, os.Chown(w.dir, 12345, 12345))
	require.Equal(t, sub, w.policy(inSub).Workspace)
}

func TestHome(t *testing.T) {
	w := newWorld(t)
	other := filepath.Dir(w.home) + "/other"
	require.NoError(t, os.Mkdir(other, 0o755))
	home := func(env string) func(*Request) {
		return func(r *Request) { r.Host.Environ = []string{"HOME=" + env} }
	}
	p := w.policy(home(other))
	require.Equal(t, other, p.Home, "$HOME is what programs use")
	require.Equal(t, Private, access(p, other+"/.ssh"))
	require.Equal(t, Hide, access(p, w.home+"/.ssh"), "the user database's home stays hidden")
	require.Equal(t, []string{"HOME=" + other}, p.Environ([]string{"HOME=/x"}))

	for _, bad := range []string{"/", "relative", w.home + "/gone", "/proc/version", "//"} {
		p := w.policy(home(bad))
		require.Equal(t, w.home, p.Home, bad)
		require.Len(t, p.Warnings, 1, bad)
	}
	require.Equal(t, w.home, w.policy(func(r *Request) { r.Host.Environ = nil }).Home)
	// A user whom the database does not know: small images are started with any number.
	for _, environ := range [][]string{nil, {"HOME=/"}} {
		p, err := w.with(func(r *Request) { r.Host.Environ, r.Host.Home, r.Host.UID = environ, "", 4242 })
		require.NoError(t, err)
		require.Equal(t, NoHome+"4242", p.Home)
		require.Contains(t, p.Warnings[0], "user 4242 has no home")
	}
	_, err := w.with(func(r *Request) { r.Host.Environ, r.Host.Home = nil, "/" })
	require.Error(t, err)
	_, err = w.with(func(r *Request) { r.Host.Environ, r.Host.Home = []string{"HOME=/gone"}, "" })
	require.EqualError(t, err, `environment: HOME: "/gone": not a directory of your own`)

	// A home in the workspace would let a repository bring its own profiles.
	require.NoError(t, os.Mkdir(w.dir+"/fake", 0o755))
	_, err = w.with(home(w.dir + "/fake"))
	require.ErrorContains(t, err, "cannot be the workspace")

	// A home behind a link is hidden where it really is.
	link := filepath.Dir(filepath.Dir(w.home)) + "/link"
	require.NoError(t, os.Symlink(w.home, link))
	p = w.policy(func(r *Request) { r.Host.Home, r.Host.Environ = link, []string{"HOME=" + link} })
	require.Equal(t, w.home, p.Home)
	require.Equal(t, Private, access(p, w.home+"/.ssh"))
}

func TestHomesAround(t *testing.T) {
	root := t.TempDir()
	require.Empty(t, homesAround(root))
	require.NoError(t, os.MkdirAll(root+"/mnt/c/Users/u", 0o755))
	require.NoError(t, os.WriteFile(root+"/Users", nil, 0o644))
	require.Equal(t, []string{root + "/mnt/c/Users"}, homesAround(root))
}

func TestHomesOf(t *testing.T) {
	has := func(database, home string) []string {
		usual := homesOf("", home)
		return slices.DeleteFunc(homesOf(database, home), func(s string) bool { return slices.Contains(usual, s) })
	}
	require.Empty(t, has("/home/u", "/home/u"))
	require.Equal(t, []string{"/nonexistent-parent/x"}, has("/nonexistent-parent/x/u", "/nonexistent-parent/x/u"))
	require.Empty(t, has("/var/lib/jenkins", "/var/lib/jenkins"), "what holds more than homes is not hidden")
	require.Equal(t, []string{"/var/lib/jenkins"}, has("/var/lib/jenkins", "/elsewhere"))
	require.Empty(t, has("/", "/elsewhere"))
	require.Empty(t, has("", "/elsewhere"))
}

func TestProfileMistakes(t *testing.T) {
	w := newWorld(t)
	for text, want := range map[string]string{
		`[]`:                                           `:1: a list: want an object`,
		`{"filesytem": {}}`:                            `:1: filesytem: unknown key`,
		"{\n\"network\": {\n\"alow\": []}}":            `:3: network.alow: unknown key`,
		`{"extends": 1}`:                               `:1: extends: a number: want a string`,
		`{"extends": ""}`:                              `:1: extends: empty: want a profile's name or path, or null`,
		`{"extends": "strct"}`:                         `:1: extends: no profile "strct"`,
		`{"extends": "../x y"}`:                        `:1: extends: ` + w.dir + `/x y: no such file or directory`,
		`{"extends": "a\u0000b"}`:                      `:1: extends: "a\x00b": not the name of a profile`,
		`{"extends": "..\/\n"}`:                        `:1: extends: "../\n": control character in a path`,
		`{"description": 1}`:                           `:1: description: a number: want a string`,
		`{"nested": "yes"}`:                            `:1: nested: a string: want true or false`,
		`{"strict": 1}`:                                `:1: strict: a number: want true or false`,
		`{"syscalls": "my"}`:                           `:1: syscalls: "my": want default, or the path of a seccomp profile`,
		`{"syscalls": []}`:                             `:1: syscalls: a list: want a string`,
		`{"nested": true, "nested": true}`:             `:1: nested: duplicate, first in line 1`,
		`{"filesystem": []}`:                           `:1: filesystem: a list: want an object`,
		`{"filesystem": {"/x": "rw"}}`:                 `:1: filesystem."/x": access "rw": want one of hide, private, persist, read, overlay, write`,
		`{"filesystem": {"/x": true}}`:                 `:1: filesystem."/x": true or false: want one of hide, private, persist, read, overlay, write`,
		`{"filesystem": {"x": "read"}}`:                `:1: filesystem.x: "x": want a path that begins with /, ~, . or **/`,
		`{"filesystem": {"": "read"}}`:                 `:1: filesystem."": empty path`,
		`{"filesystem": {"$HOME/x": "read"}}`:          `:1: filesystem."$HOME/x": "$HOME/x": variables are not expanded`,
		`{"filesystem": {"~bob/x": "read"}}`:           `:1: filesystem."~bob/x": "~bob/x": homes of other users are not supported`,
		`{"filesystem": {"/a\nb": "read"}}`:            `:1: filesystem."/a\nb": "/a\nb": control character in a path`,
		`{"filesystem": {"/a\u0000b": "hide"}}`:        `:1: filesystem."/a\x00b": "/a\x00b": control character in a path`,
		`{"filesystem": {"/a/b**": "hide"}}`:           `:1: filesystem."/a/b**": "/a/b**": ** must be alone between slashes`,
		`{"filesystem": {"/a/[b": "hide"}}`:            `:1: filesystem."/a/[b": "/a/[b": [ without ]`,
		`{"filesystem": {"/x": "read", "/x": "read"}}`: `:1: filesystem."/x": duplicate, first in line 1`,
		"{\"filesystem\": {\n\"~/x\": \"read\",\n\"" + w.home + "/x/\": \"write\"}}":                      `:3: filesystem."` + w.home + `/x/": contradicts line 2, which names the same path`,
		`{"filesystem": {"./a/../b": "read", "./b": null}}`:                                               `:1: filesystem."./b": contradicts line 1, which names the same path`,
		`{"filesystem": {"/` + strings.Repeat("x", 256) + `": "read"}}`:                                   `:1: filesystem."/` + strings.Repeat("x", 256) + `": name of 256 bytes in a path: want at most 255`,
		`{"protect": {"deny": [""]}}`:                                                                     `:1: protect.deny: "": want a name, or a path in the workspace`,
		`{"protect": {"deny": ["../x"]}}`:                                                                 `:1: protect.deny: "../x": want a name, or a path in the workspace`,
		`{"protect": {"deny": ["~/*.x"]}}`:                                                                `:1: protect.deny: "~/*.x": patterns work only in the workspace`,
		`{"protect": {"deny": ["a["]}}`:                                                                   `:1: protect.deny: "a[": [ without ]`,
		`{"protect": {"deny": "x"}}`:                                                                      `:1: protect.deny: a string: want a list`,
		`{"protect": {"deny": [1]}}`:                                                                      `:1: protect.deny: a number: want a string`,
		`{"protect": {"deny": ["x"], "review": ["x"]}}`:                                                   `:1: protect.review: "x" is denied too, by line 1`,
		`{"network": {"allow": ["a.example"], "deny": ["a.example"]}}`:                                    `:1: network.deny: "a.example" is allowed too, by line 1`,
		`{"network": {"allow": ["*"]}}`:                                                                   `:1: network.allow: rule "*": `,
		`{"network": {"allow": ["deny a.example"]}}`:                                                      `:1: network.allow: rule "deny a.example" denies`,
		`{"network": {"allow": ["a\u0000.example"]}}`:                                                     `:1: network.allow: rule "a\x00.example": `,
		`{"network": {"local": ["0"]}}`:                                                                   `:1: network.local: local "0": `,
		`{"network": {"publish": ["70000"]}}`:                                                             `:1: network.publish: publish "70000": want a port, or HOST:INSIDE`,
		`{"network": {"sockets": ["x"]}}`:                                                                 `:1: network.sockets: "x": want a path that begins with /, ~, . or **/`,
		`{"network": {"inject": {}}}`:                                                                     `:1: network.inject: an object: want a list`,
		`{"network": {"inject": [{"env": "A"}]}}`:                                                         `:1: network.inject.hosts: want at least one host`,
		`{"network": {"inject": [{"env": "A-B", "hosts": ["a.example"]}]}}`:                               `:1: network.inject.env: "A-B": want the name of a variable`,
		`{"network": {"inject": [{"env": "A", "hosts": ["*"]}]}}`:                                         `:1: network.inject.hosts: rule "*": `,
		`{"network": {"inject": [{"env": "A", "hosts": ["a.example"], "file": ""}]}}`:                     `:1: network.inject.file: empty path`,
		`{"network": {"inject": [{"env": "A", "hosts": ["a.example"], "command": []}]}}`:                  `:1: network.inject.command: want a program and its arguments`,
		`{"network": {"inject": [{"env": "A", "hosts": ["a.example"], "command": "x"}]}}`:                 `:1: network.inject.command: a string: want a list`,
		`{"network": {"inject": [{"env": "A", "hosts": ["a.example"], "file": "/x", "command": ["y"]}]}}`: `:1: network.inject: A: want a file or a command, not both`,
		`{"network": {"inject": [{"evn": "A"}]}}`:                                                         `:1: network.inject.evn: unknown key`,
		`{"network": {"inject": [1]}}`:                                                                    `:1: network.inject: a number: want an object`,
		`{"environment": {"pass": ["A B"]}}`:                                                              `:1: environment.pass: "A B": want a variable's name, or a prefix and *`,
		`{"environment": {"pass": ["*_KEY"]}}`:                                                            `:1: environment.pass: "*_KEY": want a variable's name, or a prefix and *`,
		`{"environment": {"set": {"A": 1}}}`:                                                              `:1: environment.set.A: a number: want a string`,
		`{"environment": {"set": {"A=B": "x"}}}`:                                                          `:1: environment.set."A=B": "A=B": want the name of a variable`,
		`{"environment": {"set": {"A": "x\u0000"}}}`:                                                      `:1: environment.set.A: value with a NUL byte`,
		`{"resources": {"memory": 0}}`:                                                                    `:1: resources.memory: "0": want at least 1m`,
		`{"resources": {"memory": 1e30}}`:                                                                 `:1: resources.memory: "1e30": want a size such as 512m or 4g`,
		`{"resources": {"memory": true}}`:                                                                 `:1: resources.memory: true or false: want a number or a string such as "1m"`,
		`{"resources": {"cpus": -1}}`:                                                                     `:1: resources.cpus: "-1": want a number of processors such as 2 or 0.5`,
		`{"resources": {"timeout": 10}}`:                                                                  `:1: resources.timeout: "10": want a duration such as 30s, 10m or 1h`,
		`{"resources": {"pids": 1.5}}`:                                                                    `:1: resources.pids: "1.5": want a whole number`,
		`{"resources": {"ram": 1}}`:                                                                       `:1: resources.ram: unknown key`,
		"\xef\xbb\xbf{}":                                                                                  `:1: byte order mark: want plain UTF-8`,
	} {
		file := w.write("~/p.jsonc", text)
		_, err := w.with(func(r *Request) { r.Profile = file })
		require.Error(t, err, text)
		got := Mistakes(err)[0].Error()
		require.NotContains(t, got, "\n", "one line")
		if strings.HasPrefix(text, `{"extends": "..`) {
			want = strings.ReplaceAll(want, w.dir, filepath.Dir(w.home))
		}
		require.True(t, strings.HasPrefix(got, file+want), "%s\n got %s\nwant %s", text, got, file+want)
	}
	_, err := w.profile(`{"filesytem": {}}`)
	require.Equal(t, "did you mean filesystem?", Hint(err))
	_, err = w.profile(`{"extends": "strct"}`)
	require.Equal(t, "did you mean strict?", Hint(err))
	_, err = w.profile("{\"a\": 1,\n\"b\": 2, \"nested\": 3}")
	require.Len(t, Mistakes(err), 3, "all mistakes are named")
	require.Equal(t, 2, OriginOf(Mistakes(err)[1]).Line)
	_, err = w.profile(`{"filesystem": {` + strings.Repeat(`"x": "y",`, 1) + `}}`)
	require.Error(t, err)
	_, err = w.profile(`{"protect": {"deny": [` + strings.Repeat(`1,`, 1000) + `]}}`)
	require.Len(t, Mistakes(err), maxMistakes+1)
	_, err = w.profile(`{"protect": {"deny": [` + strings.Repeat(`"x",`, 10000) + `]}}`)
	require.ErrorContains(t, err, "protect.deny: 10000 entries: want at most 4096")
}

func TestProfileFiles(t *testing.T) {
	w := newWorld(t)
	get := func(name string) error {
		_, err := w.with(func(r *Request) { r.Profile = name })
		return err
	}
	require.EqualError(t, get("~/gone.jsonc"), "flag --profile: "+w.home+"/gone.jsonc: no such file or directory")
	require.EqualError(t, get("nonesuch"), `flag --profile: no profile "nonesuch"`)
	require.EqualError(t, get("bad name"), `flag --profile: "bad name": not the name of a profile`)
	require.EqualError(t, get("./"), "flag --profile: "+w.dir+": not a regular file")

	big := w.write("~/big.jsonc", "")
	require.NoError(t, os.Truncate(big, 10<<20))
	require.EqualError(t, get(big), "flag --profile: "+big+": larger than 1048576 bytes")

	fifo := w.home + "/fifo.jsonc"
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	require.EqualError(t, get(fifo), "flag --profile: "+fifo+": not a regular file", "and it does not block")
	if runtime.GOOS == "linux" {
		require.Error(t, get("/proc/self/mem"))
		require.Error(t, get("/dev/zero"))
	}

	w.write("x.jsonc", `{"network": {"allow": ["x.example"]}}`)
	p := w.policy(func(r *Request) { r.Profile = "x.jsonc" })
	require.Equal(t, "x.jsonc", p.Profile)
	require.Equal(t, "x.example", p.Network.Allow[0].Text)
	require.Equal(t, Origin{Source: w.dir + "/x.jsonc", Line: 1, Key: "network.allow"}, p.Network.Allow[0].Origin)
}

func TestExtends(t *testing.T) {
	w := newWorld(t)
	w.write("~/base.jsonc", `{
		"extends": "claude",
		"filesystem": {"~/a": "read", "~/b": "read", "**/.env*": null},
		"network": {"allow": ["base.example"], "local": ["5432"]},
		"environment": {"pass": ["BASE"], "set": {"X": "base", "Y": "base"}},
		"resources": {"cpus": 2, "timeout": "1h"}
	}`)
	p, err := w.profile(`{
		"extends": "./base.jsonc",
		"filesystem": {"~/a": "write", "~/b": null},
		"network": {"allow": ["top.example"], "local": null},
		"environment": {"set": {"X": "top", "Y": null}},
		"resources": {"cpus": null, "timeout": "2h", "pids": 100},
		"protect": {"review": [".envrc"]},
		"nested": true
	}`)
	require.NoError(t, err)
	require.Equal(t, Write, access(p, w.home+"/a"))
	require.Equal(t, Persist, access(p, w.home+"/b"))
	require.Equal(t, Write, access(p, w.dir+"/.env"), "null took the rule away")
	var hosts []string
	for _, r := range p.Network.Allow {
		hosts = append(hosts, r.Text)
	}
	require.Equal(t, []string{"base.example", "top.example"}, hosts[len(hosts)-2:])
	require.Contains(t, hosts, "api.anthropic.com")
	require.Empty(t, p.Network.Local)
	require.Equal(t, "top", p.Environment.Set["X"].Value)
	require.NotContains(t, p.Environment.Set, "Y")
	require.Equal(t, EnvPassed, p.DecideEnv("BASE").Action)
	require.Zero(t, p.Resources.CPUs.Value)
	require.Equal(t, 2*time.Hour, p.Resources.Deadline())
	require.Equal(t, int64(100), p.Resources.Pids.Value)
	r, ok := p.Protected(w.dir + "/.envrc")
	require.True(t, ok)
	require.True(t, r.Review)
	require.True(t, p.Nested)

	// A list set to null is empty, and what stands beside it in the file is not.
	w.write("~/base.jsonc", `{
		"network": {"deny": ["a.example"], "publish": ["80"], "sockets": ["/run/x"], "inject": [{"env": "A", "hosts": ["a.example"]}]}
	}`)
	p, err = w.profile(`{
		"extends": "./base.jsonc",
		"protect": {"deny": null, "review": null},
		"network": {"allow": null, "deny": null, "local": null, "publish": null, "sockets": null, "inject": null},
		"environment": {"pass": null, "set": {"B": "1"}}
	}`)
	require.NoError(t, err)
	require.Equal(t, Network{}, Network{Deny: p.Network.Deny, Publish: p.Network.Publish, Sockets: p.Network.Sockets, Inject: p.Network.Inject})
	require.Empty(t, p.Protect)
	require.Equal(t, []string{"B=1"}, p.Environ([]string{"PATH=/bin"}))

	// Without a word, default; with null, nothing.
	p, err = w.profile(`{}`)
	require.NoError(t, err)
	require.Equal(t, Read, access(p, "/etc"))
	_, err = w.profile(`{"extends": null}`)
	require.ErrorContains(t, err, "hides the workspace")
	p, err = w.profile(`{"extends": null, "filesystem": {".": "read"}}`)
	require.NoError(t, err)
	require.Equal(t, Hide, access(p, "/etc"))
	require.Empty(t, p.Environ([]string{"PATH=/bin"}))
	require.Empty(t, p.Protect)
}

// An entry with a - takes one out of what is inherited, spelled as it may be; one that takes
// nothing out, and null that removes nothing, are mistakes with their line.
func TestSubtraction(t *testing.T) {
	w := newWorld(t)
	w.write("~/base.jsonc", `{
		"network": {"allow": ["a.example", "b.example", "@npm"], "deny": ["c.example", "d.example"], "local": ["1", "2"], "publish": ["3", "4"], "sockets": ["~/s", "~/t"]},
		"environment": {"pass": ["FOO", "BAR"]}, "protect": {"deny": ["mine"], "review": ["notes"]}
	}`)
	less := `{"network": {"allow": ["-b.example", "e.example", "-@npm"], "deny": ["-c.example"], "local": ["-1"], "publish": ["-3"], "sockets": ["-~/s"]},
		"environment": {"pass": ["-FOO"]}, "protect": {"deny": ["-mine", "-.envrc"], "review": ["-notes"]}, "extends": "./base.jsonc"}`
	p, err := w.profile(less)
	require.NoError(t, err)
	require.Equal(t, []string{"a.example", "e.example"}, hostsOf(p))
	require.Equal(t, "d.example", p.Network.Deny[0].Text)
	require.Len(t, p.Network.Deny, 1)
	require.Equal(t, "2", p.Network.Local[0].Text)
	require.Equal(t, "4", p.Network.Publish[0].Text)
	require.Equal(t, []PathRule{{Path: w.home + "/t", Origin: p.Network.Sockets[0].Origin}}, p.Network.Sockets)
	require.Equal(t, EnvScrubbed, p.DecideEnv("FOO").Action)
	require.Equal(t, EnvPassed, p.DecideEnv("BAR").Action)
	for _, name := range []string{"mine", ".envrc", "notes"} {
		_, ok := p.Protected(w.dir + "/" + name)
		require.False(t, ok, name)
	}
	_, ok := w.policy(nil).Protected(w.dir + "/.envrc")
	require.True(t, ok, "the built-in list is as it was")

	for text, want := range map[string]string{
		`{"network": {"allow": ["-z.example"]}}`:                                         `:1: network.allow: -z.example: no such entry is inherited`,
		`{"extends": "./base.jsonc", "protect": {"review": ["-mine"]}}`:                  `:1: protect.review: -mine: no such entry`,
		`{"extends": "./base.jsonc", "network": {"allow": ["-a.example", "a.example"]}}`: `:1: network.allow: -a.example: the same list adds it`,
		`{"network": {"allow": ["!a.example"]}}`:                                         `:1: network.allow: "!a.example": nothing begins with !`,
		`{"protect": {"deny": ["-"]}}`:                                                   `:1: protect.deny: `,
		`{"filesystem": {"~/z": null}}`:                                                  `:1: filesystem."~/z": null has no effect`,
		`{"environment": {"set": {"ZZZ": null}}}`:                                        `:1: environment.set.ZZZ: null has no effect`,
	} {
		_, err := w.profile(text)
		require.ErrorContains(t, err, want, text)
	}

	// The workspace's own file takes out what that makes stricter; the rest is refused until
	// it is trusted.
	base := func(r *Request) { r.Profile = w.home + "/base.jsonc" }
	w.write(WorkspaceFile, `{"network": {"allow": ["-a.example"]}, "environment": {"pass": ["-FOO"]}}`)
	p = w.policy(base)
	require.Equal(t, []string{"b.example", "@npm"}, hostsOf(p))
	require.Equal(t, EnvScrubbed, p.DecideEnv("FOO").Action)
	for _, text := range []string{`{"network": {"deny": ["-c.example"]}}`, `{"protect": {"deny": ["-mine"]}}`, `{"protect": {"review": ["-notes"]}}`} {
		file := w.write(WorkspaceFile, text)
		_, err := w.with(base)
		require.ErrorContains(t, err, file+":1: ", text)
		require.ErrorContains(t, err, "would allow more, and the file is not trusted", text)
	}
}

func TestExtendsLoops(t *testing.T) {
	w := newWorld(t)
	a := w.write("~/a.jsonc", `{"extends": "./b.jsonc"}`)
	b := w.write("~/b.jsonc", `{"extends": "`+a+`"}`)
	_, err := w.with(func(r *Request) { r.Profile = a })
	require.EqualError(t, err, b+":1: extends: a loop: "+b+" extends "+a)
	self := w.write("~/self.jsonc", `{"extends": "./self.jsonc"}`)
	_, err = w.with(func(r *Request) { r.Profile = self })
	require.ErrorContains(t, err, "a loop")

	for i := range 20 {
		w.write("~/c"+itoa(i)+".jsonc", `{"extends": "./c`+itoa(i+1)+`.jsonc"}`)
	}
	_, err = w.with(func(r *Request) { r.Profile = "~/c0.jsonc" })
	require.ErrorContains(t, err, "more than 16 profiles extend each other")
}

func TestOwnProfiles(t *testing.T) {
	w := newWorld(t)
	w.write("~/.config/pccrun/profiles/claude.jsonc", `{"extends": "claude", "description": "mine", "network": {"allow": ["own.example"]}}`)
	w.write("~/.config/pccrun/profiles/work.jsonc", `{"extends": "claude"}`)
	w.write("~/.config/pccrun/profiles/broken.jsonc", `{`)
	w.write("~/.config/pccrun/profiles/not a name.jsonc", `{`)
	p := w.policy(func(r *Request) { r.Command = []string{"claude"} })
	require.Equal(t, "own.example", p.Network.Allow[len(p.Network.Allow)-1].Text)
	require.Equal(t, "api.anthropic.com", p.Network.Allow[0].Text, "and the built-in one below it")
	p = w.policy(func(r *Request) { r.Profile = "work" })
	require.Equal(t, "own.example", p.Network.Allow[len(p.Network.Allow)-1].Text)

	list, err := List(w.request())
	require.NoError(t, err)
	byName := map[string]Listed{}
	for _, l := range list {
		byName[l.Name] = l
	}
	require.Len(t, list, len(Builtin())+2)
	require.Equal(t, "mine", byName["claude"].Description)
	require.Equal(t, w.home+"/.config/pccrun/profiles/claude.jsonc", byName["claude"].Source)
	require.Equal(t, "built-in", byName["codex"].Source)
	require.Error(t, byName["broken"].Err)
	for _, name := range Builtin() {
		require.NotEmpty(t, byName[name].Description, name)
	}

	// A directory that others can write, or that lies in the workspace, is not used.
	require.NoError(t, os.Chmod(w.home+"/.config/pccrun", 0o777))
	p = w.policy(func(r *Request) { r.Command = []string{"claude"} })
	require.NotEqual(t, "own.example", p.Network.Allow[len(p.Network.Allow)-1].Text)
	require.Contains(t, p.Warnings[0], "your profiles are ignored")
	w.write("cfg/pccrun/profiles/claude.jsonc", `{"network": {"allow": ["evil.example"]}}`)
	p = w.policy(func(r *Request) {
		r.Command = []string{"claude"}
		r.Host.Environ = append(r.Host.Environ, "XDG_CONFIG_HOME="+w.dir+"/cfg")
	})
	require.NotContains(t, hostsOf(p), "evil.example")
	require.Len(t, p.Warnings, 1)
}

func hostsOf(p *Policy) []string {
	var hosts []string
	for _, r := range p.Network.Allow {
		hosts = append(hosts, r.Text)
	}
	return hosts
}

func TestFlags(t *testing.T) {
	w := newWorld(t)
	sub := w.dir + "/sub"
	require.NoError(t, os.Mkdir(sub, 0o755))
	p := w.policy(func(r *Request) {
		r.Host.Cwd = sub
		r.Host.Environ = append(r.Host.Environ, "KEY=k")
		r.Files = []FileFlag{{"~/.gitconfig", Read}, {"x", Hide}, {"./y/", Overlay}, {"**/.env*", Read}, {"/opt", Hide}, {"/opt/tool", Read}}
		r.Allow = []string{"github.com", "github.com", "10.0.0.0/8:5432"}
		r.Deny = []string{"gist.github.com"}
		r.Local = []string{"5432", "localhost:6379"}
		r.Publish = []string{"3000"}
		r.Sockets = []string{"/run/pg.sock"}
		r.Env = []string{"SECRET", "A=b=c", "EMPTY="}
		r.Inject = []string{"KEY=a.example", "KEY=b.example"}
		r.Protect = []string{"ci/*.yml"}
		r.Review = []string{".envrc"}
		r.Limits = [7]string{"1g", "0.5", "64", "256", "1m", "10m", "5m"}
		r.Nested, r.Strict = true, true
		r.Syscalls = "seccomp.json"
		r.AllowMissing = []string{"res.memory"}
		r.Without = []string{"seccomp"}
	})
	for path, want := range map[string]Access{
		w.home + "/.gitconfig": Read,
		sub + "/x":             Hide,
		sub + "/y/z":           Overlay,
		w.dir + "/a/.env":      Read,
		"/opt/other":           Hide,
		"/opt/tool/bin":        Read,
	} {
		require.Equal(t, want, access(p, path), path)
	}
	require.Equal(t, "flag --read", p.Decide(w.home+"/.gitconfig").Rule.Origin.String())
	require.Len(t, p.Network.Allow, 2, "lists unite")
	require.Equal(t, []string{"a.example", "b.example"}, p.Network.Inject[0].Hosts)
	require.Equal(t, EnvInjected, p.DecideEnv("KEY").Action)
	require.Equal(t, EnvPassed, p.DecideEnv("SECRET").Action)
	require.Equal(t, "b=c", p.DecideEnv("A").Value)
	require.Equal(t, EnvSetTo, p.DecideEnv("EMPTY").Action)
	require.Equal(t, Resources{
		Memory: flagLimit("memory", 1<<30), CPUs: flagLimit("cpus", 500), Pids: flagLimit("pids", 64), Files: flagLimit("files", 256),
		FileSize: flagLimit("filesize", 1<<20), Disk: flagLimit("disk", 10<<20), Timeout: flagLimit("timeout", int64(5*time.Minute)),
	}, p.Resources)
	require.Equal(t, sub+"/seccomp.json", p.Syscalls)
	require.Equal(t, []Guarantee{ResMemory}, p.AllowMissing)
	require.Equal(t, []Layer{LayerSeccomp}, p.Without)
	set, err := p.Network.Rules(nil)
	require.NoError(t, err)
	require.Equal(t, "allow", set.Decide("host.pccrun.internal", 5432).Action.String())
	require.Equal(t, "deny", set.Decide("gist.github.com", 443).Action.String())

	none := w.policy(func(r *Request) { r.Limits[0] = "none" })
	require.Zero(t, none.Resources.Memory.Value)

	p = w.policy(func(r *Request) { r.Env = []string{"NOSUCH", "NONE*"} })
	require.Equal(t, []string{"flag --env: NOSUCH is not set here"}, p.Warnings)
}

func flagLimit(name string, n int64) Limit {
	return Limit{Value: n, Origin: Origin{Source: "flag", Key: "--" + name}}
}

func TestFlagMistakes(t *testing.T) {
	w := newWorld(t)
	for want, change := range map[string]func(*Request){
		`flag --hide: hides the workspace ` + w.dir:                    func(r *Request) { r.Files = []FileFlag{{".", Hide}} },
		`flag --read: empty path`:                                      func(r *Request) { r.Files = []FileFlag{{"", Read}} },
		`flag --hide: "a\nb": control character in a path`:             func(r *Request) { r.Files = []FileFlag{{"a\nb", Hide}} },
		`flag --write: contradicts --read, which names the same path`:  func(r *Request) { r.Files = []FileFlag{{"a", Read}, {"./a", Write}} },
		`flag --hide: "[": [ without ]`:                                func(r *Request) { r.Files = []FileFlag{{"[", Hide}} },
		`flag --allow: rule "*":`:                                      func(r *Request) { r.Allow = []string{"*"} },
		`flag --allow: rule "":`:                                       func(r *Request) { r.Allow = []string{""} },
		`flag --deny: rule "allow a.example":`:                         func(r *Request) { r.Deny = []string{"allow a.example"} },
		`flag --deny: "a.example" is allowed too, by --allow`:          func(r *Request) { r.Allow, r.Deny = []string{"a.example"}, []string{"a.example"} },
		`flag --local: local "x":`:                                     func(r *Request) { r.Local = []string{"x"} },
		`flag --publish: publish "0": want a port`:                     func(r *Request) { r.Publish = []string{"0"} },
		`flag --publish: publish "1:2:3": want a port, or HOST:INSIDE`: func(r *Request) { r.Publish = []string{"1:2:3"} },
		`flag --publish: publish "80:": want a port, or HOST:INSIDE`:   func(r *Request) { r.Publish = []string{"80:"} },
		`flag --socket: empty path`:                                    func(r *Request) { r.Sockets = []string{""} },
		`flag --env: "A-B": want NAME or NAME=VALUE`:                   func(r *Request) { r.Env = []string{"A-B=1"} },
		`flag --env: "": want NAME or NAME=VALUE`:                      func(r *Request) { r.Env = []string{"=1"} },
		`flag --env: "A*": want NAME or NAME=VALUE`:                    func(r *Request) { r.Env = []string{"A*=1"} },
		`flag --env: A: given twice`:                                   func(r *Request) { r.Env = []string{"A=1", "A"} },
		`flag --inject: "KEY": want NAME=HOST`:                         func(r *Request) { r.Inject = []string{"KEY"} },
		`flag --inject: "K=*": want NAME=HOST`:                         func(r *Request) { r.Inject = []string{"K=*"} },
		`flag --inject-file: "KEY": want NAME and a value`:             func(r *Request) { r.InjectFiles = []string{"KEY"} },
		`flag --inject-file: KEY goes to no host`:                      func(r *Request) { r.InjectFiles = []string{"KEY=/x"} },
		`flag --inject-command: KEY: want a program, or [`:             func(r *Request) { r.InjectRun = []string{"KEY=[1]"} },
		`flag --inject-command: KEY has two sources`:                   func(r *Request) { r.InjectFiles, r.InjectRun = []string{"KEY=/x"}, []string{"KEY=y"} },
		`flag --protect: "": want a name, or a path in the workspace`:  func(r *Request) { r.Protect = []string{""} },
		`flag --review: "x" is denied too, by --protect`:               func(r *Request) { r.Protect, r.Review = []string{"x"}, []string{"x"} },
		`flag --memory: "0": want at least 1m`:                         func(r *Request) { r.Limits[0] = "0" },
		`flag --cpus: "1e30": want a number of processors`:             func(r *Request) { r.Limits[1] = "1e30" },
		`flag --syscalls: "a\x00": control character in a path`:        func(r *Request) { r.Syscalls = "a\x00" },
		`flag --allow-missing: unknown name "res.memry"`:               func(r *Request) { r.AllowMissing = []string{"res.memry"} },
		`flag --without: unknown name "everything"`:                    func(r *Request) { r.Without = []string{"everything"} },
		`flag --settings: ` + w.dir + `/gone: no such file`:            func(r *Request) { r.Settings = []string{"gone"} },
		`network: rule "GET https://a.example/x": has no effect`:       func(r *Request) { r.Allow = []string{"a.example", "GET https://a.example/x"} },
	} {
		_, err := w.with(change)
		require.ErrorContains(t, err, want)
	}
	_, err := w.with(func(r *Request) { r.AllowMissing = []string{"res.memry"} })
	require.Equal(t, "did you mean res.memory?", Hint(err))
	_, err = w.with(func(r *Request) { r.Limits[0], r.Limits[1] = "0", "0" })
	require.Len(t, Mistakes(err), 2)
}

// Characters that are special in patterns count only where they were written.
func TestPatternInHome(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	w := &world{t: t, home: root + "/home/[u]*", dir: root + "/home/[u]*/src/a?b"}
	require.NoError(t, os.MkdirAll(w.dir+"/.git", 0o755))
	p := w.policy(func(r *Request) { r.Files = []FileFlag{{"~/x*", Read}, {"../c*", Read}} })
	require.Equal(t, Private, access(p, w.home+"/y"))
	require.Equal(t, Read, access(p, w.home+"/xyz"))
	require.Equal(t, Write, access(p, w.dir+"/f"))
	require.Equal(t, Hide, access(p, w.dir+"/sub/.env"))
	require.Equal(t, Read, access(p, w.home+"/src/cd"))
	require.Equal(t, Hide, access(p, root+"/home/u/y"))
}

func TestWorkspaceFileOnlyTightens(t *testing.T) {
	w := newWorld(t)
	text := `{
		"extends": "claude",
		"filesystem": {"/": "write", "~/.ssh": "read", "./docs": "read", "**/*.pem": "hide", "**/*.w": "write", "./docs/x": "write", "~": null},
		"protect": {"deny": ["ci"], "review": [".envrc", "notes"]},
		"network": {"allow": ["evil.example", "a.example"], "deny": ["b.example"], "local": ["22"], "publish": ["80"], "sockets": ["/run/docker.sock"],
			"inject": [{"env": "KEY", "hosts": ["evil.example"]}]},
		"environment": {"pass": ["SECRET", "PATH"], "set": {"PATH": "/evil"}},
		"resources": {"memory": "1g", "pids": 100000, "timeout": "1h", "cpus": null},
		"syscalls": "~/loose.json",
		"place": {"image": "miner:1", "size": "64cpu,256g", "region": "eu", "keep": "24h"},
		"nested": true,
		"strict": true
	}`
	file := w.write(WorkspaceFile, text)
	allow := func(r *Request) { r.Allow = []string{"a.example"} }
	p := w.policy(allow)
	for path, want := range map[string]Access{
		"/etc":             Read,
		w.home + "/.ssh":   Private,
		w.dir + "/docs/y":  Read,
		w.dir + "/docs/x":  Write,
		w.dir + "/a/k.pem": Hide,
		w.dir + "/a/.env":  Hide,
		"/usr/x":           Read,
	} {
		require.Equal(t, want, access(p, path), path)
	}
	require.Equal(t, []string{"a.example"}, hostsOf(p))
	require.Equal(t, "b.example", p.Network.Deny[0].Text)
	require.Empty(t, p.Network.Local)
	require.Empty(t, p.Network.Publish)
	require.Empty(t, p.Network.Sockets)
	require.Empty(t, p.Network.Inject)
	require.Equal(t, EnvScrubbed, p.DecideEnv("SECRET").Action)
	require.Equal(t, EnvPassed, p.DecideEnv("PATH").Action)
	require.Equal(t, int64(1<<30), p.Resources.Memory.Value)
	require.Equal(t, int64(4096), p.Resources.Pids.Value)
	require.Equal(t, time.Hour, p.Resources.Deadline())
	require.Equal(t, "default", p.Syscalls)
	require.Zero(t, p.Place)
	require.False(t, p.Nested)
	require.True(t, p.Strict)
	r, _ := p.Protected(w.dir + "/.envrc")
	require.False(t, r.Review, "deny stays")
	_, ok := p.Protected(w.dir + "/ci/x")
	require.True(t, ok)
	require.Len(t, p.Warnings, 1)
	for _, key := range []string{"extends", `filesystem."/"`, `filesystem."~/.ssh"`, `filesystem."~"`, "protect.review", "network.allow", "network.local", "network.publish",
		"network.sockets", "network.inject", "environment.pass", "environment.set.PATH", "resources.pids", "resources.cpus", "syscalls", "place.image", "place.size", "place.region", "place.keep", "nested"} {
		require.Contains(t, p.Warnings[0], key)
	}
	require.NotContains(t, p.Warnings[0], "resources.memory")
	require.True(t, strings.HasPrefix(p.Warnings[0], file+" is not trusted"))

	// Trusted, the same content loosens; the root as a whole nobody can have.
	w.trust(text)
	_, err := w.with(nil)
	require.EqualError(t, err, file+`:3: filesystem."/": /: the root directory can only have the access read`)
	text = strings.Replace(text, `"/": "write"`, `"/opt": "write"`, 1)
	w.write(WorkspaceFile, text)
	w.trust(text)
	p = w.policy(nil)
	require.Equal(t, Write, access(p, "/opt"))
	require.Contains(t, hostsOf(p), "evil.example")
	require.Contains(t, hostsOf(p), "api.anthropic.com", "what it extends too")
	require.True(t, p.Nested)
	require.Equal(t, EnvInjected, p.DecideEnv("KEY").Action)
	require.Equal(t, w.home+"/loose.json", p.Syscalls)
	require.Equal(t, Size{64, 256 << 10}, p.Place.AskedSize())
	require.Equal(t, 24*time.Hour, p.Place.KeepFor())
	// But nothing outside is read or run for it.
	for _, source := range []string{`"file": "~/.token"`, `"command": ["./token.sh"]`} {
		named := `{"network": {"inject": [{"env": "KEY", "hosts": ["evil.example"], ` + source + `}]}}`
		w.write(WorkspaceFile, named)
		w.trust(named)
		_, err := w.with(nil)
		require.ErrorContains(t, err, "KEY: the ")
		require.ErrorContains(t, err, "a workspace profile cannot name files to read or programs to run on the host")
	}
	w.write(WorkspaceFile, text)
	w.trust(text)
	// What it extends does not undo a stricter choice.
	p = w.policy(func(r *Request) {
		r.Profile = "strict"
	})
	require.Equal(t, Hide, access(p, "/mnt"))
	r, _ = p.Protected(w.dir + "/.hg/hgrc")
	require.False(t, r.Review, "default only lists it")
	require.Zero(t, p.Resources.CPUs.Value, "its own null counts")
	require.Equal(t, int64(4<<30), p.Resources.Disk.Value)
	// Flags stand above it.
	p = w.policy(func(r *Request) {
		r.Files = []FileFlag{{".", Read}}
		r.Limits[0] = "2g"
	})
	require.Equal(t, Read, access(p, w.dir))
	require.Equal(t, int64(2<<30), p.Resources.Memory.Value)
}

func TestWorkspaceFileNull(t *testing.T) {
	w := newWorld(t)
	w.write(WorkspaceFile, `{"network": {"allow": null, "deny": null, "sockets": null}, "protect": {"deny": null, "review": null}, "environment": {"pass": null}, "nested": false, "strict": false}`)
	p := w.policy(func(r *Request) {
		r.Allow, r.Deny, r.Sockets, r.Nested, r.Strict = []string{"a.example"}, []string{"b.example"}, []string{"/run/x"}, true, true
	})
	require.Empty(t, p.Network.Allow)
	require.Len(t, p.Network.Deny, 1)
	require.Empty(t, p.Network.Sockets)
	require.NotEmpty(t, p.Protect)
	require.Empty(t, p.Environment.Pass)
	require.False(t, p.Nested)
	require.True(t, p.Strict)
}

func TestWorkspaceFileIsReadWithCare(t *testing.T) {
	w := newWorld(t)
	file := w.dir + "/" + WorkspaceFile
	require.NoError(t, os.Symlink("/etc/passwd", file))
	_, err := w.with(nil)
	require.EqualError(t, err, file+": a symbolic link, which is not followed")
	require.NoError(t, os.Remove(file))
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	_, err = w.with(nil)
	require.ErrorContains(t, err, "not a regular file")
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o755))
	_, err = w.with(nil)
	require.ErrorContains(t, err, "not a regular file")
	require.NoError(t, os.Remove(file))
	w.write(WorkspaceFile, `{"nestd": true}`)
	_, err = w.with(nil)
	require.EqualError(t, err, file+":1: nestd: unknown key")
}

// Whatever a workspace file says, the policy is at most as loose as without it.
func FuzzWorkspaceFile(f *testing.F) {
	for _, seed := range []string{
		`{"filesystem": {"/": "write", "~": "write", ".": "overlay", "/tmp": "write"}}`,
		`{"network": {"allow": ["x.example"], "deny": null}, "resources": {"memory": null, "pids": 9999}}`,
		`{"environment": {"pass": ["*"], "set": {"A": "b"}}, "nested": true, "extends": null}`,
		`{"protect": {"deny": null, "review": [".git/hooks"]}, "strict": false}`,
		`{"filesystem": {"**/*": "write", "/**": "write", "~/.ssh": null}}`,
	} {
		f.Add(seed)
	}
	w := newWorld(f)
	req := w.request()
	req.Allow, req.Local, req.Strict, req.Limits = []string{"ok.example"}, []string{"5432"}, true, [7]string{"1g", "2", "100", "100", "1g", "1g", "1h"}
	base, err := Resolve(req)
	require.NoError(f, err)
	paths := []string{"/", "/etc/passwd", "/home", "/tmp/x", "/run/x", w.home, w.home + "/.ssh/id", w.dir, w.dir + "/a", w.dir + "/a/.env", w.dir + "/.git/hooks/x"}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		require.NoError(t, os.WriteFile(w.dir+"/"+WorkspaceFile, []byte(text), 0o600))
		p, err := Resolve(req)
		if err != nil {
			for _, m := range Mistakes(err) {
				require.NotContains(t, m.Error(), "\n")
				require.NotContains(t, m.Error(), "BUG")
			}
			return
		}
		for _, path := range paths {
			require.LessOrEqual(t, access(p, path), access(base, path), path)
		}
		for _, r := range base.Protect {
			got, ok := p.Protected(w.dir + "/" + r.Pattern)
			require.True(t, ok || strings.HasPrefix(r.Pattern, "**"), r.Pattern)
			require.True(t, r.Review || !got.Review, r.Pattern)
		}
		require.Subset(t, hostsOf(base), hostsOf(p))
		require.Subset(t, base.Network.Local, p.Network.Local)
		require.GreaterOrEqual(t, len(p.Network.Deny), len(base.Network.Deny))
		require.Empty(t, p.Network.Publish)
		require.Empty(t, p.Network.Sockets)
		require.Empty(t, p.Network.Inject)
		require.Equal(t, base.Environment.Set, p.Environment.Set)
		require.Equal(t, EnvScrubbed, p.DecideEnv("SECRET").Action)
		for i := range numLimits {
			require.LessOrEqual(t, p.Resources.Limit(i).Value, base.Resources.Limit(i).Value)
			require.Positive(t, p.Resources.Limit(i).Value)
		}
		require.False(t, p.Nested)
		require.True(t, p.Strict)
		require.Equal(t, "default", p.Syscalls)
	})
}

func TestRequirements(t *testing.T) {
	w := newWorld(t)
	find := func(p *Policy, g Guarantee) *Requirement {
		for i := range p.Requirements {
			if p.Requirements[i].Guarantee == g {
				return &p.Requirements[i]
			}
		}
		return nil
	}
	p := w.policy(nil)
	require.True(t, find(p, FSHide).Required)
	require.True(t, find(p, NetAllowlist).Required)
	require.Nil(t, find(p, FSOverlay))
	require.Nil(t, find(p, NetInject))
	require.Nil(t, find(p, NetTransparent))
	require.Nil(t, find(p, ResTime))
	require.Nil(t, find(p, ResCPU))
	require.False(t, find(p, ResMemory).Required, "a limit that only the defaults set is wanted")
	require.Equal(t, "built-in default", find(p, ResMemory).Origin.Source)
	for _, r := range p.Requirements {
		require.False(t, r.Strong, r.Guarantee)
		require.NotZero(t, r.Origin, r.Guarantee)
	}

	p = w.policy(func(r *Request) {
		r.Limits[0], r.Limits[4], r.Limits[6] = "1g", "1g", "1m"
		r.Files = []FileFlag{{".", Overlay}}
		r.Allow = []string{"a.example"}
		r.Inject = []string{"SECRET=a.example"}
	})
	require.True(t, find(p, ResMemory).Required)
	require.Equal(t, "flag --memory", find(p, ResMemory).Origin.String())
	require.True(t, find(p, ResFiles).Required)
	require.True(t, find(p, ResTime).Required)
	require.True(t, find(p, FSOverlay).Required)
	require.True(t, find(p, NetInject).Required)
	require.True(t, find(p, NetTransparent).Required)
	require.Equal(t, "flag --allow", find(p, NetTransparent).Origin.String())
	require.False(t, find(p, ResPids).Required)

	p = w.policy(func(r *Request) { r.Profile = "strict" })
	for _, r := range p.Requirements {
		require.Equal(t, r.Required || r.Guarantee == InfoHost, r.Strong, r.Guarantee)
	}
	require.False(t, find(p, InfoHost).Required, "nothing keeps it strongly: it is named")
	require.True(t, find(p, ResMemory).Required)

	p = w.policy(func(r *Request) { r.Nested = true })
	require.False(t, find(p, SysNoNewUserns).Required)
	require.False(t, find(p, InfoKernel).Required)
	require.Equal(t, "flag --nested", find(p, SysNoNewUserns).Origin.String())
	require.True(t, find(p, SysFilter).Required)
}

func TestGuarantees(t *testing.T) {
	require.Len(t, Guarantees, 31)
	seen := map[Guarantee]bool{}
	for _, e := range Guarantees {
		require.False(t, seen[e.Guarantee], e.Guarantee)
		require.NotEmpty(t, e.Promise, e.Guarantee)
		seen[e.Guarantee] = true
	}
	require.Len(t, LayerNames(), 22)
}

func TestOffline(t *testing.T) {
	w := newWorld(t)
	p := w.policy(func(r *Request) { r.Profile, r.Allow = "offline", []string{"a.example"} })
	require.Empty(t, p.Network.Allow)
	require.Equal(t, []string{"built-in offline:6: network.deny denies every host: ignored a.example"}, p.Warnings)
}

func TestGroups(t *testing.T) {
	w := newWorld(t)
	p := w.policy(func(r *Request) { r.Allow = []string{"@npm", "@github"} })
	_, err := p.Network.Rules(nil)
	require.ErrorContains(t, err, "@npm")
	set, err := p.Network.Rules(func(group rules.Rule) ([]rules.Rule, error) {
		require.Equal(t, "npm", group.Group())
		r, err := group.For("registry.example", 443)
		return []rules.Rule{r}, err
	})
	require.NoError(t, err)
	require.Equal(t, "allow", set.Decide("registry.example", 443).Action.String())
	require.Equal(t, "allow", set.Decide("github.com", 443).Action.String())
	_, err = p.Network.Rules(func(rules.Rule) ([]rules.Rule, error) { return nil, os.ErrNotExist })
	require.EqualError(t, err, "flag --allow: file does not exist")
}

// A run that shows the home must not be able to loosen the next one.
func TestOwnFilesStayOut(t *testing.T) {
	w := newWorld(t)
	p := w.policy(func(r *Request) { r.Files = []FileFlag{{"~", Write}} })
	require.Equal(t, Write, access(p, w.home+"/.config/other"))
	for _, dir := range []string{".config/pccrun/profiles/x", ".local/state/pccrun", ".cache/pccrun"} {
		require.Equal(t, Hide, access(p, w.home+"/"+dir), dir)
		_, ok := p.Protected(w.home + "/" + dir)
		require.True(t, ok, dir)
	}
	require.Contains(t, p.Warnings[0], "is shown, with the secrets in it")
	require.Empty(t, w.policy(nil).Tighten)
}

// A directory of secrets that a rule of the user's shows is named as the home is, also
// where the rule is for what holds it; one that is not there, or not shown, is not.
func TestShownSecretsAreNamed(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.MkdirAll(w.home+"/.gnupg", 0o700))
	require.NoError(t, os.MkdirAll(w.home+"/.config/gh", 0o700))
	for flag, want := range map[string][]string{"~/.gnupg": {"/.gnupg"}, "~/.config": {"/.config/gh"}, "~/.aws": nil, "~/.gnupg/pubring.kbx": nil} {
		p := w.policy(func(r *Request) { r.Files = []FileFlag{{flag, Read}} })
		var got []string
		for _, line := range p.Warnings {
			if path, _, ok := strings.Cut(line, " is shown, with the secrets in it (flag --read)"); ok {
				got = append(got, strings.TrimPrefix(path, w.home))
			}
		}
		require.Equal(t, want, got, "%s: %q", flag, p.Warnings)
	}
	require.Empty(t, w.policy(func(r *Request) { r.Files = []FileFlag{{"~/.gnupg", Hide}} }).Warnings)
}

// Nor may it change the files that its policy was read from.
func TestPolicyFilesAreProtected(t *testing.T) {
	w := newWorld(t)
	w.write("ci/base.jsonc", `{"syscalls": "./calls.json"}`)
	w.write("ci/top[1].jsonc", `{"extends": "./base.jsonc"}`)
	w.write("~/dot/settings.json", `{"network": {}, "filesystem": {}}`)
	require.NoError(t, os.Symlink(w.home+"/dot/settings.json", w.home+"/settings.json"))
	p := w.policy(func(r *Request) {
		r.Profile, r.Settings = "./ci/top[1].jsonc", []string{"~/settings.json"}
		r.Files = []FileFlag{{"~/dot", Write}}
	})
	for _, path := range []string{w.dir + "/ci/base.jsonc", w.dir + "/ci/top[1].jsonc", w.dir + "/ci/calls.json", w.home + "/dot/settings.json"} {
		r, ok := p.Protected(path)
		require.True(t, ok, path)
		require.Equal(t, "the policy is read from it", r.Origin.Key)
	}
	_, ok := p.Protected(w.dir + "/ci/other.jsonc")
	require.False(t, ok)
}

// Nor those that another run's is read from, by links of the user's into what it may
// write, or that would be if it made them.
func TestOtherProfilesAreProtected(t *testing.T) {
	for name, c := range map[string]struct{ link, to, stands, path string }{
		"a profile":               {".config/pccrun/profiles/claude.jsonc", "dot/claude.jsonc", "dot/claude.jsonc", "dot/claude.jsonc"},
		"a profile, not there":    {".config/pccrun/profiles/claude.jsonc", "dot/claude.jsonc", "dot/x", "dot/claude.jsonc"},
		"the profiles":            {".config/pccrun/profiles", "dot/profiles", "dot/profiles/x", "dot/profiles/claude.jsonc"},
		"the profiles, not there": {".config/pccrun/profiles", "dot/profiles", "dot/x", "dot/profiles/claude.jsonc"},
		"pccrun's directory":      {".config/pccrun", "dot/pccrun", "dot/pccrun/x", "dot/pccrun/profiles/claude.jsonc"},
		"the configuration":       {".config", "dot/config", "dot/config/x", "dot/config/pccrun/profiles/claude.jsonc"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write(c.stands, "{}")
			p := w.policy(nil)
			_, ok := p.Protected(w.dir + "/" + c.path)
			require.False(t, ok, "control: without the link it is a file like any other")
			require.NoError(t, os.RemoveAll(w.home+"/"+c.link))
			require.NoError(t, os.MkdirAll(filepath.Dir(w.home+"/"+c.link), 0o700))
			require.NoError(t, os.Symlink(w.dir+"/"+c.to, w.home+"/"+c.link))
			r, ok := w.policy(nil).Protected(w.dir + "/" + c.path)
			require.True(t, ok)
			require.Equal(t, "the policy is read from it", r.Origin.Key)
			_, ok = w.policy(nil).Protected(w.dir + "/other")
			require.False(t, ok)
		})
	}

	// What is altogether theirs is no workspace.
	w := newWorld(t)
	require.NoError(t, os.MkdirAll(w.home+"/.config/pccrun", 0o700))
	require.NoError(t, os.Symlink(w.dir, w.home+"/.config/pccrun/profiles"))
	_, err := w.with(func(*Request) {})
	require.ErrorContains(t, err, "where your profiles are")
}

func TestSchema(t *testing.T) {
	var s struct {
		Properties map[string]struct {
			Properties map[string]struct {
				Items struct{ Properties map[string]any }
			}
			AdditionalProperties any
		}
		AdditionalProperties bool
	}
	require.NoError(t, json.Unmarshal([]byte(Schema()), &s))
	keys := func(m any) []string {
		var names []string
		switch m := m.(type) {
		case map[string]any:
			for k := range m {
				names = append(names, k)
			}
		}
		slices.Sort(names)
		return names
	}
	var raw map[string]any
	require.NoError(t, json.Unmarshal([]byte(Schema()), &raw))
	at := func(path ...string) any {
		var v any = raw
		for _, p := range path {
			v = v.(map[string]any)[p]
		}
		return v
	}
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	require.Equal(t, sorted(keysIn("")), keys(at("properties")))
	require.Equal(t, sorted(keysIn("protect")), keys(at("properties", "protect", "properties")))
	require.Equal(t, sorted(keysIn("network")), keys(at("properties", "network", "properties")))
	require.Equal(t, sorted(injectKeys), keys(at("properties", "network", "properties", "inject", "items", "properties")))
	require.Equal(t, sorted(keysIn("environment")), keys(at("properties", "environment", "properties")))
	require.Equal(t, sorted(keysIn("resources")), keys(at("properties", "resources", "properties")))
	var words []string
	for _, word := range at("properties", "filesystem", "additionalProperties", "enum").([]any) {
		if word != nil {
			_, err := ParseAccess(word.(string))
			require.NoError(t, err)
			words = append(words, word.(string))
		}
	}
	require.Len(t, words, len(accessNames))
	for _, object := range [][]string{{}, {"properties", "protect"}, {"properties", "network"}, {"properties", "environment"}, {"properties", "resources"}} {
		require.Equal(t, false, at(append(object, "additionalProperties")...), object)
	}

	// And the parser knows each of the schema's keys: one of a wrong type is a
	// mistake about the type.
	w := newWorld(t)
	for _, key := range keys(at("properties")) {
		_, err := w.profile(`{"` + key + `": 1}`)
		require.ErrorContains(t, err, "want", key)
	}
}

// Each key has the type in the schema that its kind reads.
func TestSchemaTypes(t *testing.T) {
	var schema map[string]any
	require.NoError(t, json.Unmarshal([]byte(Schema()), &schema))
	at := func(path ...string) map[string]any {
		v := schema
		for _, name := range path {
			v, _ = v[name].(map[string]any)
		}
		if ref, is := v["$ref"].(string); is {
			v, _ = schema["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		}
		return v
	}
	for k := keyNone + 1; k < numKeys; k++ {
		row := &keys[k]
		got := at("properties", row.name)
		if row.in != "" {
			got = at("properties", row.in, "properties", row.name)
		}
		var want any = "string"
		switch row.kind {
		case holdsKeys, holdsFiles, holdsSeeds, holdsVariables:
			want = "object"
		case holdsBase:
			want = []any{"string", "null"}
		case holdsTexts, holdsProtected, holdsInjected:
			want = []any{"array", "null"}
		case holdsLimit:
			want = []any{"string", "number", "null"}
		case holdsToggle:
			if want = "boolean"; row.on != "true" {
				require.Equal(t, []any{row.on, row.off}, got["enum"], row.name)
				continue
			}
		}
		if row.name != "" {
			require.Equal(t, want, got["type"], "%s.%s", row.in, row.name)
		}
	}
}

// Every example of the manual is a profile that loads.
func TestManualExamples(t *testing.T) {
	text, err := os.ReadFile("../docs/policy.md")
	require.NoError(t, err)
	w := newWorld(t)
	blocks := strings.Split(string(text), "```jsonc\n")[1:]
	require.Greater(t, len(blocks), 2)
	for _, block := range blocks {
		block, _, ok := strings.Cut(block, "```")
		require.True(t, ok)
		if strings.HasPrefix(block, `"`) {
			block = "{" + block + "}"
		}
		p, err := w.profile(block)
		require.NoError(t, err, block)
		require.Empty(t, p.Warnings, block)
	}
}

// Each key that says something of a run has a flag, but for what only files have, and no flag is
// without its help.
func TestEachKeyHasAFlag(t *testing.T) {
	flags := map[keyID]bool{keySet: true} // --env NAME=VALUE
	for i := range Flags {
		require.NotEmpty(t, Flags[i].Help, Flags[i].Name)
		flags[Flags[i].key] = true
	}
	for k := keyFilesystem; k < numKeys; k++ {
		switch k {
		case keyProtectHome, keySeeds, keyScrub:
			require.False(t, flags[k], keys[k].name)
		default:
			require.Equal(t, keys[k].kind != holdsKeys, flags[k], keys[k].name)
		}
	}
}

func TestAccessWords(t *testing.T) {
	for a := Hide; a <= Write; a++ {
		got, err := ParseAccess(a.String())
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
	require.Contains(t, Access(9).String(), "BUG")
	require.Equal(t, "kept weak missing", strings.Join([]string{Kept.String(), Weak.String(), Missing.String()}, " "))
	require.Contains(t, State(9).String(), "BUG")
}

// A home that is not there, or another's, is nobody's: the home of the user
// database is, for runs and for what looks for their sessions.
func TestHomeDir(t *testing.T) {
	w := newWorld(t)
	h := w.request().Host
	h.Home = w.home
	for value, warned := range map[string]bool{w.home: false, "": false, w.dir: false, w.home + "/gone": true, "/": true, "relative": true, w.write("file", ""): true} {
		h.Environ = []string{"HOME=" + value}
		home, warning, err := h.HomeDir()
		require.NoError(t, err, value)
		require.Equal(t, warned, warning != "", value)
		want := w.home
		if value == w.dir {
			want = w.dir
		}
		require.Equal(t, want, home, value)
	}
	h.Home = ""
	h.Environ = []string{"HOME=/gone"}
	_, _, err := h.HomeDir()
	require.ErrorContains(t, err, "HOME: \"/gone\": not a directory of your own")
	require.NotEmpty(t, Hint(err))
}

func TestThisHost(t *testing.T) {
	h := ThisHost()
	require.Equal(t, os.Getuid(), h.UID)
	require.True(t, filepath.IsAbs(h.Cwd))
	require.Greater(t, h.Memory, int64(64<<20))
	require.Equal(t, os.Getenv("PATH"), h.Getenv("PATH"))

	users := []byte("root:x:0:0::/root:/bin/sh\nbroken\nu:x:1000:1000:,:/home/u:/bin/sh\nv:x:1000:1:::\n")
	home, gid := accountOf(users, 1000)
	require.Equal(t, []any{"/home/u", 1000}, []any{home, gid})
	home, _ = accountOf(users, 100)
	require.Empty(t, home)

	require.Equal(t, []string{"/root", "/home/u", ""}, homesIn(users))

	// A user of LDAP, by what getent prints; a number that nobody has.
	getent := filepath.Join(t.TempDir(), "getent")
	require.NoError(t, os.WriteFile(getent, []byte("#!/bin/sh\n[ \"$*\" = 'passwd 70001' ] && echo 'l:*:70001:70002:L:/home/l:/bin/sh'\n"), 0o700))
	home, gid = accountBy(getent, 70001)
	require.Equal(t, []any{"/home/l", 70002}, []any{home, gid})
	home, _ = accountBy(getent, 70003)
	require.Empty(t, home)
	home, _ = Account(70003)
	require.Empty(t, home)
}

// An address that signs in is passed by no list for every command, and strict has few variables.
func TestPassedByDefault(t *testing.T) {
	const signs, plain = "GOFLAGS=-x=https://u:p@a.example/b", "MAKEFLAGS=see https://a.example/@x"
	w := newWorld(t)
	for profile, want := range map[string][]string{"default": {plain}, "offline": {plain}, "protect-more": {plain}, "strict": {}} {
		p := w.policy(func(r *Request) { r.Profile = profile })
		require.Equal(t, want, p.Environ([]string{signs, plain}), profile)
	}

}

func BenchmarkResolve(b *testing.B) {
	w := newWorld(b)
	for _, name := range []string{"default", "claude"} {
		b.Run(name, func(b *testing.B) {
			req := w.request()
			req.Profile = name
			for b.Loop() {
				if _, err := Resolve(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("host", func(b *testing.B) {
		for b.Loop() {
			ThisHost()
		}
	})
}

func BenchmarkResolve500(b *testing.B) {
	w := newWorld(b)
	req := w.request()
	for i := range 500 {
		req.Files = append(req.Files, FileFlag{"./dir" + itoa(i), Read})
	}
	for b.Loop() {
		if _, err := Resolve(req); err != nil {
			b.Fatal(err)
		}
	}
}

// Names of a home are listed where they are new, and denied where the workspace may be a home's, in a
// directory beside it, under --protect-strict, and where a file that is not trusted says so; none such
// file has a denied name listed.
func TestNamesOfAHome(t *testing.T) {
	w := newWorld(t)
	w.write("zsh/.zshrc", "")
	lists := func(p *Policy, path string) bool {
		r, ok := p.Protected(path)
		require.True(t, ok, path)
		return p.Lists(path, r)
	}
	p := w.policy(func(r *Request) { r.Files = []FileFlag{{"../beside", Write}} })
	require.True(t, lists(p, w.dir+"/t/.gitconfig"))
	require.True(t, lists(p, w.dir+"/.bashrc"))
	require.False(t, lists(p, w.dir+"/zsh/.zshrc"), "stands")
	require.False(t, lists(p, w.dir+"/zsh/.zprofile"), "beside one that stands")
	require.False(t, lists(p, w.dir+"/.envrc"))
	r, ok := p.ProtectedAnywhere(w.home + "/src/beside/.bashrc")
	require.True(t, ok)
	require.False(t, r.Home)

	dot := w.home + "/.dotfiles"
	require.NoError(t, os.Mkdir(dot, 0o755))
	for name, change := range map[string]func(*Request){
		"--protect":          func(r *Request) { r.Protect = []string{".bashrc"} },
		"--protect-strict":   func(r *Request) { r.ProtectStrict = true },
		"somebody's home":    func(r *Request) { r.Host.Homes = []string{w.dir + "/homes/v"} },
		"is somebody's home": func(r *Request) { r.Host.Homes = []string{w.dir} },
		"a Mac":              func(r *Request) { r.Host, r.Workspace = Host{Home: "/Users/me", Elsewhere: true}, "/Users/me/src" },
		"a dot directory":    func(r *Request) { r.Workspace = dot },
	} {
		p := w.policy(change)
		require.False(t, lists(p, p.Workspace+"/.bashrc"), name)
	}
	require.True(t, lists(w.policy(func(r *Request) { r.Host.Homes = []string{"/", "/srv/v", w.dir + "2"} }), w.dir+"/.bashrc"), "control")

	w.write(".pccrun.jsonc", `{"protect": {"home": [".envrc"], "deny": [".zshrc"]}}`)
	p = w.policy(nil)
	require.False(t, lists(p, w.dir+"/.envrc"))
	require.False(t, lists(p, w.dir+"/.zshrc"))
	require.Contains(t, p.Warnings[0], "cannot allow more: ignored line 1: protect.home")
	require.True(t, lists(w.policy(func(r *Request) { r.Profile = w.write("~/p.jsonc", `{"protect": {"home": ["x"]}}`) }), w.dir+"/x"))
}
