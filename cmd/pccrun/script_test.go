package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/profiles"
)

// started are what the scripts can start beside the host's own.
var started = map[string]func(){"pccrun": main, "carried": carried, "dial": dial, "tokens": tokens, "modelapi": modelAPI}

// conditions are what all scripts can ask beside the usual.
var conditions = map[string]func() bool{}

func TestMain(m *testing.M) { testscript.Main(shipped{m}, started) }

// shipped are tests in which pccrun is the program of PCCRUN_TEST_COUNTED, which is
// built as the one that is shipped: this binary, which stands in for it elsewhere,
// takes several times as long to start.
type shipped struct{ *testing.M }

func (s shipped) Run() int {
	if program := os.Getenv("PCCRUN_TEST_COUNTED"); program != "" {
		name, err := exec.LookPath("pccrun")
		if err == nil {
			err = errors.Join(os.Remove(name), exec.Command("cp", program, name).Run())
		}
		if err != nil {
			panic(err)
		}
	}
	return s.M.Run()
}

// carried is pccrun as the launcher starts it from a file, so that it
// believes PCCRUN_LAUNCHER.
func carried() {
	self, err := os.Executable()
	name := filepath.Join(filepath.Dir(self), wholeFile+strconv.Itoa(os.Getpid()))
	if err = errors.Join(err, os.Link(self, name), os.Setenv(wholeVariable, name)); err != nil {
		panic(err)
	}
	main()
}

// dial is a program that connects to a unix socket and prints what it is told.
func dial() {
	conn, err := net.Dial("unix", os.Args[1])
	if err == nil {
		_, err = io.Copy(os.Stdout, conn)
	}
	if err != nil {
		os.Exit(1)
	}
}

