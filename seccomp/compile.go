package seccomp

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// CompileOCI returns the filter for a seccomp profile: the JSON of an OCI
// runtime configuration's linux.seccomp, or Docker's or Podman's form of it.
// goarch is amd64 or arm64.
//
// The filter decides as that of libseccomp under runc does, with these
// differences, each on the safe side:
//
//   - Where rules with conditions overlap and disagree, the strictest wins;
//     with libseccomp it depends on the order that it sorts them in.
//   - A rule with conditions is an error if a rule without them, which always
//     goes first, makes it void and lets more through.
//   - A name that no architecture here has is passed over, as with runc, but
//     is an error if the rule is stricter than the default action: what was to
//     be refused would be let through.
//   - i386's socketcall and ipc are calls like any other, and not let through
//     because socket or semop is.
//   - Calls that the profile does not name get its default action, also those
//     of kernels newer than the profile; runc answers ENOSYS to them.
//   - A call that a tracer skips keeps the result that the tracer gives it.
//
// SCMP_ACT_TRACE, SCMP_ACT_NOTIFY and flags that need more than a filter are
// refused. An error names the line and the key.
func CompileOCI(json []byte, goarch string) ([]byte, error) {
	prof, err := parseProfile(json, goarch)
	if err != nil {
		return nil, fmt.Errorf("seccomp profile: %w", err)
	}
	program, err := prof.compile()
	if err != nil {
		return nil, fmt.Errorf("seccomp profile: %w", err)
	}
	return encode(program), nil
}

// strictness orders actions as the kernel does where several filters answer:
// as signed numbers, the smallest is the strictest.
func strictness(a Action) int64 { return int64(int32(a & retAction)) }

// decide returns what the profile says of each call that it names for an
// architecture, by the number that the filter sees.
func (prof *profile) decide(a arch, c checks) (map[uint32]*check, error) {
	named := make(map[uint32][]rule)
	for _, r := range prof.rules {
		for _, name := range r.names {
			nr, known, ok := a.number(name)
			if !known && strictness(r.action) < strictness(prof.fallback) {
				return nil, fmt.Errorf("%s: %s: no such system call: its refusal would have no effect", r.origin, printable(name))
			}
			if ok {
				named[nr] = append(named[nr], a.rule(r))
			}
		}
	}
	calls := make(map[uint32]*check, len(named))
	for _, nr := range slices.Sorted(maps.Keys(named)) {
		list, answer, err := settle(named[nr], prof.fallback)
		if err != nil {
			return nil, err
		}
		calls[nr] = c.first(list, answer)
	}
	return calls, nil
}

// rule returns the rule as it is for an architecture. Of x32's arguments
// libseccomp compares the lower half, as of those of other 32-bit programs,
// whose upper half the kernel clears.
func (a arch) rule(r rule) rule {
	if a.offset == x32Bit {
		r.conds = slices.Clone(r.conds)
		for i := range r.conds {
			r.conds[i].narrow = true
		}
	}
	return r
}

// settle puts the rules for one call in the order in which they are tried, before the
// answer: the strictest first. The first rule without conditions decides alone, as with
// libseccomp; Podman's default profile needs that.
func settle(rules []rule, fallback Action) ([]rule, Action, error) {
	always := slices.IndexFunc(rules, func(r rule) bool { return len(r.conds) == 0 && r.action != fallback })
	if always >= 0 {
		first := rules[always]
		for _, r := range rules {
			if len(r.conds) > 0 && strictness(r.action) < strictness(first.action) {
				return nil, 0, fmt.Errorf("%s: has no effect: %s names the same call without conditions and allows more", r.origin, first.origin)
			}
		}
		return nil, first.action, nil
	}
	// A rule without conditions is left only where it restates the default.
	rules = slices.DeleteFunc(rules, func(r rule) bool { return len(r.conds) == 0 })
	slices.SortStableFunc(rules, func(r, s rule) int {
		return cmp.Or(cmp.Compare(strictness(r.action), strictness(s.action)), cmp.Compare(r.action, s.action))
	})
	return rules, fallback, nil
}

// A span is a run of call numbers, up to where the next one begins, that get
// one decision.
type span struct {
	first uint32
	*check
}

// spans returns what the filter does with all numbers, in their order.
func spans(calls map[uint32]*check, fallback *check) []span {
	list := []span{{0, fallback}}
	for _, nr := range slices.Sorted(maps.Keys(calls)) {
		if last := &list[len(list)-1]; last.first == nr {
			last.check = calls[nr]
		} else {
			list = append(list, span{nr, calls[nr]})
		}
		list = append(list, span{nr + 1, fallback})
	}
	return list
}

