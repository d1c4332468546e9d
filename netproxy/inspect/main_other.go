//go:build !linux

package inspect

// Main is for Linux alone.
func Main() int { return 125 }
