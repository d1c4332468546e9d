package profiles

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseSize reads a number of bytes: digits, perhaps a fraction, and k, m, g
// or t for a power of 1024.
func ParseSize(s string) (int64, error) {
	digits, unit := s, 1.0
	if s != "" {
		if n := strings.IndexByte("kmgt", s[len(s)-1]|0x20); n >= 0 {
			digits, unit = s[:len(s)-1], math.Pow(1024, float64(n+1))
		}
	}
	n, err := decimal(digits)
	if err != nil {
		err = fmt.Errorf("%q: want a size such as 512m or 4g", s)
		number := strings.TrimRight(strings.ToLower(s), "kmgtib ")
		if unit := strings.TrimSpace(strings.ToLower(s)[len(number):]); unit != "" && strings.ContainsAny(unit[:1], "kmgt") && isDecimal(number) {
			err = hinted{err, "a unit is one letter, a power of 1024: " + number + unit[:1]}
		}
		return 0, err
	}
	if n*unit > 1<<60 {
		return 0, fmt.Errorf("%q: larger than any machine", s)
	}
	return int64(n * unit), nil
}

// parseCPUs reads a number of processors and returns thousandths of one.
func parseCPUs(s string) (int64, error) {
	n, err := decimal(s)
	if err != nil || n > 1<<20 {
		return 0, fmt.Errorf("%q: want a number of processors such as 2 or 0.5", s)
	}
	return int64(math.Round(n * 1000)), nil
}

// parseCount reads a whole number.
func parseCount(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q: want a whole number", s)
	}
	return int64(n), nil
}

// parseTimeout reads a duration and returns nanoseconds.
func parseTimeout(s string) (int64, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q: want a duration such as 30s, 10m or 1h", s)
	}
	return int64(d), nil
}

// decimal reads digits with at most one point: none of the signs, exponents,
// infinities and underscores that strconv takes too.
func decimal(s string) (float64, error) {
	if s == "" || strings.Trim(s, "0123456789.") != "" || len(s) > 20 {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}

func isDecimal(s string) bool {
	_, err := decimal(s)
	return err == nil
}

// LimitNames returns the names of the limits, in the order of [Request.Limits] and [Resources]:
// each is a key of resources and a flag.
func LimitNames() []string { return keysIn("resources") }

// at returns the limit of [LimitNames][i].
func (r *Resources) at(i int) *Limit {
	return [...]*Limit{&r.Memory, &r.CPUs, &r.Pids, &r.Files, &r.FileSize, &r.Disk, &r.Timeout}[i]
}

// parseLimit reads the text of a limit. The memory limit may be a share of
// the machine's, such as 75%.
func parseLimit(l *key, text string, memory int64) (int64, error) {
	if share, ok := strings.CutSuffix(text, "%"); ok && l.name == "memory" {
		n, err := decimal(share)
		if err != nil || n <= 0 || n > 100 {
			return 0, fmt.Errorf("%q: want a share such as 75%%", text)
		}
		bytes := int64(float64(memory) * n / 100)
		if memory > 0 && bytes < l.least { // 0 would be no limit
			return 0, fmt.Errorf("%q: %d bytes on this machine: want at least %s", text, bytes, l.want)
		}
		return bytes, nil
	}
	n, err := l.parse(text)
	if err == nil && n < l.least {
		err = fmt.Errorf("%q: want at least %s", text, l.want)
		if n > 0 && strings.HasSuffix(l.want, "m") && strings.Trim(text, "0123456789") == "" {
			err = hinted{err, "a number alone counts bytes: " + text + "m are mebibytes"}
		}
		return 0, err
	}
	return n, err
}

// Limit returns the limit of [LimitNames][i].
func (r *Resources) Limit(i int) Limit { return *r.at(i) }

// Words returns names as strings.
func Words[T ~string](list []T) []string {
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = string(w)
	}
	return words
}

// LimitText writes the value of a limit as a profile does, exactly.
func LimitText(i int, n int64) string {
	switch keys[int(keyMemory)+i].name {
	case "memory", "filesize", "disk":
		for _, u := range [...]struct {
			shift uint
			unit  string
		}{{40, "t"}, {30, "g"}, {20, "m"}, {10, "k"}} {
			if n > 0 && n&(1<<u.shift-1) == 0 {
				return strconv.FormatInt(n>>u.shift, 10) + u.unit
			}
		}
	case "cpus":
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	case "timeout":
		return time.Duration(n).String()
	}
	return strconv.FormatInt(n, 10)
}
