package seccomp

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// leading are the words by which a filter decides first, in order.
var leading = []uint32{offsetArch, offsetNr}

// shorten returns a filter that answers every call as the given one does, in
// few instructions: where libseccomp asks for each number, and for each pattern
// of an argument, by itself, a run of them with one answer is asked for by its
// ends.
//
// The kernel translates a filter into machine code each time that it is
// installed, in time proportional to its length: each launch pays for each
// instruction.
//
// It is for filters as libseccomp and [CompileOCI] make them: comparisons of
// words under masks. Any other is an error. What is made is read again and held
// against what was read at first.
func shorten(filter []byte) ([]byte, error) {
	program, err := Load(filter)
	if err != nil {
		return nil, err
	}
	d := diagram{ids: make(map[string]int)}
	given, err := d.read(program.code)
	if err != nil {
		return nil, fmt.Errorf("shorten filter: %w", err)
	}
	short := d.write(d.order(given, leading))
	if len(short) > maxInstructions {
		return nil, fmt.Errorf("shorten filter: %d instructions: the kernel takes %d", len(short), maxInstructions)
	}
	made, err := d.read(short)
	if err != nil {
		return nil, fmt.Errorf("BUG: shorten filter: read what is made: %w", err)
	}
	if !d.alike(given, made, leading) {
		return nil, fmt.Errorf("BUG: shorten filter: what is made decides otherwise")
	}
	return encode(short), nil
}

// A node is what is left to decide: nothing, it is answered; or it depends on
// the bits of a word that a mask leaves.
type node struct {
	answer Action // where runs is nil
	word   uint32 // offset in struct seccomp_data
	mask   uint32
	runs   []run // in order, from 0 on
}

// A run is the values from first up to where the next run begins, and the node
// that decides about them.
type run struct {
	first uint32
	node  int
}

// by reports whether a node decides by a word.
func (n node) by(word uint32) bool { return n.runs != nil && n.word == word }

// any reports whether a node asks for nothing but whether any bit is set.
func (n node) any() bool { return len(n.runs) == 2 && n.runs[1].first == following(0, n.mask) }

// at returns what decides about a value.
func (n node) at(value uint32) int {
	i := len(n.runs) - 1
	for n.runs[i].first > value&n.mask {
		i--
	}
	return n.runs[i].node
}

// following returns the next larger of the values that have bits of a mask alone.
func following(value, mask uint32) uint32 { return (value | ^mask + 1) & mask }

// A diagram holds nodes, each once: what decides alike, as far as it can see,
// has one number.
type diagram struct {
	nodes []node
	ids   map[string]int
}

func (d *diagram) answer(a Action) int { return d.intern(node{answer: a}) }

// choose returns the node that goes on by a word under a mask. Where two that
// follow each other ask whether any of some bits is set, one asks for all.
func (d *diagram) choose(word, mask uint32, runs []run) int {
	n := node{word: word, mask: mask, runs: slices.CompactFunc(runs, func(a, b run) bool { return a.node == b.node })}
	if len(n.runs) == 1 {
		return n.runs[0].node
	}
	if next := d.nodes[n.runs[0].node]; n.any() && next.any() && next.word == word && next.runs[1].node == n.runs[1].node {
		n.mask |= next.mask
		n.runs = []run{next.runs[0], {following(0, n.mask), n.runs[1].node}}
	}
	return d.intern(n)
}

func (d *diagram) intern(n node) int {
	key := fmt.Sprint(n)
	id, ok := d.ids[key]
	if !ok {
		id = len(d.nodes)
		d.nodes, d.ids[key] = append(d.nodes, n), id
	}
	return id
}

// A subject is what nodes decide by: a word, as far as they can look at it
// together, under one mask. An interval of what a node looks at is an interval
// under that mask where the node's own leaves out lower bits alone, and a few
// intervals where it leaves out few of the others ([gaps]).
type subject struct {
	word, mask uint32
	masks      []uint32
}

func (s subject) of(n node) bool { return n.word == s.word && slices.Contains(s.masks, n.mask) }

