package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
)

// lineName is the socket at which the spool waits, in a directory that is its own.
const lineName = "line"

// attach carries a line between what the provider executes and the spool, which it starts if
// there is none. in is what came from there.
func attach(dir string, in io.Reader) int {
	// By a short name: an address of a socket has 108 bytes, unix(7).
	if err := os.Chdir(dir); err != nil {
		return complain("attach", err)
	}
	c, err := net.Dial("unix", lineName)
	if errors.Is(err, unix.ENOENT) {
		if err = startServing(dir); err == nil {
			c, err = net.Dial("unix", lineName)
		}
	}
	if err != nil {
		return complain("attach", err)
	}
	go func() {
		_, _ = io.Copy(c, in)
		_ = c.(*net.UnixConn).CloseWrite()
	}()
	_, _ = io.Copy(os.Stdout, c)
	if files, is := in.(*lineFiles); is {
		_ = state.RemovePath(files.dir)
	}
	return 0
}

// lineFiles reads what came as files: each is taken away when it has been read.
type lineFiles struct {
	dir  string
	next int
	text []byte
}

func (l *lineFiles) Read(b []byte) (int, error) {
	for len(l.text) == 0 {
		name := filepath.Join(l.dir, FileName(l.next))
		text, err := os.ReadFile(name)
		if rest, whole := strings.CutSuffix(string(text), FileEnd); err == nil && whole {
			l.text = append([]byte(rest), '\n')
			l.next++
			_ = os.Remove(name)
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	n := copy(b, l.text)
	l.text = l.text[n:]
	return n, nil
}

// startServing starts the spool, which outlives this process, and returns when it waits.
func startServing(dir string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = detach(w, dir)
	w.Close()
	if err != nil {
		return err
	}
	said, err := io.ReadAll(r)
	if err == nil && string(said) != "ready" {
		err = errors.New(string(said))
	}
	return err
}

// detach starts the spool, or who starts it and ends at once: some daemons end all the
// descendants of what they executed, and nobody's child is none of them.
func detach(ready *os.File, args ...string) error {
	c := exec.Command("/proc/self/exe", append([]string{Verb, Serving}, args...)...)
	c.Args[0], c.Dir, c.ExtraFiles = "pccrun", "/", []*os.File{ready}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil || len(args) > 1 {
		return err
	}
	return c.Wait()
}

// orphaned is how long the spool waits for a line before it ends the command and itself.
const orphaned = 30 * time.Minute

// A spool stays in a sandbox of a provider, while lines to it come and go. It runs what the launcher
// asks for, and keeps what is said and printed until the launcher has it.
type spool struct {
	place *place
	dir   string
	in    *json.Decoder
	asked *Remote
	child *os.Process
	ended bool
	bare  *bare  // nil: the native provider runs the command
	own   string // what the native provider keeps, a directory of its user's
	given bool   // the copy was root's, and is the command's user's
}

// serveSpool is the spool.
func serveSpool(dir string, alone bool) int {
	ready := os.NewFile(3, "ready")
	dropTerminalSignals() // which the provider's daemon may ignore, and then the command would
	if !alone {
		if err := detach(ready, dir, "alone"); err != nil {
			return complain("start the spool", err)
		}
		return 0
	}
	l, err := listenFirst(dir)
	if err != nil && !errors.Is(err, os.ErrExist) {
		fmt.Fprint(ready, err)
		return failed
	}
	fmt.Fprint(ready, "ready")
	ready.Close()
	if err != nil {
		return 0 // another waits there
	}
	conn := NewConn()
	lines := make(chan struct{}, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = conn.Carry(c, nil)
				select {
				case lines <- struct{}{}:
				default:
				}
			}()
		}
	}()
	session, err := yamux.Server(conn, Config())
	if err != nil {
		return failed
	}
	sp := &spool{place: &place{session: session}, dir: dir, own: dir}
	go func() {
		look := time.NewTicker(time.Second)
		defer look.Stop()
		for alone := time.NewTimer(orphaned); ; {
			select {
			case <-look.C:
				// Where the sandbox's files are taken away while its processes go on, nobody comes back.
				if _, err := os.Lstat(lineName); errors.Is(err, fs.ErrNotExist) {
					sp.kill()
					os.Exit(failed)
				}
				continue
			case <-lines:
			case <-session.CloseChan():
				return
			case <-alone.C:
				conn.mu.Lock()
				carried := conn.carried
				conn.mu.Unlock()
				if !carried {
					sp.kill()
					conn.Close()
					return
				}
			}
			alone.Reset(orphaned)
		}
	}()
	code := sp.run()
	conn.Flush(time.Minute)
	_ = os.Remove(filepath.Join(dir, lineName))
	return code
}

// listenFirst listens at [lineName]. Lines that are cut early start more than one spool: the name
// appears when somebody listens there, and the first alone has it.
func listenFirst(dir string) (net.Listener, error) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	own := lineName + strconv.Itoa(os.Getpid())
	l, err := net.Listen("unix", own)
	if err != nil {
		return nil, err
	}
	defer os.Remove(own)
	if err := os.Link(own, lineName); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// run does what the launcher asks for, in the order of the messages of [Remote].
func (sp *spool) run() int {
	control, err := sp.place.open(Control)
	if err != nil {
		return failed
	}
	sp.place.out, sp.in = json.NewEncoder(control), json.NewDecoder(control)
	sp.place.say(Message{Hello: &Hello{Version}})
	var m Message
	if err := sp.in.Decode(&m); err != nil || m.Remote == nil {
		return failed
	}
	sp.asked = m.Remote
	trial, err := sp.trial()
	if err != nil {
		sp.place.say(Message{Failed: &Failed{Step: "test which guarantees can be kept here", Text: err.Error()}})
		<-sp.place.session.CloseChan()
		return failed
	}
	sp.place.say(Message{Trial: trial})
	if err := sp.in.Decode(&m); err != nil || !m.Go {
		return failed
	}
	sp.asked.Secrets = m.Secrets
	command := sp.command
	if sp.bare != nil {
		command = sp.bareCommand
	}
	if err := command(); err != nil {
		sp.place.say(Message{Failed: &Failed{Step: "start the command", Text: err.Error()}})
	}
	<-sp.place.session.CloseChan()
	sp.kill()
	return 0
}

func (sp *spool) kill() {
	sp.place.mu.Lock()
	defer sp.place.mu.Unlock()
	if sp.child != nil && !sp.ended {
		_ = sp.child.Kill()
	}
	for range 3 { // what is stopped forks no more
		if sp.place.tree {
			_ = errors.Join(sp.place.all(unix.SIGSTOP), sp.place.all(unix.SIGKILL))
		}
	}
}
