//go:build !unix

package run

import "github.com/pccrun/pccrun/workspace"

// SettleUnfinished does nothing: where nothing runs natively, nothing is owed.
func SettleUnfinished(Program) {}

func askGit(string) workspace.AskGit { return nil }

// Inside is for Linux: no provider runs pccrun on another system.
func Inside(Program, string) int { return 125 }
