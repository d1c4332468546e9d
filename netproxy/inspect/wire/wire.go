// Package wire is what the launcher and the egress process say to each other: JSON, one
// message a packet of a unix socket (SOCK_SEQPACKET), descriptors beside it. The launcher
// decides and dials; the process reads HTTP, and can open no connection of its own.
//
//	launcher                                          egress process
//	  Setup, through a pipe of its own        -->
//	                                          <--     Ready, with the trust files where it inspects
//	  Begin, with the client's socket         -->
//	                                          <--     Question, for each request and each dial
//	  Answer, with a socket that was dialled  -->
//	                                          <--     Report, of the end of a request, of a tunnel, of the end
//	  an empty message, each Beat             -->
//	  end of the socket                       -->     closes all, and ends
//
// A client's socket stays open in the launcher: it shuts the connection down when a rule or
// the end of the run says so, and takes it back for a tunnel. It links nothing of net/http,
// so that the launcher may.
package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// The descriptors that the egress process finds open, and the verb that it is started by.
const (
	Verb      = "__inspect"
	ControlFD = 3
	SetupFD   = 4
	ProgramFD = 5 // the program itself
)

// A Setup is all that the egress process knows. It goes through a pipe: neither arguments
// nor environment hold a secret.
type Setup struct {
	Inspects     bool     `json:"inspects"` // it makes an authority, and passes the trust files
	Secrets      []Secret `json:"secrets"`
	Meters       bool     `json:"meters"`       // it counts what answers cost
	Prices       string   `json:"prices"`       // the user's own table, "" for none
	Certificates []string `json:"certificates"` // files of certificates to trust beside the system's
	UID          int      `json:"uid"`          // whom to become, 0 to stay
	GID          int      `json:"gid"`
}

// A Secret is a value that goes out to hosts in the place of its placeholder.
type Secret struct {
	Placeholder string   `json:"placeholder"`
	Value       string   `json:"value"`
	Name        string   `json:"name"`     // for who reads a refusal
	Hosts       []string `json:"hosts"`    // rules
	Caseless    bool     `json:"caseless"` // their paths are in lower case, and the hosts read any as that
	Field       string   `json:"field"`    // of a request, in which alone it goes out; "" for any, and the query
}

// Ready says that the process serves, or why it cannot. Where it inspects, three files come
// beside it: its certificate, all that is trusted in PEM, and the same for Java.
type Ready struct {
	Error string `json:"error,omitempty"`
}

// A Begin is a client's connection.
type Begin struct {
	Early []byte         `json:"early"`        // what the client has already sent
	To    *rules.Verdict `json:"to,omitempty"` // the host that the connection was made for; nil: each request names its own
}

// A Question is whether a request may go, or another connection be dialled for one.
type Question struct {
	Number uint64 `json:"number"` // of the request on its connection
	Dial   bool   `json:"dial"`   // a connection to the host that the client's was made for

	Method    string   `json:"method"`
	Scheme    string   `json:"scheme"`
	Host      string   `json:"host"` // that the request is for
	Port      uint16   `json:"port"`
	Path      string   `json:"path"`
	Field     string   `json:"field"`    // Host, of a request on a connection to one host
	Rewrites  string   `json:"rewrites"` // a field that may make another request of it
	Websocket bool     `json:"websocket"`
	Proof     []string `json:"proof"`   // Proxy-Authorization
	Request   string   `json:"request"` // method and URL without query, for events
}

// An Answer decides. Verdict.Action is Allow, Deny, or Inspect for a CONNECT whose requests
// have to be read.
type Answer struct {
	Verdict rules.Verdict `json:"verdict"`
	Status  int           `json:"status,omitempty"` // of a refusal that is no rule's
	Detail  string        `json:"detail,omitempty"` // why, or why an allowed host was not reached

	Meter      string `json:"meter,omitempty"`       // the API by which the answer to the request is counted: each is reported, once
	RetryAfter int    `json:"retry_after,omitempty"` // seconds, of a refusal

	NoTrailers bool `json:"no_trailers,omitempty"` // of the request: rules speak of what they could change

	ByProxy       bool   `json:"by_proxy,omitempty"` // the connection leads to the host's own proxy
	Authorization string `json:"authorization,omitempty"`

	Conn net.Conn `json:"-"` // what was dialled
}

// A Report tells of what became of an allowed request, or of the connection.
type Report struct {
	Number uint64 `json:"number"` // of the request; 0: of the connection

	Refused *rules.Verdict `json:"refused,omitempty"` // the connection contradicts what it was made for
	Request string         `json:"request,omitempty"`
	Error   string         `json:"error,omitempty"` // the answer was not passed on

	Tunnel bool   `json:"tunnel,omitempty"` // the launcher has the connection again, from Early on
	Early  []byte `json:"early,omitempty"`

	Spent *Spent `json:"spent,omitempty"` // of an answer that is counted, also where the connection is gone

	Closed bool  `json:"closed,omitempty"`
	Up     int64 `json:"up,omitempty"` // bytes of contents, from and to the client
	Down   int64 `json:"down,omitempty"`
}

// A Spent is what an answer has cost. The zero value is nothing.
type Spent struct {
	Model      string `json:"model"`
	Input      int64  `json:"input"` // tokens, those of the cache aside
	CacheRead  int64  `json:"cache_read"`
	CacheWrite int64  `json:"cache_write"`
	Output     int64  `json:"output"`
	USD        int64  `json:"usd"`         // millionths
	Note       string `json:"note"`        // what of it is a guess, "" for none
	RetryAfter int    `json:"retry_after"` // seconds for which the API wants no requests
}

// A Launcher decides on the requests of one connection.
type Launcher interface {
	Ask(ctx context.Context, q Question) Answer
	Report(r Report)
}

// ToProcess is a message of the launcher. Without a connection it is a sign of life.
type ToProcess struct {
	ID     uint64  `json:"id,omitempty"` // of a connection
	Begin  *Begin  `json:"begin,omitempty"`
	Number uint64  `json:"number,omitempty"` // of the question that is answered
	Answer *Answer `json:"answer,omitempty"`
}

// ToLauncher is a message of the process.
type ToLauncher struct {
	ID       uint64    `json:"id"`
	Question *Question `json:"question,omitempty"`
	Asked    uint64    `json:"asked,omitempty"` // numbers the questions
	Report   *Report   `json:"report,omitempty"`
}

// A launcher that was not heard of for Patience is taken for stopped: then no
// request is let through. It gives a sign of life each Beat.
const (
	Beat     = time.Second
	Patience = 4 * time.Second
)

// MaxMessage is how long a message is at most, in bytes. A request's path has 64 KiB.
const MaxMessage = 160 << 10

// Explain says why something failed without naming addresses of the host's network or its
// resolver: those are in the event.
func Explain(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	case errors.As(err, &dns):
		return "the name does not resolve"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to host"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection cut short"
	case errors.As(err, &op):
		return "connection failed"
	}
	return err.Error()
}
