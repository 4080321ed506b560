package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 1234 * time.Microsecond: "1.23ms", 123 * time.Millisecond: "123ms", 2500 * time.Millisecond: "2.5s",
		59 * time.Second: "59s", 61 * time.Second: "1m1s", time.Hour: "1h", 25*time.Hour + time.Minute: "1d1h",
		-2 * time.Second: "-2s",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%s: got %s; want %s", d, got, want)
		}
	}
}

// TestStyles checks what states look like, with and without colours.
func TestStyles(t *testing.T) {
	s := (&process{getenv: func(string) string { return "" }}).styleOf(new(bytes.Buffer))
	if got := s.state("complete") + s.state("odd"); got != "✔ complete· odd" {
		t.Errorf("got %q; want no colours for a pipe", got)
	}
	s.colour = true
	if got := s.state("error"); got != "\x1b[31m✖\x1b[0m \x1b[31merror\x1b[0m" {
		t.Errorf("got %q with colours", got)
	}
}

// TestAlignment checks that colours do not count for the width of a column, and that a line between rows
// begins new columns.
func TestAlignment(t *testing.T) {
	tb := &table{style: style{colour: true}}
	tb.head("A", "B")
	tb.row(tb.paint(red, "long"), "x")
	tb.line("between")
	tb.row("é", "y")
	var b strings.Builder
	noError(t, tb.write(&b))
	want := "\x1b[1mA\x1b[0m     \x1b[1mB\x1b[0m\n\x1b[31mlong\x1b[0m  x\nbetween\né  y\n"
	if b.String() != want {
		t.Errorf("got %q; want %q", b.String(), want)
	}
}

func TestClippedLines(t *testing.T) {
	for _, tt := range []struct {
		in      string
		columns int
		want    string
	}{
		{"short", 5, "short"}, {"longer", 5, "long…"}, {"äöüß", 3, "äö…"}, {"注文が失敗", 5, "注文…"}, {"注文が失敗", 6, "注文…"},
		{"\x1b[31mred text\x1b[0m", 8, "\x1b[31mred text\x1b[0m"}, {"\x1b[31mred text\x1b[0m", 4, "\x1b[31mred…\x1b[0m"},
	} {
		if got := clipShown(tt.in, tt.columns); got != tt.want {
			t.Errorf("%q in %d columns: got %q; want %q", tt.in, tt.columns, got, tt.want)
		}
	}
}

// TestWideCharacters checks that columns after wide characters align, and those after characters without a width.
func TestWideCharacters(t *testing.T) {
	for text, want := range map[string]int{"order": 5, "é": 1, "e\u0301": 1, "注文": 4, "ｱ": 1, "Ａ": 2, "🔥 hot": 6, "✅": 2, "✔": 1, "한국": 4, "\x1b[31m赤\x1b[0m": 2} {
		if got := shownWidth(text); got != want {
			t.Errorf("%q takes %d columns; want %d", text, got, want)
		}
	}
	var b strings.Builder
	writeAligned(&b, [][]string{{"注文", "x"}, {"order", "y"}})
	if got, want := b.String(), "注文   x\norder  y\n"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

// TestLinesOfTraces checks that the frames of a trace are indented, not marked with the escape of a tab.
func TestLinesOfTraces(t *testing.T) {
	if got, want := printableLines("it failed\n\tat a.b(c.java:1)\r\n\x1b[2J\n"), "it failed\n    at a.b(c.java:1)\n\\u001b[2J"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

// TestDocuments checks that what is not there reads as nothing, and that numbers keep their digits.
func TestDocuments(t *testing.T) {
	d := readDocument([]byte(`{"a": {"b": [1, {"c": "x"}]}, "n": 12345678901234567890.10, "null": null, "0": "zero"}`))
	for path, want := range map[string]string{
		"a.b.1.c": "x", "a.b.0": "1", "a.b.2": "", "a.x.y": "", "n": "12345678901234567890.10", "null": "", "0": "zero",
		"a.b": `[1,{"c":"x"}]`,
	} {
		if got := d.text(path); got != want {
			t.Errorf("%s: got %q; want %q", path, got, want)
		}
	}
	if d := readDocument([]byte("<html>")); d.raw != nil || d.list() != nil {
		t.Errorf("got %s of a page", d.raw)
	}
}

// TestFittedRows checks that rows fit the window by what is cut of UUIDs first, and then of the widest columns.
func TestFittedRows(t *testing.T) {
	for columns, want := range map[int]string{
		90: "019b76dc-7cc0-7000-8000-0c5b565ffd15|tiny|a template of some length|state",
		60: "019b76dc-7cc0-7000-…|tiny|a template of some length|state",
		44: "019b76dc-7cc0…|tiny|a template of …|state",
		10: "019b76dc-7cc0…|tiny|a template …|state",
	} {
		rows := [][]string{{"019b76dc-7cc0-7000-8000-0c5b565ffd15", "tiny", "a template of some length", "state"}}
		fitRows(rows, columns)
		if got := strings.Join(rows[0], "|"); got != want {
			t.Errorf("%d columns: got %s; want %s", columns, got, want)
		}
	}
}

func TestWrappedLines(t *testing.T) {
	for _, tt := range []struct {
		line            string
		indent, columns int
		want            string
	}{
		{"  --flag  some words of help", 10, 20, "  --flag  some words\n          of help"},
		{"no limit for this line", 4, 0, "no limit for this line"},
		{"averylongwordthatcannotbreak but this", 2, 10, "averylongwordthatcannotbreak but this"},
		{"äö üß äö", 0, 5, "äö üß\näö"},
	} {
		if got := wrapped(tt.line, tt.indent, tt.columns); got != tt.want {
			t.Errorf("%q in %d columns: got %q; want %q", tt.line, tt.columns, got, tt.want)
		}
	}
}
