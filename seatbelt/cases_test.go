package seatbelt

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/sbpl"
)

// words are the operations as tables write them.
var words = map[string]string{
	"read": "file-read-data", "stat": "file-read-metadata", "xattrs": "file-write-xattr", "xattr": "file-read-xattr",
	"exists": "file-test-existence", "write": "file-write-data", "create": "file-write-create",
	"remove": "file-write-unlink", "chmod": "file-write-mode", "setid": "file-write-setugid", "link": "file-link",
	"clone": "file-clone", "map": "file-map-executable", "ioctl": "file-ioctl",
	"mknod": "file-mknod", "mount": "file-mount", "exec": "process-exec", "connect": "network-outbound",
	"listen": "network-inbound", "socket": "network-outbound", "bind": "network-bind",
	"domain": "system-socket", "signal": "signal", "ps": "process-info-pidinfo", "task": "mach-priv-task-port",
	"fork": "process-fork", "pty": "pseudo-tty", "sem": "ipc-posix-sem",
	"shm": "ipc-posix-shm-write-create", "shm-read": "ipc-posix-shm-read-data", "shm-write": "ipc-posix-shm-write-data",
	"shm-unlink": "ipc-posix-shm-write-unlink", "sysv": "ipc-sysv-shm", "launch": "job-creation", "appleevent": "appleevent-send",
	"lookup": "mach-lookup", "register": "mach-register",
	"sysctl": "sysctl-read", "sysctl-set": "sysctl-write", "iokit": "iokit-open",
}

// A tableCase is a target of a line of a table.
type tableCase struct {
	where   string
	macOnly bool // Linux says nothing of it, or otherwise
	allowed bool
	word    string
	target  sbpl.Target
}

// tables are those that hold of a built-in profile.
func tables(profile string) []string {
	list := []string{"common"}
	switch profile {
	case "default", "offline":
		return append(list, "offline")
	case "protect-more":
		return append(list, "offline", profile)
	case "strict":
		return append(list, "offline", "protect-more", profile)
	case "build", "agent":
		return append(list, "offline", "build")
	}
	return append(list, "proxy", "build", profile)
}

func cases(t testing.TB, profile string) (list []tableCase) {
	for _, name := range tables(profile) {
		file := filepath.Join("testdata/cases", name+".txt")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			fields := strings.Fields(line)
			if len(fields) == 0 || fields[0] == "#" {
				continue
			}
			c := tableCase{where: fmt.Sprintf("%s:%d: %s", file, i+1, line)}
			if c.macOnly = fields[0] == "mac"; c.macOnly {
				fields = fields[1:]
			}
			require.Contains(t, []string{"allow", "deny"}, fields[0], c.where)
			require.Contains(t, words, fields[1], c.where)
			c.allowed, c.word = fields[0] == "allow", fields[1]
			for _, text := range fields[2:] {
				c.target = target(t, c.word, text)
				list = append(list, c)
			}
		}
	}
	return list
}

// target reads the target of an operation.
func target(t testing.TB, word, text string) sbpl.Target {
	own := Example(testHome)
	for _, dir := range [...][2]string{{"~", testHome}, {".", testWorkspace}, {"@home", own.Home}, {"@tmp", own.Temp}} {
		if text == dir[0] || strings.HasPrefix(text, dir[0]+"/") {
			text = dir[1] + text[len(dir[0]):]
		}
	}
	switch sbpl.KindOf(words[word]) {
	case sbpl.OnFile:
		path, lent := strings.CutSuffix(text, "+pty")
		if lent {
			return sbpl.Target{Path: path, Extension: "com.apple.sandbox.pty"}
		}
		return sbpl.Target{Path: path}
	case sbpl.OnNetwork:
		if strings.HasPrefix(text, "/") {
			return sbpl.Target{Path: text}
		}
		i := strings.LastIndexByte(text, ':')
		port, err := strconv.ParseUint(text[i+1:], 10, 16)
		require.NoError(t, err, text)
		return sbpl.Address(text[:i], uint16(port))
	case sbpl.OnProcess:
		return sbpl.Target{Process: text}
	case sbpl.OnSocket:
		return sbpl.Target{Domain: text}
	}
	return sbpl.Target{Name: text}
}

func TestCases(t *testing.T) {
	for _, name := range profiles.Builtin() {
		t.Run(name, func(t *testing.T) {
			p := policy(t, name, nil)
			rules := rulesOf(t, p, Example(testHome))
			list := cases(t, name)
			want := 60
			if name == "claude" {
				want = 300
			}
			require.GreaterOrEqual(t, len(list), want)
			compared := 0
			for _, c := range list {
				v, err := sbpl.Evaluate(rules, words[c.word], c.target)
				if !assert.NoError(t, err, "%s %+v", c.where, c.target) {
					continue
				}
				assert.Equal(t, c.allowed, v.Allowed, "%s %+v: line %d", c.where, c.target, v.Line)
				if !c.macOnly {
					assert.Equal(t, linux(p, c.word, c.target.Path), v.Allowed, "Linux: %s %+v", c.where, c.target)
					compared++
				}
			}
			assert.Greater(t, compared, 60)
			t.Logf("%d cases, %d of them compared with the Linux answer", len(list), compared)
		})
	}
}