// subjects returns what nodes and those behind them decide by, in order.
func (d *diagram) subjects(ids ...int) (list []subject) {
	for _, n := range d.behind(ids...) {
		i := slices.IndexFunc(list, func(s subject) bool { return s.of(n) })
		if i < 0 {
			list = append(list, subject{n.word, n.mask, []uint32{n.mask}})
		}
	}
	slices.SortFunc(list, func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.word, b.word), -cmp.Compare(a.mask, b.mask))
	})
	var together []subject
	for _, s := range list {
		i := slices.IndexFunc(together, func(t subject) bool {
			all := t.mask | s.mask
			return t.word == s.word && !slices.ContainsFunc(append(t.masks, s.mask), func(m uint32) bool { return bits.OnesCount32(gaps(m, all)) > 1 })
		})
		if i < 0 {
			together = append(together, s)
		} else {
			together[i].mask |= s.mask
			together[i].masks = append(together[i].masks, s.mask)
		}
	}
	return together
}

// behind returns nodes and all that follow them, but for answers.
func (d *diagram) behind(ids ...int) (list []node) {
	seen := make(map[int]bool)
	var visit func(id int)
	visit = func(id int) {
		if n := d.nodes[id]; n.runs != nil && !seen[id] {
			seen[id] = true
			list = append(list, n)
			for _, r := range n.runs {
				visit(r.node)
			}
		}
	}
	for _, id := range ids {
		visit(id)
	}
	return list
}

// gaps returns the bits that a mask leaves out of another, above the lowest that it has.
func gaps(mask, of uint32) uint32 { return of &^ mask &^ (mask&-mask - 1) }

// order returns the node that decides as a node does: by the words that are
// given first, then by each subject once, so that nothing is asked of which the
// answer is known; or as before, where that is shorter.
func (d *diagram) order(id int, first []uint32) int {
	if len(first) == 0 {
		if ordered := d.inOrder(id, d.subjects(id)); d.length(ordered) < d.length(id) {
			return ordered
		}
		return id
	}
	n := d.nodes[id]
	if !n.by(first[0]) {
		return d.order(id, first[1:])
	}
	var runs []run
	for _, r := range n.runs {
		runs = append(runs, run{r.first, d.order(r.node, first[1:])})
	}
	return d.choose(n.word, n.mask, runs)
}

// alike reports whether two nodes decide alike. Where subjects of a word
// overlap it may fail to see that they do.
func (d *diagram) alike(a, b int, first []uint32) bool {
	if len(first) == 0 {
		by := d.subjects(a, b)
		return d.inOrder(a, by) == d.inOrder(b, by)
	}
	m, n := d.nodes[a], d.nodes[b]
	for _, r := range append(slices.Clone(m.runs), n.runs...) {
		a, b := a, b
		if m.by(first[0]) {
			a = m.at(r.first)
		}
		if n.by(first[0]) {
			b = n.at(r.first)
		}
		if !d.alike(a, b, first[1:]) {
			return false
		}
	}
	return m.runs != nil || n.runs != nil || a == b
}

// length returns about how many instructions a node takes.
func (d *diagram) length(id int) (sum int) {
	for _, n := range d.behind(id) {
		sum += len(n.chains()) // a load, and what tells the chains apart
		if n.held() != math.MaxUint32 {
			sum++
		}
	}
	return sum
}

func (d *diagram) inOrder(id int, by []subject) int {
	if len(by) == 0 {
		return id
	}
	firsts := []uint32{0}
	for _, n := range d.behind(id) {
		if by[0].of(n) {
			gap := gaps(n.mask, by[0].mask) // one bit at most
			for _, r := range n.runs {
				firsts = append(firsts, r.first, (r.first|gap)&-max(gap, 1), r.first|gap)
			}
		}
	}
	slices.Sort(firsts)
	var runs []run
	for _, first := range slices.Compact(firsts) {
		runs = append(runs, run{first, d.inOrder(d.given(id, by[0], first, make(map[int]int)), by[1:])})
	}
	return d.choose(by[0].word, by[0].mask, runs)
}

// given returns the node that decides as a node does where a subject is known.
func (d *diagram) given(id int, by subject, value uint32, done map[int]int) int {
	n := d.nodes[id]
	if n.runs == nil {
		return id
	}
	if to, ok := done[id]; ok {
		return to
	}
	if by.of(n) {
		done[id] = d.given(n.at(value), by, value, done)
	} else {
		var runs []run
		for _, r := range n.runs {
			runs = append(runs, run{r.first, d.given(r.node, by, value, done)})
		}
		done[id] = d.choose(n.word, n.mask, runs)
	}
	return done[id]
}

