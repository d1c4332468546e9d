//go:build !linux

package egress

import (
	"errors"
	"os"
	"runtime"

	"github.com/pccrun/pccrun/netproxy"
)

var errNoInspector = errors.New("rules for requests and injected secrets need Linux, this is " + runtime.GOOS)

func (in *inspection) start(func() (*os.File, error)) ([]string, error) { return nil, errNoInspector }

func (in *inspection) take(netproxy.Handover) error { return errNoInspector }

func (in *inspection) close() {}