// linux is the answer of `pccrun why` on Linux: by the functions that enforce it there.
func linux(p *profiles.Policy, word, path string) bool {
	access := p.Decide(path).Access
	if word != "write" {
		return access >= profiles.Read
	}
	r, protected := p.ProtectedAnywhere(path)
	return access == profiles.Write && (!protected || r.Review)
}

func rulesOf(t testing.TB, p *profiles.Policy, s Survey) *sbpl.Rules {
	d, err := Profile(p, s)
	require.NoError(t, err)
	rules, err := parse(d)
	require.NoError(t, err)
	return rules
}

// parse reads a profile as Seatbelt would.
func parse(d Document) (*sbpl.Rules, error) { return sbpl.Parse(d.Text, params(d)) }

func params(d Document) (list []sbpl.Param) {
	for _, p := range d.Params {
		list = append(list, sbpl.Param(p))
	}
	return list
}

// TestEveryFilterCounts drops each rule, and each filter of one that has others, from
// the text: some case has to change.
func TestEveryFilterCounts(t *testing.T) {
	p := policy(t, "claude", func(r *profiles.Request) {
		r.Local, r.Publish, r.Sockets = []string{"localhost:5433"}, []string{"3001"}, []string{"/opt/db/.s.PGSQL.5432"}
		r.Files = []profiles.FileFlag{{Path: testWorkspace + "/data/secret", Access: profiles.Hide}}
		r.Protect = []string{"scripts/deploy.sh"}
	})
	d, err := Profile(p, Example(testHome))
	require.NoError(t, err)
	list := cases(t, "claude")
	for _, more := range []struct {
		allowed    bool
		word, text string
	}{
		{true, "connect", "localhost:5433"}, {true, "listen", "localhost:3001"}, {true, "bind", "127.0.0.1:3001"},
		{true, "socket", "/opt/db/.s.PGSQL.5432"}, {false, "read", "./data/secret"}, {false, "write", "./data/secret"},
		{false, "remove", "./data"}, {false, "write", "./scripts/deploy.sh"}, {false, "remove", "./scripts"},
		{true, "write", "./scripts/other.sh"}, {true, "remove", "./data/other"},
	} {
		list = append(list, tableCase{where: more.text, allowed: more.allowed, word: more.word,
			target: target(t, more.word, more.text)})
	}
	forms, err := sbpl.Read(d.Text)
	require.NoError(t, err)
	holds := func(forms []sbpl.Form) bool {
		rules, err := sbpl.Compile(forms, params(d))
		require.NoError(t, err)
		for _, c := range list {
			if v, err := sbpl.Evaluate(rules, words[c.word], c.target); err != nil || v.Allowed != c.allowed {
				return false
			}
		}
		return true
	}
	require.True(t, holds(forms), "the control")
	doubled := []string{`(subpath "/")`} // says no less than nothing
	dropped := 0
	drop := func(changed []sbpl.Form, line int) {
		if slices.Contains(doubled, withValues(d, line)) {
			return
		}
		dropped++
		assert.False(t, holds(changed), "without line %d all is as before: %s", line, strings.Split(d.Text, "\n")[line-1])
	}
	for i := 2; i < len(forms); i++ {
		drop(slices.Delete(slices.Clone(forms), i, i+1), forms[i].Line)
		with := func(changed sbpl.Form) []sbpl.Form {
			all := slices.Clone(forms)
			all[i] = changed
			return all
		}
		eachDropped(forms[i], func(changed sbpl.Form, line int) { drop(with(changed), line) })
	}
	t.Logf("%d rules and filters dropped", dropped)
	assert.Greater(t, dropped, 150)
}

// withValues returns a line of the text, with the values of parameters in it.
func withValues(d Document, line int) string {
	text := strings.TrimSpace(strings.Split(d.Text, "\n")[line-1])
	for _, p := range d.Params {
		text = strings.ReplaceAll(text, `(param "`+p.Name+`")`, `"`+strings.Replace(p.Value, testHome, "~", 1)+`"`)
	}
	return text
}

// eachDropped calls f with a rule without one of its filters. That a path is a
// literal and a subpath counts as one.
func eachDropped(n sbpl.Form, f func(changed sbpl.Form, line int)) {
	for i := range n.List {
		item := n.List[i]
		head := item.Head()
		if head == "" || head == "param" || n.Head() == "local" || n.Head() == "remote" || n.Head() == "require-not" {
			continue
		}
		without := func() (sbpl.Form, bool) {
			changed := n
			changed.List = slices.DeleteFunc(slices.Clone(n.List), func(other sbpl.Form) bool { return samePath(other, item) })
			return changed, len(changed.List) > 1 && slices.ContainsFunc(changed.List,
				func(left sbpl.Form) bool { return left.Kind == '(' })
		}
		if changed, ok := without(); ok {
			f(changed, item.Line)
		}
		if strings.HasPrefix(head, "require-") {
			eachDropped(item, func(inner sbpl.Form, line int) {
				changed := n
				changed.List = slices.Clone(n.List)
				changed.List[i] = inner
				f(changed, line)
			})
		}
	}
}

