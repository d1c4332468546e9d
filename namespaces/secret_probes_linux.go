package namespaces

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// A trace reports, when the run has ended, that the command looked for something that is not
// inside: a secret of the home, or a directory that the workspace names ([survey.Named]). It is a
// symbolic link of that name to an empty directory. Whoever follows or reads the link sets its time
// of access (inode(7)), which costs a run nothing, and finds an empty directory.
//
// It is a report and no protection: the command can remove a trace, and set
// its times. `ls -l ~` reads it too.

// traceDir holds what traces lead to, in the private home.
const traceDir = ".pccrun"

// traceTime is the time of a link that nobody has read, in seconds: relatime
// sets a time of access that is not later than that of the last change.
const traceTime = 1

// trace puts the links into the private directory that the home, or another, is or lies in.
func (p *Plan) trace(home string, names []string) {
	in := innermost(p.Mounts, home, nil)
	if in >= 0 && p.Mounts[in].Kind == Persist {
		p.traceOver(in, names)
		return
	}
	if in < 0 || p.Mounts[in].Kind != Fresh || p.Mounts[in].ReadOnly {
		return
	}
	m := &p.Mounts[in]
	for _, name := range names {
		path, away := home+"/"+name, home+"/"+traceDir+"/"+name
		if m.hasStub(strings.TrimPrefix(path[len(m.Target):], "/")) || p.mountedBelow(path, m.Target) {
			continue // a part of it is shown, or it lies in what is mounted
		}
		m.addStub(Place{Path: away, Node: Directory}, m.Target)
		m.Stubs[len(m.Stubs)-1].Closed = true // gpg and ssh warn of others
		m.addStub(Place{Path: path, Node: Link, Link: away}, m.Target)
		m.Stubs[len(m.Stubs)-1].Trace = true
	}
}

// traceOver mounts the links in a persistent home: there a name would stay, and say where the
// next run looks.
func (p *Plan) traceOver(in int, names []string) {
	home := p.Mounts[in].Target
	fresh := Mount{Kind: Fresh, Target: home + "/" + traceDir, Mode: 0o700, Donated: -1, Why: "where the links that report searches lead"}
	var links []Mount
	for _, name := range names {
		if p.Mounts[in].hasStub(name) || p.mountedBelow(home+"/"+name, home) {
			continue // a part of it is shown, or it lies in what is mounted
		}
		away := fresh.Target + "/" + name
		fresh.addStub(Place{Path: away, Node: Directory}, fresh.Target)
		fresh.Stubs[len(fresh.Stubs)-1].Closed = true
		p.Mounts[in].addStub(Place{Path: home + "/" + name, Node: File}, home)
		links = append(links, Mount{Kind: Trace, Target: home + "/" + name, Link: away, OverLink: true, Donated: -1, Why: "reports a search for it"})
	}
	if links != nil {
		p.Mounts[in].addStub(Place{Path: fresh.Target, Node: Directory}, home)
		p.Mounts = append(append(p.Mounts, fresh), links...)
	}
}

// mountedBelow reports whether a path lies in a mount below a directory.
func (p *Plan) mountedBelow(path, dir string) bool {
	return slices.ContainsFunc(p.Mounts, func(m Mount) bool {
		return m.Kind != Trace && len(m.Target) > len(dir) && below(path, m.Target)
	})
}

// mode is that of a directory.
func (s Stub) mode() uint32 {
	if s.Closed {
		return 0o700
	}
	return 0o755
}

// hasStub reports whether a name in the directory, or one below it, is taken.
func (m *Mount) hasStub(name string) bool {
	for _, s := range m.Stubs {
		if s.Name == name || strings.HasPrefix(s.Name, name+"/") {
			return true
		}
	}
	return false
}

// backdate makes a link look as if it had never been read.
func (c *compiler) backdate(at, name inside.Arg) {
	long := unix.Timespec{Sec: traceTime}
	c.Call(unix.SYS_UTIMENSAT, at, name, inside.Ptr(c.Program, [2]unix.Timespec{long, long}), inside.Int(unix.AT_SYMLINK_NOFOLLOW))
}

// looked returns the paths of the traces that were followed or read, and those of them where something was made.
func (s *Sandbox) looked() (paths, made []string) {
	look := func(name, path, away string) {
		if s.wasRead(name) {
			paths = append(paths, path)
			if s.hasEntries(away) {
				made = append(made, path)
			}
		}
	}
	for i, m := range s.plan.Mounts {
		if m.Kind == Trace {
			look(entry(i), m.Target, m.Link)
		}
		for _, stub := range m.Stubs {
			if stub.Trace {
				look(entry(i)+"/"+stub.Name, m.Target+"/"+stub.Name, stub.Link)
			}
		}
	}
	return paths, made
}

// hasEntries reports whether something stands in the directory that a trace leads to.
func (s *Sandbox) hasEntries(away string) bool {
	in := innermost(s.plan.Mounts, away, func(m *Mount) bool { return m.Kind == Fresh })
	if in < 0 {
		return false
	}
	fd, err := beneath.Open(s.Private, entry(in)+away[len(s.plan.Mounts[in].Target):], unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(beneath.Empty(fd), beneath.ErrNotMade)
}

// wasRead reports whether a trace is as it was made, but for having been read.
func (s *Sandbox) wasRead(name string) bool {
	fd, err := beneath.Open(s.Private, name, unix.O_PATH)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK && st.Mtim.Sec == traceTime && st.Atim.Sec != traceTime
}
