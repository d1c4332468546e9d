//go:build !linux

package main

// specVerb says that there is no plan here that a bundle could be made of.
func specVerb([]string) int { return fail("spec: bundles are made on Linux only") }
