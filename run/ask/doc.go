// Package ask puts the questions of --ask at the command's terminal: may a host be reached that no rule speaks of?
//
// No answer is no, and nothing is written to the user's profile that he has not seen.
package ask
