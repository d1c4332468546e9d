//go:build !linux

package sessions

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// Self returns this process.
func Self() Process            { return Process{Pid: os.Getpid()} }
func identify(pid int) Process { return Process{Pid: pid} }

// Signal cannot tell here whether a pid still means the same process.
func (p Process) Signal(syscall.Signal, time.Duration) error { return errors.ErrUnsupported }

// Rebooted cannot tell here.
func (p Process) Rebooted() bool { return false }

// setTime sets the time of a file, if it is there.
func setTime(path string, at time.Time) { _ = os.Chtimes(path, at, at) }

// Kill cannot tell here whether a pid still means the same process.
func (h Home) Kill(Entry, os.Signal, time.Duration) error { return errors.ErrUnsupported }

// Usage cannot be had here.
func (e Entry) Usage() (Usage, error) { return Usage{}, errors.ErrUnsupported }

// A Follower waits for a session to tell more.
type Follower struct{}

func (h Home) Follow(Entry) (*Follower, error) { return nil, errors.ErrUnsupported }
func (f *Follower) Wait() bool                 { return false }
func (f *Follower) Close()                     {}
