package meter

// A scanner reads JSON as it comes, of any length, in the room that it has: it calls found for each string, number, and
// literal that is not too long, with the names of the objects' members that lead there. What is no JSON gives it nothing
// sensible, and never an error: whoever counts goes by what was found.
type scanner struct {
	found func(path []string, value string, quoted bool)

	keys   []string // of the members that are open; "" of an array
	deep   int      // beyond maxDepth
	key    bool     // the next string is a name
	began  bool
	token  []byte
	long   bool // the token is longer than its room
	inside bool // a string
	escape bool
	text   int64 // bytes of the strings that are values, but for those that say what stands beside them
}

// Bounds of what is kept: deeper values are passed over, and longer ones count as text alone.
const (
	maxDepth = 8
	maxToken = 128
)

// reset begins another document.
func (s *scanner) reset() {
	*s = scanner{found: s.found, keys: s.keys[:0], token: s.token[:0], text: s.text, began: s.began}
}

// whole reports whether a document has begun, and has ended.
func (s *scanner) whole() bool { return s.began && len(s.keys) == 0 && s.deep == 0 && !s.inside }

func (s *scanner) scan(b []byte) {
	for _, c := range b {
		switch {
		case s.inside:
			s.inString(c)
		case c == '"':
			s.inside, s.long, s.token = true, false, s.token[:0]
		case c == '{' || c == '[':
			s.literal()
			s.open(c == '{')
		case c == '}' || c == ']':
			s.literal()
			s.close()
		case c == ',':
			s.literal()
			s.key = len(s.keys) > 0 && s.deep == 0 && s.keys[len(s.keys)-1] != array
			if s.key {
				s.keys[len(s.keys)-1] = ""
			}
		case c == ':' || c <= ' ':
			s.literal()
		default:
			s.keep(c)
		}
	}
}

// array is what stands for an array among the names.
const array = "[]"

func (s *scanner) open(object bool) {
	s.began = true
	if len(s.keys) == maxDepth {
		s.deep++
		return
	}
	if s.key = object; object {
		s.keys = append(s.keys, "")
	} else {
		s.keys = append(s.keys, array)
	}
}

func (s *scanner) close() {
	s.key = false
	switch {
	case s.deep > 0:
		s.deep--
	case len(s.keys) > 0:
		s.keys = s.keys[:len(s.keys)-1]
	}
}

func (s *scanner) keep(c byte) {
	if s.long = s.long || len(s.token) == maxToken; !s.long {
		s.token = append(s.token, c)
	}
}

// inString takes a byte of a string. An escape is one character that is none of the names that count.
func (s *scanner) inString(c byte) {
	switch {
	case s.escape:
		s.escape = false
		s.keep('\\')
	case c == '\\':
		s.escape = true
	case c != '"':
		s.keep(c)
		if !s.key {
			s.text++
		}
	default:
		s.inside = false
		s.string()
	}
}

func (s *scanner) string() {
	if s.key {
		s.key = false
		s.keys[len(s.keys)-1] = string(s.token)
		if s.long || s.keys[len(s.keys)-1] == array {
			s.keys[len(s.keys)-1] = "\x00"
		}
	} else if s.deep == 0 && !s.long {
		if n := len(s.keys); n > 0 && s.keys[n-1] == "type" {
			s.text -= int64(len(s.token))
		}
		s.found(s.keys, string(s.token), true)
	}
	s.token, s.long = s.token[:0], false
}

// literal ends a number or a word.
func (s *scanner) literal() {
	if len(s.token) > 0 && s.deep == 0 && !s.long {
		s.found(s.keys, string(s.token), false)
	}
	s.token, s.long = s.token[:0], false
}