// read returns the node that decides as a program does.
func (d *diagram) read(code []instruction) (int, error) {
	r := reader{diagram: d, code: code, known: make(map[uint32]uint32)}
	return r.each(leading)
}

// A reader follows a program where some words are known.
type reader struct {
	*diagram
	code  []instruction
	known map[uint32]uint32 // by offset
	seen  map[place]int
}

// A place is a point of a program, with what the accumulator holds there: a
// word under a mask. It holds 0 at first.
type place struct {
	pc         int
	word, mask uint32
}

// each follows the program for every run of values of some words.
func (r *reader) each(words []uint32) (int, error) {
	if len(words) == 0 {
		r.seen = make(map[place]int)
		return r.follow(place{})
	}
	var runs []run
	for _, first := range bounds(r.code, words[0]) {
		r.known[words[0]] = first
		id, err := r.each(words[1:])
		if err != nil {
			return 0, err
		}
		runs = append(runs, run{first, id})
	}
	return r.choose(words[0], math.MaxUint32, runs), nil
}

// bounds returns the values of a word at which a program's answer may begin to
// differ from that to the value before.
func bounds(code []instruction, word uint32) []uint32 {
	list := []uint32{0}
	held := make([]uint16, len(code)+1) // the words that the accumulator may be made of, as bits
	for pc, i := range code {
		switch {
		case i.op == opLoad:
			held[pc+1] |= 1 << (i.k / 4)
		case i.op == opJump|opAlways:
			held[pc+1+int(i.k)] |= held[pc]
		case i.op&0x07 == opJump:
			held[pc+1+int(i.jt)] |= held[pc]
			held[pc+1+int(i.jf)] |= held[pc]
			if held[pc]&(1<<(word/4)) != 0 {
				list = append(list, i.k, i.k+1)
			}
		case i.op != opRetK:
			held[pc+1] |= held[pc]
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (r *reader) follow(at place) (int, error) {
	if id, ok := r.seen[at]; ok {
		return id, nil
	}
	id, err := r.step(at)
	r.seen[at] = id
	return id, err
}

func (r *reader) step(at place) (int, error) {
	i := r.code[at.pc]
	next := place{at.pc + 1, at.word, at.mask}
	switch i.op {
	case opRetK:
		return r.answer(Action(i.k)), nil
	case opLoad:
		next.word, next.mask = i.k, math.MaxUint32
	case opALU | opAnd:
		next.mask &= i.k
	case opJump | opAlways:
		next.pc += int(i.k)
	case opJump | opEqual, opJump | opGreater, opJump | opAtLeast, opJump | opAnySet:
		return r.branch(i, next)
	default:
		return 0, fmt.Errorf("instruction %d: operation %#x: not understood", at.pc, i.op)
	}
	return r.follow(next)
}

func (r *reader) branch(i instruction, next place) (int, error) {
	yes, no, op := next, next, i.op&0xf0
	yes.pc += int(i.jt)
	no.pc += int(i.jf)
	if value, ok := r.known[next.word]; ok || next.mask == 0 {
		if ok && next.mask != 0 && (next.mask != math.MaxUint32 || op == opAnySet) {
			return 0, fmt.Errorf("instruction %d: bits of word %d: not understood", next.pc-1, next.word)
		}
		if holds(op, value&next.mask, i.k) {
			return r.follow(yes)
		}
		return r.follow(no)
	}
	y, err := r.follow(yes)
	if err != nil {
		return 0, err
	}
	n, err := r.follow(no)
	if err != nil {
		return 0, err
	}
	mask, first := next.mask, i.k
	runs := []run{{0, n}}
	switch op {
	case opAnySet:
		mask &= i.k
		first = following(0, mask)
	case opEqual:
		if i.k&^mask != 0 {
			return n, nil
		}
	case opGreater:
		first++
		fallthrough
	case opAtLeast:
		// The smallest value that has bits of the mask alone.
		if first&^mask != 0 || op == opGreater && first == 0 {
			return 0, fmt.Errorf("instruction %d: comparison with %#x under mask %#x: not understood", next.pc-1, i.k, mask)
		}
	}
	if first == 0 {
		runs = nil // all values, but for those that follow
	}
	runs = append(runs, run{first, y})
	if op == opEqual && i.k != mask {
		runs = append(runs, run{following(i.k, mask), n})
	}
	return r.choose(next.word, mask, runs), nil
}

// write returns a program that decides as a node does.
func (d *diagram) write(id int) []instruction {
	w := writer{diagram: d, full: make(map[int]label), bare: make(map[int]label)}
	w.enter(w.node(id))
	slices.Reverse(w.code)
	return w.code
}

// A writer turns nodes into a program, from its end.
type writer struct {
	assembler
	*diagram
	full map[int]label // where each node was written last
	bare map[int]label // the same behind its load, for who has the word in the accumulator
}

func (w *writer) node(id int) label {
	n := w.nodes[id]
	if n.runs == nil {
		return w.assembler.answer(n.answer)
	}
	return w.once(w.full, id, func() label {
		w.enter(w.choice(id))
		if mask := n.held(); mask != math.MaxUint32 {
			w.emit(instruction{op: opALU | opAnd, k: mask})
		}
		return w.emit(instruction{op: opLoad, k: n.word})
	})
}

// held returns the mask under which a node wants its word in the accumulator.
func (n node) held() uint32 {
	if n.any() {
		return math.MaxUint32 // the comparison has a mask of its own
	}
	return n.mask
}

// choice writes a node without the load of its word.
func (w *writer) choice(id int) label {
	return w.once(w.bare, id, func() label {
		n := w.nodes[id]
		if n.any() {
			return w.jump(opAnySet, n.mask, w.next(n, 1), w.next(n, 0))
		}
		return w.tree(n, n.chains())
	})
}

// next writes what decides about a run of a node.
func (w *writer) next(n node, i int) label {
	to := n.runs[i].node
	if m := w.nodes[to]; m.runs != nil && m.word == n.word && m.held() == n.held() {
		return w.choice(to)
	}
	return w.node(to)
}

// once writes what was not written before, or stands out of reach.
func (w *writer) once(places map[int]label, id int, write func() label) label {
	to, ok := places[id]
	if !ok {
		to = write()
	}
	places[id] = w.reach(to)
	return places[id]
}

// enter makes sure that what is written next goes on there.
func (w *writer) enter(to label) {
	if int(to) != len(w.code) {
		w.emit(instruction{op: opJump | opAlways, k: uint32(len(w.code) - int(to))})
	}
}

// tree goes on by where the runs are cut, chain by single values.
func (w *writer) tree(n node, cuts []int) label {
	if len(cuts) == 2 {
		return w.chain(n, cuts[0], cuts[1])
	}
	mid := (len(cuts) - 1) / 2
	high := w.tree(n, cuts[mid:])
	low := w.tree(n, cuts[:mid+1])
	return w.jump(opAtLeast, n.runs[cuts[mid]].first, high, low)
}

func (w *writer) chain(n node, from, to int) label {
	rest := w.next(n, from)
	for i := to - 2; i > from; i -= 2 {
		rest = w.jump(opEqual, n.runs[i].first, w.next(n, i), rest)
	}
	return rest
}

// chains cuts the runs of a node where that makes the fewest comparisons: one
// for each cut, and one for each single value that stands in a longer run.
func (n node) chains() (cuts []int) {
	const most = 7 // so that it takes no longer than a tree
	count := len(n.runs)
	cost, from := make([]int, count+1), make([]int, count+1)
	for end := 1; end <= count; end++ {
		cost[end] = math.MaxInt
		for length := 1; length <= min(end, most) && n.single(end-length, end); length += 2 {
			if c := cost[end-length] + 1 + length/2; c < cost[end] {
				cost[end], from[end] = c, end-length
			}
		}
	}
	for end := count; end > 0; end = from[end] {
		cuts = append(cuts, end)
	}
	cuts = append(cuts, 0)
	slices.Reverse(cuts)
	return cuts
}

// single reports whether the second of some runs is one value in the midst of
// another run. It is asked for ever longer stretches: the rest is known.
func (n node) single(from, end int) bool {
	return end-from < 3 || n.runs[from].node == n.runs[from+2].node && following(n.runs[from+1].first, n.mask) == n.runs[from+2].first
}
