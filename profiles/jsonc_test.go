package profiles

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJSONC(t *testing.T) {
	v, err := parseJSONC("f", `// head
{
  "a": [1, -2.5e3, "x\n\u00e9\ud83d\ude00\/", true, null,], /* two
  lines */ "b": {}, // tail
}
// end`)
	require.NoError(t, err)
	require.Equal(t, kindObject, v.kind)
	require.Equal(t, "a", v.members[0].key)
	require.Equal(t, 3, v.members[0].line)
	require.Equal(t, "b", v.members[1].key)
	require.Equal(t, 4, v.members[1].line)
	var got []string
	for _, item := range v.members[0].value.items {
		got = append(got, item.text)
	}
	require.Equal(t, []string{"1", "-2.5e3", "x\né😀/", "true", "null"}, got)
}

func TestJSONCRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "f:1: end of file: want a value",
		"{":                         "f:1: end of file: want a key in double quotes, or }",
		"{\n\n":                     "f:3: end of file: want a key in double quotes, or }",
		"{}\n{}":                    "f:2: '{' after the end of the value",
		"{a: 1}":                    "f:1: 'a': want a key in double quotes, or }",
		"{'a': 1}":                  `f:1: '\'': want a key in double quotes, or }`,
		`{"a" 1}`:                   `f:1: '1' after the key "a": want a colon`,
		`{"a": 1 "b": 2}`:           `f:1: '"': want a comma or }`,
		`{"a": 1,, "b": 2}`:         "f:1: ',': want a key in double quotes, or }",
		`[1 2]`:                     "f:1: '2': want a comma or ]",
		`[,]`:                       "f:1: ',': want a value",
		`yes`:                       "f:1: yes: want a value; put strings in double quotes",
		`True`:                      "f:1: True: want a value; put strings in double quotes",
		`01`:                        `f:1: number "01": not a JSON number`,
		`+1`:                        "f:1: '+': want a value",
		`.5`:                        "f:1: '.': want a value",
		`1.`:                        `f:1: number "1.": not a JSON number`,
		`1e`:                        `f:1: number "1e": not a JSON number`,
		`-`:                         `f:1: number "-": not a JSON number`,
		`0x10`:                      `f:1: number "0x10": not a JSON number`,
		`1_000`:                     `f:1: number "1_000": not a JSON number`,
		`NaN`:                       "f:1: NaN: want a value; put strings in double quotes",
		`"a`:                        "f:1: string without an end",
		`"a\`:                       "f:1: string without an end",
		"\"a\nb\"":                  `f:1: control character '\n' in a string`,
		"\"a\x00b\"":                `f:1: control character '\x00' in a string`,
		"\"\\n\x00\"":               `f:1: control character '\x00' in a string`,
		`"\x41"`:                    `f:1: string "\x41": not a JSON string: unknown escape`,
		`"\u12"`:                    `f:1: string "\u12": not a JSON string: unknown escape`,
		`"\ud800"`:                  `f:1: string "\ud800": not a JSON string: unknown escape`,
		`"\ud800\u0041"`:            `f:1: string "\ud800\u0041": not a JSON string: unknown escape`,
		"\"\xff\"":                  "f:1: string is not valid UTF-8",
		"\"\\n\xff\"":               "f:1: string is not valid UTF-8",
		"\xef\xbb\xbf{}":            "f:1: byte order mark: want plain UTF-8",
		"\xff\xfe{\x00}\x00":        "f:1: byte order mark: want plain UTF-8",
		"{} /* ":                    "f:1: comment without an end",
		"{} # x":                    "f:1: '#' after the end of the value",
		strings.Repeat("[", 100000): "f:1: nested deeper than 32",
		`{"a":` + strings.Repeat(" ", maxFile) + "1}": "f:1: 1048583 bytes: want at most 1048576",
	} {
		_, err := parseJSONC("f", text)
		require.EqualError(t, err, want, "%.40q", text)
	}
}

func TestNearest(t *testing.T) {
	require.Equal(t, "filesystem", Nearest("filesytem", keysIn("")))
	require.Equal(t, "network", Nearest("networks", keysIn("")))
	require.Equal(t, "deny", Nearest("dney", keysIn("protect")))
	require.Equal(t, "", Nearest("quux", keysIn("")))
	require.Equal(t, "", Nearest(strings.Repeat("x", 1000), keysIn("")))
	require.Equal(t, "", Nearest("", keysIn("")))
}

func FuzzJSONC(f *testing.F) {
	for _, seed := range []string{`{"a": [1, 2.5, "x"], "b": null}`, "// c\n{\"a\": true,}", `"\ud83d\ude00"`, "[[[[]]]]", "/* */ 1e5", "{\"a\":1,\"a\":2}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseJSONC("f", text)
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "f:"), "%v", err)
		}
		// Where text is plain JSON, and nothing that is refused on purpose,
		// encoding/json must agree.
		if json.Valid([]byte(text)) && !strings.Contains(text, `\u`) && strings.ToValidUTF8(text, "") == text && !deep([]byte(text)) {
			require.NoError(t, err)
			d := json.NewDecoder(strings.NewReader(text))
			d.UseNumber()
			var want any
			require.NoError(t, d.Decode(&want))
			require.Equal(t, want, plain(v))
		}
	})
}

func deep(text []byte) bool {
	return bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxDepth
}

// plain turns a value into what encoding/json makes of it.
func plain(v value) any {
	switch v.kind {
	case kindBool:
		return v.text == "true"
	case kindNumber:
		return json.Number(v.text)
	case kindString:
		return v.text
	case kindArray:
		list := []any{}
		for _, item := range v.items {
			list = append(list, plain(item))
		}
		return list
	case kindObject:
		object := map[string]any{}
		for _, m := range v.members {
			object[m.key] = plain(m.value)
		}
		return object
	}
	return nil
}

func TestJSON(t *testing.T) {
	text, err := JSON("f", "// mine\n{\"a\": [1.50, -2e3, \"x\\n\", true, null,], /* a // b */ \"c\": {},}")
	require.NoError(t, err)
	require.Equal(t, `{"a":[1.50,-2e3,"x\n",true,null],"c":{}}`, string(text))
	for text, why := range map[string]string{"{": "f:1: end of file", "{}\n{}": "f:2: ", "{\"a\": {\n\"b\": 1,\n\"b\": 2}}": "f:3: b: duplicate, first in line 2"} {
		_, err := JSON("f", text)
		require.ErrorContains(t, err, why, text)
	}
}
