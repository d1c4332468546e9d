package conformance_test

import (
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/e2b"
	"github.com/pccrun/pccrun/providers/remote"
	fake "github.com/pccrun/pccrun/test/internal/e2b"
	"github.com/pccrun/pccrun/test/internal/machine"
)

// attacks are what a command must not be able to do in a sandbox, by guarantee. Each prints
// "got it" where it succeeds, and does so where nothing of pccrun is around it.
var attacks = []struct{ guarantee, script string }{
	{"sys.filter", `python3 -c '
import ctypes
fd = ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120)) # io_uring_setup
print("got it" if fd >= 0 else "no")'`},
	{"sys.no-new-userns", `unshare --user true && echo got it`},
	{"priv.none", `[ "$(/srv/su -u)" = 0 ] && echo got it`},
	{"net.allowlist", get("93.184.216.35", "80", "hello")},
	{"net.address", get("inner.example", "80", "hello")},
	{"net.dns", `getent hosts evil.example && echo got it`},
	{"launch.integrity: the daemon", get("127.0.0.1", "49983", " 204 ")},
	{"launch.integrity: the daemon at another address", get(machine.Address, "49983", " 204 ")},
	{"proc.isolated", `[ "$(cat /proc/[0-9]*/comm | grep -c '^cat$')" -ge 2 ] && echo got it`},
}

// get asks a host without any proxy, and is right where the answer has a word.
func get(host, port, word string) string {
	return "exec 3<>/dev/tcp/" + host + "/" + port + " && printf 'GET /health HTTP/1.0\\r\\nHost: " + host + "\\r\\n\\r\\n' >&3 && grep -q '" + word + "' <&3 && echo got it"
}

// hostsThere are names of a machine's own network: one that the policy names, one that it
// does not, and one that it names and that leads inward.
var hostsThere = map[string]string{"good.example": "93.184.216.34", "evil.example": "93.184.216.35", "inner.example": "10.1.2.3"}

// TestInside holds what pccrun keeps in a sandbox against what the same commands do there
// without it.
//
//test:root
func TestInside(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	server, err := fake.Start(credential)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	server.Hosts = hostsThere
	server.Booted = func(m *machine.Machine) {
		l, err := m.ListenAround("0.0.0.0:80")
		require.NoError(t, err)
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
		}()
		require.NoError(t, m.Command(0, 0, "/", "/bin/sh", "-c", "cp /usr/bin/id /srv/su && chmod 4755 /srv/su").Run())
	}
	p := *places[0]
	p.start = func(t *testing.T) *served {
		return &served{environ: server.Environ(), stand: server.Sandboxes, made: func() string { return "" }, open: func(environ []string, _, program string) providers.Provider {
			return e2b.New(providers.Host{Environ: environ, Git: plainGit, LinuxProgram: opens(program)})
		}}
	}
	service := e2b.NewService(server.Environ())
	box, err := remote.Make(t.Context(), service, &remote.Request{Labels: map[string]string{"control": "1"}, Lifetime: time.Minute, Policy: &profiles.Policy{}})
	require.NoError(t, err)
	script := ""
	for _, a := range attacks {
		script += "( " + a.script + "\n) 2>/dev/null | sed 's/^/" + a.guarantee + ": /'\n"
	}
	out, code, err := remote.Output(t.Context(), service, box, false, "/bin/bash", "-c", script)
	require.NoError(t, err)
	require.Zero(t, code)
	for _, a := range attacks {
		require.Contains(t, string(out), a.guarantee+": got it\n", "the control")
	}
	require.NoError(t, service.Destroy(t.Context(), box.ID))

	k := newTask(t, &p)
	k.request.Allow = []string{"good.example:80", "inner.example:80"}
	o := k.run("/bin/bash", "-c", get("good.example", "80", "hello")+" | sed s/it/there/\n"+script+"exit 9")
	require.NoError(t, o.err)
	require.Equal(t, 9, o.code, o.say)
	t.Logf("%+v %s", k.heard.decisions, o.say)
	require.Contains(t, o.out, "got there", "what is allowed is reached by name, by who knows of no proxy")
	require.NotContains(t, o.out, "got it")
	decided := map[string]bool{}
	for _, d := range k.heard.decisions {
		decided[d.Host] = d.Allowed
	}
	require.True(t, decided["good.example"], "%v", k.heard.decisions)
	require.Contains(t, decided, "evil.example")
	require.False(t, decided["evil.example"])
	k.nothingLeft()

	t.Run("the command is another user, is not seen, and has its limits, and a secret is put in there", func(t *testing.T) {
		k := newTask(t, &p)
		k.request.Allow, k.request.Inject, k.env = []string{"good.example"}, []string{"TOKEN=good.example"}, []string{"TOKEN=the-real-secret-0123456789"}
		k.request.Limits[3] = "77"
		o := k.run("/bin/bash", "-c", `id -u; grep -E '^(Seccomp|NoNewPrivs|CapBnd):' /proc/self/status; ls /proc | grep -c '^[0-9]'; touch /opt/x 2>/dev/null || echo closed; env | grep -c SECRET; ulimit -n; `+
			`cat /proc/*/environ | tr '\0' '\n' | grep -c the-real-secret; echo "$TOKEN"`)
		require.NoError(t, o.err)
		require.Regexp(t, "^[1-9][0-9]*\nCapBnd:\t0+\nNoNewPrivs:\t1\nSeccomp:\t2\n[1-9]\nclosed\n0\n77\n0\n.{10,}\n$", o.out, "there is a placeholder")
		require.NotContains(t, o.out, "the-real-secret")
	})
	t.Run("a rule that leads to the provider's daemon ends the start", func(t *testing.T) {
		k := newTask(t, &p)
		k.request.Allow = []string{machine.Address + ":49983", "good.example"}
		k.request.Inject, k.env = []string{"TOKEN=good.example"}, []string{"TOKEN=the-real-secret-0123456789"}
		o := k.run("/bin/sh", "-c", "echo ran")
		require.Equal(t, 125, o.code)
		require.Empty(t, o.out)
		for _, g := range []string{"net.allowlist", "net.inject", "sys.filter", "launch.integrity"} {
			require.ErrorContains(t, o.err, "guarantee "+g+": missing: the command can reach the provider's own daemon at "+machine.Address+":49983")
		}
		k.nothingLeft()
	})
}

// TestAsk: pccrun in the sandbox asks the user here about a host that no rule speaks of. Yes is a connection, no
// is none, and what a rule denies is not asked about.
//
//test:root
func TestAsk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			k := newTask(t, p)
			k.around(hostsThere, func(m *machine.Machine) {
				l, err := m.ListenAround("0.0.0.0:80")
				require.NoError(t, err)
				go func() {
					_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
				}()
			})
			k.request.Ask, k.request.Deny = true, []string{"inner.example"}
			k.heard.answers = map[string]providers.Permission{"good.example:80": netproxy.Session, "evil.example:80": netproxy.Refuse}
			script := ""
			for _, host := range []string{"good", "evil", "inner"} {
				script += "( " + get(host+".example", "80", "hello") + " ) | sed 's/it/" + host + "/'\n"
			}
			o := k.run("/bin/bash", "-c", script)
			require.NoError(t, o.err)
			require.Equal(t, "got good\n", o.out, o.say)
			require.Equal(t, []string{"good.example:80", "evil.example:80"}, k.heard.asked)
			k.nothingLeft()
		})
	}
}
