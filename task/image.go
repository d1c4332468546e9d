//go:build unix

package task

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/state"
)

// checkImage refuses an image without what a task executes there, before anything is made: git and sh. It starts the
// image once, with the agent's profile, so that what the user has shown of this machine counts. An agent that is not there is
// installed, and the order's flags show it.
func checkImage(stop Stop, store Store, o *Order, top string) error {
	if o.Image == "" {
		return nil
	}
	profile := o.Profile
	if profile == "" {
		profile = o.Agent.Name
	}
	path := &tail{}
	last, err := phase{
		dir: top, place: o.Place, flags: append([]string{"--profile", profile}, o.Flags...), timeout: patience,
		command: []string{"sh", "-c", `echo "$PATH"; for program; do command -v "$program" > /dev/null || echo "$program" >&2; done`, "sh", "git", o.Agent.Name},
		out:     func(r io.Reader) { _, _ = io.Copy(path, r) },
	}.run(stop)
	if err == nil {
		err = last.refusal("a task needs git, sh and the agent in the image") // which names what of sh is missing
	}
	switch missing := last.lastLines(2); {
	case err != nil:
		return err
	case last.code != 0:
		return fmt.Errorf("image %s: %s", o.Image, last.failure())
	case slices.Contains(missing, "git"):
		return hint.Errorf("without --docker-image the container has this machine's programs; or an image of yours: FROM "+o.Image+", with RUN for what installs it",
			"the image %s has no git: a task needs git and sh there", o.Image)
	case len(missing) > 0:
		return installInImage(stop, store, o, top, strings.TrimSpace(path.String()))
	}
	return nil
}

// installTime bounds an installation.
const installTime = 20 * time.Minute

// installInImage has the agent be in a directory of this machine, for containers of an image alone: they read it, and what installs it
// there, once, is a run in a container that has nothing of the user's, and other hosts.
func installInImage(stop Stop, store Store, o *Order, top, path string) error {
	i := installOf(o)
	text, err := json.Marshal([]any{i, o.Image})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	base := filepath.Join(o.Home, ".local/share/pccrun/agents", o.Agent.Name+"-"+hex.EncodeToString(sum[:8]))
	tools, work, done := filepath.Join(base, "tools"), filepath.Join(base, "work"), filepath.Join(base, "installed")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return err
	}
	all, err := state.Open(store.dir, top)
	if err != nil {
		return err
	}
	defer all.Close()
	release, err := store.holdRepository(stop.Hard, base)
	if err != nil {
		return err
	}
	defer release()
	if _, err := os.Lstat(done); err != nil {
		if err := removeTree(tools); err != nil {
			return err
		}
		if err := os.MkdirAll(tools, 0o700); err != nil {
			return err
		}
		flags := []string{"--profile", "default", "--write", tools}
		for _, host := range i.Allow {
			flags = append(flags, "--allow", host)
		}
		said := &tail{}
		last, err := phase{
			dir: work, place: o.Place, flags: flags, timeout: installTime, command: slices.Concat([]string{"sh", "-c", "exec 2>&1\n" + i.Script, "sh"}, i.Args, []string{tools}),
			out: func(r io.Reader) { _, _ = io.Copy(said, r) },
		}.run(stop)
		if err == nil {
			err = last.refusal("install " + o.Agent.Name)
		}
		if last.said += said.String(); err == nil && last.code != 0 {
			err = hint.Errorf("an image of yours: FROM "+o.Image+", with RUN for what installs it", "the image %s has no %s, and it cannot be installed: %s", o.Image, o.Agent.Name, strings.Join(last.lastLines(2), "; "))
		}
		if err == nil {
			err = os.WriteFile(done, nil, 0o600)
		}
		if err != nil {
			return err
		}
	}
	o.Flags = append(slices.Clip(o.Flags), "--read", tools, "--env", "PATH="+filepath.Join(tools, ".local/bin")+":"+path)
	return nil
}
