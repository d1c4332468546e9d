package egress

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/net/websocket"
)

// packages serves one package, tiny, as npm and pip look for it.
func packages(mux *http.ServeMux) {
	tarball, wheel := npmPackage(), pipPackage()
	sum := sha512.Sum512(tarball)
	mux.HandleFunc("/npm/tiny", func(w http.ResponseWriter, r *http.Request) {
		version := map[string]any{"name": "tiny", "version": "1.0.0", "dist": map[string]string{
			"tarball":   "https://" + r.Host + "/npm/tiny/-/tiny-1.0.0.tgz",
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}}
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "tiny", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": version}})
	})
	mux.HandleFunc("/npm/tiny/-/tiny-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(tarball) })
	mux.HandleFunc("/simple/tiny/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!DOCTYPE html><a href="/wheels/tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>`)
	})
	mux.HandleFunc("/wheels/tiny-1.0-py3-none-any.whl", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel) })
}

func npmPackage() []byte {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	t := tar.NewWriter(zip)
	for name, text := range map[string]string{"package/package.json": `{"name":"tiny","version":"1.0.0"}`, "package/index.js": "module.exports = 'tiny came'"} {
		_ = t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))})
		_, _ = io.WriteString(t, text)
	}
	t.Close()
	zip.Close()
	return b.Bytes()
}

func pipPackage() []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"tiny.py":                     "word = 'tiny came'\n",
		"tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
		"tiny-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"tiny-1.0.dist-info/RECORD":   "tiny.py,,\n",
	} {
		f, _ := z.Create(name)
		_, _ = io.WriteString(f, text)
	}
	z.Close()
	return b.Bytes()
}

// greeting is what a server of the world says to who asked for a host.
func greeting(r *http.Request) string {
	return fmt.Sprintf("hello %s from %s", r.Host, r.Context().Value(http.LocalAddrContextKey))
}

// talk is a websocket server that answers each message.
func talk(c *websocket.Conn) {
	for {
		var text string
		if websocket.Message.Receive(c, &text) != nil {
			return
		}
		_ = websocket.Message.Send(c, greeting(c.Request())+": "+text)
	}
}

// call is a gRPC method that answers each message of a stream as it comes: the
// protocol is five bytes before each message, and a status in the trailers.
func call(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(r.Body, head); err != nil {
			break
		}
		message := make([]byte, min(binary.BigEndian.Uint32(head[1:]), 1<<20))
		if _, err := io.ReadFull(r.Body, message); err != nil {
			break
		}
		text := greeting(r) + ": " + string(message)
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...))
		_ = flush()
	}
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
}
