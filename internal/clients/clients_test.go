package clients

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/private"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// A world is a user with a home, a workspace and a configuration of his own.
type world struct {
	t                    *testing.T
	home, workspace, bin string
	asker                Asker
	notes                []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := private.Dir(t)
	w := &world{t: t, home: dir + "/home", workspace: dir + "/home/project", bin: dir + "/bin"}
	for _, d := range []string{w.workspace, w.bin, dir + "/state"} {
		require.NoError(t, os.MkdirAll(d, 0o700))
	}
	w.write(w.home+"/.config/go/telemetry/mode", "off") // or something of it is still written when the test is over
	w.asker = Asker{Workspace: w.workspace, StateDir: dir + "/state", Programs: &programs.Finder{
		Writes: func(path string) bool { return path == w.workspace || strings.HasPrefix(path, w.workspace+"/") },
		Note:   func(s string) { w.notes = append(w.notes, s) },
	}}
	w.set("HOME="+w.home, "PATH="+w.bin+":"+os.Getenv("PATH"), "PYENV_ROOT="+os.Getenv("PYENV_ROOT"))
	return w
}

func (w *world) set(env ...string) {
	w.asker.Programs.Environ = append(w.asker.Programs.Environ, env...)
}

func (w *world) write(path, text string) {
	w.t.Helper()
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o600))
}

// script puts a program of the test's own before the real ones. It leaves a
// line in $HOME/asked each time.
func (w *world) script(name, text string) {
	w.t.Helper()
	file := filepath.Join(w.bin, name)
	require.NoError(w.t, os.WriteFile(file, []byte("#!/bin/sh\necho \"$PWD $*\" >>\"$HOME/asked\"\n"+text), 0o700))
}

func (w *world) asked() int {
	text, _ := os.ReadFile(w.home + "/asked")
	return strings.Count(string(text), "\n")
}

func (w *world) hosts(group string) []Host {
	w.t.Helper()
	hosts, err := w.asker.Hosts(group)
	require.NoError(w.t, err)
	return hosts
}

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("needs " + program)
	}
}

// TestNpm asks the real npm, whose project file in the workspace must not
// count, nor what npm sets for the scripts of a project.
func TestNpm(t *testing.T) {
	need(t, "npm")
	w := newWorld(t)
	w.write(w.home+"/.npmrc", "registry=https://mirror.corp.example:8443/npm/\n@acme:registry=http://acme.example/\n//mirror.corp.example/:_authToken=secret\n")
	w.write(w.workspace+"/.npmrc", "registry=https://evil.example/\n")
	w.write(w.workspace+"/package.json", "{}")
	t.Chdir(w.workspace)
	want := []Host{{"mirror.corp.example", 8443}, {"acme.example", 80}}
	require.ElementsMatch(t, want, w.hosts("npm"))
	w.set("npm_config_registry=https://evil.example/", "npm_lifecycle_event=test")
	require.ElementsMatch(t, want, w.hosts("npm"), "set by npm run, for a script of the project")

	w = newWorld(t)
	w.write(w.workspace+"/.npmrc", "registry=https://evil.example/\n")
	w.set("NPM_CONFIG_USERCONFIG=" + w.workspace + "/.npmrc")
	for _, h := range w.hosts("npm") {
		require.NotEqual(t, "evil.example", h.Name, "a variable that names the workspace")
	}
	require.NoError(t, os.Symlink(w.workspace+"/.npmrc", w.home+"/.npmrc"))
	_, err := w.asker.Hosts("npm")
	require.ErrorContains(t, err, "sandboxed commands can write")

	w = newWorld(t)
	w.set("npm_config_registry=https://mine.example/")
	require.Equal(t, []Host{{"mine.example", 443}}, w.hosts("npm"), "the user's shell set it")
}

func TestGo(t *testing.T) {
	need(t, "go")
	w := newWorld(t)
	w.write(w.home+"/.config/go/env", "GOPROXY=https://goproxy.corp.example|http://10.0.0.7:3000/x,direct\nGOSUMDB=sum.corp.example+abc https://sums.example/db\n")
	require.Equal(t, []Host{{"goproxy.corp.example", 443}, {"10.0.0.7", 3000}, {"sums.example", 443}}, w.hosts("go"))
	w.write(w.home+"/.config/go/env", "GOPROXY=direct\nGOSUMDB=off\n")
	_, err := w.asker.Hosts("go")
	require.ErrorContains(t, err, "GOPROXY=direct")
	w.set("GOPROXY=proxy.example", "GOSUMDB=sum.example+key")
	require.Equal(t, []Host{{"proxy.example", 443}, {"sum.example", 443}}, w.hosts("go"))

	w = newWorld(t) // what the client has of itself, which no test may name
	require.NotEmpty(t, w.hosts("go"))
	w.set("GOFLAGS=-mod=mod", "GOENV="+w.workspace+"/env")
	w.write(w.workspace+"/env", "GOPROXY=https://evil.example\n")
	for _, h := range w.hosts("go") {
		require.NotEqual(t, "evil.example", h.Name)
	}
}

