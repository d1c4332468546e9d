package inspect

import (
	"net"

	"github.com/pccrun/pccrun/netproxy/inspect/wire"
)

// Here serves a connection of this process's own launcher, to which it belongs: it is closed
// by whoever handed it over, once its end was reported.
func (i *Inspector) Here(conn net.Conn, b wire.Begin, launcher wire.Launcher) {
	i.Serve(lent{conn}, b, launcher)
}

// A lent connection is not closed here.
type lent struct{ net.Conn }

func (lent) Close() error { return nil }

func (l lent) CloseWrite() error {
	if half, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
