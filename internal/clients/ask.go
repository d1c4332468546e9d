package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/programs"
)

// A client is one row of the table.
type client struct {
	group   string
	program string
	vars    []string // the variables that it is asked with, in upper case; * stands for any part of a name
	ask     func(*question) (told, error)
}

// told is what a client said.
type told struct {
	urls    []string
	env     []string // NAME=VALUE of what has the client inside go there, without credentials
	signsIn bool     // the user's configuration has credentials for it
	watch   []string // files and directories that the answer rests on
	missing string   // what it could not say, in words
}

// The variables say where a client's packages and its own configuration are. None says what is installed, built or
// executed, as PIP_REQUIREMENT, PYENV_VERSION and CARGO_REGISTRIES_X_CREDENTIAL_PROVIDER do, and none by which proxy or
// authorities a registry is known: who answers there gets the user's password for it.
var table = [...]client{
	{"npm", "npm", []string{"NPM_CONFIG_REGISTRY", "NPM_CONFIG_@*:REGISTRY", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG", "NPM_CONFIG_PREFIX", "NVM_DIR", "VOLTA_HOME", "ASDF_DIR", "ASDF_DATA_DIR"}, askNpm},
	{"go", "go", []string{"GOPROXY", "GOSUMDB", "GOENV", "GOROOT", "GOPATH"}, askGo},
	{"pip", "pip", []string{"PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PYENV_ROOT", "VIRTUAL_ENV", "ASDF_DIR", "ASDF_DATA_DIR"}, askPip},
	{"cargo", "cargo", []string{"CARGO_HOME", "CARGO_REGISTRY_DEFAULT", "CARGO_REGISTRIES_*_INDEX", "RUSTUP_HOME"}, askCargo},
	{"apt", "apt-get", []string{"APT_CONFIG"}, askApt},
}

// A question runs one client.
type question struct{ *programs.Program }

// How long a client may take: to read its configuration, and to ask the host
// that it names.
const (
	askTimeout     = 20 * time.Second
	networkTimeout = 8 * time.Second
	maxOutput      = 1 << 20
)

func (q *question) getenv(name string) string {
	value := ""
	for _, e := range q.Env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

// config is the user's directory for configuration.
func (q *question) config() string {
	if dir := q.getenv("XDG_CONFIG_HOME"); dir != "" {
		return dir
	}
	return q.getenv("HOME") + "/.config"
}

// A limited buffer forgets what does not fit.
type limited struct{ buf bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	l.buf.Write(b[:min(len(b), maxOutput-l.buf.Len())])
	return len(b), nil
}

func (l *limited) String() string { return l.buf.String() }

// run runs the client in the root directory and returns what it printed, on
// stdout alone and on both.
func (q *question) run(timeout time.Duration, env []string, args ...string) (out, all string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := q.Command(ctx, args...)
	alone(cmd)
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr limited
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well, and another process has its pipe
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer within %s", timeout)
	}
	return stdout.String(), stdout.String() + stderr.String(), err
}

// askNpm reads the registry, and those of scopes. The tarballs lie on the same
// host: npm replaces the default registry's name in their addresses.
func askNpm(q *question) (told, error) {
	out, _, err := q.run(askTimeout, nil, "config", "list", "-l")
	if err != nil {
		return told{}, err
	}
	t := told{watch: []string{q.getenv("HOME") + "/.npmrc"}}
	t.readNpm(out)
	if real, err := filepath.EvalSymlinks(q.Path); err == nil { // the npmrc that a distribution ships beside it
		t.watch = append(t.watch, filepath.Join(filepath.Dir(filepath.Dir(real)), "npmrc"))
	}
	return t, nil
}

// readNpm reads the output of `npm config list -l`.
func (t *told) readNpm(out string) {
	for line := range strings.Lines(out) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if strings.HasPrefix(name, "//") && (strings.HasSuffix(name, ":_authToken") || strings.HasSuffix(name, ":_auth") || strings.HasSuffix(name, ":_password")) {
			t.signsIn = true
		}
		text, err := strconv.Unquote(value)
		if !ok || err != nil || strings.HasPrefix(name, ";") { // a default that something overrides is a comment
			continue
		}
		switch {
		case name == "registry" || strings.HasPrefix(name, "@") && strings.HasSuffix(name, ":registry"):
			t.urls = append(t.urls, text)
			t.tell("npm_config_"+name, text)
		case name == "userconfig" || name == "globalconfig":
			t.watch = append(t.watch, text)
		}
	}
}

// tell notes a variable for the client inside, with the addresses in its value as they are without credentials.
func (t *told) tell(name, value string) {
	bare := value
	for word := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == '|' || r == ' ' }) {
		if u, err := url.Parse(word); err == nil && u.User != nil {
			u.User = nil
			bare, t.signsIn = strings.ReplaceAll(bare, word, u.String()), true
		}
	}
	t.env = append(slices.DeleteFunc(t.env, func(e string) bool { return strings.HasPrefix(e, name+"=") }), name+"="+bare)
}

