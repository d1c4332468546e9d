// Package detach keeps a run going that outlives the terminal it was started from, and brings it to another one.
//
// A holder is a process of its own session. It starts the run as its child, owns what that reads and prints, and answers at a
// socket in the directory of the session or task, which no sandbox shows:
//
//	pccrun --detach         the holder                    pccrun run … or task …
//	   ─── starts ────────────▶ ─── starts ──────────────▶
//	   ◀── report ───────────── ◀── Started ─────────────
//	pccrun attach
//	   ─── Hello, Keys, Size ─▶ ─── a pseudo-terminal ───▶
//	   ◀── Output, End ──────── ◀─────────────────────────
//
// It promises:
//   - the caller hears of a refusal as if it had run the command itself, and else the id;
//   - what is printed while nobody is attached takes no more room than [keepSize] twice, and the end of it is kept;
//   - a terminal that takes nothing holds the run up for [patience] at most, and is then let go;
//   - only processes of the holder's user in its own user namespace are answered.
package detach
