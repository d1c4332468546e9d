//go:build unix

package netproxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBulk sends much both ways at once, so that each buffer is used.
func TestBulk(t *testing.T) {
	f := start(t, nil, "ok.example:7")
	f.host("ok.example", 7, server(t, echo))
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			c := f.raw("CONNECT ok.example:7 HTTP/1.1\r\n\r\n")
			go func() {
				for range 8 {
					c.Write(data)
				}
				c.(*net.TCPConn).CloseWrite()
			}()
			br := bufio.NewReader(c)
			br.ReadString('\n')
			br.ReadString('\n')
			var got int64
			buf := make([]byte, len(data))
			for range 8 {
				n, err := io.ReadFull(br, buf)
				got += int64(n)
				if err != nil || !bytes.Equal(buf, data) {
					t.Errorf("after %d bytes: %v", got, err)
					return
				}
			}
		})
	}
	group.Wait()
	f.Close()
	require.Zero(t, bigTaken.Load())
}

func TestBufferBudget(t *testing.T) {
	var taken [][]byte
	for range bigBuffers + 5 {
		taken = append(taken, takeBuffer())
	}
	require.Len(t, taken[0], bigBuffer)
	require.Len(t, taken[bigBuffers], smallBuffer)
	for _, b := range taken {
		giveBuffer(b)
	}
	require.Zero(t, bigTaken.Load())
	b := takeBuffer()
	require.Len(t, b, bigBuffer)
	giveBuffer(b)
}

// TestIdleTunnels measures what a tunnel costs that has fallen silent.
func TestIdleTunnels(t *testing.T) {
	const tunnels = 1000
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < 6*tunnels {
		t.Skipf("needs %d descriptors, the limit is %d", 6*tunnels, limit.Cur)
	}
	f := start(t, nil, "ok.example:7")
	f.host("ok.example", 7, server(t, echo))
	goroutines := runtime.NumGoroutine()
	before := inUse()
	for range tunnels {
		c := f.raw("CONNECT ok.example:7 HTTP/1.1\r\n\r\nx")
		_, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\nx")))
		require.NoError(t, err)
	}
	after := inUse()
	perTunnel := (after - before) / tunnels
	t.Logf("%d KiB of heap and stack a tunnel, the test's two ends included; %d goroutines", perTunnel>>10, (runtime.NumGoroutine()-goroutines)/tunnels)
	require.Less(t, perTunnel, int64(48<<10), "a buffer of io.Copy alone would be 32 KiB each way")
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
