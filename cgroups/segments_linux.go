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
	return tableSum(readTable(fd), 0, weight{"rss", 1}, weight{"swap", 1})
}

// kernelBytes estimates what its semaphores and queues of messages take of the
// kernel's own memory, by /proc/sysvipc/sem and msg: sizes of Linux 6.
func kernelBytes(semaphores, queues int) int64 {
	return tableSum(readTable(semaphores), 512, weight{"nsems", 64}) +
		tableSum(readTable(queues), 512, weight{"cbytes", 1}, weight{"qnum", 64})
}

func readTable(fd int) []byte {
	if fd == 0 {
		return nil
	}
	var table []byte
	chunk := make([]byte, 16<<10)
	for {
		n, err := retry(func() (int, error) { return unix.Pread(fd, chunk, int64(len(table))) })
		if n <= 0 || err != nil {
			return table
		}
		table = append(table, chunk[:n]...)
	}
}

// weight says how many bytes one of a column stands for.
type weight struct {
	column string
	bytes  int64
}

// tableSum reads proc_sysvipc(5), a line of names and then a line for each
// object, which takes so many bytes itself.
func tableSum(table []byte, object int64, columns ...weight) int64 {
	head, rows, _ := bytes.Cut(table, []byte{'\n'})
	names := bytes.Fields(head)
	var sum int64
	for _, w := range columns {
		column := slices.IndexFunc(names, func(n []byte) bool { return string(n) == w.column })
		if column < 0 {
			continue
		}
		for row := range bytes.Lines(rows) {
			if fields := bytes.Fields(row); column < len(fields) {
				n, _ := strconv.ParseInt(string(fields[column]), 10, 64)
				sum += max(n, 0) * w.bytes
			}
		}
	}
	return sum + object*int64(bytes.Count(rows, []byte{'\n'}))
}
