//go:build unix

package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// Provider is a container engine.
type Provider struct {
	host    providers.Host
	options Options
	client  *client.Client
	address string // of the engine, for people
	running atomic.Pointer[running]
}

// New returns the engine that the user's environment and his docker client name.
func New(host providers.Host, options Options) (*Provider, error) {
	if options.Runtime == "" {
		options.Runtime = Runc
	}
	switch options.Network {
	case "":
		options.Network = noNetwork
	case noNetwork, bridgeNetwork, hostNetwork:
	default:
		return nil, &EngineError{
			Text:   "no such network: " + strconv.Quote(options.Network),
			Advice: "--docker-network is none, bridge or host",
		}
	}
	p := &Provider{host: host, options: options}
	e, err := findEndpoint(&profiles.Host{Environ: host.Environ})
	if err != nil {
		return nil, err
	}
	if e.host == "" {
		e.host = client.DefaultDockerHost
	}
	if p.address = e.host; strings.HasPrefix(e.host, "ssh://") {
		return nil, otherMachine(p.address, nil)
	}
	opts := []client.Opt{client.WithHost(e.host)}
	if e.certs != "" {
		file := func(name string) string { return filepath.Join(e.certs, name) }
		opts = append(opts, client.WithTLSClientConfig(file("ca.pem"), file("cert.pem"), file("key.pem")))
	}
	if p.client, err = client.New(opts...); err != nil {
		return nil, &EngineError{Text: "the engine " + e.host, Err: err}
	}
	return p, nil
}

// Name returns "docker".
func (p *Provider) Name() string { return Name }

// endpoint is where an engine is.
type endpoint struct{ host, certs string }

// findEndpoint does as the docker client does: DOCKER_HOST, then the context that
// DOCKER_CONTEXT names or that is in use.
func findEndpoint(host *profiles.Host) (endpoint, error) {
	dir := host.Getenv("DOCKER_CONFIG")
	if dir == "" {
		dir = filepath.Join(host.Getenv("HOME"), ".docker")
	}
	if e := (endpoint{host: host.Getenv("DOCKER_HOST")}); e.host != "" {
		if certs := host.Getenv("DOCKER_CERT_PATH"); certs != "" || host.Getenv("DOCKER_TLS_VERIFY") != "" {
			e.certs = certs
			if certs == "" {
				e.certs = dir
			}
		}
		return e, nil
	}
	name := host.Getenv("DOCKER_CONTEXT")
	if name == "" {
		var config struct {
			CurrentContext string `json:"currentContext"`
		}
		if err := readJSON(filepath.Join(dir, "config.json"), &config); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return endpoint{}, &EngineError{Text: "the docker client's configuration", Err: err}
		}
		name = config.CurrentContext
	}
	if name == "" || name == "default" {
		return endpoint{}, nil
	}
	id := contextID(name)
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	if err := readJSON(filepath.Join(dir, "contexts", "meta", id, "meta.json"), &meta); err != nil {
		return endpoint{}, &EngineError{
			Text:   "the context " + name + " of the docker client",
			Advice: "docker context ls lists the contexts",
			Err:    err,
		}
	}
	e := endpoint{host: meta.Endpoints["docker"].Host}
	if certs := filepath.Join(dir, "contexts", "tls", id, "docker"); exists(filepath.Join(certs, "ca.pem")) {
		e.certs = certs
	}
	return e, nil
}

// contextID is the name of the directories that the docker client keeps of a context.
func contextID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return &fs.PathError{Op: "parse", Path: path, Err: err}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Facts are what an engine says of itself, and what stands in this machine's root.
type Facts struct {
	Version  string
	Podman   bool
	Kernel   string // of the engine's machine
	Runtimes []string
	DataRoot string // where the engine keeps its own
	Cgroups  string // version
	Memory   bool   // what it can limit
	CPUs     bool
	Pids     bool
	Options  []string // its security options: "name=seccomp,profile=default"
	VM       bool     // it is in a virtual machine, which shares directories of this machine

	Crash     string     // what a crash inside would feed, and no limit stops; "" for nothing
	AsRoot    bool       // pccrun was started as root
	Landlock  int        // ABI version of this machine's kernel, 0 for none, or for another kernel than the container's
	Root      []Entry    // of / and of each directory on the way to DataRoot; parents first
	Submounts []Submount // file systems that are mounted below it
	Texts     []string   // files that are covered with texts where they are there
}

