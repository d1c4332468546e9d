//go:build !launcher

package main

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/profiles/proposals"
	"github.com/pccrun/pccrun/run"
)

// seen is what a run has told, as events.
type seen struct {
	tried   []events.Access
	network []events.NetDecision
	oom     *events.OOM
	timeout *events.Timeout
	exit    *events.Exit
	refused *events.Refused
	lost    int64
}

// observe runs the command in a process of its own, and hears what it tells.
// Its output goes to standard error: standard output is the verb's.
func observe(args []string) (*seen, int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, refused, err
	}
	defer r.Close()
	// The run dies with us: the signal goes with the thread that started it
	// (prctl(2), PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// What a terminal sends to all of the group is the run's to handle, and what
	// is sent to us alone is passed on.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	run.LeaveSignals()
	defer signal.Stop(signals)
	child, err := os.StartProcess("/proc/self/exe", append([]string{os.Args[0], "learn", supervised}, args...), &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stderr, os.Stderr, w}, Sys: &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM},
	})
	w.Close()
	if err != nil {
		return nil, refused, err
	}
	go func() {
		for sig := range signals {
			if sig != unix.SIGINT && sig != unix.SIGQUIT {
				_ = child.Signal(sig)
			}
		}
	}()
	s, err := readSeen(r)
	state, e := child.Wait()
	if err = errors.Join(err, e); err != nil {
		return nil, refused, err
	}
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return s, 128 + int(status.Signal()), nil
	}
	return s, status.ExitStatus(), nil
}

// readSeen reads the events of a run to their end.
func readSeen(from io.Reader) (*seen, error) {
	s := &seen{}
	reader := events.NewReader(from)
	for {
		record, err := reader.Next()
		if err == io.EOF {
			return s, nil
		}
		if errors.Is(err, events.ErrRead) {
			return s, err
		}
		switch e := record.Event.(type) {
		case events.Access:
			s.tried = append(s.tried, e)
		case events.NetDecision:
			if !e.Allowed {
				s.network = append(s.network, e)
			}
		case events.Hidden:
			if strings.HasPrefix(e.Hint, "--local ") {
				s.network = append(s.network, events.NetDecision{Via: "transparent", Hint: e.Hint})
			}
		case events.OOM:
			s.oom = &e
		case events.Timeout:
			s.timeout = &e
		case events.Refused:
			s.refused = &e
		case events.Dropped:
			s.lost += e.Count
		case events.Exit:
			s.exit = &e
		}
	}
}

// denials are what the run was refused and would have got outside: what the host
// does not have, or would not give to the user, is none of the policy's doing.
func (s *seen) denials(req *profiles.Request, policy *profiles.Policy) (list []proposals.Denial) {
	listening := listeners()
	var programs []string
	for _, t := range s.tried {
		t.Path = spelled(t.Path)
		d := proposals.Denial{Call: t.Call, Program: t.Program, Times: t.Times, Opened: t.Opened}
		ok := false
		switch t.Deed {
		case "limit":
			d.Deed, d.What, d.Call = proposals.Limit, t.Path, "the limit was reached"
			ok = true
		case "connect":
			d.Deed, d.What = proposals.Socket, resolveLinks(t.Path)
			ok = listening[d.What] && unix.Access(d.What, unix.W_OK) == nil
		case "write":
			d.Deed, ok = proposals.Write, true
			d.What = resolveLinks(t.Path)
			ok = couldWrite(&d)
		default:
			if t.Done {
				programs = append(programs, t.Path)
				continue
			}
			d.What = resolveLinks(t.Path)
			ok = couldRead(&d, t.Deed == "execute")
		}
		if d.What != t.Path && (d.Deed == proposals.Read || d.Deed == proposals.Write) {
			d.Named = t.Path
		}
		if ok {
			list = append(list, d)
		}
	}
	for _, e := range s.network {
		if d, ok := hostOf(e); ok {
			list = append(list, d)
		}
	}
	if s.oom != nil {
		list = append(list, proposals.Denial{Deed: proposals.Limit, What: "memory", Call: "more than " + messages.Mebibytes(s.oom.Limit) + " was used"})
	}
	if s.timeout != nil {
		list = append(list, proposals.Denial{Deed: proposals.Limit, What: "timeout", Call: "the command was still running"})
	}
	return append(list, withheldFrom(req, policy, programs)...)
}

