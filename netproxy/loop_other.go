//go:build !linux

package netproxy

import (
	"context"
	"net"
)

// There is no loop here.
type loop struct{}

// serveAtOnce is serve: nothing is done at once here.
func (p *Proxy) serveAtOnce(ctx context.Context, ln net.Listener, e entrance) error {
	return p.serve(ctx, ln, e.handle)
}
