package main

import (
	"net/http"
	"testing"
)

// TestHints checks that texts come back as they were said, and that there are not too many.
func TestHints(t *testing.T) {
	h := http.Header{}
	for range 2 * maxHints {
		hint(h, `a "quoted" \ text, %s`, "ü\n")
	}
	if got := hintTexts(h); len(got) != maxHints || got[0] != `a "quoted" \\ text, \u00fc\n` {
		t.Errorf("got %d of %q", len(got), got[0])
	}
}
