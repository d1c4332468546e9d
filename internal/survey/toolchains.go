package survey

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A ToolQuery says where programs are looked for.
type ToolQuery struct {
	Path      string              // the caller's PATH
	Home      string              // absolute, clean
	Workspace string              // absolute, clean, without symbolic links
	Command   []string            // the files that the command's name stands for, looked at as those of PATH are
	Programs  []string            // files that the user's own settings have programs start
	Env       func(string) string // the caller's other variables: GOPATH, CARGO_HOME, PYENV_ROOT, …; nil for none

	// Changeable says whether the command may change what lies in a
	// directory; nil if it may nowhere.
	Changeable func(dir string) bool
}

// A Tool is a file or directory that programs of PATH need, to be shown
// read-only with all links on the way to it.
type Tool struct {
	Path string // absolute, clean, and exists; as the user, or a link, spells it
	Why  string
}

// A Cache is a directory that a tool fills, and that offline work needs: the command gets a layer over it, which leaves
// nothing for the host to trip over.
type Cache struct {
	Path  string // absolute, clean, and exists
	Entry string // NAME=VALUE, where the tool would look elsewhere without it
	Why   string
}

// Tools is what the programs of PATH need.
type Tools struct {
	Show   []Tool // sorted; none lies below another
	Caches []Cache
}

// Toolchains finds what programs need that live where a policy usually shows
// nothing: below the home, or in a place of their own. It follows entries of
// PATH, the links in them, and the interpreters of scripts, to the prefix that
// each belongs to; and so of JAVA_HOME and the command itself.
//
// Entries that are relative, lie in the workspace, hold no program, or are the
// home itself or a directory above it do not count: what stands there was not
// put there to be run by everybody, or is the payload's to change. So is a link
// in what the command may change, wherever on the way it stands. An entry in
// the open part of the home may belong to a project, and an earlier command may
// have written in it: what its links and scripts lead to counts only where a
// version manager or installer has it. A place known to hold secrets is never
// shown, nor is a directory that contains one: of such a prefix only the parts
// that hold programs are.
//
// It asks the file system and runs nothing. What it cannot read does not count.
func Toolchains(q ToolQuery) Tools {
	if q.Env == nil {
		q.Env = func(string) string { return "" }
	}
	if q.Changeable == nil {
		q.Changeable = func(string) bool { return false }
	}
	f := toolFinder{q: q, show: map[string]string{}, seen: map[string]bool{}, prefixed: map[string]bool{}}
	for _, s := range profiles.SecretPlaces {
		f.secrets = append(f.secrets, q.Home+"/"+s.Name)
	}
	for _, r := range roots {
		f.roots = append(f.roots, f.place(r.env, r.path))
	}
	for _, dir := range filepath.SplitList(q.Path) {
		f.entry(profiles.Physical(dir), "PATH")
	}
	for _, r := range roots { // what a variable names must look like it
		if dir := f.place(r.env, ""); r.mark != "" && dir != "" && stands(dir, r.mark) && !system(dir) {
			if _, ok := f.follow(dir); ok {
				f.add(dir, r.env)
			}
		}
	}
	for _, path := range q.Command {
		f.command(path)
	}
	for _, name := range [...]string{"SHELL", "EDITOR", "VISUAL", "PAGER", "CC", "CXX", "LD", "AR"} {
		for word, program := range vcs.Mentioned(q.Env(name)) {
			if program {
				f.named(word, name)
			}
		}
	}
	for _, path := range q.Programs {
		f.named(path, "what your git configuration starts")
	}
	f.add(filepath.Join(q.Home, ".local/share/uv/python"), "uv's interpreters") // virtual environments anywhere lead here
	if len(f.show) > 0 {
		// Shims of asdf and mise read these.
		f.add(filepath.Join(q.Home, ".tool-versions"), "asdf")
		f.add(filepath.Join(q.Home, ".asdfrc"), "asdf")
		f.force(filepath.Join(q.Home, ".local/state/mise/trusted-configs"), "which configurations mise trusts")
		if mise := filepath.Join(q.Home, ".config/mise/config.toml"); versionsOnly(mise) {
			f.force(mise, "mise")
		}
	}
	t := Tools{Caches: append(f.caches(), f.layers...)}
	for path, why := range f.show {
		if !f.covered(path) && !slices.ContainsFunc(t.Caches, func(c Cache) bool { return Below(path, c.Path) }) {
			t.Show = append(t.Show, Tool{path, why})
		}
	}
	slices.SortFunc(t.Show, func(a, b Tool) int { return strings.Compare(a.Path, b.Path) })
	return t
}

