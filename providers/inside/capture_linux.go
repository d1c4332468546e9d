package inside

import (
	"encoding/binary"
	"net"
)

// capture opens what programs come to that know of no proxy: a name server, which asks
// the launcher, and the ports of the addresses that it gives to names.
func (p *place) capture() error {
	packets, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53})
	if err != nil {
		return err
	}
	for _, port := range p.plan.Capture {
		l, err := listen("0.0.0.0", port)
		if err != nil {
			return err
		}
		go p.carryCaptured(l)
	}
	questions, err := p.open(Questions)
	if err != nil {
		return err
	}
	go func() {
		text := make([]byte, 64<<10-1)
		for {
			n, from, err := packets.ReadFromUDPAddrPort(text)
			if err != nil || WritePacket(questions, from, text[:n]) != nil {
				return
			}
		}
	}()
	go func() {
		for {
			to, text, err := ReadPacket(questions)
			if err != nil {
				return
			}
			_, _ = packets.WriteToUDPAddrPort(text, to)
		}
	}()
	return nil
}

// carryCaptured carries each connection to the address of a name to the launcher. What
// was meant for the loopback itself finds nobody, as without us.
func (p *place) carryCaptured(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		at := c.LocalAddr().(*net.TCPAddr).AddrPort()
		if !Names.Contains(at.Addr().Unmap()) {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
			continue
		}
		go func() {
			defer c.Close()
			four := at.Addr().Unmap().As4()
			s, err := p.open(Captured, binary.BigEndian.AppendUint16(four[:], at.Port())...)
			if err != nil {
				return
			}
			defer s.Close()
			Join(c.(*net.TCPConn), s)
		}()
	}
}
