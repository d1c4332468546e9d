package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

// modelAPI serves a model's API at an address of this machine that is not its loopback: each answer costs $1.10. It writes
// where it is to the file that its argument names, and to its output a line for each request that came.
func modelAPI() {
	if err := serveModelAPI(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveModelAPI(file string) error {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP.To4()
		if ip == nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		ln, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
		if err == nil {
			err = os.WriteFile(file+".new", []byte(ln.Addr().String()), 0o644)
		}
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			return err
		}
		srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Println(r.Method, r.URL.Path)
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"type":"message","model":"claude-opus-4-8","content":[{"type":"text","text":"an answer"}],"usage":{"input_tokens":200000,"output_tokens":4000}}`+"\n")
		})}
		return srv.Serve(ln)
	}
	return errors.New("needs an address that is not loopback's")
}
