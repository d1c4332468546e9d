package netproxy

import (
	"strings"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// The few fields of HPACK's static table whose names are looked for, RFC 7541,
// appendix A. The table ends at 61; what the message adds follows.
const (
	staticAuthority = 1
	staticPath      = 4 // "/", and 5 "/index.html"
	staticHost      = 38
	staticEnd       = 61
)

// checkFields holds each name of a host among the fields of a connection's
// first request against v's. There have to be a host and a path.
func checkFields(v rules.Verdict, block []byte) error {
	r := request{host: v.Host, port: v.Port, method: "CONNECT"} // its port may be left out
	named, path := false, false
	err := eachField(block, func(name, value string) error {
		switch strings.ToLower(name) {
		case ":authority", "host":
			named = true
			r.fields = []field{{"Host", value}}
			return r.checkHost(0)
		case ":path":
			path = strings.HasPrefix(value, "/") || value == "*"
		}
		return nil
	})
	if err == nil && (!named || !path) {
		return errUnnamed
	}
	return err
}

// eachField calls each for the fields of a connection's first header block, RFC
// 7541, section 6, whose dynamic table begins empty. Of the static table it
// knows the names that checkFields looks for; a field that repeats one of this
// block was told of before.
func eachField(b []byte, each func(name, value string) error) error {
	var added []string // names of the dynamic table, the oldest first
	for len(b) > 0 {
		bits, literal, adds := 4, true, false
		switch first := b[0]; {
		case first&0x80 != 0:
			bits, literal = 7, false
		case first&0x40 != 0:
			bits, adds = 6, true
		case first&0x20 != 0: // a size of the dynamic table
			bits, literal = 5, false
		}
		size := b[0]&0xe0 == 0x20
		index, rest, ok := readInteger(b, bits)
		if !ok {
			return errStreams
		}
		if b = rest; size {
			continue
		}
		name := ""
		switch {
		case index == 0 && !literal:
			return errStreams
		case index == 0:
			if name, b, ok = readText(b); !ok {
				return errStreams
			}
		case index > staticEnd+len(added):
			return errStreams
		case index > staticEnd:
			name = added[len(added)-(index-staticEnd)]
		case index == staticAuthority:
			name = ":authority"
		case index == staticHost:
			name = "host"
		case index == staticPath, index == staticPath+1:
			name = ":path"
		}
		value := "/" // of the static paths; other values there are empty, and a repeated one was told
		switch {
		case literal:
			if value, b, ok = readText(b); !ok {
				return errStreams
			}
		case index > staticEnd:
			continue
		case name != ":path":
			value = ""
		}
		if err := each(name, value); err != nil {
			return err
		}
		if adds {
			added = append(added, name)
		}
	}
	return nil
}

// readInteger reads an integer that begins in the last bits of a byte, RFC
// 7541, section 5.1.
func readInteger(b []byte, bits int) (n int, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	most := 1<<bits - 1
	if n = int(b[0]) & most; n < most {
		return n, b[1:], true
	}
	for i, shift := 1, 0; i < len(b) && shift <= 21; i, shift = i+1, shift+7 {
		n += int(b[i]&0x7f) << shift
		if b[i]&0x80 == 0 {
			return n, b[i+1:], true
		}
	}
	return 0, nil, false
}

// readText reads a string, section 5.2.
func readText(b []byte) (text string, rest []byte, ok bool) {
	n, rest, ok := readInteger(b, 7)
	if !ok || n > len(rest) {
		return "", nil, false
	}
	raw, rest := rest[:n], rest[n:]
	if b[0]&0x80 == 0 {
		return string(raw), rest, true
	}
	text, ok = unpack(raw)
	return text, rest, ok
}

// codeLengths has, for each byte, the length of its code in bits, as a letter
// from a = 5 on: RFC 7541, appendix B. The codes themselves follow from it,
// since they are canonical: in order of length, and then of the byte.
const codeLengths = "isxxxxxxxtzxxzxxxxxxxxzxxxxxxxxxbffhibdgffdgdbbbaaabbbbbbbcdkbhf" +
	"ibccccccccccccccccccccccdcdioijbkabababbbaccbbbabcbaabccccckgjix" +
	"prpprrrsrssssststtrstssssqrsrsstrqprrssqsrrtqrssqqrqsrssprrrsrrs" +
	"vvporsruvvvwwvtuoqvwwvwtqqvvxwwwptpqrqqsrruuttvsvwvvwwwwwxwwwwwv"

const (
	shortest = 5
	longest  = 30
)

// unpack reads Huffman's code. What is left at the end is less than a byte, of
// ones.
func unpack(b []byte) (string, bool) {
	var count [longest + 1]int
	for i := range len(codeLengths) {
		count[codeLengths[i]-'a'+shortest]++
	}
	var out []byte
	code, first, length := 0, 0, 0
	for _, octet := range b {
		for bit := 7; bit >= 0; bit-- {
			code, first, length = code<<1|int(octet>>bit)&1, first<<1, length+1
			if length > longest {
				return "", false
			}
			if code-first < count[length] {
				out = append(out, symbol(length, code-first))
				code, first, length = 0, 0, 0
				continue
			}
			first += count[length]
		}
	}
	return string(out), length < 8 && code == 1<<length-1
}

// symbol returns the nth byte whose code has a length.
func symbol(length, n int) byte {
	for i := range len(codeLengths) {
		if int(codeLengths[i]-'a')+shortest == length {
			if n == 0 {
				return byte(i)
			}
			n--
		}
	}
	return 0
}
