package seatbelt

import (
	"path"
	"slices"

	"github.com/pccrun/pccrun/profiles"
)

// devices allows the few files of /dev that programs need.
func (w *writer) devices(s *Survey) {
	w.comment("Devices: none is the host's terminal.")
	list := []string{`(literal "/dev/null")`, `(literal "/dev/zero")`, `(literal "/dev/random")`,
		`(literal "/dev/urandom")`,
		remark("the command's own terminal, and those that it makes"), `(literal "/dev/ptmx")`}
	if s.Terminal != "" { // without one /dev/tty is the user's, to which a command could type by an ioctl
		list = append(list, `(literal "/dev/tty")`, "(literal "+w.ref(s.Terminal)+")")
	}
	list = append(list, form("require-all", regex("^/dev/ttys[0-9]+$"), `(extension "com.apple.sandbox.pty")`))
	w.rule("allow file-read* file-write-data file-ioctl", list...)
	w.rule("allow file-read* file-write-data", remark("descriptors that are open, by name"), `(subpath "/dev/fd")`)
	w.rule("allow file-read-metadata", `(literal "/dev")`, `(literal "/dev/stdin")`, `(literal "/dev/stdout")`,
		`(literal "/dev/stderr")`)
}

// reading allows what the policy shows, and the way there.
func (w *writer) reading(s *Survey) {
	w.comment("Files that are read, and executed.")
	regions := w.tree.regions(readable)
	w.rule("allow file-read* file-test-existence file-map-executable file-clone process-exec*",
		w.filters(regions, readable)...)

	var way []string
	add := func(dir string) {
		if at := w.tree.at(dir); !at.gives(readable) && !slices.Contains(way, dir) {
			way = append(way, dir)
		}
	}
	for _, r := range regions {
		for dir := path.Dir(r.path); dir != "/" && r.path != "/"; dir = path.Dir(dir) {
			add(dir)
		}
	}
	for _, socket := range w.sockets {
		for dir := path.Dir(socket); dir != "/"; dir = path.Dir(dir) {
			add(dir)
		}
	}
	for _, l := range s.Links {
		if at := w.tree.at(l.From); !at.gives(readable) {
			way = append(way, l.From)
		}
	}
	slices.Sort(way)
	var filters []string
	for _, dir := range slices.Compact(way) {
		filters = append(filters, "(literal "+w.ref(dir)+")")
	}
	if len(filters) > 0 {
		w.comment("Directories on the way to what is shown: that they are there, and not what they hold.")
	}
	w.rule("allow file-read-metadata file-test-existence", filters...)
}

// writing allows what the policy lets be changed. A link is a second name by
// which a file can be changed.
func (w *writer) writing(p *profiles.Policy, s *Survey) error {
	var own, others []*region
	for _, r := range w.tree.regions(writable) {
		if r.decision.Rule.Origin == private {
			own = append(own, r)
		} else {
			others = append(others, r)
		}
	}
	less, err := w.lessProtected(p, s, others)
	if err != nil {
		return err
	}
	filters, shown := w.filters(own, writable), w.filters(others, writable)
	switch {
	case len(others) == 0 || len(less) == 0:
		filters = append(filters, shown...)
	case len(others) == 1:
		filters = append(filters, form("require-all", append(shown, less...)...))
	default:
		filters = append(filters, form("require-all", append([]string{anyOf(shown)}, less...)...))
	}
	w.comment("Files that are changed: none that a tool outside would execute later, in the case of any letter.")
	w.rule("allow file-write* file-link", filters...)
	return nil
}

// filters returns a filter for each region.
func (w *writer) filters(regions []*region, right class) (list []string) {
	for _, r := range regions {
		list = append(list, remark(r.decision.Access.String()+", "+label(r.decision.Rule.Origin)))
		here, turning := w.at(r.path), r.turning(right)
		if len(r.holes) == 0 && len(turning) == 0 {
			list = append(list, here...)
			continue
		}
		parts := []string{anyOf(here)}
		for _, hole := range r.holes {
			for _, filter := range w.at(hole.path) {
				parts = append(parts, not(filter))
			}
		}
		var opening []string
		for _, p := range turning {
			if r.gives(right) {
				parts = append(parts, remark(p.rule.Access.String()+", "+label(p.rule.Origin)), except(r.place, p))
			} else {
				opening = append(opening, remark(p.rule.Access.String()+", "+label(p.rule.Origin)), regex(below(r.path,
					whole(p.expression()))))
			}
		}
		if len(opening) > 0 {
			parts = append(parts, form("require-any", opening...))
			for _, p := range r.patterns { // of two patterns the stricter holds
				if !right(p.rule.Access) {
					parts = append(parts, remark(p.rule.Access.String()+", "+label(p.rule.Origin)), except(r.place, p))
				}
			}
		}
		list = append(list, form("require-all", parts...))
	}
	return list
}

// except returns a filter for what a pattern does not match, or leaves alone.
func except(at *place, p pattern) string {
	filters := []string{not(regex(below(at.path, whole(p.expression()))))}
	if template := p.template(); template != "" && p.rule.Access == profiles.Hide {
		filter := regex(below(at.path, whole(template)))
		if twice := p.twice(); twice != "" {
			filter = form("require-all", filter, not(regex(below(at.path, whole(twice)))))
		}
		filters = append(filters, filter)
	}
	return anyOf(filters)
}
