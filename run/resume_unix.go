//go:build unix

package run

import (
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/terminal"
)

// resumes are how agents say, at their end on a terminal, by which command a conversation goes on. What the command prints
// nobody vouches for: no more than an id is taken from it.
var resumes = map[string]string{
	"claude": `claude(?: [^\r\n]{0,200})? (--resume) ([0-9A-Za-z][0-9A-Za-z-]{7,63})`, "codex": `codex (resume) ([0-9A-Za-z][0-9A-Za-z-]{7,63})`,
	"opencode": `opencode (-s|--session) (ses_[0-9A-Za-z]{7,63})`, "gemini": `gemini (--resume) ["']?([0-9A-Za-z][0-9A-Za-z-]{7,63})`,
}

// A tail is the end of what the command printed to its terminal.
type tail struct {
	mu   sync.Mutex
	text []byte
	next io.Writer
}

const maxTail = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.text = append(t.text, b[max(len(b)-maxTail, 0):]...)
	if n := len(t.text) - maxTail; n > maxTail {
		t.text = slices.Delete(t.text, 0, n)
	}
	t.mu.Unlock()
	if t.next == nil {
		return len(b), nil
	}
	return t.next.Write(b)
}

// overhear has the end of what an agent prints kept, where its home is there in the next run.
func (o *output) overhear(options *terminal.Options) {
	if o.resumes && resumes[path.Base(o.req.Command[0])] != "" {
		o.tail = &tail{next: options.Log}
		options.Log = o.tail
	}
}

// sayResume says what the agent has said of its conversation, for a sandbox.
func (o *output) sayResume() {
	if o.tail == nil || o.req.Quiet {
		return
	}
	o.tail.mu.Lock()
	text := regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|[ -/]*[0-Z\\^-~])`).ReplaceAllString(string(o.tail.text), "")
	o.tail.mu.Unlock()
	found := regexp.MustCompile(`\b`+resumes[path.Base(o.req.Command[0])]).FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		return
	}
	flags := ""
	if i := slices.Index(os.Args, "--"); i != 1 { // one may have a secret
		flags = " [the same flags]"
	}
	messages.Say("in a sandbox: pccrun" + flags + " -- " + shell.Quote(o.req.Command[0]) + " " + strings.Join(found[len(found)-1][1:], " "))
}
