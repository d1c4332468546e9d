package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/internal/fixture"
)

// slowDisk makes each directory take some time, and counts how many were read.
func slowDisk(t *testing.T, each time.Duration) (read *atomic.Int64) {
	read = new(atomic.Int64)
	stall = func(string) { read.Add(1); time.Sleep(each) }
	t.Cleanup(func() { stall = nil })
	return read
}

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

// A launch that waits for a disk is refused in time, with what it was about; the
// next one goes on from there, and overlooks nothing.
func TestScanSlow(t *testing.T) {
	q := slowTree(t)
	read := slowDisk(t, 4*time.Millisecond)
	q.Within = 60 * time.Millisecond
	tries, before := 0, int64(0)
	var found *Found
	for {
		began := time.Now()
		var err error
		if found, err = Scan(q); err == nil {
			break
		}
		tries++
		require.Less(t, tries, 100)
		require.Less(t, time.Since(began), q.Within+10*time.Second)
		require.ErrorIs(t, err, ErrTooMuch)
		require.ErrorContains(t, err, q.Root)
		require.ErrorContains(t, err, "not finished in 60ms")
		var hint interface{ Hint() string }
		require.True(t, errors.As(err, &hint))
		require.Contains(t, hint.Hint(), "run it again")
		require.Greater(t, read.Load(), before, "each goes on")
		before = read.Load()
		if tries == 1 { // what was read already, and changes, is read again
			require.NoError(t, os.WriteFile(q.Root+"/late", nil, 0o644))
			for i := range 30 {
				require.NoError(t, os.WriteFile(fmt.Sprintf("%s/%d/.envrc", q.Root, i), nil, 0o644))
			}
			time.Sleep(2 * racy)
		}
	}
	require.Greater(t, tries, 1, "else this proves nothing")
	require.Len(t, found.Pins, 60)
	stall = nil
	whole, err := Scan(Query{Root: q.Root, Protect: q.Protect})
	require.NoError(t, err)
	require.Equal(t, whole.Pins, found.Pins)
}

// What a look that was not through has read, it has read before it knew which
// files have other names: none of those is overlooked by the ones after it,
// wherever the time was over.
func TestScanSlowOtherNames(t *testing.T) {
	for name, within := range map[string]func(try int) time.Duration{
		"soon": func(int) time.Duration { return 40 * time.Millisecond },
		"late": func(try int) time.Duration { return time.Duration(60+40*try) * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			q := slowTree(t)
			q.Protect = append(q.Protect, fixture.Protect(".husky")...)
			q.Files = []profiles.FileRule{{Path: q.Root + "/secrets", Access: profiles.Hide}}
			fixture.Write(t, q.Root+"/5/.husky/h", "")
			fixture.Write(t, q.Root+"/secrets/deep/key", "")
			for i := range 30 { // before and after it in any order of reading
				require.NoError(t, os.Link(q.Root+"/5/.husky/h", fmt.Sprintf("%s/%d/3/h", q.Root, i)))
				require.NoError(t, os.Link(q.Root+"/secrets/deep/key", fmt.Sprintf("%s/%d/4/key", q.Root, i)))
			}
			time.Sleep(2 * racy)
			whole := scanOf(t, Query{Root: q.Root, Protect: q.Protect, Files: q.Files})
			require.Len(t, whole.Matches, 30, "the control: one that is through finds all")
			slowDisk(t, 4*time.Millisecond)
			for try := 0; ; try++ {
				require.Less(t, try, 200)
				if q.Within = within(try); try > 60 {
					stall = nil // by now it is in memory
				}
				found, err := Scan(q)
				if err != nil {
					require.ErrorIs(t, err, ErrTooMuch)
					continue
				}
				require.Positive(t, try, "else this proves nothing")
				require.Equal(t, whole.Matches, found.Matches)
				require.Equal(t, whole.Pins, found.Pins)
				break
			}
		})
	}
}

