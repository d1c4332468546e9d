// Package homes keeps what stands at ~ in a run whose policy has that persistent: a
// directory for each workspace and profile, which is there again in the next run.
//
// It promises:
//   - a home belongs to one workspace and one profile, as recorded beside it: a workspace that
//     was made anew, under the old name, gets another one ([Open]);
//   - nothing that a run has put into a home leads us out of it: each name is looked up for
//     itself, through no link and in no other file system, and a file counts only if it is a
//     regular one with a single name and of a bounded size;
//   - what stands in the way of a name that we need is moved aside, and stops no run;
//   - names that say what a shell, git or ssh obeys are taken out before the next run
//     ([Home.Clear]); of what `git config --global` wrote there, keys that name no program stay;
//   - what is copied into a home are the user's own files, as far as the profile says
//     ([Home.Seed]), and nothing is copied back but a log-in, by package login.
//
// It is about directories. Who mounts one, and where, is the business of namespaces.
package homes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"
)

// Schema is the version of what is recorded of a home.
const Schema = 1

// DirName is the name of the directory of all homes in the state directory.
const DirName = "homes"

// ErrInUse says that a run uses a home.
var ErrInUse = errors.New("a run uses it")

// NoLogin ends the name, and the profile, of a home into which no log-in is copied: it is another
// than the one with log-ins, in which some may stand from earlier runs.
const NoLogin = "-no-login"

// A Workspace is what a home belongs to, as the kernel tells it: nothing in the directory does.
type Workspace struct {
	Path  string `json:"path"`  // absolute, without links
	Inode uint64 `json:"inode"` // of the directory
	Birth int64  `json:"birth"` // when it was made, in nanoseconds; 0 where the file system does not know
}

// A Record is what is kept of a home beside it.
type Record struct {
	Schema    int       `json:"schema"`
	Workspace Workspace `json:"workspace"`
	Profile   string    `json:"profile"` // where it was read: see [profiles.Policy.Source]
	Name      string    `json:"name"`    // as it is called
	Created   time.Time `json:"made"`
	Used      time.Time `json:"used"`   // when the last run began
	Rights    []string  `json:"rights"` // and what it might do: see [Rights]
}

// Key is the name of the directory of a home.
func Key(workspace, profile string) string {
	sum := sha256.Sum256([]byte(workspace + "\x00" + profile))
	return hex.EncodeToString(sum[:8])
}

// same reports whether a record is of this workspace and profile.
func (r *Record) same(w Workspace, profile string) bool {
	return r.Schema == Schema && r.Workspace == w && r.Profile == profile
}

// An Entry is a home as [List] finds it.
type Entry struct {
	Key    string
	Record Record
	Size   int64  // bytes on the disk, after [Measure]
	More   bool   // it takes more than that
	InUse  bool   // a run uses it
	Gone   bool   // its workspace does not exist, and the directory above it does
	Bad    string // why the record cannot be read, "" if it can
	Old    bool   // it was of a directory that has been replaced
}

// Limits bound what is kept.
type Limits struct {
	Gone time.Duration // how long a home is kept whose workspace has gone
	Size int64         // bytes of all homes together
}

// Default are the limits of `pccrun gc`.
var Default = Limits{Gone: 30 * 24 * time.Hour, Size: 10 << 30}

// Expired returns the keys of the homes that are to be removed: those whose workspace has gone
// or was replaced, when nobody has used them for long, and, the least recently used first, what
// is beyond the size. A home in use is never one, nor one that nobody can read.
func Expired(list []Entry, l Limits, now time.Time) (keys []string) {
	total := int64(0)
	var left []Entry
	for _, e := range list {
		if (e.Gone || e.Old) && !e.InUse && e.Bad == "" && now.Sub(e.Record.Used) > l.Gone {
			keys = append(keys, e.Key)
			continue
		}
		total += e.Size
		left = append(left, e)
	}
	for total > l.Size {
		oldest := -1
		for i, e := range left {
			if !e.InUse && e.Bad == "" && (oldest < 0 || e.Record.Used.Before(left[oldest].Record.Used)) {
				oldest = i
			}
		}
		if oldest < 0 {
			break
		}
		keys = append(keys, left[oldest].Key)
		total -= left[oldest].Size
		left = append(left[:oldest], left[oldest+1:]...)
	}
	return keys
}

// quoted is a name as it can be printed.
func quoted(name string) string { return strconv.QuoteToGraphic(name) }
