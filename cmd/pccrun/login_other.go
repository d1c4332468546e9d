//go:build !linux && !darwin

package main

import (
	"errors"

	"github.com/pccrun/pccrun/internal/homes"
)

// login has nothing to do where there are no homes yet.
func (r *homeRequest) login(string, *homes.Entry) int { return failSession(errors.ErrUnsupported) }
