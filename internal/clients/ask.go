package clients

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
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

// A client is one row of the table: which files it reads, what has it say how it is set up, and who reads that.
type client struct {
	group   string
	program string
	vars    []string // the variables that it is asked with, in upper case; * stands for any part of a name
	watch   []string // files and directories that its answer rests on, with variables: see [question.place]
	env     []string // more for the first question
	args    []string
	read    func(*told, string) error
	more    func(*question, *told) error // asks what that does not say; nil for nothing
}

// told is what a client said.
type told struct {
	urls     []string
	env      []string // NAME=VALUE of what has the client inside go there, without credentials
	signsIn  bool     // the user's configuration has credentials for it
	replaced bool     // of cargo: it does not go where it goes by default
	watch    []string // more files that the answer rests on
	missing  string   // what it could not say, in words
}

// The variables say where a client's packages and its own configuration are. None says what is installed, built or
// executed, as PIP_REQUIREMENT, PYENV_VERSION and CARGO_REGISTRIES_X_CREDENTIAL_PROVIDER do, and none by which proxy or
// authorities a registry is known: who answers there gets the user's password for it.
//
// npm's tarballs lie on the registry's host: it replaces the default registry's name in their addresses. Of its files
// one is what a distribution ships beside it.
var table = [...]client{
	{
		group: "npm", program: "npm",
		vars:  []string{"NPM_CONFIG_REGISTRY", "NPM_CONFIG_@*:REGISTRY", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG", "NPM_CONFIG_PREFIX", "NVM_DIR", "VOLTA_HOME", "ASDF_DIR", "ASDF_DATA_DIR"},
		watch: []string{"$HOME/.npmrc", "$PROGRAM/npmrc"},
		args:  []string{"config", "list", "-l"}, read: (*told).readNpm,
	},
	{
		group: "go", program: "go", vars: []string{"GOPROXY", "GOSUMDB", "GOENV", "GOROOT", "GOPATH"},
		env: []string{"GO111MODULE=on"}, args: append([]string{"env", "-json", "GOENV", "GOROOT"}, goNames[:]...), read: (*told).readGo,
	},
	{
		group: "pip", program: "pip",
		vars:  []string{"PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PYENV_ROOT", "VIRTUAL_ENV", "ASDF_DIR", "ASDF_DATA_DIR"},
		watch: []string{"/etc/pip.conf", "$CONFIG/pip/pip.conf", "$HOME/.pip/pip.conf", "$PYENV_ROOT/version", "$VIRTUAL_ENV/pip.conf"},
		args:  []string{"install", "--help"}, read: (*told).readPipHelp, more: askPip,
	},
	{
		group: "cargo", program: "cargo", vars: []string{"CARGO_HOME", "CARGO_REGISTRY_DEFAULT", "CARGO_REGISTRIES_*_INDEX", "RUSTUP_HOME"},
		watch: []string{"$CARGO/config.toml", "$CARGO/config", "$HOME/.rustup/settings.toml", "/.cargo/config.toml", "/.cargo/config"},
		env:   []string{"RUSTC_BOOTSTRAP=1"}, args: []string{"-Z", "unstable-options", "config", "get", "--format", "toml"}, read: (*told).readCargo, more: askCargo,
	},
	{
		group: "apt", program: "apt-get", vars: []string{"APT_CONFIG"},
		watch: []string{"/etc/apt/apt.conf", "/etc/apt/apt.conf.d", "/etc/apt/sources.list", "/etc/apt/sources.list.d"},
		args:  []string{"--print-uris", "update"}, read: (*told).readApt,
	},
}

// A question runs one client.
type question struct{ *programs.Program }

// ask asks a client all that its row says.
func (c *client) ask(p *programs.Program) (t told, err error) {
	q := &question{p}
	out, all, err := q.run(askTimeout, c.env, c.args...)
	if err != nil {
		all = strings.TrimSpace(all)
		return t, fmt.Errorf("%s: %w: %s", c.args[0], err, all[strings.LastIndexByte(all, '\n')+1:])
	}
	if err = c.read(&t, out); err == nil && c.more != nil {
		err = c.more(q, &t)
	}
	for _, file := range c.watch {
		t.watch = append(t.watch, q.place(file))
	}
	return t, err
}

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

// place is a path of the table's: $CONFIG is the user's directory for configuration, $CARGO cargo's, $PROGRAM that above
// the program's own, all else a variable that the client is asked with.
func (q *question) place(path string) string {
	return os.Expand(path, func(name string) string {
		switch name {
		case "CONFIG":
			return cmp.Or(q.getenv("XDG_CONFIG_HOME"), q.getenv("HOME")+"/.config")
		case "CARGO":
			return cmp.Or(q.getenv("CARGO_HOME"), q.getenv("HOME")+"/.cargo")
		case "PROGRAM":
			real, err := filepath.EvalSymlinks(q.Path)
			if err != nil {
				real = q.Path
			}
			return filepath.Dir(filepath.Dir(real))
		}
		return q.getenv(name)
	})
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

// settings yields the lines NAME = "TEXT" of what a client printed. The text of another value is "".
func settings(out string) iter.Seq2[string, string] {
	return func(yield func(name, text string) bool) {
		for line := range strings.Lines(out) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
			text, _ := strconv.Unquote(value)
			if !yield(name, text) {
				return
			}
		}
	}
}

// readNpm reads the output of `npm config list -l`: the registry, and those of scopes. A default that something overrides
// is a comment.
func (t *told) readNpm(out string) error {
	for name, text := range settings(out) {
		switch {
		case strings.HasPrefix(name, "//") && (strings.HasSuffix(name, ":_authToken") || strings.HasSuffix(name, ":_auth") || strings.HasSuffix(name, ":_password")):
			t.signsIn = true
		case text == "":
		case name == "registry" || strings.HasPrefix(name, "@") && strings.HasSuffix(name, ":registry"):
			t.urls = append(t.urls, text)
			t.tell("npm_config_"+name, text)
		case name == "userconfig" || name == "globalconfig":
			t.watch = append(t.watch, text)
		}
	}
	return nil
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

// goNames are what the command inside is told of what go is asked for.
var goNames = [...]string{"GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE"}

// readGo reads the output of `go env -json`: the list of proxies, and the checksum database beside them.
func (t *told) readGo(out string) error {
	var env map[string]string
	if err := json.Unmarshal([]byte(out), &env); err != nil {
		return err
	}
	t.watch = append(t.watch, env["GOENV"], filepath.Join(env["GOROOT"], "go.env"))
	for _, name := range goNames {
		if env[name] != "" {
			t.tell(name, env[name])
		}
	}
	for proxy := range strings.FieldsFuncSeq(env["GOPROXY"], func(r rune) bool { return r == ',' || r == '|' }) {
		switch proxy {
		case "direct", "off", "none":
			continue
		}
		if !strings.Contains(proxy, "://") {
			proxy = "https://" + proxy
		}
		t.urls = append(t.urls, proxy)
	}
	if len(t.urls) == 0 {
		return errors.New("it fetches modules directly from their hosts, GOPROXY=" + env["GOPROXY"])
	}
	// NAME, NAME+KEY, or either followed by the URL to use in its place.
	if db := strings.Fields(env["GOSUMDB"]); len(db) > 1 {
		t.urls = append(t.urls, db[1])
	} else if len(db) == 1 && db[0] != "off" {
		name, _, _ := strings.Cut(db[0], "+")
		t.urls = append(t.urls, "https://"+name)
	}
	return nil
}

// readPipHelp reads the output of `pip install --help`, which names the index.
func (t *told) readPipHelp(help string) error {
	_, after, _ := strings.Cut(strings.Join(strings.Fields(help), " "), "--index-url <url>")
	_, after, ok := strings.Cut(after, "(default ")
	if !ok {
		return errors.New("its help does not name its default index")
	}
	index, _, _ := strings.Cut(after, ")")
	t.urls = append(t.urls, index)
	t.tell("PIP_INDEX_URL", index)
	return nil
}

// askPip asks for more indexes of its configuration. The files lie where the index says: that costs one
// look at the index, for pip itself, which every index has: at wheels alone, since pip executes what is in
// any other package to read what it is called.
func askPip(q *question, t *told) error {
	configured, _, err := q.run(askTimeout, nil, "config", "list")
	if err != nil {
		return err
	}
	t.readPipConfig(configured)
	report, _, err := q.run(networkTimeout, nil, "install", "--dry-run", "--no-deps", "--ignore-installed", "--no-input", "--retries", "0", "--quiet", "--only-binary", ":all:", "--report", "-", "pip")
	if err != nil || !t.readBetween(report, `"url": "`, `"`) {
		t.missing = "the index did not answer: allow the host of its files with --allow"
	}
	return nil
}

// readBetween takes what stands first between two texts, which may not be there, for a URL.
func (t *told) readBetween(said, before, after string) bool {
	_, said, begun := strings.Cut(said, before)
	text, _, ok := strings.Cut(said, after)
	if ok = ok && begun; ok {
		t.urls = append(t.urls, text)
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

// askCargo: where crates-io is not replaced, cargo tells its default by failing to reach it, through a proxy that is not
// there. The crates lie where the index's config.json says, which cargo keeps.
func askCargo(q *question, t *told) error {
	if !t.replaced {
		const nowhere = "http://127.0.0.1:1"
		_, all, _ := q.run(askTimeout, []string{"CARGO_HTTP_PROXY=" + nowhere, "CARGO_NET_RETRY=0"}, "info", "cargo")
		if !t.readBetween(all, "failed to download from `", "`") {
			return errors.New("it does not name its default registry")
		}
	}
	if !t.addCrates(q.place("$CARGO")) {
		q.run(networkTimeout, []string{"CARGO_NET_RETRY=0"}, "info", "cargo")
		if !t.addCrates(q.place("$CARGO")) {
			t.missing = "the index did not answer: allow the host of its crates with --allow"
		}
	}
	return nil
}

// readCargo reads the output of `cargo config get`: what crates-io is replaced by, and other registries.
func (t *told) readCargo(out string) error {
	for name, text := range settings(out) {
		switch {
		case name == "source.crates-io.replace-with":
			t.replaced = true
		case strings.HasPrefix(name, "registries.") && strings.HasSuffix(name, ".token"):
			t.signsIn = true
		case text != "" && (strings.HasPrefix(name, "source.") && strings.HasSuffix(name, ".registry") || strings.HasPrefix(name, "registries.") && strings.HasSuffix(name, ".index")):
			t.urls = append(t.urls, text)
		}
	}
	return nil
}

// readCrates reads where an index's config.json says that the crates are.
func (t *told) readCrates(text string) bool {
	_, after, _ := strings.Cut(text, `"dl"`)
	return t.readBetween(after, `"`, `"`)
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

// readApt reads the output of `apt-get --print-uris update`: the addresses of the sources.
func (t *told) readApt(out string) error {
	for line := range strings.Lines(out) {
		if u, _, ok := strings.Cut(strings.TrimPrefix(line, "'"), "' "); ok {
			t.urls = append(t.urls, u)
		}
	}
	return nil
}
