package namespaces

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// A JSON file of which the policy lets only some keys change is not mounted: the
// command gets a copy in its private directory, where it can be replaced by a
// rename, as programs do that write such files.

// copies finds those files. Recall returns what earlier runs remembered of one.
func (f *finder) copies(recall func(path string) []byte) (list []workspace.Keyed) {
	for _, rules := range f.policy.Keyed {
		if _, ok := f.policy.Copied(rules.Path); !ok || f.err != nil {
			continue
		}
		real, host, err := workspace.ReadKeyed(rules.Path)
		if err != nil {
			f.err = &CopyError{rules, err}
			return nil
		}
		i, ok := f.seen[real]
		if !ok || f.places[i].Access != profiles.Write {
			continue // where it lies another rule is stricter
		}
		if p := &f.places[i]; f.within(real) && !f.reviewed(real) {
			p.Access, p.Pin, p.Protect = profiles.Read, true, true // it is the host's own file that the command would change
			continue
		}
		k := workspace.Keyed{Path: rules.Path, Real: real, Rules: rules, Host: host}
		var memory []byte
		if recall != nil {
			memory = recall(rules.Path)
		}
		k.Remember(memory)
		if k.Given != nil {
			f.places[i].Node, f.places[i].Copied, f.places[i].Text = File, true, string(k.Given)
		}
		list = append(list, k)
	}
	return list
}

// A CopyError says that a file cannot be copied of which the policy lets only some
// keys change.
type CopyError struct {
	Rules profiles.KeyedFile
	Err   error
}

func (e *CopyError) Error() string {
	return fmt.Sprintf("copy %s, of which some keys may change (%s): %s", e.Rules.Path, e.Rules.Origin, e.Err)
}

// Unwrap returns the cause.
func (e *CopyError) Unwrap() error { return e.Err }

// Hint says what to do instead.
func (e *CopyError) Hint() string { return "--read " + shell.Quote(e.Rules.Path) }

// donateBeside opens, as root, the directories in which the launcher will put what
// becomes of the copies: it is somebody else by then. The command does not get them.
func (p *Plan) donateBeside(donate func(m *Mount) (int, error)) error {
	for _, k := range p.Copied {
		for _, path := range [...]string{k.Path, k.Real} {
			dir := filepath.Dir(path)
			if _, ok := p.Beside[dir]; ok {
				continue
			}
			var st unix.Stat_t
			if err := unix.Lstat(dir, &st); err == unix.ENOENT && k.Host == nil {
				continue // it is told at the end, if anything was made
			} else if err != nil {
				return fmt.Errorf("lstat %s: %w", dir, err)
			} else if st.Mode&unix.S_IFMT == unix.S_IFLNK {
				continue // the other is where it leads
			}
			fd, err := donate(&Mount{Kind: Bind, Source: dir, Dev: device(st.Dev), Ino: st.Ino})
			if errors.Is(err, ErrIdmap) && k.Host == nil {
				continue // it is told at the end, if anything was made
			}
			if err != nil {
				return fmt.Errorf("open %s, for what may change of %s: %w", dir, k.Path, err)
			}
			if p.Beside == nil {
				p.Beside = map[string]int{}
			}
			p.Beside[dir] = fd
		}
	}
	return nil
}

// OpenBeside opens the directory that a path of [Plan.Copied] lies in, as the
// launcher's identity may change it. See [Plan.Beside].
func (p *Plan) OpenBeside(path string) (int, error) {
	fd, ok := p.Beside[filepath.Dir(path)]
	if !ok {
		return -1, unix.EACCES
	}
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
}
