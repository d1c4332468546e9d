//go:build linux && !amd64

package inspect

// forbiddenHere are older forms of what is forbidden: none.
var forbiddenHere []uint32
