//go:build !linux

package run

// SettleOwed does nothing: where nothing runs natively, nothing is owed.
func SettleOwed(Program) {}

// Inside is for Linux: no provider runs pccrun on another system.
func Inside(Program, string) int { return 125 }
