//go:build !linux

package netproxy

import "net/netip"

func isOwn(a netip.Addr) bool { return isSource(a) }
