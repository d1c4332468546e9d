package workspace

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A Standing is what stood in a workspace when a run began, as far as the look
// at its end needs it. It is written down before the command starts, so that
// the look can be made by somebody else if the launcher is killed.
type Standing struct {
	Session string    // of the run
	Root    string    // the workspace
	Start   time.Time // what has a ctime before it was not changed by the run
	Files   []profiles.FileRule
	Protect []profiles.ProtectRule

	Names    []string              // relative to Root: protected names that stood
	Repos    []string              // and directories of git
	Shut     []string              // and directories that could not be listed: they are hidden inside
	Vacant   []string              // absolute: names that no pattern finds, and that did not exist
	Late     map[string]string     // absolute: names config.worktree that do not exist, and the configuration that does not have git read them (extensions.worktreeConfig)
	GitDirs  []string              // absolute: directories of git outside of the workspace that the command writes in
	Formats  map[string]vcs.Format // of those, as far as their configuration leaves no doubt: as root that is given up, nobody can read it at the end
	Stores   []string              // absolute: directories of objects, references and logs that it writes in with them
	Reviewed []string              // absolute: what is for review outside of the workspace
	Awaited  map[string]string     // absolute, and why: what is for review in the workspace and no pattern finds, directories and names that did not exist
	Covered  []Node                // absolute: directories that the command does not see, or sees empty; by path or, moved, by inode
	Hooks    []string              // relative to a working tree: where a configuration that stood makes git look for hooks
	Commands []string              // relative to a working tree: programs that a configuration that stood names
	Placed   []string              // absolute: what Hooks and Commands led to, where it stood and cannot be changed
	Known    []Known               // files whose change is told of
	Git      map[string]GitEntry   // absolute: what stood in git directories, see [Standing.noteGit]; nil if nobody knows
	Trees    map[string]LinkedTree // absolute: the parts of repositories that linked worktrees have, see [Guard.removed]
	Keys     map[string][]string   // of reviewed configurations of git: the settings that execute something, as name=value

	tips map[string]map[string][]byte // by directories of git: the files in which references stood; not in the record
}

// policy returns the rules of the record, under which the workspace can be written.
func (r *Standing) policy() *profiles.Policy {
	files := append([]profiles.FileRule{{Path: r.Root, Access: profiles.Write}}, r.Files...)
	return &profiles.Policy{Workspace: r.Root, Files: files}
}

// A GitEntry is what stood in a git directory when a run began.
type GitEntry struct {
	Ino uint64
	Sum uint64 // of inodes and ctimes of what git acts on; of what it does not read the kind
}

// A Known is a file that stood: one for review, or one that is pinned and
// cannot have been changed from inside.
type Known struct {
	Node
	Ctime int64 // nanoseconds
	Pin   bool
	Why   string
}

// standingMagic begins a record, and has the number of its schema: the exported fields of a [Standing] in their order. The
// length of what follows makes one known that was cut short, whose command never started.
const standingMagic = "pccrun record 7\n"

var (
	errNoStanding   = errors.New("not an unfinished-run record")
	errOtherVersion = errors.New("an unfinished-run record of another version of pccrun")
	errUnfinished   = errors.New("the record was never finished")
)

// Append appends the record's text. Each value stands behind the other: numbers as varints, texts and lists behind their
// length. Names need not be UTF-8, which JSON would ask for.
func (r *Standing) Append(b []byte) []byte {
	body := appendValue(make([]byte, 0, 32<<10), reflect.ValueOf(r).Elem())
	b = binary.BigEndian.AppendUint32(append(b, standingMagic...), uint32(len(body)))
	return append(b, body...)
}

