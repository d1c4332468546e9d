package dockerd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// InVM returns where the engine answers as one in a virtual machine does, which has another kernel
// than this machine. A group may use it, until stop.
func (e *Engine) InVM(gid int) (host string, stop func(), err error) {
	return e.Between(gid, OtherKernel)
}

// Between returns where the engine answers to a group, until stop, and each answer passes these.
func (e *Engine) Between(gid int, between ...func(*http.Response) error) (host string, stop func(), err error) {
	e.ways++
	path := e.path("between-" + strconv.Itoa(e.ways))
	l, err := net.Listen("unix", path)
	if err != nil {
		return "", nil, err
	}
	if err := os.Chown(path, 0, gid); err != nil {
		return "", nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return "", nil, err
	}
	to := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "engine"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(e.Host, "unix://"))
		}},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // a connection that ends early is pccrun's to name
		ModifyResponse: func(r *http.Response) (err error) {
			for _, do := range between {
				err = errors.Join(err, do(r))
			}
			return err
		},
	}
	s := &http.Server{Handler: to}
	go func() { _ = s.Serve(l) }()
	return "unix://" + path, func() { _ = s.Close() }, nil
}

// OtherKernel changes the one answer that names the kernel.
func OtherKernel(r *http.Response) error {
	if filepath.Base(r.Request.URL.Path) != "info" {
		return nil
	}
	var info map[string]any
	err := json.NewDecoder(r.Body).Decode(&info)
	r.Body.Close()
	if err != nil {
		return err
	}
	info["KernelVersion"] = "6.12.54-linuxkit"
	text, err := json.Marshal(info)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return err
}

// Busybox is a shell command that makes an image of busybox, of a name, with the libraries that programs need.
func (e *Engine) Busybox(image string, programs ...string) []string {
	return append([]string{"sh", "-c", `d=$(mktemp -d) && cd $d && mkdir -p bin && cp -L /bin/busybox bin/sh &&
for name in cat ls mkdir mv wget touch; do ln -s sh bin/$name || exit; done &&
for l in $(ldd /bin/busybox "$@" 2>/dev/null | grep -o '/[^ :]*\.so[^ ]*' | sort -u); do mkdir -p .${l%/*} && cp -L $l .$l || exit; done &&
echo mine >of-the-image && tar c . | docker -H ` + e.Host + ` import - ` + image + ` && rm -rf $d`, "sh"}, programs...)
}
