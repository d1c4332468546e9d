package workspace

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What git believes of objects without reading them is told of where it is not so. That
// git believes it is the control.
func TestGuardTellsOfWhatGitBelieves(t *testing.T) {
	const (
		old    = "echo old > .envrc; git add .envrc; git commit -q -m old; h=$(git rev-parse HEAD:.envrc); "
		b      = "h=$(git rev-parse HEAD:.envrc); b=$(echo hostile | git hash-object -w --stdin); "
		chunks = `my %c; for(0..ord(substr $d,6,1)-1){my($i,$x,$o)=unpack("a4NN",substr $d,$at+12*$_,12); $c{$i}=$o} my %p; for(0..unpack("N",substr $d,$c{OIDF}+1020,4)-1){$p{unpack("H*",substr $d,$c{OIDL}+20*$_,20)}=$_} `
		open   = `chmod -R u+w .git/objects; perl -e 'my($f,$h,$b,$at)=@ARGV; local $/; open F,"+<:raw",$f or die; my $d=<F>; `
		shut   = `seek F,0,0; print F $d' `
		// A pack of one object, whose index calls it by another name.
		index = "p=$(echo $b | git pack-objects -q .git/objects/pack/pack); " + open + `my $q=pack("H*",$h); for(0..255){substr($d,8+4*$_,4)=pack("N",$_>=ord($q)?1:0)} substr($d,1032,20)=$q; ` + shut + ".git/objects/pack/pack-$p.idx $h; rm -f .git/objects/pack/*.rev; "
		// A pack of three whose index has the lowest name in the middle, where it is met first.
		order = "b=$(echo hostile | git hash-object -w --stdin); t=$(printf \"100644 blob $b\\t.envrc\\n\" | git mktree); for i in $(seq 500); do h=$(git commit-tree -p HEAD -m $i $t); [ $(printf '%s\\n' $h $t $b | cut -c1-2 | sort | head -1) = $(echo $h | cut -c1-2) ] && break; done; echo $h > .git/refs/heads/x; " +
			`p=$(printf '%s\n' $h $t $b | git pack-objects -q .git/objects/pack/pack); rm -f .git/objects/$(echo $h | cut -c1-2)/$(echo $h | cut -c3-) .git/objects/pack/*.rev; ` + open + `substr($d,1032,40)=substr($d,1052,20).substr($d,1032,20); substr($d,1104,8)=substr($d,1108,4).substr($d,1104,4); for(0..255){substr($d,8+4*$_,4)=pack("N",$_>=ord(pack("H*",$h))?3:0)} ` + shut + ".git/objects/pack/pack-$p.idx $h"
		place = "{ echo $b; echo $h; } | git pack-objects -q .git/objects/pack/pack > /dev/null; git multi-pack-index write 2> /dev/null; " + open + chunks + `substr($d,$c{OOFF}+8*$p{$h},8)=substr($d,$c{OOFF}+8*$p{$b},8); ` + shut + ".git/objects/pack/multi-pack-index $h $b 12; "
		side  = "git switch -q -c x; git commit -q --allow-empty -m x; git commit -q --allow-empty -m x2; git switch -q -; git commit -q --allow-empty -m 2; "
		tree  = "h=$(git rev-parse x~1); b=$( { git ls-tree HEAD; printf \"100644 blob $(echo hostile | git hash-object -w --stdin)\\t.envrc\\n\"; } | git mktree); "
		graph = open + chunks + `substr($d,$c{CDAT}+36*$p{$h},20)=pack("H*",$b); ` + shut
		one   = "git commit-graph write --reachable 2> /dev/null; " + graph + ".git/objects/info/commit-graph $h $b 8; "
		parts = "git commit-graph write --split --reachable 2> /dev/null; " + graph + ".git/objects/info/commit-graphs/*.graph $h $b 8; "
		back  = "rm .envrc; git restore .envrc; grep hostile .envrc"
		// Of a multi-pack-index in parts (git 2.47) it is told that it is new, not what it says.
		layers = "mkdir .git/objects/pack/multi-pack-index.d; cd .git/objects/pack/multi-pack-index.d; echo 0123456789012345678901234567890123456789 > multi-pack-index-chain; echo x > multi-pack-index-0123456789012345678901234567890123456789.midx; cd ../../../..; "
		pick   = "git cherry-pick --allow-empty HEAD..x; git show HEAD~1:.envrc | grep hostile"
	)
	for name, c := range map[string]struct {
		before, run, then string
		want              []string
	}{
		"a name in a pack":             {old, b + index, back, []string{"review .git/objects/pack/pack-*.idx"}},
		"names in no order":            {"", order, "git checkout -q x; grep hostile .envrc", []string{"review .envrc", "review .git/objects/pack/pack-*.idx"}},
		"a place":                      {old, b + place, back, []string{"review .git/objects/pack/multi-pack-index"}},
		"a commit":                     {side, tree + one, pick, []string{"review .git/objects/info/commit-graph"}},
		"a commit, in parts":           {side, tree + parts, pick, []string{"review .git/objects/info/commit-graphs/commit-graph-chain"}},
		"a name that came with a move": {old + b + "mv .git/objects/pack p; mkdir .git/objects/pack; " + index + "mv .git/objects/pack d; mv p .git/objects/pack", "mv .git/objects/pack p; mv d .git/objects/pack", back, []string{"review .git/objects/pack/pack-*.idx"}},
		"a place that came with one":   {old + b + place + "mv .git/objects/pack d; mkdir .git/objects/pack", "mv .git/objects/pack p; mv d .git/objects/pack", back, []string{"review .git/objects/pack/multi-pack-index"}},
		"an object that came with one": {old + b + "f=$(echo $h | cut -c1-2); mkdir d; cp .git/objects/$(echo $b | cut -c1-2)/$(echo $b | cut -c3-) d/$(echo $h | cut -c3-); echo $f > f", "f=$(cat f); mv .git/objects/$f p; mv d .git/objects/$f", back, []string{"review .git/objects"}},
		"an object that came with all": {old + "b=$(echo hostile | git hash-object -w --stdin); cp -r .git/objects d; f=$(echo $h | cut -c1-2)/$(echo $h | cut -c3-); rm -f d/$f; cp d/$(echo $b | cut -c1-2)/$(echo $b | cut -c3-) d/$f", "mv .git/objects p; mv d .git/objects", back, []string{"review .git/objects"}},
		"an object that three share":   {old + "git worktree add -q v; git worktree add -q w", b + "f() { echo .git/objects/$(echo $1 | cut -c1-2)/$(echo $1 | cut -c3-); }; chmod u+w $(f $h); cat $(f $b) > $(f $h)", back, []string{"review .git/objects"}},
		"a commit that came with one":  {side + tree + one + "mv .git/objects/info d; mkdir .git/objects/info", "mv .git/objects/info p; mv d .git/objects/info", pick, []string{"review .git/objects/info/commit-graph"}},
		"parts that came with one":     {side + tree + parts + "mv .git/objects/info/commit-graphs d", "mv d .git/objects/info/commit-graphs", pick, []string{"review .git/objects/info/commit-graphs/commit-graph-chain"}},
		"places in parts":              {old, layers, ":", []string{"review .git/objects/pack/multi-pack-index.d"}},
		"a part in its place":          {old + layers, "echo y > .git/objects/pack/multi-pack-index.d/multi-pack-index-0123456789012345678901234567890123456789.midx", ":", []string{"review .git/objects/pack/multi-pack-index.d"}},
		"places that came with a move": {old + layers + "mv .git/objects/pack d; mkdir .git/objects/pack", "mv .git/objects/pack p; mv d .git/objects/pack", ":", []string{"review .git/objects/pack/multi-pack-index.d"}},
		"control: parts that stood":    {old + layers, "git commit -q --allow-empty -m 2", ":", nil},
		"control: packed anew":         {old + side, "for i in 1 2 3 4 5 6 7 8 9; do seq $((i*100)) > f; git add f; git commit -q -m $i; done; git tag -a -m y y; git gc -q; git repack -q -a -d -f; echo 1 > g; git add g; git commit -q -m g; git repack -q -d --write-midx; git commit-graph write --reachable", "git fsck", nil},
		"control: merged and in parts": {old + side + "git commit-graph write --split --reachable", "git checkout -q -b m; git merge -q -m m x; git update-ref refs/heads/o $(git commit-tree -m o -p HEAD -p x -p m~1 -p x~1 HEAD^{tree}); git commit-graph write --split --reachable", "git commit-graph verify", nil},
		"control: of SHA-256":          {"rm -rf .git; git init -q --object-format=sha256; git add .; git commit -q -m one", "echo 2 > two; git add .; git commit -q -m two; git repack -q -a -d --write-midx; git commit-graph write --reachable", "git fsck", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh(asUser + "set -e; echo one > one; git add one; git commit -q -m one; " + c.before)
			w.begin()
			time.Sleep(2 * racy)
			w.guard.knowTips(nil)
			w.sh(asUser + "set -e; " + c.run)
			got := w.end()
			require.Len(t, got, len(c.want), got)
			for i, want := range c.want {
				match, err := filepath.Match(want, got[i])
				require.NoError(t, err)
				require.True(t, match, got[i])
			}
			w.sh(asUser + c.then)
		})
	}
}

