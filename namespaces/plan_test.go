package namespaces

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/profiles"
)

// place reads "access node path [pin] [protect] [optional] [-> text]", such as
// "read dir /a pin".
func place(t testing.TB, text string) Place {
	f := strings.Fields(text)
	access, err := profiles.ParseAccess(f[0])
	require.NoError(t, err, text)
	p := Place{Path: f[2], Access: access, Why: "rule", Dev: 1, Ino: uint64(len(f[2]))}
	p.Node = map[string]Node{"absent": Absent, "file": File, "dir": Directory, "link": Link, "special": Special}[f[1]]
	for i, word := range f[3:] {
		switch word {
		case "pin":
			p.Pin = true
		case "protect":
			p.Protect = true
		case "optional":
			p.Optional = true
		case "scratch":
			p.Scratch = true
		case "apart":
			p.PrivateCopy, p.Text = true, "[core]\n"
		case "->":
			p.Link = f[3+i+1]
		}
	}
	return p
}

func places(t testing.TB, texts []string) (list []Place) {
	for _, text := range texts {
		list = append(list, place(t, text))
	}
	return list
}

func TestLayout(t *testing.T) {
	for name, c := range map[string]struct {
		places []string
		want   []string // String of each mount, with the stubs of a fresh one
	}{
		"nothing":           {},
		"the root is there": {[]string{"read dir /"}, nil},
		"a directory comes right before what is in it": {
			[]string{"write dir /b/c", "read dir /b/c/d/e", "write dir /a-x", "hide dir /a", "read dir /a/y", "read dir /b/c-d"},
			[]string{"fresh on /a read-only [y/]", "bind on /a/y read-only", "bind on /a-x", "bind on /b/c", "bind on /b/c/d/e read-only"},
		},
		"what is there anyway": {[]string{"read dir /usr", "read file /etc/passwd", "write dir /w", "write file /w/f"}, []string{"bind on /w"}},
		"a pin is a mount of its own": {
			[]string{"write dir /w", "write dir /w/.git pin protect", "read file /w/.git/config pin protect"},
			[]string{"bind on /w", "bind on /w/.git protected", "bind on /w/.git/config read-only protected"},
		},
		"a pin of which the command changes a copy": {
			[]string{"private dir /run", "write dir /w", "read file /w/.git/modules/m/config pin protect apart", "hide file /w/m/.git pin protect apart"},
			[]string{"fresh on /run [pccrun.git/ pccrun.git/2/ pccrun.git/2/config]", "apart on /w/.git/modules/m/config read-only protected", "bind on /w", "mask on /w/m/.git read-only protected"},
		},
		"no place for a copy": {
			[]string{"hide dir /run", "write dir /w", "read file /w/.git/modules/m/config pin protect apart"},
			[]string{"fresh on /run read-only", "bind on /w", "bind on /w/.git/modules/m/config read-only protected"},
		},
		"an overlay, and what is in it": {
			[]string{"write dir /w", "overlay dir /w/o", "overlay dir /w/o/d pin protect", "overlay file /w/o/f", "overlay absent /w/o/n", "write dir /w/o/w", "hide file /w/o/h"},
			[]string{"bind on /w", "overlay on /w/o", "mask on /w/o/h read-only", "bind on /w/o/w"},
		},
		"a cache that is thrown away, and what is in it": {
			[]string{"private dir /h", "overlay dir /h/c scratch", "overlay dir /h/c/in scratch", "read dir /h/c/r", "hide file /h/c/h", "write dir /h/c/w", "overlay absent /g scratch", "overlay dir /data scratch"},
			[]string{"scratch on /data", "fresh on /h [c/]", "scratch on /h/c", "mask on /h/c/h read-only", "bind on /h/c/r read-only", "bind on /h/c/w"},
		},
		"hidden": {[]string{"hide dir /a", "hide file /b", "hide special /c"}, []string{"fresh on /a read-only", "mask on /b read-only", "mask on /c read-only"}},
		"private, and what is shown in it": {
			[]string{"private dir /h", "read file /h/a/b/file", "write dir /h/a/dir", "read special /h/s"},
			[]string{"fresh on /h [a/ a/b/ a/b/file a/dir/ s]", "bind on /h/a/b/file read-only", "bind on /h/a/dir", "bind on /h/s read-only"}},
		"what is hidden in a fresh directory is not there to begin with": {
			[]string{"private dir /h", "hide dir /h/x", "hide file /h/y", "hide dir /g", "private file /g/z", "private dir /g/p"},
			[]string{"fresh on /g read-only [p/]", "fresh on /g/p", "fresh on /h"},
		},
		"hidden in a private directory, and what is shown in it": {
			[]string{"private dir /h", "hide dir /h/x", "hide absent /h/x/n", "read special /h/x/s", "hide dir /h/y", "hide file /h/y/f"},
			[]string{"fresh on /h [x/]", "fresh on /h/x read-only [s]", "bind on /h/x/s read-only"},
		},
		"hidden in what is shown again": {
			[]string{"private dir /h", "read dir /h/a", "hide dir /h/a/x", "hide file /h/a/y", "write dir /h/a/x/z"},
			[]string{"fresh on /h [a/]", "bind on /h/a read-only", "fresh on /h/a/x read-only [z/]", "bind on /h/a/x/z", "mask on /h/a/y read-only"},
		},
		"a link is made again in a fresh directory and stands elsewhere": {
			[]string{"private dir /h", "read link /h/l -> a/b", "read dir /h/a/b", "hide link /etc/l -> /x", "write link /w/l -> /y"},
			[]string{"fresh on /h [a/ a/b/ l->a/b]", "bind on /h/a/b read-only"},
		},
		"a pinned link is mounted on itself": {
			[]string{"write dir /w", "read link /w/hooks -> elsewhere pin protect"},
			[]string{"bind on /w", "bind on /w/hooks read-only protected over the link"},
		},
		"absent": {
			[]string{"hide absent /a", "read absent /b", "private dir /h", "private absent /h/d", "write dir /w", "write absent /w/new", "read absent /w/old"},
			[]string{"fresh on /h", "bind on /w"},
		},
		"a socket":             {[]string{"hide special /tmp/s optional"}, []string{"mask on /tmp/s read-only optional"}},
		"the same place twice": {[]string{"private dir /h", "read dir /h/a", "read dir /h/a"}, []string{"fresh on /h [a/]", "bind on /h/a read-only"}},
	} {
		t.Run(name, func(t *testing.T) {
			mounts, err := Mounts(places(t, c.places))
			require.NoError(t, err)
			var got []string
			for _, m := range mounts {
				got = append(got, describe(m))
			}
			slices.Sort(c.want)
			require.Equal(t, c.want, sorted(got))
			for i, m := range mounts { // each stands after what contains it
				for _, later := range mounts[i+1:] {
					require.False(t, m.Target != later.Target && below(m.Target, later.Target), "%s before %s", m, later)
				}
				require.Equal(t, m.Kind == Bind || m.Kind == Copy || m.Kind == Scratch || m.Kind == PrivateCopy, m.Source != "", m)
				require.Equal(t, -1, m.Donated)
			}
		})
	}
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

func describe(m Mount) string {
	text := m.String()
	if m.Protect {
		text += " protected"
	}
	if m.Optional {
		text += " optional"
	}
	if m.OverLink {
		text += " over the link"
	}
	var stubs []string
	for _, s := range m.Stubs {
		switch s.Node {
		case Directory:
			stubs = append(stubs, s.Name+"/")
		case Link:
			stubs = append(stubs, s.Name+"->"+s.Link)
		default:
			stubs = append(stubs, s.Name)
		}
	}
	if stubs != nil {
		text += fmt.Sprint(" ", stubs)
	}
	return text
}

func TestLayoutRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		places []string
		want   string
	}{
		"the root for writing":            {[]string{"write dir /"}, "filesystem /: write: the root directory can only have the access read"},
		"a private file":                  {[]string{"private file /etc/passwd"}, "filesystem /etc/passwd: private: only a directory can be private (rule)"},
		"an overlay of a file":            {[]string{"overlay file /w"}, "filesystem /w: overlay: only a directory can be an overlay"},
		"an overlay of what is not there": {[]string{"write dir /w", "overlay absent /w/o"}, "filesystem /w/o: overlay: does not exist"},
		"a stub where one may only read":  {[]string{"write absent /srv/x"}, "filesystem /srv/x: write: does not exist, and an empty one would stay on the host (rule)"},
		"a private stub":                  {[]string{"private absent /srv/x"}, "filesystem /srv/x: private: does not exist"},
		"a private stub in what is shown": {[]string{"write dir /w", "private absent /w/x"}, "filesystem /w/x: private: does not exist"},
		"a stub in what is shown again":   {[]string{"private dir /h", "read dir /h/a", "write absent /h/a/x"}, "filesystem /h/a/x: write: does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Mounts(places(t, c.places))
			require.ErrorContains(t, err, c.want)
		})
	}
	var stub *hint.Error
	_, err := Mounts(places(t, []string{"write absent /srv/x"}))
	require.ErrorAs(t, err, &stub)
	require.Equal(t, "mkdir -p /srv/x, or give its parent the access", stub.Hint())
}

// Whatever the order in which a survey meets its places, the plan is the same.
func TestLayoutDoesNotDependOnOrder(t *testing.T) {
	list := places(t, []string{"private dir /h", "read dir /h/a", "hide dir /h/a/x", "write dir /h/w", "read file /h/w/f pin", "hide dir /g", "read dir /g-h", "write dir /g/w"})
	want, err := Mounts(list)
	require.NoError(t, err)
	for range 50 {
		slices.Reverse(list[1:])
		list = append(list[3:], list[:3]...)
		got, err := Mounts(slices.Clone(list))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
