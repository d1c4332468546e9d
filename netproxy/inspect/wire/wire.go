// Package wire is what the launcher and the process that reads requests say to
// each other: JSON, one message a packet of a unix socket (SOCK_SEQPACKET),
// descriptors beside it. It links nothing, so that the launcher may.
//
//	launcher                                          inspector
//	  Setup, through a pipe of its own        -->
//	                                          <--     Ready, with the trust files
//	  Connection, with the client's socket    -->
//	  Connection{}, each Beat                 -->
//	                                          <--     Report, one a request, one at the end
//	  end of the socket                       -->     closes all, reports, and ends
package wire

import (
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// The descriptors that the inspector finds open, and the verb that it is
// started by.
const (
	Verb      = "__inspect"
	ControlFD = 3
	SetupFD   = 4
	ProgramFD = 5 // the program itself
)

// A Setup is all that the inspector knows. It goes through a pipe: neither
// arguments nor environment hold a secret.
type Setup struct {
	Rules        []string `json:"rules"`
	Secrets      []Secret `json:"secrets"`
	HTTPProxy    string   `json:"http_proxy"` // of the host, as in its variables
	HTTPSProxy   string   `json:"https_proxy"`
	NoProxy      string   `json:"no_proxy"`
	ProxyPorts   []string `json:"proxy_ports"`  // of this machine's loopback that such a proxy may have
	Certificates []string `json:"certificates"` // files of certificates to trust beside the system's
	UID          int      `json:"uid"`          // whom to become, 0 to stay
	GID          int      `json:"gid"`
}

// A Secret is a value that goes out to hosts in the place of its placeholder.
type Secret struct {
	Placeholder string   `json:"placeholder"`
	Value       string   `json:"value"`
	Hosts       []string `json:"hosts"` // rules
}

// Ready says that the inspector serves, or why it cannot. Beside it come three
// files: its certificate, all that is trusted in PEM, and the same for Java.
type Ready struct {
	Error string `json:"error,omitempty"`
}

// A Connection is one client's.
type Connection struct {
	ID      uint64        `json:"id"`
	Early   []byte        `json:"early"`
	Verdict rules.Verdict `json:"verdict"`
}

// A Report tells of a request, or of the end of a connection.
type Report struct {
	ID      uint64        `json:"id"`
	Verdict rules.Verdict `json:"verdict"`
	Request string        `json:"request"` // method and URL without query, "" at the end
	Error   string        `json:"error"`
	Closed  bool          `json:"closed"`
	Up      int64         `json:"up"`
	Down    int64         `json:"down"`
}

// A launcher that was not heard of for Patience is taken for stopped: then no
// request is let through. It gives a sign of life each Beat.
const (
	Beat     = time.Second
	Patience = 4 * time.Second
)

// MaxMessage is how long a message is at most, in bytes.
const MaxMessage = 64 << 10
