//go:build linux || darwin

package homes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
)

// Renewed returns the log-ins of the policy's that are other inside than they were when
// [Home.Seed] ended: the run has renewed one, or made one.
func (h *Home) Renewed(p *profiles.Policy) (list []*profiles.Seed) {
	for i := range p.Seeds {
		s := &p.Seeds[i]
		name, below := strings.CutPrefix(s.Path, p.Home+"/")
		if !below || s.Mode != profiles.Login {
			continue
		}
		if now, known := h.stampOf(name); known && now != h.logins[name] {
			list = append(list, s)
		}
	}
	return list
}

// note remembers how the log-ins stand, and their directories: root, whose the home is, is given
// up before somebody looks again.
func (h *Home) note(p *profiles.Policy) {
	h.logins, h.beside = map[string]stamp{}, map[string]int{}
	for i := range p.Seeds {
		if name, below := strings.CutPrefix(p.Seeds[i].Path, p.Home+"/"); below && p.Seeds[i].Mode == profiles.Login {
			h.logins[name], _ = h.stampOf(name)
			if dir, err := open(h.fd, filepath.Dir(name), lookOnly|unix.O_DIRECTORY); err == nil && os.Getuid() == 0 {
				h.beside[name] = dir // until this process ends
			} else if err == nil {
				unix.Close(dir)
			}
		}
	}
}

// stampOf is how a file of the home stands, without what is in it, as far as that can be known.
func (h *Home) stampOf(name string) (s stamp, known bool) {
	fd, err := open(h.fd, name, lookOnly|unix.O_NOFOLLOW)
	if dir, is := h.beside[name]; is && errors.Is(err, unix.EACCES) {
		fd, err = open(dir, filepath.Base(name), lookOnly|unix.O_NOFOLLOW)
	}
	if err != nil {
		return s, !errors.Is(err, unix.EACCES)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		s = stamp{Ino: st.Ino, Ctime: st.Ctim.Nano(), Size: st.Size}
	}
	return s, true
}

// OpenAlone opens a home by its key, for itself: [ErrInUse] where a run uses it.
func OpenAlone(stateDir, key string) (*Home, error) {
	h := &Home{fd: -1, asideFD: -1}
	var err error
	if h.root, err = state.OpenExisting(filepath.Join(stateDir, DirName, key), ""); err != nil {
		return nil, err
	}
	if h.lock, err = h.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600); err == nil {
		if err = state.Flock(h.lock, unix.LOCK_EX|unix.LOCK_NB); err == unix.EWOULDBLOCK {
			err = ErrInUse
		}
	}
	if err == nil {
		h.Alone = true
		h.Record, err = readRecord(h.root)
	}
	if err == nil {
		err = h.open()
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// Copied reports whether the refresh token of a log-in is the one that was copied into the home
// by the name, and whether one was.
func (h *Home) Copied(name string, t Tokens) (is, any bool) {
	was, _ := h.seeded(name)
	return was.Token != "" && was.Token == t.hash(), was.Token != ""
}
