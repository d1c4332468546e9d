//go:build !launcher

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

func trustVerb(args []string) int {
	req := profiles.Request{Host: profiles.ThisHost()}
	list, revoke, asJSON, program := false, false, false, ""
	words, err := options(args, flags{"--workspace": &req.Workspace, "--program": &program, "--list": &list, "--revoke": &revoke, "--json": &asJSON})
	switch {
	case err != nil:
	case len(words) > 0 && (!revoke || list || len(words) > 1 || req.Workspace != ""):
		err = misuse("unexpected argument "+quote(words[len(words)-1]), "--workspace DIR names another workspace")
	case program != "" && (list || len(words) > 0 || req.Workspace != ""):
		err = misuse("flag --program: takes no other flag than --revoke and --json", "")
	case list && (revoke || req.Workspace != ""):
		err = misuse("flag --list: takes no other flag than --json", "")
	}
	if err != nil {
		return failSession(err)
	}
	dirs, err := run.Dirs()
	if err != nil {
		return failSession(err)
	}
	trust, finder := profiles.TrustIn(dirs.State), run.Programs(&req.Host, dirs.State)
	switch {
	case program != "":
		return trustProgram(finder, program, revoke, asJSON)
	case list:
		return listTrust(trust, finder, asJSON)
	case revoke:
		if len(words) > 0 {
			req.Workspace = words[0]
		}
		return revokeTrust(trust, req, asJSON)
	}
	return addTrust(trust, req, asJSON)
}

// trustProgram records a program, by its content, or takes it off the record.
func trustProgram(finder *programs.Finder, program string, revoke, asJSON bool) int {
	change, key, did := finder.Trust, "trusted", "trusted with its present content"
	if revoke {
		change, key, did = finder.Distrust, "revoked", "not trusted any more"
	}
	real, err := change(program)
	if errors.Is(err, fs.ErrNotExist) && revoke {
		fail("trust: "+real+" is not trusted", "pccrun trust --list lists trusted programs")
		return failed
	}
	if err != nil {
		return failSession(err)
	}
	return result(asJSON, object{{"program", real}, {key, true}}, printText, real+": "+did)
}

func addTrust(trust profiles.Trust, req profiles.Request, asJSON bool) int {
	workspace, content, err := profiles.ReadWorkspaceFile(req)
	if errors.Is(err, fs.ErrNotExist) && content == nil {
		fail("trust: "+workspace+" has no "+profiles.WorkspaceFile, "--workspace DIR names another workspace")
		return failed
	}
	if err != nil {
		return failWith(err)
	}
	var before []byte
	old, err := trust.Of(workspace)
	if err == nil {
		before = old.Content
	}
	if err := trust.Add(workspace, content); err != nil {
		return failSession(err)
	}
	if asJSON {
		printJSON(object{{"workspace", workspace}, {"trusted", string(content)}, {"changed", !bytes.Equal(before, content)}})
		return 0
	}
	file := workspace + "/" + profiles.WorkspaceFile
	text := content
	switch {
	case old != nil && bytes.Equal(before, content):
		printf("%s: already trusted\n", printable(file))
		return 0
	case old != nil:
		text = diff.Diff("trusted before", before, "trusted now", content)
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	printf("%s: trusted with this content:\n", printable(file))
	for line := range bytes.Lines(text) {
		printf("    %s\n", printableLine(string(bytes.TrimRight(line, "\n"))))
	}
	return 0
}

func revokeTrust(trust profiles.Trust, req profiles.Request, asJSON bool) int {
	// A workspace that is gone can be taken off the list by its path.
	workspace := req.Workspace
	err := trust.Revoke(workspace)
	if workspace == "" || errors.Is(err, fs.ErrNotExist) {
		p, e := profiles.Resolve(profiles.Request{Host: req.Host, Workspace: req.Workspace})
		if e != nil {
			return failWith(e)
		}
		workspace = p.Workspace
		err = trust.Revoke(workspace)
	}
	if errors.Is(err, fs.ErrNotExist) {
		fail("trust: "+workspace+" is not trusted", "pccrun trust --list lists trusted workspaces")
		return failed
	}
	if err != nil {
		return failSession(err)
	}
	return result(asJSON, object{{"workspace", workspace}, {"revoked", true}}, printText, workspace+": not trusted any more")
}

func listTrust(trust profiles.Trust, finder *programs.Finder, asJSON bool) int {
	list, err := trust.List()
	if err != nil {
		return failSession(err)
	}
	rows := []object{}
	for _, e := range list {
		_, now, err := profiles.ReadWorkspaceFile(profiles.Request{Workspace: e.Workspace, Host: profiles.ThisHost()})
		is := "trusted"
		switch {
		case errors.Is(err, fs.ErrNotExist) && now == nil:
			is = "gone"
		case !bytes.Equal(now, e.Content):
			is = "changed since: not trusted"
		}
		if asJSON {
			rows = append(rows, object{{"workspace", e.Workspace}, {"since", e.Since.UTC().Format(time.RFC3339)}, {"state", is}})
			continue
		}
		printf("%s  %s  %s\n", e.Since.UTC().Format("2006-01-02 15:04"), printable(e.Workspace), is)
	}
	trusted, err := finder.Trusted()
	if err != nil {
		return failSession(err)
	}
	for _, path := range slices.Sorted(maps.Keys(trusted)) {
		is := "trusted"
		if !trusted[path] {
			is = "changed since: not trusted"
		}
		if asJSON {
			rows = append(rows, object{{"program", path}, {"state", is}})
			continue
		}
		printf("program           %s  %s\n", printable(path), is)
	}
	if asJSON {
		printJSON(object{{"trusted", slices.Clip(rows)}})
	}
	return 0
}
