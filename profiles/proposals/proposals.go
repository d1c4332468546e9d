// Package proposals says what would have to change in a policy so that what a
// command was refused gets through.
//
// It promises:
//
//   - The change is small: the exact host and port, a socket by its path, one
//     rule for a directory only where that shows little more than was asked for,
//     read before write.
//   - Nothing that shows a secret, a home, or what a tool on the host would execute
//     is proposed unasked ([Proposal.Ask]), and what no rule of a profile can say
//     is told and not proposed ([Proposal.Never]).
//   - It is a function of values: what it must know of the machine it is told.
package proposals

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
)

// A Deed is what a command wanted to do.
type Deed uint8

// The deeds, of files from the least to the most.
const (
	Read Deed = iota // see, open or execute
	Write
	Socket   // connect to
	Host     // connect to
	Variable // find in its environment
	Limit    // have more of
)

// String returns the deed as a word.
func (d Deed) String() string {
	return [...]string{"read", "write", "connect", "host", "variable", "limit"}[d]
}

// A Denial is one thing that a command was refused, and that the host has and
// the user could have done.
type Denial struct {
	Deed Deed
	What string // a path, absolute and through all links; a network rule; a variable; a key of resources

	// Named is the path by which the command came to What, where that leads there by
	// links of the host that are not shown: only a rule for it shows these too. Else "".
	Named string

	Dir    bool   // What is a directory
	Opened bool   // it was not only looked at
	Absent bool   // Write: it is not there yet, its directory is
	Local  bool   // Host: the rule is one of network.local
	Lookup bool   // Host: only its name was looked up
	Denied string // Host: the rule that denies it, which no other can undo

	Call    string // how: the system call, or how the network was asked
	Program string // who
	Times   int64
}

// A Machine is what is to be known of the host.
type Machine struct {
	// List returns the paths of what a directory holds at any depth, no more than
	// most, and whether these are all.
	List func(dir string, most int) (files []string, all bool)

	Memory int64    // bytes
	File   string   // the profile that would be changed
	Own    []string // directories of pccrun's own, which no profile is to show
}

// A Proposal is one entry of a profile.
type Proposal struct {
	profiles.Edit

	Deed   Deed
	What   string // path, rule, variable or limit, as [Profile.Decide] and its like take it
	Reason string // what was tried, by which program, how often
	Ask    string // why somebody must say yes first; "" if nobody need
	Never  string // why a profile cannot say it
}

// Flag returns the flag that does for one run what the entry does for all.
func (p *Proposal) Flag() string {
	switch list := p.Keys[len(p.Keys)-1]; list {
	case "filesystem":
		return "--" + p.Value + " " + shell.Quote(p.What)
	case "sockets":
		return "--socket " + shell.Quote(p.What)
	case "pass":
		return "--env " + p.Key
	case "resources":
		return "--" + p.Key + " " + p.Value
	default:
		return "--" + list + " " + shell.Quote(p.Key)
	}
}

// maxOf bounds the proposals of a kind: a command can try as much as it likes.
const maxOf = 64

// Make returns the proposals for what a command was refused, in the order in
// which a profile has its sections.
func Make(p *profiles.Policy, denials []Denial, m Machine) []Proposal {
	b := &maker{policy: p, machine: m}
	list := b.files(denials)
	list = append(list, b.sockets(denials)...)
	list = append(list, b.hosts(denials)...)
	for _, d := range denials {
		switch d.Deed {
		case Variable:
			list = append(list, Proposal{
				Edit: profiles.Edit{Keys: []string{"environment", "pass"}, Key: d.What}, Deed: d.Deed, What: d.What, Reason: "named by " + d.Program,
				Ask: "the command would see its value; whether it reads the variable is not recorded",
			})
		case Limit:
			list = append(list, b.limit(d))
		}
	}
	return few(list)
}

type maker struct {
	policy  *profiles.Policy
	machine Machine
}

// few keeps a bounded number of each kind, and leaves out what cannot be shown.
func few(list []Proposal) []Proposal {
	count, more := map[Deed]int{}, map[Deed]int{}
	list = slices.DeleteFunc(list, func(p Proposal) bool {
		if count[p.Deed]++; count[p.Deed] > maxOf {
			more[p.Deed]++
			return true
		}
		return false
	})
	for d := Read; d <= Limit; d++ {
		if more[d] > 0 {
			list = append(list, Proposal{Deed: d, What: [...]string{"files to read", "files to write", "sockets", "hosts", "variables", "limits"}[d], Never: strconv.Itoa(more[d]) + " more omitted"})
		}
	}
	return list
}

