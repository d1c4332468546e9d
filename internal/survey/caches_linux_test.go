package survey

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/profiles"
)

func TestCaches(t *testing.T) {
	const scratch, readOnly = "overlay dir home/go/mod scratch", "read dir home/go/mod"
	for name, c := range map[string]struct {
		files  []string
		rules  []string
		change func(w *country)
		mount  string // of the host
		cache  string // "" is home/go/mod
		want   []string
	}{
		"the control":               {want: []string{scratch}},
		"a rule of the user's":      {rules: []string{"read home/go/mod"}},
		"hidden by the user":        {rules: []string{"hide home/go/mod"}},
		"written by the user":       {rules: []string{"write home/go/mod"}},
		"private by the user":       {rules: []string{"private home/go"}},
		"a rule above":              {rules: []string{"read home/go"}},
		"another tool's table":      {rules: []string{"+write home/go"}, want: []string{}},
		"something mounted in it":   {mount: "home/go/mod/x", want: []string{readOnly}},
		"a mount of its own":        {mount: "home/go/mod", want: []string{scratch}},
		"mounted beside it":         {mount: "home/go/mod2", want: []string{scratch}},
		"strict":                    {change: func(w *country) { w.policy.Strict = true }, want: []string{readOnly}},
		"a link":                    {files: []string{"home/l -> HOME/home/go/mod"}, cache: "home/l", want: []string{scratch, "overlay link home/l -> home/go/mod"}},
		"a link into the workspace": {files: []string{"home/l -> HOME/ws/d", "ws/d/"}, cache: "home/l"},
		"a link to what is written": {files: []string{"home/l -> HOME/data", "data/"}, rules: []string{"write data"}, cache: "home/l"},
		"a link to what is read":    {files: []string{"home/l -> HOME/data", "data/"}, rules: []string{"read data"}, cache: "home/l", want: []string{"read dir data", "read link home/l -> data"}},
		"a link to nothing":         {files: []string{"home/l -> HOME/gone"}, cache: "home/l"},
		"a link to the home":        {files: []string{"home/l -> HOME/home"}, cache: "home/l"},
		"gone":                      {cache: "home/gone"},
		"where all may be read":     {files: []string{"data/mod/"}, cache: "data/mod", want: []string{"overlay dir data/mod scratch"}},
		"and read-only there":       {files: []string{"data/mod/"}, cache: "data/mod", mount: "data/mod/x", want: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCountry(t, append(slices.Clone(c.files), "home/go/mod/cache/", "home/go/mod2/"), c.rules...)
			if c.change != nil {
				c.change(w)
			}
			if c.cache == "" {
				c.cache = "home/go/mod"
			}
			mounts := []mountpoint{{target: "/"}}
			if c.mount != "" {
				mounts = append(mounts, mountpoint{target: w.path(c.mount)})
			}
			f := w.finder()
			f.caches([]Cache{{Path: w.path(c.cache)}}, mounts)
			want := c.want
			if !kernel.AtLeast(6, 6) { // read-only, or as it is
				want = nil
				for _, text := range c.want {
					if text = strings.TrimSuffix(strings.Replace(text, "overlay ", "read ", 1), " scratch"); text != "read dir data/mod" {
						want = append(want, text)
					}
				}
			}
			require.ElementsMatch(t, want, w.found(f))
		})
	}
}

// Modules that lie elsewhere than Go looks for them without its variables are of
// no use unless the command is told.
func TestModuleCacheIsTold(t *testing.T) {
	w := newCountry(t, []string{"home/go/pkg/mod/", "home/x/mod/"})
	told := func(path, name string, change func(*profiles.Environment)) []Variable {
		w.policy.Environment = profiles.Environment{}
		change(&w.policy.Environment)
		return w.finder().caches([]Cache{{Path: w.path(path), Entry: name}}, nil)
	}
	entry := "GOMODCACHE=" + w.path("home/x/mod")
	nothing := func(*profiles.Environment) {}
	if kernel.AtLeast(6, 6) {
		require.Equal(t, []Variable{{entry, "where the tool's cache is"}}, told("home/x/mod", entry, nothing))
	}
	require.Empty(t, told("home/go/pkg/mod", "", nothing))
	require.Empty(t, told("home/x/mod", entry, func(e *profiles.Environment) { e.Pass = []profiles.EnvRule{{Pattern: "GO*"}} }))
	require.Empty(t, told("home/x/mod", entry, func(e *profiles.Environment) { e.Scrub = []profiles.EnvRule{{Pattern: "GOMODCACHE"}} }))
	require.Empty(t, told("home/x/mod", entry, func(e *profiles.Environment) { e.Set = map[string]profiles.EnvSet{"GOMODCACHE": {Value: "/x"}} }))
}
