//go:build !linux && !darwin

package main

import (
	"errors"

	"github.com/pccrun/pccrun/internal/homes"
)

// There are no homes here yet, so nothing to compare and no login.
func (r *homeRequest) diff(string, *homes.Entry) int  { return failSession(errors.ErrUnsupported) }
func (r *homeRequest) login(string, *homes.Entry) int { return failSession(errors.ErrUnsupported) }
