// Package codec writes values of Go as bytes, one behind the other, and reads them: numbers as varints, texts and lists
// behind their length. Names need not be UTF-8, which JSON would ask for.
//
// It takes the exported fields of structs, and leaves out where a rule comes from. Bytes that say something else than a
// value of the type are refused.
package codec

import (
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// Append appends what a pointer leads to.
func Append(b []byte, from any) []byte { return appendValue(b, reflect.ValueOf(from).Elem()) }

// Read reads what [Append] wrote of one value into what a pointer leads to, and reports whether the text is that and
// nothing else.
func Read(text string, into any) bool {
	d := reader{in: text}
	d.value(reflect.ValueOf(into).Elem())
	return !d.bad && d.in == ""
}

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.String:
		b = append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...)
	case reflect.Bool:
		b = append(b, flag(v.Bool()))
	case reflect.Int, reflect.Int64:
		b = binary.AppendUvarint(b, uint64(v.Int()))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		b = binary.AppendUvarint(b, v.Uint())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice {
			b = binary.AppendUvarint(b, uint64(v.Len()))
		}
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
	case reflect.Map: // by paths; nil, of which nobody knows what was in it, is not an empty one
		if v.IsNil() {
			return append(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(v.Len())+1)
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			b = appendValue(appendValue(b, key), v.MapIndex(key))
		}
	case reflect.Pointer:
		if b = append(b, flag(!v.IsNil())); !v.IsNil() {
			b = appendValue(b, v.Elem())
		}
	case reflect.Struct:
		switch v.Type() {
		case originType:
			return b
		case timeType:
			return binary.AppendUvarint(b, uint64(v.Interface().(time.Time).UnixNano()))
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanInterface() {
				b = appendValue(b, field)
			}
		}
	}
	return b
}

var (
	originType = reflect.TypeFor[profiles.Origin]()
	timeType   = reflect.TypeFor[time.Time]()
)

// A reader reads what appendValue wrote.
type reader struct {
	in  string
	bad bool // what was read is something else; all that follows is zero
}

func (d *reader) number() uint64 {
	n, size := binary.Uvarint([]byte(d.in[:min(len(d.in), binary.MaxVarintLen64)]))
	if size <= 0 {
		d.in, d.bad = "", true
		return 0
	}
	d.in = d.in[size:]
	return n
}

// length is that of a text or a list, of which each element takes a byte at least.
func (d *reader) length() int {
	n := d.number()
	if n > uint64(len(d.in)) {
		d.in, d.bad, n = "", true, 0
	}
	return int(n)
}

func (d *reader) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		n := d.length()
		v.SetString(d.in[:n])
		d.in = d.in[n:]
	case reflect.Bool:
		v.SetBool(d.number() == 1)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(d.number()))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(d.number())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice {
			if n := d.length(); n > 0 {
				v.Set(reflect.MakeSlice(v.Type(), n, n))
			}
		}
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	case reflect.Map:
		n := d.number()
		if n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
		}
		for ; n > 1 && !d.bad; n-- {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			d.value(key)
			d.value(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		if d.number() == 1 {
			v.Set(reflect.New(v.Type().Elem()))
			d.value(v.Elem())
		}
	case reflect.Struct:
		switch v.Type() {
		case originType:
			return
		case timeType:
			v.Set(reflect.ValueOf(time.Unix(0, int64(d.number()))))
			return
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanInterface() {
				d.value(field)
			}
		}
	}
}

func flag(is bool) byte {
	if is {
		return 1
	}
	return 0
}
