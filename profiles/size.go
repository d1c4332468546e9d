package profiles

import (
	"fmt"
	"strconv"
	"strings"
)

// A Size is how large a machine is that a provider makes, or is asked for; what is 0 nobody knows, or asks for.
type Size struct {
	CPUs     float64 `json:"cpus,omitempty"`
	MemoryMB int64   `json:"memoryMB,omitempty"` // MiB
}

// SizeOf reads a size as --size has it: 2cpu,4g or one of the two.
func SizeOf(text string) (s Size, err error) {
	wrong := fmt.Errorf("%q: want processors, memory or both, such as 2cpu,4g", text)
	for part := range strings.SplitSeq(text, ",") {
		if number, cpus := strings.CutSuffix(part, "cpu"); cpus {
			n, err := parseCPUs(number)
			if err != nil || n < 10 || s.CPUs != 0 {
				return Size{}, wrong
			}
			s.CPUs = float64(n) / 1000
			continue
		}
		n, err := parseSize(part)
		if err != nil || n < 1<<20 || s.MemoryMB != 0 {
			return Size{}, wrong
		}
		s.MemoryMB = (n + 1<<20 - 1) >> 20
	}
	return s, nil
}

// String is the size as [SizeOf] reads it, "" for none.
func (s Size) String() string {
	var parts []string
	if s.CPUs != 0 {
		parts = append(parts, strconv.FormatFloat(s.CPUs, 'f', -1, 64)+"cpu")
	}
	switch {
	case s.MemoryMB != 0 && s.MemoryMB%1024 == 0:
		parts = append(parts, strconv.FormatInt(s.MemoryMB/1024, 10)+"g")
	case s.MemoryMB != 0:
		parts = append(parts, strconv.FormatInt(s.MemoryMB, 10)+"m")
	}
	return strings.Join(parts, ",")
}

// Holds reports whether a machine of this size is as large as another in all that is asked for.
func (s Size) Holds(want Size) bool { return s.CPUs >= want.CPUs && s.MemoryMB >= want.MemoryMB }
