package main

// JSON as the tests read it: strictly, with numbers as they were written, and
// addressed by paths.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// wireDecode reads the one JSON value of a body, with numbers as json.Number.
// Unlike encoding/json it refuses duplicate members, broken UTF-8 and anything
// behind the value.
func wireDecode(body []byte) (any, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("invalid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	v, err := wireDecodeValue(d)
	if err != nil {
		return nil, fmt.Errorf("decoding JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the JSON value at offset %d", d.InputOffset())
	}
	return v, nil
}

func wireDecodeValue(d *json.Decoder) (any, error) {
	t, err := d.Token()
	switch t {
	case json.Delim('{'):
		return wireDecodeObject(d)
	case json.Delim('['):
		return wireDecodeList(d)
	}
	return t, err
}

func wireDecodeObject(d *json.Decoder) (any, error) {
	object := map[string]any{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		if _, ok := object[name.(string)]; ok {
			return nil, fmt.Errorf("duplicate member %q", name)
		}
		if object[name.(string)], err = wireDecodeValue(d); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}

func wireDecodeList(d *json.Decoder) (any, error) {
	list := []any{}
	for d.More() {
		e, err := wireDecodeValue(d)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	_, err := d.Token()
	return list, err
}

// wireText is a decoded value as JSON, for comparing and for messages.
func wireText(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// wireEqual compares decoded JSON; numbers are equal when their values are.
func wireEqual(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || wireNumber(a).Cmp(wireNumber(b)) == 0)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, wireEqual)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, wireEqual)
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

func wireNumber(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		panic("not a JSON number: " + n.String())
	}
	return r
}

// wireLookUp finds what a path, as the format of conversations describes it,
// leads to in decoded JSON.
func wireLookUp(v any, path string) (any, bool) {
	if path == "." {
		return v, true
	}
	return wireLookUpIn(v, wireSplitPath(path))
}

func wireSplitPath(path string) []string {
	segments := strings.Split(strings.ReplaceAll(path, `\.`, "\x00"), ".")
	for i, s := range segments {
		segments[i] = strings.ReplaceAll(s, "\x00", ".")
	}
	return segments
}

func wireLookUpIn(v any, path []string) (any, bool) {
	if len(path) == 0 {
		return v, true
	}
	switch v := v.(type) {
	case map[string]any:
		member, ok := v[path[0]]
		if !ok {
			return nil, false
		}
		return wireLookUpIn(member, path[1:])
	case []any:
		return wireLookUpInList(v, path)
	}
	return nil, false
}

func wireLookUpInList(list []any, path []string) (any, bool) {
	segment, rest := path[0], path[1:]
	switch name, want, selects := strings.Cut(segment, "="); {
	case segment == "#":
		return wireLookUpIn(json.Number(strconv.Itoa(len(list))), rest)
	case segment == "*":
		return wireLookUpEach(list, rest), true
	case selects:
		i := slices.IndexFunc(list, func(e any) bool {
			value, ok := wireLookUpIn(e, []string{name})
			return ok && value == any(want)
		})
		if i < 0 {
			return nil, false
		}
		return wireLookUpIn(list[i], rest)
	}
	i, err := strconv.Atoi(segment)
	if err != nil || i < 0 || i >= len(list) {
		return nil, false
	}
	return wireLookUpIn(list[i], rest)
}

// wireLookUpEach leaves out the elements in which the path leads nowhere.
func wireLookUpEach(list []any, path []string) []any {
	found := []any{}
	for _, e := range list {
		if value, ok := wireLookUpIn(e, path); ok {
			found = append(found, value)
		}
	}
	return found
}

func TestWireLookUp(t *testing.T) {
	const text = `{"a": {"b": [10, {"c": "x", "n": null}, {"c": "y", "d": 2}]}, "l": [], "dotted.name": true}`
	tests := []struct{ path, want string }{
		{".", text},
		{"a.b.0", "10"},
		{"a.b.#", "3"},
		{"l.#", "0"},
		{"l", "[]"},
		{"a.b.*.c", `["x", "y"]`},
		{"a.b.c=y.d", "2"},
		{"a.b.1.n", "null"},
		{`dotted\.name`, "true"},
		{"a.b.c=z", ""},
		{"a.b.3", ""},
		{"a.b.-1", ""},
		{"a.b.x", ""},
		{"a.x", ""},
		{"a.b.0.x", ""},
		{"a.#", ""},
	}
	v, err := wireDecode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		got, ok := wireLookUp(v, tt.path)
		if !ok {
			if tt.want != "" {
				t.Errorf("%s: got nothing; want %s", tt.path, tt.want)
			}
			continue
		}
		want, err := wireDecode([]byte(tt.want))
		if err != nil || !wireEqual(got, want) {
			t.Errorf("%s: got %s; want %q", tt.path, wireText(got), tt.want)
		}
	}
}
