package vcs

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// EachStaged calls entry for each path that an index lists, with the mode and the name of
// its content, and whether the working tree ever had that, as far as git knows; conflicts are
// listed up to three times. Of a split index, what it begins
// with is asked of shared, by the name of it in hexadecimal (`sharedindex.NAME`).
//
// It returns the path of a directory of which the index remembers another tree than what it
// lists there makes, if there is one; "." is for the root. More is asked before each directory
// is made for that. An error of entry or more ends it.
func EachStaged(b []byte, f Format, shared func(id string) ([]byte, error), entry func(path string, mode uint32, id string, written, undo bool) error, more func(n int64) error) (forged string, err error) {
	list, tree, undo, err := stagedIn(b, f, shared)
	if err != nil {
		return "", err
	}
	for i := range list {
		if err := entry(list[i].path, list[i].mode, list[i].id, list[i].written, false); err != nil {
			return "", err
		}
	}
	if err := eachUndo(undo, f, entry); err != nil {
		return "", err
	}
	return forgedTree(list, tree, f, more)
}

// eachUndo calls entry for what the extension "REUC" of an index holds.
func eachUndo(ext []byte, f Format, entry func(path string, mode uint32, id string, written, undo bool) error) error {
	for len(ext) > 0 {
		path, rest, ok := bytes.Cut(ext, []byte{0})
		var modes [3]uint32
		for i := range modes {
			var digits []byte
			var also bool
			digits, rest, also = bytes.Cut(rest, []byte{0})
			n, err := strconv.ParseUint(string(digits), 8, 32)
			if ok = ok && also && err == nil; !ok {
				return errIndexSyntax
			}
			modes[i] = uint32(n)
		}
		for _, mode := range modes {
			if mode == 0 {
				continue
			}
			if len(rest) < f.size() {
				return errIndexSyntax
			}
			if err := entry(string(path), mode, string(rest[:f.size()]), false, true); err != nil {
				return err
			}
			rest = rest[f.size():]
		}
		ext = rest
	}
	return nil
}

// stagedIn returns what an index lists, and its extensions "TREE" and "REUC".
func stagedIn(b []byte, f Format, shared func(id string) ([]byte, error)) (list []staged, tree, undo []byte, err error) {
	room := MaxGitIndex // for names, of which version 4 says only how each differs from the last
	read := func(b []byte) (list []staged, ext extensions, err error) {
		list = make([]staged, 0, len(b)/(40+f.size()+2+8)) // no entry is smaller, few are much larger
		ext, err = entries(bytes.NewReader(b), f, func(name []byte, mode uint32, flags uint16, oid []byte, written bool) {
			if room -= len(name); room >= 0 {
				list = append(list, staged{string(name), mode, string(oid), flags >> 12 & 3, written})
			}
		})
		if room < 0 {
			return nil, ext, ErrLarge
		}
		return list, ext, err
	}
	own, ext, err := read(b)
	if err != nil {
		return nil, nil, nil, err
	}
	if ext.link == nil || bytes.Equal(ext.link[:f.size()], make([]byte, f.size())) { // nothing is shared
		return own, ext.tree, ext.undo, nil
	}
	text, err := shared(hex.EncodeToString(ext.link[:f.size()]))
	if err != nil {
		return nil, nil, nil, err
	}
	base, nested, err := read(text)
	if err != nil || nested.link != nil {
		return nil, nil, nil, cmp.Or(err, errIndexSyntax)
	}
	gone, changed := make([]bool, len(base)), make([]bool, len(base))
	if rest := ext.link[f.size():]; len(rest) > 0 { // else neither
		if gone, rest, err = bitmap(rest, len(base)); err != nil {
			return nil, nil, nil, err
		}
		if changed, _, err = bitmap(rest, len(base)); err != nil {
			return nil, nil, nil, err
		}
	}
	for i, e := range base {
		if changed[i] { // by those without a name, in this order (merge_base_index of git's split-index.c, 2.51)
			if len(own) == 0 || own[0].path != "" {
				return nil, nil, nil, errIndexSyntax
			}
			own[0].path = e.path
			e, own = own[0], own[1:]
		}
		if !gone[i] {
			list = append(list, e)
		}
	}
	list = append(list, own...)
	slices.SortStableFunc(list, func(a, b staged) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.stage, b.stage))
	})
	return list, ext.tree, ext.undo, nil
}

// A node is what the extension "TREE" says of a directory: its tree, "" for none.
type node struct {
	id   string
	kids map[string]*node
}

// A staged is an entry of an index.
type staged struct {
	path  string
	mode  uint32
	id    string
	stage uint16 // of a conflict, else 0

	written bool // see [eachEntry]
}

