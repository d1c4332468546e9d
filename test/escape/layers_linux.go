package escape

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seccomp"
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
	profiles.LayerSeccomp, profiles.LayerUsernsLimit,
	profiles.LayerLandlock, profiles.LayerReadonly, profiles.LayerHide, profiles.LayerProtect,
	profiles.LayerPidns, profiles.LayerNetns, profiles.LayerIpcns,
	profiles.LayerUtsns, profiles.LayerCgroupns, profiles.LayerProcMasks, profiles.LayerDumpable, profiles.LayerNoNewPrivs, profiles.LayerCaps,
	profiles.LayerKeyring, profiles.LayerEnv, profiles.LayerFds, profiles.LayerRlimits, profiles.LayerSockets, profiles.LayerTTY,
}

// layerGroups cuts Layers where the search for the stopping ones begins.
var layerGroups = [][]profiles.Layer{Layers[:2], Layers[2:4], Layers[4:6], Layers[6:9], Layers[9:]}

// layers finds, for each probe that the target stopped, which layers would
// have stopped it alone.
func (s *Suite) layers(ctx context.Context, t *Target, results []Result) ([]LayerRow, error) {
	var rows []LayerRow
	for _, r := range results {
		if p := Find(r.ID); r.Target == t.Name && (r.Verdict == VerdictBlocked || r.Verdict == VerdictDegraded) && !p.Long {
			rows = append(rows, LayerRow{ID: r.ID, Guarantee: r.Guarantee, Severity: r.Severity})
		}
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	done := 0
	work := make(chan *LayerRow)
	for range s.parallel() {
		group.Go(func() {
			for row := range work {
				row.Stopped = s.stoppers(ctx, t, Find(row.ID))
				mu.Lock()
				if done++; s.Progress != nil {
					s.Progress(done, len(rows))
				}
				mu.Unlock()
			}
		})
	}
	for i := range rows {
		if ctx.Err() == nil {
			work <- &rows[i]
		}
	}
	close(work)
	group.Wait()
	for i := range rows {
		at := slices.IndexFunc(results, func(r Result) bool { return r.ID == rows[i].ID && r.Target == t.Name })
		results[at].StoppedBy = rows[i].Stopped
	}
	return rows, ctx.Err()
}

// stoppers are the layers that stop a probe alone.
func (s *Suite) stoppers(ctx context.Context, t *Target, p *Probe) []string {
	var found []string
	if s.with(ctx, t, p, nil) == DidBlock {
		// With that beneath, no layer shows that it would have held. Two of
		// them can be tried on their own: in a cage, over all capabilities.
		found = append(found, Always)
		for _, layer := range []profiles.Layer{profiles.LayerSeccomp, profiles.LayerLandlock} {
			j := s.job(p, nil)
			j.Control, j.Caged, j.Alone = true, true, layer
			if p.Drive == nil && s.perform(ctx, j).Kind == DidBlock {
				found = append(found, string(layer))
			}
		}
		return found
	}
	var search func([]profiles.Layer)
	search = func(on []profiles.Layer) {
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
	for _, group := range layerGroups {
		search(group)
	}
	return found
}

// with performs a probe with only some layers on.
func (s *Suite) with(ctx context.Context, t *Target, p *Probe, on []profiles.Layer) Kind {
	off := slices.DeleteFunc(slices.Clone(Layers), func(l profiles.Layer) bool { return slices.Contains(on, l) })
	return s.perform(ctx, s.job(p, t.without(off))).Kind
}

// oneLayer are the critical and high probes on writes and on the kernel's
// surface that a single layer stops, and why there is no second.
var oneLayer = map[string]string{
	"FS-015":  "Landlock's right to truncate would make every open look its path up; the mount alone stops it",
	"FS-030":  "the host's devices do not stand in a sandbox's /dev, which no layer can be without",
	"FS-032":  "who is not root cannot write it, and the cover over it shows only for root",
	"FS-034":  "who is not root cannot write it, and the cover over it shows only for root",
	"FS-052":  "Landlock knows no right to change modes and owners",
	"FS-060":  "what a ring does no layer but the filter could see",
	"FS-061":  "modes may be changed in a workspace; only the filter looks at the bits",
	"NS-005":  "that clone3 is refused unread is the filter's alone; the namespace is refused by number as well: NS-004",
	"NS-007":  "a state, not an attack: the identity has no capability",
	"NS-008":  "a state, not an attack: two settings, each by itself",
	"NS-009":  "a state, not an attack: there is one filter",
	"NS-017":  "a state, not an attack: the identity is nobody's on the host",
	"KS-001":  "any user may make this call: only the filter refuses it",
	"KS-002":  "any user may make this call: only the filter refuses it",
	"KS-030":  "any user may make this call: only the filter refuses it; the terminal is not the host's: TTY-002",
	"KS-032":  "any user may make this call: only the filter refuses it",
	"KS-036":  "any user may make this call: only the filter refuses it; the terminal is not the host's: TTY-001",
	"KS-043":  "any user may make this socket: only the filter refuses it",
	"KS-046":  "any user may make this socket: only the filter refuses it",
	"KS-048":  "the identity has no capability, and maps nobody else",
	"KS-049":  "any user may make these calls: only the filter refuses them",
	"KS-062":  "that the call is refused unread is the filter's alone; its work takes a capability: FS-027",
	"KS-065":  "that the call is refused unread is the filter's alone; its work takes a capability: KS-003",
	"KS-067":  "any user may make this call: only the filter refuses it",
	"NET-011": "what a ring does no layer but the filter could see",
	"NET-050": "the identity has no capability",
	"IPC-013": "any user may make this socket: only the filter refuses it",
	"PER-023": "the identity has no capability",
}

// A depth says how many of the probes of one kind are stopped by how many
// layers.
type depth struct {
	name          string
	want          int // layers
	all, one, two int
	single        []string // those that one layer stops, or none
}

// holds says whether the kind keeps what it should: four of five by two
// layers, or all by one.
func (d depth) holds() bool {
	if d.want == 2 {
		return 5*d.two >= 4*d.all
	}
	return d.one == d.all
}

func (d depth) goal() string {
	if d.want == 2 {
		return "four of five by two layers"
	}
	return "all by one layer"
}

// depths sums the critical and high probes up: on writes, on the kernel's
// surface, on reads.
func depths(rows []LayerRow) []depth {
	kinds := []depth{{name: "writes", want: 2}, {name: "kernel surface", want: 2}, {name: "reads", want: 1}}
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

func writeLayers(b *strings.Builder, rows []LayerRow) {
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
			mark := "·"
			if slices.Contains(row.Stopped, c) {
				mark = "✓"
			}
			b.WriteString(" " + mark + strings.Repeat(" ", len(c)-1))
		}
		b.WriteString("\n")
	}
	b.WriteString("critical and high probes\n")
	for _, d := range depths(rows) {
		verdict := "holds"
		if !d.holds() {
			verdict = "does not hold"
		}
		fmt.Fprintf(b, "  %-15s %3d, stopped by one layer or more %3d, by two or more %3d (%s); %s: %s\n", d.name, d.all, d.one, d.two, percent(d.two, d.all), d.goal(), verdict)
		for _, id := range d.single {
			why := oneLayer[id]
			if why == "" {
				why = "no reason is known"
			}
			fmt.Fprintf(b, "    %-8s %s\n", id, why)
		}
	}
}

func percent(n, of int) string {
	if of == 0 {
		return "none"
	}
	return fmt.Sprintf("%d %%", 100*n/of)
}

// aloneVerb runs a command with one layer and no other: LAYER WORKSPACE ARGV….
const aloneVerb = "__alone"

func runAlone(layer profiles.Layer, workspace string, argv []string) int {
	runtime.LockOSThread()
	restrict := map[profiles.Layer]func() error{
		profiles.LayerSeccomp:  filterOneself,
		profiles.LayerLandlock: func() error { return confineOneself(workspace, "/dev", "/proc") },
	}[layer]
	err := error(unix.EINVAL)
	if restrict != nil {
		err = restrict()
	}
	if err == nil {
		err = unix.Exec(argv[0], argv, os.Environ())
	}
	fmt.Fprintf(os.Stderr, "escape: %s alone: %v\n", layer, err)
	return 2
}

func filterOneself() error {
	filter := seccomp.Default()
	program := struct {
		count  uint16
		filter uintptr
	}{uint16(len(filter) / 8), uintptr(unsafe.Pointer(unsafe.SliceData(filter)))}
	_, err := Call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	return err
}

// confineOneself takes the rights to write away everywhere but below some
// directories, as pccrun does with Landlock.
func confineOneself(writable ...string) error {
	const rights = unix.LANDLOCK_ACCESS_FS_REFER<<1 - 1 ^
		(unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR)
	handled := uint64(rights)
	rules, err := Call(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)), 8, 0)
	if err != nil {
		return err
	}
	for _, path := range writable {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		rule := struct { // packed: 12 bytes
			rights uint64
			fd     int32
		}{handled, int32(fd)}
		if _, err := Call(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0); err != nil {
			return err
		}
	}
	_, err = Call(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0)
	return err
}
