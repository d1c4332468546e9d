package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// A route is a way from a client to the server of the bench.
type route struct {
	name    string
	prefix  []string // before the client's own words
	address string
	env     []string
	why     string // not empty: it is not to be had
}

// peers measures the way out that programs take without knowing of a proxy ÷
// the ways out of others, in turns. A client of srt and squid speaks to their
// proxy, which is the only way that they have.
func (b *bench) peers(ctx context.Context) ([]figure, error) {
	port, stop, err := workServer()
	if err != nil {
		return nil, err
	}
	defer stop()
	squid, end, err := b.squid(ctx, port)
	if err != nil {
		return nil, err
	}
	defer end()
	srt, err := b.srt(port, "")
	if err != nil {
		return nil, err
	}
	own := route{name: "pccrun", prefix: append(b.pccrun("--local", port), b.worker, "work", "net"), address: net.JoinHostPort("host.pccrun.internal", port)}
	bare := route{name: "a bare relay", prefix: []string{b.worker, "work", "relay", port}, address: net.JoinHostPort(relayed, port)}
	all := []route{own, bare, squid, srt}
	rounds := max(3, b.rounds/40)
	var figures []figure
	for _, w := range []struct {
		name  string
		runs  int // for a round of bulk
		args  []string
		goals map[string]float64 // of the time: 1.2 × the rate is 0.83 of it
	}{
		{"bulk down one connection, time", 1, []string{"down", strconv.Itoa(bulkBytes)}, map[string]float64{bare.name: 1.11, squid.name: 0.83, srt.name: 0.25}},
		{"new connections one at a time, time", shorter, []string{"connect", strconv.Itoa(connections), "1"}, map[string]float64{bare.name: 1.11, squid.name: 0.83, srt.name: 0.25}},
		{"new connections eight at a time, time", shorter, []string{"connect", strconv.Itoa(connections), "8"}, map[string]float64{bare.name: 1.11, squid.name: 0.83, srt.name: 0.25}},
	} {
		args := w.args
		if b.rounds < 100 { // a little of it
			args = append([]string{args[0], strconv.Itoa(map[bool]int{true: bulkBytes / 16, false: 80}[args[0] == "down"])}, args[2:]...)
		}
		times := map[string][]time.Duration{}
		for i := range w.runs * rounds {
			for _, r := range all {
				if r.why != "" || r.name == srt.name && i%w.runs != 0 { // srt takes ten times as long, and is not near
					continue
				}
				took, err := b.travel(ctx, r, args)
				if err != nil {
					return nil, fmt.Errorf("%s, by %s: %w", w.name, r.name, err)
				}
				times[r.name] = append(times[r.name], took)
			}
		}
		for _, r := range all[1:] {
			f := figure{name: w.name, unit: "× " + r.name, goal: w.goals[r.name], why: r.why}
			if r.why == "" {
				in, out := median(times[own.name]), median(times[r.name])
				f.value, f.detail = ratio(in, out), fmt.Sprintf("%s to %s", ms(in), ms(out))
			}
			figures = append(figures, f)
		}
	}
	f, err := decision()
	return append(figures, f), err
}

