package netproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// fields are what an answer of the proxy's own says, in order.
type fields [][2]string

// deny answers 403. The status line says it too, since many clients show no
// more than that.
func (c *client) deny(r request, v rules.Verdict) {
	phrase := "Denied by pccrun"
	if v.AllowWith != "" {
		phrase += " (to allow: " + v.AllowWith + ")"
	}
	f := fields{{"error", "denied"}, {"host", v.Host}, {"port", strconv.Itoa(int(v.Port))}, {"reason", string(v.Reason)}, {"rule", v.Rule}}
	if v.Detail != "" {
		f = append(f, [2]string{"detail", v.Detail})
	}
	c.answer(r, 403, phrase, append(f, [2]string{"allow_with", v.AllowWith}))
}

// refuse answers a message that is not understood.
func (c *client) refuse(r request, err error) {
	var no *refusal
	switch {
	case errors.As(err, &no):
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return
	case errors.Is(err, os.ErrDeadlineExceeded):
		no = &refusal{408, "the request head did not arrive in time"}
	case errors.Is(err, errHeadTooLong), errors.Is(err, errLongHeads):
		no = &refusal{431, err.Error()}
	default:
		no = bad(err.Error())
	}
	c.answer(r, no.status, phrases(no.status), fields{{"error", "refused"}, {"detail", no.detail}})
}

func phrases(status int) string {
	switch status {
	case 407:
		return "Proxy Authentication Required"
	case 408:
		return "Request Timeout"
	case 421:
		return "Misdirected Request"
	case 431:
		return "Request Header Fields Too Large"
	case 505:
		return "HTTP Version Not Supported"
	}
	return "Bad Request"
}

// answer sends an answer of the proxy's own and ends the connection: as JSON,
// or as text to whoever reads it on a terminal.
func (c *client) answer(r request, status int, phrase string, f fields) {
	var body []byte
	kind := "application/json"
	if wantsText(r) {
		kind = "text/plain; charset=utf-8"
		body = appendText(nil, f)
	} else {
		body = appendJSON(nil, f)
	}
	b := []byte("HTTP/1.1 " + strconv.Itoa(status) + " " + phrase +
		"\r\nContent-Type: " + kind +
		"\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\nCache-Control: no-store\r\nConnection: close\r\n")
	if status == errNoToken.status { // what git waits for before it gives one
		b = append(b, "Proxy-Authenticate: Basic realm=\"pccrun\"\r\n"...)
	}
	b = append(b, "\r\n"...)
	if r.method != "HEAD" {
		b = append(b, body...)
	}
	c.conn.SetDeadline(time.Now().Add(c.headTimeout))
	if _, err := c.conn.Write(b); err != nil {
		return
	}
	c.linger()
}

// explain says why something failed without telling addresses of the host's
// network, its resolver or its own proxy: those are in the event.
func explain(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var up *upstreamError
	switch {
	case errors.As(err, &up):
		return "the host's own proxy: " + explain(up.err)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	case errors.As(err, &dns):
		return "the name does not resolve"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to host"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection cut short"
	case errors.As(err, &op):
		return "connection failed"
	}
	return err.Error()
}

// lingerTime is how long a client has to hang up after the proxy's last word.
const lingerTime = 500 * time.Millisecond

// linger waits a moment for the client to hang up. Closing with bytes of its
// unread would reset the connection, and take the answer with it.
func (c *client) linger() {
	closeWrite(c.conn)
	c.conn.SetReadDeadline(time.Now().Add(c.lingerTime))
	io.Copy(io.Discard, c.conn)
}

// wantsText says whether a person reads the answer.
func wantsText(r request) bool {
	if r.has("Accept", "text/plain") {
		return true
	}
	for _, agent := range r.get("User-Agent") {
		for _, tool := range [...]string{"curl/", "Wget/", "git/"} {
			if strings.HasPrefix(agent, tool) {
				return true
			}
		}
	}
	return false
}

func appendText(b []byte, f fields) []byte {
	b = append(b, "pccrun:"...)
	for _, kv := range f {
		if kv[1] != "" {
			b = append(b, ' ')
			b = append(b, kv[0]...)
			b = append(b, '=')
			b = strconv.AppendQuoteToASCII(b, kv[1])
		}
	}
	return append(b, '\n')
}

// appendJSON writes one object, with its fields in order.
func appendJSON(b []byte, f fields) []byte {
	for i, kv := range f {
		b = append(b, "{,"[min(i, 1)])
		b = append(append(append(b, events.Marshal(kv[0])...), ':'), events.Marshal(kv[1])...)
	}
	return append(b, "}\n"...)
}
