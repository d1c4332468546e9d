package cgroups

import "time"

// tables are the page tables of a sandbox. A process that maps much and touches
// little has next to nothing else: one page for each 2 MiB that it reads a byte
// of. They stand in a file that takes six times as long to read as what is looked
// at in each sample, so they are counted now and then, and when the machine has
// lost memory that nothing else explains.
type tables struct {
	at    time.Time
	cost  time.Duration
	bytes int64
	free  int64 // of the machine then
	rest  int64 // what the sandbox used of everything else
}

// look counts them if it is time to.
func (t *tables) look(all []*process, m memory, rest, limit int64) {
	age := time.Since(t.at)
	unexplained := t.free - m.free - max(0, rest-t.rest)
	if age < growthShare*t.cost || age < max(shmAge, idleShare*t.cost) && unexplained < limit/64 {
		return
	}
	start := threadTime()
	var bytes int64
	for _, p := range all {
		status, _ := readFile(procFile(p.task, "status"))
		bytes += kilobytes(status, "VmPTE:")
	}
	*t = tables{at: time.Now(), cost: threadTime() - start, bytes: bytes, free: m.free, rest: rest}
}
