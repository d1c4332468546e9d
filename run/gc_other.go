//go:build !linux

package run

// Control groups are Linux's.
func removeGroups([]string) error { return nil }

// RemoveLeftovers has nothing to remove.
func RemoveLeftovers() error { return nil }
