package vcs

import (
	"path"
	"slices"
	"strings"
)

// A transaction of Mercurial's that was begun and not ended is rolled back by `hg
// recover`, which every other command then asks for, and the last one by `hg rollback`.
// Both copy files to where a list says, and remove or shorten others, `../../../.bashrc`
// as well. Sapling has the same.

// WhyHg says why such a list is set aside.
const WhyHg = "hg recover, or rollback, would write, shorten or remove what it lists outside of its own directory"

// HgLists are those lists, in the directory store of a repository's own.
var HgLists = [...]string{"journal", "journal.backupfiles", "undo", "undo.backupfiles"}

// hgNames are what no transaction of Mercurial's writes, though it lies there.
var hgNames = [...]string{"hgrc", "hgrc-not-shared", "sharedpath", "config", "config-git-user", "config-git-repo"}

// IsHgStore reports whether a directory is the store of a repository of Mercurial's.
func IsHgStore(rel string) bool {
	dir, name := path.Split(rel)
	above := path.Base(path.Clean(dir))
	return name == "store" && (above == ".hg" || above == ".sl")
}

// SoundHg reports whether such a list names nothing but what Mercurial itself puts there:
// lines of fields with NULs between them, of which the names are the first, or behind a
// line with a version the second and the third.
func SoundHg(name string, b []byte) bool {
	text, backups := string(b), strings.HasSuffix(name, ".backupfiles")
	if backups && text != "" {
		version, rest, whole := strings.Cut(text, "\n")
		if version != "2" || !whole {
			return version == "" || version == "0" // which it does not read on
		}
		text = rest
	}
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Split(line, "\x00")
		switch {
		case line == "":
			continue
		case backups && len(fields) != 4 || !backups && len(fields) != 2:
			return false
		case backups:
			fields = fields[1:3]
		default:
			fields = fields[:1]
		}
		for _, f := range fields {
			if f != "" && (!soundPath(f, 0) || slices.Contains(hgNames[:], f)) {
				return false
			}
		}
	}
	return true
}
