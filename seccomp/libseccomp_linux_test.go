//go:build cgo && libseccomp

package seccomp

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"github.com/stretchr/testify/require"
)

// What libseccomp makes of the built-in rules and what is embedded decide alike,
// whatever the arguments.
func TestLibseccompBuiltin(t *testing.T) {
	for _, name := range []string{NameDefault, NameNested} {
		for _, goarch := range []string{"amd64", "arm64"} {
			profile, _, err := OCI(name, goarch)
			require.NoError(t, err)
			theirs, err := byLibseccomp(profile, goarch, true)
			require.NoError(t, err)
			ours := load(t, builtinFile(t, name, goarch))
			require.Less(t, 3*len(ours.code), len(theirs.code))
			require.Greater(t, compare(t, theirs, ours, 4000, nil), 20_000)
		}
	}
}

// The tables have the numbers that libseccomp has, wherever both know a name.
func TestLibseccompNumbers(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		m, _ := machines(goarch)
		for _, a := range m.arches {
			theirs, err := libseccomp.GetArchFromString(archNames[a.oci])
			require.NoError(t, err)
			agree := 0
			for _, call := range allCalls() {
				// Negative numbers stand for calls that the architecture has not.
				if want, err := libseccomp.GetSyscallFromNameByArch(call, theirs); err == nil && want >= 0 {
					nr, _, ok := a.number(call)
					require.True(t, ok, call)
					require.Equal(t, uint32(want), nr, call)
					agree++
				}
			}
			require.Greater(t, agree, 290, a.oci)
		}
	}
}

// Calls that libseccomp decides differently, and the reason.
func exempt(d Data, _, _ Action) bool {
	// i386's multiplexers: libseccomp lets socketcall and ipc through where a
	// call behind them is; to us they are calls of their own.
	if d.Arch == ArchI386 && (d.Nr == 102 || d.Nr == 117) {
		return true
	}
	// Calls newer than libseccomp 2.5.4.
	nr := d.Nr &^ x32Bit
	return nr >= 450 && nr < 512 || d.Arch == ArchX86_64 && (nr == 335 || nr == 336)
}

func TestLibseccompDefaultProfiles(t *testing.T) {
	for _, name := range []string{"docker", "podman"} {
		for _, goarch := range []string{"amd64", "arm64"} {
			t.Run(name+" "+goarch, func(t *testing.T) {
				src, err := os.ReadFile("testdata/" + name + ".json")
				require.NoError(t, err)
				want, err := byLibseccomp(src, goarch, false)
				require.NoError(t, err)
				b, err := CompileOCI(src, goarch)
				require.NoError(t, err)
				compare(t, want, load(t, b), 500, exempt)
			})
		}
	}
}

// libseccomp 2.5.4 errs now and then where several rules for one call compare by
// different operators, or are "not equal": it then forgets one of them. So it is
// asked what it answers rightly. All the rest is held against the meaning of the
// rules: TestCompilerKeepsTheMeaningOfRules.
func TestLibseccompRandomProfiles(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		t.Run(goarch, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 3))
			for i := range 120 {
				prof := randomProfile(r, goarch, i%2 == 0)
				src := prof.json(t)
				want, err := byLibseccomp(src, goarch, false)
				require.NoError(t, err, "%s", src)
				b, err := CompileOCI(src, goarch)
				require.NoError(t, err, "%s", src)
				compare(t, want, load(t, b), 20, exempt)
			}
		})
	}
}

// ociOfLibseccomp is a profile as OCI runtimes and Docker read it; what they do with it is
// written down here a second time, apart from the compiler that is held against it.
type ociOfLibseccomp struct {
	DefaultAction   string
	DefaultErrnoRet *int16
	Architectures   []string
	ArchMap         []struct {
		Architecture     string
		SubArchitectures []string
	}
	Syscalls []struct {
		Names    []string
		Action   string
		ErrnoRet *int16
		Args     []struct {
			Index           uint
			Value, ValueTwo uint64
			Op              string
		}
		Includes, Excludes struct {
			Caps, Arches []string
			MinKernel    string
		}
	}
}

var libseccompActions = map[string]libseccomp.ScmpAction{
	"SCMP_ACT_ALLOW":        libseccomp.ActAllow,
	"SCMP_ACT_ERRNO":        libseccomp.ActErrno,
	"SCMP_ACT_KILL":         libseccomp.ActKillThread,
	"SCMP_ACT_KILL_THREAD":  libseccomp.ActKillThread,
	"SCMP_ACT_KILL_PROCESS": libseccomp.ActKillProcess,
	"SCMP_ACT_TRAP":         libseccomp.ActTrap,
	"SCMP_ACT_LOG":          libseccomp.ActLog,
}

