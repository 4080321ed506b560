package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "größer": "größer", "a\x1b[31mb": `a\u001b[31mb`, "a\r\n\tb": `a\r\n\tb`, `say "x"`: `say "x"`,
		"a\u009b\u007fb": `a\u009b\u007fb`, "a\u202eb\u2066": `a\u202eb\u2066`, "a\u2028b": `a\u2028b`, "a\x9bb": "a\ufffdb",
	} {
		if got := printable(in); got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	}
}

// TestDoor writes JSON with every kind of misleading character through a door in pieces of every size. It gets out
// without them and with the same value.
func TestDoor(t *testing.T) {
	hostile := "e\u0301 \u007f \u0085 \u009b2J \u061c \u200e \u202e \u2066 \u2028 \u2029 𝔘"
	text := "{\n  \"a\": \"" + hostile + "\"\n}\n"
	for size := 1; size <= len(text); size++ {
		var b bytes.Buffer
		d := &door{w: &b}
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			must(d.Write(rest[:min(size, len(rest))]))(t)
		}
		var got map[string]string
		noError(t, json.Unmarshal(b.Bytes(), &got))
		if got["a"] != hostile || strings.Count(b.String(), "\n") != 3 || strings.ContainsFunc(strings.ReplaceAll(b.String(), "\n", ""), misleads) {
			t.Fatalf("in pieces of %d: got %q", size, b.String())
		}
	}
	if n, err := (&door{w: failingWriter{}}).Write([]byte("x")); n != 0 || err != io.ErrClosedPipe {
		t.Errorf("got %d, %v; want the error of the output", n, err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestJSONInPipe prints hostile JSON to what is not a terminal: it stays as it is, and everything else has escapes.
func TestJSONInPipe(t *testing.T) {
	t.Chdir(t.TempDir())
	const item = `{"namespace":"a","name":"b\u001b\n` + "\u007f\u0085\u202e\u2028" + `"}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"templates":[`+item+`]}`)
	}))
	defer s.Close()
	env := map[string]string{"STEPWELL_URL": s.URL}
	for form, want := range map[string]string{"jsonl": item, "name": `a/b\u001b\n\u007f\u0085\u202e\u2028`} {
		if got := runCLI(env, "", "template", "list", "-o", form); got.stdout != want+"\n" {
			t.Errorf("-o %s: got %q, %q; want %q", form, got.stdout, got.stderr, want)
		}
	}
}
