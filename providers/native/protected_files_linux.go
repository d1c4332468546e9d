package native

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
)

// Pinned says what stands in the workspace and the command could not change, with what lets it;
// "" where there is nothing. Nobody knows whether it was tried: the kernel alone refuses it. (A
// report has writes, and no removals.) What git keeps, and what lies where nothing may be
// written, is no part of it.
func (r *Planned) Pinned() string {
	const most = 3
	var names []string
	flag, more := "", 0
	layers, _ := r.Policy.AgentDirs() // what is changed there is a layer's, gone at exit
	for _, pin := range r.found.Pins {
		rel, in := strings.CutPrefix(pin.Path, r.Policy.Workspace+"/")
		rule, is := r.Policy.Protected(pin.Path)
		if !in || !is || rule.Review || strings.HasPrefix(pin.Why, ".git/") || pin.Private || slices.Contains(layers, pin.Path) || !r.Plan.Writes(filepath.Dir(pin.Path)) {
			continue
		}
		if flag == "" {
			flag = r.Policy.ReviewFlag(pin.Path, rule)
		}
		if len(names) == most {
			more++
		} else {
			names = append(names, shell.Quote(rel))
		}
	}
	if len(names) == 0 {
		return ""
	}
	text := "pinned: " + strings.Join(names, ", ")
	if more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	if flag == "" || len(names) > 1 {
		flag = "--review FILE"
	}
	return text + ": cannot be changed; " + flag + " allows changes"
}
