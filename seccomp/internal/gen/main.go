//go:build linux && cgo && libseccomp

// Command gen has libseccomp make filters: the built-in ones, as files, or one
// for each profile that it reads.
//
//	gen -out DIR          write NAME.GOARCH.bpf for each built-in filter, as
//	                      libseccomp makes it, not shortened
//	gen -oracle GOARCH    read OCI or Docker profiles from stdin, one a line, and
//	                      write for each "ok " and the filter in base64, or
//	                      "error " and why libseccomp refuses
//	gen -names            write "arch name number" for each name on stdin and
//	                      each architecture that libseccomp knows it for
//	gen -version          write the version of libseccomp
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pccrun/pccrun/seccomp/internal/rules"
	libseccomp "github.com/seccomp/libseccomp-golang"
)

func main() {
	out := flag.String("out", "", "write the built-in filters to this directory")
	oracle := flag.String("oracle", "", "make filters of profiles for this Go architecture")
	names := flag.Bool("names", false, "write the numbers of system calls")
	version := flag.Bool("version", false, "write the version of libseccomp")
	flag.Parse()
	var err error
	switch {
	case *version:
		major, minor, micro := libseccomp.GetLibraryVersion()
		fmt.Printf("%d.%d.%d\n", major, minor, micro)
	case *names:
		err = writeNumbers()
	case *oracle != "":
		err = answer(*oracle)
	default:
		err = generate(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func generate(dir string) error {
	for name, list := range map[string][]rules.Rule{"default": rules.Default(), "nested": rules.Nested()} {
		for _, goarch := range []string{"amd64", "arm64"} {
			b, err := build(list, goarch)
			if err != nil {
				return fmt.Errorf("filter %s for %s: %w", name, goarch, err)
			}
			if err := os.WriteFile(filepath.Join(dir, name+"."+goarch+".bpf"), b, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func build(list []rules.Rule, goarch string) ([]byte, error) {
	def := libseccomp.ActErrno.SetReturnCode(rules.DefaultErrno)
	f, err := libseccomp.NewFilter(def)
	if err != nil {
		return nil, err
	}
	defer f.Release()
	if err := f.SetBadArchAction(def); err != nil {
		return nil, err
	}
	if err := setArches(f, rules.Arches(goarch)); err != nil {
		return nil, err
	}
	for _, r := range list {
		action := libseccomp.ActAllow
		if r.Errno != rules.Allow {
			action = libseccomp.ActErrno.SetReturnCode(int16(r.Errno &^ rules.Done))
		}
		for _, name := range r.Names {
			call, err := libseccomp.GetSyscallFromName(name)
			if err != nil {
				return nil, fmt.Errorf("system call %s: %w", name, err)
			}
			if len(r.Conds) == 0 {
				err = f.AddRule(call, action)
			} else {
				var conds []libseccomp.ScmpCondition
				for _, c := range r.Conds {
					cond, err := condition(c)
					if err != nil {
						return nil, err
					}
					conds = append(conds, cond)
				}
				err = f.AddRuleConditional(call, action, conds)
			}
			if err != nil {
				return nil, fmt.Errorf("rule for %s %v: %w", name, r.Conds, err)
			}
		}
	}
	return export(f)
}

func condition(c rules.Cond) (libseccomp.ScmpCondition, error) {
	if c.Differs {
		return libseccomp.MakeCondition(c.Arg, libseccomp.CompareNotEqual, c.Value)
	}
	return libseccomp.MakeCondition(c.Arg, libseccomp.CompareMaskedEqual, c.Mask, c.Value)
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

// export returns the filter's bytes. libseccomp writes to a descriptor, and
// does not write again what a pipe did not take, so it gets a file.
func export(f *libseccomp.ScmpFilter) ([]byte, error) {
	tmp, err := os.CreateTemp("", "filter")
	if err != nil {
		return nil, err
	}
	defer tmp.Close()
	if err := os.Remove(tmp.Name()); err != nil {
		return nil, err
	}
	if err := f.ExportBPF(tmp); err != nil {
		return nil, err
	}
	fi, err := tmp.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, fi.Size())
	_, err = tmp.ReadAt(b, 0)
	return b, err
}
