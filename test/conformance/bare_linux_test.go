package conformance_test

import (
	"crypto/rand"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/daytona"
	"github.com/pccrun/pccrun/providers/remote"
	fakedaytona "github.com/pccrun/pccrun/test/internal/daytona"
	"github.com/pccrun/pccrun/test/internal/machine"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// bareAttacks are what a command must not be able to do where no namespace surrounds it. Each line that the
// program prints is one that succeeded.
//
//go:embed testdata/bare.py
var bareAttacks string

// succeed are those of the attacks that a user's command can do without pccrun there.
var succeed = []string{
	"other sockets", "a pair of datagrams", "listen", "connect past the proxy", "connect past the proxy at its port", "connect by TCP fast open",
	"the daemon", "see another process", "signal another process", "write beside the copy", "truncate beside the copy", "io_uring", "user namespace",
}

// around has the world around a machine answer at port 80.
func around(t *testing.T) func(m *machine.Machine) {
	return func(m *machine.Machine) {
		l, err := m.ListenAround("0.0.0.0:80")
		require.NoError(t, err)
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
		}()
	}
}

// TestWithoutNamespaces: where nobody can make a namespace, filters and Landlock surround the command, as
// root there and as a user.
//
//test:root
func TestWithoutNamespaces(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		s, err := fakedaytona.Start()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Stop()) })
		s.User, s.Hosts, s.Booted = credential, hostsThere, around(t)
		service := daytona.NewService(s.Environ())
		box, err := remote.Make(t.Context(), service, &remote.Request{Labels: map[string]string{"control": "1"}, Lifetime: time.Minute, Policy: &profiles.Policy{}})
		require.NoError(t, err)
		out, code, err := remote.Output(t.Context(), service, box, false, "/bin/sh", "-c", `setsid sleep 600 >/dev/null 2>&1 & exec python3 -c "$1" 2280 control 2>&1`, "sh", bareAttacks)
		require.NoError(t, err)
		require.Zero(t, code, string(out))
		for _, name := range succeed {
			require.Contains(t, string(out), name+": ", "the control")
		}
		require.NoError(t, service.Destroy(t.Context(), box.ID))
	})
	for _, row := range []struct {
		name  string
		place *place
		port  string
		user  *syscall.Credential
	}{{"e2b", places[0], "49983", nil}, {"daytona as a user", places[1], "2280", credential}} {
		start := func(t *testing.T) *task {
			k := newTask(t, row.place)
			k.set.Bare, k.set.User = true, row.user
			k.around(hostsThere, around(t))
			return k
		}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			k := start(t)
			k.request.Allow = []string{"good.example:80"}
			o := k.run("/bin/bash", "-c", `
python3 -c "$1" "$2"
python3 - <<'END'
import urllib.request
for host in "good", "evil":
    try: print(host, urllib.request.urlopen("http://%s.example/" % host).read().decode())
    except Exception as e: print(host, "no")
END
grep -E '^(Seccomp|NoNewPrivs|CapEff):' /proc/self/status
env | grep -c SECRET
echo x > made; mkdir -p sub && mv a.txt sub/; chmod 700 made
(setsid sleep 1000 >/dev/null 2>&1 &)
until cat /proc/[0-9]*/comm 2>/dev/null | grep -qx sleep; do :; done
exit 9`, "sh", bareAttacks, row.port)
			require.NoError(t, o.err)
			require.Equal(t, "good hello\nevil no\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n0\n", o.out, o.say)
			require.Equal(t, 9, o.code, o.say)
			require.Contains(t, o.Survivors, "sleep")
			require.Equal(t, []string{"D a.txt", "A made", "A sub/a.txt"}, k.changed())
			require.True(t, k.warned("no namespace can be made in the sandbox"), "%q", k.heard.warnings)
			decided := map[string]bool{}
			for _, d := range k.heard.decisions {
				decided[d.Host] = d.Allowed
			}
			require.Equal(t, map[string]bool{"good.example": true, "evil.example": false}, decided)
			k.nothingLeft()
		})
		t.Run(row.name+" with a secret", func(t *testing.T) {
			t.Parallel()
			// Whoever reads the requests holds the secret: where that is the command's own user, the run is refused.
			const script = `echo "[$TOKEN]"; cat /proc/*/environ 2>/dev/null | tr '\0' '\n' | grep -c the-real-secret; curl -sS -o /dev/null -w '%{http_code}\n' https://good.example/ 2>&1`
			k := start(t)
			k.request.Allow, k.request.Inject, k.env = []string{"good.example"}, []string{"TOKEN=https://good.example/x/**"}, []string{"TOKEN=the-real-secret-0123456789"}
			o := k.run("/bin/bash", "-c", script)
			if row.user == nil {
				require.NoError(t, o.err)
				require.Regexp(t, `^\[the-real-.{17}\]\n0\n502\n$`, o.out, "what it trusts answers for a host that has no server: %s", o.say)
				require.NotContains(t, o.out, "the-real-secret")
				return
			}
			require.Equal(t, 125, o.code)
			require.Empty(t, o.out)
			require.ErrorContains(t, o.err, "guarantee net.inject: missing: no namespace can be made there")
			require.Equal(t, "--allow-missing net.inject runs without it", hint(o.err))
			again := start(t)
			again.request.Allow, again.request.Inject, again.env, again.request.AllowMissing = k.request.Allow, k.request.Inject, k.env, []string{"net.inject"}
			o = again.run("/bin/bash", "-c", script)
			require.NoError(t, o.err)
			require.Regexp(t, `^\[\]\n0\ncurl: `, o.out, "nothing is injected, nor read")
		})
		t.Run(row.name+" with no host allowed", func(t *testing.T) {
			t.Parallel()
			k := start(t)
			o := k.run("/bin/bash", "-c", `python3 -c "$1" "$2"; python3 -c 'import socket; socket.socket()' 2>&1 | tail -1; env | grep -ci proxy`, "sh", bareAttacks, row.port)
			require.NoError(t, o.err)
			require.Equal(t, "OSError: [Errno 97] Address family not supported by protocol\n0\n", o.out, o.say)
		})
	}
	start := func(t *testing.T) *task {
		k := newTask(t, places[1])
		k.set.Bare, k.set.User = true, credential
		return k
	}
	t.Run("git's credentials stay on this machine, and that is named", func(t *testing.T) {
		t.Parallel()
		k := newTask(t, places[1])
		k.request.Allow = []string{"good.example"}
		_, err := k.plan("true")
		require.NoError(t, err, "the control")
		k.request.Use = []string{profiles.GitCredentials}
		_, err = k.plan("true")
		require.ErrorContains(t, err, "guarantee net.inject: missing: your git's credentials stay on this machine")
	})
	t.Run("what is missing is named, and the time is up", func(t *testing.T) {
		t.Parallel()
		k := start(t)
		k.request.Limits[0] = "1g"
		o := k.run("/bin/sh", "-c", "echo ran")
		require.Equal(t, 125, o.code)
		require.Empty(t, o.out)
		require.ErrorContains(t, o.err, "guarantee res.memory: missing: no namespace can be made there")
		require.Equal(t, "--allow-missing res.memory runs without it", hint(o.err))
		k.nothingLeft()

		again := start(t)
		again.request.Limits, again.request.AllowMissing = k.request.Limits, []string{"res.memory"}
		again.request.Limits[6] = "10s"
		o = again.run("/bin/bash", "-c", `echo ran; trap "" TERM; (exec setsid sleep 600 >/dev/null 2>&1) & sleep 600`)
		require.NoError(t, o.err)
		require.Equal(t, "ran\n", o.out, "with the hint")
		require.Equal(t, 124, o.code, "%+v", o)
		again.nothingLeft()
	})
	t.Run("a command that closes pccrun's own files to its user loses nothing", func(t *testing.T) {
		t.Parallel()
		k := start(t)
		k.fault(cutOften)
		o := k.run("/bin/bash", "-c", `echo x > made; cd /home/user
chmod 0 .pccrun-*/inside/own/line .pccrun-*/inside/pccrun .pccrun-*/inside/own .pccrun-*/inside .pccrun-*
ls .pccrun-* 2>/dev/null && echo open
for ((i = 0; i < 2000; i++)); do echo line $i; done
sleep 3 # the spool looks each second whether its files are there
exit 6`)
		require.NoError(t, o.err)
		require.Equal(t, 6, o.code, o.say)
		require.Equal(t, 2000, strings.Count(o.out, "line "))
		require.NotContains(t, o.out, "open", "the control: it can close them")
		require.Equal(t, []string{"A made"}, k.changed())
		k.nothingLeft()
	})
	t.Run("of what root's copy holds only changes come down", func(t *testing.T) {
		t.Parallel()
		k := newTask(t, places[1])
		k.set.Bare, k.set.User = true, nil
		large := make([]byte, 500_000) // which nobody compresses
		_, _ = rand.Read(large)
		k.write("large", string(large))
		came := int64(0)
		k.progress = func(what string, _, total int64) {
			if what == "downloading" {
				came = total
			}
		}
		k.sh("id -u > made; echo more >> a.txt")
		require.Equal(t, []string{"M a.txt", "A made"}, k.changed())
		require.NotZero(t, came, "the control")
		require.Less(t, came, int64(10_000))
		k.nothingLeft()
	})
	t.Run("a command runs for longer than its trial may", func(t *testing.T) {
		t.Parallel()
		verdicts.SkipUnlessLong(t)
		o := start(t).run("/bin/sh", "-c", "sleep 120; echo done")
		require.NoError(t, o.err)
		require.Equal(t, "done\n", o.out)
		require.Zero(t, o.code)
	})
	t.Run("a rule that leads to the provider's daemon ends the start", func(t *testing.T) {
		t.Parallel()
		k := start(t)
		k.request.Allow = []string{machine.Address + ":2280"}
		o := k.run("/bin/sh", "-c", "echo ran")
		require.Equal(t, 125, o.code)
		require.Empty(t, o.out)
		for _, g := range []string{"net.allowlist", "sys.filter", "launch.integrity"} {
			require.ErrorContains(t, o.err, "guarantee "+g+": missing: the command can reach the provider's own daemon at "+machine.Address+":2280")
		}
	})
}

