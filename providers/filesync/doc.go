// Package filesync carries a workspace to a place that has none of its own, and back.
//
// Up ([Open] and [Tree.Write]): a plain tar of what may leave this machine, the same bytes for the same
// tree. What ignore files leave out and what is tracked git says, in a sandbox ([RunGit]); names that hold keys never go,
// the content of the rest is scanned for secrets, and no symbolic link is followed.
//
// Down ([Extract]): all of an archive as a new directory, or nothing. The first member that could reach out
// of the directory, or be taken for another by a terminal, by git or on another system, ends it. [Down.Refuses] says
// before what that would be, so that it can be left where it is, name by name.
//
// What went up is a [Manifest], and what may come down over it a function of values ([Manifest.Judge]).
package filesync
