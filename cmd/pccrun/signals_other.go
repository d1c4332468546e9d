//go:build !linux

package main

// quietQuit is for the time of a launch: nothing can run here.
func quietQuit() {}

// quietUsers likewise.
func quietUsers() {}
