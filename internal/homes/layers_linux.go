package homes

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// What an agent notes in its directory of the workspace is kept beside the home, for the next run to have it over the
// host's directory, which stays as it is.
const (
	layersName = "layers"      // by the directory's name, what runs have left in it
	layersList = "layers.list" // a [layered]
	layersLock = "layers.lock" // held by who reads or changes either
)

// A layered says of each file that is kept, by its path below layersName, what the host had in its place: the SHA-256, ""
// for nothing.
type layered map[string]string

// forget leaves out a file, and what cannot stand beside it: what lies below its name, and what has the name of a directory
// on its way. It returns what it left out.
func (l layered) forget(name string) (gone []string) {
	for other := range l {
		if other == name || strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/") {
			delete(l, other)
			gone = append(gone, other)
		}
	}
	slices.Sort(gone) // a file before what would lie below its name
	return gone
}

// Bounds of what is kept.
const (
	maxLayerBytes   = 16 << 20
	maxLayerEntries = 2000
	maxLayerDepth   = 32
	layerWithin     = 10 * time.Second
)

// layers reads the list, and locks it until lock is closed.
func (h *Home) layers() (lock *os.File, list layered, err error) {
	list = layered{}
	if lock, err = h.root.OpenFile(layersLock, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600); err != nil {
		return nil, list, err
	}
	if err = state.Flock(lock, unix.LOCK_EX); err == nil {
		err = load(h.root, layersList, &list)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		lock.Close()
	}
	return lock, list, err
}

// Layer returns the directory of what earlier runs left in one of the workspace, "" for nothing. What stands there of a
// file that the host has changed since goes: the host's counts.
func (h *Home) Layer(dir string) (string, error) {
	if _, err := h.root.Lstat(layersList); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	lock, list, err := h.layers()
	if err != nil {
		return "", err
	}
	defer lock.Close()
	base, some, gone := filepath.Base(dir), false, false
	for name, was := range list {
		if rel, in := strings.CutPrefix(name, base+"/"); !in {
		} else if now, _ := hashOf(dir, rel); now == was {
			some = true
		} else {
			gone = true
			delete(list, name)
			err = errors.Join(err, state.RemoveAll(h.root, path.Join(layersName, name)))
		}
	}
	if gone {
		err = errors.Join(err, save(h.root, layersList, list))
	}
	if !some || err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(h.Path), layersName, base), nil
}

// hashOf returns what a layered says of a file of the host's, and when it was changed.
func hashOf(dir, rel string) (sum string, changed time.Time) {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", changed
	}
	defer unix.Close(at)
	fd, err := beneath.Open(at, rel, unix.O_RDONLY)
	if err == unix.ENOENT {
		return "", changed
	} else if err != nil { // what is no directory stands on the way, or nobody may read it
		return "other", changed
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		changed = time.Unix(st.Ctim.Unix())
	}
	text, err := content(f)
	if err != nil {
		return "other", changed
	}
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:]), changed
}

// Keep takes over what a run has changed in a directory of the workspace, from the layer over it, in which a character
// device stands for a name that was removed. What is no regular file, what skip names, and what the host has changed since
// the run began is not kept. It returns what is, by its path; all else that a run wrote is not there in the next one.
func (h *Home) Keep(dir string, layer int, skip func(path string) bool) (kept map[string]bool, err error) {
	lock, list, err := h.layers()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	base, room := filepath.Base(dir), maxLayerBytes
	kept = map[string]bool{}
	err = beneath.Walk(layer, beneath.Limits{Entries: maxLayerEntries, Depth: maxLayerDepth, Time: layerWithin}, func(at int, name string, st *unix.Stat_t, below func() string) error {
		kind, rel := st.Mode&unix.S_IFMT, below()
		to := path.Join(base, rel)
		if kind != unix.S_IFREG && kind != unix.S_IFCHR || skip(filepath.Join(dir, rel)) {
			return nil
		}
		host, changed := hashOf(dir, rel)
		var text []byte
		if kind == unix.S_IFREG {
			if room -= int(min(st.Size, maxLayerBytes)); room < 0 || changed.After(h.Record.Used) {
				return nil
			}
			fd, err := open(at, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW)
			if err != nil {
				return nil // closed to its owner
			}
			file := os.NewFile(uintptr(fd), name)
			text, err = content(file)
			file.Close()
			if err != nil {
				return nil
			}
		}
		if hash := sha256.Sum256(text); kind == unix.S_IFCHR || hex.EncodeToString(hash[:]) == host { // as on the host again
			var err error
			for _, gone := range append(list.forget(to), to) {
				err = errors.Join(err, state.RemoveAll(h.root, path.Join(layersName, gone)))
			}
			return err
		}
		if _, known := list[to]; !known && len(list) >= maxLayerEntries {
			return beneath.ErrTooMuch
		}
		if err := h.layer(path.Join(layersName, to), text, fs.FileMode(st.Mode&0o777|0o600)); err != nil {
			return err
		}
		list.forget(to)
		list[to], kept[filepath.Join(dir, rel)] = host, true
		return nil
	})
	if errors.Is(err, beneath.ErrTooMuch) {
		err = nil // the rest is told as not saved
	}
	return kept, errors.Join(err, save(h.root, layersList, list))
}

// layer writes one file that is kept.
func (h *Home) layer(name string, text []byte, mode fs.FileMode) error {
	temp := "layer-" + rand.Text()
	err := h.root.WriteFile(temp, text, mode)
	if err == nil {
		if err = h.root.MkdirAll(path.Dir(name), 0o755); err != nil { // a file may stand where a directory has come
			for at := path.Dir(name); at != layersName; at = path.Dir(at) {
				if info, e := h.root.Lstat(at); e == nil && !info.IsDir() {
					err = errors.Join(h.root.Remove(at), h.root.MkdirAll(path.Dir(name), 0o755))
					break
				}
			}
		}
	}
	if err == nil {
		if info, e := h.root.Lstat(name); e == nil && info.IsDir() {
			err = state.RemoveAll(h.root, name)
		}
	}
	if err == nil {
		err = h.root.Rename(temp, name)
	}
	if err != nil {
		_ = h.root.Remove(temp)
	}
	return err
}
