package egress

import (
	"fmt"

	"github.com/pccrun/pccrun/profiles"
)

// Values returns what a policy's injections stand for, NAME=VALUE, for a place that puts
// them into requests itself.
func (s *Secrets) Values(p *profiles.Policy, host *Host) (list []string, err error) {
	finder := host.finder()
	own := *host
	own.Programs = finder.For(p.Changes, finder.Note)
	for i := range p.Network.Inject {
		in := &p.Network.Inject[i]
		value, err := s.value(in, p, &own)
		if err != nil {
			return nil, &profiles.Error{Origin: in.Origin, Cause: fmt.Sprintf("inject %s: %v", in.Env, err)}
		}
		list = append(list, in.Env+"="+value)
	}
	return list, nil
}
