//go:build linux

package escape

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// A step is something that the launcher does and that no flag takes away: the
// test takes it out of the source, and builds what is left.
type step struct {
	name  string
	cuts  []cut
	probe string
	quiet bool     // it measures processor time, which others must leave
	flags []string // of both launchers: what stands behind the step is switched off, or what it belongs to asked for
}

// A cut replaces text that stands once in a file of the module.
type cut struct{ file, old, new string }

// strict asks for what is hidden twice, and takes what hosts keep only weakly.
var strict = []string{"--strict", "--allow-missing", "fs.hide,fs.protect,fs.special,ipc.unix,info.host"}

var steps = []step{
	{name: "what is new and protected is quarantined", probe: "PER-006",
		cuts: []cut{{"run/guard_linux.go", "if g.standing == nil {\n\t\treturn nil\n\t}\n\tvar err error", "if g != nil {\n\t\treturn nil\n\t}\n\tvar err error"}}},
	{name: "a link on the way to a protected name is that name", probe: "PER-034",
		cuts: []cut{{"workspace/suspects_linux.go", "case h.Class == classWay && !inModules(d.Rel) && h.Name != last:", "case h.Class == classWay && h.Name == \"\":"}}},
	{name: "what may be written beside the workspace is looked through", probe: "PER-037",
		cuts: []cut{{"internal/survey/look_linux.go", "s.Trees = f.trees()", "s.Trees = f.trees()[:0]"}}},
	{name: "a copy takes what is written to an overlay", probe: "FS-042",
		cuts: []cut{{"namespaces/plan.go", "m.ReadOnly = Copy, p.Path, p.Dev, p.Ino, false", "m.ReadOnly = Bind, p.Path, p.Dev, p.Ino, false\n\t\t\tm.Tree = true"}}},
	{name: "programs that give rights are pinned", probe: "FS-062",
		cuts: []cut{{"internal/survey/set_id_programs_linux.go", "for _, root := range f.writable() {", "for _, root := range f.writable()[:0] {"}}},
	{name: "the sandbox dies with the launcher", probe: "NS-019",
		cuts: []cut{
			{"namespaces/common_setup_linux.go", "c.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_PDEATHSIG), inside.Int(int(unix.SIGKILL)))", ""},
			{"namespaces/inside/interpret.go", "exit(0) // the launcher is gone, and the death signal on its way", "sys(unix.SYS_SCHED_YIELD, 0, 0, 0, 0, 0, 0)"},
		}},
	{name: "the keeper covers what the host has replaced", probe: "FS-067",
		cuts: []cut{{"namespaces/remount_watcher_linux.go", "for i := 0; i < len(k.views); i++ {", "for i := 0; i < 0; i++ {"}}},
	{name: "the keeper pins what the host has replaced", probe: "PER-036",
		cuts: []cut{{"namespaces/remount_watcher_linux.go", "(m.Kind == Bind || m.Kind == PrivateCopy) && (m.Protect || m.ReadOnly):", "m.Kind == PrivateCopy && (m.Protect || m.ReadOnly):"}}},
	{name: "the remover removes what only root may", probe: "RES-017",
		cuts: []cut{{"namespaces/directory_remover_linux.go", "if dirs[i] >= 0 {", "if dirs[i] >= 1<<30 {"}}},
	{name: "private directories have a size", probe: "RES-005",
		cuts: []cut{{"namespaces/compile_linux.go", "if p.Disk == 0 {", "if p.Disk >= 0 {"}}},
	{name: "strict hides twice", probe: "FS-001", flags: append([]string{"--without", "hide"}, strict...),
		cuts: []cut{{"namespaces/build_linux.go", "Readable:    f.Readable,", "Readable:    f.Readable[:0],"}}},
	{name: "strict opens no hidden file", probe: "FS-051", flags: []string{"--without", "hide", "--strict", "--allow-missing", "fs.special,ipc.unix,info.host"},
		cuts: []cut{{"providers/native/broker_linux.go", "case g.hidden[id], g.hides(path) && !g.own[id]:", "case g.hidden[id] && g.hides(path) && g.own[id]:"}}},
	{name: "the broker forbids names", probe: "KS-033",
		cuts: []cut{{"providers/native/broker_linux.go", "return false // a private directory: nobody outside will look there\n\t\t\t}", "return false // a private directory: nobody outside will look there\n\t\t\t}\n\t\t\tif path != \"\" {\n\t\t\t\treturn false\n\t\t\t}"}}},
	{name: "a name is judged", probe: "NET-055",
		cuts: []cut{{"netproxy/rules/decide.go", "if v.Action == Deny {\n\t\tv.AllowWith = \"--allow \"", "if v.Action == Deny {\n\t\tv.Action = Allow\n\t}\n\tif v.Action == Deny {\n\t\tv.AllowWith = \"--allow \""}}},
	{name: "an address is judged after its name", probe: "NET-037",
		cuts: []cut{{"netproxy/rules/guard.go", "func guardOf(a netip.Addr) guard {", "func guardOf(a netip.Addr) guard {\n\tif a.IsValid() {\n\t\treturn guard{}\n\t}"}}},
	{name: "the name in a TLS greeting is held against the tunnel's", probe: "NET-024",
		cuts: []cut{{"netproxy/client_hello.go", "err = h.check(l.verdict.Host)", "err = h.check(h.name)"}}},
	{name: "the host of a captured request is held against the name", probe: "NET-058",
		cuts: []cut{{"netproxy/first_bytes.go", "n >= 0 && !namesHTTP(l.text)", "n >= 0 && namesHTTP(l.text)"}}},
	{name: "a secret stays outside", probe: "LCH-083",
		cuts: []cut{{"internal/egress/inspection.go", "inject.Env+\"=\"+secret.Placeholder", "inject.Env+\"=\"+secret.Value"}}},
	{name: "what is mounted is what was decided on", probe: "LCH-085",
		cuts: []cut{
			{"namespaces/compile_linux.go", "\t\tc.SameInode(fd, m.Dev, m.Ino)\n\t\tflags :=", "\t\tflags :="},
			{"namespaces/compile_linux.go", "\t\tc.SameInode(tree, m.Dev, m.Ino)\n\t\tc.sources[i]", "\t\tc.sources[i]"},
			{"namespaces/root_linux.go", "if survey.Device(st.Dev) != m.Dev || st.Ino != m.Ino {\n\t\treturn -1, unix.ESTALE", "if survey.Device(st.Dev) == 0 && st.Ino == 0 {\n\t\treturn -1, unix.ESTALE"},
		}},
	{name: "a file that is standard input is read in the command's place", probe: "LCH-018", flags: []string{"--without", "landlock"},
		cuts: []cut{{"namespaces/stdio_linux.go", "case unix.S_IFREG, unix.S_IFIFO:", "case unix.S_IFIFO:"}}},
	{name: "no directory is standard input", probe: "LCH-086",
		cuts: []cut{{"namespaces/stdio_linux.go", "\t\t\treturn nil, fmt.Errorf(\"%s: a directory would give the command access to all below it\", stdNames[fd])\n", ""}}},
	{name: "no socket of the host's network is standard input", probe: "NET-061",
		cuts: []cut{
			{"namespaces/stdio_linux.go", "fd == 0 && local(fd) && !same(", "fd == 0 && !same("},
			{"namespaces/inherited_sockets_linux.go", "if domain != unix.AF_UNIX {", "if domain < 0 {"},
		}},
	{name: "the host's later mounts stay outside", probe: "FS-066", flags: []string{"--without", "landlock"},
		cuts: []cut{{"namespaces/common_setup_linux.go", "inside.Int(unix.MS_REC|unix.MS_PRIVATE), inside.Int(0))", "inside.Int(unix.MS_REC|unix.MS_SLAVE), inside.Int(0))"}}},
	{name: "pid 1 has no memory of the launcher's arguments", probe: "LCH-005",
		cuts: []cut{{"namespaces/inside/life.go", "func advise(ranges []extent, advice int) error {", "func advise(ranges []extent, advice int) error {\n\tif len(ranges) > 0 {\n\t\treturn nil\n\t}"}}},
	{name: "a profile in the workspace only tightens", probe: "LCH-013",
		cuts: []cut{{"profiles/resolve.go", "tightening = append(tightening, own)", "b.apply(own)"}}},
	{name: "a repository that is new is inert outside", probe: "PER-014",
		cuts: []cut{{"workspace/new_repositories_linux.go", "if !list[i].Inert() || list[i].Places() {", "if list[i].Places() {"}}},
	{name: "a bound on processors", quiet: true, probe: "RES-020",
		cuts: []cut{
			{"namespaces/restrict_linux.go", "if len(p.CPUs) > 0 {", "if len(p.CPUs) > 1<<20 {"},
			{"cgroups/plan.go", "fmt.Sprintf(\"%d %d\", quota, period)", "fmt.Sprintf(\"max %d\", max(quota, period))"},
			{"cgroups/plan.go", "{File: \"cpu.cfs_quota_us\", Value: strconv.FormatInt(quota, 10)}", "{File: \"cpu.cfs_quota_us\", Value: strconv.FormatInt(min(quota, -1), 10)}"},
		}},
	{name: "a limit ends the run", probe: "RES-010",
		cuts: []cut{{"namespaces/inside/interpret.go", "s.until = clock(s) + s.deadline", "s.until = 0"}}},
	{name: "a bound on memory", probe: "RES-003",
		cuts: []cut{
			{"cgroups/plan.go", "{File: \"memory.max\", Value: strconv.FormatInt(n, 10)}", "{File: \"memory.max\", Value: \"max\"}"},
			{"cgroups/plan.go", "writes := []Write{{File: \"memory.limit_in_bytes\", Value: strconv.FormatInt(n, 10)}}\n\t\tif v.Swap {", "writes := []Write{{File: \"memory.limit_in_bytes\", Value: \"-1\"}}\n\t\tif v.Swap && n < 0 {"},
		}},
	{name: "the terminal is as it was", probe: "TTY-008",
		cuts: []cut{{"internal/terminal/relay_unix.go", "_ = setModes(r.o.Terminal, r.saved)", ""}}},
	{name: "the log follows no link", probe: "LCH-084",
		cuts: []cut{{"internal/events/target_unix.go", "os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK", "os.O_APPEND|unix.O_NONBLOCK"}}},
	{name: "trust is in a content", probe: "LCH-011",
		cuts: []cut{{"profiles/trust.go", "return err == nil && bytes.Equal(e.Content, content)", "return err == nil && (bytes.Equal(e.Content, content) || len(content) > 0)"}}},
}

