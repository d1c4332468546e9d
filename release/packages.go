package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

const (
	home        = "https://github.com/pccrun/pccrun"
	description = "run a command, usually an AI coding agent, in a sandbox"
)

// pack writes the packages of one system, and the list of what its program is linked from.
func pack(out, work, version string, at commit, p built) error {
	name := "pccrun-" + version + "-" + p.target.String()
	if err := sbom(filepath.Join(out, name+".cdx.json"), version, at, p); err != nil {
		return err
	}
	if p.target.OS == "windows" {
		return writeZip(filepath.Join(out, name+".zip"), name, at, p.files)
	}
	if err := writeTar(filepath.Join(out, name+".tar.gz"), name, at, p.files); err != nil {
		return err
	}
	if err := npmProgram(out, work, version, at, p); err != nil || p.target.OS != "linux" {
		return err
	}
	return writeDeb(out, work, version, at, p)
}

// documents collects what goes beside every program: texts, the man page, the scripts for shells, and the licences of the
// modules that are linked into any of the programs.
func documents(ctx context.Context, tree, work string, programs []built) ([]file, error) {
	var list []file
	for _, name := range []string{"LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "SECURITY.md"} {
		list = append(list, file{name, filepath.Join(tree, name), 0o644})
	}
	list = append(list, file{"man/pccrun.1", filepath.Join(tree, "docs", "man", "pccrun.1"), 0o644})
	for _, shell := range []string{"bash", "zsh", "fish"} {
		list = append(list, file{"completion/pccrun." + shell, filepath.Join(tree, "cmd", "pccrun", "completion", "pccrun."+shell), 0o644})
	}
	licences, err := licences(ctx, work, programs)
	return append(list, licences...), err
}

// writeTar writes files below a directory of the archive.
func writeTar(to, dir string, at commit, list []file) error {
	var text bytes.Buffer
	zipped, _ := gzip.NewWriterLevel(&text, gzip.BestCompression) // the level is one that there is
	w := tar.NewWriter(zipped)
	for _, f := range list {
		content, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: path.Join(dir, f.name), Mode: int64(f.mode), Size: int64(len(content)), ModTime: at.Time, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, text.Bytes(), 0o644)
}

// writeZip does so for Windows.
func writeZip(to, dir string, at commit, list []file) error {
	var text bytes.Buffer
	w := zip.NewWriter(&text)
	for _, f := range list {
		content, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: path.Join(dir, f.name), Method: zip.Deflate, Modified: at.Time}
		h.SetMode(f.mode)
		part, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := part.Write(content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, text.Bytes(), 0o644)
}

// debPlaces are where Debian has what is not a document.
var debPlaces = map[string]string{
	"pccrun":                 "/usr/bin/pccrun",
	"man/pccrun.1":           "/usr/share/man/man1/pccrun.1.gz",
	"completion/pccrun.bash": "/usr/share/bash-completion/completions/pccrun",
	"completion/pccrun.zsh":  "/usr/share/zsh/vendor-completions/_pccrun",
	"completion/pccrun.fish": "/usr/share/fish/vendor_completions.d/pccrun.fish",
	"LICENSE":                "/usr/share/doc/pccrun/copyright",
	"pccrun-linux-amd64":     "/usr/lib/pccrun/pccrun-linux-amd64",
	"pccrun-linux-arm64":     "/usr/lib/pccrun/pccrun-linux-arm64",
}

// writeDeb writes the Debian package: the program, its documents, and the AppArmor profile by which it may make user
// namespaces on Ubuntu 23.10 and later.
func writeDeb(out, work, version string, at commit, p built) error {
	var contents files.Contents
	for _, f := range p.files {
		to, known := debPlaces[f.name]
		if !known {
			to = "/usr/share/doc/pccrun/" + f.name
		}
		from := f.path
		if strings.HasSuffix(to, ".gz") {
			from = filepath.Join(work, path.Base(to))
			if err := gzipped(f.path, from); err != nil {
				return err
			}
		}
		contents = append(contents, &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: f.mode, MTime: at.Time}})
	}
	own := filepath.Join(work, "tree", "release", "deb")
	contents = append(contents, &files.Content{Source: filepath.Join(own, "apparmor"), Destination: "/etc/apparmor.d/pccrun", Type: "config", FileInfo: &files.ContentFileInfo{Mode: 0o644, MTime: at.Time}})
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "pccrun", Arch: p.target.Arch, Platform: "linux", Version: version, MTime: at.Time,
		Section: "utils", Priority: "optional", Maintainer: "The pccrun authors", Homepage: home, License: "Apache-2.0", Description: description,
		Overridables: nfpm.Overridables{
			Contents: contents, Recommends: []string{"git", "ca-certificates"},
			Scripts: nfpm.Scripts{PostInstall: filepath.Join(own, "postinst"), PostRemove: filepath.Join(own, "postrm")},
		},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	to, err := os.Create(filepath.Join(out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer to.Close()
	return packager.Package(info, to)
}

func gzipped(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	w, _ := gzip.NewWriterLevel(&text, gzip.BestCompression)
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, text.Bytes(), 0o644)
}