type toolFinder struct {
	q       ToolQuery
	roots   []string
	secrets []string
	show    map[string]string // why, by path
	seen    map[string]bool   // entries that have been dealt with
	open    bool              // the entry lies in the open part of the home

	prefixed map[string]bool // directories of which the prefix has been dealt with
	layers   []Cache         // installations in which their own programs write
}

// maxPrograms bounds what is looked at in one entry of PATH.
const maxPrograms = 2000

// entry is for a directory of programs that a variable of the caller's names.
func (f *toolFinder) entry(dir, variable string) {
	if !filepath.IsAbs(dir) || f.seen[dir] {
		return
	}
	f.seen[dir] = true
	if distribution(dir) {
		return // what they lead to is there too
	}
	real, ok := f.follow(dir)
	if !ok || f.ignored(dir) || f.ignored(real) {
		return
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return
	}
	if !system(real) {
		if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return runs(real, e) }) {
			return
		}
		f.add(dir, variable)
		f.prefix(real, dir+" in "+variable)
	} else if !system(dir) { // ~/.nix-profile, ~/.guix-profile: the links are what lacks
		f.add(dir, variable)
	}
	f.open = f.inOpen(real)
	shims, led := filepath.Base(real) == "shims", map[string]bool{}
	for _, e := range entries[:min(len(entries), maxPrograms)] {
		path := filepath.Join(real, e.Name())
		switch {
		case shims: // all alike: scripts need the prefix, which is shown now, links one program
			if text, err := os.Readlink(path); err == nil && !led[text] {
				led[text] = true
				f.program(path, 0)
			}
		case e.Type()&os.ModeSymlink != 0:
			f.program(path, 0)
		case e.Type().IsRegular() && !system(real):
			f.interpreter(path, 0)
		}
	}
}

// command is for a file that the command's name stands for: what it needs beside
// itself, in a PATH or not. What it is itself the survey shows.
func (f *toolFinder) command(path string) {
	dir, ok := f.follow(filepath.Dir(path))
	if !ok || system(dir) && system(path) || f.ignored(dir) {
		return
	}
	f.open = f.inOpen(dir)
	f.prefix(dir, "the command")
	real := filepath.Join(dir, filepath.Base(path))
	if _, err := os.Readlink(real); err == nil {
		f.program(real, 0)
	} else {
		f.interpreter(real, 0)
	}
}

// named is for a program that a setting of the user's names by its path: the file, and what it needs.
func (f *toolFinder) named(path, why string) {
	if path = profiles.Physical(path); !filepath.IsAbs(path) || system(path) && distribution(filepath.Dir(path)) {
		return
	}
	real, ok := f.follow(path)
	if !ok || f.ignored(filepath.Dir(path)) || !system(real) && !f.showable(real) {
		return
	}
	if info, err := os.Stat(real); err != nil || !info.Mode().IsRegular() {
		return
	}
	if !system(path) {
		f.add(path, why)
	}
	f.command(path)
}

// distribution reports whether a directory of programs is the distribution's own.
func distribution(dir string) bool {
	switch dir {
	case "/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/games", "/usr/local/games":
		return true
	}
	return false
}