// The control: without a bound it takes as long as it takes, and where nothing
// can be kept there is none, since the next try would be where this one is.
func TestScanSlowUnbound(t *testing.T) {
	q := slowTree(t)
	slowDisk(t, time.Millisecond)
	_, err := Scan(q)
	require.NoError(t, err)
	q.Within, q.IndexDir = time.Millisecond, ""
	_, err = Scan(q)
	require.NoError(t, err)
}

// A scan ends in time wherever it is: in the index, in a large directory, at
// links that lead on and on.
func TestScanSlowAnywhere(t *testing.T) {
	q := slowTree(t)
	_, err := Scan(q)
	require.NoError(t, err)
	q.Within = time.Nanosecond
	_, err = Scan(q)
	require.ErrorIs(t, err, ErrTooMuch, "all of it is in the index")
	q.Within = time.Hour
	found, err := Scan(q)
	require.NoError(t, err)
	require.Less(t, found.Stats.Read, 35, "and stayed there")
	require.FileExists(t, filepath.Join(q.Root, "0/7/.envrc"))
}

// What waits for a disk has more requests under way than processors.
func TestScanSlowIsParallel(t *testing.T) {
	q := slowTree(t)
	defer func(f func() int64) { fromDisk = f }(fromDisk)
	var blocks, now, most atomic.Int64
	fromDisk = func() int64 { return blocks.Add(1 << 20) }
	stall = func(string) {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			old := most.Load()
			if n <= old || most.CompareAndSwap(old, n) {
				break
			}
		}
		time.Sleep(2 * time.Millisecond)
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

// Who has waited for a look that nothing bound is not refused by later ones that
// take as long, because what was read does not stay in memory.
func TestScanSlowPatience(t *testing.T) {
	q := slowTree(t)
	q.Within = 60 * time.Millisecond
	slowDisk(t, 5*time.Millisecond)
	_, err := Scan(q)
	require.ErrorIs(t, err, ErrTooMuch, "the control")
	patient := q
	patient.Within = 0
	began := time.Now()
	found, err := Scan(patient)
	require.NoError(t, err)
	require.Greater(t, time.Since(began), minPatience, "else this proves nothing")
	for i := range 30 { // all of it is read anew
		for j := range 30 {
			require.NoError(t, os.WriteFile(fmt.Sprintf("%s/%d/%d/new", q.Root, i, j), nil, 0o644))
		}
	}
	again, err := Scan(q)
	require.NoError(t, err)
	require.Equal(t, found.Pins, again.Pins)
	// The patience outlasts the look that it served.
	require.NoError(t, os.RemoveAll(q.Root+"/0"))
	for i := 1; i < 30; i++ {
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/%d/newer", q.Root, i), nil, 0o644))
	}
	_, err = Scan(q)
	require.NoError(t, err)
}

// Nor does the look for other names begin anew each time: a tree that must be asked
// for them is through after about twice as many directories as it has, however short
// each try is.
func TestScanSlowOtherNamesGoOn(t *testing.T) {
	q := slowTree(t)
	q.Files = []profiles.FileRule{{Path: q.Root + "/secrets", Access: profiles.Hide}}
	fixture.Write(t, q.Root+"/secrets/key", "")
	require.NoError(t, os.Link(q.Root+"/secrets/key", q.Root+"/9/9/key"))
	time.Sleep(2 * racy)
	read := slowDisk(t, time.Millisecond)
	q.Within = 80 * time.Millisecond
	for try := 0; ; try++ {
		require.Less(t, try, 1000)
		found, err := Scan(q)
		if err != nil {
			require.ErrorIs(t, err, ErrTooMuch)
			continue
		}
		require.Positive(t, try, "else this proves nothing")
		require.Len(t, found.Matches, 1)
		require.Equal(t, q.Root+"/9/9/key", found.Matches[0].Path)
		require.Less(t, read.Load(), int64(4*930+2*try))
		return
	}
}
