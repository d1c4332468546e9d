// Package attach joins another pccrun of the same user to a run that goes on: it starts a second
// command there, or asks what the run uses. The launcher listens on a socket in the session's
// directory, which no sandbox shows:
//
//	pccrun exec or stats                         the launcher
//	   ─── request, with ends of three pipes ───▶
//	   ─── requests: Signal, Size ──────────────▶
//	   ◀── Answer ───────────────────────────────
//
// All that the command gets of the other process are these pipes. When that process goes, or the run
// ends, the command is killed.
package attach
