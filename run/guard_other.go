//go:build !linux

package run

// SettleOwed does nothing: where nothing runs natively, nothing is owed.
func SettleOwed(Program) {}
