package filesync

import (
	"archive/tar"
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace"
)

// TestRefuses: what is left of a tree is extracted as one archive, and with any one of the others it is refused.
func TestRefuses(t *testing.T) {
	names := []Name{
		{Path: "12:00:00.log"}, {Path: "README"}, {Path: "aux.c"}, {Path: "d", Kind: workspace.Dir}, {Path: "d/fine"},
		{Path: "large", Size: 900 << 10}, {Path: "larger", Size: 2 << 20}, {Path: "link", Kind: workspace.Link, Target: "d/fine"},
		{Path: "odd.", Kind: workspace.Dir}, {Path: "odd./in"}, {Path: "out", Kind: workspace.Link, Target: "/usr"}, {Path: "readme"}, {Path: "s", Mode: 0o4755},
		{Path: "through", Kind: workspace.Link, Target: "up/../../x"}, {Path: "up", Kind: workspace.Link, Target: "d/fine/deep/aux/../.."}, {Path: "z"},
	}
	extract := func(also string, why map[string]string) error {
		var text bytes.Buffer
		w := tar.NewWriter(&text)
		for _, n := range names {
			if why[n.Path] != "" && n.Path != also {
				continue
			}
			h := &tar.Header{Typeflag: tar.TypeReg, Name: n.Path, Mode: n.Mode | 0o644, Size: n.Size}
			switch n.Kind {
			case workspace.Dir:
				h.Typeflag, h.Mode = tar.TypeDir, 0o755
			case workspace.Link:
				h.Typeflag, h.Linkname = tar.TypeSymlink, n.Target
			}
			require.NoError(t, w.WriteHeader(h))
			_, err := w.Write(make([]byte, n.Size))
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		_, err := Extract(t.Context(), filepath.Join(t.TempDir(), "to"), &text, Down{Limits: small, Trust: true})
		return err
	}
	why := Down{Limits: small, Trust: true}.Refuses(names)
	require.NoError(t, extract("", why))
	for _, name := range []string{"12:00:00.log", "aux.c", "larger", "odd.", "odd./in", "out", "readme", "s", "through", "up"} {
		require.NotEmpty(t, why[name], name)
		require.Error(t, extract(name, why), "%s, the control", name)
	}
	require.Len(t, why, 10)
	require.Len(t, Down{Limits: Limits{Bytes: 1 << 20, Files: 3}, Trust: true}.Refuses(names[3:6]), 0)
	require.Len(t, Down{Limits: Limits{Bytes: 1 << 20, Files: 2}, Trust: true}.Refuses(names[3:6]), 1)
}

// TestRefusesInTime: links of which each is refused only after others were, and targets that wind, are not looked at for hours.
func TestRefusesInTime(t *testing.T) {
	names := []Name{{Path: "fine", Kind: workspace.Link, Target: strings.Repeat("sub/../", 100) + "sub/a"}, {Path: "l0000", Kind: workspace.Link, Target: "/out"}}
	for i := range 1000 {
		names = append(names, Name{Path: fmt.Sprintf("l%04d", i+1), Kind: workspace.Link, Target: fmt.Sprintf("l%04d/../../x", i)})
	}
	names = append(names, Name{Path: "sub", Kind: workspace.Dir}, Name{Path: "sub/a"}, Name{Path: "winds", Kind: workspace.Link, Target: strings.Repeat("sub/../", 550) + "sub/a"})
	why := Down{Trust: true}.Refuses(names)
	require.Contains(t, why["l0001"], "leads outside")
	require.Contains(t, why["l1000"], "depends on too many others")
	require.Contains(t, why["winds"], "leads too deep")
	require.Len(t, why, 1003, "with the one that is fine")
	names = slices.DeleteFunc(names, func(n Name) bool { return n.Path != "fine" && why[n.Path] != "" })
	require.Empty(t, Down{Trust: true}.Refuses(names), "what is left is taken")
}
