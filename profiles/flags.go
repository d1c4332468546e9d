package profiles

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Flag is one flag that says what the policy is. The table is the command line's too: it sets
// the request by it, and prints it as help.
type Flag struct {
	Name string // with its dashes
	Arg  string // how help names its value, "" where it has none; closed lists have their words with | between
	Help string // what it does

	// Field says where a request has it: a *string, which is given once, a *bool, a *[]string or a *[]FileFlag.
	Field func(*Request) any

	commas bool   // several values may stand in one, with commas between
	access Access // of a *[]FileFlag

	key  keyID                                   // what it says something of; none where the layer has nothing of it
	read func(d *decoder, text string, o Origin) // how, where it is not as an entry of the key
}

// Flags is the table.
var Flags = [...]Flag{
	{Name: "--profile", Arg: "NAME|FILE", Help: "use this profile, not the one for the command's name", Field: func(r *Request) any { return &r.Profile }},
	{Name: "--workspace", Arg: "DIR", Help: "the directory that the command may change", Field: func(r *Request) any { return &r.Workspace }},
	{Name: "--settings", Arg: "FILE", Help: "add the rules of an srt or Claude Code settings file", Field: func(r *Request) any { return &r.Settings }},
	{Name: "--hide", Arg: "PATH", Help: "its content is never readable", Field: ofFiles, access: Hide, key: keyFilesystem},
	{Name: "--private", Arg: "PATH", Help: "empty, writable, deleted at exit", Field: ofFiles, access: Private, key: keyFilesystem},
	{Name: "--read", Arg: "PATH", Help: "readable, not writable", Field: ofFiles, access: Read, key: keyFilesystem},
	{Name: "--overlay", Arg: "PATH", Help: "copy-on-write", Field: ofFiles, access: Overlay, key: keyFilesystem},
	{Name: "--write", Arg: "PATH", Help: "writable: the command changes the host's file", Field: ofFiles, access: Write, key: keyFilesystem},
	{Name: "--home", Arg: "persist|private", Help: "keep the home for the next run here, or delete it at exit", Field: func(r *Request) any { return &r.Home }, key: keyFilesystem, read: (*decoder).homeFlag},
	{Name: "--no-login", Help: "copy none of your logins into the home", Field: func(r *Request) any { return &r.NoLogin }},
	{Name: "--fresh-home", Help: "use a new home with the same seeds, deleted at exit", Field: func(r *Request) any { return &r.FreshHome }},
	{Name: "--protect", Arg: "PATH", Help: "cannot be changed, because a host tool would execute it", Field: func(r *Request) any { return &r.Protect }, key: keyProtectDeny},
	{Name: "--review", Arg: "PATH", Help: "may be changed, and is listed at exit", Field: func(r *Request) any { return &r.Review }, key: keyProtectReview},
	{Name: "--allow", Arg: "RULE", Help: "allow a host", Field: func(r *Request) any { return &r.Allow }, key: keyAllow},
	{Name: "--deny", Arg: "RULE", Help: "deny a host, even if another rule allows it", Field: func(r *Request) any { return &r.Deny }, key: keyDeny},
	{Name: "--local", Arg: "PORT", Help: "allow a port of the host's loopback, as localhost too", Field: func(r *Request) any { return &r.Local }, key: keyLocal},
	{Name: "--publish", Arg: "[HOST:]INSIDE", Help: "forward a port of the host's loopback to a port inside", Field: func(r *Request) any { return &r.Publish }, key: keyPublish},
	{Name: "--socket", Arg: "PATH", Help: "allow a unix socket of the host", Field: func(r *Request) any { return &r.Sockets }, key: keySockets},
	{Name: "--use", Arg: "NAME", Help: "allow a service of the host: ssh-agent, gpg-agent, docker, git-config, git-credentials", Field: func(r *Request) any { return &r.Use }, commas: true, key: keyUse},
	{Name: "--env", Arg: "NAME[=VALUE]", Help: "pass a variable of the host, or set one", Field: func(r *Request) any { return &r.Env }, key: keyPass, read: (*decoder).envFlag},
	{Name: "--github-token", Arg: "OWNER/NAME|origin", Help: "git and gh use your GitHub token, for this repository alone", Field: func(r *Request) any { return &r.GitHubToken }, key: keyInject, read: githubToken},
	{Name: "--inject", Arg: "NAME=HOST", Help: "the command gets a placeholder; only HOST, or https://HOST/PATH, gets the value", Field: func(r *Request) any { return &r.Inject }, key: keyInject, read: (*decoder).injectFlag},
	{Name: "--inject-file", Arg: "NAME=PATH", Help: "read its value from a file that stays hidden inside", Field: func(r *Request) any { return &r.InjectFiles }, key: keyInject, read: (*decoder).injectSource},
	{Name: "--inject-command", Arg: "NAME=PROGRAM", Help: "take its value from the output of a program on the host", Field: func(r *Request) any { return &r.InjectRun }, key: keyInject, read: (*decoder).injectSource},
	{Name: "--memory", Arg: "SIZE", Help: "memory and swap of all processes together, e.g. 4g or 50%", Field: func(r *Request) any { return &r.Limits[0] }, key: keyMemory},
	{Name: "--cpus", Arg: "N", Help: "processors, e.g. 2 or 0.5", Field: func(r *Request) any { return &r.Limits[1] }, key: keyCPUs},
	{Name: "--pids", Arg: "N", Help: "processes and threads", Field: func(r *Request) any { return &r.Limits[2] }, key: keyPids},
	{Name: "--files", Arg: "N", Help: "open files of a process", Field: func(r *Request) any { return &r.Limits[3] }, key: keyFiles},
	{Name: "--filesize", Arg: "SIZE", Help: "size of the largest file", Field: func(r *Request) any { return &r.Limits[4] }, key: keyFileSize},
	{Name: "--disk", Arg: "SIZE", Help: "private and overlay file systems together", Field: func(r *Request) any { return &r.Limits[5] }, key: keyDisk},
	{Name: "--timeout", Arg: "DURATION", Help: "wall time, e.g. 10m; then TERM, KILL and exit status 124", Field: func(r *Request) any { return &r.Limits[6] }, key: keyTimeout},
	{Name: "--image", Arg: "NAME", Help: "what the place is made of: an image, a template, a snapshot", Field: func(r *Request) any { return &r.Image }, key: keyImage},
	{Name: "--docker-image", Arg: "NAME", Help: "--image, of --provider docker", Field: func(r *Request) any { return &r.DockerImage }, key: keyImage},
	{Name: "--e2b-template", Arg: "NAME", Help: "--image, of --provider e2b", Field: func(r *Request) any { return &r.E2BTemplate }, key: keyImage},
	{Name: "--size", Arg: "2cpu,4g", Help: "of a cloud's sandbox: the nearest at or above that there is", Field: func(r *Request) any { return &r.Size }, key: keySize},
	{Name: "--region", Arg: "NAME", Help: "where a cloud's sandbox is", Field: func(r *Request) any { return &r.Region }, key: keyRegion},
	{Name: "--daytona-target", Arg: "NAME", Help: "--region, of --provider daytona", Field: func(r *Request) any { return &r.Target }, key: keyRegion},
	{Name: "--keep", Arg: "DURATION", Help: "keep the cloud's sandbox for the next run with --keep here", Field: func(r *Request) any { return &r.Keep }, key: keyKeep},
	{Name: "--syscalls", Arg: "default|FILE", Help: "use an OCI seccomp profile", Field: func(r *Request) any { return &r.Syscalls }, key: keySyscalls},
	{Name: "--nested", Help: "allow user namespaces inside: browsers, bwrap", Field: func(r *Request) any { return &r.Nested }, key: keyNested},
	{Name: "--strict", Help: "refuse to run if a guarantee is only weakly kept", Field: func(r *Request) any { return &r.Strict }, key: keyStrict},
	{Name: "--report", Arg: "attempts|none", Help: "list denied file accesses at exit", Field: func(r *Request) any { return &r.Report }, key: keyReport},
	{Name: "--protect-strict", Help: "forbid creating protected names, at a cost", Field: func(r *Request) any { return &r.ProtectStrict }, key: keyProtectStrict},
	{Name: "--allow-missing", Arg: "GUARANTEE", Help: "run even if this host cannot keep it; several with commas", Field: func(r *Request) any { return &r.AllowMissing }, commas: true},
	{Name: "--without", Arg: "LAYER", Help: "switch a layer off, for tests; several with commas", Field: func(r *Request) any { return &r.Without }, commas: true},
}

