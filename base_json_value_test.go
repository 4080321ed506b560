package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
)

func FuzzJSONText(f *testing.F) {
	for n := range uint64(20) {
		f.Add(newJSONMaker(n).text())
	}
	f.Add([]byte(jsonCreationBody))
	f.Fuzz(func(t *testing.T, text []byte) {
		if checkJSON(text) != nil {
			return
		}
		checkJSONMeaning(t, text)
		checkJSONTree(t, text)
		checkJSONWalk(t, text)
		if got, ok := jsonInt(text); jsonIntegerLiteral(text) && (!ok || got != decodedJSONInt(t, text)) {
			t.Fatalf("%q: got %d, %v", text, got, ok)
		}
	})
}

// checkJSONTree checks that a tree has every value of a text at its place, within the memory that was foreseen.
func checkJSONTree(t *testing.T, text []byte) {
	t.Helper()
	n := newJSONValue(text)
	if got, most := len(n.tree.nodes)*jsonNodeBytes, treeBytes(text); got > most || cap(n.tree.nodes)*jsonNodeBytes > most {
		t.Fatalf("%q: got %d bytes; want at most %d", text, got, most)
	}
	var rebuilt func(n jsonValue) any
	rebuilt = func(n jsonValue) any {
		switch n.kind() {
		case '{':
			object := map[string]any{}
			for name, value := range n.inner() {
				object[string(name.text())] = rebuilt(value)
				if found, ok := n.find(string(name.text())); !ok || found != value {
					t.Fatalf("%q: got %v for %s; want it found", text, found, name.raw())
				}
			}
			return object
		case '[':
			list := []any{}
			for _, value := range n.inner() {
				list = append(list, rebuilt(value))
			}
			return list
		}
		return decodeJSON(t, n.raw())
	}
	if got, want := rebuilt(n), decodeJSON(t, text); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: got %v; want %v", text, got, want)
	}
	if !n.within(newJSONValue(canonicalJSON(nil, text)), false) {
		t.Fatalf("%q: got another value than the canonical form; want the same", text)
	}
}

// TestJSONWithin compares values, whole and in part.
func TestJSONWithin(t *testing.T) {
	for _, row := range []struct {
		a, b       string
		same, part bool
	}{
		{`1`, `1.0`, true, true}, {`1e2`, `100`, true, true}, {`-0`, `0`, true, true}, {`1`, `"1"`, false, false},
		{`"\u0061"`, `"a"`, true, true}, {`null`, `false`, false, false}, {`true`, `false`, false, false},
		{`[1,[2,{"a":3}]]`, `[1.0,[2,{"a":3e0}]]`, true, true}, {`[1]`, `[1,2]`, false, false}, {`[1,2]`, `[2,1]`, false, false},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true, true}, {`{"a":1}`, `{"a":1,"b":2}`, false, true}, {`{"a":1,"b":2}`, `{"a":1}`, false, false},
		{`{"a":{}}`, `{"a":{"b":1}}`, false, true}, {`{"a":[{}]}`, `{"a":[{"b":1}]}`, false, false}, {`{}`, `[]`, false, false},
		{jsonObjectOf(40, jsonMemberName), jsonObjectOf(50, jsonMemberName), false, true},
	} {
		for more, want := range map[bool]bool{false: row.same, true: row.part} {
			if got := newJSONValue([]byte(row.a)).within(newJSONValue([]byte(row.b)), more); got != want {
				t.Errorf("%.60s in %.60s, more %v: got %v; want %v", row.a, row.b, more, got, want)
			}
		}
	}
}

func jsonIntegerLiteral(text []byte) bool {
	_, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return err == nil
}

func decodedJSONInt(t *testing.T, text []byte) int64 {
	n, err := decodeJSON(t, text).(json.Number).Int64()
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}

// sameJSON reports whether two texts spell the same value.
func sameJSON(a, b []byte) bool { return newJSONValue(a).within(newJSONValue(b), false) }
