package netproxy

import (
	"io"
	"net"
	"testing"
)

// BenchmarkBulk moves bytes down one connection, directly and through a tunnel.
func BenchmarkBulk(b *testing.B) {
	chunk := make([]byte, 256<<10)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					if _, err := c.Write(chunk); err != nil {
						return
					}
				}
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	p := New(Config{Rules: parse(b, "local "+port), HTTP: reader(b)})
	defer p.Close()
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go p.Serve(b.Context(), proxy)
	for name, addr := range map[string]string{"direct": ln.Addr().String(), "tunnel": proxy.Addr().String()} {
		b.Run(name, func(b *testing.B) {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			if name == "tunnel" {
				io.WriteString(c, "CONNECT host.pccrun.internal:"+port+" HTTP/1.1\r\n\r\n")
			}
			buf := make([]byte, 256<<10)
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