// Resolutions of conflicts, which git repeats in whatever file, are told of: the control
// is that it does.
func TestGuardTellsOfResolutions(t *testing.T) {
	const (
		both = "seq 9 > .envrc; git add .envrc; git commit -q -m envrc; git switch -q -c x; sed -i s/5/theirs/ .envrc; git commit -q -am theirs; git switch -q -; sed -i s/5/ours/ .envrc; git commit -q -am ours; "
		made = "git clone -q . n; cd n; git fetch -q origin x:x; git config rerere.enabled true; git merge -q x > /dev/null 2>&1 || true; echo hostile > .envrc; git commit -q -am both > /dev/null 2>&1; cd ..; "
		rr   = "mv n/.git/rr-cache d; rm -rf n; "
	)
	for name, c := range map[string]struct {
		before, run string
		want        []string
	}{
		"that are new":             {made + rr, "cp -r d .git/rr-cache", []string{"review .git/rr-cache"}},
		"that came with a move":    {made + rr, "mv d .git/rr-cache", []string{"review .git/rr-cache"}},
		"one that did":             {made + rr + "mkdir .git/rr-cache", "mv d/* .git/rr-cache/", []string{"review .git/rr-cache"}},
		"of another by a link":     {made + "git init -q o", "mv n/.git/rr-cache o/.git/rr-cache; ln -s ../o/.git/rr-cache .git/rr-cache; rm -rf n", []string{"review .git/rr-cache", "review o/.git/rr-cache"}},
		"control: those that were": {made + rr + "mv d .git/rr-cache", "echo 1 > f; git add f; git commit -q -m f; git rerere gc; git rerere status", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh(asUser + both + c.before)
			w.begin()
			time.Sleep(2 * racy)
			w.guard.knowTips(nil)
			w.sh(asUser + "set -e; " + c.run)
			require.Equal(t, c.want, w.end())
			w.sh(asUser + "git merge -q x > /dev/null 2>&1 || true; grep hostile .envrc")
		})
	}
}
