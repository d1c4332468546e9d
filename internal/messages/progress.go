package messages

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// A Progress is a line on a terminal, and nothing elsewhere.
type Progress struct {
	What  string
	Files int   // how many there are, 0 if nobody knows
	Bytes int64 // likewise

	start time.Time
	last  time.Time
	on    bool
}

// NewProgress begins one. Nothing is shown of what is over at once.
func NewProgress(what string) *Progress {
	now := time.Now()
	return &Progress{What: what, start: now, last: now, on: IsTerminal(os.Stderr)}
}

// Show says how far it is, a few times a second. Where nothing is counted by files, files is 0.
func (p *Progress) Show(files int, bytes int64) {
	now := time.Now()
	if !p.on || now.Sub(p.last) < 200*time.Millisecond {
		return
	}
	p.last = now
	fmt.Fprintf(os.Stderr, "\r\x1b[Kpccrun: %s", p.line(files, bytes, now.Sub(p.start)))
}

// line is what it says: rate and, where the end is known, the time left.
func (p *Progress) line(files int, bytes int64, since time.Duration) string {
	rate := float64(bytes) / max(since.Seconds(), 0.001)
	count, size, left := fmt.Sprintf("%d files, ", files), SizeText(bytes), ""
	if p.Bytes > 0 && rate > 0 {
		count, size = fmt.Sprintf("%d of %d files, ", files, p.Files), size+" of "+SizeText(p.Bytes)
		left = ", " + max(0, time.Duration(float64(p.Bytes-bytes)/rate*float64(time.Second)).Round(time.Second)).String() + " left"
	}
	if files == 0 {
		count = ""
	}
	return fmt.Sprintf("%s: %s%s, %s/s%s", p.What, count, size, SizeText(int64(rate)), left)
}

// End takes the line away.
func (p *Progress) End() {
	if p.on && p.last != p.start {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

// SizeText writes bytes in the largest unit that fits, with at most one digit
// after the point.
func SizeText(n int64) string {
	for _, u := range []struct {
		bytes int64
		unit  string
	}{{1 << 40, "t"}, {1 << 30, "g"}, {1 << 20, "m"}, {1 << 10, "k"}} {
		if n >= u.bytes {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(u.bytes)), ".0") + u.unit
		}
	}
	return fmt.Sprint(n)
}
