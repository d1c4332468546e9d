//go:build !unix

package run

// EndQuietly is for the time of a launch: nothing can run here.
func EndQuietly() {}

// LeaveSignals is for the time of a launch too.
func LeaveSignals() {}
