//go:build linux && cgo && libseccomp

package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	libseccomp "github.com/seccomp/libseccomp-golang"
)

// A profile is as OCI runtimes and Docker read it; what they do with it is
// written down here a second time, apart from the compiler that is held
// against it.
type profile struct {
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

var actions = map[string]libseccomp.ScmpAction{
	"SCMP_ACT_ALLOW":        libseccomp.ActAllow,
	"SCMP_ACT_ERRNO":        libseccomp.ActErrno,
	"SCMP_ACT_KILL":         libseccomp.ActKillThread,
	"SCMP_ACT_KILL_THREAD":  libseccomp.ActKillThread,
	"SCMP_ACT_KILL_PROCESS": libseccomp.ActKillProcess,
	"SCMP_ACT_TRAP":         libseccomp.ActTrap,
	"SCMP_ACT_LOG":          libseccomp.ActLog,
}

var comparisons = map[string]libseccomp.ScmpCompareOp{
	"SCMP_CMP_EQ":        libseccomp.CompareEqual,
	"SCMP_CMP_NE":        libseccomp.CompareNotEqual,
	"SCMP_CMP_LT":        libseccomp.CompareLess,
	"SCMP_CMP_LE":        libseccomp.CompareLessOrEqual,
	"SCMP_CMP_GT":        libseccomp.CompareGreater,
	"SCMP_CMP_GE":        libseccomp.CompareGreaterEqual,
	"SCMP_CMP_MASKED_EQ": libseccomp.CompareMaskedEqual,
}

func answer(goarch string, unknown bool) error {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil
		}
		b, err := compile(line, goarch, unknown)
		if err != nil {
			fmt.Println("error", err)
		} else {
			fmt.Println("ok", base64.StdEncoding.EncodeToString(b))
		}
	}
}

func action(name string, errno *int16) libseccomp.ScmpAction {
	a := actions[name]
	if a == libseccomp.ActErrno {
		if errno == nil {
			return a.SetReturnCode(1)
		}
		return a.SetReturnCode(*errno)
	}
	return a
}

func compile(src []byte, goarch string, unknown bool) ([]byte, error) {
	var p profile
	if err := json.Unmarshal(src, &p); err != nil {
		return nil, err
	}
	def := action(p.DefaultAction, p.DefaultErrnoRet)
	f, err := libseccomp.NewFilter(def)
	if err != nil {
		return nil, err
	}
	defer f.Release()
	if unknown {
		if err := f.SetBadArchAction(def); err != nil {
			return nil, err
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
		return nil, err
	}
	for _, s := range p.Syscalls {
		if len(s.Includes.Caps) > 0 || slices.Contains(s.Excludes.Arches, goarch) || s.Excludes.MinKernel != "" ||
			len(s.Includes.Arches) > 0 && !slices.Contains(s.Includes.Arches, goarch) {
			continue
		}
		do := action(s.Action, s.ErrnoRet)
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
			c, err := libseccomp.MakeCondition(a.Index, comparisons[a.Op], values...)
			if err != nil {
				return nil, err
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
				return nil, fmt.Errorf("rule for %s: %w", name, err)
			}
		}
	}
	return export(f)
}

func writeNumbers() error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		for name, binding := range archNames {
			arch, err := libseccomp.GetArchFromString(binding)
			if err != nil {
				return err
			}
			// Negative numbers stand for calls that the architecture has not.
			if nr, err := libseccomp.GetSyscallFromNameByArch(in.Text(), arch); err == nil && nr >= 0 {
				fmt.Println(name, in.Text(), uint32(nr))
			}
		}
	}
	return in.Err()
}
