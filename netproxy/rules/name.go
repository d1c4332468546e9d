package rules

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

var (
	errLength  = errors.New("not a host name: empty, a label over 63 bytes or a name over 253")
	errChar    = errors.New("not a host name: invalid character")
	errDot     = errors.New("not a host name: a dot that is not ASCII")
	errIDNA    = errors.New("not a host name: not valid in IDNA")
	errNumeric = errors.New("not a host name: the last label is a number, which some programs read as an address")
)

// canonical returns the one spelling of a name that rules and requests are
// compared in: IDNA to ASCII, lower case, without the final dot. Addresses in
// any spelling are refused here.
func canonical(name string) (string, error) {
	name = strings.TrimSuffix(name, ".")
	ascii := true
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 0x80:
			ascii = false
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		default:
			return "", errChar
		}
	}
	if len(name) == 0 || len(name) > 1024 { // 253, with room for what IDNA makes shorter
		return "", errLength
	}
	out := strings.ToLower(name)
	if !ascii || strings.Contains(out, "xn--") {
		var err error
		if out, err = throughIDNA(name); err != nil {
			return "", err
		}
	}
	if len(out) > 253 {
		return "", errLength
	}
	last := ""
	for label := range strings.SplitSeq(out, ".") {
		if label == "" || len(label) > 63 {
			return "", errLength
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return "", errChar
		}
		last = label
	}
	if isNumber(last) {
		return "", errNumeric
	}
	return out, nil
}

// throughIDNA maps and checks a name that is not plain ASCII. The mapping can
// make dots, or whole labels, of other characters; such a name is refused.
func throughIDNA(name string) (string, error) {
	if strings.ContainsAny(name, "\u3002\uff0e\uff61") {
		return "", errDot
	}
	out, err := idna.Lookup.ToASCII(name)
	if err != nil || strings.Count(out, ".") != strings.Count(name, ".") {
		return "", errIDNA
	}
	if again, err := idna.Lookup.ToASCII(out); err != nil || again != out {
		return "", errIDNA
	}
	return out, nil
}

// isNumber says whether inet_aton or a browser would read a name with this
// last label as an IPv4 address ("ends in a number", WHATWG URL 3.5).
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// SplitAuthority reads host [":" port] with an IPv6 address in brackets. A port
// of 0 means that there has to be one. Whether the host is one is
// [Set.Decide]'s to say.
func SplitAuthority(text string, port uint16) (string, uint16, bool) {
	if strings.ContainsFunc(text, func(c rune) bool { return c >= 0x7f }) {
		return "", 0, false
	}
	host, rest := text, ""
	if after, ok := strings.CutPrefix(text, "["); ok {
		if host, rest, ok = strings.Cut(after, "]"); !ok || !strings.Contains(host, ":") {
			return "", 0, false
		}
	} else if i := strings.IndexByte(text, ':'); i >= 0 {
		host, rest = text[:i], text[i:]
	}
	if digits, ok := strings.CutPrefix(rest, ":"); ok {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || digits[0] == '0' {
			return "", 0, false
		}
		port, rest = uint16(n), ""
	}
	return host, port, host != "" && rest == "" && port != 0
}
