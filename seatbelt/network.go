package seatbelt

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// network allows the proxy, and what the policy names.
func (w *writer) network(p *profiles.Policy, s *Survey) {
	ports := func(key, side string, rules []profiles.NetRule) (filters []string) {
		for _, r := range rules {
			if port, err := strconv.ParseUint(r.Text[strings.LastIndexByte(r.Text, ':')+1:], 10, 16); err == nil {
				filters = append(filters, remark("network."+key+", "+label(r.Origin)), port16(side, uint16(port)))
			}
		}
		return filters
	}
	var out []string
	if s.Proxy > 0 {
		w.comment("The network: the proxy, which decides by name, and ports of the loopback that the policy names.")
		out = []string{remark("the proxy of this run"), port16("remote", s.Proxy)}
	}
	w.rule("allow network-outbound", append(out, ports("local", "remote", p.Network.Local)...)...)
	in := ports("publish", "local", p.Network.Publish)
	if len(in) > 0 {
		w.comment("Ports on which the command may listen.")
	}
	w.rule("allow network-bind network-inbound", in...)

	w.comment("Unix sockets: in the command's own directories, and those that the policy names.")
	w.rule("allow system-socket", "(socket-domain AF_UNIX)")
	var own, named []string
	for _, dir := range []string{s.Home, s.Temp} {
		if dir != "" {
			own = append(own, "(subpath "+w.ref(dir)+")")
		}
	}
	for _, rule := range p.Network.Sockets {
		socket := s.Real(rule.Path)
		w.sockets = append(w.sockets, socket)
		named = append(named, remark("network.sockets, "+label(rule.Origin)),
			"(remote unix-socket (path-literal "+w.ref(socket)+"))")
	}
	unix := func(side string) (filters []string) {
		for _, dir := range own {
			filters = append(filters, "("+side+" unix-socket "+dir+")")
		}
		return filters
	}
	w.rule("allow network-bind network-inbound", unix("local")...)
	w.rule("allow network-outbound", append(unix("remote"), named...)...)
}

func port16(side string, port uint16) string {
	return fmt.Sprintf(`(%s ip "localhost:%d")`, side, port)
}
