//go:build unix

package survey

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// ErrNotFound says that no file of the command's name is there to be executed.
type ErrNotFound struct {
	Name    string
	Err     error
	Skipped string // a file of that name in PATH, passed over: a run could have put it there, or it is the home itself that PATH has
}

func (e *ErrNotFound) Error() string {
	if errors.Is(e.Err, os.ErrNotExist) {
		return e.Name + ": command not found"
	}
	return e.Name + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *ErrNotFound) Unwrap() error { return e.Err }

// Hint says what mends it, "" if nothing is known.
func (e *ErrNotFound) Hint() string {
	variable, _, sets := strings.Cut(e.Name, "=")
	switch {
	case !errors.Is(e.Err, os.ErrNotExist):
	case e.Skipped != "":
		return e.Skipped + " skipped: this program is in a directory that sandboxed commands can write; give its full path"
	case sets && !strings.Contains(variable, "/"):
		return "pccrun starts no shell: --env " + variable + "=VALUE, before --, sets a variable"
	case strings.ContainsAny(e.Name, " \t;|&<>"):
		return "pccrun starts no shell: give each word as an argument, or use pccrun -- sh -c '…'"
	}
	return ""
}

// Programs returns the files that a command's name stands for, which a run tries in
// their order: in the PATH of an environment if the name is no path itself. Those of the
// workspace count as outside: a project has an environment of its own. Where it returns
// an error a run ends with it.
func Programs(policy *profiles.Policy, name string, environ []string) (paths []string, err error) {
	if strings.Contains(name, "/") {
		path := name
		if !strings.HasPrefix(name, "/") {
			path = policy.WorkDir + "/" + name
		}
		path = profiles.Physical(path)
		return []string{path}, executable(name, path)
	}
	search := "/bin:/usr/bin" // execvp(3)
	if i := slices.IndexFunc(environ, func(e string) bool { return strings.HasPrefix(e, "PATH=") }); i >= 0 {
		search = strings.TrimPrefix(environ[i], "PATH=")
	}
	// Nothing that a run may have changed elsewhere decides which program runs, wherever PATH and its links lead from;
	// nor what it may have changed in the workspace, where a name stands for an agent, with what that may.
	own := !policy.NamesAgent()
	changeable := func(dir string) bool {
		return !(own && Below(dir, policy.Workspace)) && policy.Decide(dir).Access >= profiles.Overlay
	}
	for _, dir := range filepath.SplitList(search) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(policy.WorkDir, dir) // execvp(3)
		}
		if dir = profiles.Physical(dir); dir == policy.Home {
			continue
		}
		path := filepath.Join(dir, name)
		real, ok := Follow(path, changeable)
		if !ok || !own && (Below(real, policy.Workspace) || Below(path, policy.Workspace)) {
			continue
		}
		switch no := executable(name, path); {
		case no == nil:
			paths = append(paths, path)
		case unix.Access(path, unix.F_OK) == nil:
			err = no // it is there, and must not be executed
		}
	}
	switch {
	case len(paths) > 0:
		return paths, nil
	case err == nil:
		err = &ErrNotFound{Name: name, Err: os.ErrNotExist, Skipped: passedOver(search, name, policy.WorkDir)}
	}
	return nil, err
}

// passedOver returns what stands under a name in a search path where nothing of it was taken.
func passedOver(search, name, workDir string) string {
	for _, dir := range filepath.SplitList(search) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(workDir, dir)
		}
		if path := filepath.Join(dir, name); executable(name, path) == nil {
			return path
		}
	}
	return ""
}

// executable tells whether execve(2) has a chance with a path.
func executable(name, path string) error {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	switch {
	case err != nil:
		return &ErrNotFound{Name: name, Err: err}
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return &ErrNotFound{Name: name, Err: unix.EISDIR}
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return &ErrNotFound{Name: name, Err: err}
	}
	return nil
}
