package escape

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// A LayerRow says which layers stop a probe, each with all others off.
type LayerRow struct {
	ID        string             `json:"id"`
	Guarantee profiles.Guarantee `json:"guarantee"`
	Severity  Severity           `json:"severity"`
	Stopped   []string           `json:"stopped_by"`
}

// Always stands in the matrix for what cannot be switched off: the user
// namespace with its identity without capabilities, the limits, the proxy's
// rules, the launcher's own care.
const Always = "always"

// Layers are those that can be switched off. Neighbours are tried together
// first: most probes are stopped by few, and those in the last row by none of it.
var Layers = []profiles.Layer{
	profiles.LayerSeccomp, profiles.LayerFloor, profiles.LayerUsernsLimit,
	profiles.LayerLandlock, profiles.LayerReadonly, profiles.LayerHide, profiles.LayerProtect,
	profiles.LayerPidns, profiles.LayerNetns, profiles.LayerIpcns,
	profiles.LayerUtsns, profiles.LayerCgroupns, profiles.LayerProcMasks, profiles.LayerDumpable, profiles.LayerNoNewPrivs, profiles.LayerCaps,
	profiles.LayerKeyring, profiles.LayerEnv, profiles.LayerFds, profiles.LayerRlimits, profiles.LayerSockets, profiles.LayerTTY,
}

// layerGroups cuts Layers where the search for the stopping ones begins.
var layerGroups = [][]profiles.Layer{Layers[:1], Layers[1:2], Layers[2:3], Layers[3:5], Layers[5:7], Layers[7:10], Layers[10:]}

