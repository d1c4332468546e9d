package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// imports makes a branch "long" of so many commits, of three objects each, in a pack of its own.
func imports(commits int) string {
	return fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= %d; i++) {
		print "commit refs/heads/long\ncommitter x <x@x> " i " +0000\ndata 2\nm"; if (i == 1) print "from refs/heads/main^0"
		s = "line " i; for (k = 0; k < 5; k++) s = s "\nsome line " (i * k * 7919) %% 1000003; print "M 100644 inline e" i %% 40 "\ndata " length(s) "\n" s } }
	' | git -c fastimport.unpackLimit=1 fast-import --quiet; `, commits)
}

// believes is for how much git may be believed, and not for how long on a machine that has other work.
func believes(t *testing.T, room int64) {
	had := toBelieve
	toBelieve = allowance{room: room, time: time.Minute}
	t.Cleanup(func() { toBelieve = had })
}

// What a command has packed anew in a large repository is looked at in silence, and what is
// forged in it is told of. The control of what is told is that git takes it.
func TestGuardOfLargePacks(t *testing.T) {
	const (
		// An index in which two blobs have each other's places, and which ends with a sum that is right.
		swap = `swap() { chmod u+w "$1"; perl -MDigest::SHA=sha1 -e 'my($f,@h)=@ARGV; local $/; open F,"+<:raw",$f or die; my $d=<F>; my $n=unpack("N",substr $d,1028,4);
			my @at=map { my $q=pack "H*",$_; my $i=0; $i++ while substr($d,1032+20*$i,20) ne $q; 1032+24*$n+4*$i } @h; my($x,$y)=map { substr $d,$_,4 } @at; substr($d,$at[0],4)=$y; substr($d,$at[1],4)=$x;
			substr($d,-20)=sha1(substr $d,0,-20); seek F,0,0; print F $d' "$1" $a $b; }; a=$(git rev-parse long:e1); b=$(git rev-parse long:e2); `
		wrong = "git cat-file blob long:e1 > one; git cat-file blob long:e2 > two; head -1 one | grep 'line 10962'; head -1 two | grep 'line 10961'"
		index = "review .git/objects/pack/pack-*.idx"
		pack  = "review .git/objects/pack/pack-*.pack"
		large = maxObjects
		few   = 6 << 20 // bytes of the objects, of more than 12 MiB
	)
	for name, c := range map[string]struct {
		commits           int
		room              int64
		before, run, then string
		want              []string
	}{
		"control: git gc, and more":            {11_000, few, "", "for i in 1 2 3; do seq $i 99 > e$i; git add e$i; git commit -q -m $i; done; git gc -q; git branch old long~8000", "git fsck", nil},
		"control: all anew":                    {11_000, large, "", "git repack -q -a -d -F --depth=5 --window=5", "git fsck", nil},
		"control: in parts":                    {31_000, large, "git gc -q; ", "git repack -q -a -d --write-midx; git commit-graph write --reachable --split", "git fsck", nil},
		"control: of SHA-256":                  {11_000, few, "rm -rf .git; git init -q -b main --object-format=sha256; git commit -q --allow-empty -m one; ", "git gc -q", "git fsck", nil},
		"control: no pack is held":             {11_000, few, "", "git gc -q", "git fsck", []string{"review .git/objects/info/commit-graph", pack}},
		"all anew, and too much":               {11_000, few, "", "git repack -q -a -d -F --depth=5 --window=5", "git fsck", []string{pack}},
		"places exchanged":                     {11_000, large, "", swap + "git gc -q; swap .git/objects/pack/pack-*.idx", wrong, []string{index}},
		"in the pack that stood":               {11_000, large, "", swap + "swap .git/objects/pack/pack-*.idx", wrong, []string{index}},
		"in the pack that stood, and in a new": {11_000, large, "", swap + "cd .git/objects/pack; swap pack-*.idx; for f in pack-*; do cat $f > n; rm -f $f; mv n pack-$(printf %040d 1).${f#*.}; done; cd ../../..", wrong, []string{index}},
	} {
		t.Run(name, func(t *testing.T) {
			believes(t, c.room)
			w := newWatchman(t)
			w.sh(asUser + "set -e; " + c.before + imports(c.commits))
			w.begin()
			time.Sleep(2 * racy)
			w.guard.knowTips(nil)
			require.Len(t, w.guard.holds[w.root+"/.git/objects"], 1)
			if name == "control: no pack is held" {
				w.guard.holds = map[string][]*hold{}
			}
			w.sh(asUser + "set -e; " + c.run)
			require.NoError(t, matches(w.end(), c.want))
			w.sh(asUser + "set -e; " + c.then)
		})
	}
}

// matches returns an error if what was told is not what these patterns say.
func matches(told, want []string) error {
	if len(told) != len(want) {
		return fmt.Errorf("%q for %q", told, want)
	}
	for i, pattern := range want {
		if match, err := filepath.Match(pattern, told[i]); err != nil || !match {
			return fmt.Errorf("%q for %q: %w", told[i], pattern, err)
		}
	}
	return nil
}

// With more packs than may be held, or with few descriptors, as much is held as there may be,
// and given back; and nothing that may have come with the run.
func TestGuardHolds(t *testing.T) {
	believes(t, maxObjects)
	w := newWatchman(t)
	w.sh(asUser + imports(500) + "cd .git/objects/pack; mv pack-*.idx i; mv pack-*.pack p; for i in $(seq 10 80); do cp i pack-$(printf %040d $i).idx; cp p pack-$(printf %040d $i).pack; done; rm -f i p")
	objects := w.root + "/.git/objects"
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(list)
	}
	had := open()
	look := func(before string, want int) {
		t.Helper()
		w.begin()
		time.Sleep(2 * racy)
		w.sh(asUser + before)
		w.guard.knowTips(nil)
		require.Len(t, w.guard.holds[objects], want)
		require.Equal(t, had+1+2*want, open())
		w.guard.knowTips(nil)
		require.Equal(t, had+1+2*want, open())
		w.guard.Close()
		require.Equal(t, had, open())
	}
	look("", maxHolds)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = 320
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	look("", 20)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	look("chmod u+w .git/objects/pack/pack-*[0-4].pack; chmod u+w .git/objects/pack/pack-*5.idx", 28)
	look("mv .git/objects/pack p; mv p .git/objects/pack", 0)
}