// TestPip has an index on loopback, which says that the files lie elsewhere.
func TestPip(t *testing.T) {
	need(t, "pip")
	w := newWorld(t)
	w.write(w.home+"/.config/pip/pip.conf", "[global]\nindex-url = https://u:p@mirror.corp.example/simple\nextra-index-url =\n    https://more.example/simple\n    http://127.0.0.1:1/simple\nfind-links = /opt/wheels https://wheels.example/x\ntimeout = 1\n")
	require.ElementsMatch(t, []Host{{"mirror.corp.example", 443}, {"more.example", 443}, {"127.0.0.1", 1}, {"wheels.example", 443}}, w.hosts("pip"))
	require.Len(t, w.notes, 2, "the index could not be asked, and has credentials")
	require.Equal(t, []string{"PIP_INDEX_URL=https://mirror.corp.example/simple", "PIP_EXTRA_INDEX_URL=https://more.example/simple http://127.0.0.1:1/simple"}, w.asker.Environ)
	group, err := rules.Parse("@pip")
	require.NoError(t, err)
	list, err := w.asker.Expand(group)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(list, rules.Rule.Local), "package profiles opens it only where its port is named")
}

func TestPipFiles(t *testing.T) {
	w := newWorld(t)
	w.script("pip", `case "$*" in
*--help) echo '  -i, --index-url <url>  Base URL (default'; echo '      https://index.example/simple). This' ;;
"config list") ;;
*--only-binary?:all:*--report*) echo '{"install": [{"download_info": {"url": "https://files.example/a/pip.whl"}}]}' ;;
esac`)
	require.Equal(t, []Host{{"index.example", 443}, {"files.example", 443}}, w.hosts("pip"))
	require.Empty(t, w.notes)
	require.Equal(t, 3, w.asked())
	w.hosts("pip")
	require.Equal(t, 3, w.asked(), "the answer was kept")
}

// TestPipBuildsNothing has an index with a package alone that is built before it is known what it is called.
func TestPipBuildsNothing(t *testing.T) {
	need(t, "pip")
	w := newWorld(t)
	var asked atomic.Int32
	var source bytes.Buffer
	z := gzip.NewWriter(&source)
	a := tar.NewWriter(z)
	for name, text := range map[string]string{
		"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'own'\nbackend-path = ['.']\n",
		"own.py":         "open(" + strconv.Quote(w.home+"/built") + ", 'w')\n",
	} {
		require.NoError(t, a.WriteHeader(&tar.Header{Name: "pip-99.0/" + name, Mode: 0o644, Size: int64(len(text))}))
		_, err := io.WriteString(a, text)
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(a.Close(), z.Close()))
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.HasSuffix(r.URL.Path, ".tar.gz") {
			_, _ = out.Write(source.Bytes())
			return
		}
		out.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(out, `<a href="/pip-99.0.tar.gz">pip-99.0.tar.gz</a>`)
	}))
	defer s.Close()
	w.set("PIP_INDEX_URL=" + s.URL + "/simple")
	w.hosts("pip")
	require.NotZero(t, asked.Load(), "control")
	require.NoFileExists(t, w.home+"/built")
}

// TestCargo asks the real cargo, which has no network here, but what it keeps
// of an index.
func TestCargo(t *testing.T) {
	need(t, "cargo")
	w := newWorld(t)
	w.set("RUSTUP_HOME="+rustup(), "CARGO_HOME="+w.home+"/.cargo")
	w.write(w.home+"/.cargo/config.toml", "[source.crates-io]\nreplace-with = \"corp\"\n[source.corp]\nregistry = \"sparse+https://crates.corp.example/index/\"\n[registries.own]\nindex = \"https://own.example/git\"\n")
	w.write(w.home+"/.cargo/registry/index/crates.corp.example-0123/config.json", `{"dl":"https://dl.corp.example/{crate}","api":"https://x.example"}`)
	w.write(w.home+"/.cargo/registry/index/own.example-0123/config.json", `{"dl":"https://own.example/dl"}`)
	require.Equal(t, []Host{{"crates.corp.example", 443}, {"own.example", 443}, {"dl.corp.example", 443}}, sorted(w.hosts("cargo"), "crates", "own", "dl"))
	require.Empty(t, w.notes)
}

