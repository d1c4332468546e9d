package profiles

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimits(t *testing.T) {
	const ram = 16 << 30
	for _, c := range []struct {
		key, text string
		want      int64
	}{
		{"memory", "512m", 512 << 20}, {"memory", "1g", 1 << 30}, {"memory", "1.5G", 3 << 29}, {"memory", "2048k", 2 << 20}, {"memory", "1t", 1 << 40},
		{"memory", "1048576", 1 << 20}, {"memory", "75%", 12 << 30}, {"memory", "100%", ram},
		{"cpus", "2", 2000}, {"cpus", "0.5", 500}, {"cpus", "0.25", 250},
		{"pids", "512", 512}, {"files", "1024", 1024}, {"filesize", "10m", 10 << 20}, {"disk", "10g", 10 << 30},
		{"timeout", "3s", int64(3 * time.Second)}, {"timeout", "1h30m", int64(90 * time.Minute)},
	} {
		n, err := parseLimit(row(t, c.key), c.text, ram)
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, n, c.text)
	}
	for key, texts := range map[string][]string{
		"memory":   {"0", "", "m", "-1g", "1e30", "1e3", "1mm", "1kb", "4 g", "0x10", "Inf", "NaN", "1_000m", "9999999999t", "+1g", "0%", "0.000000001%", "0.001%", "101%", "-5%", "1.2.3m", "4", "4k", strings.Repeat("9", 400)},
		"cpus":     {"0", "-1", "1e30", "two", "0.001", "9999999999", "", "1.2.3"},
		"pids":     {"0", "1", "-1", "1.5", "4k", "99999999999999999999", "", "+1"},
		"files":    {"0", "3"},
		"filesize": {"0", "-1"},
		"disk":     {"0", "1k"},
		"timeout":  {"0", "0s", "-1s", "10", "1e30s", "1d", "", "1ns", "9999999999h"},
	} {
		for _, text := range texts {
			_, err := parseLimit(row(t, key), text, ram)
			require.Error(t, err, "%s %q", key, text)
		}
	}
	_, err := parseLimit(row(t, "pids"), "75%", ram)
	require.Error(t, err, "only memory has a share")
}

func row(t *testing.T, name string) *key {
	k := keyNamed("resources", name)
	require.NotEqual(t, keyNone, k, name)
	return &keys[k]
}

func TestLimitNames(t *testing.T) {
	require.Equal(t, []string{"memory", "cpus", "pids", "files", "filesize", "disk", "timeout"}, LimitNames())
	require.Len(t, LimitNames(), numLimits)
}

func FuzzLimit(f *testing.F) {
	for _, seed := range []string{"512m", "75%", "1e30", "0.5", "1h", "-1", "1.5g"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for k := keyMemory; k <= keyTimeout; k++ {
			if n, err := parseLimit(&keys[k], text, 1<<34); err == nil {
				require.GreaterOrEqual(t, n, keys[k].least, "%s %q", keys[k].name, text)
			}
		}
	})
}
