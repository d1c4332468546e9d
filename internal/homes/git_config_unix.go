//go:build linux || darwin

package homes

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/gitconfig"
)

// A run's ~/.gitconfig is a file of the home, which git replaces as it does outside. It begins as the user's own, with what
// earlier runs have set: keys of the list by which a repository's configuration is merged, which name no program. Where the
// user has changed such a key since, his counts.
const (
	userGit  = ".gitconfig"
	gitsName = "gitconfig" // a [gits], beside the home
)

type gits struct {
	Shown string `json:"shown"` // what the last run was given of the user's
	Now   string `json:"now"`   // with what runs have set
}

func (h *Home) gits() (g gits, err error) {
	if err = load(h.root, gitsName, &g); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return g, err
}

// keepGitConfig takes what the last run has set out of the home.
func (h *Home) keepGitConfig() error {
	text := h.Read(userGit)
	if text == nil {
		return nil
	}
	g, err := h.gits()
	if err != nil {
		return err
	}
	if string(text) == g.Now {
		return unix.Unlinkat(h.fd, userGit, 0)
	}
	r, err := gitconfig.Merge([]byte(g.Shown), text, []byte(g.Shown), gitconfig.Context{})
	if err != nil {
		h.Notes = append(h.Notes, "what the last run set in ~/.gitconfig is gone: "+err.Error())
		return nil // it is moved aside
	}
	var gone []string
	for _, refused := range r.Refused {
		gone = append(gone, quoted(refused.Key)+" ("+refused.Reason+")")
	}
	if gone != nil {
		h.Notes = append(h.Notes, "what the last run set in ~/.gitconfig is gone: "+strings.Join(gone, ", "))
	}
	g.Now = string(r.Host)
	if err = save(h.root, gitsName, g); err == nil {
		err = unix.Unlinkat(h.fd, userGit, 0)
	}
	return err
}

// GitConfig gives a run the user's configuration, "" where he has none. That of a run which goes on already stays.
func (h *Home) GitConfig(shown string) error {
	if h.Read(userGit) != nil {
		return nil
	}
	g, err := h.gits()
	if err != nil {
		return err
	}
	r, err := gitconfig.Merge([]byte(g.Shown), []byte(g.Now), []byte(shown), gitconfig.Context{})
	if err == nil {
		g = gits{Shown: shown, Now: string(r.Host)}
	} else {
		g = gits{Shown: shown, Now: shown}
	}
	if err = save(h.root, gitsName, g); err == nil && g.Now != "" {
		err = h.Write(userGit, []byte(g.Now))
	}
	return err
}
