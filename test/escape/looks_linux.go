package escape

import (
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// A launcher looks at a path more than once: to decide, and to mount what it has
// decided on. Between the two lie microseconds, which a race meets once in many
// thousand starts. A tracer needs no luck: it stops the launcher, and what it has
// cloned, at a call that looks, and for the time of that call puts something else
// there. Before and after it all is as the launcher has found it.

// looks counts the calls that name a path, and swaps it for one of them.
type looks struct {
	path, other string
	swapFor     int    // the look during which they are exchanged, of the launcher or, below 0, of what it has cloned; 0: none
	seen        [2]int // by the one, and by the other
	looking     int    // the thread that makes that call, while it does
}

// at counts a call that names the path: all that take one after a descriptor do,
// as a whole or, below the directory that the descriptor is of, by its last name,
// which nothing else here has.
func (l *looks) at(pid int, c call, cloned bool) {
	if !names(pid, c.Args[1], l.path) && !names(pid, c.Args[1], filepath.Base(l.path)) {
		return
	}
	whose, sign := 0, 1
	if cloned {
		whose, sign = 1, -1
	}
	if l.seen[whose]++; sign*l.seen[whose] == l.swapFor && exchange(l.path, l.other) == nil {
		l.looking = pid
	}
}

// names reports whether a string stands at an address.
func names(pid int, at uint64, text string) bool {
	there := make([]byte, len(text)+1)
	n, err := unix.PtracePeekData(pid, uintptr(at), there)
	return err == nil && n == len(there) && string(there) == text+"\x00"
}

// done ends the swap when the call that it was made for has returned.
func (l *looks) done(pid int) {
	if l.looking == pid && exchange(l.path, l.other) == nil {
		l.looking = 0
	}
}

func exchange(path, other string) error {
	return unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
}

// swapper is a helper: N PATH OTHER ARGV… runs a launcher to its end, and exchanges
// two paths for the time of the Nth call that names the first.
func swapper(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	t := newTrace(0)
	t.looks = &looks{path: args[1], other: args[2], swapFor: n}
	return t.run(args[3:])
}

// lookProbe exchanges a directory that is shown read-only with one that is hidden.
func lookProbe() Probe {
	return Probe{
		ID: "LCH-085", Name: "swap a path between the launcher's looks at it", Guarantee: profiles.LaunchIntegrity, Severity: High, Needs: []Need{NeedNative},
		Flags: []string{"--read", "{workspace}/kept", "--hide", "{workspace}/vault"}, Expect: "refused, or what was decided on", References: refs("CVE-2021-30465", "CWE-367"), Key: "filesystem",
		Explain: "A directory that is shown and one that is hidden change places after the launcher has looked at the first: before its second look, its third, and so on.",
		Payload: func(in *Inside) Outcome {
			return Any(in.Read(in.Path("kept/secret")), in.Read(in.Path("vault/secret")))
		},
		Drive: betweenLooks,
	}
}

// maxLooks bounds how often the launcher is started.
const maxLooks = 16

func betweenLooks(d *Drive) Outcome {
	kept, vault := d.Workspace+"/kept", d.Workspace+"/vault"
	for path, content := range map[string]string{kept + "/f": "kept\n", vault + "/secret": d.secret + "\n"} {
		d.write(path, content)
	}
	if d.job.Control {
		return d.Run()
	}
	defer d.sweep()
	t, run, err := d.underTracer("swapper", "0", kept, vault)
	if err != nil {
		return needsPtrace(err)
	}
	if o := d.judge(run); o.Kind == Broke { // a launcher gives up if it has to look for long
		return Needing("a machine on which a launcher that is traced starts in time: " + o.Detail)
	}
	most := t.Looks
	if most[0] == 0 || most[0]+most[1] < 2 {
		return Broken("%v looks: nothing lies between", most)
	}
	refused := 0
	for n := -most[1]; n <= most[0]; n++ {
		if n == 0 || n == 1 {
			continue // it decides on what it sees first
		}
		t, run, err := d.underTracer("swapper", strconv.Itoa(n), kept, vault)
		if err != nil {
			return needsPtrace(err)
		}
		// What was swapped is looked through anew, so not all runs have as many.
		most[0] = min(max(most[0], t.Looks[0]), maxLooks)
		switch o := d.judge(run); o.Kind {
		case DidEscape:
			return Escaped("swapped for look %d of %v: %s", n, most, o.Detail)
		case Broke:
			refused++
		}
	}
	return Blocked("swapped for each of %v looks (the launcher's, and those of what it cloned) but the first, %d times refused", most, refused)
}
