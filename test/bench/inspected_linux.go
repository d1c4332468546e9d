package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/test/internal/tlsserver"
)

// How many requests a client sends whose connections are read, and over how many
// connections that stand.
const (
	inspectedRequests = 4000
	inspectedAtOnce   = 8
)

// inspected measures requests by TLS that are read on their way, by pccrun, where
// a rule for requests allows them, and by srt, told to terminate TLS. The clients
// are the same, and go by each one's proxy.
func (b *bench) inspected(ctx context.Context) ([]figure, error) {
	f := figure{name: "inspected requests eight at a time, time", unit: "× srt", goal: 0.5}
	own := tlsserver.Address()
	if own == nil {
		f.why = "no address but the loopback's"
		return []figure{f}, nil
	}
	ports, stop, err := tlsserver.Serve(b.authority(), own, net.IPv4(127, 0, 0, 1))
	if err != nil {
		return nil, err
	}
	defer stop()
	there := "https://" + net.JoinHostPort(own.String(), ports[0])
	srt, err := b.srt(ports[1], `,"tlsTerminate":{}`)
	if err != nil {
		return nil, err
	}
	if f.why = srt.why; f.why != "" {
		return []figure{f}, nil
	}
	srt.prefix[len(srt.prefix)-1] = "requests"
	srt.address = "https://" + srt.address
	routes := []route{
		{name: "pccrun", prefix: append(b.pccrun("--allow", "GET "+there+"/**"), b.worker, "work", "requests"), address: there},
		srt,
	}
	n := inspectedRequests
	if b.rounds < 100 {
		n = 80
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(home, outgoing.File)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	mine, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil { // the user has one
		f.why = "needs to make ~/" + outgoing.File + ": " + err.Error()
		return []figure{f}, nil
	}
	defer os.Remove(mine.Name())
	_, err = mine.WriteString("SSL_CERT_FILE=" + b.authority() + "\n")
	if err = errors.Join(err, mine.Close()); err != nil {
		return nil, err
	}
	times := map[string][]time.Duration{}
	for range max(3, b.rounds/40) {
		for _, r := range routes {
			r.env = append(r.env, "SSL_CERT_FILE="+b.authority(), "NODE_EXTRA_CA_CERTS="+b.authority())
			took, err := b.travel(ctx, r, []string{strconv.Itoa(n), strconv.Itoa(inspectedAtOnce)})
			if err != nil {
				return nil, fmt.Errorf("%s, by %s: %w", f.name, r.name, err)
			}
			times[r.name] = append(times[r.name], took)
		}
	}
	in, out := median(times["pccrun"]), median(times["srt"])
	f.value, f.detail = ratio(in, out), fmt.Sprintf("%s to %s", ms(in), ms(out))
	return []figure{f}, nil
}

// authority is the file of the certificate that clients and proxies trust.
func (b *bench) authority() string { return filepath.Join(b.dir, "authority.pem") }

// requests is the client: n requests over several connections, each made by a
// first one that does not count.
func requests(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("requests: want URL N AT-ONCE")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	atOnce, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	if err := awaitProxy(); err != nil {
		return err
	}
	// net/http passes by the proxy for a host of the loopback, whatever is asked.
	proxy, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil {
		return err
	}
	errs := make(chan error, atOnce)
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for range atOnce {
		ready.Add(1)
		done.Go(func() {
			c := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}}
			err := get(&c, args[0])
			ready.Done()
			<-begin
			for i := 0; i < n/atOnce && err == nil; i++ {
				err = get(&c, args[0])
			}
			errs <- err
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	took := time.Since(start)
	for range atOnce {
		err = cmp.Or(err, <-errs)
	}
	fmt.Println(took.Nanoseconds())
	return err
}

func get(c *http.Client, url string) error {
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || string(body) != "hello\n") {
		err = fmt.Errorf("GET %s: %s: %.200s", url, resp.Status, body)
	}
	return err
}