// accounted says of each step in the table of system calls what shows that it is
// missed: a layer that TestMutations switches off, a row of steps, or, after "-",
// why there is nothing to be missed.
var accounted = map[string]string{
	`"bind the sandbox's life to the launcher's"`:  "the sandbox dies with the launcher",
	`"bind the name server's port in the sandbox"`: "- gives",
	`"bind the helper's life to the launcher's"`:   "- the helper mounts in a mount namespace that ends with the sandbox",
	`"bring the loopback up"`:                      "- gives",
	`"close /proc/1 to the sandbox"`:               "dumpable",
	`"close the launcher's descriptors"`:           "- the directory remover runs nothing of anybody's",
	`"close unneeded descriptors"`:                 "- the helper runs nothing of anybody's",
	`"cover " + m.path`:                            "the keeper covers what the host has replaced",
	`"cover " + path`:                              "proc-masks",
	`"enter " + p.Command.Dir`:                     "- gives",
	`"execute " + argv[0]`:                         "- gives",
	`"forbid new privileges"`:                      "no-new-privs",
	`"forbid user namespaces inside"`:              "userns-limit",
	`"fork the command"`:                           "- gives",
	`"drop all capabilities"`:                      "capabilities",
	`"pass descriptors to the launcher"`:           "- gives",
	`"install the filter " + string(f.layer`:       "seccomp",
	`"join a session keyring of its own"`:          "keyring",
	`"join the sandbox's namespaces"`:              "- gives",
	`"allow reading by Landlock: " + r.Path`:       "strict hides twice",
	`"limit " + r.Name`:                            "rlimits",
	`"limit inotify instances"`:                    "rlimits",
	`"limit processors"`:                           "a bound on processors",
	`"limit the size of private directories"`:      "private directories have a size",
	`"listen on " + at.String(`:                    "- gives",
	`"make " + path + " read-only"`:                "proc-masks",
	`"make /dev"`:                                  "- gives: without it there is no device",
	`"make a tmpfs for private directories"`:       "- gives",
	`"open a staging directory"`:                   "- gives: without it a directory under a protected name is gone for the command too",
	`"mount " + path + " again"`:                   "- gives: the same, for one directory",
	`"make the host's tree read-only"`:             "readonly",
	`"make the mounts private"`:                    "the host's later mounts stay outside",
	`"map user and group in the user namespace"`:   "- without it there is nobody to be",
	`"mount " + m.String(`:                         "hide",
	`"mount a tmpfs on /dev/shm"`:                  "- gives",
	`"mount devpts on /dev/pts"`:                   "- gives: in the sandbox's /dev there is no other",
	`"open " + m.Source`:                           "what is mounted is what was decided on",
	`"open a terminal"`:                            "terminal",
	`"open the sockets of the sandbox's network"`:  "- gives",
	`"pass descriptor " + strconv.Itoa(fd`:         "- gives, where the user asks for it",
	`"raise the OOM score"`:                        "- whom the kernel ends first cannot be tried on a machine that others use",
	`"remove " + path`:                             "the remover removes what only root may",
	`"reset signals"`:                              "- gives",
	`"restrict files with Landlock"`:               "landlock",
	`"set the host name"`:                          "utsns",
	`"set the standard descriptors"`:               "a file that is standard input is read in the command's place",
	`"start a process group"`:                      "- gives: Ctrl-C and Ctrl-Z",
	`"start a session"`:                            "- gives: the terminal of another command",
	`"wait for the end"`:                           "- order",
	`"wait for the launcher"`:                      "- order",
	`"wait for the plan"`:                          "- order",
	`"watch for children"`:                         "- gives",
	`StepClone`:                                    "pidns",
	`StepProc`:                                     "pidns",
	`StepSys`:                                      "netns",
	`overlayStep + m.Target`:                       "a copy takes what is written to an overlay",
	`stepWatch`:                                    "the broker forbids names",
}

