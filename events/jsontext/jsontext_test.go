package jsontext

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestObject(t *testing.T) {
	f, err := Object([]byte(` { "s" : "a\"\\\/\b\f\n\r\tä\u00e4\ud83d\ude00" , "i":-12,"u":18446744073709551615,"t":true,"f":false,"n":null,
		"l":["x",""],"o":{"k":"v"},"os":[{},{"a":[]}],"e":[] }`))
	require.NoError(t, err)
	require.Equal(t, "a\"\\/\b\f\n\r\tää\U0001F600", f.String("s"))
	require.Equal(t, int64(-12), f.Int("i"))
	require.Equal(t, uint64(1<<64-1), f.Uint("u"))
	require.True(t, f.Bool("t"))
	require.False(t, f.Bool("f"))
	require.Equal(t, []string{"x", ""}, f.Strings("l"))
	require.Equal(t, "v", f.Object("o").String("k"))
	require.Len(t, f.Objects("os"), 2)
	require.Empty(t, f.Strings("e"))
	for _, name := range []string{"n", "none"} {
		require.Zero(t, f.String(name))
		require.Zero(t, f.Int(name))
		require.Empty(t, f.Object(name).String("x"))
	}
	require.NoError(t, f.Err())
}

func TestMismatch(t *testing.T) {
	for name, use := range map[string]func(*Fields){
		"string":  func(f *Fields) { f.String("one") },
		"bool":    func(f *Fields) { f.Bool("one") },
		"int":     func(f *Fields) { f.Int("half") },
		"range":   func(f *Fields) { f.Int("big") },
		"uint":    func(f *Fields) { f.Uint("minus") },
		"list":    func(f *Fields) { f.Strings("one") },
		"strings": func(f *Fields) { f.Strings("mixed") },
		"objects": func(f *Fields) { f.Objects("mixed") },
		"object":  func(f *Fields) { f.Object("one") },
		"nested":  func(f *Fields) { f.Object("in").String("n") },
		"listed":  func(f *Fields) { f.Objects("ins")[0].String("n") },
	} {
		f, err := Object([]byte(`{"one":1,"half":0.5,"big":1e30,"minus":-1,"mixed":["x",1],"in":{"n":1},"ins":[{"n":1}]}`))
		require.NoError(t, err)
		use(f)
		require.Error(t, f.Err(), name)
	}
}

func TestRefused(t *testing.T) {
	for _, text := range []string{
		"", " ", "null", "[]", "1", `""`, "{", "{}x", "{} {}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":1,"a":2}`, `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":[`,
		`{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`, `{"a":+1}`, `{"a":tru}`, `{"a":NaN}`, `{"a":"`, `{"a":"\`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u+123"}`,
		`{"a":"\ud800"}`, `{"a":"\ud800\u0041"}`, `{"a":"\udc00"}`, "{\"a\":\"\n\"}", "{\"a\":\"\xff\"}", "{\"a\":\"\\n\x01\"}", `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
		"\ufeff{}", "{}\x00", "// c\n{}",
	} {
		_, err := Object([]byte(text))
		require.Error(t, err, "%q", text)
	}
}

// What is taken here, encoding/json takes as well and sees the same in it.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"s":"a\u00e4\ud83d\ude00","n":-1.5e+3,"l":[true,false,null,{}]}`))
	f.Add([]byte(`{"a":"\ud800"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Object(data)
		if err != nil {
			return
		}
		var want map[string]any
		require.NoError(t, json.Unmarshal(data, &want))
		require.Equal(t, want, plain(t, got))
	})
}

func plain(t *testing.T, v any) any {
	switch v := v.(type) {
	case *Fields:
		m := map[string]any{}
		for i, n := range v.names {
			m[n] = plain(t, v.values[i])
		}
		return m
	case []any:
		l := []any{}
		for _, e := range v {
			l = append(l, plain(t, e))
		}
		return l
	case number:
		var n any
		if err := json.Unmarshal([]byte(v), &n); err != nil {
			t.Skip("a number that no float64 holds")
		}
		return n
	}
	return v
}
