package run

import (
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// newFlow is a run whose command goes on by a plan.
func newFlow(plan providers.Plan, policy *profiles.Policy, home sessions.Home) *flow {
	r := &resolved{request: newRequest(&profiles.Request{}, Program{}, choice{Kind: providers.Kind{Name: "test"}}), policy: policy}
	return &flow{opened: &opened{r, home.Begin(sessions.Info{}), events.NewLog("test")}, planned: &planned{plan: plan}}
}
