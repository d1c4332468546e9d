//go:build !darwin

package main

import "github.com/pccrun/pccrun/providers"

// newNative makes none: on Linux package run has it, elsewhere there is none.
func newNative(providers.Host) (providers.Provider, error) { return nil, nil }

// macStage is macOS's.
func macStage([]string) (code int, is bool) { return 0, false }