// layers finds, for each probe that the target stopped, which layers would
// have stopped it alone, or enough of them.
func (s *Suite) layers(ctx context.Context, t *Target, results []Result) ([]LayerRow, error) {
	var rows []LayerRow
	for _, r := range results {
		if p := Find(r.ID); r.Target == t.Name && (r.Verdict == VerdictBlocked || r.Verdict == VerdictDegraded) && !p.Long {
			rows = append(rows, LayerRow{ID: r.ID, Guarantee: r.Guarantee, Severity: r.Severity})
		}
	}
	s.inParallel(len(rows), func(i int) {
		if ctx.Err() == nil {
			rows[i].Stopped = s.stoppers(ctx, t, Find(rows[i].ID))
		}
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // a search that was cut off says nothing
	}
	for i := range rows {
		at := slices.IndexFunc(results, func(r Result) bool { return r.ID == rows[i].ID && r.Target == t.Name })
		results[at].StoppedBy = rows[i].Stopped
	}
	return rows, nil
}

// stoppers are the layers that stop a probe alone.
func (s *Suite) stoppers(ctx context.Context, t *Target, p *Probe) []string {
	var found []string
	if s.with(ctx, t, p, nil) == DidBlock {
		// With that beneath, no layer shows that it would have held. Some can
		// be tried on their own: in a cage, over all capabilities.
		found = append(found, Always)
		for _, layer := range aloneLayers {
			j := s.job(p, nil)
			j.Control, j.Caged, j.Alone = true, true, layer
			if layer == profiles.LayerLandlock && t.strict {
				j.Alone = layerReads
			}
			if p.Drive == nil && s.perform(ctx, j).Kind == DidBlock {
				found = append(found, string(layer))
			}
		}
		return found
	}
	var search func([]profiles.Layer)
	search = func(on []profiles.Layer) {
		if s.enough != nil && len(found) >= s.enough(p) {
			return
		}
		switch kind := s.with(ctx, t, p, on); {
		case kind == DidEscape, kind == Unmet:
		case len(on) == 1:
			if kind == DidBlock {
				found = append(found, string(on[0]))
			}
		default: // one of them, or a launcher that does not start so
			search(on[:len(on)/2])
			search(on[len(on)/2:])
		}
	}
	groups := layerGroups
	if p.Guarantee == profiles.FSHide || p.Guarantee == profiles.FSReadonly || p.Guarantee == profiles.FSSpecial {
		groups = slices.Concat(groups[3:5], groups[:3], groups[5:]) // those of files first
	}
	for _, group := range groups {
		search(group)
	}
	slices.SortFunc(found, func(a, b string) int {
		return cmp.Compare(slices.Index(Layers, profiles.Layer(a)), slices.Index(Layers, profiles.Layer(b)))
	})
	return found
}

// with performs a probe with only some layers on, and once more where it broke: of
// hundreds of runs, one that a busy machine cuts off would be a layer that holds nothing.
func (s *Suite) with(ctx context.Context, t *Target, p *Probe, on []profiles.Layer) Kind {
	off := slices.DeleteFunc(slices.Clone(Layers), func(l profiles.Layer) bool { return slices.Contains(on, l) })
	kind := s.perform(ctx, s.job(p, t.without(off))).Kind
	if kind == Broke && ctx.Err() == nil {
		kind = s.perform(ctx, s.job(p, t.without(off))).Kind
	}
	return kind
}

// oneLayer are the critical and high probes on writes and the kernel's surface
// that a single layer stops, and why there is no second.
var oneLayer = map[string]string{
	"FS-065": "one layer finds the other names of a file, and another makes them read-only: it takes both",
	"FS-066": "the mounts are made private whatever is off",
	"FS-015": "Landlock's right to truncate would make every open look its path up: only strict takes it; the mount alone stops it",
	"FS-052": "Landlock knows no right to change modes and owners; who is not root owns the files",
	"FS-062": "in a directory that may be written Landlock can leave nothing out: the pin alone stops it",
	"NS-008": "a state, not an attack: two settings, each by itself",
	"NS-017": "a state, not an attack: the identity is nobody's on the host",
}

// A depth says how many of the probes of one kind are stopped by how many
// layers.
type depth struct {
	name          string
	want          int // layers
	all, one, two int
	single        []string // those that one layer stops, or none
}

// goal says what the kind has to keep, and whether it does: four of five by two
// layers, or all by one; of reads by two, all.
func (d depth) goal() (words string, holds bool) {
	switch {
	case d.want == 2 && d.name == kindReads:
		return "all by two layers", d.two == d.all
	case d.want == 2:
		return "four of five by two layers", 5*d.two >= 4*d.all
	}
	return "all by one layer", d.one == d.all
}

const kindReads = "reads"

// depths sums the critical and high probes up: on writes, on the kernel's
// surface, on reads; the last are stopped by two layers under strict alone.
func depths(rows []LayerRow, strict bool) []depth {
	kinds := []depth{{name: "writes", want: 2}, {name: "kernel surface", want: 2}, {name: kindReads, want: 1}}
	if strict {
		kinds[2].want = 2
	}
	for _, row := range rows {
		var d *depth
		switch row.Guarantee {
		case profiles.FSReadonly, profiles.FSSpecial:
			d = &kinds[0]
		case profiles.SysFilter, profiles.SysNoNewUserns, profiles.PrivNone:
			d = &kinds[1]
		case profiles.FSHide:
			d = &kinds[2]
		default:
			continue
		}
		if row.Severity < High {
			continue
		}
		d.all++
		if len(row.Stopped) >= 1 {
			d.one++
		}
		if len(row.Stopped) >= 2 {
			d.two++
		}
		if len(row.Stopped) < d.want {
			d.single = append(d.single, row.ID)
		}
	}
	return kinds
}

// layerColumns are the layers that stop anything.
func layerColumns(rows []LayerRow) []string {
	columns := []string{Always}
	for _, l := range Layers {
		if slices.ContainsFunc(rows, func(r LayerRow) bool { return slices.Contains(r.Stopped, string(l)) }) {
			columns = append(columns, string(l))
		}
	}
	return columns
}

func writeLayers(b *strings.Builder, rows []LayerRow, strict bool) {
	columns := layerColumns(rows)
	b.WriteString("\nwhich layers stop it with all others off\n")
	fmt.Fprintf(b, "  %-8s %-8s", "probe", "severity")
	for _, c := range columns {
		b.WriteString(" " + c)
	}
	b.WriteString("\n")
	for _, row := range rows {
		fmt.Fprintf(b, "  %-8s %-8s", row.ID, row.Severity)
		for _, c := range columns {
			mark := map[bool]string{true: "✓", false: "·"}[slices.Contains(row.Stopped, c)]
			fmt.Fprintf(b, " %-*s", len(c), mark)
		}
		b.WriteString("\n")
	}
	b.WriteString("critical and high probes\n")
	for _, d := range depths(rows, strict) {
		goal, holds := d.goal()
		verdict := map[bool]string{true: "holds", false: "does not hold"}[holds]
		fmt.Fprintf(b, "  %-15s %3d, stopped by one layer or more %3d, by two or more %3d (%s); %s: %s\n", d.name, d.all, d.one, d.two, percent(d.two, d.all), goal, verdict)
		for _, id := range d.single {
			fmt.Fprintf(b, "    %-8s %s\n", id, cmp.Or(oneLayer[id], "no reason is known"))
		}
	}
}

func percent(n, of int) string {
	if of == 0 {
		return "none"
	}
	return fmt.Sprintf("%d %%", 100*n/of)
}
