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
	return tableSum(readTable(fd), 0, map[string]int64{"rss": 1, "swap": 1})
}

// kernelBytes estimates what its semaphores and queues of messages take of the
// kernel's own memory, by /proc/sysvipc/sem and msg: sizes of Linux 6.
func kernelBytes(semaphores, queues int) int64 {
	return tableSum(readTable(semaphores), 512, map[string]int64{"nsems": 64}) +
		tableSum(readTable(queues), 512, map[string]int64{"cbytes": 1, "qnum": 64})
}

func readTable(fd int) (table []byte) {
	if fd == 0 {
		return nil
	}
	chunk := make([]byte, 16<<10)
	for {
		n, err := retry(func() (int, error) { return unix.Pread(fd, chunk, int64(len(table))) })
		if n <= 0 || err != nil {
			return table
		}
		table = append(table, chunk[:n]...)
	}
}

// tableSum reads proc_sysvipc(5), a line of names and then a line for each
// object, which takes so many bytes itself, and so many for one of a column.
func tableSum(table []byte, object int64, weights map[string]int64) (sum int64) {
	head, rows, _ := bytes.Cut(table, []byte{'\n'})
	names := bytes.Fields(head)
	for row := range bytes.Lines(rows) {
		sum += object
		for i, field := range slices.Collect(bytes.FieldsSeq(row)) {
			if i < len(names) {
				n, _ := strconv.ParseInt(string(field), 10, 64)
				sum += max(n, 0) * weights[string(names[i])]
			}
		}
	}
	return sum
}
