//go:build unix

package macos

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/pccrun/pccrun/internal/events"
)

// makeDirectories makes what the run has of its own.
func (r *running) makeDirectories() error {
	for _, dir := range [...]string{r.dir, r.plan.profile.Temp, filepath.Join(r.dir, homeName), filepath.Join(r.dir, trialName)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	told, err := os.OpenFile(filepath.Join(r.dir, denialsName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	r.denials = events.NewLog(r.command.Label, events.Denials(told))
	r.denials.Start()
	r.close = append(r.close, func() { _ = r.denials.Close(time.Second) })
	return r.furnishHome()
}

// furnishHome makes the names in the home that lead to what is shown. What an earlier run has put in
// the way is left alone, and named: a link of its own could lead anywhere.
func (r *running) furnishHome() error {
	if len(r.home) == 0 {
		return nil
	}
	root, err := os.OpenRoot(r.plan.profile.Home)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, e := range r.home {
		if err := root.MkdirAll(filepath.Dir(e.Name), 0o700); err != nil {
			return err
		}
		if there, err := root.Readlink(e.Name); e.Link != "" && err == nil && there == e.Link {
			continue
		}
		switch {
		case e.Link != "":
			err = root.Symlink(e.Link, e.Name)
		default:
			err = root.WriteFile(e.Name, []byte(e.Text), 0o600)
		}
		if errors.Is(err, os.ErrExist) {
			r.observer.Warning(events.Warning{Text: "~/" + e.Name + " in the persistent home is from an earlier run: " + e.Link + " is not shown there"})
		} else if err != nil {
			return err
		}
	}
	return nil
}
