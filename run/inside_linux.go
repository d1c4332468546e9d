package run

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/run/ask"
)

// Inside runs, at a place that a provider made elsewhere, what the launcher asked for: on
// the native provider there, by the policy that the launcher resolved. It keeps what a
// session needs in dir. What it says itself goes to a descriptor of its own: the command's
// three are the command's alone.
func Inside(program Program, dir string) int {
	unix.Umask(0o022)
	for _, fd := range [...]int{inside.LaunchFD, inside.SaidFD, inside.StartedFD} {
		unix.CloseOnExec(fd) // the fourth is a caller's, as events have it
	}
	os.Stderr = os.NewFile(inside.SaidFD, "said")
	var asked inside.Remote
	launcher := os.NewFile(inside.LaunchFD, "request")
	in := json.NewDecoder(launcher)
	err := in.Decode(&asked)
	if err != nil || asked.Policy == nil || len(asked.Argv) == 0 {
		return 125
	}
	host := profiles.ThisHost()
	req := profiles.Request{Provider: providers.Native, Resolved: asked.Policy, Quiet: true, Events: "fd:" + strconv.Itoa(inside.EventsFD)}
	req.Seeds = map[string]string{}
	for path, text := range asked.Seeds {
		req.Seeds[path] = string(text)
	}
	for _, text := range asked.Argv {
		req.Command = append(req.Command, string(text))
	}
	// A default goes by this machine's memory, not by that of the user's.
	if m := &asked.Policy.Resources.Memory; m.Origin.Source == "built-in default" && host.Memory > 0 {
		m.Value = min(m.Value, host.Memory/4*3)
	}
	req.Host = profiles.Host{UID: host.UID, Home: asked.Policy.Home, Cwd: asked.Dir, Memory: host.Memory}
	for _, text := range slices.Concat(asked.Environ, asked.Secrets) {
		req.Host.Environ = append(req.Host.Environ, string(text))
	}
	for _, name := range []string{"STATE", "CACHE", "CONFIG"} {
		own := filepath.Join(dir, name)
		// What covers it is mounted by somebody who is not root, and has to watch it.
		if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			os.Stderr.WriteString(err.Error() + "\n")
			return 125
		}
		req.Host.Environ = append(req.Host.Environ, "XDG_"+name+"_HOME="+own)
	}
	if err := os.Chdir(asked.Dir); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		return 125
	}
	if asked.Ask {
		program.ask = asking(in, json.NewEncoder(launcher))
	} else {
		launcher.Close()
	}
	started := os.NewFile(inside.StartedFD, "started")
	program.Started = func(*sessions.Session) { _, _ = started.Write([]byte{1}) }
	return Run(req, program)
}

// asking asks by out the user's launcher, which answers by in. Nobody's answer is no, though the line there
// is cut.
func asking(in *json.Decoder, out *json.Encoder) func(ctx context.Context, host string, port uint16) providers.Permission {
	var mu sync.Mutex
	var waiting []chan providers.Permission // by the question's number
	go func() {
		for {
			var a inside.Answer
			if in.Decode(&a) != nil {
				return
			}
			mu.Lock()
			if a.Number >= 0 && a.Number < len(waiting) {
				select {
				case waiting[a.Number] <- providers.Permission(a.Permission):
				default: // it was answered
				}
			}
			mu.Unlock()
		}
	}()
	return func(ctx context.Context, host string, port uint16) providers.Permission {
		ctx, cancel := context.WithTimeout(ctx, ask.Timeout+ask.Timeout/2)
		defer cancel()
		answer := make(chan providers.Permission, 1)
		mu.Lock()
		waiting = append(waiting, answer)
		err := out.Encode(inside.Question{Number: len(waiting) - 1, Host: host, Port: port})
		mu.Unlock()
		if err != nil {
			return netproxy.Unasked
		}
		select {
		case p := <-answer:
			return p
		case <-ctx.Done():
			return netproxy.Unasked
		}
	}
}
