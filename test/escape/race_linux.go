package escape

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// raceProbes swap paths while the launcher starts.
func raceProbes() []Probe {
	return []Probe{
		{ID: "LCH-008", Name: "swap paths while the launcher starts", Guarantee: profiles.LaunchIntegrity, Severity: Critical,
			Gap:    "where a link leads that appears at that moment",
			Expect: "never a file from outside", References: refs("CVE-2021-30465", "CVE-2024-23651", "CVE-2026-42306"), Key: "filesystem",
			Explain: "A process of the host exchanges a directory of the workspace, plain or protected, with a link to a hidden one, again and again, over forty starts.",
			Payload: throughRaced,
			Drive:   func(d *Drive) Outcome { return raced(d, 42) }},
		{ID: "LCH-080", Name: "swap paths while the launcher starts, thousands of times", Guarantee: profiles.LaunchIntegrity, Severity: Critical, Long: true,
			Expect: "never a file from outside", References: refs("CVE-2021-30465"), Key: "filesystem",
			Explain: "As LCH-008, over three thousand starts.",
			Payload: throughRaced,
			Drive:   func(d *Drive) Outcome { return raced(d, 3000) }},
		lookProbe(),
	}
}

// racedNames are what the race swaps with links to hidden places, one a start:
// plain, hidden and protected, directories and a file.
var racedNames = []string{"swap", "sub", ".vscode", ".git/hooks", "nested", ".env"}

// throughRaced tries to get at the hidden places through them.
func throughRaced(in *Inside) Outcome {
	return each(racedNames, func(name string) Outcome { return in.Read(in.Path(name, "secret")) })
}

// raced starts the sandbox again and again while a thread of the host swaps a
// name in the workspace with a link to a hidden directory.
func raced(d *Drive, times int) Outcome {
	if os.Mkdir(d.Workspace+"/swap", 0o755) != nil {
		return Broken("make the race")
	}
	refused := 0
	for n := range times {
		name := d.Workspace + "/" + racedNames[n%len(racedNames)]
		if d.ctx.Err() != nil {
			return Broken("out of time after %d starts", n)
		}
		o := d.whileSwapping(name)
		switch {
		case o.Kind == DidEscape:
			return Escaped("at start %d: %s", n, o.Detail)
		case o.Kind == Broke:
			refused++
		}
		if changed := d.Changed(); len(changed) > 0 {
			return Escaped("at start %d, on the host: %s", n, strings.Join(changed, ", "))
		}
	}
	if refused == times {
		return Broken("no start succeeded")
	}
	return Blocked("%d starts, %d refused", times, refused)
}

// whileSwapping runs the sandbox while a name and a link are exchanged. The
// control finds the link in place.
func (d *Drive) whileSwapping(name string) Outcome {
	link := name + "-link"
	os.Remove(link)
	if err := os.Symlink(d.Canary, link); err != nil {
		return Broken("make the race: %v", err)
	}
	exchange := func() { unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE) }
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for exchange(); !d.job.Control; exchange() {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Microsecond):
			}
		}
	}()
	if d.job.Control {
		<-stopped
	}
	o := d.Run()
	close(stop)
	<-stopped
	if fi, err := os.Lstat(name); err == nil && fi.Mode()&os.ModeSymlink != 0 {
		exchange()
	}
	os.Remove(link)
	return o
}
