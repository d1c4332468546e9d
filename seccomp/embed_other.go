//go:build !(linux || darwin) || !(amd64 || arm64)

package seccomp

const defaultFilter, nestedFilter, floorFilter, nestedFloorFilter = "", "", "", ""
