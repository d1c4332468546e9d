package workspace

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

func TestTreeRefuses(t *testing.T) {
	for _, text := range []string{
		"", "1", "[]", "{", "{}x", "{} {}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{a:1}`, `{'a':1}`,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"__proto__":1}`, `{"a":[{"__proto\u005f_":1}]}`, "\ufeff{}", "{\"a\":\"\n\"}", "{\"a\":\"\xff\"}",
		`{"a":01}`, `{"a":+1}`, `{"a":.5}`, `{"a":1.}`, `{"a":1e}`, `{"a":0x1}`, `{"a":NaN}`, `{"a":truth}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":tru}`, `{"a":truefalse}`, `{"a":falsenull}`, `{"a":nullnull}`,
		`{"a":1} // comment`, `{"a":[1,]}`, `{"a":` + strings.Repeat("[", maxDeep+1) + strings.Repeat("]", maxDeep+1) + "}",
	} {
		_, err := parseTree([]byte(text))
		require.ErrorIs(t, err, errJSON, text)
	}
}

func TestTreeKeepsWhatStands(t *testing.T) {
	const text = `{
  "z": 1.0,
  "a": "\u0041\ud800 é \"",
  "list": [
    1,
    {
      "b": null
    }
  ],
  "none": {},
  "nil": []
}
`
	tree, err := parseTree([]byte(text))
	require.NoError(t, err)
	require.Equal(t, text, string(tree.bytes()))
	require.True(t, tree.set([]string{"new \"one\"\n", "x"}, tree.get("a")))
	require.True(t, tree.set([]string{"z"}, nil))
	require.False(t, tree.set([]string{"a", "x"}, tree.get("a")), "a string is no object")
	again, err := parseTree(tree.bytes())
	require.NoError(t, err)
	require.True(t, again.same(tree))
	require.Nil(t, again.get("z"))
	require.NotNil(t, again.at([]string{"new \"one\"\n", "x"}))
}

// What Go and this parser both read means the same to both.
func FuzzTree(f *testing.F) {
	f.Add(`{"a": [1, {"b": "\u00e9\n"}], "c": {}, "d": -1.5e3}`)
	f.Add(`{"a":1,"a":2}`)
	f.Add(`{"\ud83d\ude00": "\ud83d"}`)
	f.Add(`{"a":truefalse}`)
	f.Fuzz(func(t *testing.T, text string) {
		tree, err := parseTree([]byte(text))
		if err != nil {
			return
		}
		var want, have any
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		require.NoError(t, json.Unmarshal(tree.bytes(), &have))
		require.Equal(t, want, have)
		again, err := parseTree(tree.bytes())
		require.NoError(t, err)
		require.True(t, tree.same(again))
		require.Empty(t, difference(tree, again))
	})
}

// randomTree is one of few names, so that two of them have much in common.
func randomTree(r *rand.Rand, deep int) string {
	if deep == 0 || r.IntN(3) == 0 {
		return []string{"1", `"x"`, "[1]", "[]", "{}", "null", "true"}[r.IntN(7)]
	}
	var parts []string
	for _, name := range []string{"a", "b", "c"} {
		if r.IntN(2) == 0 {
			parts = append(parts, fmt.Sprintf("%q: %s", name, randomTree(r, deep-1)))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// All changes together make one tree the other, but for what is empty; and what
// no rule covers stays as it was, whatever else changes.
func TestTreeChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	k := Keyed{Rules: profiles.KeyedFile{Keys: []profiles.KeyRule{{Pattern: "a"}, {Pattern: "b.a"}, {Pattern: "c.*.b"}, {Pattern: "a.b", Fate: profiles.Drop}}}}
	for range 20_000 {
		before, after := `{"a": `+randomTree(r, 3)+`, "b": `+randomTree(r, 3)+"}", `{"b": `+randomTree(r, 3)+`, "c": `+randomTree(r, 3)+"}"
		from, err := parseTree([]byte(before))
		require.NoError(t, err)
		to, err := parseTree([]byte(after))
		require.NoError(t, err)
		k.Given = []byte(before)
		changes, err := k.sort([]byte(after))
		require.NoError(t, err)

		host, err := parseTree([]byte(before))
		require.NoError(t, err)
		left := merge(host, changes.keep)
		for _, c := range difference(from, host) {
			fate, known := k.Rules.Fate(c.names)
			require.True(t, known && fate == profiles.Keep, "%s became %s: %s", before, after, c.path())
		}
		dropped := slices.ContainsFunc(difference(from, to), func(c keyChange) bool {
			fate, _ := k.Rules.Fate(c.names)
			return fate == profiles.Drop
		})
		if !dropped {
			left = merge(host, append(changes.back, left...))
			require.Empty(t, left)
			require.Empty(t, difference(host, to), "%s is not %s", host.bytes(), after)
		}
		require.Empty(t, merge(from, difference(from, to)))
		require.Empty(t, difference(from, to), "%s is not %s", from.bytes(), after)
	}
}

// A longer pattern decides on what is in an object, though the object as a whole
// comes in the place of something else, or goes.
func TestTreeLonger(t *testing.T) {
	k := Keyed{Rules: profiles.KeyedFile{Keys: []profiles.KeyRule{{Pattern: "a"}, {Pattern: "a.b", Fate: profiles.Drop}}}}
	for _, c := range [][3]string{ // the host's file, what it becomes in the copy, what the host gets
		{`{"a": 1}`, `{"a": {"b": "evil", "c": 2}}`, `{"a": {"c": 2}}`},
		{`{"a": [1]}`, `{"a": {"b": "evil"}}`, `{}`},
		{`{"a": {"b": "own", "c": 1}}`, `{"a": 2}`, `{"a": {"b": "own"}}`},
		{`{"a": {"c": 1}}`, `{"a": 2}`, `{"a": 2}`},
	} {
		host, err := parseTree([]byte(c[0]))
		require.NoError(t, err)
		k.Given = []byte(c[0])
		changes, err := k.sort([]byte(c[1]))
		require.NoError(t, err)
		merge(host, changes.keep)
		require.JSONEq(t, c[2], string(host.bytes()))
	}
}
