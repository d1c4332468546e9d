package gitdir

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace/vcs"
)

const dir, link = fs.ModeDir, fs.ModeSymlink

var (
	hash1 = strings.Repeat("0123456789", 4)
	hash2 = strings.Repeat("0123456789abcdef", 4)
)

// What git itself makes is kept; what something is executed by, or written through, is not. Most rows that
// are not kept were plants that real git fell for.
func TestJudge(t *testing.T) {
	for name, want := range map[string]Verdict{
		"HEAD": Keep, "ORIG_HEAD": Keep, "FETCH_HEAD": Keep, "MERGE_RR": Keep, "COMMIT_EDITMSG": Keep, "index": Keep, "packed-refs": Keep, "shallow": Keep, "description": Keep,
		"sharedindex." + hash1: Keep, "info/exclude": Keep, "info/sparse-checkout": Keep, "hooks/pre-commit.sample": Keep,
		"refs/heads/main": Keep, "refs/heads/fix/a+b(c)#1_ü": Keep, "refs/stash": Keep, "refs/jj/keep/" + hash1: Keep, "refs/remotes/origin/HEAD": Keep,
		"logs/HEAD": Keep, "logs/refs/heads/fix/x": Keep, "logs/refs/stash": Keep,
		"objects/ab/" + hash1[:38]: Keep, "objects/ab/" + hash2[:62]: Keep, "objects/pack/pack-" + hash1 + ".pack": Keep, "objects/pack/pack-" + hash2 + ".idx": Keep,
		"objects/pack/pack-" + hash1 + ".promisor": Keep, "objects/pack/pack-" + hash1 + ".rev": Keep, "objects/tmp_objdir-incoming-x/ab/" + hash1[:38]: Keep,
		"reftable/tables.list": Keep, "reftable/0x000000000001-0x000000000002-0a0b0c0d.ref": Keep, "lfs/objects/01/23/" + hash2: Keep,

		"MERGE_HEAD": List, "CHERRY_PICK_HEAD": List, "REVERT_HEAD": List,
		"index.lock": Lock, "MERGE_RR.lock": Lock, "refs/heads/main.lock": Lock, "config.lock": Lock, "config.worktree.lock": Lock, "hooks/pre-commit.lock": Config, "gc.pid": Lock,
		"objects/info/commit-graph": Delete, "objects/pack/multi-pack-index": Delete, "objects/pack/pack-" + hash1 + ".bitmap": Delete, "info/refs": Delete,
		"objects/info/packs": Delete, "gc.log": Delete, "objects/ab/tmp_obj_x1": Delete, "objects/pack/tmp_pack_x1": Keep,
		"config": Config, "config.worktree": Config, "hooks/pre-commit": Config, "info/attributes": Config,

		"objects/info/alternates": State, "objects/info/http-alternates": State, "info/grafts": State, "branches/origin": State, "remotes/origin": State,
		"rr-cache/" + hash1 + "/postimage": State, "BISECT_RUN": State, "BISECT_START": State, "MERGE_AUTOSTASH": State,

		"commondir": Foreign, "gitdir": Foreign, "x": Foreign, "Head": Foreign, "hooks": Foreign, "FETCH_HEAD/x": Foreign, "objects": Foreign,
		"refs/heads/-x": Foreign, "refs/heads/x;touch${IFS}y": Foreign, "refs/heads/a..b": Foreign, "refs/heads/.x": Foreign, "refs/heads/a\nb": Foreign,
		"refs/heads/x.lock/y": Foreign, "modules": Foreign, "modules/a/x": Foreign, "worktrees/x": Foreign, "refs/heads/@{x": Foreign, "logs/x": Foreign, "objects/ab/x": Foreign, "objects/ab/" + hash1: Foreign, "objects/info/x": Foreign,
		"objects/pack/x.pack": Foreign, "refs/heads" + strings.Repeat("/x", 70): Foreign, "hooks/d/x.sample": Foreign, "x.lock": Foreign, "rr-cache/x": Foreign, "": Foreign,
	} {
		require.Equal(t, want, Judge(name, 0, false).Verdict, name)
		require.Equal(t, Foreign, Judge(name, link, false).Verdict, "a link: %s", name)
		require.Equal(t, Foreign, Judge(name, fs.ModeNamedPipe, false).Verdict, "a FIFO: %s", name)
	}
	for name, want := range map[string]Verdict{
		"refs": Keep, "refs/heads": Keep, "refs/heads/a/b": Keep, "refs/replace": Foreign, "refs/heads/-x": Foreign, "logs": Keep, "logs/refs/heads": Keep,
		"objects": Keep, "objects/ab": Keep, "objects/pack": Keep, "objects/info": Keep, "objects/zz": Foreign, "objects/ab/x": Foreign, "objects/pack/x": Foreign,
		"objects/tmp_objdir-incoming-x": Keep, "objects/tmp_objdir-incoming-x/ab": Keep, "objects/tmp_objdir-incoming-x/ab/x": Foreign, "objects/incoming-x/pack": Keep,
		"info": Keep, "hooks": Keep, "branches": Keep, "lfs/objects/01": Keep, "worktrees": Nest, "modules": Nest, "worktrees/x": Nest, "modules/a/.b c": Nest, "reftable": Keep,
		"rebase-merge": State, "rebase-apply": State, "sequencer": State, "rr-cache": Keep, "rr-cache/" + hash1: State, "objects/info/commit-graphs": Delete, "objects/pack/multi-pack-index.d": Delete,
		"x": Foreign, "HEAD": Foreign, "config": Foreign, "index": Foreign, "refs/heads" + strings.Repeat("/x", 70): Foreign,
	} {
		require.Equal(t, want, Judge(name, dir, false).Verdict, name)
	}
	for name, want := range map[string]Verdict{
		"HEAD": Keep, "index": Keep, "commondir": Keep, "gitdir": Config, "locked": Keep, "ORIG_HEAD": Keep, "logs/HEAD": Keep, "packed-refs": Foreign, "objects/ab/" + hash1[:38]: Foreign,
	} {
		require.Equal(t, want, Judge(name, 0, true).Verdict, name)
	}
	require.NotEmpty(t, Judge("x", 0, false).Why)
	for name, want := range map[string]bool{"HEAD": true, "HEAD/x": true, "index.lock": true, "objects/x": true, "commondir": true, "rr-cache": true, "src": false, "README": false} {
		require.Equal(t, want, isOwn(name), name)
	}
}