// sorted returns hosts in the order of the words that they begin with.
func sorted(hosts []Host, words ...string) (list []Host) {
	for _, word := range words {
		for _, h := range hosts {
			if strings.HasPrefix(h.Name, word) {
				list = append(list, h)
			}
		}
	}
	return list
}

// rustup is where the toolchains of the user are who runs the test.
func rustup() string {
	if dir := os.Getenv("RUSTUP_HOME"); dir != "" {
		return dir
	}
	return os.Getenv("HOME") + "/.rustup"
}

func TestCargoDefault(t *testing.T) {
	w := newWorld(t)
	w.script("cargo", `case "$*" in
-Z*) ;;
info*) [ "$CARGO_HTTP_PROXY" = http://127.0.0.1:1 ] && echo '  failed to download from `+"`https://index.example/config.json`"+`' >&2; exit 101 ;;
esac`)
	require.Equal(t, []Host{{"index.example", 443}}, w.hosts("cargo"))
	require.Len(t, w.notes, 1)
	w.script("cargo", "exit 0")
	_, err := w.asker.Hosts("cargo")
	require.ErrorContains(t, err, "does not name its default registry")
	w.script("cargo", "echo no such option >&2; exit 1")
	_, err = w.asker.Hosts("cargo")
	require.ErrorContains(t, err, "no such option")
}

func TestApt(t *testing.T) {
	need(t, "apt-get")
	w := newWorld(t)
	w.write(w.home+"/sources.list", "deb http://debian.example/debian stable main\ndeb [trusted=yes] https://sec.example:8443/s stable main\ndeb file:/srv/x ./\n")
	w.write(w.home+"/apt.conf", `Dir::Etc::sourcelist "`+w.home+`/sources.list"; Dir::Etc::sourceparts "/nonexistent";`)
	w.set("APT_CONFIG=" + w.home + "/apt.conf")
	require.ElementsMatch(t, []Host{{"debian.example", 80}, {"sec.example", 8443}}, w.hosts("apt"))
}

// TestKept holds when an answer is used again, and when not.
func TestKept(t *testing.T) {
	w := newWorld(t)
	npm := `echo 'registry = "https://a.example/"'; echo 'userconfig = "'$HOME'/.npmrc"'`
	w.script("npm", npm)
	past := time.Now().Add(-time.Hour)
	ask := func(want int, why string) {
		t.Helper()
		w.hosts("npm")
		require.Equal(t, want, w.asked(), why)
	}
	ask(1, "first")
	ask(1, "kept")
	text, _ := os.ReadFile(w.home + "/asked")
	require.Equal(t, "/ config list -l\n", string(text), "not asked in the workspace")
	w.write(w.home+"/.npmrc", "x=1")
	require.NoError(t, os.Chtimes(w.home+"/.npmrc", past, past))
	ask(2, "a file came")
	ask(2, "kept")
	w.write(w.home+"/.npmrc", "x=2")
	require.NoError(t, os.Chtimes(w.home+"/.npmrc", past.Add(time.Second), past.Add(time.Second)))
	ask(3, "a file changed")
	w.set("npm_config_registry=https://mine.example/")
	ask(4, "a variable changed")
	w.set("OTHER=1")
	ask(4, "a variable that is none of npm's")
	w.script("npm", npm+"\n")
	ask(5, "the program changed")
	kept := w.asker.StateDir + "/clients/npm.json"
	require.NoError(t, os.WriteFile(kept, []byte(`{"v":1,"hosts":[{"Name":"evil.example"`), 0o600))
	ask(6, "what was kept is broken")
	w.asker.StateDir = ""
	ask(7, "nowhere to keep it")

	k := answer{Version: version, Key: "k", Hosts: []Host{{"a", 1}}, AskedFor: time.Now()}
	require.True(t, k.fresh("k", time.Now()))
	require.False(t, k.fresh("other", time.Now()))
	require.False(t, k.fresh("k", time.Now().Add(25*time.Hour)))
	require.False(t, k.fresh("k", time.Now().Add(-time.Hour)), "from the future")
	k.Missing = "files"
	require.False(t, k.fresh("k", time.Now().Add(11*time.Minute)))
}

