package seccomp

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// testProfile is a profile in the form that runtimes read.
type testProfile struct {
	DefaultAction string     `json:"defaultAction"`
	Architectures []string   `json:"architectures"`
	Syscalls      []testRule `json:"syscalls"`

	values []uint64 // that conditions compare with
}

type testRule struct {
	Names    []string  `json:"names"`
	Action   string    `json:"action"`
	ErrnoRet *uint16   `json:"errnoRet,omitempty"`
	Args     []testArg `json:"args"`
}

type testArg struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

func (p testProfile) json(t testing.TB) []byte {
	src, err := json.Marshal(p)
	require.NoError(t, err)
	return src
}

var (
	testActions = []string{"SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP", "SCMP_ACT_LOG"}
	testOps     = []string{"SCMP_CMP_EQ", "SCMP_CMP_MASKED_EQ", "SCMP_CMP_NE", "SCMP_CMP_LT", "SCMP_CMP_LE", "SCMP_CMP_GT", "SCMP_CMP_GE"}
)

// randomProfile returns a profile in which a call has one rule of any kind, or
// several that compare one argument for equality, all under masks or none.
func randomProfile(r *rand.Rand, goarch string, one bool) testProfile {
	m, _ := machines(goarch)
	var p testProfile
	for _, a := range m.arches[:1+r.IntN(len(m.arches))] {
		p.Architectures = append(p.Architectures, a.oci)
	}
	p.DefaultAction = testActions[r.IntN(len(testActions))]
	for _, i := range r.Perm(len(allCalls()))[:1+r.IntN(60)] {
		rule := testRule{Names: []string{syscallName(i)}}
		if _, _, ok := m.native().number(syscallName(i)); !ok {
			continue // libseccomp may leave out a load for a call that is not there
		}
		rule.pick(r)
		if one {
			for _, index := range r.Perm(6)[:r.IntN(4)] {
				rule.Args = append(rule.Args, p.arg(r, uint(index), testOps))
			}
		} else {
			index, op := uint(r.IntN(6)), r.IntN(2)
			for range r.IntN(4) {
				rule.Args = []testArg{p.arg(r, index, testOps[op:op+1])}
				p.Syscalls = append(p.Syscalls, rule)
			}
			rule.Args = []testArg{p.arg(r, index, testOps[op:op+1])}
		}
		p.Syscalls = append(p.Syscalls, rule)
	}
	return p
}

func (rule *testRule) pick(r *rand.Rand) {
	rule.Action = testActions[r.IntN(len(testActions))]
	rule.ErrnoRet = nil
	if errno := uint16(r.IntN(4096)); rule.Action == "SCMP_ACT_ERRNO" && errno > 0 {
		rule.ErrnoRet = &errno
	}
}

func (p *testProfile) arg(r *rand.Rand, index uint, ops []string) testArg {
	value := func() uint64 {
		v := []uint64{uint64(r.IntN(16)), uint64(r.Uint32()), r.Uint64(), uint64(1) << r.IntN(64)}[r.IntN(4)]
		if len(p.Architectures) > 1 {
			v &= 1<<32 - 1 // libseccomp cuts values down for 32-bit programs
		}
		p.values = append(p.values, v)
		return v
	}
	arg := testArg{index, value(), value(), ops[r.IntN(len(ops))]}
	if arg.Op == "SCMP_CMP_MASKED_EQ" {
		arg.Value |= 1
	}
	return arg
}

