package seccomp

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// What libseccomp makes of the built-in rules and what is embedded decide alike,
// whatever the arguments.
func TestShortenedFiltersDecideAsLibseccomps(t *testing.T) {
	for _, name := range []string{NameDefault, NameNested} {
		for _, goarch := range []string{"amd64", "arm64"} {
			long, short := builtinByLibseccomp(t, name, goarch), load(t, builtinFile(t, name, goarch))
			require.Less(t, 3*len(short.code), len(long.code))
			calls, refused := compare(t, long, short)
			require.Greater(t, calls, 4_000, name)
			require.Greater(t, refused, 1_000, name)
		}
	}
}

func TestShortenKeepsWhatProfilesDecide(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	shorter := 0
	for i := range 80 {
		goarch := []string{"amd64", "arm64"}[i%2]
		src := randomProfile(r, goarch, i%3 == 0).json(t)
		long, err := CompileOCI(src, goarch)
		require.NoError(t, err)
		short, err := shorten(long)
		require.NoError(t, err, "%s", src)
		compare(t, load(t, long), load(t, short))
		if len(short) < len(long) {
			shorter++
		}
	}
	require.Greater(t, shorter, 40)
}

// compare runs two programs with every combination of outcomes of what either
// of them compares, as far as chance finds values for it.
func compare(t *testing.T, long, short Program) (calls, refused int) {
	r := rand.New(rand.NewPCG(8, 8))
	var numbers []uint32
	for _, p := range []Program{long, short} {
		numbers = append(numbers, bounds(p.code, offsetNr)...)
	}
	slices.Sort(numbers)
	for _, word := range bounds(long.code, offsetArch) {
		for _, nr := range slices.Compact(numbers) {
			d := Data{Arch: word, Nr: nr}
			var words [12][]uint32
			product := 1
			for i := range words {
				words[i] = values(r, append(tests(long, d, offsetArgs+4*uint32(i)), tests(short, d, offsetArgs+4*uint32(i))...))
				product *= len(words[i])
			}
			for n := range min(product, 3000) {
				for i := range d.Args {
					pick := func(list []uint32) uint64 {
						if product > 3000 {
							return uint64(list[r.IntN(len(list))])
						}
						v := list[n%len(list)]
						n /= len(list)
						return uint64(v)
					}
					lo := pick(words[2*i])
					d.Args[i] = lo | pick(words[2*i+1])<<32
				}
				want := long.Run(d)
				if got := short.Run(d); got != want {
					require.Equal(t, want, got, "%+v", d)
				}
				calls++
				if want != RetAllow {
					refused++
				}
			}
		}
	}
	return calls, refused
}

// A test is what a program compares with a word, as it is written.
type asked struct {
	op      uint16
	mask, k uint32
}

// tests returns what a program may compare a word of the arguments with, on
// any way that it takes for a call.
func tests(p Program, d Data, word uint32) (list []asked) {
	seen := make(map[place]bool)
	var walk func(at place)
	walk = func(at place) {
		i := p.code[at.pc]
		if seen[at] || i.op == opRetK {
			return
		}
		seen[at] = true
		next := place{at.pc + 1, at.word, at.mask}
		switch {
		case i.op == opLoad:
			next.word, next.mask = i.k, math.MaxUint32
		case i.op == opALU|opAnd:
			next.mask &= i.k
		case i.op == opJump|opAlways:
			next.pc += int(i.k)
		default:
			yes, no := next, next
			yes.pc += int(i.jt)
			no.pc += int(i.jf)
			known := map[uint32]uint32{offsetNr: d.Nr, offsetArch: d.Arch}
			value, ok := known[at.word]
			if !ok || holds(i.op&0xf0, value, i.k) {
				walk(yes)
			}
			if !ok || !holds(i.op&0xf0, value, i.k) {
				walk(no)
			}
			if at.word == word {
				list = append(list, asked{i.op & 0xf0, at.mask, i.k})
			}
			return
		}
		walk(next)
	}
	walk(place{})
	return list
}

// values returns values of a word, one for each combination of outcomes that is found.
func values(r *rand.Rand, list []asked) []uint32 {
	try := []uint32{0}
	if len(list) > 0 {
		try = append(try, 1, math.MaxUint32, 1<<31)
		for bit := range 32 {
			try = append(try, 1<<bit)
		}
	}
	for _, c := range list {
		for _, v := range []uint32{c.k, c.k - 1, c.k + 1, c.k & c.mask, c.mask} {
			try = append(try, v, v|^c.mask, v&^c.mask)
			for bit := range 32 {
				try = append(try, v^1<<bit)
			}
			for range 10 {
				try = append(try, v&c.mask|r.Uint32()&^c.mask, v^(1<<r.IntN(32)|1<<r.IntN(32)))
			}
		}
	}
	seen := make(map[string]bool)
	var found []uint32
	for _, v := range try {
		outcome := make([]byte, len(list))
		for i, c := range list {
			if holds(c.op, v&c.mask, c.k) {
				outcome[i] = 1
			}
		}
		if !seen[string(outcome)] {
			seen[string(outcome)] = true
			found = append(found, v)
		}
	}
	return found
}

