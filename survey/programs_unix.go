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
	Name     string
	Err      error
	Skipped  string // a file of that name in PATH, passed over: a run could have put it there, or it is the home itself that PATH has
	Relative bool   // PATH has its directory by a relative path
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
		why := "this program is in a directory that sandboxed commands can write"
		if e.Relative {
			why = "PATH names its directory by a relative path"
		}
		return e.Skipped + " skipped: " + why + "; give its full path"
	case sets && !strings.Contains(variable, "/"):
		return "pccrun starts no shell: --env " + variable + "=VALUE, before --, sets a variable"
	case strings.ContainsAny(e.Name, " \t;|&<>"):
		return "pccrun starts no shell: give each word as an argument, or use pccrun -- sh -c '…'"
	}
	return ""
}

// Programs returns the files that a command's name stands for, which a run tries in
// their order: in the PATH of an environment if the name is no path itself. Where it
// returns an error a run ends with it.
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
	for _, dir := range filepath.SplitList(search) {
		if dir = profiles.Physical(dir); !strings.HasPrefix(dir, "/") || dir == policy.Home {
			continue
		}
		path := filepath.Join(dir, name)
		// Nothing that a run may have changed decides which program runs,
		// wherever PATH and its links lead from.
		changeable := func(dir string) bool { return policy.Decide(dir).Access >= profiles.Overlay }
		real, ok := Follow(path, changeable)
		if !ok || strings.HasPrefix(real, policy.Workspace+"/") || strings.HasPrefix(path, policy.Workspace+"/") {
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
		path, relative := passedOver(search, name, policy.WorkDir)
		err = &ErrNotFound{Name: name, Err: os.ErrNotExist, Skipped: path, Relative: relative}
	}
	return nil, err
}

// passedOver returns what stands under a name in a search path where nothing of
// it was taken, and whether that has it by a relative path.
func passedOver(search, name, workDir string) (path string, relative bool) {
	for _, dir := range filepath.SplitList(search) {
		if relative = !filepath.IsAbs(dir); relative {
			dir = filepath.Join(workDir, dir)
		}
		if path = filepath.Join(dir, name); executable(name, path) == nil {
			return path, relative
		}
	}
	return "", false
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
