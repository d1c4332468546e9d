package egress

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// turns is what servers say of protocols that turn to TLS, and how much they hear before
// each: a line, or so many bytes.
var turns = map[string][]struct {
	hear int // 0: a line
	say  string
}{
	"smtp":     {{-1, "220 x ESMTP\r\n"}, {0, "250-x\r\n250 STARTTLS\r\n"}, {0, "220 go\r\n"}},
	"imap":     {{-1, "* OK ready\r\n"}, {0, "* CAPABILITY IMAP4rev1 STARTTLS\r\n. OK\r\n"}, {0, ". OK begin\r\n"}},
	"pop3":     {{-1, "+OK ready\r\n"}, {0, "+OK begin\r\n"}},
	"ftp":      {{-1, "220 ready\r\n"}, {0, "234 go\r\n"}},
	"postgres": {{8, "S"}},
	"ldap":     {{31, "0\x0c\x02\x01\x01x\x07\n\x01\x00\x04\x00\x04\x00"}},
	"mysql":    {{-1, "\x38\x00\x00\x00\x0a8.0.36\x00" + strings.Repeat("\x01", 12) + "\x00\xff\xff" + strings.Repeat("\x00", 33)}, {36, ""}},
}

// TestTurnsToTLS: OpenSSL's client greets by STARTTLS and its like, for the host that it
// is connected to, and for another, which the same server would answer too.
func TestTurnsToTLS(t *testing.T) {
	verdicts.SkipAsRoot(t)
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("needs openssl")
	}
	for protocol, steps := range turns {
		t.Run(protocol, func(t *testing.T) {
			asked := make(chan string, 9)
			answer := func(c net.Conn) {
				defer c.Close()
				b := make([]byte, 1)
				for _, step := range steps {
					for n := 0; step.hear >= 0 && (step.hear == 0 && b[0] != '\n' || n < step.hear); n++ {
						if _, err := c.Read(b); err != nil {
							return
						}
					}
					b[0] = 0
					io.WriteString(c, step.say)
				}
				config := theWorld.tls.Clone()
				config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
					asked <- h.ServerName
					return nil, nil
				}
				secure := tls.Server(c, config)
				_, _ = io.Copy(secure, secure)
			}
			const at = git4 + ":25"
			theWorld.mu.Lock()
			theWorld.serve[at] = answer
			theWorld.mu.Unlock()
			t.Cleanup(func() {
				theWorld.mu.Lock()
				defer theWorld.mu.Unlock()
				delete(theWorld.serve, at)
			})
			b := newBench(t, "--allow", "git.good.example:25")
			script := func(name string) string {
				return fmt.Sprintf("(sleep 1; echo Q) | openssl s_client -starttls %s -connect git.good.example:25 -servername %s -CAfile $CA -verify_return_error -brief 2>&1", protocol, name)
			}
			out, _ := b.outside(script("evil.example"))
			require.Contains(t, out, "CONNECTION ESTABLISHED", "the control: outside it works")
			require.Equal(t, "evil.example", <-asked)
			out, _ = b.inside(bare + script("git.good.example"))
			require.Contains(t, out, "CONNECTION ESTABLISHED")
			require.Equal(t, "git.good.example", <-asked)
			out, _ = b.inside(bare + script("evil.example"))
			require.NotContains(t, out, "CONNECTION ESTABLISHED")
			require.Contains(t, out, "unrecognized name")
			require.Empty(t, asked)
		})
	}
}
