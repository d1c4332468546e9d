package rules

import (
	"errors"
	"strings"
)

// checkPathGlob refuses patterns that could match no canonical path.
func checkPathGlob(path string) error {
	if path == "" {
		return nil
	}
	if strings.Contains(strings.ReplaceAll(path, "**", ""), "***") || strings.Contains(path, "***") {
		return errors.New("bad path: more than two * together")
	}
	if strings.ContainsAny(path, "?#\\") {
		return errors.New("bad path: ? # and \\ do not belong in a rule's path (queries are ignored)")
	}
	return nil
}