// samePath reports whether two filters are the same, or say literal and subpath of one path.
func samePath(a, b sbpl.Form) bool {
	return strings.Replace(show(a), "literal", "subpath", 1) == strings.Replace(show(b), "literal", "subpath", 1)
}

func show(n sbpl.Form) string {
	if n.Kind != '(' {
		return string(n.Kind) + n.Text
	}
	var b strings.Builder
	for _, item := range n.List {
		b.WriteString(" " + show(item))
	}
	return "(" + b.String() + ")"
}

// TestEveryRuleCounts drops each rule of each built-in profile's text: some case has to change.
func TestEveryRuleCounts(t *testing.T) {
	for _, name := range profiles.Builtin() {
		t.Run(name, func(t *testing.T) {
			d, err := Profile(policy(t, name, nil), Example(testHome))
			require.NoError(t, err)
			list := cases(t, name)
			forms, err := sbpl.Read(d.Text)
			require.NoError(t, err)
			holds := func(forms []sbpl.Form) bool {
				rules, err := sbpl.Compile(forms, params(d))
				require.NoError(t, err)
				return !slices.ContainsFunc(list, func(c tableCase) bool {
					v, err := sbpl.Evaluate(rules, words[c.word], c.target)
					return err != nil || v.Allowed != c.allowed
				})
			}
			require.True(t, holds(forms), "the control")
			for i := 2; i < len(forms); i++ {
				assert.False(t, holds(slices.Delete(slices.Clone(forms), i, i+1)), "without line %d all is as before: %s", forms[i].Line, strings.Split(d.Text, "\n")[forms[i].Line-1])
			}
			t.Logf("%d rules dropped, %d cases", len(forms)-2, len(list))
		})
	}
}

// TestNothingStartsOutside asks for what starts, changes or shows something outside of a sandbox. The
// control is a profile that allows it.
func TestNothingStartsOutside(t *testing.T) {
	operations := strings.Fields("appleevent-send authorization-right-obtain device-camera device-microphone " +
		"distributed-notification-post file-issue-extension hid-control iokit-set-properties job-creation lsopen " +
		"mach-issue-extension nvram-set system-debug system-fsctl system-kext-load system-set-time " +
		"user-preference-read user-preference-write")
	for _, op := range operations {
		open, err := sbpl.Parse("(version 1)\n(deny default)\n(allow "+op+")", nil)
		require.NoError(t, err, op)
		at := sbpl.Target{Path: "/x", Name: "x"}
		v, err := sbpl.Evaluate(open, op, at)
		require.NoError(t, err)
		require.True(t, v.Allowed, op)
		for _, name := range profiles.Builtin() {
			v, err := sbpl.Evaluate(rulesOf(t, policy(t, name, nil), Example(testHome)), op, at)
			require.NoError(t, err)
			assert.False(t, v.Allowed, "%s of %s: line %d", op, name, v.Line)
		}
	}
}

// TestTerminal gives a command without a terminal none: the /dev/tty of its session is the user's.
func TestTerminal(t *testing.T) {
	for terminal, allowed := range map[string]bool{"": false, "/dev/ttys042": true} {
		s := Example(testHome)
		s.Terminal = terminal
		rules := rulesOf(t, policy(t, "claude", nil), s)
		for _, op := range []string{"file-read-data", "file-write-data", "file-ioctl"} {
			v, err := sbpl.Evaluate(rules, op, sbpl.Target{Path: "/dev/tty"})
			require.NoError(t, err)
			assert.Equal(t, allowed, v.Allowed, "%s with the terminal %q", op, terminal)
		}
	}
}

// TestOrderSaysNothing shuffles the rules that allow something: all cases hold.
func TestOrderSaysNothing(t *testing.T) {
	rules := rulesOf(t, policy(t, "claude", nil), Example(testHome))
	last := 0
	for i, r := range rules.List {
		if r.Allow {
			require.Equal(t, last, i, "a rule that denies stands before one that allows")
			last = i + 1
		}
	}
	require.Less(t, last, len(rules.List))
	random := rand.New(rand.NewPCG(41, 41))
	for range 5 {
		random.Shuffle(last, func(i, j int) { rules.List[i], rules.List[j] = rules.List[j], rules.List[i] })
		random.Shuffle(len(rules.List)-last, func(i, j int) {
			rules.List[last+i], rules.List[last+j] = rules.List[last+j], rules.List[last+i]
		})
		for _, c := range cases(t, "claude") {
			v, err := sbpl.Evaluate(rules, words[c.word], c.target)
			require.NoError(t, err)
			require.Equal(t, c.allowed, v.Allowed, c.where)
		}
	}
}
