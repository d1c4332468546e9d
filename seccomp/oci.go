package seccomp

import (
	"encoding/json"
	"fmt"

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
	spec := ociProfile{"SCMP_ACT_ERRNO", rules.DefaultErrno, arches, nil}
	for _, r := range list {
		for _, path := range r.Node.Paths() {
			call := ociCall{Names: r.Names, Action: "SCMP_ACT_ALLOW"}
			if path.Errno != rules.Allow {
				errno := path.Errno &^ rules.Done
				call.Action, call.ErrnoRet = "SCMP_ACT_ERRNO", &errno
			}
			for _, c := range path.Conds {
				arg := ociArg{c.Arg, c.Mask, c.Value, "SCMP_CMP_MASKED_EQ"}
				if c.Differs {
					arg = ociArg{c.Arg, c.Value, 0, "SCMP_CMP_NE"}
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

type ociProfile struct {
	DefaultAction   string    `json:"defaultAction"`
	DefaultErrnoRet uint32    `json:"defaultErrnoRet"`
	Architectures   []string  `json:"architectures"`
	Syscalls        []ociCall `json:"syscalls"`
}

type ociCall struct {
	Names    []string `json:"names"`
	Action   string   `json:"action"`
	ErrnoRet *uint32  `json:"errnoRet,omitempty"`
	Args     []ociArg `json:"args,omitempty"`
}

type ociArg struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo,omitempty"`
	Op       string `json:"op"`
}