// runs reports whether a directory entry can be a program.
func runs(dir string, e os.DirEntry) bool {
	if e.Type()&os.ModeSymlink != 0 {
		return true
	}
	info, err := e.Info()
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// inOpen reports whether a directory lies where people keep what they work on.
func (f *toolFinder) inOpen(dir string) bool {
	rest, in := strings.CutPrefix(dir, f.q.Home+"/")
	return in && rest[0] != '.' && rest != "bin" && !Below(dir, f.place("GOPATH", "go")) && !f.rooted(dir)
}

// rooted reports whether a version manager or installer has a place.
func (f *toolFinder) rooted(path string) bool {
	return slices.ContainsFunc(f.roots, func(root string) bool { return root != "" && Below(path, root) })
}

func (f *toolFinder) follow(path string) (string, bool) {
	return Follow(path, func(dir string) bool { return Below(dir, f.q.Workspace) || f.q.Changeable(dir) })
}

// Follow returns where an absolute path leads, if something stands there and
// none of the links on the way lies in a directory that may be changed: whoever
// can write there says where the path leads.
func Follow(path string, changeable func(dir string) bool) (string, bool) {
	at := "/"
	for links := 0; path != ""; {
		var name string
		name, path, _ = strings.Cut(path, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		text, err := os.Readlink(next)
		switch {
		case errors.Is(err, syscall.EINVAL):
			at = next // no link
			continue
		case err != nil:
			return "", false
		}
		if links++; links > 40 || changeable(at) {
			return "", false
		}
		if filepath.IsAbs(text) {
			at = "/"
		}
		path = text + "/" + path
	}
	return at, true
}

// ignored reports whether nothing in a directory is run on purpose.
func (f *toolFinder) ignored(dir string) bool {
	return Below(dir, f.q.Workspace) || Below(f.q.Home, dir)
}

// system reports whether a place is shown by every policy that runs anything.
func system(path string) bool {
	for _, dir := range [...]string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/snap", "/etc", "/gnu"} {
		if Below(path, dir) {
			return true
		}
	}
	return false
}

// maxHops bounds a chain of scripts whose interpreters are scripts.
const maxHops = 4

// program shows what a link in PATH, or the interpreter of a script, leads to,
// and reports whether that is a program.
func (f *toolFinder) program(path string, hops int) bool {
	text, err := os.Readlink(path)
	if err == nil && strings.IndexByte(text, '/') < 0 && hops == 0 {
		return true // beside it, and looked at for itself
	}
	real, ok := f.follow(path)
	if !ok || hops > maxHops || Below(real, f.q.Workspace) || f.open && !system(real) && !f.rooted(real) {
		return false
	}
	info, err := os.Stat(real)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return false
	}
	why := "where " + path + " leads"
	// The next hop as the link spells it, since another link may stand there.
	if text != "" {
		if !filepath.IsAbs(text) {
			text = filepath.Join(filepath.Dir(path), text)
		}
		if text = filepath.Clean(text); !system(text) {
			f.add(text, why)
		}
	}
	if system(real) {
		return true
	}
	if !f.ignored(filepath.Dir(real)) {
		f.prefix(filepath.Dir(real), why)
	}
	f.add(real, why)
	f.interpreter(real, hops)
	return true
}

// interpreter shows what runs a script.
func (f *toolFinder) interpreter(path string, hops int) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	line := make([]byte, 256)
	n, _ := file.Read(line)
	interpreter := shebang(line[:n])
	if interpreter == "" || system(interpreter) || Below(interpreter, f.q.Workspace) || f.ignored(filepath.Dir(interpreter)) {
		return
	}
	if f.program(interpreter, hops+1) {
		f.add(interpreter, "runs "+path)
		f.prefix(filepath.Dir(interpreter), "runs "+path)
	}
}

// shebang returns the interpreter that a script begins with, "" if it has none
// or does not say where it is.
func shebang(head []byte) string {
	text, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return ""
	}
	text, _, _ = bytes.Cut(text, []byte("\n"))
	fields := strings.Fields(string(text))
	if len(fields) == 0 || !filepath.IsAbs(fields[0]) {
		return ""
	}
	return filepath.Clean(fields[0])
}

// A root is a directory that a version manager or installer has to itself.
type root struct {
	env  string // the variable that moves it, "" for none
	path string // its place below the home else, "" for none
	mark string // what stands in it: programs that PATH has need it where the variable names it; "" where only what lies in it does
}

