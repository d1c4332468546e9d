// Package outgoing says which certificate authorities and proxies count for what pccrun itself sends:
// renewed logins, keys of clouds, what goes out of a sandbox, and what package managers are asked.
//
// It promises that no project decides that. What counts are the lines of the file environment of
// ~/.config/pccrun, in the home that the user database has. Of the environment a proxy never counts by
// itself, and a file of authorities if root alone can change where its path leads, and no run could write
// there. What counts of the environment is named, and what does not.
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
	Lines        []string // NAME=VALUE, for a program that is to go the same way; each name once

	HTTPProxy, HTTPSProxy, NoProxy string // see net/http.ProxyFromEnvironment

	finder *programs.Finder
	note   func(text string)
	asked  bool // for the certificates of the environment
}

// Read reads the user's file, and the environment that a finder has of the same user. note hears what
// becomes of the environment.
func Read(f *programs.Finder, note func(text string)) (*Settings, error) {
	own, err := lines(f.Home)
	if err != nil {
		return nil, err
	}
	s := &Settings{finder: f, note: note}
	for _, line := range own {
		s.take(line)
	}
	var not []string // by name alone: a proxy may hold a password
	for _, e := range f.Environ {
		name, value, _ := strings.Cut(e, "=")
		if place := s.place(name); place != nil && value != "" && value != *place {
			not = append(not, name)
		}
	}
	if len(not) > 0 {
		s.ignored(strings.Join(not, ", "))
	}
	return s, nil
}

func (s *Settings) ignored(what string) {
	mends := "the same line in ~/" + File + " makes it count"
	if !programs.HasHome(s.finder.Home) {
		mends = "the user database has no home of yours, in which a file could make it count"
	}
	s.note(what + " of the environment does not count for what pccrun itself sends: " + mends)
}

// Trust takes the files and directories of authorities in that SSL_CERT_FILE and SSL_CERT_DIR of the environment
// name, as far as they count.
func (s *Settings) Trust() {
	if s.asked {
		return
	}
	s.asked = true
	for _, e := range s.finder.Environ {
		name, value, _ := strings.Cut(e, "=")
		if value == "" || !certificates(name) || slices.Contains(s.Lines, e) {
			continue
		}
		if slices.ContainsFunc(filepath.SplitList(value), func(path string) bool { return !s.Counts(path) }) {
			s.ignored(e)
			continue
		}
		if slices.ContainsFunc(filepath.SplitList(value), func(path string) bool { return !Systems(path) }) {
			s.note(e + " of the environment counts for what pccrun itself sends")
		}
		s.take(e)
	}
}

// Systems reports whether a path is where systems have their own authorities: that it counts is no news.
func Systems(path string) bool {
	return strings.HasPrefix(path, "/etc/ssl/") || strings.HasPrefix(path, "/etc/pki/")
}

// Counts reports whether a file of authorities counts that anything names but the user's file.
func (s *Settings) Counts(path string) bool {
	if slices.ContainsFunc(s.Certificates, func(own string) bool { return path == own || filepath.Dir(path) == filepath.Clean(own) }) {
		return true
	}
	covered, err := s.finder.Covers(path)
	return err == nil && !covered && rootOnly(path)
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

// take takes a line in. The first of its kind counts.
func (s *Settings) take(line string) {
	name, value, _ := strings.Cut(line, "=")
	switch place := s.place(name); {
	case place != nil && *place == "":
		*place = value
	case certificates(name):
		s.Certificates = append(s.Certificates, filepath.SplitList(value)...)
	default:
		return
	}
	if !slices.ContainsFunc(s.Lines, func(have string) bool { return strings.HasPrefix(have, name+"=") }) {
		s.Lines = append(s.Lines, line)
	}
}

// lines returns the lines of the user's file, none where there is none.
func lines(home string) (list []string, err error) {
	if !programs.HasHome(home) {
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
