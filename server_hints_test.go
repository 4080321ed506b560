package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestBodyMembers checks that the members of each body in openapi.json are known, and that its examples have no other.
func TestBodyMembers(t *testing.T) {
	examples := 0
	eachOpenAPIDocument(t, func(t *testing.T, surface string, doc map[string]any) {
		eachOpenAPIOperation(doc, func(route string, operation map[string]any) {
			body, ok := operation["requestBody"].(map[string]any)
			if !ok || strings.Contains(route, controlPath) {
				return
			}
			known := bodyMembers(route)
			free := strings.HasSuffix(route, "/validate") // any template
			if free != (len(known) == 0) {
				t.Errorf("%s: got the members %v", route, known)
			}
			if free {
				return
			}
			content := body["content"].(map[string]any)["application/json"].(map[string]any)
			all := []any{content["example"]}
			some, _ := content["examples"].(map[string]any)
			for _, e := range some {
				all = append(all, openAPIFollow(doc, e)["value"])
			}
			for _, e := range all {
				e, _ := e.(map[string]any)
				for name := range e {
					if examples++; !known[name] {
						t.Errorf("%s: its example has the member %s, which is not known", route, name)
					}
				}
			}
		})
	})
	if examples < 30 {
		t.Errorf("got %d members in examples; want those of all bodies", examples)
	}
}

// TestHints checks that texts come back as they were said, and that there are not too many.
func TestHints(t *testing.T) {
	h := http.Header{}
	for range 2 * maxHints {
		hint(h, `a "quoted" \ text, %s`, "ü\n")
	}
	if got := hintTexts(h); len(got) != maxHints || got[0] != `a "quoted" \\ text, \u00fc\n` {
		t.Errorf("got %d of %q", len(got), got[0])
	}
	s := newTestServer(t, serviceTest{})
	many := map[string]int{}
	for i := range 20 {
		many[strings.Repeat("x", 60)+string(rune('a'+i))] = i
	}
	a := s.do("POST", "/v1/steps/claim", string(must(json.Marshal(many))(t)))
	if got := hintTexts(a.header); len(got) != maxHints || !strings.HasPrefix(got[0], `the body has an unknown member, "xxx`) {
		t.Errorf("got %d hints, %q", len(got), got)
	}
}
