package run

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/run/undecided"
)

// mountUndecided finds what is undecided in the workspace, and adds what of it is mounted to the places of a run.
func (f *prepared) mountUndecided(s *survey.Survey) {
	f.undecided = undecided.Findings{}
	if !f.holds {
		return
	}
	found, err := undecided.Find(f.policy, sessions.In(f.dirs.State), KeepChanges, f.native() && f.uid != 0)
	if err != nil {
		return
	}
	f.undecided = found
	s.Places = append(s.Places, found.Places()...)
}

// makeStubs makes the directories on which the plan mounts it. Where one cannot be made, the run is planned anew.
func (f *flow) makeStubs() error {
	err := f.undecided.MakeStubs(f.addToRecord)
	if err != nil {
		f.holds = errors.Is(err, unix.EEXIST) // then another run has it, which the next plan sees
	}
	return err
}

func (f *flow) removeStubs() { f.undecided.RemoveStubs() }

// sayUndecided says what git inside takes for deleted.
func (f *prepared) sayUndecided() {
	if !f.holds || f.req.Quiet {
		return
	}
	lines, settled := f.undecided.Missing()
	for _, line := range lines {
		messages.Say(line)
	}
	if settled {
		_ = sessions.In(f.dirs.State).Hold(f.policy.Workspace, false) // else the next run looks again
	}
}
