package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/credentials"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// Main is the process that reads requests, started by a launcher with the
// descriptors that package wire names. It ends when the launcher does.
func Main() int {
	// Nobody else's business: it holds the session's key and secrets.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 125
	}
	unix.Close(wire.ProgramFD)
	closeInherited()
	file := os.NewFile(wire.ControlFD, "control")
	conn, err := net.FileConn(file)
	file.Close() // by itself, or its finalizer would close whatever has the number by then
	control, ok := conn.(*net.UnixConn)
	if err != nil || !ok {
		return 125
	}
	if err := serve(control, os.NewFile(wire.SetupFD, "setup"), &alive{clock: time.Now}); err != nil {
		text, _ := json.Marshal(wire.Ready{Error: err.Error()})
		_, _ = control.Write(text)
		return 125
	}
	return 0
}

// closeInherited closes what the launcher's own caller left open in it: all but
// the descriptors that were meant for us and those of the Go runtime.
func closeInherited() {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, n := range names {
		fd, err := strconv.Atoi(n.Name())
		what, e := os.Readlink("/proc/self/fd/" + n.Name())
		if err != nil || e != nil || fd <= wire.ProgramFD || strings.HasPrefix(what, "anon_inode:[event") || strings.HasPrefix(what, "/sys/fs/cgroup/") {
			continue
		}
		unix.Close(fd)
	}
}

// alive is told when the launcher last was heard of.
type alive struct {
	last  atomic.Int64
	clock func() time.Time
}

func (a *alive) heard() { a.last.Store(a.clock().UnixNano()) }

// now says whether the launcher still runs: one that is stopped must not be
// the reason why something is let through that it would have stopped.
func (a *alive) now() bool { return a.clock().Sub(time.Unix(0, a.last.Load())) < wire.Patience }

// serve sets up and serves until the launcher has closed its end.
func serve(control *net.UnixConn, pipe io.ReadCloser, launcher *alive) error {
	var setup wire.Setup
	err := json.NewDecoder(pipe).Decode(&setup)
	pipe.Close()
	if err != nil {
		return fmt.Errorf("read setup: %w", err)
	}
	cfg, trust, err := configure(&setup)
	if err != nil {
		return err
	}
	if setup.UID != 0 {
		if err := become(setup.UID, setup.GID); err != nil {
			return err
		}
	}
	launcher.heard()
	cfg.Alive = launcher.now
	i, err := New(*cfg)
	if err != nil {
		return err
	}
	if err := ready(control, i, trust); err != nil {
		i.Close()
		return err
	}
	var open sync.WaitGroup
	receive(control, i, &open, launcher)
	i.Close()
	done := make(chan struct{})
	go func() {
		open.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Second): // websockets end with the process
	}
	return nil
}

// configure reads the rules as the launcher does.
func configure(setup *wire.Setup) (*Config, *trust, error) {
	set, err := parseRules(setup.Rules)
	if err != nil {
		return nil, nil, err
	}
	cfg := &Config{Rules: set}
	for _, s := range setup.Secrets {
		hosts, err := parseRules(s.Hosts)
		if err != nil {
			return nil, nil, err
		}
		cfg.Rules = cfg.Rules.Watch(hosts)
		cfg.Secrets = append(cfg.Secrets, Secret{Placeholder: s.Placeholder, Value: s.Value, Hosts: hosts})
	}
	upstream, err := netproxy.ParseUpstream(setup.HTTPProxy, setup.HTTPSProxy, setup.NoProxy)
	if err != nil {
		return nil, nil, err
	}
	if err := upstream.Restrict(func(port string) bool { return slices.Contains(setup.ProxyPorts, port) }); err != nil {
		return nil, nil, err
	}
	trust, err := readTrust(setup.Certificates)
	if err != nil {
		return nil, nil, err
	}
	cfg.Roots = trust.pool
	proxy := netproxy.New(netproxy.Config{Rules: set, Upstream: upstream})
	cfg.Dial = func(ctx context.Context, host string, port uint16) (net.Conn, rules.Verdict, error) {
		return proxy.Reach(ctx, host, port)
	}
	return cfg, trust, nil
}

func parseRules(texts []string) (*rules.Set, error) {
	list := make([]rules.Rule, len(texts))
	for i, text := range texts {
		var err error
		if list[i], err = rules.Parse(text); err != nil {
			return nil, err
		}
	}
	return rules.New(list...)
}

// become gives root up for good.
func become(uid, gid int) error {
	if err := credentials.Become(uid, gid); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// ready tells the launcher what has to be trusted inside.
func ready(control *net.UnixConn, i *Inspector, t *trust) error {
	all, java, err := t.bundles(i.ca)
	if err != nil {
		return err
	}
	var fds []int
	for _, content := range [...][]byte{i.Authority(), all, java} {
		fd, err := unix.MemfdCreate("trust", unix.MFD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("memfd_create: %w", err)
		}
		defer unix.Close(fd)
		if n, err := unix.Pwrite(fd, content, 0); err != nil || n < len(content) {
			return errors.Join(err, io.ErrShortWrite)
		}
		fds = append(fds, fd)
	}
	text, err := json.Marshal(wire.Ready{})
	if err != nil {
		return err
	}
	_, _, err = control.WriteMsgUnix(text, unix.UnixRights(fds...), nil)
	return err
}

// receive serves the connections that the launcher hands over.
func receive(control *net.UnixConn, i *Inspector, open *sync.WaitGroup, launcher *alive) {
	buf, oob := make([]byte, wire.MaxMessage), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, _, _, err := control.ReadMsgUnix(buf, oob)
		if err != nil || n == 0 {
			return
		}
		fds := rights(oob[:oobn])
		launcher.heard()
		var c wire.Connection
		err = json.Unmarshal(buf[:n], &c)
		if err == nil && c.ID == 0 && len(fds) == 0 {
			continue // a beat
		}
		if err != nil || len(fds) > 1 {
			for _, fd := range fds {
				unix.Close(fd)
			}
			return // it is not the launcher that speaks
		}
		report := func(r wire.Report) {
			r.ID = c.ID
			if text, err := json.Marshal(r); err == nil && len(text) <= wire.MaxMessage {
				_, _ = control.Write(text)
			}
		}
		if len(fds) == 0 { // the kernel keeps a socket that there is no number for
			report(wire.Report{Closed: true, Error: "too many open files"})
			continue
		}
		file := os.NewFile(uintptr(fds[0]), "client")
		conn, err := net.FileConn(file)
		file.Close()
		if err != nil {
			report(wire.Report{Closed: true, Error: err.Error()})
			continue
		}
		open.Add(1)
		go i.Serve(conn, c.Early, c.Verdict, func(v rules.Verdict, request string, err error) {
			r := wire.Report{Verdict: v, Request: cut(request)}
			if err != nil {
				r.Error = cut(err.Error())
			}
			report(r)
		}, func(up, down int64) {
			report(wire.Report{Closed: true, Up: up, Down: down})
			open.Done()
		})
	}
}

// cut leaves room in a message, where each byte may take six.
func cut(text string) string { return text[:min(len(text), 2<<10)] }

// rights returns the descriptors that came with a message.
func rights(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds
}
