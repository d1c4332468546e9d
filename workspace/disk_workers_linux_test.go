package workspace

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/fixture"
)

// slowTree is a workspace of 900 directories with a protected name here and there.
func slowTree(t *testing.T) Query {
	top := fixture.Dir(t)
	q := Query{Root: top + "/ws", IndexDir: top + "/index", Protect: fixture.Protect(".envrc")}
	for i := range 30 {
		for j := range 30 {
			require.NoError(t, os.MkdirAll(fmt.Sprintf("%s/%d/%d", q.Root, i, j), 0o755))
		}
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/%d/7/.envrc", q.Root, i), nil, 0o644))
	}
	time.Sleep(2 * racy)
	return q
}

// What waits for a disk has more requests under way than processors.
func TestScanSlowIsParallel(t *testing.T) {
	q := slowTree(t)
	defer func(f func() int64) { fromDisk = f }(fromDisk)
	var blocks, now, most atomic.Int64
	fromDisk = func() int64 { return blocks.Add(1 << 20) }
	many := make(chan struct{}) // closed when more ask at once than processors would
	stall = func(string) {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			old := most.Load()
			if n <= old || most.CompareAndSwap(old, n) {
				if n > maxHands && old <= maxHands {
					close(many)
				}
				break
			}
		}
		time.Sleep(2 * time.Millisecond)
		if blocks.Load() > 0 { // it is a disk, and slow until it is asked for much
			select {
			case <-many:
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	defer func() { stall = nil }()
	_, err := Scan(q)
	require.NoError(t, err)
	require.Greater(t, most.Load(), int64(maxHands))
	require.LessOrEqual(t, most.Load(), int64(diskHands))

	// The control: it is slow, but no disk is why.
	most.Store(0)
	fromDisk = func() int64 { return 0 }
	q.IndexDir = ""
	_, err = Scan(q)
	require.NoError(t, err)
	require.LessOrEqual(t, most.Load(), int64(maxHands))
}
