package cgroups

import (
	"fmt"
	"os"
	"path"
	"strings"
	"time"
)

// scopeWait bounds how long the service manager may take. It answers within
// some ten milliseconds, or is not well.
const scopeWait = 5 * time.Second

// startScope asks the service manager on a bus to put this process into a new
// transient scope whose group is left to us (org.freedesktop.systemd1(5),
// systemd.scope(5), Delegate= in systemd.resource-control(5)), waits until it
// has, and returns the group's directory. systemd removes the scope when the
// last process has left.
func startScope(socket, name string) (string, error) {
	b, err := dialBus(socket, time.Now().Add(scopeWait))
	if err != nil {
		return "", err
	}
	defer b.f.Close()
	if err := b.startScope(name, os.Getpid()); err != nil {
		return "", fmt.Errorf("start scope %s: %w", name, err)
	}
	return scopeDir(machine{proc: "/proc/self", cgroup: "/sys/fs/cgroup", fstype: fstype}, name)
}

// scopeDir returns the directory of this process's group, if it is that of
// the scope: the manager may be one to which our process id is another's.
func scopeDir(m machine, name string) (string, error) {
	text, err := os.ReadFile(m.proc + "/cgroup")
	if err != nil {
		return "", err
	}
	group := ownGroup(text, "")
	if path.Base(group) != name {
		return "", fmt.Errorf("start scope %s: this process is in %s", name, group)
	}
	return path.Join(m.base(), group), nil
}

// startScope asks for the scope and waits for the end of the job.
func (b *bus) startScope(name string, pid int) error {
	const manager, managerPath = "org.freedesktop.systemd1.Manager", "/org/freedesktop/systemd1"
	// First, so that the end of the job cannot be missed.
	match := encoder{}
	match.string("type='signal',interface='" + manager + "',member='JobRemoved',path='" + managerPath + "'")
	if _, err := b.call(message{path: "/org/freedesktop/DBus", iface: "org.freedesktop.DBus", member: "AddMatch",
		destination: "org.freedesktop.DBus", signature: "s", body: match.b}, nil); err != nil {
		return err
	}
	ended := map[string]string{} // results by job
	note := func(m message) {
		if m.iface != manager || m.member != "JobRemoved" {
			return
		}
		if args, err := m.strings(); err == nil && len(args) == 3 {
			ended[args[0]] = args[2]
		}
	}
	answer, err := b.call(message{path: managerPath, iface: manager, member: "StartTransientUnit",
		destination: "org.freedesktop.systemd1", signature: "ssa(sv)a(sa(sv))", body: scopeProperties(name, pid)}, note)
	if err != nil {
		return err
	}
	job, err := answer.strings()
	if err != nil || len(job) != 1 {
		return fmt.Errorf("StartTransientUnit: answer %q not understood", answer.signature)
	}
	for {
		if result, ok := ended[job[0]]; ok {
			if result != "done" {
				return fmt.Errorf("job %s", result)
			}
			return nil
		}
		m, err := readMessage(b.r)
		if err != nil {
			return err
		}
		note(m)
	}
}

// scopeProperties marshals the arguments of StartTransientUnit.
func scopeProperties(name string, pid int) []byte {
	var e encoder
	e.string(name)
	e.string("fail")
	e.array(8, func() {
		property := func(key, signature string, value func()) {
			e.align(8)
			e.string(key)
			e.signature(signature)
			value()
		}
		property("Description", "s", func() { e.string("pccrun sandbox " + strings.TrimSuffix(name, ".scope")) })
		property("Delegate", "b", func() { e.uint32(1) })
		// Nothing of a scope is kept once it is empty, also if a process in it
		// was killed.
		property("CollectMode", "s", func() { e.string("inactive-or-failed") })
		property("PIDs", "au", func() { e.array(4, func() { e.uint32(uint32(pid)) }) })
	})
	e.array(8, func() {})
	return e.b
}
