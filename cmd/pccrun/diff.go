//go:build !launcher

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/leftovers"
)

// maxPatch is the size of a file beyond which a patch only says that it differs.
const maxPatch = 4 << 20

// differ prints changes.
type differ struct {
	*leftovers.Kept
	out     io.Writer
	shows   bool // to a terminal: controls are shown, not sent
	comment bool // what git apply would not take, nor anything beside it
	format  string
	plus    int
	minus   int
	paths   int
	objects []object
}

func diffVerb(args []string) int {
	session, format := "", "patch"
	var stat, names, asJSON, git bool
	words, err := options(args, flags{"--git": &git, "--stat": &stat, "--name-status": &names, "--json": &asJSON, "--session": &session})
	switch {
	case asJSON:
		format = "json"
	case names:
		format = "name-status"
	case stat:
		format = "stat"
	}
	if err != nil {
		return failSession(err)
	}
	c, err := leftovers.OpenChanges(session)
	if err != nil {
		return failSession(err)
	}
	defer c.Upper.Close()
	done := slow("comparing the changes with the host")
	sets, err := c.Upper.Changes()
	done()
	if err != nil {
		return failSession(err)
	}
	d := &differ{Kept: c, out: stdout, shows: isTerminal(os.Stdout), format: format}
	if c.Upper.Interrupted() {
		say("an apply was interrupted: pccrun apply finishes it, pccrun discard undoes it")
	}
	var lost []string
	for _, set := range sets {
		for _, name := range set.Lost {
			lost = append(lost, messages.Within(c.Entry.Workspace, filepath.Join(set.Root, name)))
		}
	}
	git = git || asJSON || slices.ContainsFunc(words, gitsOwn)
	folded, repositories := map[string]int{}, []string{}
	for _, last := range [...]bool{false, true} { // git's own last
		for i, set := range sets {
			for j := range set.Changes {
				change := &set.Changes[j]
				dir := gitDirectory(messages.Within(c.Entry.Workspace, filepath.Join(set.Root, change.Path)))
				if (dir != "" && !asJSON) != last || !selected(c.Paths(words), set.Root, change) {
					continue
				}
				d.paths++
				if dir != "" && !git && marks(change) == "" {
					if folded[dir]++; folded[dir] == 1 {
						repositories = append(repositories, dir)
					}
					continue
				}
				if err := d.print(i, set, j); err != nil {
					return failSession(err)
				}
			}
		}
	}
	for _, dir := range repositories {
		switch text := run.PathsChanged(folded[dir]) + ": pccrun diff --git shows them"; format {
		case "name-status":
			d.printf("M\t%s/\n", gitName(dir))
		case "stat":
			d.printf(" %s | %s\n", gitName(dir), text)
		default:
			d.printf("# %s: %s\n", gitName(dir), text)
		}
	}
	if len(words) > 0 && d.paths == 0 {
		say("no changes at that path")
	}
	switch format {
	case "json":
		printJSON(object{{"session", c.Entry.ID}, {"state", string(c.Entry.State)}, {"workspace", c.Entry.Workspace},
			{"interrupted", c.Upper.Interrupted()}, {"changes", d.objects}, {"lost", lost}})
		return 0
	case "stat":
		d.printf(" %s, %d insertions(+), %d deletions(-)\n", run.PathsChanged(d.paths), d.plus, d.minus)
	}
	for _, name := range lost {
		say(name + ": sockets, FIFOs and devices are not kept")
	}
	return 0
}

// selected reports whether one of the paths names a change, or holds it.
func selected(paths []string, root string, c *run.Change) bool {
	if len(paths) == 0 {
		return true
	}
	full := filepath.Join(root, c.Path)
	return slices.ContainsFunc(paths, func(p string) bool { return full == p || p == "/" || strings.HasPrefix(full, p+"/") })
}

func (d *differ) printf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if d.comment {
		var b strings.Builder
		for line := range strings.Lines(text) {
			b.WriteString("# " + line)
		}
		text = b.String()
	}
	if d.shows {
		text = plain(text, "\n\t") // a tab does no harm
	}
	io.WriteString(d.out, text)
}

