package escape

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

func fsProbes() []Probe {
	return slices.Concat(hideProbes(), writeProbes(), mountProbes(), hostProbes())
}

func refs(list ...string) []string { return list }

func at(fd int) uintptr { return uintptr(fd) }

// record is a probe that nothing on this platform can run.
func record(id, name string, g profiles.Guarantee, s Severity, need Need, explain string, references ...string) Probe {
	return Probe{ID: id, Name: name, Guarantee: g, Severity: s, Needs: []Need{need}, Explain: explain, References: references}
}

// hostUnchanged lets the canary files of the host decide.
func hostUnchanged(out *Outside, o Outcome) Outcome {
	if changed := out.Changed(); len(changed) > 0 {
		return Escaped("on the host: %s", strings.Join(changed, ", "))
	}
	return keepBlocked(o)
}

// hostToo is hostUnchanged for payloads that also read: what they read counts.
func hostToo(out *Outside, o Outcome) Outcome {
	if changed := out.Changed(); len(changed) > 0 {
		return Escaped("on the host: %s", strings.Join(changed, ", "))
	}
	return o
}

// keepBlocked is the outcome where the host saw nothing: what the payload took
// for a success happened in a place of the sandbox's own.
func keepBlocked(o Outcome) Outcome {
	if o.Kind == DidEscape {
		return Blocked("%s, but not on the host", o.Detail)
	}
	return o
}

func processes() []string {
	entries, _ := os.ReadDir("/proc")
	var pids []string
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, entry.Name())
		}
	}
	return pids
}
