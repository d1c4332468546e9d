// Package many has many tasks done at once, and says what became of them.
//
// A file of tasks is read into a [Plan]. [Plan.Run] starts each task as a process of its own, `pccrun task --json`, at most
// so many at a time, and follows what they print, so that the death of one harms no other. What is known of all at a moment
// is a [State]: [Table] writes it for a terminal, [State.Change] a line for what has changed. At the end [Judge] has git try
// which of their branches would not merge with each other, and the [Results] are written as lines, JSON and Markdown.
//
// It promises that nothing begins before all of a file is checked, and that nothing goes on when [Plan.Run] returns.
package many