// What a file holds is judged by its name.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"HEAD", "ref: refs/heads/a/b\n", true}, {"HEAD", hash1 + "\n", true}, {"HEAD", hash2 + "\n", true}, {"HEAD", "ref: refs/heads/.invalid\n", true},
		{"HEAD", "ref: refs/remotes/x\n", false}, {"HEAD", "ref: refs/heads/../../config\n", false}, {"HEAD", "ref: config\n", false}, {"HEAD", "", false},
		{"HEAD", "ref: refs/heads/a", false}, {"HEAD", "ref: refs/heads/-a\n", false},
		{"refs/heads/x", hash1 + "\n", true}, {"refs/remotes/o/HEAD", "ref: refs/remotes/o/main\n", true}, {"refs/heads/x", "ref: FETCH_HEAD\n", false}, {"refs/heads/x", "x\n", false},
		{"ORIG_HEAD", hash1 + "\n", true}, {"MERGE_HEAD", hash1 + "\n" + hash1 + "\n", true}, {"MERGE_HEAD", "ref: refs/heads/x\n", false}, {"shallow", "", true}, {"shallow", hash1, false},
		{"packed-refs", "# pack-refs with: peeled\n" + hash1 + " refs/tags/v1\n^" + hash1 + "\n", true}, {"packed-refs", hash1 + "\n", false}, {"packed-refs", "^x\n", false},
		{"packed-refs", hash1 + " refs/heads/x", false}, {"packed-refs", "x refs/heads/x\n", false},
		{"logs/HEAD", hash1 + " " + hash1 + " x <x> 1 +0000\tx\n", true}, {"logs/refs/heads/x", "", true}, {"logs/refs/heads/x/hooks/pre-receive", "#!/bin/sh\n", false}, {"logs/refs/x/HEAD", "ref: refs/heads/x\n", false},
	} {
		e := Judge(c.name, 0, false)
		require.Equal(t, c.want, e.Sound([]byte(c.text), vcs.FormatSHA1), "%s: %q", c.name, c.text)
		require.NotEmpty(t, e.Bad)
	}
	common := Judge("commondir", 0, true)
	require.True(t, common.Sound([]byte("../..\n"), 0))
	require.False(t, common.Sound([]byte("/x\n"), 0))
	odd, sound := oddRefs([]byte(hash1 + " refs/heads/x;y\n" + hash1 + " refs/replace/" + hash1 + "\n" + hash1 + " refs/heads/z\n"))
	require.True(t, sound)
	require.Equal(t, []string{"refs/heads/x;y", "refs/replace/" + hash1}, odd)
}

func TestLinkedRef(t *testing.T) {
	require.True(t, isLinkedRef("HEAD", "refs/heads/x") && isLinkedRef("refs/remotes/o/HEAD", "refs/remotes/o/x"))
	require.False(t, isLinkedRef("HEAD", "refs/heads/../../config") || isLinkedRef("index", "refs/heads/x") || isLinkedRef("HEAD", "/x"))
}
