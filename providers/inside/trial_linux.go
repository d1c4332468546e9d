package inside

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/profiles"
)

// mayRunOtherwise reports whether a trial was refused for a reason that another way of running the command may not have.
func (t *Trial) mayRunOtherwise() bool {
	return t.Refused != nil && t.Refused.Code == failed && t.Refused.Guarantee == ""
}

// trial runs, as the command will be run, what tries to reach the provider's own daemon: by the native provider,
// by that as the copy's owner where root's way needs what the kernel does not have (idmapped mounts), or without namespaces.
func (sp *spool) trial() (*Trial, error) {
	t, argv, err := sp.tryNative()
	if err != nil || !t.mayRunOtherwise() {
		return t, err
	}
	if t.Root {
		if err := sp.dropRoot(); err != nil {
			return nil, err
		}
		as, _, err := sp.tryNative()
		if err == nil && !as.mayRunOtherwise() {
			as.Given = sp.given
			return as, nil
		}
	}
	if err := sp.tryBare(t, argv); err != nil {
		t.Refused.Text += "; without namespaces: " + err.Error()
	} else {
		t.Bare, _, _ = strings.Cut(t.Refused.Text, "; no mode but namespaces ")
		t.Refused = nil
	}
	t.Given = sp.given
	return t, nil
}

// dropRoot has the native provider run the command as the copy's owner, as on any machine where that user starts pccrun.
func (sp *spool) dropRoot() error {
	if err := sp.chooseUser(); err != nil {
		return err
	}
	sp.own = filepath.Join(sp.dir, "lower")
	if err := os.Mkdir(sp.own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Lchown(sp.own, int(sp.place.as.Uid), int(sp.place.as.Gid))
}

// tryNative runs the trial by the native provider, and returns what it has executed.
func (sp *spool) tryNative() (t *Trial, argv []Text, err error) {
	t = &Trial{Root: os.Getuid() == 0}
	addresses := slices.Clone(sp.asked.Sockets)
	for _, port := range sp.asked.Daemons {
		for _, host := range ownAddresses() {
			addresses = append(addresses, net.JoinHostPort(host, strconv.Itoa(int(port))))
		}
	}
	for _, at := range addresses {
		if isServer(at) {
			t.Daemons = append(t.Daemons, at)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	asked := *sp.asked
	asked.Stdin, asked.Terminal, asked.Seeds, asked.Ask = false, false, nil, false
	shown := *asked.Policy
	shown.Files = append(slices.Clip(shown.Files), profiles.FileRule{Path: self, Access: profiles.Read, Origin: profiles.Origin{Source: "trial"}})
	asked.Policy = &shown
	asked.Argv = Texts(append([]string{self, Verb, Reach}, append([]string{}, addresses...)...))
	l, err := sp.launch(&asked)
	if err != nil {
		return nil, nil, err
	}
	out, err := l.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := l.begin(); err != nil {
		return nil, nil, err
	}
	var heard sync.WaitGroup
	var refused *events.Refused
	var exit *events.Exit
	said := ""
	heard.Go(func() {
		refused, exit = l.readEvents(func(_ []byte, ev events.Event) {
			if plan, is := ev.(events.Plan); is {
				t.Answers = nil
				for _, g := range plan.Guarantees {
					t.Answers = append(t.Answers, profiles.Answer{Guarantee: profiles.Guarantee(g.Name), State: profiles.ParseState(g.State), Mechanism: g.Mechanism, Cause: g.Cause})
				}
			}
		})
	})
	heard.Go(func() { said = complaint(l.said) })
	heard.Go(func() { l.started.Close() })
	printed, _ := io.ReadAll(io.LimitReader(out, 64<<10))
	failure := l.Wait()
	heard.Wait()
	switch {
	case refused != nil:
		t.Refused = &Refusal{Code: failed, Guarantee: refused.Guarantee, Text: refused.Cause, Hint: refused.Hint}
	case failure != nil || exit == nil || exit.Code != 0:
		if said == "" && failure != nil {
			said = failure.Error()
		}
		t.Refused = &Refusal{Code: failed, Text: said}
	}
	if t.Refused == nil {
		err = t.readReached(printed)
	}
	return t, asked.Argv, err
}

// readReached reads what [Reach] has printed.
func (t *Trial) readReached(printed []byte) error {
	lines := strings.Fields(string(printed))
	if len(lines) == 0 || lines[len(lines)-1] != reachEnd {
		return errors.New("the trial did not finish")
	}
	t.Reached = lines[:len(lines)-1]
	return nil
}

// ownAddresses are where this place's own services can be met.
func ownAddresses() []string {
	list := []string{"127.0.0.1", "::1"}
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, is := a.(*net.IPNet); is && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() || is && n.IP.To4() != nil && !n.IP.IsLoopback() {
			list = append(list, n.IP.String())
		}
	}
	return list
}

// isServer reports whether an HTTP server answers at an address. That a connection is accepted does not
// say it: pccrun accepts each that it captures.
func isServer(at string) bool { return isAnswered(at, "GET /health HTTP/1.0\r\n\r\n", "HTTP/") }

// isAnswered reports whether the answer to a request at an address, or a Unix socket's path, begins with these bytes.
func isAnswered(at, request, beginning string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	network := "tcp"
	if filepath.IsAbs(at) {
		network = "unix"
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, at)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		return false
	}
	head := make([]byte, len(beginning))
	_, err = io.ReadFull(c, head)
	return err == nil && string(head) == beginning
}

// isProxied reports whether the proxy of the environment connects to an address.
func isProxied(at string) bool {
	proxy, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil || proxy.Host == "" {
		return false
	}
	password, _ := proxy.User.Password()
	token := base64.StdEncoding.EncodeToString([]byte(proxy.User.Username() + ":" + password))
	return isAnswered(proxy.Host, "CONNECT "+at+" HTTP/1.1\r\nHost: "+at+"\r\nProxy-Authorization: Basic "+token+"\r\n\r\n", "HTTP/1.1 200")
}

// reachEnd is the last line of what [Reach] prints.
const reachEnd = "done"

// printReached prints those of the addresses whose server this process reaches.
func printReached(addresses []string) int {
	found := make([]bool, len(addresses))
	var all sync.WaitGroup
	for i, at := range addresses {
		all.Go(func() { found[i] = isServer(at) || isProxied(at) })
	}
	all.Wait()
	for i, at := range addresses {
		if found[i] {
			fmt.Println(at)
		}
	}
	fmt.Println(reachEnd)
	return 0
}
