// Package modelapi plays the API of a model that has one answer, where a budget counts it: at an address of this machine that
// is not its loopback, whose requests nobody reads.
package modelapi

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
)

// Answer is an answer of the Messages API that costs $1.10.
const Answer = `{"type":"message","model":"claude-opus-4-8","content":[{"type":"text","text":"an answer"}],"usage":{"input_tokens":200000,"output_tokens":4000}}` + "\n"

// Listen listens at an address that is not the loopback's.
func Listen() (net.Listener, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if ip := a.(*net.IPNet).IP.To4(); ip != nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			return net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
		}
	}
	return nil, errors.New("needs an address that is not loopback's")
}

// Serve gives each request the answer, and tells of it before.
func Serve(ln net.Listener, asked func(*http.Request)) error {
	srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, Answer)
	})}
	return srv.Serve(ln)
}
