package inside

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ends returns the two ends of a connection that shares a file, whose path is the last.
func ends(t *testing.T) (launcher, place *Bulk, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "bulk")
	require.NoError(t, os.WriteFile(path, make([]byte, BulkSize), 0o600))
	var both [2]*Bulk
	a, b := net.Pipe() // which holds nothing: who waits for room waits for a reader
	for i, conn := range [2]net.Conn{a, b} {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		both[i] = NewBulk(conn, file, i == 0)
		t.Cleanup(func() { both[i].Close() })
	}
	return both[0], both[1], path
}

// TestBulkCarriesAll has both ends write pieces of all sizes at once, which are more than the
// file holds.
func TestBulkCarriesAll(t *testing.T) {
	launcher, place, path := ends(t)
	launcher.Use()
	place.Use()
	const size = 5 * bulkHalf
	type result struct{ sent, got [sha256.Size]byte }
	results := make(chan result, 2)
	pass := func(from, to *Bulk, seed uint64) {
		sent, got := sha256.New(), sha256.New()
		go func() {
			random := rand.New(rand.NewPCG(seed, 1))
			for left := size; left > 0; {
				text := make([]byte, min(left, 1+random.IntN(1<<(1+random.IntN(21)))))
				for i := range text {
					text[i] = byte(random.Uint32())
				}
				sent.Write(text)
				n, err := from.Write(text)
				assert.NoError(t, err)
				assert.Len(t, text, n)
				left -= n
			}
		}()
		_, err := io.CopyN(got, to, size)
		assert.NoError(t, err)
		go io.Copy(io.Discard, to) // a session reads on, and so hears of room
		results <- result{[sha256.Size]byte(sent.Sum(nil)), [sha256.Size]byte(got.Sum(nil))}
	}
	go pass(launcher, place, 1)
	go pass(place, launcher, 2)
	for range 2 {
		r := <-results
		assert.Equal(t, r.sent, r.got)
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.NotEqual(t, make([]byte, BulkSize), text, "it went through the file")
}

func TestBulkFindsAFileThatIsNotShared(t *testing.T) {
	launcher, place, _ := ends(t)
	require.NoError(t, place.Answer(), "of what was there before")
	require.NoError(t, launcher.Challenge("word"))
	assert.False(t, launcher.Answered("word"))
	require.NoError(t, place.Answer())
	assert.True(t, launcher.Answered("word"))
}

// TestBulkIsNotTrusted has the other end say what is not so.
func TestBulkIsNotTrusted(t *testing.T) {
	for name, said := range map[string][]byte{
		"a piece beyond the half": {'f', 0xff, 0, 0, 0},
		"another kind":            {'x', 0, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			launcher, place, _ := ends(t)
			go place.conn.Write(said)
			_, err := launcher.Read(make([]byte, 10))
			assert.ErrorContains(t, err, "the other end")
			launcher.Use()
			_, err = launcher.Write(make([]byte, BulkSize))
			assert.Error(t, err, "nobody waits for room any more")
		})
	}
	t.Run("a file cut short", func(t *testing.T) {
		launcher, place, path := ends(t)
		place.Use()
		go place.Write(make([]byte, bulkLeast))
		_, err := io.ReadFull(launcher, make([]byte, 100))
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, 0))
		_, err = launcher.Read(make([]byte, 100))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
	t.Run("more room than there is", func(t *testing.T) {
		launcher, place, _ := ends(t)
		go func() {
			place.conn.Write([]byte{'r', 0xff, 0xff, 0xff, 0xff, 'd', 0, 0, 0, 1, 'a'})
		}()
		_, err := launcher.Read(make([]byte, 1))
		require.NoError(t, err)
		assert.EqualValues(t, bulkHalf, launcher.free)
	})
}
