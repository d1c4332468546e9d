package escape

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Spec is what a payload knows of the world around the sandbox. It names
// places, never secrets: those it holds as a sum, so that a leak can be
// recognised and not faked.
type Spec struct {
	Nonce     string // echoed with the outcome: the sentinel
	SecretSum string // SHA-256 of the secret, in hex
	Caged     bool   // the launcher itself runs in a cage
	Guarded   bool   // the payload runs on this machine and could harm it: see contained
	Alone     bool   // one layer protects, in a control
	Control   bool   // nothing protects: for payloads that would be slow, never for the judgement

	Workspace string // the one place that is meant to be shown, writable
	Home      string // the user's home: private or hidden
	Canary    string // outside of all that is shown, holds secret
	Shown     string // shown, read-only
	Tmp       string // a directory of the host's below /tmp, holds secret

	Program  string // this program, as the payload sees it
	Launcher string // the launcher's own program, "" if unknown
	HostPID  int    // a process outside that waits to be touched
	Name     string // of that process's second argument
	HostName string // of the host, or of the cage
	Machine  string // machine-id

	CommandLine string // SHA-256 of that of the host's kernel, in hex

	TCP4, TCP6, UDP4, Published int // ports on the host's loopback
	Abstract, AbstractDgram     string
	Socket, ShownSocket         string // paths of listening unix sockets
	ShmID, MsgID, SemID         int    // System V objects of the host
	ShmKey                      int
	Key                         int32 // serial of a key in the host's keyring
	Namespaces                  map[string]string
	Address                     string            // the host's own, not loopback; "" outside a cage
	Peers                       map[string]string // name → address of the servers beyond the host, in a cage
	Resolver                    string
	ControlProxy                string // host:port of an open proxy, for the control
	Tag                         string // is in the argument list of every process of this run
	HostTTYDev                  uint64 // device of the host's devpts
	HostTTY                     string // the host's terminal, if there is one
}

// Inside is what a payload works with.
type Inside struct {
	Spec
	ctx context.Context
}

// Leaks says whether data holds the secret.
func (in *Inside) Leaks(data []byte) bool { return leaks(data, in.SecretSum) }

const secretLen = 32 // hex digits

func leaks(data []byte, sum string) bool {
	run := 0
	for i, c := range data {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'f' {
			run++
		} else {
			run = 0
		}
		if run >= secretLen {
			got := sha256.Sum256(data[i+1-secretLen : i+1])
			if hex.EncodeToString(got[:]) == sum {
				return true
			}
		}
	}
	return false
}

// Read tries to read the secret at path, which must not hang it.
func (in *Inside) Read(path string) Outcome {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Blocked("open %s: %v", path, cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	switch {
	case in.Leaks(data):
		return Escaped("read the secret in %s", path)
	case err != nil:
		return Blocked("read %s: %v", path, cause(err))
	}
	return Blocked("%s holds %d bytes, not the secret", path, len(data))
}

// Any tries each attempt and returns the first that escapes, else the last block.
func Any(attempts ...Outcome) Outcome {
	last := Broken("nothing was tried")
	for _, o := range attempts {
		if o.Kind == DidEscape {
			return o
		}
		if o.Kind == DidBlock || last.Kind == Broke {
			last = o
		}
	}
	return last
}

// each is Any of what comes of trying each of a list.
func each[T any](list []T, try func(T) Outcome) Outcome {
	all := make([]Outcome, len(list))
	for i, x := range list {
		all[i] = try(x)
	}
	return Any(all...)
}

// errOf is the error of a call of which the rest does not matter, and closed that of
// one that opens a descriptor, which is closed.
func errOf[T any](_ T, err error) error { return err }

func closed[T int | uintptr](fd T, err error) error {
	if err == nil {
		unix.Close(int(fd))
	}
	return err
}

// Attempt is the outcome of a call that returned err: no error is an escape.
func Attempt(err error, format string, args ...any) Outcome {
	what := fmt.Sprintf(format, args...)
	if err == nil {
		return Escaped("%s", what)
	}
	return Blocked("%s: %v", what, cause(err))
}

// must ends an attempt that an error has broken, and blockedBy one that it shows
// to be stopped: both throw the outcome, which outcomeOf catches.
func must(err error, doing ...string) {
	if err != nil {
		panic(Broken("%s%v", strings.Join(append(doing, ""), ": "), err))
	}
}

func blockedBy(err error, doing ...string) {
	if err != nil {
		panic(Blocked("%s%v", strings.Join(append(doing, ""), ": "), cause(err)))
	}
}

// outcomeOf is what an attempt comes to, returned or thrown.
func outcomeOf(attempt func() Outcome) (o Outcome) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case Outcome:
			o = r
		default:
			o = Broken("panic: %v", r)
		}
	}()
	return attempt()
}

