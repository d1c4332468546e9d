package escape

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// Probes returns every probe, in the order of reports.
var Probes = sync.OnceValue(func() []*Probe {
	var all []*Probe
	for _, area := range [][]Probe{
		fsProbes(), nsProbes(), lifeProbes(), kernelProbes(), netProbes(), dnsProbes(), ipcProbes(), resProbes(),
		launchProbes(), persistProbes(), ttyProbes(), syncProbes(), infoProbes(),
	} {
		for i := range area {
			all = append(all, &area[i])
		}
	}
	slices.SortStableFunc(all, func(a, b *Probe) int {
		if n := cmp.Compare(rank(a), rank(b)); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
})

var areas = []string{"FS", "NS", "KS", "NET", "DNS", "IPC", "RES", "LCH", "PER", "TTY", "INF", "SYN"}

func rank(p *Probe) int { return slices.Index(areas, p.Area()) }

// Find returns the probe with an id, nil if there is none.
func Find(id string) *Probe {
	all := Probes()
	i := slices.IndexFunc(all, func(p *Probe) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return all[i]
}
