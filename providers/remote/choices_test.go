package remote

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// TestFit: a place gives the nearest size at or above what is asked for, and none where it has none so large.
func TestFit(t *testing.T) {
	small, large := profiles.Size{CPUs: 1, MemoryMB: 2048}, profiles.Size{CPUs: 4, MemoryMB: 8192}
	own := profiles.Size{CPUs: 2, MemoryMB: 512}
	list := &Facts{Size: small, Sizes: []profiles.Size{large, small}, Prices: Prices{CPU: 1, GiB: 1}}
	steps := &Facts{Size: own, Step: profiles.Size{CPUs: 0.5, MemoryMB: 256}, Most: large}
	decided := &Facts{Size: own, SizedBy: "the template"}
	for _, c := range []struct {
		facts *Facts
		want  string
		fits  string
	}{
		{list, "1cpu", "1cpu,2g"}, {list, "1.5cpu", "4cpu,8g"}, {list, "8cpu", ""}, {list, "3g", "4cpu,8g"},
		{steps, "0.7cpu", "1cpu,512m"}, {steps, "1g", "2cpu,1g"}, {steps, "4cpu,8g", "4cpu,8g"}, {steps, "9g", ""},
		{decided, "1cpu", "2cpu,512m"}, {decided, "2cpu,512m", "2cpu,512m"}, {decided, "1g", ""},
	} {
		want, err := profiles.SizeOf(c.want)
		require.NoError(t, err)
		got, ok := c.facts.Fit(want)
		require.Equal(t, c.fits != "", ok, c.want)
		require.Equal(t, c.fits, got.String(), c.want)
	}
}

// TestChoose: what a place does not have is refused by name, with what it has.
func TestChoose(t *testing.T) {
	fixed := Facts{Image: "base", Images: "a template", SizedBy: "the template", Size: profiles.Size{CPUs: 2, MemoryMB: 512}}
	regions := Facts{Regions: []string{"us", "eu"}, Sizes: []profiles.Size{{CPUs: 1, MemoryMB: 1024}, {CPUs: 4, MemoryMB: 8192}}}
	open := Facts{Regions: []string{"us", "*"}, Step: profiles.Size{CPUs: 1, MemoryMB: 1024}, Most: profiles.Size{CPUs: 4, MemoryMB: 8192}}
	text := func(s string) profiles.Choice { return profiles.Choice{Text: s} }
	for _, c := range []struct {
		facts Facts
		place profiles.Place
		want  string // of the error, or the size
	}{
		{fixed, profiles.Place{}, ""}, {fixed, profiles.Place{Size: text("1cpu")}, "2cpu,512m"},
		{fixed, profiles.Place{Size: text("4cpu")}, "size 4cpu: the template decides, and a sandbox of base has 2cpu,512m"},
		{fixed, profiles.Place{Size: text("4cpu"), Image: text("large")}, "4cpu"}, // which the sandbox has to have
		{fixed, profiles.Place{Region: text("eu")}, "region eu: nobody can choose"},
		{regions, profiles.Place{Image: text("x")}, "image x: its sandboxes are all made of the same"},
		{regions, profiles.Place{Region: text("mars")}, "region mars: it has none of that name"},
		{regions, profiles.Place{Region: text("eu"), Size: text("2cpu")}, "4cpu,8g"},
		{regions, profiles.Place{Size: text("5cpu")}, "size 5cpu: it has none so large"},
		{open, profiles.Place{Region: text("own"), Size: text("2cpu,3g")}, "2cpu,3g"},
		{open, profiles.Place{Size: text("9g")}, "size 9g: the largest sandbox has 4cpu,8g"},
	} {
		p := &plan{provider: New(&stub{}, c.facts, providers.Host{}), policy: &profiles.Policy{Place: c.place}}
		if err := p.choose(); err != nil {
			require.ErrorContains(t, err, c.want)
			require.NotEmpty(t, profiles.Hint(err), c.want)
			continue
		}
		require.Equal(t, c.want, p.request.Size.String())
	}
}

