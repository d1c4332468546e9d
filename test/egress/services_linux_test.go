package egress

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/net/websocket"
)

// services puts servers at the addresses of the world.
func (w *world) services() error {
	config, err := authority()
	if err != nil {
		return err
	}
	w.tls = config
	files, err := repository()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/repo.git/", http.FileServer(http.Dir(files)))
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "hello %s from %s\n", r.Host, r.Context().Value(http.LocalAddrContextKey))
	})
	mux.HandleFunc("/bytes/", func(rw http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(filepath.Base(r.URL.Path), 10, 64)
		io.CopyN(rw, zeros{}, n)
	})
	packages(mux)
	mux.Handle("/socket", websocket.Server{Handler: talk}) // whatever the Origin
	plain, secure := newQueue(), newQueue()
	quiet := log.New(io.Discard, "", 0)
	go (&http.Server{Handler: mux, ErrorLog: quiet}).Serve(plain)
	go (&http.Server{Handler: mux, ErrorLog: quiet}).Serve(tls.NewListener(secure, config))
	calls := newQueue()
	two := config.Clone()
	two.NextProtos = []string{"h2"}
	go (&http.Server{Handler: http.HandlerFunc(call), ErrorLog: quiet}).Serve(tls.NewListener(calls, two))
	for _, a := range []string{good4, evil4, private4, metadata4, "198.18.0.99", "[" + good6 + "]", "[" + evil6 + "]"} {
		w.serve[a+":80"] = plain.put
		w.serve[a+":8080"] = plain.put
		w.serve[a+":443"] = secure.put
		w.serve[a+":5432"] = func(c net.Conn) { postgres(c, config) }
		w.serve[a+":50051"] = calls.put
		w.serve[a+":6380"] = func(c net.Conn) { redis(tls.Server(c, config)) }
		w.serve[a+":22"] = banner
		w.serve[a+":6379"] = redis
		w.serve[a+":53"] = w.answerTCP
	}
	return nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A queue is a listener whose connections come from elsewhere.
type queue chan net.Conn

func newQueue() queue                     { return make(queue) }
func (q queue) put(c net.Conn)            { q <- c }
func (q queue) Accept() (net.Conn, error) { return <-q, nil }
func (q queue) Close() error              { return nil }
func (q queue) Addr() net.Addr            { return &net.TCPAddr{} }

// repository makes a bare git repository that plain files can serve.
func repository() (string, error) {
	dir := filepath.Join(shared, "files")
	if _, err := exec.LookPath("git"); err != nil {
		return dir, nil
	}
	script := `set -e; mkdir -p "$1"; cd "$1"; git init -q -b main work; echo content > work/file; git -C work add file
git -C work -c user.name=t -c user.email=t@example.com commit -q -m one; git clone -q --bare work repo.git; git -C repo.git update-server-info`
	cmd := exec.Command("bash", "-c", script, "bash", dir)
	cmd.Env = append(os.Environ(), "HOME="+shared, "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s%w", out, err)
	}
	return dir, nil
}

// postgres refuses each login, in the server's own words, after a startup
// message of protocol 3, by TLS where it is asked for that.
func postgres(c net.Conn, config *tls.Config) {
	defer func() { c.Close() }()
	encrypted := ""
	var size [4]byte
	for {
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(size[:])-4)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		switch binary.BigEndian.Uint32(body) {
		case 80877104: // GSSENCRequest
			io.WriteString(c, "N")
			continue
		case 80877103: // SSLRequest
			io.WriteString(c, "S")
			c, encrypted = tls.Server(c, config), ", by TLS"
			continue
		}
		break
	}
	text := "SFATAL\x00VFATAL\x00C28000\x00Mthe database of the world" + encrypted + "\x00\x00"
	io.WriteString(c, "E"+string(binary.BigEndian.AppendUint32(nil, uint32(4+len(text))))+text)
}

// banner is a server that speaks first.
func banner(c net.Conn) {
	defer c.Close()
	io.WriteString(c, "SSH-2.0-world\r\n")
	line, _ := bufio.NewReader(c).ReadString('\n')
	fmt.Fprintf(c, "you are %s", strings.TrimSpace(line))
}

// redis answers PING.
func redis(c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return
		}
		if strings.HasPrefix(strings.ToUpper(line), "PING") {
			io.WriteString(c, "+PONG\r\n")
		}
	}
}
