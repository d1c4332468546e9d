package run

import (
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/run/undecided"
)

// mountUndecided finds what is undecided in the workspace, and adds what of it is mounted to the places of a run.
func (l *planner) mountUndecided(p *planned, s *survey.Survey) {
	if !l.held {
		return
	}
	found, err := undecided.Find(l.policy, sessions.In(l.dirs.State), KeepChanges, l.native() && l.uid != 0)
	if err != nil {
		return
	}
	p.undecided = found
	s.Places = append(s.Places, found.Places()...)
}

func (g *guarded) removeStubs() { g.undecided.RemoveStubs() }

// sayUndecided says what git inside takes for deleted.
func (p *prepared) sayUndecided() {
	if !p.held || p.req.Quiet {
		return
	}
	lines, settled := p.undecided.Missing()
	for _, line := range lines {
		messages.Say(line)
	}
	if settled {
		_ = sessions.In(p.dirs.State).Hold(p.policy.Workspace, false) // else the next run looks again
	}
}
