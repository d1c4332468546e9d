// Package ask puts the questions of --ask at the command's terminal: may a host be reached that no rule speaks of?
//
// No answer is no, and nothing is written to the user's profile but a rule that he has seen.
package ask
