package escape

import (
	"bytes"
	"os"
	"path/filepath"
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
func hostUnchanged(out *Outside, o Outcome) Outcome { return hostToo(out, keepBlocked(o)) }

// hostToo is hostUnchanged for payloads that also read: what they read counts.
func hostToo(out *Outside, o Outcome) Outcome {
	if changed := out.Changed(); len(changed) > 0 {
		return Escaped("on the host: %s", strings.Join(changed, ", "))
	}
	return o
}

// finds is an observer that has the host decide: what it finds is the escape.
func finds(find func(*Outside) string) func(*Outside, Outcome) Outcome {
	return func(out *Outside, o Outcome) Outcome {
		if found := find(out); found != "" {
			return Escaped("on the host: %s", found)
		}
		return keepBlocked(o)
	}
}

// stands is an observer that looks for files, with names as in a launcher's command line.
func stands(paths ...string) func(*Outside, Outcome) Outcome {
	return finds(func(out *Outside) string {
		for _, path := range paths {
			if path = out.names().Replace(path); exists(path) {
				return path
			}
		}
		return ""
	})
}

// plantedIn is the file that createIn makes in each of some directories.
func plantedIn(dirs ...string) []string {
	paths := make([]string, len(dirs))
	for i, dir := range dirs {
		paths[i] = filepath.Join(dir, "planted")
	}
	return paths
}

// changes is an observer that looks whether a canary file is as it was made.
func changes(path string) func(*Outside, Outcome) Outcome {
	return finds(func(out *Outside) string {
		if at := out.names().Replace(path); !out.Same(at) {
			return at + " has changed"
		}
		return ""
	})
}

// plantsInHome has a probe make files below the home, and directories for them.
func plantsInHome(p Probe, paths ...string) Probe {
	at := make([]string, len(paths))
	for i, path := range paths {
		at[i] = "{home}/" + path
	}
	p.Observe, p.Payload = stands(at...), func(in *Inside) Outcome {
		return each(paths, func(path string) Outcome {
			path = filepath.Join(in.Home, path)
			os.MkdirAll(filepath.Dir(path), 0o755)
			return appendTo(path)
		})
	}
	return p
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// keepBlocked is the outcome where the host saw nothing: what the payload took
// for a success happened in a place of the sandbox's own.
func keepBlocked(o Outcome) Outcome {
	if o.Kind == DidEscape {
		return Blocked("%s, but not on the host", o.Detail)
	}
	return o
}

// processesWhose are the other processes in sight of which a file in /proc is as asked.
func processesWhose(file string, is func([]byte) bool) (pids []int) {
	for _, name := range processes() {
		data, err := os.ReadFile("/proc/" + name + "/" + file)
		if pid, _ := strconv.Atoi(name); err == nil && pid != os.Getpid() && is(data) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// holding is a condition on a text that it holds another.
func holding(part string) func([]byte) bool {
	return func(text []byte) bool { return bytes.Contains(text, []byte(part)) }
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
