package remote

import (
	"regexp"
	"strings"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// A Filter is what a provider's own filter of names can say of a policy's network: a second
// layer around what pccrun keeps in the sandbox, never narrower than that.
type Filter struct {
	Hosts []string // names, "*." in front of those that stand for all below
	Open  string   // the rule that such a filter cannot say, so that it is not set; "" for none
}

var plainName = regexp.MustCompile(`^(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)+$`)

// FilterOf translates rules that are no more than names, which stand for ports 80 and 443.
func FilterOf(r *Request) (f Filter) {
	if r.Ask {
		return Filter{Open: "--ask"}
	}
	for _, rule := range r.Policy.Network.Allow {
		host := strings.TrimPrefix(strings.TrimSpace(rule.Text), "allow ")
		if _, err := rules.Parse(rule.Text); err != nil || !plainName.MatchString(host) {
			return Filter{Open: rule.Text}
		}
		f.Hosts = append(f.Hosts, host)
	}
	return f
}
