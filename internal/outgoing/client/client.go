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

func transport(home string, environ []string, note func(text string)) (*http.Transport, error) {
	s, err := outgoing.Read(&programs.Finder{Home: home, Records: programs.Records(home, ""), Environ: environ}, note)
	if err != nil {
		return nil, err
	}
	s.Trust()
	pool, err := roots(s.Certificates)
	if err != nil {
		return nil, err
	}
	proxy := (&httpproxy.Config{HTTPProxy: s.HTTPProxy, HTTPSProxy: s.HTTPSProxy, NoProxy: s.NoProxy}).ProxyFunc()
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
	for _, name := range [...]string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if value, set := os.LookupEnv(name); set {
			if err := os.Unsetenv(name); err != nil {
				return nil, err
			}
			defer os.Setenv(name, value)
		}
	}
	pool, err := x509.SystemCertPool()
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