// travel runs a client on a route and returns the time that it says.
func (b *bench) travel(ctx context.Context, r route, args []string) (time.Duration, error) {
	argv := append(append(append([]string{}, r.prefix...), r.address), args...)
	cmd := b.command(ctx, b.empty, argv...)
	cmd.Env = append(cmd.Env, r.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Duration(ns), err
}

// squid starts one that lets everything through and keeps nothing.
func (b *bench) squid(ctx context.Context, to string) (route, func(), error) {
	r := route{name: "squid", prefix: []string{b.worker, "work", "via"}, address: net.JoinHostPort("127.0.0.1", to)}
	program, err := exec.LookPath("squid")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/squid"); err != nil {
			r.why = "no squid"
			return r, func() {}, nil
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return r, nil, err
	}
	proxy := free.Addr().String()
	free.Close()
	config := filepath.Join(b.dir, "squid.conf")
	text := "http_port " + proxy + "\nhttp_access allow all\ncache deny all\ncache_mem 8 MB\naccess_log none\ncache_log /dev/null\n" +
		"cache_store_log none\nmemory_cache_shared off\npid_filename none\npinger_enable off\nnetdb_filename none\ncoredump_dir " + b.dir + "\nshutdown_lifetime 0 seconds\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return r, nil, err
	}
	cmd := b.command(ctx, b.dir, program, "-N", "-f", config)
	if err := cmd.Start(); err != nil {
		return r, nil, err
	}
	end := func() { // not by SIGKILL: what it has in /dev/shm would stay, and keep the next from starting
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
	}
	r.env = []string{"HTTPS_PROXY=http://" + proxy}
	for range 200 {
		c, err := net.Dial("tcp", proxy)
		if err == nil {
			c.Close()
			return r, end, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	end()
	return r, nil, fmt.Errorf("squid does not listen at %s", proxy)
}

// srt allows the name of the host's loopback, which is the only one that it
// lets lead there; more are settings of the network.
func (b *bench) srt(to, more string) (route, error) {
	settings := filepath.Join(b.dir, "srt.json")
	r := route{name: "srt", prefix: []string{"srt", "-s", settings, "--", b.worker, "work", "via"}, address: net.JoinHostPort("localhost", to)}
	r.env = []string{"TMPDIR=" + b.dir} // it leaves sockets and authorities there
	if _, err := exec.LookPath("srt"); err != nil {
		r.why = "no srt"
		return r, nil
	}
	for _, needed := range []string{"socat", "bwrap", "rg"} {
		if _, err := exec.LookPath(needed); err != nil {
			r.why = "srt needs " + needed
			return r, nil
		}
	}
	text := `{"network":{"allowedDomains":["localhost"],"deniedDomains":[]` + more + `},"filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}`
	return r, os.WriteFile(settings, []byte(text), 0o644)
}

// awaitProxy waits until the proxy of HTTPS_PROXY is there: srt starts what brings
// it inside beside the command.
func awaitProxy() error {
	proxy, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil || proxy.Host == "" {
		return fmt.Errorf("HTTPS_PROXY names no proxy: %w", err)
	}
	for range 500 {
		var c net.Conn
		if c, err = net.Dial("tcp", proxy.Host); err == nil {
			return c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// dialVia connects by the proxy that HTTPS_PROXY names, RFC 9110, section 9.3.6.
func dialVia(address string) (net.Conn, error) {
	proxy, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil || proxy.Host == "" {
		return nil, fmt.Errorf("HTTPS_PROXY names no proxy: %w", err)
	}
	c, err := net.Dial("tcp", proxy.Host)
	if err != nil {
		return nil, err
	}
	head := "CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\n"
	if u := proxy.User; u != nil {
		password, _ := u.Password()
		head += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)) + "\r\n"
	}
	if _, err := c.Write([]byte(head + "\r\n")); err != nil {
		c.Close()
		return nil, err
	}
	// The server says nothing first, so that what is read is the proxy's.
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("CONNECT %s: %s", address, resp.Status)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// decision measures what the answer to one connection takes, name and address,
// among a thousand rules.
func decision() (figure, error) {
	f := figure{name: "a decision among 1,000 rules", unit: "µs", goal: 5, detail: "name and address, the slowest of four"}
	var list []rules.Rule
	for i := range 1000 {
		text := [...]string{"h%d.example", "*.w%d.example", "10.%d.0.0/16:5432", "d%d.example:8000-9000,22"}[i%4]
		r, err := rules.Parse(fmt.Sprintf(text, i/4))
		if err != nil {
			return f, err
		}
		list = append(list, r)
	}
	set, err := rules.New(list...)
	if err != nil {
		return f, err
	}
	address := netip.MustParseAddr("140.82.112.3")
	for _, host := range []string{"h249.example", "a.b.w249.example", "10.249.1.1", "nobody.example"} {
		const times = 20_000
		start := time.Now()
		for range times {
			if v := set.Decide(host, 443); v.Action == rules.Allow {
				set.DecideAddr(v, address, false)
			}
		}
		f.value = max(f.value, float64(time.Since(start).Nanoseconds())/times/1000)
	}
	return f, nil
}
