package seccomp

import (
	"encoding/json"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/pccrun/pccrun/seccomp/internal/rules"
)

// The names of the built-in filters, for [OCI].
const (
	NameDefault = "default"
	NameNested  = "nested"
)

// OCI returns a built-in filter as linux.seccomp of an OCI runtime
// configuration, so that runc and its like decide as the filter does, and what
// is lost on the way, a sentence each. goarch is amd64 or arm64.
func OCI(name, goarch string) (profile []byte, losses []string, err error) {
	list, arches, err := builtin(name, goarch)
	if err != nil {
		return nil, nil, err
	}
	fallback := uint(rules.DefaultErrno)
	spec := specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &fallback}
	for _, name := range arches {
		spec.Architectures = append(spec.Architectures, specs.Arch(name))
	}
	for _, r := range list {
		for _, path := range r.Node.Paths() {
			call := specs.LinuxSyscall{Names: r.Names, Action: specs.ActAllow}
			if path.Errno != rules.Allow {
				errno := uint(path.Errno &^ rules.Done)
				call.Action, call.ErrnoRet = specs.ActErrno, &errno
			}
			for _, c := range path.Conds {
				arg := specs.LinuxSeccompArg{Index: c.Arg, Value: c.Mask, ValueTwo: c.Value, Op: specs.OpMaskedEqual}
				if c.Differs {
					arg = specs.LinuxSeccompArg{Index: c.Arg, Value: c.Value, Op: specs.OpNotEqual}
				}
				call.Args = append(call.Args, arg)
			}
			spec.Syscalls = append(spec.Syscalls, call)
		}
	}
	profile, err = json.Marshal(spec)
	return profile, []string{
		"seccomp: calls by programs of an architecture that is not listed (x32, 32-bit arm) end the thread; the built-in filter answers ENOSYS",
	}, err
}

// builtin returns the rules of a built-in filter, and the architectures that it decides call by call.
func builtin(name, goarch string) (list []rules.Rule, arches []string, err error) {
	switch name {
	case NameDefault:
		list = rules.Default()
	case NameNested:
		list = rules.Nested()
	default:
		return nil, nil, fmt.Errorf("built-in filter %q: want %s or %s", name, NameDefault, NameNested)
	}
	if arches = rules.Arches(goarch); arches == nil {
		return nil, nil, fmt.Errorf("built-in filter %s: architecture %q: want amd64 or arm64", name, goarch)
	}
	return list, arches, nil
}
