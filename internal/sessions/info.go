package sessions

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pccrun/pccrun/internal/events"
)

// Info is session.json.
type Info struct {
	ID           string    `json:"id"`
	Started      time.Time `json:"started"`
	Version      string    `json:"version"` // pccrun's
	Launcher     Process   `json:"launcher"`
	Sandbox      Process   `json:"sandbox"` // pid 1 of the sandbox, as the launcher sees it
	Argv         []string  `json:"argv"`    // pccrun's own; secrets blanked by [Home.Begin]
	Workspace    string    `json:"workspace"`
	Profile      string    `json:"profile"`
	Provider     string    `json:"provider"`
	Resource     *Resource `json:"resource,omitempty"` // what the provider made; nil where that is processes of this machine
	Without      []string  `json:"without,omitempty"`
	AllowMissing []string  `json:"allow_missing,omitempty"`
	Limits       Limits    `json:"limits,omitzero"`   // of its policy
	Cgroups      []string  `json:"cgroups,omitempty"` // directories of the run's own
	Ended        time.Time `json:"ended,omitzero"`
	Code         int       `json:"code"`           // what pccrun exited with, once it has ended
	Kept         []string  `json:"kept,omitempty"` // why the directory was kept: "denials", "stash", …
}

// Limits are those of a run's policy that others show; 0 is none.
type Limits struct {
	Memory    int64 `json:"memory,omitempty"`    // bytes
	MilliCPUs int64 `json:"millicpus,omitempty"` // thousandths of a processor
	Pids      int64 `json:"pids,omitempty"`      // processes and threads
	Disk      int64 `json:"disk,omitempty"`      // bytes of private and overlay filesystems together
	TimeMS    int64 `json:"time_ms,omitempty"`   // of the wall
}

// Left is the time that a run has until its limit; none is false where it has no limit.
func (i *Info) Left() (left time.Duration, limited bool) {
	return time.Until(i.Started.Add(time.Duration(i.Limits.TimeMS) * time.Millisecond)), i.Limits.TimeMS > 0
}

// A Process names a process beyond the reuse of its pid. The zero value is
// none.
type Process struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot: proc_pid_stat(5)
	Boot  string `json:"boot"`  // the kernel's boot id
	Space uint64 `json:"space"` // inode of the pid namespace that Pid belongs to
}

// infoFile is what the file holds.
type infoFile struct {
	Schema int64 `json:"schema"`
	Info
}

// append appends the file.
func (i Info) append(b []byte) []byte {
	i.Started, i.Ended = i.Started.UTC(), i.Ended.UTC()
	i.Argv = slices.Clone(i.Argv)
	for n, arg := range i.Argv {
		i.Argv[n] = events.Cut(arg)
	}
	return append(append(b, events.Marshal(infoFile{Schema, i})...), '\n')
}

// parseInfo reads the file. One of another schema is an error.
func parseInfo(data []byte) (Info, error) {
	var file infoFile
	if err := json.Unmarshal(data, &file); err != nil {
		return Info{}, err
	}
	if file.Schema != Schema {
		return Info{}, fmt.Errorf("schema %d, written by another version of pccrun", file.Schema)
	}
	return file.Info, nil
}
