package macos

import (
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seatbelt"
)

// A Preview answers for a policy as a Mac would, on any system: from the profile that the policy
// becomes there.
type Preview struct {
	Text   string           // of the profile
	Params []seatbelt.Param // of sandbox-exec

	policy  *profiles.Policy
	resolve func(path string) string
	survey  seatbelt.Survey
	rules   *seatbelt.Rules
}

// An Answer says whether something is allowed, in words which line of the profile decides, and
// which rule of the policy that line comes from.
type Answer struct {
	Yes      bool
	Text     string
	LeadsTo  string // what the path is a link to, if it is one
	Rule     profiles.Origin
	RuleText string
}

// NewPreview makes the profile. resolve follows links of this machine; nil for a home that is
// elsewhere.
func NewPreview(p *profiles.Policy, resolve func(path string) string) (*Preview, error) {
	v := &Preview{policy: p, resolve: resolve, survey: seatbelt.Example(p.Home)}
	if resolve == nil {
		v.resolve = func(path string) string { return path }
	}
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
		if to := v.resolve(path); to != path {
			v.survey.Links = append(v.survey.Links, seatbelt.Link{From: path, To: to})
		}
	}
	doc, err := seatbelt.Profile(p, v.survey)
	if err != nil {
		return nil, err
	}
	v.Text, v.Params = doc.Text, doc.Params
	v.rules, err = seatbelt.Parse(doc.Text, doc.Params)
	return v, err
}

// File answers for an absolute path: read, write or exec. To write is to change it, and to make it
// where it is not.
func (v *Preview) File(question, path string) (a Answer, err error) {
	real := v.survey.Real(v.resolve(path))
	if real != path {
		a.LeadsTo = real
	}
	operations := map[string][]string{
		"read": {"file-read-data"}, "exec": {"process-exec"}, "write": {"file-write-create", "file-write-data"},
	}
	for _, op := range operations[question] {
		verdict, err := seatbelt.Evaluate(v.rules, op, seatbelt.Target{Path: real})
		if err != nil {
			return a, err
		}
		if a.Yes, a.Text = verdict.Allowed, lineOf(verdict); !a.Yes {
			break
		}
	}
	d, err := seatbelt.Decide(v.policy, v.survey, real)
	if err != nil {
		return a, err
	}
	a.Rule, a.RuleText = d.Rule.Origin, d.Access.String()+" "+d.Rule.Text()
	if r, ok := v.policy.ProtectedAnywhere(real); ok && !r.Review && !a.Yes && question == "write" && d.Access == profiles.Write {
		a.Rule, a.RuleText = r.Origin, "protect "+r.Pattern
	}
	if d.Access == profiles.Private || d.Access == profiles.Persist {
		a.Text += "; there HOME and TMPDIR are private directories"
	}
	return a, nil
}

// Socket answers for a Unix socket. Rule is empty if no rule names it.
func (v *Preview) Socket(path string) (a Answer, err error) {
	verdict, err := seatbelt.Evaluate(v.rules, "network-outbound", seatbelt.Target{Path: v.survey.Real(path)})
	a.Yes, a.Text = verdict.Allowed, lineOf(verdict)
	for _, s := range v.policy.Network.Sockets {
		if s.Path == path {
			a.Rule, a.RuleText = s.Origin, "socket "+s.Path
		}
	}
	return a, err
}

// Host says whether the profile itself lets a connection out, and whether the proxy of a run can be
// reached, which decides by name.
func (v *Preview) Host(name string, port uint16) (direct, proxy Answer, err error) {
	verdict, err := seatbelt.Evaluate(v.rules, "network-outbound", seatbelt.Address(name, port))
	if err != nil {
		return direct, proxy, err
	}
	direct.Yes, direct.Text, proxy.Yes = verdict.Allowed, lineOf(verdict), true
	for _, at := range v.survey.Proxy {
		if verdict, err = seatbelt.Evaluate(v.rules, "network-outbound", seatbelt.Address("localhost", at)); err != nil {
			return direct, proxy, err
		}
		if proxy.Yes = proxy.Yes && verdict.Allowed; proxy.Yes {
			proxy.Text = lineOf(verdict)
		}
	}
	return direct, proxy, nil
}

// lineOf says which line of the profile gave a verdict.
func lineOf(v seatbelt.Verdict) string {
	line := "line " + strconv.Itoa(v.Line) + " of the profile "
	switch {
	case v.Line == 0:
		return "no rule of the profile allows it"
	case v.Allowed:
		return line + "allows it"
	}
	return line + "denies it"
}
