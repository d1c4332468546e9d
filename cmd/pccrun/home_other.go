//go:build !linux && !darwin

package main

import (
	"errors"

	"github.com/pccrun/pccrun/internal/homes"
)

// There are no homes here yet, and so no login.
func (r *homeRequest) login(string, *homes.Entry) int { return failSession(errors.ErrUnsupported) }
