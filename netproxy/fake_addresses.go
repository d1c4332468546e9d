package netproxy

import (
	"net/netip"
	"sync"
)

// Names gives each name a fake address, and says of each address whose it is.
// An address never changes its name: programs keep what they looked up.
type Names struct {
	four, six netip.Addr // the first of 65,536 addresses; the zero Addr for none

	mu    sync.Mutex
	index map[string]uint16
	list  []string
}

// maxNames is how many names a session can have.
const maxNames = 1 << 16

// NewNames takes the addresses from a /16 and, unless it is the zero Prefix,
// an IPv6 prefix of at most 112 bits.
func NewNames(four, six netip.Prefix) *Names {
	return &Names{four: four.Masked().Addr(), six: six.Masked().Addr(), index: map[string]uint16{}}
}

// add returns the number of a name; it is not ok when there are too many.
func (n *Names) add(name string) (number uint16, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.index[name]; ok {
		return i, true
	}
	if len(n.list) == maxNames {
		return 0, false
	}
	number = uint16(len(n.list))
	n.index[name] = number
	n.list = append(n.list, name)
	return number, true
}

// At returns the name that has an address, "" if none has it yet. It is not
// fake if no name ever will.
func (n *Names) At(a netip.Addr) (name string, fake bool) {
	if n == nil {
		return "", false
	}
	a = a.Unmap()
	var number uint16
	switch {
	case a.Is4():
		b := a.As4()
		number, fake = uint16(b[2])<<8|uint16(b[3]), a == nth(n.four, b[2], b[3])
	case n.six.IsValid():
		b := a.As16()
		number, fake = uint16(b[14])<<8|uint16(b[15]), a == nth(n.six, b[14], b[15])
	}
	if !fake {
		return "", false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if int(number) < len(n.list) {
		name = n.list[number]
	}
	return name, true
}

// nth returns an address of a range by its last two bytes.
func nth(first netip.Addr, hi, lo byte) netip.Addr {
	b := first.AsSlice()
	if len(b) == 0 {
		return netip.Addr{}
	}
	b[len(b)-2], b[len(b)-1] = hi, lo
	a, _ := netip.AddrFromSlice(b)
	return a
}
