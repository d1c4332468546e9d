//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run/askgit"
	"github.com/pccrun/pccrun/workspace"
)

// ownDirs refuses directories of pccrun's, where a variable has put them into what an earlier run could write: the
// user's profiles and all that is trusted lie there. Directories in the home of the user database were hidden from
// each run. Those of another home were not, where that home was a workspace.
func ownDirs(r *resolved) error {
	host := &r.req.Host
	usual, err := state.Find(func(string) string { return "" }, r.policy.Home)
	if err != nil || r.req.Resolved != nil {
		return err
	}
	asked := []string{}
	for _, dirs := range [...][2]string{{r.dirs.Config, usual.Config}, {r.dirs.State, usual.State}, {r.dirs.Cache, usual.Cache}} {
		if dirs[0] != dirs[1] {
			asked = append(asked, dirs[0])
		}
	}
	if host.Home != "" && r.policy.Home != host.Home {
		asked = append(asked, r.policy.Home)
	}
	asked = slices.DeleteFunc(asked, func(dir string) bool { // hidden from each run, whatever tree it lies in: the launcher's own, see [askgit.Git]
		return strings.HasPrefix(dir, filepath.Join(host.Home, ".local/state/pccrun/git-"))
	})
	dir, err := r.helpers.Covered(asked...)
	if err == nil && dir != "" {
		err = fmt.Errorf("%s: sandboxed commands can write there", dir)
	}
	return err
}

// cover records what this run can write, for whoever looks for a program later, before root is given up.
func (p *prepared) cover() error {
	if p.req.Resolved != nil { // a place elsewhere, where nobody looks for one
		return nil
	}
	if p.uid == 0 && p.native() {
		if err := makeGitDir(); err != nil {
			messages.Say("git cannot be asked when this run is over: " + messages.InWords(err))
		}
	}
	if err := p.helpers.Cover(p.writes); err != nil {
		return err
	}
	p.coverForOwners()
	return nil
}

// coverForOwners records what root's run can write for those to whom it belongs: each looks only into his own record.
func (p *prepared) coverForOwners() {
	if os.Geteuid() != 0 {
		return
	}
	trees := map[uint32][]string{}
	for _, path := range p.writes {
		if info, err := os.Stat(path); err == nil {
			if st := info.Sys().(*syscall.Stat_t); st.Uid != 0 {
				trees[st.Uid] = append(trees[st.Uid], path)
			}
		}
	}
	for uid, list := range trees {
		home, gid := profiles.Account(int(uid))
		if home == "" {
			continue
		}
		if err := programs.CoverFor(int(uid), gid, home, list); err != nil {
			messages.Say("what this run can write is not recorded for user " + strconv.Itoa(int(uid)) + ": " + messages.InWords(err))
		}
	}
}

// gitDir is where the sandboxes have their home in which git is asked by a launcher that has given root up: it
// can enter no directory of root's sessions.
const gitDir = "/run/pccrun-git"

// makeGitDir makes it, for the identity that root becomes. Nobody but root can put another in its place.
func makeGitDir() error {
	uid, gid := who()
	root, err := state.Open(gitDir, "")
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Chmod(".", 0o755); err != nil {
		return err
	}
	name := strconv.Itoa(uid)
	if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return root.Lchown(name, uid, gid)
}

// git asks git for this run.
func (r *resolved) git() *askgit.Git {
	return &askgit.Git{Programs: r.helpers.For(r.policy.Changes, messages.Say), Workspace: r.policy.Workspace, Dir: func() (string, error) {
		if os.Getuid() != r.uid {
			return gitDir + "/" + strconv.Itoa(os.Getuid()), nil
		}
		root, err := state.Open(r.dirs.State, r.policy.Workspace) // beside the sessions, of which each keeps what runs wrote
		if err == nil {
			root.Close()
		}
		return r.dirs.State, err
	}}
}

// AskGit asks git for a session that has ended, of which something is left.
func AskGit(root string) workspace.AskGit { return Git(root).Ask }

// RunGit runs git in a sandbox for whoever packs or unpacks a workspace outside of any run, see [providers.Host]. The
// path is absolute, or "" where it is not known.
func RunGit(root string) func(ctx context.Context, show, args []string, prepare func(dir string) error, in io.Reader, out io.Writer) error {
	return Git(root).Run
}

// Git asks git about a repository that no run of this process is in.
func Git(root string) *askgit.Git {
	host := profiles.ThisHost()
	dirs, _ := Dirs() // the caller has found it
	finder := Programs(&host, dirs.State)
	if root != "" {
		finder = finder.For((&profiles.Policy{Workspace: root}).Changes, messages.Say)
	}
	return &askgit.Git{Programs: finder, Workspace: root, Dir: func() (string, error) {
		if _, err := os.Stat(dirs.State); !errors.Is(err, fs.ErrNotExist) {
			return dirs.State, nil // where the session lies: root has given its directory to another
		}
		own, err := state.Open(dirs.State, root)
		if err == nil {
			own.Close()
		}
		return dirs.State, err
	}}
}
