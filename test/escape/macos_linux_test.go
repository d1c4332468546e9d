package escape

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// macHere is the suite in which what runs a payload does nothing of a sandbox's: the control of each
// probe has to get what it is after in the world that was made for it. Inside, a script stands in.
func macHere(t *testing.T, inside string) *macSuite {
	self, err := os.Executable()
	require.NoError(t, err)
	return &macSuite{
		self: self, cage: func(_ string, argv []string) []string { return argv },
		sandbox: func(w *macWorld, _, argv []string) []string {
			if inside == "" {
				return argv
			}
			return []string{"/bin/sh", "-c", inside, "sh", w.Nonce}
		},
	}
}

// macElsewhere are the probes whose control needs something that is macOS's.
var macElsewhere = []string{"net.name-server", "privilege.set-id-program"}

func TestMacControls(t *testing.T) {
	l, err := listenAsNameServer(t.TempDir() + "/names")
	require.NoError(t, err)
	defer l.Close()
	s := macHere(t, `echo "sentinel $1 not: refused"`)
	for _, p := range macProbes() {
		if slices.Contains(macElsewhere, p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			r := s.probe(&p)
			require.Equal(t, macBlocked, r.Verdict, r.Detail)
		})
	}
}

// TestMacVerdicts wants each verdict for what it stands for.
func TestMacVerdicts(t *testing.T) {
	for inside, want := range map[string]string{
		`echo "sentinel $1 not: refused"`: macBlocked, `echo "sentinel $1 got"`: macEscaped, `echo "sentinel forged got"`: macError, `echo no; exit 125`: macError,
	} {
		var out bytes.Buffer
		code := macHere(t, inside).main([]string{"hide.read", "--json"}, &out)
		var list []macResult
		require.NoError(t, json.Unmarshal(out.Bytes(), &list))
		require.Equal(t, want, list[0].Verdict, inside)
		require.Equal(t, map[string]int{macBlocked: 0, macEscaped: 1, macError: 3}[want], code)
	}
	s := macHere(t, `true`)
	s.cage = func(string, []string) []string { return []string{"/bin/sh", "-c", "exit 1"} }
	require.Equal(t, macError, s.probe(&macProbes()[0]).Verdict)
	var out bytes.Buffer
	require.Equal(t, 2, s.main([]string{"no.such"}, &out))
	require.Equal(t, 2, macPayload([]string{"no.such", "{}"}, &out))
	require.Equal(t, 2, macPayload([]string{"hide.read"}, &out))
	require.Equal(t, 0, macPayload([]string{"hide.read", `{"Dir":"/nowhere","Nonce":"n"}`}, &out))
	require.Contains(t, out.String(), "sentinel n not: open /nowhere/home/.ssh/id_rsa")
	vacuous := macProbe{name: "none", try: func(*macWorld) error { return nil }}
	s = macHere(t, "")
	s.cage = func(_ string, argv []string) []string {
		var w macWorld
		require.NoError(t, json.Unmarshal([]byte(argv[3]), &w))
		return []string{"/bin/echo", "sentinel " + w.Nonce + " not: nothing"}
	}
	require.Equal(t, macVacuous, s.probe(&vacuous).Verdict)
}
