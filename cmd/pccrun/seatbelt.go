//go:build !launcher

package main

import (
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/macos"
)

// specSeatbelt prints a policy as a profile for macOS: the text on standard output,
// the parameters on standard error. Of a home that is elsewhere the links are unknown.
func specSeatbelt(req *profiles.Request, home string) int {
	resolve := resolveLinks
	if req.Host = profiles.ThisHost(); home != "" {
		if err := named(req); err != nil {
			return failWith(err)
		}
		if req.Workspace == "" {
			req.Workspace = filepath.Join(home, "workspace")
		}
		req.Host, resolve = profiles.Host{Home: home, Elsewhere: true, Memory: 16 << 30, Cwd: req.Workspace}, nil
	}
	p, err := profiles.Resolve(*req)
	if err != nil {
		return failWith(err)
	}
	for _, w := range p.Warnings {
		say(w)
	}
	doc, err := macos.Example(p, resolve)
	if err != nil {
		return failWith(err)
	}
	if req.JSON {
		params := make(object, len(doc.Params))
		for i, param := range doc.Params {
			params[i] = field{param.Name, param.Value}
		}
		printJSON(object{{"text", doc.Text}, {"parameters", params}, {"profile", p.Profile}, {"home", p.Home},
			{"workspace", p.Workspace}})
		return 0
	}
	printf("%s", doc.Text)
	for _, param := range doc.Params {
		say("parameter: -D " + shell.Quote(param.Name+"="+param.Value))
	}
	return 0
}

// named makes the files that flags name absolute: they are this machine's.
func named(req *profiles.Request) (err error) {
	list := []*string{}
	if strings.Contains(req.Profile, "/") || strings.HasSuffix(req.Profile, ".json") || strings.HasSuffix(req.Profile,
		".jsonc") {
		list = append(list, &req.Profile)
	}
	for i := range req.Settings {
		list = append(list, &req.Settings[i])
	}
	for _, file := range list {
		if *file, err = filepath.Abs(*file); err != nil {
			return err
		}
	}
	return nil
}
