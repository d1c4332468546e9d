package remote

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"
)

// What the adapters have in common.

var idShape = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// CheckID says that an answer has no id that may be a part of an address.
func CheckID(provider, what, id string) error {
	if idShape.MatchString(id) {
		return nil
	}
	return fmt.Errorf("%s: the answer names no %s", provider, what)
}

// Gone makes an answer of 404 about a sandbox an [ErrGone].
func Gone(err error) error {
	var e *APIError
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// Gather reads a list that comes in pages: get returns one, and the name of the next; take says what one
// of it is.
func Gather[T any](get func(page string) (list []T, next string, err error), take func(*T) (*Sandbox, error)) (all []Sandbox, err error) {
	page := ""
	for range 100 {
		list, next, err := get(page)
		if err != nil {
			return nil, err
		}
		for i := range list {
			s, err := take(&list[i])
			if err != nil {
				return nil, err
			}
			all = append(all, *s)
		}
		if next == "" || next == page {
			break
		}
		page = next
	}
	return all, nil
}

// AccessOf returns what an adapter has put into a sandbox.
func AccessOf[T any](provider string, s *Sandbox) (T, error) {
	at, ok := s.Access.(T)
	if !ok {
		return at, fmt.Errorf("BUG: %s: sandbox %s of another provider, or of a list", provider, s.ID)
	}
	return at, nil
}

// Within is how long an upload may take: one that is slower than 64 KiB a second is none.
func (a *Archive) Within() time.Duration {
	return time.Minute + time.Duration(a.Size/(64<<10))*time.Second
}

// Hourly is what a sandbox costs in an hour.
func (s *Sandbox) Hourly(perCPU, perGiB float64) float64 {
	return perCPU*s.CPUs + perGiB*float64(s.MemoryMB)/1024
}