func TestErrors(t *testing.T) {
	w := newWorld(t)
	_, err := w.asker.Hosts("nope")
	require.ErrorContains(t, err, "unknown group")
	w.asker.Programs.Environ = []string{"PATH=" + w.bin + ":relative:" + w.workspace}
	w.write(w.workspace+"/npm", "#!/bin/sh\n")
	require.NoError(t, os.Chmod(w.workspace+"/npm", 0o700))
	_, err = w.asker.Hosts("npm")
	require.ErrorContains(t, err, "skipped: sandboxed commands can write "+w.workspace, "only in the workspace")
	require.NoError(t, os.Symlink(w.workspace+"/npm", w.bin+"/npm"))
	_, err = w.asker.Hosts("npm")
	require.ErrorContains(t, err, "skipped: sandboxed commands can write "+w.workspace, "a link into the workspace")
	require.NoError(t, os.Remove(w.workspace+"/npm"))
	_, err = w.asker.Hosts("npm")
	require.ErrorContains(t, err, "npm is not installed")
	require.NoError(t, os.Remove(w.bin+"/npm"))
	w.asker.Programs.Environ = []string{"PATH=" + w.bin + ":/bin:/usr/bin", "HOME=" + w.home}
	for script, want := range map[string]string{
		"exit 1": "exit status 1",
		"":       "names no host",
		`echo 'registry = "ftp://u:secret@a.example/"'`:   `"ftp://a.example/": scheme "ftp"`,
		`echo 'registry = "https://a.example:99999/"'`:    "bad port",
		`echo 'registry = "https:///x"'`:                  "no host",
		`printf 'registry = "https://a.example/\\x00"\n'`: "not a URL",
	} {
		w.script("npm", script)
		_, err := w.asker.Hosts("npm")
		require.ErrorContains(t, err, want, script)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err = (&question{&programs.Program{Path: "/bin/sleep"}}).runFor(t)
	require.ErrorContains(t, err, "no answer within")
}

func (q *question) runFor(t *testing.T) (string, error) {
	t.Helper()
	out, _, err := q.run(50*time.Millisecond, nil, "5")
	return out, err
}

// What a client prints is partly what its files say.
func FuzzTold(f *testing.F) {
	for _, s := range []string{
		"registry = \"https://a.example/\"\n@s:registry = \"https://b.example/\"\n; registry = \"x\"\nuserconfig = \"/h/.npmrc\"\n",
		`{"GOPROXY":"https://a.example|direct,b.example","GOSUMDB":"sum.example+key https://c.example","GOENV":"/h/env","GOROOT":"/usr/lib/go"}`,
		"-i, --index-url <url> Base URL (default https://a.example/simple).\nglobal.index-url='https://b.example https://c.example'\n\"url\": \"https://d.example/x.whl\"",
		"source.crates-io.replace-with = \"m\"\nsource.m.registry = \"sparse+https://a.example/\"\nfailed to download from `https://b.example/`\n{\"dl\": \"https://c.example\"}",
		"'https://a.example/dists/x/InRelease' a_dists 0 \n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var all told
		for _, c := range table {
			_ = c.read(&all, text)
		}
		all.readPipConfig(text)
		all.readCrates(text)
		all.readBetween(text, "`", "`")
		var of told
		if of.readGo(text) == nil {
			require.NotEmpty(t, of.urls)
		}
		for _, u := range all.urls {
			if h, err := hostOf(u); err == nil && h.Name != "" {
				require.NotZero(t, h.Port)
			}
		}
	})
}

func FuzzHostOf(f *testing.F) {
	for _, s := range []string{"https://a.example/x", "sparse+https://a.example:8443/", "http://[fd00::1]:80", "file:///x", "https://u:p@a.example", "https://%41"} {
		f.Add(s)
	}
	group, err := rules.Parse("@npm")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		strip(text)
		h, err := hostOf(text)
		if err != nil || h.Name == "" {
			return
		}
		require.NotZero(t, h.Port)
		if r, err := group.For(h.Name, h.Port); err == nil {
			s, err := rules.New(r)
			require.NoError(t, err)
			require.Equal(t, rules.Allow, s.Decide(h.Name, h.Port).Action)
		}
	})
}

