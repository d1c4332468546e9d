package vcs

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
)

// EachStaged calls entry for each path that an index lists, with the mode and the name of
// its content; conflicts are listed up to three times. Of a split index, what it begins with is asked of shared, by
// the name of it in hexadecimal (`sharedindex.NAME`). An error of entry ends it.
func EachStaged(b []byte, f Format, shared func(id string) ([]byte, error), entry func(path string, mode uint32, id string) error) error {
	list, err := stagedIn(b, f, shared)
	for i := 0; i < len(list) && err == nil; i++ {
		err = entry(list[i].path, list[i].mode, list[i].id)
	}
	return err
}

// stagedIn returns what an index lists.
func stagedIn(b []byte, f Format, shared func(id string) ([]byte, error)) (list []staged, err error) {
	room := MaxGitIndex // for names, of which version 4 says only how each differs from the last
	read := func(b []byte) (list []staged, link []byte, err error) {
		list = make([]staged, 0, len(b)/(40+f.size()+2+8)) // no entry is smaller, few are much larger
		x, ok := ParseIndex(b, f, func(e *IndexEntry) bool {
			list = append(list, staged{string(e.Name), e.Mode, string(e.ID), e.Stage})
			room -= len(e.Name)
			return room >= 0
		})
		if link = x.Part("link"); !ok || link != nil && len(link) < f.size() {
			return nil, nil, errIndexSyntax
		}
		return list, link, nil
	}
	own, link, err := read(b)
	if err != nil {
		return nil, err
	}
	if link == nil || bytes.Equal(link[:f.size()], make([]byte, f.size())) { // nothing is shared
		return own, nil
	}
	text, err := shared(hex.EncodeToString(link[:f.size()]))
	if err != nil {
		return nil, err
	}
	base, nested, err := read(text)
	if err != nil || nested != nil {
		return nil, cmp.Or(err, errIndexSyntax)
	}
	gone, changed := make([]bool, len(base)), make([]bool, len(base))
	if rest := link[f.size():]; len(rest) > 0 { // else neither
		if gone, rest, err = bitmap(rest, len(base)); err != nil {
			return nil, err
		}
		if changed, _, err = bitmap(rest, len(base)); err != nil {
			return nil, err
		}
	}
	for i, e := range base {
		if changed[i] { // by those without a name, in this order (merge_base_index of git's split-index.c, 2.51)
			if len(own) == 0 || own[0].path != "" {
				return nil, errIndexSyntax
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
	return list, nil
}

// A staged is an entry of an index.
type staged struct {
	path  string
	mode  uint32
	id    string
	stage uint16 // of a conflict, else 0
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
