package seatbelt

import (
	"path"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// A Survey is what the policy does not know: the machine and the run. Each path
// is absolute and clean. The zero value is a run that has no directories of its
// own, no proxy and no terminal, on a machine where no path is a link.
type Survey struct {
	Home     string   // a directory of pccrun's that is HOME and CFFIXED_USER_HOME inside
	Temp     string   // a directory of pccrun's that is TMPDIR inside
	Places   []Place  // what the machine adds to the table: toolchains of PATH, a worktree's repository
	Links    []Link   // where paths that the policy names lead
	Protect  []string // what the machine adds to protect.deny: what a configuration of git's executes
	Standing []string // what exists of what patterns hide or protect: no directory above it can be moved
	Terminal string   // the command's own terminal
	Tag      string   // what the system's log says with each denial of this run: letters, digits and -; "" for nothing
	Proxy    uint16   // the port of the loopback on which the proxy listens
	Asks     bool     // the user is asked about a host that no rule speaks of: there is a proxy without a rule too
}

// A Place is a rule for files that the machine adds.
type Place struct {
	Path   string
	Access profiles.Access
	Why    string
}

// A Link is a symbolic link, and the path to which it leads in the end.
type Link struct{ From, To string }

// ExamplePort stands for the proxy's where there is no run, or it is not known yet.
const ExamplePort = 3128

// Example returns the survey of a run that does not take place, below a home of
// which nothing is known: what `pccrun spec` prints.
func Example(home string) Survey {
	dir := path.Join(home, ".local/state/pccrun/sessions/example")
	return Survey{Home: dir + "/home", Temp: dir + "/tmp", Proxy: ExamplePort}
}

// A systemPlace is a place of every Mac's about which the profile decides, unless
// a rule of the policy names it.
type systemPlace struct {
	path string
	why  string
}

// systemPlaces are hidden whatever shows "/". What else the system has is as
// readable as on Linux.
var systemPlaces = [...]systemPlace{
	{"/Users", "homes"},
	{"/private/var/root", "the home of root"},
	{"/private/var/folders", "everybody's temporary files and caches: the command has a directory of its own"},
	{"/private/var/run", "sockets, and who is logged in"},
	{"/dev", "terminals and disks: the few devices that programs need stand below"},
	{"/Volumes", "other disks, with backups of homes among them"},
	{"/Network", "other machines, whose disks a look mounts"},
	{"/net", "the same"},
	{"/System/Volumes", "the disk of the homes once more, under another name"},
}

// systemLinks are the links of every Mac's root: a rule that names one never
// matches, since the kernel compares the path to which it leads.
var systemLinks = [...]Link{
	{"/tmp", "/private/tmp"}, {"/var", "/private/var"}, {"/etc", "/private/etc"},
	{"/run", "/private/var/run"}, // there is no /run: what a policy says of it is meant of this
	{"/System/Volumes/Data", "/"},
}

// Real returns the path that the kernel compares; of "" it is "".
func (s *Survey) Real(name string) string {
	for range len(s.Links) + 1 { // a link may lead to a path behind another
		to, found := "", ""
		for _, l := range s.Links {
			if within(l.From, name) && len(l.From) > len(found) {
				to, found = path.Join(l.To, name[len(l.From):]), l.From
			}
		}
		if found == "" || to == name {
			break
		}
		name = to
	}
	for _, l := range systemLinks {
		if within(l.From, name) {
			return path.Join(l.To, name[len(l.From):])
		}
	}
	return name
}

// within reports whether a path is a directory's own or lies below it.
func within(dir, name string) bool {
	return dir == "/" || name == dir || strings.HasPrefix(name, dir) && name[len(dir)] == '/'
}
