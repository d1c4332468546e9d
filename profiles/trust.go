package profiles

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/state"
)

// Trust is the list of workspace files that the user trusts, below pccrun's
// state directory: for each workspace what its file held when he said so. The
// content is kept, not a hash of it, so that what has changed since can be
// shown.
type Trust struct{ dir string }

// TrustIn returns the list below a state directory ([state.Dirs]).
func TrustIn(stateDir string) Trust { return Trust{stateDir + "/trust"} }

// A Trusted is one entry of the list.
type Trusted struct {
	Workspace string
	Since     time.Time
	Content   []byte
}

// trustMagic begins an entry: then come the workspace, quoted, the time in
// seconds, and the content.
const trustMagic = "pccrun trust 1\n"

// maxTrust bounds an entry: a profile and a path.
const maxTrust = maxFile + 64<<10

// name returns the file of a workspace. Of two that fall on one the later counts.
func (t Trust) name(workspace string) string {
	h := fnv.New64a()
	h.Write([]byte(workspace))
	return fmt.Sprintf("%016x", h.Sum64())
}

func (e *Trusted) append(b []byte) []byte {
	b = strconv.AppendQuoteToASCII(append(b, trustMagic...), e.Workspace)
	b = strconv.AppendInt(append(b, ' '), e.Since.Unix(), 10)
	return append(append(b, '\n'), e.Content...)
}

func parseTrusted(b []byte) (*Trusted, error) {
	bad := errors.New("not an entry of the list of trust")
	head, content, ok := strings.Cut(strings.TrimPrefix(string(b), trustMagic), "\n")
	if !ok || !bytes.HasPrefix(b, []byte(trustMagic)) {
		return nil, bad
	}
	quoted, err := strconv.QuotedPrefix(head)
	if err != nil {
		return nil, bad
	}
	since, err := strconv.ParseInt(strings.TrimPrefix(head[len(quoted):], " "), 10, 64)
	workspace, _ := strconv.Unquote(quoted) // QuotedPrefix has checked it
	if err != nil || !strings.HasPrefix(workspace, "/") {
		return nil, bad
	}
	return &Trusted{workspace, time.Unix(since, 0), []byte(content)}, nil
}

// Of returns the entry of a workspace; [fs.ErrNotExist] if it has none.
func (t Trust) Of(workspace string) (*Trusted, error) {
	root, err := state.OpenExisting(t.dir, workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	b, err := state.ReadFile(root, t.name(workspace), maxTrust)
	if err != nil {
		return nil, err
	}
	e, err := parseTrusted(b)
	if err == nil && e.Workspace != workspace {
		return nil, fs.ErrNotExist
	}
	return e, err
}

// Holds reports whether the user trusts a workspace's file of exactly this
// content. A list that cannot be read trusts nothing.
func (t Trust) Holds(workspace string, content []byte) bool {
	e, err := t.Of(workspace)
	return err == nil && bytes.Equal(e.Content, content)
}

// Add trusts a workspace's file of exactly this content.
func (t Trust) Add(workspace string, content []byte) error {
	root, err := state.Open(t.dir, workspace)
	if err != nil {
		return err
	}
	defer root.Close()
	e := Trusted{workspace, time.Now(), content}
	return state.WriteFile(root, t.name(workspace), e.append(nil), state.Durable)
}

// Revoke takes a workspace off the list; [fs.ErrNotExist] if it is not on it.
func (t Trust) Revoke(workspace string) error {
	if _, err := t.Of(workspace); err != nil {
		return err
	}
	root, err := state.OpenExisting(t.dir, workspace)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Remove(t.name(workspace))
}

// List returns the list, by workspace. Entries that are none are left out.
func (t Trust) List() ([]*Trusted, error) {
	root, err := state.OpenExisting(t.dir, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	files, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var list []*Trusted
	for _, f := range files {
		if b, err := state.ReadFile(root, f.Name(), maxTrust); err == nil {
			if e, err := parseTrusted(b); err == nil {
				list = append(list, e)
			}
		}
	}
	slices.SortFunc(list, func(a, b *Trusted) int { return strings.Compare(a.Workspace, b.Workspace) })
	return list, nil
}

// ReadWorkspaceFile returns a workspace's own profile, read once, through one
// descriptor, following no link, after it was found to be one that could be
// used if it were trusted.
func ReadWorkspaceFile(req Request) (workspace string, content []byte, err error) {
	r := &resolver{req: &req, policy: &Policy{}}
	if err := r.findHome(); err != nil {
		return "", nil, err
	}
	if err := r.findWorkspace(); err != nil {
		return "", nil, err
	}
	r.memory = req.Host.Memory
	r.findConfig()
	own, content, err := r.workspaceLayer()
	if err != nil {
		return r.workspace, nil, err
	}
	if own == nil {
		return r.workspace, nil, fs.ErrNotExist
	}
	_, err = r.trustedLayers(own)
	return r.workspace, content, err
}

// trustedLayers returns what a workspace file lays on the rest if it is
// trusted: itself and what it extends. Neither may lean on another file of the
// workspace, which could change without losing the trust.
func (r *resolver) trustedLayers(own *layer) ([]*layer, error) {
	lean := func(o Origin, file string) error {
		return &Error{Origin: o, Cause: file + ": is in the workspace, where it can change unnoticed", Hint: "move it out of the workspace, or write its rules into " + WorkspaceFile}
	}
	chain, err := r.extend(own, true)
	if err != nil {
		return nil, err
	}
	for i, l := range chain {
		if l != own && within(r.workspace, real(l.source)) && strings.HasPrefix(l.source, "/") {
			return nil, lean(chain[i+1].extendsAt, l.source)
		}
		for e := range l.each(keyInject) {
			in := e.inject
			if within(r.workspace, real(l.source)) && (in.File != "" || in.Command != nil) {
				return nil, &Error{Origin: in.Origin, Cause: in.Env + ": " + in.Source() + ": a workspace profile cannot name files to read or programs to run on the host", Hint: "write it into a profile of your own"}
			}
		}
		for e := range l.each(keySyscalls) {
			if strings.HasPrefix(e.text, "/") && within(r.workspace, real(e.text)) {
				return nil, lean(e.origin, e.text)
			}
		}
	}
	return chain, nil
}