// TestWithoutIdmappedMounts: where root cannot lend the copy, since its file system maps no owners, pccrun there drops to the
// copy's owner first, or to nobody else where that is root, and namespaces surround the command.
//
//test:root
func TestWithoutIdmappedMounts(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, p := range places { // the copy is the user's, and root's
		for _, terminal := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, terminal %v", p.name, terminal), func(t *testing.T) {
				t.Parallel()
				k := newTask(t, p)
				k.set.Unmapped = true
				large := make([]byte, 500_000)
				_, _ = rand.Read(large)
				k.write("large", string(large))
				if terminal {
					k.terminal = &providers.Terminal{Name: "xterm", Size: func() (int, int) { return 80, 25 }}
				}
				came := int64(0)
				k.progress = func(what string, _, total int64) {
					if what == "downloading" {
						came = total
					}
				}
				k.request.AllowMissing = []string{"res.memory", "res.pids", "res.cpu"}
				o := k.run("/bin/bash", "-c", `[ "$(id -u)" != 0 ] && echo user; ls /proc | grep -c '^[0-9]*$'; cat /proc/net/dev | grep -c w0; echo > /dev/tty && echo tty
echo more >> a.txt; echo x > made; exit 3`)
				require.NoError(t, o.err)
				require.Equal(t, 3, o.code, "%s%s", o.out, o.say)
				if terminal {
					require.Regexp(t, "^user\r\n[1-9]\r\n0\r\n\r\ntty\r\n$", o.out)
				} else {
					require.Regexp(t, "^user\n[1-9]\n0\n$", o.out, "processes and a network of its own")
				}
				require.False(t, k.warned("no namespace can be made"), "%q", k.heard.warnings)
				require.Equal(t, []string{"M a.txt", "A made"}, k.changed())
				require.Less(t, came, int64(10_000), "what did not change stays there")
				k.nothingLeft()
			})
		}
	}
}