// npmNames are npm's words for systems and processors.
var npmNames = map[string]string{"amd64": "x64", "arm64": "arm64", "linux": "linux", "darwin": "darwin"}

func npmName(t target) string { return "@pccrun/" + npmNames[t.OS] + "-" + npmNames[t.Arch] }

// npmProgram writes the npm package that carries the program for one system.
func npmProgram(out, work, version string, at commit, p built) error {
	about := map[string]any{
		"name": npmName(p.target), "version": version, "description": "pccrun for " + p.target.String(), "license": "Apache-2.0", "homepage": home,
		"os": []string{npmNames[p.target.OS]}, "cpu": []string{npmNames[p.target.Arch]}, "files": []string{"pccrun"},
	}
	list := slices.Clone(p.files)
	return npmPackage(out, strings.TrimPrefix(strings.ReplaceAll(npmName(p.target), "/", "-"), "@"), version, at, about, list, filepath.Join(work, p.target.String()))
}

// npmMain writes the package that users name. The one of their system comes with it, and its script starts that.
func npmMain(out, version string, at commit, tree string) error {
	optional := map[string]string{}
	for _, t := range targets {
		if t.OS != "windows" {
			optional[npmName(t)] = version
		}
	}
	about := map[string]any{
		"name": "pccrun", "version": version, "description": description, "license": "Apache-2.0", "homepage": home,
		"bin": map[string]string{"pccrun": "pccrun.js"}, "optionalDependencies": optional, "engines": map[string]string{"node": ">=18"},
	}
	list := []file{{"pccrun.js", filepath.Join(tree, "release", "npm", "pccrun.js"), 0o755}, {"LICENSE", filepath.Join(tree, "LICENSE"), 0o644}, {"NOTICE", filepath.Join(tree, "NOTICE"), 0o644}, {"README.md", filepath.Join(tree, "README.md"), 0o644}}
	return npmPackage(out, "pccrun", version, at, about, list, filepath.Dir(tree))
}

func npmPackage(out, name, version string, at commit, about map[string]any, list []file, scratch string) error {
	text, err := json.MarshalIndent(about, "", "  ")
	if err != nil {
		return err
	}
	manifest := filepath.Join(scratch, name+".package.json")
	if err := os.WriteFile(manifest, append(text, '\n'), 0o644); err != nil {
		return err
	}
	list = append([]file{{"package.json", manifest, 0o644}}, list...)
	return writeTar(filepath.Join(out, fmt.Sprintf("npm-%s-%s.tgz", name, version)), "package", at, list)
}

// licences finds the licence texts of what is linked into any of the programs: the modules, Go itself, and the rules of
// gitleaks, which are data.
func licences(ctx context.Context, work string, programs []built) (list []file, err error) {
	tree := filepath.Join(work, "tree")
	root, err := run(ctx, tree, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	for name, dir := range map[string]string{"go": strings.TrimSpace(string(root)), "gitleaks": filepath.Join(tree, "providers", "filesync", "gitleaks")} {
		found, err := licenceFiles(dir, name)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	seen := map[string]bool{}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p.whole)
		if err != nil {
			return nil, err
		}
		for _, m := range info.Deps {
			at := m.Path + "@" + m.Version
			if seen[at] {
				continue
			}
			seen[at] = true
			out, err := run(ctx, tree, nil, "go", "list", "-m", "-f", "{{.Dir}}", m.Path)
			if err != nil {
				return nil, err
			}
			found, err := licenceFiles(strings.TrimSpace(string(out)), m.Path)
			if err != nil {
				return nil, err
			}
			list = append(list, found...)
		}
	}
	slices.SortFunc(list, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

func licenceFiles(dir, module string) (list []file, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.Type()&fs.ModeType == 0 && (strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "LICENCE") || strings.HasPrefix(name, "COPYING") || strings.HasPrefix(name, "NOTICE") || strings.HasPrefix(name, "PATENTS")) {
			list = append(list, file{path.Join("licenses", module, e.Name()), filepath.Join(dir, e.Name()), 0o644})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("module %s has no licence text in %s", module, dir)
	}
	return list, nil
}