var libseccompComparisons = map[string]libseccomp.ScmpCompareOp{
	"SCMP_CMP_EQ":        libseccomp.CompareEqual,
	"SCMP_CMP_NE":        libseccomp.CompareNotEqual,
	"SCMP_CMP_LT":        libseccomp.CompareLess,
	"SCMP_CMP_LE":        libseccomp.CompareLessOrEqual,
	"SCMP_CMP_GT":        libseccomp.CompareGreater,
	"SCMP_CMP_GE":        libseccomp.CompareGreaterEqual,
	"SCMP_CMP_MASKED_EQ": libseccomp.CompareMaskedEqual,
}

// archNames turns OCI's names into those of libseccomp's Go binding.
var archNames = map[string]string{
	"SCMP_ARCH_X86_64":  "amd64",
	"SCMP_ARCH_X86":     "x86",
	"SCMP_ARCH_X32":     "x32",
	"SCMP_ARCH_AARCH64": "arm64",
	"SCMP_ARCH_ARM":     "arm",
}

func setArches(f *libseccomp.ScmpFilter, arches []string) error {
	native, err := libseccomp.GetNativeArch()
	if err != nil {
		return err
	}
	keep := false
	for _, a := range arches {
		arch, err := libseccomp.GetArchFromString(archNames[a])
		if err != nil {
			return err
		}
		if arch == native {
			keep = true
		} else if err := f.AddArch(arch); err != nil {
			return err
		}
	}
	if !keep {
		return f.RemoveArch(native)
	}
	return nil
}

func libseccompAction(name string, errno *int16) libseccomp.ScmpAction {
	a := libseccompActions[name]
	if a == libseccomp.ActErrno {
		if errno == nil {
			return a.SetReturnCode(1)
		}
		return a.SetReturnCode(*errno)
	}
	return a
}

// byLibseccomp is what libseccomp makes of a profile; where unknown is set, calls of an
// architecture that the profile does not list get its default action.
func byLibseccomp(src []byte, goarch string, unknown bool) (program Program, err error) {
	var p ociOfLibseccomp
	if err := json.Unmarshal(src, &p); err != nil {
		return program, err
	}
	def := libseccompAction(p.DefaultAction, p.DefaultErrnoRet)
	f, err := libseccomp.NewFilter(def)
	if err != nil {
		return program, err
	}
	defer f.Release()
	if unknown {
		if err := f.SetBadArchAction(def); err != nil {
			return program, err
		}
	}
	arches := p.Architectures
	native := map[string]string{"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}[goarch]
	for _, m := range p.ArchMap {
		if m.Architecture == native {
			arches = m.SubArchitectures
		}
	}
	if !slices.Contains(arches, native) {
		arches = append(arches, native)
	}
	if err := setArches(f, arches); err != nil {
		return program, err
	}
	for _, s := range p.Syscalls {
		if len(s.Includes.Caps) > 0 || slices.Contains(s.Excludes.Arches, goarch) || s.Excludes.MinKernel != "" ||
			len(s.Includes.Arches) > 0 && !slices.Contains(s.Includes.Arches, goarch) {
			continue
		}
		do := libseccompAction(s.Action, s.ErrnoRet)
		if do == def {
			continue
		}
		var conds []libseccomp.ScmpCondition
		seen, repeated := map[uint]bool{}, false
		for _, a := range s.Args {
			repeated = repeated || seen[a.Index]
			seen[a.Index] = true
			values := []uint64{a.Value}
			if a.Op == "SCMP_CMP_MASKED_EQ" {
				values = append(values, a.ValueTwo)
			}
			c, err := libseccomp.MakeCondition(a.Index, libseccompComparisons[a.Op], values...)
			if err != nil {
				return program, err
			}
			conds = append(conds, c)
		}
		for _, name := range s.Names {
			call, err := libseccomp.GetSyscallFromName(name)
			if err != nil {
				continue
			}
			switch {
			case len(conds) == 0:
				err = f.AddRule(call, do)
			case repeated:
				for _, c := range conds {
					if err = f.AddRuleConditional(call, do, []libseccomp.ScmpCondition{c}); err != nil {
						break
					}
				}
			default:
				err = f.AddRuleConditional(call, do, conds)
			}
			if err != nil {
				return program, fmt.Errorf("rule for %s: %w", name, err)
			}
		}
	}
	// libseccomp writes to a descriptor, and does not write again what a pipe did not take.
	tmp, err := os.CreateTemp("", "filter")
	if err != nil {
		return program, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := f.ExportBPF(tmp); err != nil {
		return program, err
	}
	b, err := os.ReadFile(tmp.Name())
	if err != nil {
		return program, err
	}
	return Load(b)
}