// TestMeasure: a size that is asked for is held against what the sandbox itself says, and what it costs is said where that was
// announced otherwise.
func TestMeasure(t *testing.T) {
	base, large := profiles.Size{CPUs: 2, MemoryMB: 512}, profiles.Size{CPUs: 4, MemoryMB: 4096}
	facts := Facts{Images: "a template", SizedBy: "the template", Size: base, Prices: Prices{CPU: 0.05, GiB: 0.01, Region: 2, Read: "2026-11"}}
	for name, c := range map[string]struct {
		request Request
		has     profiles.Size
		size    profiles.Size
		want    string // of the error, or the warning
	}{
		"what is known":        {Request{}, large, base, ""},
		"what is asked for":    {Request{Size: base}, base, base, ""},
		"less than asked for":  {Request{Size: base}, profiles.Size{CPUs: 1, MemoryMB: 512}, base, "size 2cpu,512m: the sandbox has 1cpu,512m"},
		"an image's":           {Request{Image: "x"}, large, large, "the sandbox has 4cpu,4g: $0.24 an hour (price of 2026-11)"},
		"an image's elsewhere": {Request{Image: "x", Region: "eu"}, large, large, "the sandbox has 4cpu,4g: $0.48 an hour (price of 2026-11)"},
	} {
		t.Run(name, func(t *testing.T) {
			provider, heard := New(&stub{has: c.has}, facts, providers.Host{}), &heard{}
			p := &plan{provider: provider, policy: &profiles.Policy{}, request: c.request}
			l := provider.newPlace(&p.request, providers.Stdio{}, heard)
			l.box = &Sandbox{ID: "one"}
			err := p.measure(t.Context(), l)
			if err != nil {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.Equal(t, c.size, l.size)
			require.Equal(t, c.want, strings.Join(heard.warnings, "\n"))
			require.Positive(t, heard.created.Hourly)
			require.Equal(t, l.facts.Price(c.size), heard.created.Hourly)
		})
	}
}

// heard is an observer that takes warnings, and the last record.
type heard struct {
	providers.Observer
	warnings, hints []string
	created         providers.Resource
}

func (h *heard) Created(r providers.Resource) { h.created = r }

func (h *heard) Warning(w events.Warning) {
	h.warnings, h.hints = append(h.warnings, w.Text), append(h.hints, w.Hint)
}

// TestKeyEnds: a command ends before the key does by which its files are downloaded, and is said to.
func TestKeyEnds(t *testing.T) {
	hour, life := time.Hour, 5*time.Hour
	for _, c := range []struct {
		ends, wall time.Duration
		most       time.Duration // 0: any time
		says       bool
	}{
		{12 * hour, 0, 11*hour + 30*time.Minute, false}, {4 * hour, 0, 3*hour + 30*time.Minute, true}, {4 * hour, hour, 3*hour + 30*time.Minute, false},
		{hour, 0, 45 * time.Minute, true}, {-time.Minute, 0, 0, false}, {0, 0, 0, false},
	} {
		policy := &profiles.Policy{}
		policy.Resources.Timeout.Value = int64(c.wall)
		facts := Facts{Life: Life{MaxLife: life, KeyNew: "ask for another"}}
		if c.ends != 0 {
			facts.KeyEnds = time.Now().Add(c.ends)
		}
		said := &heard{}
		l := New(&stub{}, facts, providers.Host{}).newPlace(&Request{}, providers.Stdio{}, said)
		l.box = &Sandbox{}
		require.InDelta(t, c.most, inTime(l), float64(time.Minute), "%s", c.ends)
		(&plan{provider: l.p, policy: policy}).announce(l, 1)
		require.Equal(t, c.says, strings.Contains(strings.Join(said.warnings, "\n"), "the key is accepted until "), "%s %q", c.ends, said.warnings)
		require.Equal(t, c.says, strings.Contains(strings.Join(said.hints, ""), "ask for another"), "%s %q", c.ends, said.hints)
	}
}
