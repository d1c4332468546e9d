// Package askgit has git answer about repositories that sandboxed commands may have written.
//
// Each time git runs in a sandbox of its own: it reads git's directories, writes nothing, has no
// network, and is the one program that is executed.
package askgit
