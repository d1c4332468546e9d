// Package faults puts faults between a client and a server of a test: what networks and
// providers do to calls.
package faults

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"time"
)

// A Fault is what becomes of one call.
type Fault struct {
	Status  int // answered in place of all else
	Header  http.Header
	Body    string
	After   bool          // the call does its work before the answer is lost, or is another
	Twice   bool          // the call does its work two times
	Cut     int           // the connection ends after so many bytes of the answer; -1: before the first
	Delay   time.Duration // before the answer
	Rewrite func([]byte) []byte
}

// Serve answers a call by a server's own route, and by what a function makes of it; a nil
// function, or a nil fault, makes nothing of it. A stream that is hijacked, as of a websocket,
// is cut by who writes it: see [CutAfter].
func Serve(w http.ResponseWriter, r *http.Request, fault func(r *http.Request) *Fault, route http.HandlerFunc) {
	var f *Fault
	if fault != nil {
		f = fault(r)
	}
	if f == nil {
		route(w, r)
		return
	}
	time.Sleep(f.Delay)
	if f.Twice {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		route(httptest.NewRecorder(), r)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if f.Status != 0 {
		if f.After {
			route(httptest.NewRecorder(), r)
		}
		maps.Copy(w.Header(), f.Header)
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body)
		return
	}
	if f.Rewrite != nil {
		answer := httptest.NewRecorder()
		route(answer, r)
		body := f.Rewrite(answer.Body.Bytes())
		maps.Copy(w.Header(), answer.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
		return
	}
	if r.Header.Get("Upgrade") != "" && f.Cut >= 0 {
		route(w, r.WithContext(context.WithValue(r.Context(), cutKey{}, f.Cut)))
		return
	}
	if f.Cut != 0 {
		w = &cutting{ResponseWriter: w, left: max(f.Cut, 0)}
		if f.Cut < 0 && f.After {
			route(httptest.NewRecorder(), r)
		}
		if f.Cut < 0 {
			panic(http.ErrAbortHandler)
		}
	}
	route(w, r)
}

// cutting ends the connection after so many bytes.
type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(b []byte) (int, error) {
	if len(b) >= c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		c.Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}

func (c *cutting) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

type cutKey struct{}

// CutAfter is how many bytes of a stream go out before it ends too soon, 0 for all.
func CutAfter(r *http.Request) int {
	n, _ := r.Context().Value(cutKey{}).(int)
	return n
}
