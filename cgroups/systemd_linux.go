package cgroups

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
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
	ctx, cancel := context.WithTimeout(context.Background(), scopeWait)
	defer cancel()
	if err := askForScope(ctx, socket, name); err != nil {
		return "", fmt.Errorf("start scope %s by %s: %w", name, socket, cmp.Or(ctx.Err(), err))
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

// JoinScope puts this process into a scope of its own of the service manager on a bus: it ends with that, and not with the
// login session that it was started in.
func JoinScope(socket, name string) error {
	_, err := startScope(socket, name)
	return err
}

// EndsAtLogout reports whether logind ends what a user has started when he logs out (KillUserProcesses= in logind.conf(5)).
// Where it does not say, it does not.
func EndsAtLogout(socket string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), scopeWait)
	defer cancel()
	c, err := dialBus(ctx, socket)
	if err != nil {
		return false
	}
	defer c.Close()
	var v dbus.Variant
	err = c.Object("org.freedesktop.login1", "/org/freedesktop/login1").CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0,
		"org.freedesktop.login1.Manager", "KillUserProcesses").Store(&v)
	ends, _ := v.Value().(bool)
	return err == nil && ends
}

// dialBus connects to a bus.
func dialBus(ctx context.Context, socket string) (*dbus.Conn, error) {
	c, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(socket), dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err = c.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err == nil {
		err = c.Hello()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

const manager, managerPath = "org.freedesktop.systemd1.Manager", dbus.ObjectPath("/org/freedesktop/systemd1")

// A property is (sv) of D-Bus.
type property struct {
	Name  string
	Value dbus.Variant
}

// scopeProperties are those of a scope for a process.
func scopeProperties(name string, pid int) []property {
	return []property{
		{"Description", dbus.MakeVariant("pccrun sandbox " + strings.TrimSuffix(name, ".scope"))},
		{"Delegate", dbus.MakeVariant(true)},
		// Nothing of a scope is kept once it is empty, also if a process in it
		// was killed.
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(pid)})},
	}
}

// askForScope asks for the scope and waits for the end of the job.
func askForScope(ctx context.Context, socket, name string) error {
	c, err := dialBus(ctx, socket)
	if err != nil {
		return err
	}
	defer c.Close()
	// First, so that the end of the job cannot be missed.
	signals := make(chan *dbus.Signal, 16)
	c.Signal(signals)
	if err := c.AddMatchSignalContext(ctx, dbus.WithMatchInterface(manager), dbus.WithMatchMember("JobRemoved"),
		dbus.WithMatchObjectPath(managerPath)); err != nil {
		return err
	}
	var job dbus.ObjectPath
	type aux struct {
		Name       string
		Properties []property
	}
	if err := c.Object("org.freedesktop.systemd1", managerPath).CallWithContext(ctx, manager+".StartTransientUnit", 0,
		name, "fail", scopeProperties(name, os.Getpid()), []aux{}).Store(&job); err != nil {
		return err
	}
	for s := range signals {
		var id uint32
		var ended dbus.ObjectPath
		var unit, result string
		if s.Name != manager+".JobRemoved" || dbus.Store(s.Body, &id, &ended, &unit, &result) != nil || ended != job {
			continue
		}
		if result != "done" {
			return fmt.Errorf("job %s", result)
		}
		return nil
	}
	return dbus.ErrClosed
}
