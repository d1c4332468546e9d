//go:build !linux

package main

import (
	"errors"
	"os"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/profiles/proposals"
)

// seen is what a run has told: nothing can run here.
type seen struct {
	exit    *int
	refused *events.Refused
	lost    int64
}

func observe([]string) (*seen, int, error) { return nil, 0, errors.ErrUnsupported }

func (*seen) denials(*profiles.Request, *profiles.Policy) []proposals.Denial { return nil }

func listFiles(string, int) ([]string, bool) { return nil, false }

func openTerminal(bool) *os.File { return nil }

func yes(*os.File, string) bool { return false }