// TestStepsAreComplete wants every step of the launcher's table to be accounted
// for: whoever adds one says what would miss it.
func TestStepsAreComplete(t *testing.T) {
	files, err := filepath.Glob("../../namespaces/*_linux.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	call := regexp.MustCompile(`\.Step\(([^)]*)\)`)
	found := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
			require.NotEmpty(t, accounted[m[1]], "%s: the step %s: what would miss it?", file, m[1])
		}
	}
	for name, by := range accounted {
		require.True(t, found[name], "%s: no such step", name)
		named := strings.HasPrefix(by, "- ") || slices.ContainsFunc(steps, func(s step) bool { return s.name == by }) ||
			slices.ContainsFunc(mutations, func(m mutation) bool { return slices.Contains(m.off, profiles.Layer(by)) })
		require.True(t, named, "%s: neither a layer nor a step: %s", name, by)
	}
	for _, s := range steps {
		require.NotNil(t, Find(s.probe), s.probe)
	}
}

// TestSteps takes steps out of the launcher, one at a time, and wants the
// suite to notice each.
//
//test:root
func TestSteps(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, whose go command builds")
	}
	needCage(t)
	home := worldReadable(t)
	whole := filepath.Join(home, "whole")
	require.NoError(t, place(testLauncher(t), whole))
	require.NoError(t, os.Chmod(whole, 0o755))
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	for i, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			mutated := filepath.Join(home, strconv.Itoa(i))
			buildWithout(t, root, s.cuts, mutated)
			if s.quiet && burn(2, 300*time.Millisecond) < 1.7 {
				t.Skip("needs a machine that is not busy")
			}
			notices(t, whole, mutated, s)
		})
	}
}