// TestScripts runs testdata/*.txtar: each is a path through the command line, and
// the same one for root.
func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/*.txtar", conditions)
}

// TestScriptsThatDifferAsRoot runs testdata/root/*.txtar: they alone can ask for root.
//
//test:root
func TestScriptsThatDifferAsRoot(t *testing.T) {
	t.Parallel()
	asks := maps.Clone(conditions)
	asks["root"] = func() bool { return os.Getuid() == 0 }
	runScripts(t, "testdata/root/*.txtar", asks)
}

// runScripts runs scripts, the longest first, so that none is left to run alone. They have
// a home and a repository of their own, and the current directory is the repository.
func runScripts(t *testing.T, pattern string, conditions map[string]func() bool) {
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	size := func(name string) int64 {
		info, err := os.Stat(name)
		require.NoError(t, err)
		return info.Size()
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(size(b), size(a)) })
	testscript.Run(t, testscript.Params{
		Files: files,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"refused": exits(125, "^$"), // nothing on standard output
			"fails":   exits(125, ""),
			"no":      exits(1, ""),
			"late":    exits(124, ""),
			"errors":  errorsObject,
			"fields":  documented,
		},
		Condition: func(name string) (bool, error) {
			if holds, ok := conditions[name]; ok {
				return holds(), nil
			}
			return false, errors.New("no such condition")
		},
		Setup: func(env *testscript.Env) error {
			home := env.WorkDir + "/home/u"
			env.Setenv("HOME", home)
			env.Setenv("WS", home+"/project")
			env.Cd = home + "/project"
			own, err := user.Current()
			if err != nil {
				return err
			}
			dir, err := os.MkdirTemp(own.HomeDir, ".pccrun-test-") // what everybody can write has no programs that pccrun executes
			env.Setenv("OWN", dir)
			env.Defer(func() { _ = os.RemoveAll(dir) })
			return errors.Join(err, os.MkdirAll(home+"/project/.git", 0o755))
		},
	})
}

// exits returns a command that runs a program and wants this exit status.
func exits(want int, stdout string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) == 0 {
			ts.Fatalf("usage: refused|fails|no command [args…]")
		}
		err := ts.Exec(args[0], args[1:]...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != want {
			ts.Fatalf("%v: got %v, want exit status %d", args, err, want)
		}
		if stdout != "" && ts.ReadFile("stdout") != "" {
			ts.Fatalf("%v: unexpected output", args)
		}
	}
}

// errorsObject runs `errors STATUS program [args…]`: the program ends so, and prints
// one object with what went wrong, which it says on standard error too.
func errorsObject(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	exits(want, "")(ts, neg, args[1:])
	var got struct {
		V      int
		Errors []struct{ Text, Hint string }
	}
	decode := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	if err := decode.Decode(&got); err != nil {
		ts.Fatalf("%v: standard output is no object: %v", args, err)
	}
	if _, err := decode.Token(); err != io.EOF || got.V != 1 || len(got.Errors) == 0 {
		ts.Fatalf("%v: want one object with errors", args)
	}
	for _, e := range got.Errors {
		for _, line := range []string{e.Text, "hint: " + e.Hint} {
			if line != "hint: " && !strings.Contains(ts.ReadFile("stderr"), "pccrun: "+line+"\n") {
				ts.Fatalf("%v: %q is not on standard error", args, line)
			}
		}
	}
}

// documented runs `fields VERB`: each field of the object that the program before has printed stands in
// the help of JSON, below the verb and not in parentheses.
func documented(ts *testscript.TestScript, neg bool, args []string) {
	words := map[string]bool{"v": true, "errors": true, "text": true, "hint": true, "source": true, "line": true, "key": true} // of every object, what went wrong, an origin
	_, fields, found := strings.Cut(page("json"), "\n\n"+strings.TrimPrefix(args[0], "pccrun ")+"\n")
	fields, _, _ = strings.Cut(fields, "\n\n")
	for _, word := range regexp.MustCompile(`[a-z_]+`).FindAllString(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(fields, ""), -1) {
		words[word] = true
	}
	var object any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &object); err != nil || !found {
		ts.Fatalf("fields %s: in the help %v; %v", args[0], found, err)
	}
	var look func(any)
	look = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, v := range value {
				look(v)
			}
		case map[string]any:
			for name, v := range value {
				if !words[name] {
					ts.Fatalf("help/json.txt: %s: no word of the field %q", args[0], name)
				}
				if _, ofUser := v.(map[string]any); name != "keys" || !ofUser {
					look(v)
				}
			}
		}
	}
	look(object)
}

// Every verb that has --json is tried with a mistake in json.txtar.
func TestJSONMistakes(t *testing.T) {
	script, err := os.ReadFile("testdata/json.txtar")
	require.NoError(t, err)
	for _, v := range verbs() {
		if slices.Contains(verbFlags(v), "--json") || strings.Contains(v.help(), "[--json]") {
			require.Regexp(t, `(?m)^(errors 125|refused|fails|! exec) pccrun `+v.name+` .*--json`, string(script))
		}
	}
}

func TestEachFlagReachesTheRequest(t *testing.T) {
	for _, d := range runFlags(&profiles.Request{}) {
		args := []string{d.name}
		if !d.isSwitch() {
			value := map[string]string{"--pass-fd": "3", "--provider": "native", "--keep": "1h", "--history": "1", "--budget": "2"}[d.name]
			if value == "" {
				value = "x"
			}
			args = append(args, value)
		}
		args = append(args, map[string][]string{"--json": {"--dry-run"}, "-t": {"--detach"}}[d.name]...)
		req, code := runRequest(append(args, "--", "true"))
		require.NotNil(t, req, "%s: exit %d", d.name, code)
		req.Host = profiles.Host{}
		require.NotEqual(t, profiles.Request{Command: []string{"true"}}, *req, d.name)
		require.NotEmpty(t, d.line, d.name)
		require.Equal(t, !d.isSwitch(), d.arg != "", d.name)
	}
}

// The manual is set by hand, and forgets no verb and no flag.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/man/pccrun.1")
	require.NoError(t, err)
	for _, v := range verbs() {
		require.True(t, strings.Contains(string(text), "\n.It Cm "+v.name+"\n"), "docs/man/pccrun.1 does not describe %s", v.name)
		require.NotEmpty(t, v.help(), v.name)
	}
	for _, d := range runFlags(&profiles.Request{}) {
		entry := regexp.MustCompile(`(?m)^\.It Fl ` + d.name[1:] + `( |$)`)
		require.True(t, entry.Match(text), "docs/man/pccrun.1 does not describe %s", d.name)
	}
	known := map[string]bool{}
	for _, v := range verbs() {
		for _, name := range verbFlags(v) {
			known[name] = true
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:\.It )?\.?Fl (-[a-z0-9-]+)`).FindAllStringSubmatch(string(text), -1) {
		require.True(t, known["-"+m[1]], "docs/man/pccrun.1 names -%s, which no verb has", m[1])
	}
}

func TestSplitTarget(t *testing.T) {
	for text, want := range map[string]struct {
		host string
		port uint16
	}{
		"a.example": {"a.example", 443}, "a.example:22": {"a.example", 22}, "https://a.example/x?y": {"a.example", 443}, "http://u:p@a.example:8080/": {"a.example", 8080},
		"http://a.example": {"a.example", 80}, "ssh://git@a.example/x": {"a.example", 22}, "[::1]:80": {"::1", 80}, "::1": {"::1", 443}, "[2001:db8::1]": {"2001:db8::1", 443},
		"192.0.2.1:80": {"192.0.2.1", 80}, "https://a.example#x@b.example": {"a.example", 443},
	} {
		host, port, err := splitTarget(text)
		require.NoError(t, err, text)
		require.Equal(t, want.host, host, text)
		require.Equal(t, want.port, port, text)
	}
	for _, bad := range []string{"", ":80", "a.example:", "a.example:0", "a.example:99999", "a.example:x", "https://", "gopher://a.example", "[::1", "[::1]x", "https:///x"} {
		_, _, err := splitTarget(bad)
		require.Error(t, err, bad)
	}
}

func FuzzSplitTarget(f *testing.F) {
	f.Add("https://u@a.example:1/x")
	f.Add("[::1]:80")
	f.Fuzz(func(t *testing.T, text string) {
		host, port, err := splitTarget(text)
		if err == nil {
			require.NotEmpty(t, host)
			require.NotZero(t, port)
		}
	})
}

func FuzzFlags(f *testing.F) {
	f.Add("--read", "x", "--", "true")
	f.Add("--memory=1g", "--nested", "-v", "--")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		words, rest, dashes, err := parse([]string{a, b, c, d}, runFlags(&profiles.Request{}))
		if err == nil && dashes {
			require.LessOrEqual(t, len(words)+len(rest), 3)
		}
	})
}

func TestJSON(t *testing.T) {
	got := string(events.Marshal(object{
		{"s", "a\"\\\x00\u009bé\xff"}, {"n", -1}, {"big", int64(1 << 60)}, {"yes", true}, {"no", nil},
		{"list", []string{"x"}}, {"none", []string(nil)}, {"objects", []object{{{"a", 1}}, {}}}, {"nothing", []object(nil)},
	}))
	require.JSONEq(t, `{"s": "a\"\\\u0000\u009bé�", "n": -1, "big": 1152921504606846976, "yes": true, "no": null,
		"list": ["x"], "none": [], "objects": [{"a": 1}, {}], "nothing": []}`, got)
	require.NotContains(t, got, "\u009b", "controls of 8 bits act on a terminal too")
}

func TestPrintable(t *testing.T) {
	require.Equal(t, "plain é", printable("plain é"))
	require.Equal(t, `a\nb\x1b[31m`, printable("a\nb\x1b[31m"))
	require.Equal(t, `bad\x9b31m`, printable("bad\x9b31m"), "no UTF-8, and a control of 8 bits")
	require.Equal(t, `a\u202eb`, printable("a\u202eb"), "text that turns around")
}
