package profiles

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// engines are the sockets of what starts containers, machines or programs for whoever
// asks, by the last name of the path, or the directory and it.
var engines = []string{
	"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "cri-dockerd.sock", "buildkitd.sock", "nerdctl.sock",
	"lxd/unix.socket", "incus/unix.socket", "libvirt/libvirt-sock", "snapd.socket",
	"system_bus_socket", "bus", "systemd/private",
}

// warnOfSockets names what a socket gives away that is as good as no sandbox: what
// listens there runs outside of it, and does there what it is asked.
func (p *Policy) warnOfSockets() {
	for _, s := range p.Network.Sockets {
		dir, name := path.Split(s.Path)
		if !slices.Contains(engines, name) && !slices.Contains(engines, path.Base(dir)+"/"+name) {
			continue
		}
		as := "root"
		if strings.HasPrefix(s.Path, "/run/user/") || strings.HasPrefix(s.Path, p.Home+"/") {
			as = "you"
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("the socket %s is shown: its server starts programs for the command, outside the sandbox and as %s (%s)", s.Path, as, s.Origin))
	}
}
