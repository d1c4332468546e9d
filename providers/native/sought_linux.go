package native

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seccomp/supervisor"
)

// A sought path is one that the command opened, executed or wanted to change, and that is hidden from it.
type sought struct {
	path   string
	writes bool
}

// maxSought bounds the different paths that a run remembers.
const maxSought = 4096

// recordSought remembers a place if the plan hides what the host may have there, and reports whether it does.
// Whether the host has it is not looked up before the end: the command must not learn it from a report.
func (r *Run) recordSought(c *supervisor.Call, n supervisor.Name, place supervisor.Place) bool {
	writes := n.Op == supervisor.Write || n.Op == supervisor.Create
	switch m := r.Plan.At(place.Path); {
	case n.Op == supervisor.Remove || survey.KernelTree(place.Path) != "" || r.Policy.Passing(place.Path):
		return false
	case writes: // what the command makes in a private directory is its own
		if m.Kind != namespaces.Fresh && m.Kind != namespaces.Persist || m.ReadOnly || place.There || place.Dir && (n.Op == supervisor.Create || c.Makes()) {
			return false
		}
	case m.Kind == namespaces.Mask:
	case m.Kind == namespaces.Fresh || m.Kind == namespaces.Persist:
		if place.There && (!m.ReadOnly || m.Target != place.Path) {
			return false
		}
	default:
		return false
	}
	switch s := (sought{place.Path, writes}); {
	case slices.Contains(r.sought, s):
	case len(r.sought) == maxSought:
		r.unsought++
	default:
		r.sought = append(r.sought, s)
	}
	return true
}

// soughtDenials returns what was hidden and the user could have had outside, each with its flag; of what may
// hold secrets without one. Of a run that root began, [Run.recordSought] has paths that only root can look up.
func (r *Run) soughtDenials() (list []events.Denial) {
	for _, s := range r.sought {
		d := events.Denial{Guarantee: string(profiles.FSHide), What: "read " + s.path}
		path, access := s.path, uint32(unix.R_OK)
		if s.writes {
			d.What, access = "write "+s.path, unix.W_OK
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				path = filepath.Dir(path)
			}
		}
		if err := unix.Access(path, access); err != nil && !(err == unix.EACCES && r.Plan.Identity.Root) {
			continue
		}
		rule := r.Policy.Decide(s.path)
		d.Rule = rule.Text()
		switch end, err := filepath.EvalSymlinks(path); {
		case rule.Access == profiles.Hide && rule.Rule.Origin.Source == "flag": // no other flag overrides it
		case r.holdsSecrets(path) || err == nil && r.holdsSecrets(end):
		case !s.writes:
			h := r.hiddenAt(s.path)
			if h.What == "" { // the command has it by now
				continue
			}
			d.Hint = h.Hint
		case path == s.path:
			d.Hint = r.Policy.WriteFlag(path)
		default:
			d.Hint = r.Policy.MakeFlag(s.path, true)
		}
		list = append(list, d)
	}
	return list
}

// holdsSecrets reports whether a path is known to hold secrets, or its name is one for secrets, or not the only name of the file.
func (r *Run) holdsSecrets(path string) bool {
	name := strings.ToLower(filepath.Base(path))
	is := func(match func(name, part string) bool, parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return match(name, part) })
	}
	foreign := func(homes string) bool { // a directory of homes, or what is in another's
		return survey.Below(homes, path) || survey.Below(path, homes) && !survey.Below(path, r.Policy.Home) && !survey.Below(path, r.Policy.Workspace)
	}
	var st unix.Stat_t
	linked := unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1 // the other name may be a key's
	return linked || survey.Secret(r.Policy.Home, path) || survey.Below(r.Policy.Workspace, path) || slices.ContainsFunc(r.Policy.Homes, foreign) ||
		strings.HasPrefix(name, ".env") && !survey.Below(path, r.Policy.Workspace) || // in the workspace a rule of the policy decides
		slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return slices.Contains(profiles.SearchedPlaces(), part) }) ||
		is(strings.HasPrefix, ".netrc", "_netrc", ".git-credentials", ".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".boto", ".s3cfg", ".databricks.cfg", ".vault-token",
			"auth.json", "service-account", "service_account", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "cookies", "login data", ".lesshst") ||
		is(strings.HasSuffix, "_history", ".tfstate", "shadow", ".pem", ".key", ".p12", ".pfx", ".kdbx", ".jks", ".keystore", ".ovpn", ".gpg", ".asc") ||
		is(strings.Contains, "wallet", "secret", "credential", "token", "password", "passwd", "apikey", "api_key", "private_key", "privatekey")
}