// times says how often, and how.
func (d *Denial) reason() string {
	text := d.Call
	if text == "" {
		text = "tried"
	}
	if d.Times > 1 {
		text += fmt.Sprintf(" %d times", d.Times)
	}
	if d.Program != "" {
		text += " by " + d.Program
	}
	return text
}

// sockets proposes each socket by its path.
func (b *maker) sockets(denials []Denial) (list []Proposal) {
	for _, d := range merge(denials, Socket) {
		p := Proposal{Edit: profiles.Edit{Keys: []string{"network", "sockets"}, Key: b.spell(d.What)}, Deed: Socket, What: d.What, Reason: d.reason()}
		name := strings.ToLower(path.Base(d.What))
		for _, word := range [...]string{"docker", "podman", "containerd", "crio", "buildkit", "libvirt", "lxd", "incus", "snapd", "systemd", "bus", "agent", "keyring", "wayland", "x11", "pulse", "pipewire", "ssh"} {
			if strings.Contains(name, word) || strings.Contains(strings.ToLower(d.What), "/"+word+"/") {
				p.Ask = "the service there acts outside the sandbox for any client"
				break
			}
		}
		if p.Ask == "" {
			p.Ask = b.secret(d.What)
		}
		p.Never = unwritable(d.What)
		list = append(list, p)
	}
	return list
}

// hosts proposes each host with its port.
func (b *maker) hosts(denials []Denial) (list []Proposal) {
	all := merge(denials, Host)
	for _, d := range all {
		key := "allow"
		if d.Local {
			key = "local"
		}
		p := Proposal{Edit: profiles.Edit{Keys: []string{"network", key}, Key: d.What}, Deed: Host, What: d.What, Reason: d.reason()}
		switch {
		case d.Denied != "":
			p.Never = "the rule " + d.Denied + " denies it, and no other rule overrides that"
		case !profiles.Printable(d.What):
			p.Never = "its name cannot be written in a profile"
		case d.Local:
			p.Ask = "it is a service of this machine, which may trust every client"
		case strings.HasPrefix(d.What, "private "):
			p.Ask = "it is in your own network"
		case d.Lookup && slices.ContainsFunc(all, func(o Denial) bool {
			return !o.Lookup && (o.What == d.What || strings.HasPrefix(o.What, d.What+":"))
		}):
			continue // the port is known
		}
		list = append(list, p)
	}
	return list
}

// merge returns the denials of a deed, each thing once, in order.
func merge(denials []Denial, deed Deed) (list []Denial) {
	index := map[string]int{}
	for _, d := range denials {
		if d.Deed != deed {
			continue
		}
		key := d.What
		if d.Lookup {
			key = "lookup " + key
		}
		if i, ok := index[key]; ok {
			list[i].Times += d.Times
			list[i].Opened = list[i].Opened || d.Opened
			continue
		}
		index[key] = len(list)
		list = append(list, d)
	}
	slices.SortStableFunc(list, func(a, b Denial) int { return strings.Compare(a.What, b.What) })
	// A connection to the port that a name alone stands for is told once.
	return slices.CompactFunc(list, func(a, b Denial) bool { return deed == Host && a.What == b.What })
}

// limit proposes twice what there was: how much would do nobody knows.
func (b *maker) limit(d Denial) Proposal {
	names := profiles.LimitNames()
	p := Proposal{Deed: Limit, What: d.What, Reason: d.Call}
	i := slices.Index(names, d.What)
	if i < 0 {
		p.Never = "no such limit"
		return p
	}
	have := b.policy.Resources.Limit(i).Value
	p.Edit = profiles.Edit{Keys: []string{"resources"}, Key: d.What, Value: profiles.LimitText(i, 2*have)}
	p.Number = d.What == "pids" || d.What == "files"
	switch {
	case have <= 0 || 2*have < have:
		p.Never = "there is no limit to raise"
	case d.What == "memory" && b.machine.Memory > 0 && 2*have > b.machine.Memory:
		p.Never = "twice " + profiles.LimitText(i, have) + " is more than this machine has"
	}
	return p
}

// spell writes a path as a profile does: below ~ where it is in the home.
func (b *maker) spell(name string) string {
	if rest, ok := strings.CutPrefix(name, b.policy.Home+"/"); ok {
		return "~/" + rest
	}
	return name
}

// unwritable says why a rule cannot name a path, and no other.
func unwritable(name string) string {
	switch {
	case !profiles.Printable(name) || strings.ContainsRune(name, '\ufffd'):
		return "its name cannot be written in a profile"
	case strings.ContainsAny(name, "*?["):
		return "in a profile its name would be a pattern"
	}
	return ""
}