func (d *differ) print(layer int, set *run.ChangeSet, i int) error {
	c := &set.Changes[i]
	name := messages.Within(d.Entry.Workspace, filepath.Join(set.Root, c.Path))
	switch d.format {
	case "json":
		d.objects = append(d.objects, changeObject(set.Root, c))
		return nil
	case "name-status":
		d.printf("%c\t%s\n", c.Op(), gitName(name))
		return nil
	}
	old, now, err := d.texts(layer, c)
	if err != nil {
		return err
	}
	_, plus, minus := patch(old, now)
	d.plus, d.minus = d.plus+plus, d.minus+minus
	if d.format == "stat" {
		note := marks(c)
		if binary(old) || binary(now) {
			d.printf(" %s | binary%s\n", gitName(name), note)
		} else {
			d.printf(" %s | +%d -%d%s\n", gitName(name), plus, minus, note)
		}
		return nil
	}
	if m := marks(c); m != "" {
		d.printf("# %s:%s\n", gitName(name), m)
	}
	if isDir(c.Before) || isDir(c.After) {
		d.directory(name, c)
		if !isFile(c.Before) && !isFile(c.After) {
			return nil
		}
	}
	d.comment = gitsOwn(name)
	defer func() { d.comment = false }()
	if isFile(c.Before) && isFile(c.After) && c.Before.Kind != c.After.Kind {
		// git has no word for a file that becomes a link: one goes, another comes.
		gone, come := *c, *c
		gone.After, come.Before = nil, nil
		d.text(name, &gone, old, nil)
		d.text(name, &come, nil, now)
		return nil
	}
	d.text(name, c, old, now)
	return nil
}

// gitsOwn reports whether a path is, or lies in, something named .git, in whatever case:
// git apply would refuse all of a patch that has one.
func gitsOwn(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(name string) bool { return strings.EqualFold(name, ".git") })
}

// gitDirectory is the .git directory that a path lies in, "" where it lies in none.
func gitDirectory(path string) string {
	names := strings.Split(path, "/")
	i := slices.IndexFunc(names, gitsOwn)
	if i < 0 || i == len(names)-1 {
		return ""
	}
	return strings.Join(names[:i+1], "/")
}

// text prints the patch of one file.
func (d *differ) text(name string, c *run.Change, old, now []byte) {
	d.header(name, c)
	body, _, _ := patch(old, now)
	switch {
	case len(body) == 0 && bytes.Equal(old, now):
	case binary(old) || binary(now):
		if isFile(c.Before) && isFile(c.After) && gitMode(c.Before) == gitMode(c.After) {
			// Without any line of its own git takes this heading for none.
			d.printf("old mode %s\nnew mode %s\n", gitMode(c.Before), gitMode(c.After))
		}
		d.printf("Binary files %s and %s differ\n", side("a/", name, c.Before), side("b/", name, c.After))
	default:
		d.printf("--- %s\n+++ %s\n%s", tabbed(side("a/", name, c.Before)), tabbed(side("b/", name, c.After)), body)
	}
}

// tabbed ends a name that has a space, as git does, so that patch(1) knows where
// it ends.
func tabbed(name string) string {
	if strings.Contains(name, " ") && !strings.HasPrefix(name, `"`) {
		return name + "\t"
	}
	return name
}

func isDir(e *run.ChangedEntry) bool  { return e != nil && e.Kind == run.ChangedDir }
func isFile(e *run.ChangedEntry) bool { return e != nil && e.Kind != run.ChangedDir }

// marks are what a reader must know of a change beside its text.
func marks(c *run.Change) string {
	text := ""
	if c.Conflict != "" {
		text += " conflict: " + c.Conflict
	}
	if c.Protect != "" {
		text += " protected: " + c.Protect
	}
	if c.Review {
		text += " review"
	}
	return text
}

// directory prints what git has no words for.
func (d *differ) directory(name string, c *run.Change) {
	what := fmt.Sprintf("mode %03o to %03o", modeOf(c.Before), modeOf(c.After))
	switch {
	case !isDir(c.Before):
		what = fmt.Sprintf("added, mode %03o", modeOf(c.After))
	case !isDir(c.After):
		what = "deleted"
	}
	d.printf("# directory %s: %s\n", gitName(name), what)
}

func modeOf(e *run.ChangedEntry) uint32 {
	if e == nil {
		return 0
	}
	return e.Mode
}

// gitMode is a mode as a patch has it.
func gitMode(e *run.ChangedEntry) string {
	if e.Kind == run.ChangedLink {
		return "120000"
	}
	return fmt.Sprintf("100%03o", e.Mode&0o777)
}

