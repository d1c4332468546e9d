//go:build !linux

package start

// Heap does nothing here.
func Heap() {}
