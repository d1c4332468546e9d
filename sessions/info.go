package sessions

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/events/jsontext"
)

// Info is session.json. The names of its fields there stand in [Info.append].
type Info struct {
	ID           string
	Started      time.Time
	Version      string // pccrun's
	Launcher     Process
	Sandbox      Process  // pid 1 of the sandbox, as the launcher sees it
	Argv         []string // pccrun's own; secrets blanked by [Home.Begin]
	Workspace    string
	Profile      string
	Provider     string
	Without      []string
	AllowMissing []string
	Cgroups      []string // directories of the run's own
	Ended        time.Time
	Code         int      // what pccrun exited with, once it has ended
	Kept         []string // why the directory was kept: "denials", "stash", …
}

// A Process names a process beyond the reuse of its pid. The zero value is
// none.
type Process struct {
	Pid   int
	Start uint64 // clock ticks after boot: proc_pid_stat(5)
	Boot  string // the kernel's boot id
	Space uint64 // inode of the pid namespace that Pid belongs to
}

// append appends the file.
func (i Info) append(b []byte) []byte {
	str := func(name, value string) {
		b = append(b, ',', '"')
		b = append(append(b, name...), '"', ':')
		b = events.AppendString(b, value)
	}
	list := func(name string, values []string) {
		b = append(b, ',', '"')
		b = append(append(b, name...), '"', ':', '[')
		for i, v := range values {
			if i > 0 {
				b = append(b, ',')
			}
			b = events.AppendString(b, v)
		}
		b = append(b, ']')
	}
	process := func(name string, p Process) {
		b = fmt.Appendf(b, `,"%s":{"pid":%d,"start":%d,"boot":`, name, p.Pid, p.Start)
		b = fmt.Appendf(events.AppendString(b, p.Boot), `,"space":%d}`, p.Space)
	}
	b = append(b, `{"schema":`...)
	b = strconv.AppendInt(b, Schema, 10)
	str("id", i.ID)
	str("started", i.Started.UTC().Format(time.RFC3339Nano))
	str("version", i.Version)
	process("launcher", i.Launcher)
	process("sandbox", i.Sandbox)
	list("argv", i.Argv)
	str("workspace", i.Workspace)
	str("profile", i.Profile)
	str("provider", i.Provider)
	list("without", i.Without)
	list("allow_missing", i.AllowMissing)
	list("cgroups", i.Cgroups)
	if !i.Ended.IsZero() {
		str("ended", i.Ended.UTC().Format(time.RFC3339Nano))
		b = fmt.Appendf(b, `,"code":%d`, i.Code)
	}
	if !i.Ended.IsZero() || len(i.Kept) > 0 {
		list("kept", i.Kept)
	}
	return append(b, '}', '\n')
}

// parseInfo reads the file. One of another schema is an error.
func parseInfo(data []byte) (Info, error) {
	f, err := jsontext.Object(data)
	if err != nil {
		return Info{}, err
	}
	if schema := f.Int("schema"); schema != Schema || f.Err() != nil {
		return Info{}, fmt.Errorf("schema %d, written by another version of pccrun", schema)
	}
	process := func(name string) Process {
		p := f.Object(name)
		return Process{Pid: int(p.Int("pid")), Start: p.Uint("start"), Boot: p.String("boot"), Space: p.Uint("space")}
	}
	at := func(name string) (t time.Time) {
		if text := f.String(name); text != "" && err == nil {
			t, err = time.Parse(time.RFC3339Nano, text)
		}
		return t
	}
	i := Info{
		ID: f.String("id"), Started: at("started"), Version: f.String("version"), Launcher: process("launcher"), Sandbox: process("sandbox"),
		Argv: f.Strings("argv"), Workspace: f.String("workspace"), Profile: f.String("profile"), Provider: f.String("provider"),
		Without: f.Strings("without"), AllowMissing: f.Strings("allow_missing"), Cgroups: f.Strings("cgroups"),
		Ended: at("ended"), Code: int(f.Int("code")), Kept: f.Strings("kept"),
	}
	if err == nil {
		err = f.Err()
	}
	return i, err
}
