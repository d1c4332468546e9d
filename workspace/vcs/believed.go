package vcs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"strings"
)

// What git believes of objects without reading them: the names that the index of a pack has for
// them, the places that a multi-pack-index says, and what a commit-graph says of commits.

// maxKept is how much is held of the objects of a pack, of which others may be deltas.
const maxKept = 32 << 20

// maxPlaced is in how many packs a multi-pack-index may have its objects.
const maxPlaced = 1 << 16

// Count returns how many objects the pack's index names.
func (p *Pack) Count() int64 { return int64(p.fan[255]) }

// Forged looks at all objects of the pack, and returns the name of one that is not what its name
// says, or of which a part lies in the next, "" if there is none. An object that a known pack has
// under the same name, byte by byte, is read no further, and all others are: base and limit are as
// for [Pack.Read]; more is asked before each, with the size of the one before.
func (p *Pack) Forged(known iter.Seq[*Pack], limit int64, base func(id string, limit int64) (Object, error), more func(n int64) error) (id string, err error) {
	list, id, err := p.entries(more)
	if id != "" || err != nil {
		return id, err
	}
	if err := p.compare(list, known, more); err != nil {
		return "", err
	}
	p.kept = map[int64]Object{}
	defer func() { p.kept = nil }()
	held := 0
	for i, e := range list {
		if e.known {
			continue
		}
		o, end, err := p.readTo(e.at, limit, base, func() error { return more(0) })
		if err != nil {
			return "", err
		}
		if err := more(int64(len(o.Body)) + 64); err != nil {
			return "", err
		}
		name, err := p.name(int64(e.n))
		if err != nil {
			return "", err
		}
		// Who compares with this pack later takes what lies up to the next for all of the object.
		if p.format.ID(o) != name || end > p.end(list, i) {
			return name, nil
		}
		if held += len(o.Body); held > maxKept {
			p.kept, held = map[int64]Object{}, len(o.Body)
		}
		p.kept[e.at] = o
	}
	return "", nil
}

// chunks returns the parts of a file that git keeps in such (gitformat-chunk(5)), by their names;
// the table of so many begins at an offset.
func chunks(b []byte, at, count int) (parts map[string][]byte, ok bool) {
	const row = 12
	if len(b) < at+(count+1)*row {
		return nil, false
	}
	parts = map[string][]byte{}
	for i := range count {
		line := b[at+i*row:]
		name, from, to := string(line[:4]), binary.BigEndian.Uint64(line[4:]), binary.BigEndian.Uint64(line[4+row:])
		if _, twice := parts[name]; twice || from > to || to > uint64(len(b)) {
			return nil, false
		}
		parts[name] = b[from:to]
	}
	return parts, true
}

// named returns how many names the part "OIDF" says, and whether the other parts have as much for each.
func (f Format) named(parts map[string][]byte, each map[string]int) (n int, ok bool) {
	fan := parts["OIDF"]
	if len(fan) != 4*256 {
		return 0, false
	}
	n = int(binary.BigEndian.Uint32(fan[4*255:]))
	for name, size := range each {
		if len(parts[name]) != n*size {
			return 0, false
		}
	}
	return n, true
}

// head reports whether a file of git begins with a magic word, a version and the format.
func (f Format) head(b []byte, magic string) bool {
	return len(b) > 12 && string(b[:4]) == magic && b[4] == 1 && b[5] == 1+byte(f)
}

// EachPlace calls each for every object of a multi-pack-index (gitformat-pack(5)), with the name of the pack's
// index and where it is said to lie in that pack.
func EachPlace(b []byte, f Format, each func(id, pack string, at int64) error) error {
	bad := fmt.Errorf("multi-pack-index: %w", errObjectSyntax)
	if !f.head(b, "MIDX") || b[7] != 0 {
		return bad
	}
	parts, ok := chunks(b, 12, int(b[6]))
	if !ok {
		return bad
	}
	n, ok := f.named(parts, map[string]int{"OIDL": f.size(), "OOFF": 8})
	count := binary.BigEndian.Uint32(b[8:])
	if count > maxPlaced {
		return ErrLarge
	}
	packs := strings.SplitN(string(parts["PNAM"]), "\x00", int(count)+1) // the last is what pads it
	if !ok || int(count) > len(packs) {
		return bad
	}
	large := parts["LOFF"]
	for i := range n {
		id, place := parts["OIDL"][i*f.size():][:f.size()], parts["OOFF"][8*i:]
		pack, at := int(binary.BigEndian.Uint32(place)), int64(binary.BigEndian.Uint32(place[4:]))
		if at>>31 != 0 && large != nil {
			if at = at & (1<<31 - 1) * 8; at+8 > int64(len(large)) {
				return bad
			}
			at = int64(binary.BigEndian.Uint64(large[at:]) & (1<<63 - 1))
		}
		if pack >= int(count) {
			return bad
		}
		if err := each(string(id), packs[pack], at); err != nil {
			return err
		}
	}
	return nil
}

// EachCommit calls each for every commit of a commit-graph (gitformat-commit-graph(5)), whose files are those of
// a chain, the lowest first, with the tree and the parents that it says.
func EachCommit(files [][]byte, f Format, each func(id, tree string, parents []string) error) error {
	const (
		none  = 0x70000000
		more  = 1 << 31 // of the second parent: a list of more begins there; of one of a list: it is the last
		graph = "commit-graph"
	)
	bad := fmt.Errorf(graph+": %w", errObjectSyntax)
	var ids []string
	for _, b := range files {
		if !f.head(b, "CGPH") {
			return bad
		}
		parts, ok := chunks(b, 8, int(b[6]))
		if !ok {
			return bad
		}
		row := f.size() + 16
		n, ok := f.named(parts, map[string]int{"OIDL": f.size(), "CDAT": row})
		if !ok {
			return bad
		}
		from, used := len(ids), 0
		for i := range n {
			ids = append(ids, string(parts["OIDL"][i*f.size():][:f.size()]))
		}
		for i := range n {
			data := parts["CDAT"][i*row:][:row]
			var parents []string
			add := func(at uint32) bool {
				if int64(at) >= int64(len(ids)) {
					return false
				}
				parents = append(parents, ids[at])
				return true
			}
			first, second := binary.BigEndian.Uint32(data[f.size():]), binary.BigEndian.Uint32(data[f.size()+4:])
			ok := first == none || add(first)
			switch {
			case second == none:
			case second&more == 0:
				ok = ok && add(second)
			default:
				edges := parts["EDGE"]
				for at := int64(second&^more) * 4; ; at += 4 {
					if used++; at+4 > int64(len(edges)) || used > len(edges)/4 { // each is of one commit
						return bad
					}
					edge := binary.BigEndian.Uint32(edges[at:])
					if ok = ok && add(edge&^more); edge&more != 0 {
						break
					}
				}
			}
			if !ok {
				return bad
			}
			if err := each(ids[from+i], string(data[:f.size()]), parents); err != nil {
				return err
			}
		}
	}
	return nil
}

// GraphChain returns the names of the files that a chain of commit-graphs lists, the lowest first.
func GraphChain(b []byte) (names []string, err error) {
	for line := range bytes.Lines(b) {
		id := string(bytes.TrimSpace(line))
		if _, _, ok := ParseID(id); !ok {
			return nil, fmt.Errorf("commit-graph-chain: %w", errObjectSyntax)
		}
		names = append(names, "graph-"+id+".graph")
	}
	return names, nil
}
