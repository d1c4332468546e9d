package cgroups

import (
	"bytes"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// segments adds up what the System V segments of an IPC namespace hold, in
// memory and in swap, attached or not. fd is that namespace's
// /proc/sysvipc/shm, which belongs to the namespace that it was opened in; 0
// for none.
func segments(fd int) int64 {
	if fd == 0 {
		return 0
	}
	var table []byte
	chunk := make([]byte, 16<<10)
	for {
		n, err := retry(func() (int, error) { return unix.Pread(fd, chunk, int64(len(table))) })
		if n <= 0 || err != nil {
			return parseSegments(table)
		}
		table = append(table, chunk[:n]...)
	}
}

// parseSegments reads proc_sysvipc(5): a line of names, then a line for each
// segment.
func parseSegments(table []byte) int64 {
	head, rows, _ := bytes.Cut(table, []byte{'\n'})
	names := bytes.Fields(head)
	var sum int64
	for _, name := range []string{"rss", "swap"} {
		column := slices.IndexFunc(names, func(n []byte) bool { return string(n) == name })
		if column < 0 {
			continue
		}
		for row := range bytes.Lines(rows) {
			if fields := bytes.Fields(row); column < len(fields) {
				n, _ := strconv.ParseInt(string(fields[column]), 10, 64)
				sum += max(n, 0)
			}
		}
	}
	return sum
}
