//go:build !linux

package sessions

import (
	"errors"
	"os"
	"time"
)

// ErrGone is returned for a process that has ended.
var ErrGone = errors.New("the process has ended")

// ErrAlive is returned when a process outlived the patience.
var ErrAlive = errors.New("it still runs")

func self() Process            { return Process{Pid: os.Getpid()} }
func identify(pid int) Process { return Process{Pid: pid} }

// Kill cannot tell here whether a pid still means the same process.
func (h Home) Kill(Entry, os.Signal, time.Duration) error { return errors.ErrUnsupported }
