//go:build unix

package run

import (
	"fmt"
	"os"
	"sync"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
)

// maxKept bounds what is kept of a command's output, bytes.
const maxKept = 1 << 30

// A transcript is the file that keeps what the command prints (--log). What
// becomes of it is no matter of the command's: an error is told at the end.
type transcript struct {
	mu   sync.Mutex
	file *os.File
	left int64
	err  error
}

// keep begins the transcript, if one is wanted.
func (o *output) keep() error {
	if !o.req.Log {
		return nil
	}
	o.session.Keep(sessions.LogName)
	dir, err := o.session.Dir()
	if err != nil {
		return err
	}
	file, err := dir.OpenFile(sessions.LogName, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	o.kept = &transcript{file: file, left: maxKept}
	return nil
}

// Write keeps what there is room for, and says that it was all.
func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return len(b), nil
	}
	n, err := t.file.Write(b[:min(int64(len(b)), t.left)])
	t.left -= int64(n)
	if err != nil {
		t.err = err
	} else if n < len(b) {
		t.err = fmt.Errorf("write %s: more than %s was printed", t.file.Name(), messages.SizeText(maxKept))
	}
	return len(b), nil
}

// tell ends the transcript, and says what is missing of it.
func (t *transcript) tell() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.err
	if e := t.file.Close(); err == nil {
		err = e
	}
	if t.err = os.ErrClosed; err != nil {
		messages.Say("the output log is incomplete: " + messages.InWords(err))
	}
}
