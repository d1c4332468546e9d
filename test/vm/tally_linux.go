package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// A tally is what a run of the command cost.
type tally struct {
	began          time.Time
	jobs           int
	rows, earlier  int
	machines       time.Duration // of all together
	before         time.Duration // of those that were tried in earlier runs
	least, highest float64       // load of this machine as rows ended
}

// add counts a row that has ended.
func (t *tally) add(w *row) {
	if w.earlier {
		t.earlier++
		t.before += w.took
		return
	}
	if w.took == 0 { // it was not tried at all
		return
	}
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load)
	}
	if t.rows == 0 || load < t.least {
		t.least = load
	}
	t.highest = max(t.highest, load)
	t.rows++
	t.machines += w.took
}

// String is the last line of the table.
func (t *tally) String() string {
	var parts []string
	if t.rows > 0 {
		parts = append(parts, fmt.Sprintf("%d set-ups in %s, %d at the same time, %s of machines, at a load of %.0f to %.0f.", t.rows, time.Since(t.began).Round(time.Second), t.jobs, t.machines.Round(time.Second), t.least, t.highest))
	}
	if t.earlier > 0 {
		parts = append(parts, fmt.Sprintf("%d were tried in earlier runs, for %s.", t.earlier, t.before.Round(time.Second)))
	}
	return strings.Join(parts, " ")
}
