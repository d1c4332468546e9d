package run

import "github.com/pccrun/pccrun/profiles"

// newFlow is a run that has gone through no stage.
func newFlow(req *profiles.Request, program Program, c choice) *flow {
	return &flow{prepared: &prepared{resolved: &resolved{request: newRequest(req, program, c)}}, signals: make(chan int, 16)}
}