// askGo reads the list of proxies, and the checksum database beside them.
func askGo(q *question) (told, error) {
	out, _, err := q.run(askTimeout, []string{"GO111MODULE=on"}, append([]string{"env"}, goNames[:]...)...)
	if err != nil {
		return told{}, err
	}
	return readGo(out)
}

// goNames are what go is asked for, of which the command inside is told all but the third and the fourth.
var goNames = [...]string{"GOPROXY", "GOSUMDB", "GOENV", "GOROOT", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE"}

// readGo reads the output of `go env` for [goNames].
func readGo(out string) (told, error) {
	lines := strings.Split(out, "\n")
	if len(lines) < 4 {
		return told{}, errors.New("go env printed fewer values than asked for")
	}
	t := told{watch: []string{lines[2], filepath.Join(lines[3], "go.env")}}
	for proxy := range strings.FieldsFuncSeq(lines[0], func(r rune) bool { return r == ',' || r == '|' }) {
		switch proxy {
		case "direct", "off", "none":
			continue
		}
		if !strings.Contains(proxy, "://") {
			proxy = "https://" + proxy
		}
		t.urls = append(t.urls, proxy)
	}
	for i, value := range lines[:min(len(lines), len(goNames))] {
		if i != 2 && i != 3 && value != "" {
			t.tell(goNames[i], value)
		}
	}
	if len(t.urls) == 0 {
		return told{}, errors.New("it fetches modules directly from their hosts, GOPROXY=" + lines[0])
	}
	// NAME, NAME+KEY, or either followed by the URL to use in its place.
	if db := strings.Fields(lines[1]); len(db) > 1 {
		t.urls = append(t.urls, db[1])
	} else if len(db) == 1 && db[0] != "off" {
		name, _, _ := strings.Cut(db[0], "+")
		t.urls = append(t.urls, "https://"+name)
	}
	return t, nil
}

// askPip reads the index, which pip's own help names, and more indexes from
// its configuration. The files lie where the index says: that costs one look
// at the index, for pip itself, which every index has: at wheels alone, since pip
// executes what is in any other package to read what it is called.
func askPip(q *question) (told, error) {
	help, _, err := q.run(askTimeout, nil, "install", "--help")
	if err != nil {
		return told{}, err
	}
	t := told{watch: []string{"/etc/pip.conf", q.config() + "/pip/pip.conf", q.getenv("HOME") + "/.pip/pip.conf"}}
	for _, name := range []string{"PYENV_ROOT", "VIRTUAL_ENV"} {
		if dir := q.getenv(name); dir != "" {
			t.watch = append(t.watch, dir+"/version", dir+"/pip.conf")
		}
	}
	if !t.readPipHelp(help) {
		return told{}, errors.New("its help does not name its default index")
	}
	configured, _, err := q.run(askTimeout, nil, "config", "list")
	if err != nil {
		return told{}, err
	}
	t.readPipConfig(configured)
	report, _, err := q.run(networkTimeout, nil, "install", "--dry-run", "--no-deps", "--ignore-installed", "--no-input", "--retries", "0", "--quiet", "--only-binary", ":all:", "--report", "-", "pip")
	if err != nil || !t.readPipReport(report) {
		t.missing = "the index did not answer: allow the host of its files with --allow"
	}
	return t, nil
}

// readPipHelp reads the output of `pip install --help`.
func (t *told) readPipHelp(help string) bool {
	_, after, _ := strings.Cut(strings.Join(strings.Fields(help), " "), "--index-url <url>")
	_, after, ok := strings.Cut(after, "(default ")
	if ok {
		index, _, _ := strings.Cut(after, ")")
		t.urls = append(t.urls, index)
		t.tell("PIP_INDEX_URL", index)
	}
	return ok
}

// readPipConfig reads the output of `pip config list`.
func (t *told) readPipConfig(configured string) {
	for line := range strings.Lines(configured) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		name = name[strings.LastIndexByte(name, '.')+1:]
		if name == "extra-index-url" || name == "trusted-host" {
			t.tell("PIP_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")), strings.Join(strings.Fields(strings.ReplaceAll(strings.Trim(value, `'"`), `\n`, " ")), " "))
		}
		if name != "index-url" && name != "extra-index-url" && name != "find-links" {
			continue
		}
		for u := range strings.FieldsSeq(strings.ReplaceAll(strings.Trim(value, `'"`), `\n`, " ")) {
			if strings.Contains(u, "://") {
				t.urls = append(t.urls, u)
			}
		}
	}
}

