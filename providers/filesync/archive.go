package filesync

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/workspace"
)

// Down says how an archive comes down.
type Down struct {
	Limits Limits
	// Protect says why a host tool would execute what is at a path, "" if none would. What is
	// protected is held back unless it is named in Accept, itself or by what protects it.
	Protect func(rel string, isLink bool) string
	Accept  []string
	// Asked are the paths that were asked for; any other member is refused. Nil: all may come.
	Asked map[string]bool
	// Trust takes an archive that this user made of files of his own, or whose files an apply judges:
	// nothing is protected then, nor a repository without a .git around it. All else holds.
	Trust    bool
	Progress func(files int, bytes int64)
}

// A RefusedError says which member ended an extraction. Nothing of the archive is left.
type RefusedError struct {
	Member string
	Why    string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("refused %q: %s", e.Member, e.Why) }

// A Withheld is a member that was not extracted, because a host tool would execute it.
type Withheld struct{ Path, Why string }

// A member is one entry of an archive, judged.
type member struct {
	path     string // "." for the top
	kind     workspace.Kind
	mode     uint32
	size     int64
	mtime    time.Time
	target   string // of a link
	hard     string // the earlier member that it is another name of
	implicit bool   // a directory that nothing but what is in it tells of
}

// An archive judges the members of a tar as they come. It makes no file.
type archive struct {
	down     *Down
	members  map[string]*member
	keys     map[string]string // paths by [FoldKey]
	withheld []Withheld
	names    int
	bytes    int64
	came     int64 // of all tars, with what is no content
}

// A tail notices whether there was an end before the archive said so, and reads no more than an archive can have that
// keeps to its limits, however few bytes that was unfolded from.
type tail struct {
	r     *bufio.Reader
	of    *archive
	ended bool
}

func (t *tail) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.ended = t.ended || err == io.EOF
	most := t.of.down.Limits
	if t.of.came += int64(n); uint64(t.of.came/maxHeader) > uint64(most.Bytes/maxHeader)+uint64(most.Files)+maxPadding/maxHeader {
		return 0, &RefusedError{"", fmt.Sprintf("the stream is longer than %d files of %d MB together need", most.Files, most.Bytes>>20)}
	}
	return n, err
}

const (
	maxHeader  = 16 << 10 // bytes of a member beside its content: two paths of [maxPath], and blocks that are filled up
	maxPadding = 1 << 20  // how many zeros may follow an archive
)

// read calls extract for each member that may be made, in turn, after all that it lies in.
func (a *archive) read(ctx context.Context, next func() (io.Reader, error), extract func(m *member, body io.Reader) error) error {
	a.members, a.keys = map[string]*member{}, map[string]string{}
	for {
		from, err := next()
		if err == io.EOF {
			return a.finish()
		}
		if err == nil {
			err = a.part(ctx, from, extract)
		}
		if err != nil {
			return err
		}
	}
}

// part reads one tar of those that the archive consists of.
func (a *archive) part(ctx context.Context, from io.Reader, extract func(m *member, body io.Reader) error) error {
	end := &tail{r: bufio.NewReaderSize(contextReader{ctx, from}, 256<<10), of: a}
	r := tar.NewReader(end)
	last := ""
	for {
		h, err := r.Next()
		switch {
		case err == io.EOF:
			return end.last()
		case errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong):
			return &RefusedError{last, "the next member is not valid tar"}
		case errors.Is(err, io.ErrUnexpectedEOF):
			return &RefusedError{last, "the archive is truncated"}
		case err != nil:
			return err
		}
		last = h.Name
		m, err := a.judge(h)
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		if err := a.add(m, extract, r); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return &RefusedError{last, "the archive is truncated"}
			}
			return err
		}
	}
}

