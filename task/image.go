//go:build unix

package task

import (
	"fmt"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
)

// checkImage refuses an image without what a task executes there, before anything is made: git, sh and the agent. It starts the
// image once, with the agent's profile, so that what the user has shown of this machine counts.
func (a *Asked) checkImage() error {
	o := &a.order
	if o.Image == "" {
		return nil
	}
	profile := o.Profile
	if profile == "" {
		profile = o.Agent.Name
	}
	last, err := phase{
		dir: a.repo.top, place: o.Place, flags: append([]string{"--profile", profile}, o.Flags...), timeout: patience,
		command: []string{"sh", "-c", `for program; do command -v "$program" > /dev/null || echo "$program" >&2; done`, "sh", "git", o.Agent.Name},
	}.run(a.stop)
	if err == nil {
		err = last.refusal("a task needs git, sh and the agent in the image") // which names what of sh is missing
	}
	switch missing := last.lastLines(2); {
	case err != nil:
		return err
	case last.code != 0:
		return fmt.Errorf("image %s: %s", o.Image, last.failure())
	case len(missing) > 0:
		return hint.Errorf("without --docker-image the container has this machine's programs; or an image of yours: FROM "+o.Image+", with RUN for what installs it",
			"the image %s has no %s: a task needs git, sh and the agent there", o.Image, strings.Join(missing, ", no "))
	}
	return nil
}