// readPipReport reads from the output of `pip install --report -` where a file is.
func (t *told) readPipReport(report string) bool {
	_, file, ok := strings.Cut(report, `"url": "`)
	if ok {
		file, _, _ = strings.Cut(file, `"`)
		t.urls = append(t.urls, file)
	}
	return ok
}

// askCargo reads what crates-io is replaced by and other registries; where it
// is not replaced, cargo tells its default by failing to reach it: through a
// proxy that is not there. The crates lie where the index's config.json says,
// which cargo keeps.
func askCargo(q *question) (told, error) {
	out, all, err := q.run(askTimeout, []string{"RUSTC_BOOTSTRAP=1"}, "-Z", "unstable-options", "config", "get", "--format", "toml")
	if err != nil {
		return told{}, errors.New("cargo config get: " + lastLine(all))
	}
	home := q.getenv("CARGO_HOME")
	if home == "" {
		home = q.getenv("HOME") + "/.cargo"
	}
	t := told{watch: []string{home + "/config.toml", home + "/config", q.getenv("HOME") + "/.rustup/settings.toml", "/.cargo/config.toml", "/.cargo/config"}}
	if !t.readCargo(out) {
		const nowhere = "http://127.0.0.1:1"
		_, all, _ := q.run(askTimeout, []string{"CARGO_HTTP_PROXY=" + nowhere, "CARGO_NET_RETRY=0"}, "info", "cargo")
		if !t.readCargoFailure(all) {
			return told{}, errors.New("it does not name its default registry")
		}
	}
	if !t.addCrates(home) {
		q.run(networkTimeout, []string{"CARGO_NET_RETRY=0"}, "info", "cargo")
		if !t.addCrates(home) {
			t.missing = "the index did not answer: allow the host of its crates with --allow"
		}
	}
	return t, nil
}

// readCargo reads the output of `cargo config get`, and says whether crates-io is
// replaced.
func (t *told) readCargo(out string) (replaced bool) {
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		text, err := strconv.Unquote(value)
		if err != nil {
			continue
		}
		switch {
		case name == "source.crates-io.replace-with":
			replaced = true
		case strings.HasPrefix(name, "registries.") && strings.HasSuffix(name, ".token"):
			t.signsIn = true
		case strings.HasPrefix(name, "source.") && strings.HasSuffix(name, ".registry"), strings.HasPrefix(name, "registries.") && strings.HasSuffix(name, ".index"):
			t.urls = append(t.urls, text)
		}
	}
	return replaced
}

// readCargoFailure reads from what cargo says which index it could not reach.
func (t *told) readCargoFailure(said string) bool {
	_, after, ok := strings.Cut(said, "failed to download from `")
	index, _, closed := strings.Cut(after, "`")
	if ok = ok && closed; ok {
		t.urls = append(t.urls, index)
	}
	return ok
}

// readCrates reads where an index's config.json says that the crates are.
func (t *told) readCrates(text string) bool {
	_, after, _ := strings.Cut(text, `"dl"`)
	_, after, _ = strings.Cut(after, `"`)
	dl, _, ok := strings.Cut(after, `"`)
	if ok {
		t.urls = append(t.urls, dl)
	}
	return ok
}

// addCrates adds where each index that cargo has used keeps its crates, and
// says whether it found that of each.
func (t *told) addCrates(home string) bool {
	found := 0
	indexes := slices.Clone(t.urls)
	for _, index := range indexes {
		h, err := hostOf(index)
		if err != nil {
			continue
		}
		files, _ := filepath.Glob(home + "/registry/index/" + h.Name + "-*/config.json")
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil && t.readCrates(string(text)) {
				t.watch = append(t.watch, file)
				found++
				break
			}
		}
	}
	return found >= len(indexes)
}

// askApt reads the addresses of the sources.
func askApt(q *question) (told, error) {
	out, all, err := q.run(askTimeout, nil, "--print-uris", "update")
	if err != nil {
		return told{}, errors.New(lastLine(all))
	}
	t := told{watch: []string{"/etc/apt/apt.conf", "/etc/apt/apt.conf.d", "/etc/apt/sources.list", "/etc/apt/sources.list.d"}}
	t.readApt(out)
	return t, nil
}

// readApt reads the output of `apt-get --print-uris update`.
func (t *told) readApt(out string) {
	for line := range strings.Lines(out) {
		if u, _, ok := strings.Cut(strings.TrimPrefix(line, "'"), "' "); ok {
			t.urls = append(t.urls, u)
		}
	}
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
