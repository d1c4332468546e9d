// Package filesync carries a workspace to a place that has none of its own, and back.
//
// Up ([Pack]): a plain tar of what may leave this machine, the same bytes for the same
// tree. Ignore files hold with git's own meaning, names that hold keys never go, the
// content of the rest is looked through for secrets, and no symbolic link is followed.
//
// Down ([Extract]): all of an archive, or nothing. The first member that could reach out
// of the directory, or be taken for another by a terminal, by git or on another system, ends
// it. What came is a tree on the same file system until the last member was read.
//
// What went up is a [Manifest], and what may come down over it a function of values
// ([Manifest.Judge]).
package filesync
