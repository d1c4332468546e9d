//go:build linux || darwin

package homes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
)

// A Difference is a file of the home that is another than what was copied into it the last time.
type Difference struct {
	Path  string   // of the seed
	What  string   // "new": the host had none; "changed"; "removed"
	Keys  []string // of a file that is copied by key, those that are: names with dots between
	Login bool     // what is in it is nobody's to see
}

// Diff compares the seeds with what stands in the home.
func (h *Home) Diff(p *profiles.Policy) (list []Difference) {
	for i := range p.Seeds {
		s := &p.Seeds[i]
		name, below := strings.CutPrefix(s.Path, p.Home+"/")
		if !below {
			continue
		}
		was, copied := h.record(name)
		text := h.read(name)
		d := Difference{Path: s.Path, Login: s.Mode == profiles.Login}
		switch {
		case text == nil && (!copied || was.Stamp.Ino == 0):
			continue
		case text == nil:
			d.What = "removed"
		case whole(s):
			sum := sha256.Sum256(text)
			if d.What = "changed"; copied && was.Stamp.Hash == hex.EncodeToString(sum[:]) {
				continue
			} else if !copied || was.Stamp.Ino == 0 {
				d.What = "new"
			}
		default:
			now, err := parse(s.Path, text)
			if err != nil {
				d.What = "changed"
				break
			}
			base := map[string]any{}
			merge(base, nil, was.Base)
			set(base, s.Set, p.Workspace, true)
			if d.Keys = differing(base, now, ""); len(d.Keys) == 0 {
				continue
			}
			if d.What = "changed"; was.Stamp.Ino == 0 {
				d.What = "new"
			}
		}
		list = append(list, d)
	}
	return list
}

// record returns what is recorded of a seed.
func (h *Home) record(name string) (was seeded, copied bool) {
	sum := sha256.Sum256([]byte(name))
	text, err := state.ReadFile(h.root, seedsName+"/"+hex.EncodeToString(sum[:8]), 2*maxFile)
	if err != nil || json.Unmarshal(text, &was) != nil || was.Schema != Schema {
		return seeded{}, false
	}
	return was, true
}

// differing lists the keys in which two objects differ, the outermost of each.
func differing(a, b map[string]any, above string) (keys []string) {
	for key, value := range a {
		if other, stands := b[key]; !stands {
			keys = append(keys, above+key)
		} else if x, is := value.(map[string]any); is {
			y, too := other.(map[string]any)
			if !too {
				keys = append(keys, above+key)
				continue
			}
			keys = append(keys, differing(x, y, above+key+".")...)
		} else if !same(value, other) {
			keys = append(keys, above+key)
		}
	}
	for key := range b {
		if _, stands := a[key]; !stands {
			keys = append(keys, above+key)
		}
	}
	slices.Sort(keys)
	return keys
}