var roots = [...]root{
	{env: "PYENV_ROOT", path: ".pyenv"}, {env: "RBENV_ROOT", path: ".rbenv"}, {env: "NODENV_ROOT", path: ".nodenv"}, {env: "GOENV_ROOT", path: ".goenv"},
	{env: "JENV_ROOT", path: ".jenv"}, {env: "PHPENV_ROOT", path: ".phpenv"}, {env: "PLENV_ROOT", path: ".plenv"}, {env: "TFENV_ROOT", path: ".tfenv"},
	{env: "ASDF_DATA_DIR", path: ".asdf"}, {env: "ASDF_DIR", path: ".asdf"}, {env: "MISE_DATA_DIR", path: ".local/share/mise"}, {env: "PROTO_HOME", path: ".proto"},
	{env: "VFOX_HOME", path: ".version-fox"}, {env: "AQUA_ROOT_DIR", path: ".local/share/aquaproj-aqua"}, {env: "PIXI_HOME", path: ".pixi"},
	{env: "SDKMAN_CANDIDATES_DIR", path: ".sdkman/candidates"}, {env: "SDKMAN_DIR", path: ".sdkman", mark: "bin/sdkman-init.sh"},
	{env: "RUSTUP_HOME", path: ".rustup"}, {env: "GOROOT", mark: "pkg/tool"}, {env: "GVM_ROOT", path: ".gvm", mark: "scripts/gvm"}, {env: "SWIFTLY_HOME_DIR", path: ".local/share/swiftly"},
	{env: "NVM_DIR", path: ".nvm", mark: "nvm.sh"}, {env: "rvm_path", path: ".rvm", mark: "scripts/rvm"}, {env: "FNM_DIR", path: ".local/share/fnm"}, {env: "N_PREFIX"}, {env: "VOLTA_HOME", path: ".volta"},
	{env: "BUN_INSTALL", path: ".bun"}, {env: "PNPM_HOME", path: ".local/share/pnpm"}, {env: "DENO_INSTALL", path: ".deno"},
	{env: "HOMEBREW_PREFIX", path: "/home/linuxbrew/.linuxbrew"}, {path: "/home/linuxbrew/.linuxbrew"}, {path: ".linuxbrew"},
	{env: "PIPX_HOME", path: ".local/share/pipx"}, {path: ".local/pipx"}, {env: "UV_TOOL_DIR", path: ".local/share/uv"}, {env: "UV_PYTHON_INSTALL_DIR", path: ".local/share/uv/python"},
	{env: "POETRY_HOME", path: ".local/share/pypoetry"}, {env: "CONDA_PREFIX", mark: "conda-meta"}, {env: "MAMBA_ROOT_PREFIX", path: "micromamba"},
	{path: "miniconda3"}, {path: "anaconda3"}, {path: "miniforge3"}, {path: "mambaforge"},
	{env: "DOTNET_ROOT", path: ".dotnet", mark: "host/fxr"}, {path: ".dotnet/tools"}, {env: "ANDROID_HOME", path: "Android/Sdk", mark: "platform-tools"},
	{env: "ANDROID_SDK_ROOT", path: "Android/Sdk", mark: "platform-tools"}, {env: "ANDROID_NDK_HOME", mark: "source.properties"}, {env: "ANDROID_NDK_ROOT", mark: "source.properties"},
	{env: "FLUTTER_ROOT", path: "flutter"}, {env: "JAVA_HOME", mark: "bin/java"}, {env: "GRAALVM_HOME", mark: "bin/java"}, {env: "M2_HOME", mark: "boot"}, {env: "MAVEN_HOME", mark: "boot"}, {env: "GRADLE_HOME", mark: "lib/plugins"},
	{env: "ANT_HOME", mark: "lib/ant.jar"}, {env: "GROOVY_HOME", mark: "lib"}, {env: "KOTLIN_HOME", mark: "lib"}, {env: "SCALA_HOME", mark: "lib"}, {env: "SPARK_HOME", mark: "jars"}, {env: "HADOOP_HOME", mark: "share/hadoop"},
	{env: "CUDA_HOME", mark: "nvvm"}, {env: "CUDA_PATH", mark: "nvvm"}, {env: "EMSDK", mark: "emsdk.py"}, {env: "VCPKG_ROOT", mark: ".vcpkg-root"}, {env: "QTDIR", mark: "mkspecs"}, {env: "IDF_PATH", mark: "tools/idf.py"},
	{env: "KREW_ROOT", path: ".krew"}, {env: "ELAN_HOME", path: ".elan"}, {path: ".ghcup"}, {path: ".juliaup"}, {path: ".julia/juliaup"}, {env: "OPAMROOT", path: ".opam"}, {env: "OPAM_SWITCH_PREFIX", mark: "bin/ocaml"},
	{path: ".cabal/store"}, {path: ".local/state/cabal/store"}, {path: ".config/composer/vendor"}, {path: ".local/state/nix/profiles"},
	{path: "google-cloud-sdk"},
}

