package seccomp

import _ "embed"

//go:embed builtin/default.arm64.bpf
var defaultFilter string

//go:embed builtin/nested.arm64.bpf
var nestedFilter string