func ofFiles(r *Request) any { return &r.Files }

// Set sets what a flag says in a request.
func (f *Flag) Set(r *Request, value string) error {
	switch at := f.Field(r).(type) {
	case *bool:
		*at = true
	case *string:
		if *at != "" && *at != value {
			return errors.New("given twice, as " + quote(*at) + " and " + quote(value))
		}
		*at = value
	case *[]FileFlag:
		*at = append(*at, FileFlag{Path: value, Access: f.access})
	case *[]string:
		if f.commas {
			*at = append(*at, strings.Split(value, ",")...)
		} else {
			*at = append(*at, value)
		}
	}
	return nil
}

// About is what a value of the flag speaks of: of two that speak of the same one holds.
func (f *Flag) About(value string) string {
	about := cmp.Or(keys[f.key].rivals, f.key)
	switch f.Field(&Request{}).(type) {
	case *string, *bool:
		return f.Name
	case *[]string:
		if about == keyNone {
			return f.Name + " " + value
		} else if f.key == keyPass {
			value, _, _ = strings.Cut(value, "=")
		}
	}
	return fmt.Sprint(about, " ", value)
}

// values returns what a request has of a flag: of one without a value, true.
func (f *Flag) values(r *Request) []string {
	switch at := f.Field(r).(type) {
	case *bool:
		if *at {
			return []string{"true"}
		}
	case *string:
		if *at != "" {
			return []string{*at}
		}
	case *[]string:
		return *at
	}
	return nil
}

