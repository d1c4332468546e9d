//go:build !linux

package state

func straight(string) (is, exists bool) { return false, false }
