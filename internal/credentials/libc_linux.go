//go:build cgo

package credentials

// libc says that the C library may be linked, whose functions package syscall
// then calls.
const libc = true
