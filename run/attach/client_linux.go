package attach

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
)

// dial reaches the launcher of a session.
func dial(home sessions.Home, e sessions.Entry) (*net.UnixConn, error) {
	root, err := home.Open(e.ID)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	conn, err := net.DialUnix("unix", nil, sessions.SocketIn(dir, socketName))
	if err != nil {
		return nil, fmt.Errorf("session %s: its launcher does not answer: %w", e.ID, errors.Unwrap(err))
	}
	return conn, nil
}

// Usage asks the launcher of a running session what it uses.
func Usage(home sessions.Home, e sessions.Entry) (r providers.Result, err error) {
	conn, err := dial(home, e)
	if err != nil {
		return r, err
	}
	defer conn.Close()
	var a Answer
	if err := errors.Join(json.NewEncoder(conn).Encode(request{}), json.NewDecoder(conn).Decode(&a)); err != nil {
		return r, err
	}
	if a.Failed != nil {
		return r, a.Failed
	}
	return a.Result, nil
}

// Exec runs another command in a running session. Of stdio, In, Out, Err, Terminal and Signals count,
// and with a terminal no Err. An error says that the launcher was not reached.
func Exec(home sessions.Home, e sessions.Entry, argv []string, stdio providers.Stdio) (a Answer, err error) {
	conn, err := dial(home, e)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	var ask request
	for _, arg := range argv {
		ask.Argv = append(ask.Argv, []byte(arg))
	}
	var resized <-chan struct{}
	size := func() (s [2]int) {
		s[0], s[1] = stdio.Terminal.Size()
		return s
	}
	pipes := 3
	if stdio.Terminal != nil {
		pipes, ask.Size, resized = 2, size(), stdio.Terminal.Resized
	}
	input, outputs, err := send(conn, ask, pipes)
	if err != nil {
		return a, err
	}
	go func() {
		out := json.NewEncoder(conn)
		for {
			select {
			case n := <-stdio.Signals:
				_ = out.Encode(request{Signal: n})
			case <-resized:
				_ = out.Encode(request{Size: size()})
			}
		}
	}()
	go func() {
		_, _ = io.Copy(input, stdio.In)
		input.Close()
	}()
	var printing inside.Drain
	for i, to := range []io.Writer{stdio.Out, stdio.Err}[:len(outputs)] {
		printing.Go(to, outputs[i])
	}
	if json.NewDecoder(conn).Decode(&a) != nil { // the launcher was killed, and all of its run with it
		a.Signal = int(unix.SIGKILL)
	}
	printing.Wait()
	return a, nil
}

// send makes the pipes of a command, and sends the request with the command's ends.
func send(conn *net.UnixConn, ask request, pipes int) (input *os.File, outputs []*os.File, err error) {
	var ours []*os.File
	var theirs []int
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		if i == 0 {
			r, w = w, r
		}
		defer w.Close()
		ours, theirs = append(ours, r), append(theirs, int(w.Fd()))
	}
	text, err := json.Marshal(ask)
	if err != nil {
		return nil, nil, err
	}
	n, _, err := conn.WriteMsgUnix(text, unix.UnixRights(theirs...), nil)
	if err == nil && n < len(text) {
		_, err = conn.Write(text[n:])
	}
	return ours[0], ours[1:], err
}