// compile returns the filter: by architecture, then by a balanced tree over
// the numbers, then by the rules of the call.
func (prof *profile) compile() ([]instruction, error) {
	// What another architecture gets, as libseccomp gives it.
	code, err := assemble(prof.arches, prof.fallback, RetKillThread, prof.decide)
	if err == nil && len(code) > maxInstructions {
		return nil, fmt.Errorf("%d instructions: the kernel takes %d", len(code), maxInstructions)
	}
	return code, err
}

// noCall is the number that a tracer gives a call that shall not run (ptrace(2)). The kernel runs
// nothing for it, and a refusal would replace the result that the tracer set.
const noCall = 1<<32 - 1

// assemble returns a program: what decide says of each architecture's calls, fallback for its
// others, and other for the calls of all other architectures.
func assemble(arches []arch, fallback, other Action,
	decide func(arch, checks) (map[uint32]*check, error)) ([]instruction, error) {
	// What the filter does with calls of each architecture word that it may
	// see. x32 shares x86_64's word; its numbers are far above.
	var words []uint32
	byWord := make(map[uint32]map[uint32]*check)
	all := make(checks)
	for _, a := range arches {
		calls, err := decide(a, all)
		if err != nil {
			return nil, err
		}
		if byWord[a.audit] == nil {
			words = append(words, a.audit)
			byWord[a.audit] = make(map[uint32]*check)
		}
		maps.Copy(byWord[a.audit], calls)
	}
	x32 := slices.ContainsFunc(arches, func(a arch) bool { return a.offset == x32Bit })

	b := assembler{places: make(map[place]label)}
	next := b.check(all.answer(other), false)
	for _, word := range slices.Backward(words) {
		list := spans(byWord[word], all.answer(fallback))
		if word == ArchX86_64 && !x32 {
			list = append(list, span{x32Bit, all.answer(other)})
		}
		list = append(list, span{noCall, all.answer(RetAllow)})
		list = slices.CompactFunc(list, func(s, t span) bool { return s.check == t.check })
		b.enter(b.tree(list, cuts(list)))
		next = b.jump(opEqual, word, b.emit(instruction{op: opLoad, k: offsetNr}), next)
	}
	b.emit(instruction{op: opLoad, k: offsetArch})
	slices.Reverse(b.code)
	return b.code, nil
}

// Offsets in struct seccomp_data.
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16
)

// A check is what is left to decide about a call: nothing, it is answered; or it goes
// on by what a word under a mask is compared with.
type check struct {
	answer     Action // where op is 0
	op         uint16
	word, mask uint32
	k          uint32
	yes, no    *check
}

// holds reports whether the accumulator, as one check wants it, is as another does.
func (c *check) holds(d *check) bool { return d.op != 0 && c.word == d.word && c.mask == d.mask }

// checks has each check once: what decides alike is written once.
type checks map[check]*check

func (all checks) of(c check) *check {
	if c.op != 0 && c.yes == c.no {
		return c.yes
	}
	if all[c] == nil {
		all[c] = &c
	}
	return all[c]
}

func (all checks) answer(a Action) *check { return all.of(check{answer: a}) }

// first tries rules in order, and else answers.
func (all checks) first(rules []rule, answer Action) *check {
	next := all.answer(answer)
	for _, r := range slices.Backward(rules) {
		yes := all.answer(r.action)
		for _, c := range slices.Backward(r.conds) {
			yes = all.condition(c, yes, next)
		}
		next = yes
	}
	return next
}

// condition compares an argument, in two halves.
func (all checks) condition(c condition, yes, no *check) *check {
	switch c.op {
	case notEqual:
		c.op, yes, no = equal, no, yes
	case less:
		c.op, yes, no = greaterEqual, no, yes
	case lessEqual:
		c.op, yes, no = greater, no, yes
	}
	lo, hi := uint32(c.value), uint32(c.value>>32)
	at := offsetArgs + 8*uint32(c.arg)
	switch c.op {
	case equal, maskedEqual:
		mask := uint64(math.MaxUint64)
		if c.op == maskedEqual {
			mask = c.mask
		}
		if !c.narrow {
			yes = all.masked(at+4, uint32(mask>>32), hi, yes, no)
		}
		return all.masked(at, uint32(mask), lo, yes, no) // first: others may compare it too
	}
	op := uint16(opGreater)
	if c.op == greaterEqual {
		op = opAtLeast
	}
	low := all.of(check{op: op, word: at, mask: math.MaxUint32, k: lo, yes: yes, no: no})
	if c.narrow {
		return low
	}
	same := all.of(check{op: opEqual, word: at + 4, mask: math.MaxUint32, k: hi, yes: low, no: no})
	return all.of(check{op: opGreater, word: at + 4, mask: math.MaxUint32, k: hi, yes: yes, no: same})
}

