//go:build !linux && !darwin

package state

import "os"

func RemoveAll(root *os.Root, name string) error { return root.RemoveAll(name) }
