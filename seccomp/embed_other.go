//go:build !linux || !(amd64 || arm64)

package seccomp

const defaultFilter, nestedFilter, floorFilter, nestedFloorFilter = "", "", "", ""
