package seccomp

import _ "embed"

//go:embed builtin/default.amd64.bpf
var defaultFilter string

//go:embed builtin/nested.amd64.bpf
var nestedFilter string
