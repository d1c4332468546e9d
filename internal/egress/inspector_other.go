//go:build !linux

package egress

import (
	"errors"
	"io"
	stdlog "log"
	"runtime"

	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/inspect"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
)

// serving is who reads HTTP: here it is this process.
type serving struct{ inspector *inspect.Inspector }

func (in *reader) run() (files []string, err error) {
	if in.setup.Inspects {
		return nil, errors.New("rules for requests, injected secrets and a budget need Linux, this is " + runtime.GOOS)
	}
	stdlog.SetOutput(io.Discard) // net/http tells it what a server has sent
	in.inspector, err = inspect.New(inspect.Config{})
	return nil, err
}

func (in *reader) hand(h *netproxy.Handover) error {
	go in.inspector.Here(h.Conn, wire.Begin{Early: h.Early, To: h.To}, h)
	return nil
}

func (in *reader) close() {
	if in != nil && in.inspector != nil {
		in.inspector.Close()
		in.inspector = nil
	}
}

func (in *reader) number() int { return 0 }
