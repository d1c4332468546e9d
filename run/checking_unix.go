//go:build unix

package run

import (
	"fmt"

	"github.com/pccrun/pccrun/internal/sessions"
)

// Checking returns what says which of the runs that go on checks a path at its end: its session, "" for none.
func Checking(home sessions.Home) (func(path string) (session string), error) {
	runs := map[string]func(path string) bool{}
	err := home.EachUnfinished(func(id, text string) (err error) {
		if runs[id], err = checkedBy(text); err != nil {
			err = fmt.Errorf("session %s: %w", id, err)
		}
		return err
	})
	return func(path string) string {
		for id, checks := range runs {
			if checks(path) {
				return id
			}
		}
		return ""
	}, err
}
