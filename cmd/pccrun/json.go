package main

import (
	"bytes"
	"encoding/json"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
)

// An object is a JSON object with its fields in order. Values are what encoding/json
// takes; a nil slice of strings or objects is an empty list.
type object []field

type field struct {
	key   string
	value any
}

const schemaVersion = messages.SchemaVersion

// printJSON prints a verb's result.
func printJSON(o object) {
	var out bytes.Buffer
	_ = json.Indent(&out, events.Marshal(append(object{{"v", schemaVersion}}, o...)), "", "  ") // it is JSON
	stdout.Write(append(out.Bytes(), '\n'))
}

// result prints what a verb has done, as an object or by print in words, "" for none, and returns its exit status.
func result(asJSON bool, o object, print func(text string), words string) int {
	if asJSON {
		printJSON(o)
	} else if words != "" {
		print(words)
	}
	return 0
}

// MarshalJSON is for encoding/json.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, f := range o {
		if i > 0 {
			b = append(b, ',')
		}
		switch v := f.value.(type) {
		case []string:
			f.value = append([]string{}, v...)
		case []object:
			f.value = append([]object{}, v...)
		}
		b = append(append(b, events.Marshal(f.key)...), ':')
		b = append(b, events.Marshal(f.value)...)
	}
	return append(b, '}'), nil
}

// each returns a list of objects, one for each of another list.
func each[T any](list []T, of func(T) object) []object {
	objects := make([]object, len(list))
	for i := range list {
		objects[i] = of(list[i])
	}
	return objects
}