// ParseStanding reads what [Standing.Append] wrote, and what stands behind its end.
// The error of a record that was cut short, whose command never started, is
// one that [CutShort] knows.
func ParseStanding(text string) (*Standing, string, error) {
	rest, ok := strings.CutPrefix(text, standingMagic)
	switch {
	case strings.HasPrefix(standingMagic, text):
		return nil, "", errUnfinished
	case !ok && strings.Contains(text, "pccrun record "):
		return nil, "", errOtherVersion
	case !ok:
		return nil, "", errNoStanding
	case len(rest) < 4:
		return nil, "", errUnfinished
	}
	size := int(binary.BigEndian.Uint32([]byte(rest[:4])))
	if rest = rest[4:]; len(rest) < size {
		return nil, "", errUnfinished
	}
	r, d := &Standing{}, recordReader{in: rest[:size]}
	if d.value(reflect.ValueOf(r).Elem()); d.bad || d.in != "" {
		return nil, "", errNoStanding
	}
	return r, rest[size:], nil
}

// appendValue appends the exported fields of a value of those kinds that a [Standing] and an index of a workspace have.
// Where a rule comes from is left out.
func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.String:
		b = append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...)
	case reflect.Bool:
		b = append(b, flag(v.Bool()))
	case reflect.Int64:
		b = binary.AppendUvarint(b, uint64(v.Int()))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		b = binary.AppendUvarint(b, v.Uint())
	case reflect.Slice:
		b = binary.AppendUvarint(b, uint64(v.Len()))
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
	case reflect.Map: // by paths; nil, of which nobody knows what was in it, is not an empty one
		if v.IsNil() {
			return append(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(v.Len())+1)
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			b = appendValue(appendValue(b, key), v.MapIndex(key))
		}
	case reflect.Pointer: // to what is always there
		b = appendValue(b, v.Elem())
	case reflect.Struct:
		switch v.Type() {
		case originType:
			return b
		case timeType:
			return binary.AppendUvarint(b, uint64(v.Interface().(time.Time).UnixNano()))
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanInterface() {
				b = appendValue(b, field)
			}
		}
	}
	return b
}

var (
	originType = reflect.TypeFor[profiles.Origin]()
	timeType   = reflect.TypeFor[time.Time]()
)

// A recordReader reads what appendValue wrote.
type recordReader struct {
	in  string
	bad bool // what was read is something else; all that follows is zero
}

func (d *recordReader) number() uint64 {
	n, size := binary.Uvarint([]byte(d.in[:min(len(d.in), binary.MaxVarintLen64)]))
	if size <= 0 {
		d.in, d.bad = "", true
		return 0
	}
	d.in = d.in[size:]
	return n
}

// length is that of a text or a list, of which each element takes a byte at least.
func (d *recordReader) length() int {
	n := d.number()
	if n > uint64(len(d.in)) {
		d.in, d.bad, n = "", true, 0
	}
	return int(n)
}

func (d *recordReader) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		n := d.length()
		v.SetString(d.in[:n])
		d.in = d.in[n:]
	case reflect.Bool:
		v.SetBool(d.number() == 1)
	case reflect.Int64:
		v.SetInt(int64(d.number()))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(d.number())
	case reflect.Slice:
		if n := d.length(); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	case reflect.Map:
		n := d.number()
		if n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
		}
		for ; n > 1 && !d.bad; n-- {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			d.value(key)
			d.value(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(v.Elem())
	case reflect.Struct:
		switch v.Type() {
		case originType:
			return
		case timeType:
			v.Set(reflect.ValueOf(time.Unix(0, int64(d.number()))))
			return
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanInterface() {
				d.value(field)
			}
		}
	}
}

// ParseStandings reads the records of one run, one behind the other, and what stands
// behind the last.
func ParseStandings(text string) (list []*Standing, rest string, err error) {
	for {
		r, rest, err := ParseStanding(text)
		if err != nil {
			return nil, "", err
		}
		list = append(list, r)
		if rest == "" || rest[0] != standingMagic[0] {
			return list, rest, nil
		}
		text = rest
	}
}

// CutShort reports whether an error says that a record was cut short.
func CutShort(err error) bool { return errors.Is(err, errUnfinished) }

// OtherVersion reports whether an error says that another version of pccrun wrote a record.
func OtherVersion(err error) bool { return errors.Is(err, errOtherVersion) }

func flag(is bool) byte {
	if is {
		return 1
	}
	return 0
}

// A LinkedTree is a linked worktree that git could find when the run began.
type LinkedTree struct {
	File string // .git in it, which is pinned, absolute; "" where the command cannot write
	Ino  uint64
}
