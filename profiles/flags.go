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
		if rule, err := d.fileRule(f.Path, d.cwd); !d.bad(o, err) {
			rule.Access, rule.Origin = f.Access, o
			l.files = append(l.files, fileEntry{FileRule: rule})
		}
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
		for _, text := range list.from {
			d.net(list.flag, text, at("--"+list.flag))
		}
	}
	for _, text := range req.Sockets {
		d.socket(text, d.cwd, at("--socket"))
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
		i := slices.IndexFunc(l.inject, func(in Injection) bool { return in.Env == name })
		if i < 0 {
			i = len(l.inject)
			l.inject = append(l.inject, Injection{Env: name, Origin: at("--inject")})
		}
		l.inject[i].Hosts = append(l.inject[i].Hosts, host) // hosts for one name unite
	}
	d.sourceFlags(req, at)
	for _, text := range req.Protect {
		d.protect(text, "deny", at("--protect"))
	}
	for _, text := range req.Review {
		d.protect(text, "review", at("--review"))
	}
	for i, text := range req.Limits {
		o := at("--" + limits[i].key)
		switch text {
		case "":
		case "none":
			l.limits[i] = limitEntry{Limit: Limit{Origin: o}, given: true}
		default:
			d.limit(i, text, o)
		}
	}
	if req.Syscalls != "" {
		path := req.Syscalls
		var err error
		if path != "default" {
			path, err = d.path(path, d.cwd)
		}
		d.bad(at("--syscalls"), err)
		l.syscalls = &PathRule{Path: path, Origin: at("--syscalls")}
	}
	if req.Nested {
		l.nested = &boolEntry{true, at("--nested")}
	}
	if req.Report != "" {
		d.report(req.Report, at("--report"))
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
		add("--inject-command", text, func(in *Injection, value string) (err error) {
			in.Command = []string{value}
			if !strings.HasPrefix(value, "[") {
				if strings.Contains(value, "/") {
					in.Command[0], err = d.path(value, d.cwd)
				}
				return err
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
