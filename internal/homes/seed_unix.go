//go:build linux || darwin

package homes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// seedsName is the directory of what is recorded of seeds.
const seedsName = "seeds"

// A seeded is what was copied of a file the last time. It stands beside the home: what a run
// writes there says nothing of the host.
type seeded struct {
	Schema int            `json:"schema"`
	Stamp  stamp          `json:"stamp"`
	Base   map[string]any `json:"base,omitempty"` // what of a file's keys was copied

	// Token is the hash of the refresh token that was copied: what else is inside was renewed, or
	// is another log-in.
	Token string `json:"token,omitempty"`
}

// A stamp says whether a file of the host's is as it was.
type stamp struct {
	Ino   uint64 `json:"ino"` // 0: there was none
	Ctime int64  `json:"ctime"`
	Size  int64  `json:"size"`
	Hash  string `json:"hash,omitempty"`
}

// seedFile is where the record of a seed stands.
func seedFile(name string) string {
	sum := sha256.Sum256([]byte(name))
	return seedsName + "/" + hex.EncodeToString(sum[:8])
}

// seeded returns the record of a seed, and whether there is one.
func (h *Home) seeded(name string) (was seeded, copied bool) {
	if load(h.root, seedFile(name), &was) != nil || was.Schema != Schema {
		return seeded{}, false
	}
	return was, true
}

// Seed copies into the home what the policy says of the user's files. Where another run uses the
// home only log-ins are.
func (h *Home) Seed(p *profiles.Policy) error {
	if err := h.root.Mkdir(seedsName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for i := range p.Seeds {
		s := &p.Seeds[i]
		name, below := strings.CutPrefix(s.Path, p.Home+"/")
		if !below || !h.Alone && s.Mode != profiles.Login {
			continue
		}
		if err := h.seed(p, s, name); err != nil {
			return err
		}
	}
	h.note(p)
	return nil
}

// seed copies one file.
func (h *Home) seed(p *profiles.Policy, s *profiles.Seed, name string) error {
	was, copied := h.seeded(name)
	if copied && s.Mode == profiles.Once {
		return nil
	}
	now, text, note := look(p, s.Path, &was.Stamp)
	if note != "" {
		h.Notes = append(h.Notes, note)
	}
	if copied && now == was.Stamp {
		return nil
	}
	next := seeded{Schema: Schema, Stamp: now, Base: was.Base, Token: was.Token}
	if s.Renew != "" && text != nil {
		next.Token = TokensOf(s.Renew, text).hash()
	}
	if !copied || now.Hash != was.Stamp.Hash {
		if err := h.copy(p, s, name, text, now.Ino != 0, !copied, &next); err != nil {
			return err
		}
	}
	return save(h.root, seedFile(name), next)
}

// copy writes what is to stand in the home.
func (h *Home) copy(p *profiles.Policy, s *profiles.Seed, name string, text []byte, there, first bool, next *seeded) error {
	if whole(s) {
		if !there { // what the host has no more stays inside
			return nil
		}
		return h.Write(name, text)
	}
	object, notes, err := picked(s, text, p.Workspace)
	if err != nil {
		h.Notes = append(h.Notes, err.Error())
		object = map[string]any{}
	}
	h.Notes = append(h.Notes, notes...)
	into, err := parse(s.Path, h.Read(name))
	if err != nil { // nobody could use it
		into = map[string]any{}
	}
	before, err := format(s.Path, into)
	if err != nil {
		return err
	}
	merge(into, next.Base, object)
	set(into, s.Set, p.Workspace, first)
	next.Base = object
	after, err := format(s.Path, into)
	if err != nil {
		return fmt.Errorf("write %s in the home: %w", quoted(name), err)
	}
	if len(into) == 0 || bytes.Equal(before, after) {
		return nil
	}
	return h.Write(name, after)
}

// Files returns what a home would begin with, by path: for one that is gone at exit.
func Files(p *profiles.Policy) (files map[string]string, notes []string) {
	files = map[string]string{}
	for i := range p.Seeds {
		s := &p.Seeds[i]
		now, text, note := look(p, s.Path, &stamp{})
		if note != "" {
			notes = append(notes, note)
		}
		if !whole(s) {
			object, more, err := picked(s, text, p.Workspace)
			if err != nil {
				notes = append(notes, err.Error())
				object = map[string]any{}
			}
			notes = append(notes, more...)
			set(object, s.Set, p.Workspace, true)
			if text, err = format(s.Path, object); err != nil || len(object) == 0 {
				continue
			}
		} else if now.Ino == 0 {
			continue
		}
		files[s.Path] = string(text)
	}
	return files, notes
}

// look reads a file of the host's, unless it is as it was. A link is followed to what no run can
// have put there and no rule hides.
func look(p *profiles.Policy, path string, was *stamp) (now stamp, text []byte, note string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return stamp{}, nil, ""
	}
	if real != path {
		if d := p.Decide(real); d.Access >= profiles.Overlay || d.Access == profiles.Hide && d.Rule.Origin.Source != "default" {
			return stamp{}, nil, fmt.Sprintf("%s is not copied into the home: it links to %s, which is %s (%s)", path, quoted(real), d.Access, d.Rule.Origin)
		}
	}
	f, err := os.OpenFile(real, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return stamp{}, nil, fmt.Sprintf("%s is not copied into the home: %v", path, err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return stamp{}, nil, fmt.Sprintf("%s is not copied into the home: %v", path, err)
	}
	now = stamp{Ino: st.Ino, Ctime: st.Ctim.Nano(), Size: st.Size}
	if now.Ino == was.Ino && now.Ctime == was.Ctime && now.Size == was.Size {
		return *was, nil, ""
	}
	if text, err = content(f); err != nil {
		return stamp{}, nil, fmt.Sprintf("%s is not copied into the home: %v", path, err)
	}
	sum := sha256.Sum256(text)
	now.Hash = hex.EncodeToString(sum[:])
	return now, text, ""
}
