package profiles

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Place is what the user chose of the place where a command runs. It may cost money: of the workspace's own file nothing
// counts that is not trusted. What is empty the place decides.
type Place struct {
	Image, Size, Region, Keep Choice
}

// A Choice is one of them, with what says so.
type Choice struct {
	Text   string
	Origin Origin
}

// Choice returns that of a key of place.
func (p *Place) Choice(key string) *Choice {
	return map[string]*Choice{"image": &p.Image, "size": &p.Size, "region": &p.Region, "keep": &p.Keep}[key]
}

// PlaceKeys are the keys of place, each a flag too.
func PlaceKeys() []string { return keysIn("place") }

// KeepFor is how long a sandbox stands after its run, 0 for not at all.
func (p *Place) KeepFor() time.Duration {
	d, _ := time.ParseDuration(p.Keep.Text)
	return d
}

// AskedSize is the size that is asked for.
func (p *Place) AskedSize() Size {
	s, _ := SizeOf(p.Size.Text)
	return s
}

// checkPlace reads one text of place. What a name stands for the place alone knows.
func checkPlace(_ *scope, k *key, text string) (string, error) {
	switch {
	case k.name == "size":
		_, err := SizeOf(text)
		return text, err
	case k.name == "keep": // clouds count in minutes, and sell no more than a day
		if d, err := time.ParseDuration(text); err != nil || d < time.Minute || d > 24*time.Hour || d%time.Minute != 0 {
			return "", fmt.Errorf("%q: want minutes, from 1m to 24h", text)
		}
	case !placeName.MatchString(text):
		return "", fmt.Errorf("%q: want a name", text)
	}
	return text, nil
}

// placeName is how images and regions are called: none begins with a dash.
var placeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,255}$`)

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
		n, err := ParseSize(part)
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
