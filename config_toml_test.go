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
	f.Fuzz(func(t *testing.T, text string) {
		keys := findTOMLKeys(text, joinConfigPath)
		for path, key := range keys {
			if key.line < 1 || key.offset < 0 || key.offset > len(text) || key.line != strings.Count(text[:key.offset], "\n")+1 {
				t.Errorf("%s: got %v; want a place in the text", path, key)
			}
		}
		var table map[string]any
		if _, err := toml.Decode(text, &table); err == nil {
			checkKeysFound(t, keys, "", table)
		}
	})
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
