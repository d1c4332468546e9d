package sessions

import (
	"os"
	"slices"
	"time"

	"github.com/pccrun/pccrun/internal/state"
)

// A Resource names what a provider made for a session.
type Resource struct {
	Provider string            `json:"provider"`
	ID       string            `json:"id,omitempty"` // the provider's name for it; "" until it is known
	Region   string            `json:"region,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`  // what it bears, from before it was made
	Account  string            `json:"account,omitempty"` // a name for the provider's account, which tells nobody whose it is; "" if nobody knows

	Hourly float64   `json:"usd_per_hour,omitempty"` // what it costs while it stands; 0 if nobody knows
	Until  time.Time `json:"until,omitzero"`         // of one that stands after its run, for the next: when it ends by itself
}

// KeepSandbox is the reason for which the directory of a session is kept whose sandbox stands.
const KeepSandbox = "sandbox"

// maxKept bounds [KeptName]: it has a name for each path that went up.
const maxKept = 64 << 20

// stands reports whether the record of a sandbox that stands for the next run is there, and nobody has
// taken it.
func (r *Resource) stands(dir *os.Root) bool {
	if r.Until.IsZero() {
		return false
	}
	_, err := dir.Lstat(KeptName)
	return err == nil
}

// Take takes the record [KeptName] that one wants: nobody else has it then, and its session knows of
// no sandbox any more, so that nothing which clears that session away ends it. None is no error.
func (h Home) Take(wants func(text []byte) bool) (text []byte, err error) {
	root, ids, err := h.open()
	if root == nil {
		return nil, err
	}
	defer root.Close()
	for _, id := range slices.Backward(ids) {
		e, err := look(root, id)
		if err != nil || e.State == Running {
			continue // it begins or ends at this moment, or is another version's
		}
		dir, err := openDir(root, id)
		if err != nil {
			continue
		}
		text, err := state.ReadFile(dir, KeptName, maxKept)
		taken := err == nil && wants(text) && dir.Remove(KeptName) == nil
		dir.Close()
		if taken {
			return text, h.change(id, func(i *Info) { i.Resource, i.Kept = nil, without(i.Kept, KeepSandbox) })
		}
	}
	return nil, nil
}