// forgedTree returns the path of a directory of which the extension "TREE" of an index
// (gitformat-index(5)) says another tree than what is listed there makes. Git commits by
// what it says, and shows in `diff --cached` what is listed.
func forgedTree(list []staged, ext []byte, f Format, more func(n int64) error) (path string, err error) {
	said := false
	var read func(in *node, depth int) error
	read = func(in *node, depth int) error {
		name, rest, ok := bytes.Cut(ext, []byte{0})
		line, rest, ok2 := bytes.Cut(rest, []byte("\n"))
		count, below, ok3 := strings.Cut(string(line), " ")
		n, e := strconv.Atoi(count)
		kids, e2 := strconv.Atoi(below)
		if !ok || !ok2 || !ok3 || e != nil || e2 != nil || n >= 0 && len(rest) < f.size() || depth > maxName {
			return errIndexSyntax
		}
		is := in
		if depth > 0 {
			if in.kids == nil {
				in.kids = map[string]*node{}
			}
			is = &node{}
			in.kids[string(name)] = is
		}
		if n >= 0 {
			is.id, rest, said = string(rest[:f.size()]), rest[f.size():], true
		}
		for ext = rest; kids > 0; kids-- {
			if err := read(is, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if len(ext) == 0 {
		return "", nil
	}
	root := &node{}
	if err := read(root, 0); err != nil || !said {
		return "", err
	}
	forged := ""
	check := func(is *node, dir, id string, whole bool) {
		if is != nil && is.id != "" && (!whole || is.id != id) {
			forged = cmp.Or(strings.TrimSuffix(dir, "/"), ".")
		}
	}
	same := 0 // how far the path of the first entry is that of the one before
	// made returns the name of the tree that the first entries make which lie in a directory,
	// whose path is so long.
	var made func(is *node, dir int) (id string, whole bool)
	made = func(is *node, dir int) (id string, whole bool) {
		if err == nil {
			err = more(64)
		}
		if err != nil {
			list = nil
			return "", false
		}
		prefix := list[0].path[:dir]
		var body []byte
		whole = true
		for same = dir; len(list) > 0 && same >= dir; {
			e := list[0]
			name, below, deep := strings.Cut(e.path[dir:], "/")
			switch {
			case !deep || below == "" && e.mode>>12 == 0o4: // of a sparse index a directory
				whole = whole && e.stage == 0
				if list, same = list[1:], 0; len(list) > 0 {
					next := list[0].path
					for same < len(next) && same < len(e.path) && next[same] == e.path[same] {
						same++
					}
				}
			default:
				var all bool
				var below *node
				if is != nil {
					below = is.kids[name]
				}
				e.mode = 0o40000
				e.id, all = made(below, dir+len(name)+1)
				whole = whole && all
			}
			body = strconv.AppendUint(body, uint64(e.mode), 8)
			body = append(append(append(append(body, ' '), name...), 0), e.id...)
		}
		id = f.ID(Object{Kind: Tree, Body: body})
		check(is, prefix, id, whole)
		return id, whole
	}
	if len(list) == 0 {
		check(root, "", f.ID(Object{Kind: Tree}), true)
	} else {
		made(root, 0)
	}
	if err != nil {
		return "", err
	}
	return forged, nil
}

// bitmap reads so many bits, compressed as gitformat-bitmap(5) has it (EWAH), and returns
// which are set, and what follows.
func bitmap(b []byte, bits int) (set []bool, rest []byte, err error) {
	if len(b) < 8 {
		return nil, nil, errIndexSyntax
	}
	n := int64(binary.BigEndian.Uint32(b[4:]))
	if b = b[8:]; int64(len(b)) < n*8+4 {
		return nil, nil, errIndexSyntax
	}
	words, rest := b[:n*8], b[n*8+4:]
	set = make([]bool, bits)
	at := 0
	put := func(bit bool) bool {
		if bit && at >= bits || at >= bits+64 { // else each word could ask for as much work as all
			return false
		}
		if bit {
			set[at] = true
		}
		at++
		return true
	}
	for len(words) > 0 {
		head := binary.BigEndian.Uint64(words)
		words = words[8:]
		run, literals := int(head>>1&(1<<32-1)), int(head>>33)
		if run > bits/64+1 || literals*8 > len(words) {
			return nil, nil, errIndexSyntax
		}
		for range run * 64 {
			if !put(head&1 != 0 && at < bits) { // the last run may end beyond
				return nil, nil, errIndexSyntax
			}
		}
		for range literals {
			word := binary.BigEndian.Uint64(words)
			words = words[8:]
			for i := range 64 {
				if !put(word>>i&1 != 0) {
					return nil, nil, errIndexSyntax
				}
			}
		}
	}
	return set, rest, nil
}
