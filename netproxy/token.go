package netproxy

import (
	"encoding/base64"
	"io"
)

// TokenUser is the name under which a client gives the token of [Config.Token].
const TokenUser = "pccrun"

// tokenField is the value of Proxy-Authorization by which a client gives the token.
func tokenField(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(TokenUser+":"+token))
}

// admits reports whether a request gives the token by its Proxy-Authorization, where there is one to give.
func (p *Proxy) admits(given []string) bool {
	if p.cfg.Token == "" {
		return true
	}
	return len(given) == 1 && same(given[0], tokenField(p.cfg.Token))
}

// admitSOCKS asks a client for the token, as a user and a password: RFC 1929.
func (c *client) admitSOCKS() bool {
	var b [256]byte
	read := func(n byte) (string, bool) {
		_, err := io.ReadFull(c.br, b[:n])
		return string(b[:n]), err == nil
	}
	version, ok := read(1)
	if !ok || version[0] != socksTokenVersion {
		return false
	}
	var words [2]string // user, password
	for i := range words {
		size, ok := read(1)
		if !ok {
			return false
		}
		if words[i], ok = read(size[0]); !ok {
			return false
		}
	}
	right := same(words[0]+":"+words[1], TokenUser+":"+c.cfg.Token)
	status := byte(1)
	if right {
		status = socksOK
	}
	if _, err := c.conn.Write([]byte{socksTokenVersion, status}); err != nil {
		return false
	}
	if !right {
		c.linger()
	}
	return right
}

// same compares in a time that does not tell where two strings of a length differ. (The
// launcher would start later with what crypto/subtle links.)
func same(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	differ := byte(0)
	for i := range len(a) {
		differ |= a[i] ^ b[i]
	}
	return differ == 0
}
