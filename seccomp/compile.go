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

// A decision is what a filter does with a call: try the rules, the strictest
// first, and else give the answer.
type decision struct {
	rules  []rule
	answer Action
}

// strictness orders actions as the kernel does where several filters answer:
// as signed numbers, the smallest is the strictest.
func strictness(a Action) int64 { return int64(int32(a & retAction)) }

// decide returns what the profile says of each call that it names for an
// architecture, by the number that the filter sees.
func (prof *profile) decide(a arch) (map[uint32]decision, error) {
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
	calls := make(map[uint32]decision, len(named))
	for _, nr := range slices.Sorted(maps.Keys(named)) {
		d, err := settle(named[nr], prof.fallback)
		if err != nil {
			return nil, err
		}
		calls[nr] = d
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

// settle turns the rules for one call into a decision. The first rule without
// conditions decides alone, as with libseccomp; Podman's default profile needs
// that.
func settle(rules []rule, fallback Action) (decision, error) {
	always := slices.IndexFunc(rules, func(r rule) bool { return len(r.conds) == 0 && r.action != fallback })
	if always >= 0 {
		first := rules[always]
		for _, r := range rules {
			if len(r.conds) > 0 && strictness(r.action) < strictness(first.action) {
				return decision{}, fmt.Errorf("%s: has no effect: %s names the same call without conditions and allows more", r.origin, first.origin)
			}
		}
		return decision{answer: first.action}, nil
	}
	// A rule without conditions is left only where it restates the default.
	rules = slices.DeleteFunc(rules, func(r rule) bool { return len(r.conds) == 0 })
	slices.SortStableFunc(rules, func(r, s rule) int {
		return cmp.Or(cmp.Compare(strictness(r.action), strictness(s.action)), cmp.Compare(r.action, s.action))
	})
	return decision{rules, fallback}, nil
}

// A span is a run of call numbers, up to where the next one begins, that get
// one decision.
type span struct {
	first uint32
	decision
}

// spans returns what the filter does with all numbers, in their order.
func spans(calls map[uint32]decision, fallback Action) []span {
	list := []span{{0, decision{answer: fallback}}}
	add := func(first uint32, d decision) {
		last := &list[len(list)-1]
		switch {
		case last.first == first:
			last.decision = d
		case len(d.rules) > 0 || len(last.rules) > 0 || d.answer != last.answer:
			list = append(list, span{first, d})
		}
	}
	for _, nr := range slices.Sorted(maps.Keys(calls)) {
		add(nr, calls[nr])
		add(nr+1, decision{answer: fallback})
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

// assemble returns a program: what decide says of each architecture's calls, fallback for its
// others, and other for the calls of all other architectures.
func assemble(arches []arch, fallback, other Action,
	decide func(arch) (map[uint32]decision, error)) ([]instruction, error) {
	// What the filter does with calls of each architecture word that it may
	// see. x32 shares x86_64's word; its numbers are far above.
	var words []uint32
	byWord := make(map[uint32]map[uint32]decision)
	for _, a := range arches {
		calls, err := decide(a)
		if err != nil {
			return nil, err
		}
		if byWord[a.audit] == nil {
			words = append(words, a.audit)
			byWord[a.audit] = make(map[uint32]decision)
		}
		maps.Copy(byWord[a.audit], calls)
	}
	x32 := slices.ContainsFunc(arches, func(a arch) bool { return a.offset == x32Bit })

	var b assembler
	next := b.answer(other)
	for _, word := range slices.Backward(words) {
		list := spans(byWord[word], fallback)
		if word == ArchX86_64 && !x32 {
			// -1 is what a tracer makes of a call that shall not run.
			list = append(list, span{x32Bit, decision{answer: other}}, span{1<<32 - 1, decision{answer: fallback}})
		}
		if to := b.tree(list); int(to) != len(b.code) {
			b.emit(instruction{op: opJump | opAlways, k: uint32(len(b.code) - int(to))})
		}
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

// An assembler builds a program from its end, so that the target of each
// (forward) jump is known when the jump is written.
type assembler struct {
	code    []instruction    // the last one first
	answers map[Action]label // where the program last returned each action
}

// A label is a place in the program: how many instructions stand from it to the end.
type label int

// emit puts an instruction before all others.
func (b *assembler) emit(i instruction) label {
	b.code = append(b.code, i)
	return label(len(b.code))
}

// far reports whether a conditional jump written soon (two instructions from
// now at the latest) could not reach to.
func (b *assembler) far(to label) bool { return len(b.code)+2-int(to) > math.MaxUint8 }

// answer returns a place that returns the action.
func (b *assembler) answer(a Action) label {
	if to, ok := b.answers[a]; ok && !b.far(to) {
		return to
	}
	if b.answers == nil {
		b.answers = make(map[Action]label)
	}
	b.answers[a] = b.emit(instruction{op: opRetK, k: uint32(a)})
	return b.answers[a]
}

// reach returns a place from which a conditional jump, written soon, gets to to.
func (b *assembler) reach(to label) label {
	if !b.far(to) {
		return to
	}
	return b.emit(instruction{op: opJump | opAlways, k: uint32(len(b.code) - int(to))})
}

// jump compares the accumulator with k.
func (b *assembler) jump(op uint16, k uint32, yes, no label) label {
	yes, no = b.reach(yes), b.reach(no)
	n := len(b.code)
	return b.emit(instruction{op: opJump | op, jt: uint8(n - int(yes)), jf: uint8(n - int(no)), k: k})
}

// tree decides by the number, which is in the accumulator.
func (b *assembler) tree(list []span) label {
	if len(list) == 1 {
		return b.decision(list[0].decision)
	}
	mid := len(list) / 2
	high := b.tree(list[mid:])
	low := b.tree(list[:mid])
	return b.jump(opAtLeast, list[mid].first, high, low)
}

func (b *assembler) decision(d decision) label {
	next := b.answer(d.answer)
	for _, r := range slices.Backward(d.rules) {
		yes := b.answer(r.action)
		for _, c := range slices.Backward(r.conds) {
			yes = b.condition(c, yes, next)
		}
		next = yes
	}
	return next
}

// condition compares an argument, in two halves, the upper first.
func (b *assembler) condition(c condition, yes, no label) label {
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
		yes = b.masked(at, uint32(mask), lo, yes, no)
		if c.narrow {
			return yes
		}
		return b.masked(at+4, uint32(mask>>32), hi, yes, no)
	}
	op := uint16(opGreater)
	if c.op == greaterEqual {
		op = opAtLeast
	}
	b.jump(op, lo, yes, no)
	low := b.emit(instruction{op: opLoad, k: at})
	if c.narrow {
		return low
	}
	same := b.jump(opEqual, hi, low, no)
	b.jump(opGreater, hi, yes, same)
	return b.emit(instruction{op: opLoad, k: at + 4})
}

// masked compares one half of an argument, unless nothing of it is asked.
func (b *assembler) masked(at, mask, value uint32, yes, no label) label {
	if mask == 0 {
		return yes
	}
	b.jump(opEqual, value, yes, no)
	if mask != math.MaxUint32 {
		b.emit(instruction{op: opALU | opAnd, k: mask})
	}
	return b.emit(instruction{op: opLoad, k: at})
}
