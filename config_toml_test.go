package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// The finder of keys finds every path that the decoder finds.
func FuzzTOMLKeys(f *testing.F) {
	f.Add("a.\"b\".c = [1, {d = '''x'''}]\n[[e]]\n[e.f]\ng = \"\\\"\"")
	f.Add("[a.b]\n[a]\nc = { d.e = [[], [{}]], } # x\n[[f.g]]\n[[f.g.h]]\n\"\" = \"\"\"\n\"\"\"\"\"")
	f.Add("a.\"\"=[1, {d = '''x'''}]\n[[e]]\n[e6f]\ng = \"\\\"\"")
	f.Fuzz(func(t *testing.T, text string) {
		keys, tooDeep := findTOMLKeys(text, maxJSONDepth, joinConfigPath)
		for path, key := range keys {
			if key.line < 1 || key.offset < 0 || key.offset > len(text) || key.line != strings.Count(text[:key.offset], "\n")+1 {
				t.Errorf("%s: got %v; want a place in the text", path, key)
			}
		}
		var table map[string]any
		if tooDeep >= 0 {
			return
		}
		_, err := toml.Decode(text, &table)
		empty := false // a key: of an array there, BurntSushi/toml 1.6.0 loses elements
		for path := range keys {
			empty = empty || strings.Contains(path, `""`)
		}
		if err == nil && !empty {
			checkKeysFound(t, keys, "", table)
			depth := tomlDepth(table)
			if _, at := findTOMLKeys(text, depth, joinConfigPath); at >= 0 {
				t.Errorf("got offset %d deeper than %d levels; want none", at, depth)
			}
			if _, at := findTOMLKeys(text, depth-1, joinConfigPath); at < 0 && !strings.Contains(text, "[[") && depth > 1 {
				t.Errorf("got nothing deeper than %d levels; want something", depth-1)
			}
		}
	})
}

// tomlDepth returns how many tables and arrays of a decoded value are inside one another.
func tomlDepth(v any) (depth int) {
	deeper := func(inner any) { depth = max(depth, tomlDepth(inner)) }
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			deeper(inner)
		}
	case []map[string]any:
		for _, inner := range v {
			deeper(inner)
		}
	case []any:
		for _, inner := range v {
			deeper(inner)
		}
	default:
		return 0
	}
	return depth + 1
}

// TestTOMLDepth refuses texts for their depth before they are decoded: for one of 48 KB, the decoder takes
// hundreds of megabytes.
func TestTOMLDepth(t *testing.T) {
	for name, nested := range map[string]func(levels int) string{
		"arrays":        func(n int) string { return "a = " + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) },
		"inline tables": func(n int) string { return "a = " + strings.Repeat("{a = ", n-1) + "1" + strings.Repeat("}", n-1) },
		"dotted keys":   func(n int) string { return strings.Repeat("a.", n-1) + "a = 1.5" },
		"a header":      func(n int) string { return "b = 1.5\n[" + strings.Repeat("a.", n-3) + "a]\nb.c = 1.5" },
		"keys in a table of an array": func(n int) string {
			return "[a]\nb = [ # [\n'''[[''', 1.5, {" + strings.Repeat("c.", n-4) + "c = 1.5, d = 1}]"
		},
	} {
		var table map[string]any
		_, err := toml.Decode(nested(maxJSONDepth), &table)
		if depth := tomlDepth(table); err != nil || depth != maxJSONDepth {
			t.Errorf("%s: got %d levels, %v; want %d", name, depth, err, maxJSONDepth)
		}
		if _, at := findTOMLKeys(nested(maxJSONDepth), maxJSONDepth, joinConfigPath); at >= 0 {
			t.Errorf("%s: got %d levels refused at %d; want them accepted", name, maxJSONDepth, at)
		}
		for _, levels := range []int{maxJSONDepth + 1, 24_000} {
			deep := []byte(nested(levels))
			var problems inputProblems
			took := allocated(func() { _, problems, _ = parseTemplate("f", deep, "toml", "", nil) })
			if len(problems) != 1 || !strings.HasSuffix(problems[0].String(), ": invalid TOML: deeper than 64 levels") {
				t.Errorf("%s: got %v; want the depth refused", name, problems)
			}
			if most := uint64(4 << 20); took > most { // with garbage, and what the race detector adds
				t.Errorf("%s: got %d bytes allocated; want at most %d", name, took, most)
			}
		}
	}
}

func checkKeysFound(t *testing.T, keys tomlKeys, path string, v any) {
	if path != "" && keys[path].line == 0 {
		t.Errorf("%s: got no place; want one", path)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			checkKeysFound(t, keys, joinConfigPath(path, name), inner)
		}
	case []map[string]any:
		for i, inner := range v {
			checkKeysFound(t, keys, fmt.Sprintf("%s[%d]", path, i), inner)
		}
	case []any:
		for i, inner := range v {
			checkKeysFound(t, keys, fmt.Sprintf("%s[%d]", path, i), inner)
		}
	}
}
