//go:build !linux && !darwin

package main

import (
	"errors"

	"github.com/pccrun/pccrun/internal/homes"
)

// diff has nothing to compare where there are no homes yet.
func (r *homeRequest) diff(string, *homes.Entry) int { return failSession(errors.ErrUnsupported) }