// header prints what a patch of git says before the text.
func (d *differ) header(name string, c *run.Change) {
	d.printf("diff --git %s %s\n", gitName("a/"+name), gitName("b/"+name))
	switch old, now := isFile(c.Before), isFile(c.After); {
	case !old:
		d.printf("new file mode %s\n", gitMode(c.After))
	case !now:
		d.printf("deleted file mode %s\n", gitMode(c.Before))
	case gitMode(c.Before) != gitMode(c.After):
		d.printf("old mode %s\nnew mode %s\n", gitMode(c.Before), gitMode(c.After))
	}
}

func side(prefix, name string, e *run.ChangedEntry) string {
	if !isFile(e) {
		return "/dev/null"
	}
	return gitName(prefix + name)
}

// texts returns both contents of a change; one that is too large counts as
// binary.
func (d *differ) texts(layer int, c *run.Change) (old, now []byte, err error) {
	if large(c.Before) && large(c.After) {
		same := c.Before.Size == c.After.Size
		if same {
			same, err = d.same(layer, c.Path)
		}
		if same {
			return nil, nil, err
		}
		return []byte{0}, []byte{0, 0}, err
	}
	read := func(e *run.ChangedEntry, after bool) ([]byte, error) {
		switch {
		case e == nil || e.Kind == run.ChangedDir:
			return nil, nil
		case e.Kind == run.ChangedLink:
			return []byte(e.Target), nil
		case large(e):
			return []byte{0}, nil
		}
		f, err := d.Upper.Open(layer, c.Path, after)
		if !after && errors.Is(err, fs.ErrPermission) {
			return []byte{0}, nil // closed to us: nothing that could be shown
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxPatch+1))
	}
	if old, err = read(c.Before, false); err == nil {
		now, err = read(c.After, true)
	}
	return old, now, err
}

// large reports whether a file is too large to be shown.
func large(e *run.ChangedEntry) bool {
	return e != nil && e.Kind == run.ChangedFile && e.Size > maxPatch
}

// same reports whether both contents of a path are the same.
func (d *differ) same(layer int, path string) (bool, error) {
	var sides [2]*os.File
	for i, after := range [...]bool{false, true} {
		f, err := d.Upper.Open(layer, path, after)
		if !after && errors.Is(err, fs.ErrPermission) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		defer f.Close()
		sides[i] = f
	}
	return run.Equal(sides[0], sides[1])
}

// binary tells as git does: by a NUL near the beginning.
func binary(text []byte) bool { return bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 }

// patch returns the hunks, and how many lines they add and remove.
func patch(old, now []byte) (body []byte, plus, minus int) {
	if binary(old) || binary(now) {
		return nil, 0, 0
	}
	body = diff.Diff("", old, "", now)
	for range 3 { // its own heading
		_, body, _ = bytes.Cut(body, []byte("\n"))
	}
	for line := range bytes.Lines(body) {
		switch line[0] {
		case '+':
			plus++
		case '-':
			minus++
		}
	}
	return body, plus, minus
}

// gitName writes a name as git does: quoted, with octal escapes, if it has
// controls, quotes or backslashes.
func gitName(s string) string {
	odd := func(b byte) bool { return b < ' ' || b == 0x7f || b == '"' || b == '\\' }
	quoted := false
	for i := range len(s) {
		quoted = quoted || odd(s[i])
	}
	if !quoted {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case odd(c):
			b.WriteString("\\" + fmt.Sprintf("%03s", strconv.FormatUint(uint64(c), 8)))
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

// changeObject is a change as --json shows it.
func changeObject(root string, c *run.Change) object {
	entry := func(e *run.ChangedEntry) any {
		if e == nil {
			return nil
		}
		o := object{{"kind", e.Kind.String()}, {"mode", fmt.Sprintf("%04o", e.Mode)}}
		if e.Kind == run.ChangedFile {
			o = append(o, field{"size", e.Size})
		}
		if e.Kind == run.ChangedLink {
			o = append(o, field{"target", e.Target})
		}
		return o
	}
	o := object{{"op", string(rune(c.Op()))}}
	path := filepath.Join(root, c.Path)
	o = append(o, field{"path", path})
	if !utf8.ValidString(path) { // JSON has no word for such a name
		o = append(o, field{"path_hex", fmt.Sprintf("%x", path)})
	}
	o = append(o, field{"before", entry(c.Before)}, field{"after", entry(c.After)})
	if c.Conflict != "" {
		o = append(o, field{"conflict", c.Conflict})
	}
	if c.Protect != "" {
		o = append(o, field{"protect", c.Protect})
	}
	return append(o, field{"review", c.Review})
}