// masked compares one half of an argument, unless nothing of it is asked. Whether any
// bit is set one instruction asks, without a mask before it.
func (all checks) masked(at, mask, value uint32, yes, no *check) *check {
	c := check{op: opEqual, word: at, mask: mask, k: value, yes: yes, no: no}
	switch {
	case mask == 0:
		return yes
	case value == 0:
		c.op, c.mask, c.k, c.yes, c.no = opAnySet, math.MaxUint32, mask, no, yes
	case value == mask && mask&(mask-1) == 0:
		c.op, c.mask = opAnySet, math.MaxUint32
	}
	return all.of(c)
}

// An assembler builds a program from its end, so that the target of each
// (forward) jump is known when the jump is written.
type assembler struct {
	code   []instruction   // the last one first
	places map[place]label // where each was written last
}

// A place is where a check begins, or, where its word is loaded, goes on.
type place struct {
	*check
	loaded bool
}

// A label is a place in the program: how many instructions stand from it to the end.
type label int

// emit puts an instruction before all others.
func (b *assembler) emit(i instruction) label {
	b.code = append(b.code, i)
	return label(len(b.code))
}

// enter makes sure that what was written last, or is written next, goes on there.
func (b *assembler) enter(to label) {
	if int(to) != len(b.code) {
		b.emit(instruction{op: opJump | opAlways, k: uint32(len(b.code) - int(to))})
	}
}

// reach returns a place from which a conditional jump, written soon (two instructions
// from now at the latest), gets to to.
func (b *assembler) reach(to label) label {
	if len(b.code)+2-int(to) > math.MaxUint8 {
		b.enter(to)
		return label(len(b.code))
	}
	return to
}

// jump compares the accumulator with k.
func (b *assembler) jump(op uint16, k uint32, yes, no label) label {
	yes, no = b.reach(yes), b.reach(no)
	n := len(b.code)
	return b.emit(instruction{op: opJump | op, jt: uint8(n - int(yes)), jf: uint8(n - int(no)), k: k})
}

// check returns where a check is written, once, or within reach. Its word is
// in the accumulator where loaded is set.
func (b *assembler) check(c *check, loaded bool) label {
	at := place{c, loaded}
	to, ok := b.places[at]
	switch {
	case ok && c.op != 0:
		to = b.reach(to)
	case ok && len(b.code)+2-int(to) <= math.MaxUint8:
	case c.op == 0:
		to = b.emit(instruction{op: opRetK, k: uint32(c.answer)})
	case loaded:
		no := b.check(c.no, c.holds(c.no))
		to = b.jump(c.op, c.k, b.check(c.yes, c.holds(c.yes)), no)
	default:
		b.enter(b.check(c, true))
		if c.mask != math.MaxUint32 {
			b.emit(instruction{op: opALU | opAnd, k: c.mask})
		}
		to = b.emit(instruction{op: opLoad, k: c.word})
	}
	b.places[at] = to
	return to
}

// tree decides by the number, which is in the accumulator: by halves of what [cuts]
// makes of a list, and in the end by single numbers.
func (b *assembler) tree(list []span, cuts []int) label {
	from, to := cuts[0], cuts[len(cuts)-1]
	if mid := (len(cuts) - 1) / 2; mid > 0 {
		high := b.tree(list, cuts[mid:])
		low := b.tree(list, cuts[:mid+1])
		return b.jump(opAtLeast, list[cuts[mid]].first, high, low)
	}
	rest := b.check(list[from].check, false)
	for i := to - 2; i > from; i -= 2 {
		rest = b.jump(opEqual, list[i].first, b.check(list[i].check, false), rest)
	}
	return rest
}

// cuts cuts a list where that makes the fewest comparisons: one for each cut, and one
// for each single number that stands in a longer run.
func cuts(list []span) (at []int) {
	const most = 7 // so that it takes no longer than a tree
	cost, from := make([]int, len(list)+1), make([]int, len(list)+1)
	for end := 1; end <= len(list); end++ {
		cost[end] = math.MaxInt
		for length := 1; length <= min(end, most); length += 2 {
			start := end - length
			if length > 1 && (list[start].check != list[start+2].check || list[start+1].first+1 != list[start+2].first) {
				break
			}
			if c := cost[start] + 1 + length/2; c < cost[end] {
				cost[end], from[end] = c, start
			}
		}
	}
	for end := len(list); end > 0; end = from[end] {
		at = append(at, end)
	}
	slices.Reverse(at)
	return append([]int{0}, at...)
}
