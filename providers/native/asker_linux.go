package native

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/clients"
	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
)

// hint returns the flag for what a program was refused, by what its own words say: a package
// manager wants the hosts that the user's own is set up for, which may be no public registry's; who
// looks a name up has yet to say which port of it.
func (s *Started) hint(client net.Addr, v rules.Verdict) string {
	at, err := netip.ParseAddrPort(client.String())
	if err != nil {
		return ""
	}
	argv := procfs.Client(s.box.Pid, client.Network(), at.Port())
	if argv == nil {
		return ""
	}
	group := clients.GroupOf(argv)
	named := slices.ContainsFunc(argv, func(word string) bool { return strings.Contains(word, v.Host) }) // and so not by a configuration
	if group != "" && !named && !slices.ContainsFunc(s.run.Policy.Network.Allow, func(r profiles.NetRule) bool { return r.Text == "@"+group }) {
		return "--allow @" + group
	}
	if port := portOf(argv, v.Host); port != 0 && v.Port == 0 {
		return s.run.Egress.Rules.Decide(v.Host, port).AllowWith
	}
	return ""
}

// ports are where clients go that are given no port, and the flag that gives one.
var ports = map[string]struct {
	port uint16
	flag string
}{
	"ssh": {22, "-p"}, "psql": {5432, "-p"}, "pg_dump": {5432, "-p"}, "mysql": {3306, "-P"}, "mariadb": {3306, "-P"},
	"redis-cli": {6379, "-p"}, "mongosh": {27017, "--port"},
}

// serviceSockets are what clients try that are given no host. A PORT is one of [ports].
var serviceSockets = map[string][]string{
	"psql":    {"/run/postgresql/.s.PGSQL.PORT", "/tmp/.s.PGSQL.PORT"},
	"pg_dump": {"/run/postgresql/.s.PGSQL.PORT", "/tmp/.s.PGSQL.PORT"},
	"mysql":   {"/run/mysqld/mysqld.sock", "/tmp/mysql.sock"},
	"mariadb": {"/run/mysqld/mysqld.sock", "/tmp/mysql.sock"},
	"docker":  {"/run/docker.sock"},
}

// triedSockets returns those that a command with these words tries.
func triedSockets(argv []string) (paths []string) {
	paths = slices.Clone(serviceSockets[filepath.Base(argv[0])])
	for i, word := range argv[1:] {
		host, is := strings.CutPrefix(word, "--host=")
		if !is {
			host, is = strings.CutPrefix(word, "-h")
		}
		if is && host == "" {
			host = strings.Join(argv[i+2:min(i+3, len(argv))], "")
		}
		switch {
		case is && !filepath.IsAbs(host):
			return nil // by TCP
		case is && len(paths) > 0:
			paths = []string{filepath.Join(host, filepath.Base(paths[0]))}
		}
	}
	for i := range paths {
		paths[i] = strings.Replace(paths[i], "PORT", strconv.Itoa(int(portOf(argv, "\x00"))), 1)
	}
	return paths
}

// portOf returns the port of a host that a program's words name: after the host, or by a flag of a
// client that has a port of its own. 0: none.
func portOf(argv []string, host string) uint16 {
	known := ports[filepath.Base(argv[0])]
	port := known.port
	number := func(text string) bool {
		digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
		n, err := strconv.ParseUint(digits, 10, 16)
		if err == nil && n > 0 {
			port = uint16(n)
		}
		return err == nil && n > 0
	}
	for i, word := range argv[1:] {
		next := strings.Join(argv[i+2:min(i+3, len(argv))], "")
		_, after, names := strings.Cut(word, host)
		switch {
		case names && strings.HasPrefix(after, ":") && number(after[1:]), names && after == "" && number(next):
			return port
		case known.flag == "":
		case word == known.flag && number(next):
		case strings.HasPrefix(word, known.flag):
			number(strings.TrimPrefix(word[len(known.flag):], "="))
		}
	}
	return port
}