// spelled returns the path of the host that an event names: bytes in it that are no UTF-8
// have been replaced there, each by itself (RFC 8259).
func spelled(path string) string {
	const replaced = "\ufffd"
	if !strings.Contains(path, replaced) {
		return path
	}
	dir := ""
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if strings.Contains(name, replaced) {
			entries, _ := os.ReadDir(dir + "/") // what is not there is no refusal
			for _, e := range entries {
				if string([]rune(e.Name())) == name {
					name = e.Name()
					break
				}
			}
		}
		dir += "/" + name
	}
	return dir
}

// couldRead reports whether the user can read a path outside.
func couldRead(d *proposals.Denial, executes bool) bool {
	var st unix.Stat_t
	if unix.Lstat(d.What, &st) != nil {
		return false
	}
	mode := uint32(unix.R_OK)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		d.Dir, mode = true, unix.R_OK|unix.X_OK
	case unix.S_IFREG:
		if executes {
			mode = unix.X_OK
		}
	default:
		return false
	}
	return unix.Access(d.What, mode) == nil
}

// couldWrite reports whether the user could have changed a path outside. Where
// its name is to be made, or taken away, that is the directory's matter.
func couldWrite(d *proposals.Denial) bool {
	var st unix.Stat_t
	err := unix.Lstat(d.What, &st)
	for _, call := range [...]string{"rename", "unlink", "rmdir", "link", "symlink", "mk"} {
		if strings.HasPrefix(d.Call, call) {
			d.Absent = true
		}
	}
	switch {
	case err != nil && err != unix.ENOENT:
		return false
	case err != nil:
		d.Absent = true
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		d.Dir = true
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return false
	}
	path := d.What
	if d.Absent {
		path = filepath.Dir(path)
	}
	return unix.Access(path, unix.W_OK) == nil
}

// hostOf returns what a refusal of the network was about.
func hostOf(e events.NetDecision) (d proposals.Denial, ok bool) {
	d = proposals.Denial{Deed: proposals.Host, Lookup: e.Via == "dns", Times: max(1, e.Times)}
	switch e.Via {
	case "dns":
		d.Call = "looked up"
	case "transparent":
		d.Call = "connected to"
	default:
		d.Call = "requested from the proxy, by " + e.Via
	}
	if rule, is := strings.CutPrefix(e.Hint, "--allow "); is {
		d.What = strings.Trim(rule, "'")
		return d, true
	}
	if port, is := strings.CutPrefix(e.Hint, "--local "); is {
		d.What, d.Local = port, true
		n, err := strconv.ParseUint(strings.TrimPrefix(port, "localhost:"), 10, 16)
		return d, err == nil && procfs.Listens(os.Getpid(), uint16(n))
	}
	d.What, d.Denied = e.Host, e.Rule
	return d, e.Rule != ""
}

// listeners returns the sockets with a path that somebody listens at.
func listeners() map[string]bool {
	const accepts = "00010000" // __SO_ACCEPTON, unix(7) in proc(5)
	list := map[string]bool{}
	text, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if i := strings.IndexByte(line, '/'); i > 0 && len(fields) > 3 && fields[3] == accepts {
			list[resolveLinks(strings.TrimSuffix(line[i:], "\n"))] = true
		}
	}
	return list
}

// listFiles returns what a directory holds at any depth, less directories, no
// more than most, and whether that is all.
func listFiles(dir string, most int) (files []string, all bool) {
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case len(files) > most:
			return fs.SkipAll
		case !e.IsDir():
			files = append(files, path)
		}
		return nil
	})
	return files, err == nil && len(files) <= most
}

// openTerminal returns the user's terminal, nil where there is none to ask at.
func openTerminal(quiet bool) *os.File {
	if quiet || !terminal.IsTerminal(2) {
		return nil
	}
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return f
}

// yes asks, and takes nothing that was typed before the question was there.
func yes(tty *os.File, question string) bool {
	if tty == nil {
		return false
	}
	_ = unix.IoctlSetInt(int(tty.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	if _, err := tty.WriteString("pccrun: " + printable(question) + " [y/N] "); err != nil {
		return false
	}
	answer, _ := bufio.NewReader(tty).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
