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
	least, highest float64       // load of this machine as rows ended
}

// add counts a row that has ended.
func (t *tally) add(w *row) {
	if w.earlier {
		t.earlier++
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
	var b strings.Builder
	fmt.Fprintf(&b, "%d set-ups in %s, %d at the same time, %s of machines, at a load of %.0f to %.0f.", t.rows, time.Since(t.began).Round(time.Second), t.jobs, t.machines.Round(time.Second), t.least, t.highest)
	if t.earlier > 0 {
		fmt.Fprintf(&b, " %d more were tried in an earlier run.", t.earlier)
	}
	return b.String()
}
