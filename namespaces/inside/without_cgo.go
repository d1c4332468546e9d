//go:build linux && !cgo

package inside

// libc says that the program's threads are a C library's.
const libc = false