// mean returns what the rules mean for a call: the strictest of those that
// hold, a rule without conditions before all others.
func (p testProfile) mean(d Data, a arch) Action {
	action := func(name string, errno *uint16) Action {
		if name == "SCMP_ACT_ERRNO" && errno != nil {
			return Errno(*errno)
		}
		return map[string]Action{
			"SCMP_ACT_ALLOW": RetAllow, "SCMP_ACT_ERRNO": Errno(1), "SCMP_ACT_KILL": RetKillThread, "SCMP_ACT_KILL_THREAD": RetKillThread,
			"SCMP_ACT_KILL_PROCESS": RetKillProcess, "SCMP_ACT_TRAP": RetTrap, "SCMP_ACT_LOG": RetLog,
		}[name]
	}
	var holding []Action
	fallback := action(p.DefaultAction, nil)
	for _, r := range p.Syscalls {
		nr, _, ok := a.number(r.Names[0])
		if !ok || nr != d.Nr {
			continue
		}
		do := action(r.Action, r.ErrnoRet)
		if len(r.Args) == 0 {
			if do != fallback {
				return do
			}
			continue
		}
		var results []bool
		indexes := make(map[uint]bool)
		for _, arg := range r.Args {
			v, value, valueTwo := d.Args[arg.Index], arg.Value, arg.ValueTwo
			if a.oci == "SCMP_ARCH_X32" {
				v, value, valueTwo = uint64(uint32(v)), uint64(uint32(value)), uint64(uint32(valueTwo))
			}
			results = append(results, map[string]bool{
				"SCMP_CMP_EQ": v == value, "SCMP_CMP_NE": v != value, "SCMP_CMP_LT": v < value, "SCMP_CMP_LE": v <= value,
				"SCMP_CMP_GT": v > value, "SCMP_CMP_GE": v >= value, "SCMP_CMP_MASKED_EQ": v&value == valueTwo&value,
			}[arg.Op])
			indexes[arg.Index] = true
		}
		if len(indexes) < len(r.Args) && slices.Contains(results, true) || len(indexes) == len(r.Args) && !slices.Contains(results, false) {
			holding = append(holding, do)
		}
	}
	if len(holding) == 0 {
		return fallback
	}
	return slices.MinFunc(holding, func(a, b Action) int {
		if strictness(a) != strictness(b) {
			return int(strictness(a)>>16 - strictness(b)>>16)
		}
		return int(int64(a) - int64(b))
	})
}

// Any rules, any number for a call, agreeing or not.
func TestCompilerKeepsTheMeaningOfRules(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		t.Run(goarch, func(t *testing.T) {
			m, _ := machines(goarch)
			r := rand.New(rand.NewPCG(4, 4))
			refused := 0
			for range 150 {
				p := testProfile{DefaultAction: testActions[r.IntN(len(testActions))]}
				for _, a := range m.arches {
					p.Architectures = append(p.Architectures, a.oci)
				}
				var names []string
				for _, i := range r.Perm(len(allCalls()))[:1+r.IntN(20)] {
					names = append(names, syscallName(i))
				}
				for _, name := range names {
					for range 1 + r.IntN(4) {
						rule := testRule{Names: []string{name}}
						rule.pick(r)
						if r.IntN(8) > 0 {
							for range 1 + r.IntN(3) {
								rule.Args = append(rule.Args, p.arg(r, uint(r.IntN(6)), testOps))
							}
						}
						p.Syscalls = append(p.Syscalls, rule)
					}
				}
				src := p.json(t)
				b, err := CompileOCI(src, goarch)
				if err != nil {
					require.ErrorContains(t, err, "has no effect")
					refused++
					continue
				}
				program := load(t, b)
				for _, a := range m.arches {
					for _, name := range append(names, "getpid", "read") {
						nr, _, ok := a.number(name)
						if !ok {
							continue
						}
						for range 40 {
							d := Data{Nr: nr, Arch: a.audit}
							for i := range d.Args {
								d.Args[i] = r.Uint64()
								if len(p.values) > 0 && r.IntN(4) > 0 {
									d.Args[i] = p.values[r.IntN(len(p.values))] + uint64(r.IntN(3)) - 1
								}
							}
							if want, got := p.mean(d, a), program.Run(d); want != got { // asked a hundred thousand times
								require.Equal(t, want, got, "%+v %s %s %s", d, a.oci, name, src)
							}
						}
					}
				}
			}
			require.Less(t, refused, 125, "most profiles compile")
		})
	}
}

// allCalls are the names of the table.
func allCalls() (names []string) {
	for i := range len(syscalls) / rowSize {
		names = append(names, syscallName(i))
	}
	return names
}