// search are variables that name where programs find what they load, beside those of [roots]: one is passed
// where the command can read all that it names.
var search = [...]string{
	"GIT_CONFIG_GLOBAL",
	"FNM_MULTISHELL_PATH", "NIX_PROFILES", "GUIX_PROFILE", "GUIX_LOCPATH", "LOCALE_ARCHIVE", "LOCPATH", "TZDIR", "TERMINFO_DIRS",
	"LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "ACLOCAL_PATH", "GI_TYPELIB_PATH",
	"PYTHONPATH", "NODE_PATH", "PERL5LIB", "PERL_LOCAL_LIB_ROOT", "RUBYLIB", "GEM_PATH", "CLASSPATH", "MANPATH", "INFOPATH", "XDG_DATA_DIRS", "XDG_CONFIG_DIRS", "SDKROOT",
}

// PlaceVariables returns the names of variables that say where programs are, and what they load.
func PlaceVariables() []string {
	names := slices.Clone(search[:])
	for _, r := range roots {
		if r.env != "" {
			names = append(names, r.env)
		}
	}
	return names
}

// stands reports whether a directory has something of that name in it.
func stands(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// installations are known by what stands in them wherever somebody has put them: no project has it.
var installations = [...]struct {
	mark, what string
	written    bool // its programs write in it
}{
	{mark: "pkg/tool", what: "Go"},
	{mark: "bin/internal/shared.sh", what: "Flutter", written: true},
	{mark: "boot/plexus-classworlds.license", what: "Maven"},
	{mark: "lib/gradle-cli-main*.jar", what: "Gradle"}, {mark: "lib/gradle-launcher-*.jar", what: "Gradle"},
	{mark: "conda-meta/history", what: "conda"},
	{mark: "mkspecs/qconfig.pri", what: "Qt"},
	{mark: "jars/spark-core_*.jar", what: "Spark"},
	{mark: "nvvm/bin/cicc", what: "CUDA"},
	{mark: "*/lib/ldscripts", what: "a compiler for another machine"},
}

// proxies are directories whose programs start those of a toolchain that lies elsewhere, and what stands in that: what a
// variable names must look like it, since it holds no entry of PATH.
var proxies = [...]struct{ env, path, root, rootPath, mark string }{ // as in [root]
	{"CARGO_HOME", ".cargo", "RUSTUP_HOME", ".rustup", "toolchains"},
	{"", ".nimble", "", ".choosenim", "toolchains"},
	{"GOPATH", "go", "", "sdk/go*", "pkg/tool"}, // golang.org/dl installs a program of a few lines, and what it starts there
}

// parts are what belongs to the programs of a prefix that is not shown whole: it may be
// anybody's project. In one of Homebrew's, programs are links into the Cellar, and find
// each other through opt.
var parts = [...]string{"lib", "lib64", "libexec", "share", "conf", "jmods", "include", "pyvenv.cfg",
	"Cellar", "opt", "Homebrew", "Library", "etc/ssl", "etc/openssl@3", "etc/ca-certificates", "etc/fonts", "etc/gitconfig"}

// prefix shows what the programs in a directory need around them.
func (f *toolFinder) prefix(dir, why string) {
	if f.prefixed[dir] {
		return
	}
	f.prefixed[dir] = true
	for _, r := range roots {
		if path := f.place(r.env, r.path); path != "" && Below(dir, path) && f.add(path, why) {
			f.linked(path)
			return
		}
	}
	for _, p := range proxies {
		if dir != filepath.Join(f.place(p.env, p.path), "bin") {
			continue
		}
		found, _ := filepath.Glob(f.place(p.root, p.rootPath))
		for _, toolchain := range found {
			if stands(toolchain, p.mark) {
				f.add(toolchain, "the toolchains of "+dir)
			}
		}
	}
	if i := strings.Index(dir+"/", "/node_modules/"); i >= 0 && f.add(dir[:i]+"/node_modules", why) {
		return
	}
	rest, ok := strings.CutPrefix(dir, f.q.Home+"/")
	if app, is := strings.CutPrefix(rest, ".local/share/"); ok && is {
		name, _, _ := strings.Cut(app, "/")
		f.add(filepath.Join(f.q.Home, ".local/share", name), why)
		return
	}
	base := filepath.Base(dir)
	prefix := filepath.Dir(dir)
	hidden := ok && rest[0] == '.'
	if base != "bin" && base != "sbin" && (base != "shims" || !hidden) || prefix == f.q.Home {
		return
	}
	for _, one := range installations {
		if found, _ := filepath.Glob(filepath.Join(prefix, one.mark)); len(found) > 0 && f.add(prefix, one.what+", for "+why) {
			if one.written {
				f.layers = append(f.layers, Cache{Path: prefix, Why: one.what})
			}
			return
		}
	}
	// Well inside a hidden directory of the home a prefix is an installation;
	// elsewhere it may be a project, or somebody's home.
	if hidden && strings.Count(rest, "/") > 1 && f.add(prefix, why) {
		f.linked(prefix)
		return
	}
	// One with versions is a version manager's, or of a tool that keeps a login beside them (~/.pulumi).
	if hidden && f.versions(prefix) != nil {
		for _, name := range [...]string{"versions", "toolchains", "version"} {
			f.add(filepath.Join(prefix, name), why)
		}
		f.linked(prefix)
	}
	for _, part := range parts {
		f.add(filepath.Join(prefix, part), why)
	}
}

// versions returns what a version manager has installed in its directory, nil for none.
func (f *toolFinder) versions(dir string) (all []string) {
	for _, name := range [...]string{"versions", "toolchains"} {
		entries, _ := os.ReadDir(filepath.Join(dir, name))
		for _, e := range entries[:min(len(entries), maxPrograms)] {
			all = append(all, filepath.Join(dir, name, e.Name()))
		}
	}
	return all
}

// linked shows versions that were installed elsewhere, and that a version manager was given as links.
func (f *toolFinder) linked(dir string) {
	open := f.open
	defer func() { f.open = open }()
	for _, path := range f.versions(dir) {
		if real, ok := f.follow(path); ok && real != path {
			f.entry(filepath.Join(real, "bin"), path)
		}
	}
}

// place returns a directory that a variable names, the first of a list, or that lies below the home.
func (f *toolFinder) place(env, rel string) string {
	if env != "" {
		if path, _, _ := strings.Cut(f.q.Env(env), ":"); filepath.IsAbs(path) {
			return filepath.Clean(path)
		}
	}
	if rel == "" || filepath.IsAbs(rel) {
		return rel
	}
	return filepath.Join(f.q.Home, rel)
}

// Secret reports whether a path is known to hold secrets, or contains what does.
func Secret(home, path string) bool {
	return slices.ContainsFunc(profiles.SecretPlaces[:], func(s profiles.SecretPlace) bool {
		at := home + "/" + s.Name
		return Below(at, path) || Below(path, at) && s.Sort != profiles.Mixed
	})
}

// add shows a path, and reports whether it does.
func (f *toolFinder) add(path, why string) bool {
	if _, seen := f.show[path]; seen {
		return true
	}
	return f.showable(path) && f.force(path, why)
}

// force shows a path if it is there.
func (f *toolFinder) force(path, why string) bool {
	if _, err := os.Lstat(path); err != nil {
		return false
	}
	f.show[path] = why
	return true
}

// versionsOnly reports whether a configuration of mise says which versions are wanted, and
// nothing of variables, which may be secrets.
func versionsOnly(path string) bool {
	text, err := profiles.ReadFile(path)
	return err == nil && !bytes.Contains(text, []byte("env"))
}

// showable reports whether a path neither is nor contains what must stay hidden.
func (f *toolFinder) showable(path string) bool {
	if Below(f.q.Home, path) || Below(f.q.Workspace, path) || Below(path, f.q.Workspace) {
		return false
	}
	for _, secret := range f.secrets {
		if Below(secret, path) || Below(path, secret) && !besideSecrets(path[len(secret):]) && !f.rootedIn(secret, path) {
			return false
		}
	}
	return true
}

// rootedIn reports whether a path lies in what a version manager or installer has for itself in
// a directory with secrets.
func (f *toolFinder) rootedIn(secret, path string) bool {
	return slices.ContainsFunc(f.roots, func(root string) bool { return root != secret && Below(root, secret) && Below(path, root) })
}

// besideSecrets reports whether what lies there below a directory with secrets
// is a program of a tool that keeps both in one place: ~/.claude/local, or
// ~/.config/yarn/global/node_modules.
func besideSecrets(rest string) bool {
	return strings.HasPrefix(rest+"/", "/local/") || strings.Contains(rest+"/", "/node_modules/") || strings.HasSuffix(rest, "/bin")
}

// covered reports whether something above a path is shown.
func (f *toolFinder) covered(path string) bool {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if _, ok := f.show[dir]; ok {
			return true
		}
	}
	return false
}

