// Package programs finds the programs of this machine that pccrun itself executes, outside of any
// sandbox: package managers, git, docker, sudo, and what is to print a secret.
//
// It promises that no run decides what is executed. A program passes only if it, each link and
// directory on the way to it, what its #! line names, and what env(1) there finds lie in no tree
// that this or an earlier run could write, and no directory on the way can be written by everybody.
// Root executes only what root alone can change: the records of others are not root's to know. So does
// who has no home in the user database, and so no record that no variable leads away from.
// What is executed starts in the root directory, with a PATH of such directories and with variables
// from a list. The user's own directories pass, and group-writable ones. A program that the user
// trusts passes wherever it lies.
//
// The trees of earlier runs stand in a record in the home of the user database, which no variable
// leads away from. A program that the user trusts stands there with the hash of its content.
package programs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/shell"
)

// ErrNone is wrapped by the error for a name that no program has, and ErrSkipped where none of that name passes.
var (
	ErrNone    = errors.New("no such program")
	ErrSkipped = errors.New("skipped")
)

// A Finder finds programs for one user. The zero value knows no earlier run and no PATH.
type Finder struct {
	Home    string                 // in the user database, "" for a user whom it does not know
	Records []string               // the directories with the records: see [Records]
	Environ []string               // of the user
	Writes  func(path string) bool // whether the run at hand can write a path; nil: it writes nothing
	NoTrust bool                   // no record lies in a home of the user database: none trusts a program, and root's pass alone
	Note    func(text string)      // hears which program was skipped, and why; may be nil

	kept map[string][]byte // records as they were read before root was given up
}

// For returns a finder of the same user for a run that can write some paths.
func (f *Finder) For(writes func(path string) bool, note func(text string)) *Finder {
	g := *f
	g.Writes, g.Note = writes, note
	return &g
}

// A Program is one that passed.
type Program struct {
	Path string
	Env  []string // what it gets, sorted
}

// Command is a command of the program's, which starts in the root directory.
func (p *Program) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = "/", slices.Clone(p.Env), PipeDelay
	return cmd
}

// PipeDelay is how long a program that has ended is waited for on account of its pipes: a sandbox that is cloned meanwhile has
// copies of their ends, until it executes the command, for which it may have to wait as long.
const PipeDelay = time.Second

// Self is a path by which this program starts itself, whatever has come to where it lay.
func Self() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// Find returns the first program of PATH that passes, or that of an absolute path. more says which
// variables it gets beside those that each program gets; nil for none. The error says what mends it.
func (f *Finder) Find(name string, more func(variable string) bool) (*Program, error) {
	j, err := f.found()
	if err != nil {
		return nil, err
	}
	for _, path := range candidates(name, filepath.SplitList(variable(f.Environ, "PATH"))) {
		why := "PATH has its directory by a relative path"
		if filepath.IsAbs(path) {
			if why = j.fault(path, 0); why == "" {
				return &Program{path, j.environ(more)}, nil
			}
		}
		if f.Note != nil {
			f.Note("program " + path + " skipped: " + why)
		}
		mends := "pccrun trust --program " + shell.Quote(path) + " trusts its present content"
		if f.NoTrust {
			mends = "" // no trust can be recorded
		}
		if err == nil {
			err = hint.Errorf(mends, "%s: %s %w: %s", name, path, ErrSkipped, why)
		}
	}
	if err == nil {
		err = fmt.Errorf("%s: %w", name, ErrNone)
	}
	return nil, err
}

// candidates returns the programs of a name in some directories; a name with a slash is a path.
func candidates(name string, dirs []string) (paths []string) {
	if strings.Contains(name, "/") {
		dirs = []string{""}
	}
	for _, dir := range dirs {
		path := name
		if dir != "" {
			path = filepath.Join(dir, name)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			paths = append(paths, path)
		}
	}
	return paths
}

// Covers reports whether a path, or a link or directory on the way to it, lies where a run could write it,
// or would lie there.
func (f *Finder) Covers(path string) (bool, error) {
	at, err := f.Covered(path)
	return at != "", err
}

// Covered returns the first of some paths of which [Finder.Covers] holds, "" for none.
func (f *Finder) Covered(paths ...string) (string, error) {
	if len(paths) == 0 {
		return "", nil
	}
	j, err := f.judge()
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(paths, j.covers); i >= 0 {
		return cmp.Or(paths[i], "/"), nil
	}
	return "", nil
}

// A judge decides by what the records hold now.
type judge struct {
	*Finder
	record
	stands []fs.FileInfo // of the record's trees
	system uint32        // for root: whose the root directory is, which in a user namespace may be nobody's
	path   []string      // the directories of PATH that pass
}