// notices wants a probe to be stopped by one launcher, and to escape the other.
func notices(t *testing.T, whole, mutated string, s step) {
	targets := []*Target{Native(whole, s.flags), Native(mutated, s.flags)}
	targets[1].Name = "mutated"
	wanted := func(p *Probe) bool { return p.ID == s.probe }
	var results []Result
	if s.quiet { // by turns: what one uses the other cannot
		results = append(run(t, targets[:1], wanted), run(t, targets[1:], wanted)...)
	} else {
		results = run(t, targets, wanted)
	}
	if results[0].Verdict == VerdictSkipped {
		t.Skip(results[0].Reason)
	}
	require.Contains(t, []Verdict{VerdictBlocked, VerdictDegraded}, results[0].Verdict, "whole: %s %s", results[0].Reason, results[0].Inside.Detail)
	require.Equal(t, VerdictEscaped, results[1].Verdict, "%s %s", results[1].Reason, results[1].Inside.Detail)
}

// TestCutsStand wants what the long tests cut to stand in the source.
func TestCutsStand(t *testing.T) {
	for _, s := range steps {
		for _, c := range s.cuts {
			text, err := os.ReadFile(filepath.Join("../..", c.file))
			require.NoError(t, err, s.name)
			require.Equal(t, 1, strings.Count(string(text), c.old), "%s: %s: the text to cut: %s", s.name, c.file, c.old)
		}
	}
}

// buildWithout builds the launcher from a source that is cut, and leaves the
// source as it is: go help build, -overlay.
func buildWithout(t *testing.T, root string, cuts []cut, out string) {
	dir := t.TempDir()
	replace := map[string]string{}
	for _, c := range cuts {
		path := filepath.Join(root, c.file)
		from := cmp.Or(replace[path], path) // a file may be cut more than once
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), c.old), "%s: the text to cut: %s", c.file, c.old)
		replace[path] = filepath.Join(dir, strings.ReplaceAll(c.file, "/", "-"))
		require.NoError(t, os.WriteFile(replace[path], []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o644))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644))
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", out, "./cmd/pccrun")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
}