// What the environment names is not taken from the workspace, however it is
// spelled for a client that is asked in the root directory, nor does it say
// which program runs.
func TestHostileVariables(t *testing.T) {
	w := newWorld(t)
	w.set("PIP_INDEX_URL=https://mirror.example/simple", "PIP_CONFIG_FILE="+w.home+"/pip.conf")
	w.script("show", "")
	environ := func() (env []string) {
		for i := range table {
			p, err := w.asker.Programs.Find("show", w.asker.passes(&table[i]))
			require.NoError(t, err)
			env = append(env, p.Env...)
		}
		return env
	}
	control := len(environ())
	relative := strings.TrimPrefix(w.workspace, "/")
	w.set("PIP_PROXY=http://192.0.2.1", "PIP_CERT=/opt/evil.pem", "PIP_TRUSTED_HOST=mirror.example", "NPM_CONFIG_HTTPS_PROXY=http://192.0.2.1", "NPM_CONFIG_CAFILE=/opt/evil.pem",
		"HTTPS_PROXY=http://192.0.2.1", "https_proxy=http://192.0.2.1", "SSL_CERT_FILE=/opt/evil.pem", "SSL_CERT_DIR=/opt/evil")
	w.set("PIP_PYTHON=/opt/evil", "PIP_EDITABLE=git+https://evil.example/x", "PIP_REQUIREMENT=https://evil.example/x.txt", "PIP_CONSTRAINT=https://evil.example/x.txt", "NPM_CONFIG_SCRIPT_SHELL=/opt/evil",
		"PYENV_VERSION=../../x/.venv", "GOENV_VERSION=../../x", "ASDF_NODEJS_VERSION=path:/opt/evil", "RUSTUP_TOOLCHAIN=/opt/evil", "RUSTUP_DIST_SERVER=https://evil.example",
		"CARGO_BUILD_RUSTC=/opt/evil", "CARGO_REGISTRIES_X_CREDENTIAL_PROVIDER=sh", "CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS=sh")
	w.set("GOENV="+relative+"/env", "CARGO_HOME="+filepath.Dir(relative)+"/./"+filepath.Base(relative)+"/x",
		"PIP_EXTRA_INDEX_URL=a:/"+relative, "VIRTUAL_ENV="+w.workspace+"/y", "NPM_CONFIG_USERCONFIG=${LC_A}s/.npmrc", "ASDF_DIR=~/x")
	require.Len(t, environ(), control)
	w.set("PIP_NO_INDEX=1", "CARGO_REGISTRIES_X_INDEX=sparse+https://mine.example/", "npm_config_@acme:registry=https://acme.example/")
	require.Len(t, environ(), control+3, "control")
}

// A client asks a registry by the proxy and the authorities that count for what pccrun sends, and by no other.
func TestSends(t *testing.T) {
	w := newWorld(t)
	w.set("HTTPS_PROXY=http://192.0.2.1", "SSL_CERT_FILE=/opt/evil.pem")
	w.script("npm", `echo "registry = \"https://mirror.example/\""; env >"$HOME/environment"`)
	sent := func() string {
		_, err := w.asker.Hosts("npm")
		require.NoError(t, err)
		text, err := os.ReadFile(w.home + "/environment")
		require.NoError(t, err)
		return string(text)
	}
	require.NotRegexp(t, "(?m)^(HTTPS_PROXY|SSL_CERT_FILE)=", sent())
	w.asker.Sends = func() []string { return []string{"HTTPS_PROXY=http://192.0.2.2", "SSL_CERT_FILE=/mine.pem"} }
	got := sent()
	require.Contains(t, got, "HTTPS_PROXY=http://192.0.2.2\n", "the control: it is asked again")
	require.Contains(t, got, "SSL_CERT_FILE=/mine.pem\n")
}

// TestLimited: a client that prints without end fills no memory. io.Copy would
// pass a bound by that a buffer's ReadFrom does not know.
func TestLimited(t *testing.T) {
	var l limited
	n, err := io.Copy(&l, io.LimitReader(rand.New(rand.NewSource(1)), 3*maxOutput))
	require.NoError(t, err)
	require.EqualValues(t, 3*maxOutput, n)
	require.Len(t, l.String(), maxOutput)
}

func TestGroupOf(t *testing.T) {
	for words, group := range map[string]string{
		"npm view x version":                     "npm", // its title
		"/usr/bin/node /usr/bin/npm ci":          "npm",
		"/usr/bin/python3 /usr/bin/pip3.11 list": "pip",
		"python3 -m pip install x":               "pip",
		"/usr/local/go/bin/go list -m":           "go",
		"node build.js npm":                      "",
		"python3 pip.py":                         "",
		"curl https://registry.example":          "",
		"":                                       "",
	} {
		require.Equal(t, group, GroupOf(strings.Split(words, " ")), words)
	}
}
