// Package docker runs a policy in a container of an engine of this machine, with
// runc or with gVisor's runsc.
//
// The container's root is an empty image with binds of what the policy shows of the
// host's own system, or an image of the user's. Its first process is pccrun itself
// (package inside), bound read-only, which compares the mounts with the survey,
// takes rights away, and starts the command. There is no network. One connection, which the engine
// carries between that process and the launcher, carries all as streams: messages, what the command
// reads and prints, its connections and its questions for names, on which package egress decides here.
//
// It promises that no word of the command, of its environment or of a secret stands
// in what the engine is asked for or keeps; that the command starts only if each
// mount is what the survey saw and the runtime is the one that was asked for; and
// that the container ends when the launcher does, however that ended. An engine
// whose files are not this machine's is refused: a file of a random name decides.
//
// An engine whose kernel is another is in a virtual machine that shares directories
// of this machine (Docker Desktop, Colima). No socket of this machine is reached from there.
// Inode numbers are compared only if the machine passes them on, and kinds of file systems always: its own files are none of ours. It finds
// names in any capitals where this machine does, which no mount covers.
package docker

import (
	"cmp"
	"fmt"

	"github.com/pccrun/pccrun/profiles"
)

// Name is what --provider calls it.
const Name = "docker"

// The runtimes that are known, as engines name them.
const (
	Runc  = "runc"
	Runsc = "runsc" // gVisor's
)

// Options are what flags say of the engine.
type Options struct {
	Runtime string // "" for runc
	Image   string // "" for the host's own system
	Network string // "" for none: nothing but what the rules allow; bridge and host are the engine's own
}

// The networks that can be asked for, as engines name them.
const (
	noNetwork     = "none"
	bridgeNetwork = "bridge"
	hostNetwork   = "host"
)

// Complete takes what no flag says from the variables PARALLEL_CC_DOCKER_*.
func (o Options) Complete(environ *profiles.Host) Options {
	o.Network = cmp.Or(o.Network, environ.Getenv("PARALLEL_CC_DOCKER_NETWORK"))
	return o
}

// An EngineError says what is wrong with the engine, and what mends it.
type EngineError struct {
	Text, Advice string
	Err          error

	unmade bool // the engine could not set the container up
}

func (e *EngineError) Error() string {
	if e.Err == nil {
		return "docker: " + e.Text
	}
	return fmt.Sprintf("docker: %s: %s", e.Text, e.Err)
}

// Unwrap returns the cause.
func (e *EngineError) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *EngineError) Hint() string { return e.Advice }