// OwnLibraries is the Why of a layer over what the user has installed for programs to load.
const OwnLibraries = "the user's own libraries: those installed there are deleted at exit"

// downloads are what tools have downloaded once, and look for again in each project.
var downloads = [...]struct {
	env, path string // as in [root]
	below     string // the part of it
	mark      string // what stands in that
	why       string
}{
	{"GOMODCACHE", "go/pkg/mod", "", "cache/download", "Go's modules"},
	{"CARGO_HOME", ".cargo", "registry", "index", "cargo's crates"}, {"CARGO_HOME", ".cargo", "git", "db", "cargo's repositories"},
	{"", ".m2/repository", "", ".", "Maven's artifacts"}, {"", ".m2/wrapper", "", "dists", "Maven's own versions"},
	{"", ".gradle/wrapper", "", "dists", "Gradle's own versions"}, {"", ".gradle/caches/modules-2", "", "files-2.1", "Gradle's artifacts"}, {"", ".konan", "", ".", "Kotlin's compilers"},
	{"COURSIER_CACHE", ".cache/coursier", "", ".", "Scala's artifacts"}, {"", ".ivy2/cache", "", ".", "Ivy's artifacts"}, {"", ".sbt/boot", "", ".", "sbt's own versions"},
	{"", ".cache/node/corepack", "", "v1", "corepack's package managers"}, {"", ".cache/node-gyp", "", ".", "headers of Node.js"}, {"", ".cache/electron", "", ".", "Electron"},
	{"PLAYWRIGHT_BROWSERS_PATH", ".cache/ms-playwright", "", ".links", "Playwright's browsers"}, {"PUPPETEER_CACHE_DIR", ".cache/puppeteer", "", ".", "Puppeteer's browsers"}, {"CYPRESS_CACHE_FOLDER", ".cache/Cypress", "", ".", "Cypress"},
	{"", ".local/share/pnpm/store", "", ".", "pnpm's store"}, {"BUN_INSTALL_CACHE_DIR", ".bun/install/cache", "", ".", "bun's packages"}, {"", ".yarn/berry", "", "cache", "yarn's packages"},
	{"GEM_HOME", "", "", "specifications", "Ruby's gems"}, {"", ".local/share/gem", "", "ruby", OwnLibraries}, {"", ".gem/ruby", "", ".", OwnLibraries},
	{"", ".local/lib", "", ".", OwnLibraries}, {"PYTHONUSERBASE", "", "", "lib", OwnLibraries}, {"", "perl5", "", "lib/perl5", OwnLibraries}, {"", ".luarocks/share", "", "lua", OwnLibraries}, {"", ".luarocks/lib", "", "lua", OwnLibraries},
	{"R_LIBS_USER", "R/x86_64-pc-linux-gnu-library", "", ".", OwnLibraries}, {"R_LIBS_USER", "R/aarch64-unknown-linux-gnu-library", "", ".", OwnLibraries}, {"", ".cabal/packages", "", ".", "Haskell's packages"}, {"", ".julia/packages", "", ".", "Julia's packages"}, {"", ".julia/artifacts", "", ".", "Julia's artifacts"},
	{"NUGET_PACKAGES", ".nuget/packages", "", ".", ".NET's packages"}, {"", ".pub-cache/hosted", "", ".", "Dart's packages"}, {"MIX_HOME", ".mix", "", "archives", "Elixir's archives"},
	{"PRE_COMMIT_HOME", ".cache/pre-commit", "", "db.db", "pre-commit's hooks"}, {"BAZELISK_HOME", ".cache/bazelisk", "", "downloads", "Bazel's own versions"},
}

// caches returns what exists of the caches of the usual tools. A variable that names what does not look like the cache is
// not believed so far as to show it.
func (f *toolFinder) caches() (all []Cache) {
	for _, c := range downloads {
		dir, moved := f.place(c.env, c.path), f.q.Env(c.env) != ""
		if c.env == "GOMODCACHE" && !moved {
			gopath := f.place("GOPATH", "go")
			dir, moved = filepath.Join(gopath, "pkg/mod"), gopath != filepath.Join(f.q.Home, "go")
		}
		path := filepath.Join(dir, c.below)
		if dir == "" || !stands(path, c.mark) || !f.showable(path) {
			continue
		}
		if real, ok := f.follow(path); !ok || !f.showable(real) {
			continue
		}
		cache := Cache{Path: path, Why: c.why}
		if moved {
			cache.Entry = c.env + "=" + dir
		}
		all = append(all, cache)
	}
	return all
}