func TestShortenRefusesWhatItDoesNotUnderstand(t *testing.T) {
	ret := instruction{op: opRetK, k: uint32(RetAllow)}
	loadArg := instruction{op: opLoad, k: offsetArgs}
	for want, code := range map[string][]instruction{
		"shorten filter: instruction 2: comparison with 0x1 under mask 0xfff0: not understood": {
			loadArg, {op: opALU | opAnd, k: 0xfff0}, {op: opJump | opAtLeast, k: 1, jf: 1}, ret, {op: opRetK}},
		"shorten filter: instruction 1: comparison with 0xffffffff under mask 0xffffffff: not understood": {
			loadArg, {op: opJump | opGreater, k: math.MaxUint32, jf: 1}, ret, {op: opRetK}},
		"shorten filter: instruction 1: bits of word 0: not understood": {{op: opLoad}, {op: opJump | opAnySet, k: 1, jf: 1}, ret, {op: opRetK}},
		"shorten filter: instruction 2: bits of word 4: not understood": {
			{op: opLoad, k: offsetArch}, {op: opALU | opAnd, k: 1}, {op: opJump | opEqual, k: 1, jf: 1}, ret, {op: opRetK}},
		"load filter: instruction 0: the last one must return": {loadArg},
	} {
		_, err := shorten(encode(code))
		require.EqualError(t, err, want)
	}
}

// Each shape that a comparison may have, beside what it is turned into.
func TestShorten(t *testing.T) {
	allow, refuse := instruction{op: opRetK, k: uint32(RetAllow)}, instruction{op: opRetK, k: uint32(Errno(1))}
	arg := instruction{op: opLoad, k: offsetArgs}
	jump := func(op uint16, k uint32, jt, jf uint8) instruction {
		return instruction{op: opJump | op, jt: jt, jf: jf, k: k}
	}
	and := func(k uint32) instruction { return instruction{op: opALU | opAnd, k: k} }
	for name, c := range map[string]struct{ long, short []instruction }{
		"an answer": {[]instruction{arg, allow}, []instruction{allow}},
		"one bit": {
			[]instruction{arg, and(4), jump(opEqual, 4, 0, 1), refuse, allow},
			[]instruction{arg, jump(opAnySet, 4, 1, 0), allow, refuse}},
		"any of two bits": {
			[]instruction{arg, and(4), jump(opEqual, 4, 4, 0), arg, and(2), jump(opEqual, 2, 1, 0), allow, refuse},
			[]instruction{arg, jump(opAnySet, 6, 1, 0), allow, refuse}},
		"a range by its patterns": { // 8 to 15
			[]instruction{arg, and(0xfffffffc), jump(opEqual, 8, 4, 0), arg, and(0xfffffffc), jump(opEqual, 12, 1, 0), allow, refuse},
			[]instruction{arg, and(0xfffffffc), jump(opAtLeast, 8, 0, 2), jump(opAtLeast, 16, 1, 0), refuse, allow}},
		"what is known is not asked": {
			[]instruction{arg, jump(opEqual, 5, 0, 2), arg, jump(opAtLeast, 4, 1, 0), allow, refuse},
			[]instruction{arg, jump(opEqual, 5, 0, 1), refuse, allow}},
		"nothing of a word": {
			[]instruction{arg, and(0), jump(opEqual, 0, 0, 1), refuse, allow},
			[]instruction{refuse}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := shorten(encode(c.long))
			require.NoError(t, err)
			require.Equal(t, c.short, load(t, b).code)
			compare(t, load(t, encode(c.long)), load(t, b))
		})
	}
}

func FuzzShorten(f *testing.F) {
	f.Add(encode([]instruction{{op: opLoad, k: 16}, {op: opJump | opEqual, jt: 1, k: 3}, {op: opRetK, k: 1}, {op: opRetK}}))
	f.Add([]byte(Floor()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 24*instructionSize {
			return // what takes long to compare
		}
		short, err := shorten(b)
		if err == nil {
			compare(t, load(t, b), load(t, short))
		}
	})
}