func (f *Finder) judge() (*judge, error) {
	j := &judge{Finder: f}
	if info, err := os.Stat("/"); err == nil {
		j.system, _ = owner(info)
	}
	var trusted map[string]string
	for i, dir := range f.Records {
		text, err := read(dir)
		if was, ok := f.kept[dir]; ok && errors.Is(err, fs.ErrPermission) {
			text, err = was, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read which trees runs could write: %w", err)
		}
		j.add(text)
		if i == 0 && !f.NoTrust { // the others are where a variable says, which may be where a run could write
			trusted = j.trusted
		}
	}
	j.trusted = trusted
	for _, tree := range j.trees { // the same by another name: a bind mount, or another case
		if info, err := os.Stat(tree); err == nil {
			j.stands = append(j.stands, info)
		}
	}
	return j, nil
}

// found is [Finder.judge] for who looks for programs.
func (f *Finder) found() (*judge, error) {
	j, err := f.judge()
	if err != nil {
		return nil, err
	}
	for _, dir := range filepath.SplitList(variable(f.Environ, "PATH")) {
		if !filepath.IsAbs(dir) || slices.Contains(j.path, dir) {
			continue
		}
		if _, info, why := j.walk(dir, true); why == "" && info.IsDir() {
			j.path = append(j.path, dir)
		}
	}
	return j, nil
}

// by returns the tree of a run that a path lies in, "" for none.
func (j *judge) by(path string) string {
	for _, tree := range j.trees {
		if within(path, tree) {
			return tree
		}
	}
	if j.Writes != nil && j.Writes(path) {
		return path
	}
	return ""
}

func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// maxLinks bounds the links of a path, as the kernel does, and maxHops a chain of scripts.
const (
	maxLinks = 40
	maxHops  = 4
)

// covered begins why a way does not pass on which something lies in a covered tree.
const covered = "sandboxed commands can write "

// walk follows a path by its links, and returns what stands at its end, or why the way there
// does not pass. What everybody can write is no matter where private is not asked for.
func (j *judge) walk(path string, private bool) (real string, info fs.FileInfo, why string) {
	at, rest := "/", path
	for links := 0; ; {
		var err error
		if info, err = os.Lstat(at); err != nil {
			if tree := j.by(filepath.Join(at, rest)); tree != "" {
				return "", nil, covered + tree
			}
			return "", nil, err.Error()
		}
		if tree := j.by(at); tree != "" {
			return "", nil, covered + tree
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if strings.HasPrefix(at, "/proc/") && strings.Count(at, "/") > 2 { // into a sandbox, maybe: its text does not say, proc_pid_root(5)
				return "", nil, covered + at
			}
			text, err := os.Readlink(at)
			if links++; err != nil || links > maxLinks {
				return "", nil, at + ": not a link that can be followed"
			}
			if at = filepath.Dir(at); filepath.IsAbs(text) {
				at = "/"
			}
			rest = text + "/" + rest
		} else if private && info.Mode().Perm()&0o002 != 0 {
			return "", nil, "everybody can write " + at
		}
		if private && !j.roots(info) {
			if j.NoTrust {
				return "", nil, "who has no home in the user database executes only what root alone can change, and not " + at
			}
			return "", nil, "root executes only what root alone can change, and not " + at
		}
		if i := slices.IndexFunc(j.stands, func(tree fs.FileInfo) bool { return os.SameFile(tree, info) }); info.Mode()&fs.ModeSymlink == 0 && i >= 0 || len(j.inodes) > 0 && info.IsDir() && j.inodes[inode(at)] {
			return "", nil, covered + at
		}
		var name string
		for name == "" || name == "." {
			if rest == "" {
				return at, info, ""
			}
			name, rest, _ = strings.Cut(rest, "/")
		}
		at = filepath.Join(at, name)
	}
}

// roots reports whether root alone can change what stands at a place, for whom that matters.
func (j *judge) roots(info fs.FileInfo) bool {
	uid, gid := owner(info)
	return os.Geteuid() != 0 && !j.NoTrust || (uid == 0 || uid == j.system) && (info.Mode()&fs.ModeSymlink != 0 || info.Mode().Perm()&0o020 == 0 || gid == 0)
}

