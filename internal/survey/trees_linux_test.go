package survey

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// Which directories beside the workspace are looked through, and by which rules.
func TestTrees(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		rules []string
		want  string
	}{
		"none by default":              {},
		"in the workspace":             {files: []string{"ws/d/"}, rules: []string{"write ws/d"}},
		"read, overlaid, or a file":    {files: []string{"a/", "b/", "f"}, rules: []string{"read a", "overlay b", "write f"}},
		"what does not exist":          {rules: []string{"write a"}},
		"the user's":                   {files: []string{"a/", "home/b/"}, rules: []string{"write a", "write home/b"}, want: "a home/b"},
		"an agent's, and a cache":      {files: []string{"home/.a/", "home/.cache/x/"}, rules: []string{"+write home/.a", "write home/.cache/x"}, want: "home/.a+ home/.cache/x+"},
		"one in the other":             {files: []string{"a/b/c/"}, rules: []string{"write a/b", "write a", "write a/b/c"}, want: "a"},
		"by a link, and twice":         {files: []string{"a/", "l -> a", "m -> l"}, rules: []string{"write l", "write a", "write m"}, want: "a"},
		"around the workspace":         {rules: []string{"write ."}, want: "."},
		"an agent's in the user's":     {files: []string{"a/.s/d/", "a/.s/d/e/"}, rules: []string{"write a", "+write a/.s", "write a/.s/d/e", "+write a/.s/d"}, want: "a a/.s+ a/.s/d/e"},
		"a cache in the user's":        {files: []string{"home/go/pkg/mod/", "home/.cargo/git"}, rules: []string{"write home/go", "write home/.cargo"}, want: "home/.cargo home/go home/go/pkg+"},
		"behind what is hidden":        {files: []string{"a/b/c/"}, rules: []string{"write a", "hide a/b", "write a/b/c"}, want: "a"},
		"through a link that is not":   {files: []string{"a/", "l -> a", "b/"}, rules: []string{"write l", "hide a", "write b"}, want: "b"},
		"a link into the workspace":    {files: []string{"ws/d/", "l -> ws/d"}, rules: []string{"write l"}},
		"an agent's named by the user": {files: []string{"home/.a/"}, rules: []string{"write home/.a"}, want: "home/.a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCountry(t, c.files, c.rules...)
			w.policy.Protect = []profiles.ProtectRule{{Pattern: ".envrc"}}
			trees := func() string {
				f := w.finder()
				for _, r := range w.policy.Files {
					f.rule(r.Path)
				}
				require.NoError(t, f.err)
				var list []string
				for _, tree := range f.trees() {
					text := strings.TrimPrefix(strings.TrimPrefix(tree.Query.Root, w.root), "/")
					if tree.State {
						text += "+"
					}
					if text == "" {
						text = "."
					}
					list = append(list, text)
				}
				return strings.Join(list, " ")
			}
			require.Equal(t, c.want, trees())
			w.policy.Without = []profiles.Layer{profiles.LayerProtect}
			require.Empty(t, trees(), "the layer is off")
		})
	}
}

// What stands in such a directory is pinned; what lies in it and has its own rules
// is left to these, and cannot be moved away.
func TestTreesArePinned(t *testing.T) {
	w := newCountry(t, []string{"a/.git/hooks/", "a/.git/config", "a/x/.envrc", "a/.agent/.envrc", "a/.agent/h/.git/hooks/", "a/.agent/h/.git/config", "a/p/.envrc", "a/r/.envrc"},
		"write a", "+write a/.agent", "private a/p", "read a/r")
	w.policy.Protect = []profiles.ProtectRule{{Pattern: ".envrc"}, {Pattern: ".agent"}}
	s, err := Look(w.policy, Options{Getenv: os.Getenv})
	require.NoError(t, err)
	require.Len(t, s.Trees, 2)
	var pins []string
	for _, text := range w.describe(s.Places) {
		if strings.Contains(text, " pin") {
			pins = append(pins, text)
		}
	}
	require.ElementsMatch(t, []string{
		"read dir a/.git/hooks pin protect", "read file a/.git/config pin protect", "write dir a/.git pin protect",
		"read file a/x/.envrc pin protect", "write dir a/x pin protect", "read file a/r/.envrc pin protect", "read dir a/r pin protect",
		"write dir a/.agent pin", "read dir a/.agent/h/.git/hooks pin protect", "write dir a/.agent/h/.git pin protect", "write dir a/.agent/h pin protect",
	}, pins)
}
