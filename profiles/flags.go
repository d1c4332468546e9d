package profiles

import (
	"errors"
	"slices"
	"strings"
)

// flagLayer returns what the flags say as a layer.
func (r *resolver) flagLayer() (*layer, error) {
	req := r.req
	s := r.scope
	s.bare = true
	d := &decoder{scope: &s, source: "flag", layer: layer{source: "flag"}}
	l := &d.layer
	at := func(flag string) Origin { return Origin{Source: "flag", Key: flag} }

	l.files = make([]fileEntry, 0, len(req.Files))
	for _, f := range req.Files {
		o := at("--" + f.Access.String())
		rule, err := d.fileRule(f.Path, d.cwd)
		if err != nil {
			d.at(o, hintOf(err), "%v", err)
			continue
		}
		rule.Access, rule.Origin = f.Access, o
		l.files = append(l.files, fileEntry{FileRule: rule})
	}
	switch o := at("--home"); req.Home {
	case "":
	case Persist.String(), Private.String():
		access, _ := ParseAccess(req.Home)
		l.files = append(l.files, fileEntry{FileRule: FileRule{Path: d.home, Access: access, Origin: o}})
	default:
		d.at(o, "", "%q: want persist or private", req.Home)
	}
	for _, list := range [...]struct {
		flag string
		from []string
	}{{"allow", req.Allow}, {"deny", req.Deny}, {"local", req.Local}, {"publish", req.Publish}} {
		into := l.nets(list.flag)
		for _, text := range list.from {
			if err := checkNet(list.flag, text); err != nil {
				d.at(at("--"+list.flag), hintOf(err), "%v", err)
				continue
			}
			*into = append(*into, NetRule{Text: text, Origin: at("--" + list.flag)})
		}
	}
	for _, text := range req.Sockets {
		path, err := d.path(text, d.cwd)
		if err != nil {
			d.at(at("--socket"), hintOf(err), "%v", err)
			continue
		}
		l.sockets = append(l.sockets, PathRule{Path: path, Origin: at("--socket")})
	}
	for _, name := range req.Use {
		d.useName(name, at("--use"))
	}
	d.envFlags(req.Env)
	for _, text := range req.Inject {
		name, host, _ := strings.Cut(text, "=")
		if !isEnvName(name) || checkNet("inject", host) != nil {
			d.at(at("--inject"), "", "%q: want NAME=HOST", text)
			continue
		}
		// Hosts for one name unite.
		found := false
		for i := range l.inject {
			if l.inject[i].Env == name {
				l.inject[i].Hosts = append(l.inject[i].Hosts, host)
				found = true
			}
		}
		if !found {
			l.inject = append(l.inject, Injection{Env: name, Hosts: []string{host}, Origin: at("--inject")})
		}
	}
	d.sourceFlags(req, at)
	for _, list := range []struct {
		flag   string
		from   []string
		review bool
	}{{"--protect", req.Protect, false}, {"--review", req.Review, true}} {
		for _, text := range list.from {
			pattern, err := d.protectPattern(text)
			if err != nil {
				d.at(at(list.flag), hintOf(err), "%v", err)
				continue
			}
			l.protect = append(l.protect, ProtectRule{Pattern: pattern, Review: list.review, Origin: at(list.flag)})
		}
	}
	for i, text := range req.Limits {
		o := at("--" + limits[i].key)
		switch text {
		case "":
		case "none":
			l.limits[i] = limitEntry{Limit: Limit{Origin: o}, given: true}
		default:
			n, err := parseLimit(i, text, r.req.Host.Memory)
			if err != nil {
				d.at(o, hintOf(err), "%v", err)
				continue
			}
			l.limits[i] = limitEntry{Limit: Limit{Value: n, Origin: o}, given: true}
		}
	}
	if req.Syscalls != "" {
		path := req.Syscalls
		var err error
		if path != "default" {
			path, err = d.path(path, d.cwd)
		}
		if err != nil {
			d.at(at("--syscalls"), hintOf(err), "%v", err)
		}
		l.syscalls = &PathRule{Path: path, Origin: at("--syscalls")}
	}
	if req.Nested {
		l.nested = &boolEntry{true, at("--nested")}
	}
	if req.Report != "" {
		attempts, err := parseReport(req.Report)
		if err != nil {
			d.at(at("--report"), "", "%v", err)
		}
		l.report = &boolEntry{attempts, at("--report")}
	}
	if req.ProtectStrict {
		l.forbid = &boolEntry{true, at("--protect-strict")}
	}
	if req.Strict {
		l.strict = &boolEntry{true, at("--strict")}
	}
	d.contradictions()
	return l, d.err()
}

// envFlags reads NAME and NAME=VALUE.
func (d *decoder) envFlags(flags []string) {
	o := Origin{Source: "flag", Key: "--env"}
	how := map[string]string{}
	for _, text := range flags {
		name, value, set := strings.Cut(text, "=")
		if !isEnvName(name) && (set || !isEnvName(strings.TrimSuffix(name, "*")) && name != "*") {
			d.at(o, "", "%q: want NAME or NAME=VALUE", name)
			continue
		}
		if before, ok := how[name]; ok && before != text {
			d.at(o, "", "%s: given twice", name)
			continue
		}
		how[name] = text
		if set {
			l := setEntry{name: name, EnvSet: EnvSet{Value: value, Origin: o}}
			d.layer.set = append(d.layer.set, l)
		} else {
			d.layer.pass = append(d.layer.pass, EnvRule{Pattern: name, Origin: o})
		}
	}
}

// LimitNames returns the names of the limits, in the order of [Request.Limits]:
// each is a key of resources and a flag.
func LimitNames() []string { return resourceKeys }

// sourceFlags reads where the values of injected variables come from.
func (d *decoder) sourceFlags(req *Request, at func(string) Origin) {
	l := &d.layer
	add := func(flag, text string, read func(in *Injection, value string) error) {
		name, value, _ := strings.Cut(text, "=")
		in := Injection{Env: name, Origin: at(flag)}
		switch err := read(&in, value); {
		case !isEnvName(name) || value == "":
			d.at(in.Origin, "", "%q: want NAME and a value", name)
		case err != nil:
			d.at(in.Origin, hintOf(err), "%s: %v", name, err)
		case slices.ContainsFunc(l.sources, func(have Injection) bool { return have.Env == name }):
			d.at(in.Origin, "", "%s has two sources", name)
		default:
			l.sources = append(l.sources, in)
		}
	}
	for _, text := range req.InjectFiles {
		add("--inject-file", text, func(in *Injection, value string) (err error) {
			in.File, err = d.path(value, d.cwd)
			return err
		})
	}
	for _, text := range req.InjectRun {
		add("--inject-command", text, func(in *Injection, value string) error {
			in.Command = []string{value}
			if !strings.HasPrefix(value, "[") {
				return nil
			}
			v, err := parseJSONC("flag", value)
			in.Command = nil
			for _, item := range v.items {
				if item.kind != kindString {
					return errNoArgv
				}
				in.Command = append(in.Command, item.text)
			}
			if err != nil || len(in.Command) == 0 || in.Command[0] == "" {
				return errNoArgv
			}
			return nil
		})
	}
}

var errNoArgv = errors.New(`want a program, or ["PROGRAM", "ARGUMENT", …]`)