// flagLayer returns what the flags say as a layer.
func (r *resolver) flagLayer() (*layer, error) {
	s := r.scope
	s.bare, s.dot, s.base = true, s.cwd, s.cwd
	d := &decoder{scope: &s, source: "flag", layer: layer{source: "flag", entries: make([]entry, 0, len(r.req.Files))}}
	for _, f := range r.req.Files {
		d.file(f.Path, opAdd, f.Access, Origin{Source: "flag", Key: "--" + f.Access.String()})
	}
	for i := range Flags {
		f := &Flags[i]
		if f.key == keyNone {
			continue
		}
		o := Origin{Source: "flag", Key: f.Name}
		for _, text := range f.values(r.req) {
			switch {
			case f.read != nil:
				f.read(d, text, o)
			case text == "none" && keys[f.key].kind == holdsLimit:
				d.put(entry{key: f.key, origin: o})
			default:
				d.read(f.key, opAdd, text, o)
			}
		}
	}
	d.contradictions()
	return &d.layer, d.err()
}

// homeFlag reads persist or private.
func (d *decoder) homeFlag(word string, o Origin) {
	if word != Persist.String() && word != Private.String() {
		d.at(o, "", "%q: want persist or private", word)
		return
	}
	access, _ := ParseAccess(word)
	d.put(entry{key: keyFilesystem, text: d.home, number: int64(access), origin: o})
}

// envFlag reads NAME and NAME=VALUE.
func (d *decoder) envFlag(text string, o Origin) {
	name, value, set := strings.Cut(text, "=")
	e := entry{key: keyPass, text: name, origin: o}
	if set {
		e.key, e.more = keySet, value
	}
	again := func(have entry) bool {
		return (have.key == keyPass || have.key == keySet) && have.text == name && (have.key != e.key || have.more != value)
	}
	switch {
	case !isEnvName(name) && (set || !isEnvName(strings.TrimSuffix(name, "*")) && name != "*"):
		d.at(o, "", "%q: want NAME or NAME=VALUE", name)
	case slices.ContainsFunc(d.layer.entries, again):
		d.at(o, "", "%s: given twice", name)
	default:
		d.put(e)
	}
}

// injectFlag reads NAME=HOST. Hosts for one name unite.
func (d *decoder) injectFlag(text string, o Origin) {
	name, host, _ := strings.Cut(text, "=")
	if !isEnvName(name) || checkNet("inject", host) != nil {
		d.at(o, "", "%q: want NAME=HOST", text)
		return
	}
	for e := range d.layer.each(keyInject) {
		if e.inject.Env == name && e.inject.Repository != "" {
			d.at(o, "", "%s is what --github-token injects", name)
			return
		}
		if e.inject.Env == name {
			e.inject.Hosts = append(e.inject.Hosts, host)
			return
		}
	}
	d.put(entry{key: keyInject, inject: &Injection{Env: name, Hosts: []string{host}, Origin: o}, origin: o})
}

// injectSource reads where the value of an injected variable comes from: NAME=PATH of --inject-file,
// NAME=PROGRAM and NAME=["PROGRAM", "ARGUMENT", …] of --inject-command.
func (d *decoder) injectSource(text string, o Origin) {
	name, value, _ := strings.Cut(text, "=")
	in := &Injection{Env: name, Origin: o}
	var err error
	switch {
	case o.Key == "--inject-file":
		in.File, err = d.path(value, d.dot)
	case strings.HasPrefix(value, "["):
		in.Command, err = argv(value)
	default:
		in.Command = []string{value}
		if strings.Contains(value, "/") {
			in.Command[0], err = d.path(value, d.dot)
		}
	}
	switch {
	case !isEnvName(name) || value == "":
		d.at(o, "", "%q: want NAME and a value", name)
	case err != nil:
		d.at(o, hintOf(err), "%s: %v", name, err)
	case slices.ContainsFunc(d.layer.entries, func(e entry) bool { return e.op == opSource && e.inject.Env == name }):
		d.at(o, "", "%s has two sources", name)
	default:
		d.put(entry{key: keyInject, op: opSource, inject: in, origin: o})
	}
}

// argv reads a program and its arguments.
func argv(text string) ([]string, error) {
	v, err := parseJSONC("flag", text)
	var words []string
	for _, item := range v.items {
		if item.kind != kindString {
			return nil, errNoArgv
		}
		words = append(words, item.text)
	}
	if err != nil || len(words) == 0 || words[0] == "" {
		return nil, errNoArgv
	}
	return words, nil
}

var errNoArgv = errors.New(`want a program, or ["PROGRAM", "ARGUMENT", …]`)
