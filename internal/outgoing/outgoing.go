// Package outgoing says which certificate authorities and proxies count for what pccrun itself sends:
// renewed logins, and the keys of clouds.
//
// It promises that no project decides that. A variable of the environment counts only if it names a
// path that root alone can change, and that no run of root's could write, or if the same line stands in the file environment of
// ~/.config/pccrun, in the home that the user database has; each one is named. Lines of that file
// count as well where the environment has none.
package outgoing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/programs"
)

// File is where the user's own lines NAME=VALUE stand, below the home.
const File = ".config/pccrun/environment"

// maxFile bounds it, in bytes.
const maxFile = 64 << 10

// Settings are what counts.
type Settings struct {
	Certificates []string // files and directories of authorities, beside the system's

	HTTPProxy, HTTPSProxy, NoProxy string // see net/http.ProxyFromEnvironment
}

// Read reads the user's file and the environment. note hears of each variable of the environment, what
// becomes of it; the home is "" for a user whom the database does not know.
func Read(home string, environ []string, note func(text string)) (*Settings, error) {
	own, err := lines(home)
	if err != nil {
		return nil, err
	}
	s := &Settings{}
	for _, line := range own {
		s.take(line)
	}
	runs := &programs.Finder{Records: programs.Records(home, "")}
	unsafe := func(path string) bool {
		covered, err := runs.Covers(path)
		return err != nil || covered || !rootOnly(path)
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		place := s.place(name)
		if value == "" || place == nil && !certificates(name) || slices.Contains(own, e) {
			continue
		}
		if place == nil && !slices.ContainsFunc(filepath.SplitList(value), unsafe) {
			note(e + " of the environment counts for what pccrun itself sends")
			s.take(e)
			continue
		}
		what := e
		if place != nil { // it may hold a password
			what = name
		}
		note(what + " of the environment does not count for what pccrun itself sends: the same line in ~/" + File + " makes it count")
	}
	return s, nil
}

func certificates(name string) bool { return name == "SSL_CERT_FILE" || name == "SSL_CERT_DIR" }

// place returns what a variable sets, nil where it sets nothing, or is one of [certificates]. A proxy for
// plain HTTP counts by its lower-case name alone, since a server may be given the other by a client.
func (s *Settings) place(name string) *string {
	switch name {
	case "http_proxy":
		return &s.HTTPProxy
	case "https_proxy", "HTTPS_PROXY":
		return &s.HTTPSProxy
	case "no_proxy", "NO_PROXY":
		return &s.NoProxy
	}
	return nil
}

// take takes a line in. Of proxies the first of its kind counts.
func (s *Settings) take(line string) {
	name, value, _ := strings.Cut(line, "=")
	if place := s.place(name); place != nil && *place == "" {
		*place = value
	} else if certificates(name) {
		s.Certificates = append(s.Certificates, filepath.SplitList(value)...)
	}
}

// lines returns the lines of the user's file, none where there is none.
func lines(home string) (list []string, err error) {
	if !filepath.IsAbs(home) {
		return nil, nil
	}
	path := filepath.Join(home, File)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile || info.Mode().Perm()&0o022 != 0) {
		err = fmt.Errorf("%s: not a file of up to %d KiB that only you can write", path, maxFile>>10)
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list, err
}
