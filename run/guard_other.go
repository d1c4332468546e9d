//go:build !linux

package run

import "github.com/pccrun/pccrun/workspace"

// SettleOwed does nothing: where nothing runs natively, nothing is owed.
func SettleOwed(Program) {}

func askGit([]workspace.GitQuestion) []workspace.GitAnswer { return nil }
