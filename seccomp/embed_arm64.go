// The filters are of Linux; a launcher on a Mac hands them to a container of its virtual machine.

//go:build linux || darwin

package seccomp

import _ "embed"

//go:embed builtin/default.arm64.bpf
var defaultFilter string

//go:embed builtin/nested.arm64.bpf
var nestedFilter string

//go:embed builtin/floor.arm64.bpf
var floorFilter string

//go:embed builtin/floor-nested.arm64.bpf
var nestedFloorFilter string
