package macos

import (
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seatbelt"
)

// Example returns the profile that a policy becomes on a Mac, for a run that does not take place:
// on any system. resolve follows links of this machine; nil for a home that is elsewhere.
func Example(p *profiles.Policy, resolve func(path string) string) (seatbelt.Document, error) {
	survey := seatbelt.Example(p.Home)
	var paths []string
	for _, r := range p.Files {
		paths = append(paths, r.Path)
	}
	for _, r := range p.Protect {
		if strings.HasPrefix(r.Pattern, "/") {
			paths = append(paths, r.Pattern)
		}
	}
	for _, sock := range p.Network.Sockets {
		paths = append(paths, sock.Path)
	}
	for _, path := range paths {
		if resolve == nil {
			break
		}
		if to := resolve(path); to != path {
			survey.Links = append(survey.Links, seatbelt.Link{From: path, To: to})
		}
	}
	return seatbelt.Profile(p, survey)
}
