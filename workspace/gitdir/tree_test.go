package gitdir

import (
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/fixture"
)

// files are what lies below a directory: "-> x" is a link, "dir" a directory.
type files map[string]string

func (f files) Kind(name string) (fs.FileMode, bool) {
	text, there := f[strings.TrimPrefix(name, "/w/")]
	switch {
	case !there:
		for other := range f {
			if strings.HasPrefix("/w/"+other, name+"/") {
				return fs.ModeDir, true
			}
		}
		return 0, false
	case text == "dir":
		return fs.ModeDir, true
	case strings.HasPrefix(text, "-> "):
		return fs.ModeSymlink, true
	}
	return 0, true
}

func (f files) Read(name string, limit int64) ([]byte, error) {
	text, there := f[strings.TrimPrefix(name, "/w/")]
	if !there || strings.HasPrefix(text, "-> ") || int64(len(text)) > limit {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

// What becomes of names by where git directories lie, what stood there, and what else has come.
func TestTree(t *testing.T) {
	const inert, hostile, head = "[core]\nbare = true\n", "[core]\nfsmonitor = x\n", "ref: refs/heads/main\n"
	index := string(fixture.Index(2, fixture.Extension("TREE"), fixture.Entry{Path: "f", Mode: 0o100644}))
	before := files{
		".git/HEAD": head, ".git/config": inert, ".git/objects": "dir", ".git/refs": "dir", ".git/svn/x": "x", ".git/hooks/x": "x", ".git/worktrees/old/HEAD": head, ".git/worktrees/old/commondir": "../..\n",
		"bare/HEAD": head, "bare/config": inert, "bare/objects/x": "x", "bare/refs/x": "x", "own/config": "of something else", "sub/.git": "gitdir: ../.git\n",
		"sha/.git/HEAD": head, "sha/.git/config": "[extensions]\nobjectFormat = sha256\n", "link/.git/HEAD": head, "link/.git/config": "-> ../x", "odd/.git/HEAD": head, "odd/.git/config": "[extensions]\nobjectFormat = md5\n",
	}
	for name, c := range map[string]struct {
		now  files // beside what stood
		want string
	}{
		"f":                              {nil, ""},
		".git":                           {files{".git": "-> x"}, WhyPointer},
		"sub/.git":                       {files{"sub/.git": "gitdir: ../.git/\n"}, WhyPointer},
		"n/.git":                         {files{"n/.git": "gitdir: ../.git\n"}, WhyPointer},
		"s/.git":                         {files{"s/.git": "gitdir: ../meta\n", "meta/HEAD": head, "meta/objects": "dir", "meta/refs": "dir"}, WhyPointer},
		"w/.git":                         {files{"w/.git": "gitdir: /w/.git/worktrees/w\n", ".git/worktrees/w/gitdir": "/w/w/.git\n", ".git/worktrees/w/HEAD": head, ".git/worktrees/w/commondir": "../..\n"}, ""},
		"v/.git":                         {files{"v/.git": "gitdir: /w/.git/worktrees/w\n", ".git/worktrees/w/gitdir": "/w/w/.git\n", ".git/worktrees/w/HEAD": head, ".git/worktrees/w/commondir": "../..\n"}, WhyPointer},
		"u/.git":                         {files{"u/.git": "gitdir: /w/x/worktrees/u\n", "x/worktrees/u/gitdir": "/w/u/.git\n", "x/worktrees/u/HEAD": head, "x/worktrees/u/commondir": "../..\n", "x/objects": "dir", "x/refs": "dir", "x/config": hostile}, WhyPointer},
		"a/.git":                         {files{"a/.git": "gitdir: ../.git/modules/d/a\n", ".git/modules/d/a/config": "[core]\nworktree = ../../../../a\n", ".git/modules/d/a/HEAD": head, ".git/modules/d/a/objects": "dir", ".git/modules/d/a/refs": "dir"}, ""},
		"b/.git":                         {files{"b/.git": "gitdir: ../.git/modules/a\n", ".git/modules/a/config": "[core]\nworktree = ../../../a\n", ".git/modules/a/HEAD": head, ".git/modules/a/objects": "dir", ".git/modules/a/refs": "dir"}, WhyPointer},
		"bare/worktrees/w/commondir":     {files{"bare/worktrees/w/commondir": "../..\n", "bare/worktrees/w/HEAD": head}, "new"},
		"x/worktrees/w/commondir":        {files{"x/worktrees/w/commondir": "../..\n", "x/worktrees/w/HEAD": head, "x/objects": "dir", "x/refs": "dir"}, WhyForeign},
		"m/config":                       {files{"m/HEAD": head, "m/objects": "dir", "m/refs": "dir", "m/config": "[core]\nworktree = ../mt\n", "mt/.git": "gitdir: ../m\n"}, whyElsewhere},
		"hash/.git/index":                {files{"hash/.git/HEAD": head, "hash/.git/config": "[extensions]\nobjectFormat = sha256\n[core]\nfsmonitor = x\n", "hash/.git/index": index}, whyIndex},
		"hostile/.git/index":             {files{"hostile/.git/HEAD": head, "hostile/.git/config": hostile, "hostile/.git/index": index}, "plain"},
		"t/.git/config":                  {files{"t/.git/HEAD": head, "t/.git/config": "[core]\nworktree = /w/shared\n"}, "new"},
		"o2/.git/config":                 {files{"o2/.git/HEAD": head, "o2/.git/config": "[core]\nworktree = /w/other\n"}, whyElsewhere},
		"m/.git":                         {files{"m/.git": "gitdir: /other/.git\n"}, WhyPointer},
		"o/.git":                         {files{"o/.git": ""}, ""},
		"p/.git":                         {files{"p/.git": "gitdir: ../p/../.git\n", "p/l": "-> /other/x"}, WhyPointer},
		".git/config":                    {files{".git/config": hostile}, ""},
		".git/hooks/x":                   {files{".git/hooks/x": "y"}, ""},
		".git/svn/x":                     {files{".git/svn/x": "y"}, ""},
		".git/svn/y":                     {files{".git/svn/y": "y"}, WhyForeign},
		".git/commondir":                 {files{".git/commondir": "/x"}, WhyForeign},
		".git/index":                     {files{".git/index": index}, "plain"},
		".git/packed-refs":               {files{".git/packed-refs": hash1 + " refs/heads/a;b\n"}, "report"},
		".git/MERGE_HEAD":                {files{".git/MERGE_HEAD": hash1 + "\n"}, "report"},
		".git/HEAD":                      {files{".git/HEAD": "x"}, whyRef},
		".git/refs/heads":                {files{".git/refs/heads/HEAD": head, ".git/refs/heads/objects": "dir", ".git/refs/heads/refs": "dir"}, WhyForeign},
		".git/lfs/r/config":              {files{".git/lfs/r/config": hostile, ".git/lfs/r/HEAD": head, ".git/lfs/r/objects": "dir", ".git/lfs/r/refs": "dir"}, WhyForeign},
		".git/lfs/objects/x":             {files{".git/lfs/objects/x": "x"}, ""},
		".git/logs/HEAD":                 {files{".git/logs/HEAD": ""}, ""},
		".git/refs/remotes/o/HEAD":       {files{".git/refs/remotes/o/HEAD": "-> refs/remotes/o/main"}, ""},
		".git/objects/info/commit-graph": {files{".git/objects/info/commit-graph": "x"}, "drop"},
		".git/index.lock":                {files{".git/index.lock": "x"}, whyLock},
		".git/worktrees":                 {files{".git/worktrees": "dir"}, ""},
		".git/worktrees/w":               {files{".git/worktrees/w": "dir"}, ""},
		".git/worktrees/w/commondir":     {files{".git/worktrees/w/commondir": "../..\n"}, "new"},
		".git/worktrees/w/gitdir":        {files{".git/worktrees/w/gitdir": "/w/w/.git\n", "w/.git": "gitdir: /w/.git/worktrees/w\n"}, "new"},
		".git/worktrees/v/gitdir":        {files{".git/worktrees/v/gitdir": "/w/w/.git\n", "w/.git": "gitdir: /w/.git/worktrees/w\n"}, "git worktree would write where it leads"},
		".git/worktrees/v/packed-refs":   {files{".git/worktrees/v/packed-refs": ""}, WhyForeign},
		".git/worktrees/v/index":         {files{".git/worktrees/v/index": index}, "plain"},
		".git/modules/x":                 {files{".git/modules/x": "dir"}, ""},
		".git/modules/a/b/x":             {files{".git/modules/a/b/x": "x", ".git/modules/a/b/HEAD": head}, WhyForeign},
		".git/modules/a/y":               {files{".git/modules/a/y": "x"}, WhyForeign},
		".git/modules/a/config":          {files{".git/modules/a/config": "[core]\nworktree = ../../../a\n", "a/.git": "gitdir: ../.git/modules/a\n", ".git/modules/a/HEAD": head, ".git/modules/a/objects": "dir", ".git/modules/a/refs": "dir"}, "new"},
		".git/modules/c/config":          {files{".git/modules/c/config": "[core]\nworktree = ../../../l/../c\n", "c/.git": "gitdir: ../.git/modules/c\n", "l": "-> /other/x"}, whyElsewhere},
		".git/worktrees/u/gitdir":        {files{".git/worktrees/u/gitdir": "/w/l/../u/.git\n", "u/.git": "gitdir: /w/.git/worktrees/u\n", "l": "-> /other/x"}, "git worktree would write where it leads"},
		".git/modules/b/config":          {files{".git/modules/b/config": "[core]\nworktree = ../../../b\n"}, whyElsewhere},
		"bare/config":                    {files{"bare/config": inert}, whyExecutes},
		"bare/description":               {files{"bare/description": "x"}, ""},
		"bare/README":                    {files{"bare/README": "x"}, ""},
		"own/HEAD":                       {files{"own/HEAD": head, "own/objects": "dir", "own/refs": "dir"}, WhyMakes},
		"new/config":                     {files{"new/HEAD": head, "new/objects": "dir", "new/refs": "dir", "new/config": inert}, "new"},
		"evil/config":                    {files{"evil/HEAD": head, "evil/objects": "dir", "evil/refs": "dir", "evil/config": hostile}, whyExecutes},
		"evil/hooks/x":                   {files{"evil/HEAD": head, "evil/objects": "dir", "evil/refs": "dir", "evil/hooks/x": ""}, whyExecutes},
		"r/.git/hooks/x.sample":          {files{"r/.git/HEAD": head, "r/.git/hooks/x.sample": ""}, "new"},
		"r/.git/config":                  {files{"r/.git/HEAD": head, "r/.git/config": "-> x"}, whyLink},
		"r/.git/config.worktree":         {files{"r/.git/HEAD": head, "r/.git/config.worktree": strings.Repeat("x", 2<<20)}, whyExecutes},
		"sha/.git/index":                 {files{"sha/.git/index": index}, whyIndex},
		"link/.git/index":                {files{"link/.git/index": index}, "plain"},
		"odd/.git/index":                 {files{"odd/.git/index": index}, whyIndex},
	} {
		now := files{}
		for _, all := range []files{before, c.now} {
			for name, text := range all {
				now[name] = text
			}
		}
		tree := &Tree{Root: "/w", Before: before, Now: now, Rules: true, Shared: "/w/shared"}
		kind, _ := now.Kind("/w/" + name)
		d := tree.Judge("/w/"+name, kind, strings.TrimPrefix(now[name], "-> "))
		got := d.Why
		switch {
		case d.Drop:
			got = "drop"
		case d.Note != "":
			got = "report"
		case d.Plain != nil:
			got = "plain"
		case d.New:
			got = "new"
		}
		require.Equal(t, c.want, got, name)
	}
	gone := &Tree{Root: "/w", Before: before, Now: files{".git/HEAD": head}}
	require.True(t, gone.Gone("/w/.git/worktrees/old/commondir"))
	require.False(t, (&Tree{Root: "/w", Before: before, Now: before}).Gone("/w/.git/worktrees/old/commondir"))
	require.False(t, gone.Gone("/w/"+path.Join("bare", "config")))
	unruled := &Tree{Root: "/w", Before: before, Now: before}
	d := unruled.Judge("/w/.git/hooks/x", 0, "")
	require.Equal(t, whyExecutes, d.Why, "where nobody else protects what stood")
}