// fault says why a program does not pass, "" if it does.
func (j *judge) fault(path string, hops int) string {
	real, info, why := j.walk(path, true)
	if why != "" {
		var err error
		if real, err = filepath.EvalSymlinks(path); err != nil || !j.trusts(real) {
			return why
		}
	} else if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return "not a program"
	}
	words := firstLine(real)
	switch {
	case words == nil:
		return ""
	case hops == maxHops || len(words) == 0 || !filepath.IsAbs(words[0]):
		return "its #! line cannot be followed"
	}
	if why := j.fault(words[0], hops+1); why != "" {
		return "by its #! line: " + words[0] + ": " + why
	}
	for _, w := range words[1:] { // whatever the interpreter does with it
		path := w[max(strings.IndexByte(w, '/'), 0):]
		if j.leads(w) || j.leads(path) {
			return "by its #! line: " + w + ": " + covered + "it"
		}
		if _, err := os.Stat(path); err == nil && filepath.IsAbs(path) {
			if _, _, why := j.walk(path, true); why != "" {
				return "by its #! line: " + w + ": " + why
			}
		}
	}
	if real, err := filepath.EvalSymlinks(words[0]); err != nil || filepath.Base(words[0]) != "env" && filepath.Base(real) != "env" {
		return ""
	}
	name := envTarget(words[1:])
	if name == "" {
		return "its #! line cannot be followed"
	}
	for _, path := range candidates(name, j.path) {
		if why := j.fault(path, hops+1); why != "" || !filepath.IsAbs(path) {
			return "by its #! line: " + path + ": " + why
		}
		return ""
	}
	return "by its #! line: " + name + ": " + ErrNone.Error()
}

// firstLine returns the words of a file's #! line, nil where it has none: see execve(2). What cannot be
// read is no script that could be executed.
func firstLine(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head, _ := io.ReadAll(io.LimitReader(f, 512))
	line, is := strings.CutPrefix(string(head), "#!")
	if !is {
		return nil
	}
	line, _, _ = strings.Cut(line, "\n")
	return append([]string{}, strings.Fields(line)...)
}

// envTarget returns the name that env(1) is given to execute, "" where nobody knows: an option that
// is none of these may say anything.
func envTarget(words []string) string {
	for _, w := range words {
		if w = strings.TrimPrefix(w, "-S"); w == "" {
			continue
		}
		if strings.ContainsAny(w, "$\\'\"") { // which -S takes for more than itself
			return ""
		}
		if name, _, sets := strings.Cut(w, "="); strings.HasPrefix(w, "-") || sets && name == "PATH" {
			return ""
		} else if !sets {
			return w
		}
	}
	return ""
}

// hash is that of a file's content.
func hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", cmp.Or(err, fmt.Errorf("%s: not a regular file", path))
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}

func (j *judge) trusts(real string) bool {
	want := j.trusted[real]
	if want == "" {
		return false
	}
	have, err := hash(real)
	return err == nil && have == want
}

// passed are the variables that each program gets, if they are set: none names what is executed or
// loaded. A name that ends in _ stands for all that begin so.
var passed = [...]string{
	"HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_", "TZ", "TERM", "TMPDIR", "XDG_",
	"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "GNUPGHOME", "GPG_TTY",
}

// environ is what a program gets: what the user has set of the list and of more, where no value leads
// to what a run could write.
func (j *judge) environ(more func(string) bool) []string {
	env := []string{"PATH=" + strings.Join(j.path, string(filepath.ListSeparator)), "GOTOOLCHAIN=local", "PWD=/"}
	for _, e := range j.Environ {
		name, value, _ := strings.Cut(e, "=")
		listed := slices.ContainsFunc(passed[:], func(p string) bool {
			return name == p || strings.HasSuffix(p, "_") && strings.HasPrefix(name, p)
		})
		taken := slices.ContainsFunc(env, func(have string) bool { return strings.HasPrefix(have, name+"=") })
		if !taken && (listed || more != nil && more(name)) && !j.leads(value) && !expanded(value) {
			env = append(env, e)
		}
	}
	slices.Sort(env)
	return env
}

// leads reports whether a value, or a part of one that is a list, leads to what a run could write: as it
// is, or for a program that starts in the root directory.
func (j *judge) leads(value string) bool {
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(":,;= \"'[]{}()", r) })
	return slices.ContainsFunc(append(parts, value), func(part string) bool { return j.covers(filepath.Clean("/" + part)) })
}

// expanded reports whether a program may take a value for another than it is, as a shell does: npm(1) and asdf(1) do.
func expanded(value string) bool {
	return strings.ContainsAny(value, "$`") || slices.ContainsFunc(strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(":, ", r) }), func(part string) bool {
		return strings.HasPrefix(part, "~")
	})
}

// covers is [Finder.Covers].
func (j *judge) covers(path string) bool {
	_, _, why := j.walk(path, false)
	return strings.HasPrefix(why, covered)
}

// variable returns the first value of a variable, "" for none.
func variable(environ []string, name string) string {
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}
