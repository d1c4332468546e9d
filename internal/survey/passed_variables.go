package survey

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/gitconfig"
)

// free reports whether no rule says anything of a variable.
func free(p *profiles.Policy, name string) bool {
	return p.DecideEnv(name).Action == profiles.EnvScrubbed &&
		!slices.ContainsFunc(p.Environment.Scrub, func(r profiles.EnvRule) bool { return r.Matches(name) })
}

// options are variables with options of an interpreter or a build tool, some of which name files: an editor's terminal, say,
// sets NODE_OPTIONS to a file of its own, without which node does not start.
var options = [...]string{
	"NODE_OPTIONS", "RUBYOPT", "PERL5OPT", "LD_PRELOAD", "JAVA_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "MAVEN_OPTS", "MAVEN_ARGS", "GRADLE_OPTS", "SBT_OPTS", "JVM_OPTS",
}

// placed passes the variables that say where programs are and what they load, where the command can read all that
// they name.
func (o *Options) placed(p *profiles.Policy, readable func(path string) bool) (env []Variable) {
	add := func(name string, split func(value string) []string) {
		value := o.Getenv(name)
		if value == "" || !free(p, name) {
			return
		}
		if !slices.ContainsFunc(split(value), func(path string) bool { return !readable(path) }) {
			env = append(env, Variable{name + "=" + value, "all that it names can be read"})
		}
	}
	for _, name := range PlaceVariables() {
		add(name, filepath.SplitList)
	}
	for _, name := range options {
		if !gitconfig.Secret(o.Getenv(name)) {
			add(name, func(value string) (paths []string) {
				for _, word := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t\"'=:,;", r) }) {
					if word[0] == '-' { // -r/PATH
						word = word[max(strings.IndexByte(word, '/'), 0):]
					}
					paths = append(paths, word)
				}
				return paths
			})
		}
	}
	return env
}

// ofHooks passes what git says to its hooks of a repository that the command sees: githooks(5), git(1).
func (o *Options) ofHooks(p *profiles.Policy, readable func(path string) bool) (env []Variable) {
	const why = "git says it to its hooks, of a repository that is shown"
	for _, name := range [...]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} {
		value := o.Getenv(name)
		path := value
		if !filepath.IsAbs(path) {
			path = p.WorkDir + "/" + path
		}
		if value != "" && free(p, name) && nodeAt(path) != Absent && readable(path) {
			env = append(env, Variable{name + "=" + value, why})
		}
	}
	if value := o.Getenv("GIT_PREFIX"); len(env) > 0 && value != "" && free(p, "GIT_PREFIX") {
		env = append(env, Variable{"GIT_PREFIX=" + value, why})
	}
	return env
}

// ciFiles are the files that a CI gives a step to write, of which none is executed: what a variable names in another
// directory is the user's to show.
// https://docs.github.com/actions/reference/workflow-commands-for-github-actions#environment-files
const ciFiles = "_runner_file_commands"

// ofCI passes the files for outputs and summary of a step, and says what else there is.
func (o *Options) ofCI(p *profiles.Policy, give func(path string, access profiles.Access, why string)) (env []Variable, notes []string) {
	for _, name := range [...]string{"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"} {
		path := o.Getenv(name)
		if path == "" || !free(p, name) {
			continue
		}
		if !filepath.IsAbs(path) || filepath.Base(filepath.Dir(path)) != ciFiles || profiles.Physical(path) != path || nodeAt(path) != File || !ByDefault(p, path) {
			notes = append(notes, name+" is not passed: it names "+path+" (to allow: --env "+name+" --write "+shell.Quote(path)+")")
			continue
		}
		const why = "the output of this step of a CI"
		give(path, profiles.Write, why)
		env = append(env, Variable{name + "=" + path, why})
	}
	var held []string
	for _, name := range [...]string{"GITHUB_ENV", "GITHUB_PATH"} {
		if o.Getenv(name) != "" && free(p, name) {
			held = append(held, name)
		}
	}
	if len(held) > 0 {
		notes = append(notes, "not passed: "+strings.Join(held, " and ")+": later steps outside of the sandbox would execute what the command writes there")
	}
	if fd := o.Getenv("NODE_CHANNEL_FD"); fd != "" && free(p, "NODE_CHANNEL_FD") {
		notes = append(notes, "NODE_CHANNEL_FD is not passed: messages to the parent process of Node.js go nowhere (to allow: --env NODE_CHANNEL_FD --pass-fd "+fd+")")
	}
	return env, notes
}

// namedSockets passes the variables that name a socket which is shown: SSH_AUTH_SOCK is one,
// DOCKER_HOST another.
func (o *Options) namedSockets(p *profiles.Policy) (env []Variable) {
	for _, entry := range o.Environ {
		name, value, _ := strings.Cut(entry, "=")
		path := strings.TrimPrefix(value, "unix://")
		if !filepath.IsAbs(path) || !free(p, name) {
			continue
		}
		for _, s := range p.Network.Sockets {
			if s.At == "" && sameFile(path, s.Path) {
				env = append(env, Variable{entry, "it names a socket that is shown (" + s.Origin.String() + ")"})
				break
			}
		}
	}
	return env
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, e := os.Stat(b)
	return err == nil && e == nil && os.SameFile(x, y)
}

// holds reports whether a file is one of no more than a megabyte or so, and its content is
// what is says.
func holds(path string, is func(text []byte) bool) bool {
	text, err := profiles.ReadFile(path)
	return err == nil && is(text)
}

// isCertificates reports whether a text has certificates in it, and no key.
func isCertificates(text []byte) bool {
	return bytes.Contains(text, []byte("CERTIFICATE-----")) && !bytes.Contains(text, []byte("PRIVATE KEY"))
}

// nodeAt says what stands at a path, itself.
func nodeAt(path string) Node {
	info, err := os.Lstat(path)
	if err != nil {
		return Absent
	}
	return NodeOfType(info.Mode())
}

// NodeOfType returns what a mode of package fs is of.
func NodeOfType(mode fs.FileMode) Node {
	switch mode.Type() {
	case 0:
		return File
	case fs.ModeDir:
		return Directory
	case fs.ModeSymlink:
		return Link
	}
	return Special
}
