package run

import (
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// Run runs what the request asks for and returns the status to exit with.
func Run(req profiles.Request, program Program) int { return runPlain(&req, program) }

// Inquire asks this machine what it would keep of the default policy in the current directory, for
// doctor. The error says why it cannot be used, or what it misses.
func Inquire(program Program, k providers.Kind) ([]profiles.Answer, error) {
	if k.Name != providers.Native {
		return nil, &providers.UnusableError{Provider: k.Name, Cause: "not built for this system yet"}
	}
	req := &profiles.Request{Host: profiles.ThisHost(), Command: []string{"/usr/bin/true"}, DryRun: true}
	r := &plain{req: req, program: program}
	err := r.prepare(k)
	return r.answers, err
}

// Inside says that a sandbox elsewhere runs Linux.
func Inside(Program, string) int { return messages.Fail("inside: needs Linux") }