// last looks at what follows the last member.
func (end *tail) last() error {
	if end.ended {
		return &RefusedError{"", "the archive is truncated"}
	}
	buf := make([]byte, 32<<10)
	for padding := 0; ; {
		n, err := end.Read(buf)
		if padding += n; len(bytes.Trim(buf[:n], "\x00")) > 0 || padding > maxPadding {
			return &RefusedError{"", "data after the end of the archive"}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// finish looks at what only all members together tell.
func (a *archive) finish() error {
	paths := make([]string, 0, len(a.members))
	for rel := range a.members {
		paths = append(paths, rel)
	}
	slices.Sort(paths)
	for _, rel := range paths {
		if m := a.members[rel]; m.kind == workspace.Link {
			if err := checkLink(rel, m.target, a.readlink); err != nil {
				return &RefusedError{rel, err.Error()}
			}
		}
	}
	return nil
}

func (a *archive) readlink(rel string) (target string, isLink bool) {
	if m := a.members[rel]; m != nil {
		return m.target, m.kind == workspace.Link
	}
	return "", false
}

// known are the extended headers that say nothing of where, or what, a member is, beside those that
// package tar has read.
var known = []string{
	"path", "linkpath", "size", "mtime", "atime", "ctime", "uid", "gid", "uname", "gname", "comment",
	"LIBARCHIVE.creationtime", "SCHILY.dev", "SCHILY.ino", "SCHILY.nlink",
}

// judge says what a header means, or why it means nothing that may be. A nil member is none.
func (a *archive) judge(h *tar.Header) (*member, error) {
	refuse := func(format string, args ...any) (*member, error) {
		return nil, &RefusedError{h.Name, fmt.Errorf(format, args...).Error()}
	}
	for key := range h.PAXRecords {
		if h.Typeflag == tar.TypeXGlobalHeader && key != "comment" || !slices.Contains(known, key) {
			return refuse("an extended header that is not understood: %s", key)
		}
	}
	m := &member{mode: uint32(h.Mode) & 0o1777, mtime: h.ModTime}
	name := h.Name
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil, nil
	case tar.TypeReg:
		m.kind, m.size = workspace.File, h.Size
	case tar.TypeDir:
		m.kind = workspace.Dir
		name = strings.TrimSuffix(name, "/")
	case tar.TypeSymlink:
		if m.kind, m.target = workspace.Link, h.Linkname; m.target == "" {
			return refuse("an empty link target")
		}
	case tar.TypeLink:
		m.kind = workspace.File
		if m.hard = plainPath(h.Linkname); m.hard == "" {
			return refuse("a hard link without a target")
		}
	case tar.TypeChar, tar.TypeBlock:
		return refuse("a device")
	case tar.TypeFifo:
		return refuse("a FIFO")
	case tar.TypeGNUSparse:
		return refuse("a sparse file")
	default:
		return refuse("a member of type %q, which is not understood", h.Typeflag)
	}
	switch {
	case h.Mode&0o6000 != 0:
		return refuse("set-user-ID or set-group-ID")
	case h.Mode < 0:
		return refuse("mode %o", h.Mode)
	case h.ModTime.Unix() > 1<<33 || h.ModTime.Unix() < -1<<33:
		return refuse("invalid time: %d", h.ModTime.Unix())
	case h.Size < 0:
		return refuse("size %d", h.Size)
	}
	if m.kind == workspace.Dir && (name == "." || name == "") && h.Name != "" && h.Name != "/" {
		m.path = "."
		return m, nil
	}
	if strings.HasPrefix(name, "/") {
		return refuse("an absolute path")
	}
	m.path = plainPath(name)
	if err := checkPath(m.path); err != nil {
		return refuse("%w", err)
	}
	if a.down.Asked != nil && !a.down.Asked[m.path] {
		return refuse("it was not requested")
	}
	if slices.ContainsFunc(strings.Split(m.path, "/"), isOwnName) {
		return refuse("a reserved name of pccrun")
	}
	if m.hard != "" && (inGit(m.path) || inGit(m.hard)) {
		return refuse("a hard link in a git directory")
	}
	return m, nil
}

// plainPath is a path as a member has it, without what `tar -c .` puts in front.
func plainPath(name string) string { return strings.TrimPrefix(name, "./") }

// add takes a member in, and all directories around it that have not been told of.
func (a *archive) add(m *member, extract func(*member, io.Reader) error, body io.Reader) error {
	refuse := func(why string) error { return &RefusedError{m.path, why} }
	if m.path == "." {
		if a.members["."] != nil {
			return refuse("duplicate name")
		}
		a.members["."] = m
		return extract(m, body)
	}
	var around []*member
	for dir := parentOf(m.path); dir != ""; dir = parentOf(dir) {
		if in := a.members[dir]; in == nil {
			around = append(around, &member{path: dir, kind: workspace.Dir, mode: 0o755, implicit: true})
		} else if in.kind != workspace.Dir {
			return refuse("it lies below a " + in.kind.String())
		} else {
			break
		}
	}
	why := a.protected(m)
	for _, dir := range slices.Backward(around) {
		if err := a.enter(dir); err != nil {
			return err
		}
		if why == "" || a.protected(dir) == "" {
			if err := extract(dir, nil); err != nil {
				return err
			}
		}
	}
	if m.hard != "" {
		to := a.members[m.hard]
		if to == nil || to.kind != workspace.File || to.size < 0 {
			return refuse("a hard link to a file that is not earlier in the archive")
		}
		if held := a.protected(to); held != "" {
			why = held
		}
		m.mode, m.mtime = to.mode, to.mtime
	}
	if before := a.members[m.path]; before != nil {
		if !before.implicit || m.kind != workspace.Dir {
			return refuse("duplicate name")
		}
		before.implicit, before.mode, before.mtime = false, m.mode, m.mtime
		return nil
	}
	if err := a.enter(m); err != nil {
		return err
	}
	if why != "" {
		a.withheld = append(a.withheld, Withheld{m.path, why})
		return nil
	}
	return extract(m, body)
}

// enter counts a member, and refuses a name that some system takes for another's.
func (a *archive) enter(m *member) error {
	if err := a.count(m); err != nil {
		return err
	}
	key := FoldKey(m.path)
	if other, taken := a.keys[key]; taken {
		return &RefusedError{m.path, fmt.Sprintf("other systems read it as %q", other)}
	}
	a.keys[key], a.members[m.path] = m.path, m
	return nil
}

func (a *archive) count(m *member) error {
	if a.names++; a.names > a.down.Limits.Files {
		return &RefusedError{m.path, fmt.Sprintf("more than %d files", a.down.Limits.Files)}
	}
	if m.size > a.down.Limits.Bytes-a.bytes {
		return &RefusedError{m.path, fmt.Sprintf("more than %d MB", a.down.Limits.Bytes>>20)}
	}
	a.bytes += m.size
	return nil
}

// protected says why a member is held back.
func (a *archive) protected(m *member) string {
	if a.down.Trust || a.down.Protect == nil {
		return ""
	}
	if inGit(m.path) {
		return "" // of a repository nothing comes but what has git's shapes
	}
	why := a.down.Protect(m.path, m.kind == workspace.Link)
	if why == "" {
		return ""
	}
	for _, named := range a.down.Accept {
		if named == m.path || strings.HasPrefix(m.path, named+"/") && a.down.Protect(named, false) != "" {
			return ""
		}
	}
	return why
}
