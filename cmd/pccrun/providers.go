//go:build !launcher

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/cloudflare"
	"github.com/pccrun/pccrun/providers/daytona"
	"github.com/pccrun/pccrun/providers/docker"
	"github.com/pccrun/pccrun/providers/e2b"
	"github.com/pccrun/pccrun/providers/modal"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/providers/sprites"
	"github.com/pccrun/pccrun/providers/vercel"
)

// newProvider makes a provider: the list of those that are built. One that is not is nil.
var newProvider = func(name string, req *profiles.Request, host providers.Host) (providers.Provider, error) {
	switch name {
	case providers.Native:
		return thisMachine(req, host)
	case docker.Name:
		return docker.New(host, docker.Options{Runtime: req.Runtime, Image: req.Image, Network: req.DockerNetwork}.Complete(&req.Host))
	}
	if cloud := clouds[name]; cloud != nil {
		host.LinuxProgram = linuxProgram
		return cloud(host), nil
	}
	return nil, nil
}

// clouds are the providers that have a copy elsewhere.
var clouds = map[string]func(providers.Host) *remote.Provider{
	e2b.Name: e2b.New, daytona.Name: daytona.New, cloudflare.Name: cloudflare.New, modal.Name: modal.New, sprites.Name: sprites.New, vercel.Name: vercel.New,
}

// linuxProgram opens this program for Linux on a processor, as it is or by gzip: where it is that what it carries, or
// itself, else the file that make linux writes, beside it, or in ../lib/pccrun, where the Debian package has it.
func linuxProgram(arch string) (io.ReadCloser, error) {
	if runtime.GOOS == "linux" && runtime.GOARCH == arch {
		if carriedForPlaces != "" {
			return io.NopCloser(strings.NewReader(carriedForPlaces)), nil
		}
		return os.Open("/proc/self/exe") // all of pccrun, without the launcher
	}
	self := os.Getenv("PCCRUN_LAUNCHER")
	if self == "" {
		self, _ = os.Executable()
	}
	self, err := filepath.EvalSymlinks(self)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(filepath.Dir(self), "pccrun-linux-"+arch)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if f, installed := os.Open(filepath.Join(filepath.Dir(self), "../lib/pccrun", filepath.Base(name))); installed == nil {
			return programFor(f, arch)
		}
	}
	if err != nil {
		const how = "make linux, in pccrun's sources, writes bin/pccrun-linux-%s: it has to stand in the directory of pccrun"
		return nil, hint.Errorf(fmt.Sprintf(how, arch), "its sandboxes are linux/%s, and pccrun for that is not there: %w", arch, err)
	}
	return programFor(f, arch)
}

// programFor returns a file that is a program for Linux on a processor, or closes it.
func programFor(f *os.File, arch string) (io.ReadCloser, error) {
	program, err := elf.NewFile(f)
	if err == nil && program.Machine != machines[arch] {
		err = fmt.Errorf("it is for %s", program.Machine)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s is no pccrun for linux/%s: %w", f.Name(), arch, err)
	}
	return f, nil
}

// machines are processors, as an executable file names them.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// placeVerb is what the engine of clouds executes in a sandbox.
func placeVerb(args []string) (code int, is bool) {
	if len(args) == 0 || args[0] != remote.Place {
		return 0, false
	}
	return remote.InPlace(args[1:], os.Stdout, os.Stderr), true
}

// become is nil: this is the program that has all providers.
var become func() int