// holdsEngine reports whether the engine takes a path for one that its own files are in, or that is
// in them. Of such a one it refuses a mount in which nothing appears that this machine mounts
// later, and it compares beginnings of texts: validateBindDaemonRoot in moby's daemon package.
func (f *Facts) holdsEngine(path string) bool {
	return f.DataRoot != "" && path != "" && (strings.HasPrefix(path, f.DataRoot) || strings.HasPrefix(f.DataRoot, path))
}

// Entry is a name in one of these directories.
type Entry struct {
	Path, Link string
	Dir        bool
	Dev, Ino   uint64
}

// Submount is a mount point of this machine.
type Submount struct{ Path, Type string }

// covered are files that say who and where one is, if they are there.
var covered = [...]string{
	"/etc/hosts",
	"/etc/hostname",
	"/etc/resolv.conf",
	"/etc/machine-id",
	"/var/lib/dbus/machine-id",
	"/etc/machine-info",
}

// Examine asks the engine what it is.
func (p *Provider) Examine(ctx context.Context) (providers.Facts, error) {
	if _, err := p.client.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return nil, p.unreached(err)
	}
	result, err := p.client.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, p.unreached(err)
	}
	version, err := p.client.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return nil, p.unreached(err)
	}
	info := &result.Info
	f := &Facts{
		Version: info.ServerVersion, Kernel: info.KernelVersion, DataRoot: info.DockerRootDir, Cgroups: info.CgroupVersion,
		Memory: info.MemoryLimit, CPUs: info.CPUCfsQuota, Pids: info.PidsLimit, Options: info.SecurityOptions,
	}
	for name := range info.Runtimes {
		f.Runtimes = append(f.Runtimes, name)
	}
	slices.Sort(f.Runtimes)
	f.Podman = slices.ContainsFunc(
		version.Components,
		func(c system.ComponentVersion) bool { return c.Name == "Podman Engine" },
	)
	if uid, _, err := owner(f.DataRoot); f.Podman && err == nil && uid != 0 {
		f.Options = append(f.Options, "name=rootless") // which it says in no field that Docker has
	}
	f.AsRoot = os.Getuid() == 0
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, os.NewSyscallError("uname", err)
	}
	f.VM = f.Kernel != unix.ByteSliceToString(name.Release[:])
	switch arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]; {
	case info.OSType != "linux":
		return nil, &EngineError{Text: "the engine runs containers of " + info.OSType}
	case info.Architecture != arch && info.Architecture != runtime.GOARCH: // as podman says it
		return nil, otherMachine(p.address, errors.New("its processor is a "+info.Architecture))
	case f.VM:
		return f, nil
	}
	return f, f.look()
}

// has reports whether the engine names a security option.
func (f *Facts) has(option string) bool {
	return slices.ContainsFunc(
		f.Options,
		func(o string) bool { return o == "name="+option || strings.HasPrefix(o, "name="+option+",") },
	)
}

// otherMachine refuses an engine of another machine.
func otherMachine(address string, err error) error {
	return &EngineError{
		Text: "the engine " + address + " has other files than this machine", Err: err,
		Advice: "--provider native runs here; an engine on another machine is not supported",
	}
}

// unreached says why the engine does not answer.
func (p *Provider) unreached(err error) error {
	socket, local := strings.CutPrefix(p.address, "unix://")
	if local {
		// The client's own words are for a terminal that docker is typed at.
		if _, dial := net.Dial("unix", socket); dial != nil {
			switch {
			case errors.Is(dial, unix.EACCES):
				return &EngineError{
					Text:   "no permission to use " + socket,
					Advice: "join the socket's group, whose members can become root: usermod -aG docker USER, then log in again",
				}
			case errors.Is(dial, unix.ENOENT), errors.Is(dial, unix.ECONNREFUSED):
				return &EngineError{
					Text:   "no engine answers at " + socket,
					Advice: "start it (" + startEngine + "), or name another in DOCKER_HOST",
				}
			}
			err = dial
		}
	}
	return &EngineError{
		Text:   "the engine at " + p.address + " does not answer",
		Advice: "DOCKER_HOST or docker context use NAME names another",
		Err:    plain(err),
	}
}

// answered begins the engine's answers, as its client puts them.
const answered = "Error response from daemon: "

// plain takes that away.
func plain(err error) error {
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), answered)
	return errors.New(strings.TrimSuffix(strings.Join(strings.Fields(text), " "), "."))
}

// notFound reports whether the engine has no such object.
func notFound(err error) bool { return errdefs.IsNotFound(err) }
