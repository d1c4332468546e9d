// Package client is the one client by which pccrun itself speaks TLS, with the authorities and
// proxies that package outgoing lets count. It is no part of the launcher.
package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/internal/programs"
)

// New returns a client that follows no redirect, since a header with a key would go along. Its settings are
// read when it is first used; where they cannot be, each of its calls is that error.
func New(home string, environ []string, note func(text string)) *http.Client {
	l := &lazy{begin: sync.OnceValues(func() (*http.Transport, error) { return transport(home, environ, note) })}
	return &http.Client{Transport: l, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

type lazy struct {
	begin func() (*http.Transport, error)
}

func (l *lazy) RoundTrip(r *http.Request) (*http.Response, error) {
	t, err := l.begin()
	if err != nil {
		return nil, err
	}
	return t.RoundTrip(r)
}

// settings are the proxies and authorities that count.
func settings(home string, environ []string, note func(text string)) (*httpproxy.Config, *x509.CertPool, error) {
	s, err := outgoing.Read(&programs.Finder{Home: home, Records: programs.Records(home, ""), Environ: environ}, note)
	if err != nil {
		return nil, nil, err
	}
	s.Trust()
	pool, err := roots(s.Certificates)
	return &httpproxy.Config{HTTPProxy: s.HTTPProxy, HTTPSProxy: s.HTTPSProxy, NoProxy: s.NoProxy}, pool, err
}

func transport(home string, environ []string, note func(text string)) (*http.Transport, error) {
	proxies, pool, err := settings(home, environ, note)
	if err != nil {
		return nil, err
	}
	proxy := proxies.ProxyFunc()
	return &http.Transport{
		Proxy:                 func(r *http.Request) (*url.URL, error) { return proxy(r.URL) },
		DialContext:           (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
		TLSHandshakeTimeout:   20 * time.Second,
		ResponseHeaderTimeout: 2 * time.Minute,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   8,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
	}, nil
}

// roots returns the system's authorities with those of some files and directories.
func roots(more []string) (*x509.CertPool, error) {
	// crypto/x509 reads these, once, in place of the system's.
	restore := replaced(map[string]string{"SSL_CERT_FILE": "", "SSL_CERT_DIR": ""})
	pool, err := x509.SystemCertPool()
	restore()
	if err != nil {
		return nil, fmt.Errorf("read the system's authorities: %w", err)
	}
	for _, path := range more {
		files := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			files, _ = filepath.Glob(filepath.Join(path, "*"))
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if errors.Is(err, syscall.EISDIR) && file != path { // as crypto/x509 passes over it
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read certificates: %w", err)
			}
			pool.AppendCertsFromPEM(text)
		}
	}
	return pool, nil
}

// replaced has variables of this process have other values, none where that is "", until restore is called.
func replaced(values map[string]string) (restore func()) {
	before := map[string]string{}
	for name, value := range values {
		if was, set := os.LookupEnv(name); set {
			before[name] = was
		}
		_ = os.Unsetenv(name) // of names that are none this fails alone
		if value != "" {
			_ = os.Setenv(name, value)
		}
	}
	return func() {
		for name := range values {
			_ = os.Unsetenv(name)
			if was, set := before[name]; set {
				_ = os.Setenv(name, was)
			}
		}
	}
}

var ofProcess struct {
	once sync.Once
	err  error
}

// Process has what a library sends that has a client of its own go the same way: by the proxy that net/http reads of the
// environment, and trusting the authorities that crypto/x509 does where nobody names any. Both are read once in a process. The
// error says that this process has read the proxy of a server's address before.
func Process(home string, environ []string, address string, note func(text string)) error {
	ofProcess.once.Do(func() { ofProcess.err = process(home, environ, address, note) })
	return ofProcess.err
}

func process(home string, environ []string, address string, note func(text string)) error {
	proxies, pool, err := settings(home, environ, note)
	if err != nil {
		return err
	}
	to, err := url.Parse(address)
	if err != nil {
		return err
	}
	restore := replaced(map[string]string{
		"HTTP_PROXY": proxies.HTTPProxy, "HTTPS_PROXY": proxies.HTTPSProxy, "NO_PROXY": proxies.NoProxy, "http_proxy": "", "https_proxy": "", "no_proxy": "", "REQUEST_METHOD": "",
		"GODEBUG": "x509usefallbackroots=1",
	})
	defer restore()
	x509.SetFallbackRoots(pool)
	has, err := http.ProxyFromEnvironment(&http.Request{URL: to})
	want, e := proxies.ProxyFunc()(to)
	if err = errors.Join(err, e); err == nil && fmt.Sprint(has) != fmt.Sprint(want) {
		err = errors.New("BUG: the proxy of the environment was read before that of the user's file")
	}
	return err
}