// cause is the error number within err, if there is one: what was tried has
// been said already.
func cause(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// Reached is the outcome of a system call that must be refused before it looks
// at its arguments: any error but a refusal shows that it got through.
func Reached(err error, format string, args ...any) Outcome {
	what := fmt.Sprintf(format, args...)
	switch {
	case err == nil:
		return Escaped("%s", what)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSYS):
		return Blocked("%s: %v", what, err)
	}
	return Escaped("%s reached the kernel: %v", what, err)
}

// Call makes a raw system call.
func Call(nr uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return r, errno
	}
	return r, nil
}

// Dial connects and says whether the canary behind the address answered. Any
// network can be given.
func (in *Inside) Dial(network, address string) Outcome {
	ctx, cancel := context.WithTimeout(in.ctx, patience(1500*time.Millisecond))
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return Blocked("%s %s: %v", network, address, cause(err))
	}
	defer c.Close()
	return in.Greet(c, network+" "+address)
}

// Greet sends a line to a canary listener and looks for its answer.
func (in *Inside) Greet(c net.Conn, what string) Outcome {
	c.SetDeadline(time.Now().Add(patience(1500 * time.Millisecond)))
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return Blocked("%s: write: %v", what, err)
	}
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	if in.Leaks(buf[:n]) {
		return Escaped("%s: the canary answered", what)
	}
	if err != nil {
		return Blocked("%s: no answer: %v", what, err)
	}
	return Blocked("%s: answered by something else: %.60q", what, buf[:n])
}

// Again runs this program inside as another process: verb of helpers.
func (in *Inside) Again(verb string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(in.ctx, in.Program, append([]string{helperVerb, verb, in.Tag}, args...)...)
	cmd.WaitDelay = time.Second
	return cmd
}

// Path joins names below the workspace.
func (in *Inside) Path(names ...string) string {
	return filepath.Join(append([]string{in.Workspace}, names...)...)
}

// Tool finds a program inside.
func (in *Inside) Tool(name string) (string, bool) {
	path, err := exec.LookPath(name)
	return path, err == nil
}

// The hidden verbs.
const (
	probeVerb  = "__probe"  // SPEC ID: run one payload, here
	helperVerb = "__helper" // NAME TAG ARG…: a process that a payload needs
	cageVerb   = "__cage"   // run a job in a cage: the first process of it
)

const sentinel = "@@probe "

// runPayload runs the payload of a probe and prints its outcome with the nonce.
func runPayload(specFile, id string) int {
	data, err := os.ReadFile(specFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "escape:", err)
		return 2
	}
	in := &Inside{}
	if err := json.Unmarshal(data, &in.Spec); err != nil {
		fmt.Fprintln(os.Stderr, "escape:", err)
		return 2
	}
	var cancel context.CancelFunc
	in.ctx, cancel = context.WithTimeout(context.Background(), patience(payloadTime))
	defer cancel()
	report(in.Nonce, attempt(Find(id), in))
	return 0
}

// report echoes the nonce with an outcome. A payload that expects to be killed
// reports first.
func report(nonce string, o Outcome) {
	line, err := json.Marshal(o)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	// One write, with a leading newline: other output may stand on the line.
	os.Stdout.WriteString("\n" + sentinel + nonce + " " + string(line) + "\n")
}

func attempt(p *Probe, in *Inside) Outcome {
	if p == nil || p.Payload == nil {
		return Broken("no such payload")
	}
	if in.Guarded {
		if err := in.contained(); err != nil {
			return Escaped("nothing is around the payload, which is not tried: %v", err)
		}
	}
	payload := p.Payload
	if in.Control && p.Control != nil {
		payload = p.Control
	}
	return outcomeOf(func() Outcome { return payload(in) })
}

// contained says what is missing around a payload that belongs into a cage and is behind
// an engine that has none: what it tries is refused by the kernel, if not by pccrun, where
// it is nobody with a power, has processes and mounts of its own, and no network but a
// loopback.
func (in *Inside) contained() error {
	if os.Getuid() == 0 {
		return errors.New("it is root")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return err
	}
	if caps[0].Permitted|caps[1].Permitted != 0 {
		return errors.New("it has capabilities")
	}
	for _, ns := range [...]string{"pid", "mnt", "net"} {
		if link, err := os.Readlink("/proc/self/ns/" + ns); err == nil && link == in.Namespaces[ns] {
			return fmt.Errorf("the %s namespace is the machine's", ns)
		}
	}
	table, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(table)) {
		if name, _, is := strings.Cut(line, ":"); is && strings.TrimSpace(name) != "lo" {
			return errors.New("there is the network interface " + strings.TrimSpace(name))
		}
	}
	return nil
}

// readReport finds the last outcome that carries the nonce.
func readReport(output []byte, nonce string) (Outcome, bool) {
	var found Outcome
	ok := false
	for line := range strings.Lines(string(output)) {
		_, rest, is := strings.Cut(line, sentinel+nonce+" ")
		if !is {
			continue
		}
		var o Outcome
		if json.Unmarshal([]byte(strings.TrimSpace(rest)), &o) == nil {
			found, ok = o, true
		}
	}
	return found, ok
}
