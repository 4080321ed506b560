package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
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

// stuckOutput is an output that may be stuck or fail.
type stuckOutput struct {
	text bytes.Buffer
	free chan struct{} // closed when it is not stuck
	slow time.Duration // what each line takes
	err  error
}

func (o *stuckOutput) Write(p []byte) (int, error) {
	<-o.free
	time.Sleep(o.slow)
	if o.err != nil {
		return 0, o.err
	}
	return o.text.Write(p)
}

// TestLogQueue logs to an output that is stuck until it has lost lines: nobody waits for it, the output says how many
// lines are missing and where, and the last lines get out. Neither many lines nor long ones wait in memory.
func TestLogQueue(t *testing.T) {
	testLogQueue(t, 4000, 500)
	testLogQueue(t, 40, 50_000)
}

func testLogQueue(t *testing.T, lines, length int) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuckOutput{free: make(chan struct{})}
		q := newLogQueue(out)
		q.setForm(func(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) })
		for i := range lines {
			fmt.Fprintf(q, "line %d %s\n", i, strings.Repeat("x", length))
			if i == 0 {
				synctest.Wait() // until it is on its way
			}
		}
		lost := int(q.lost.Load())
		if lost < lines/4 || lost > lines*3/4 {
			t.Errorf("%d of %d lines are lost; want those beyond %d, or %d bytes", lost, lines, maxLogWaiting, maxLogBytes)
		}
		close(out.free)
		q.end()
		kept := regexp.MustCompile(`(?m)^line (\d+)`).FindAllString(out.text.String(), -1)
		if len(kept)+lost != lines || kept[0] != "line 0" || kept[len(kept)-1] != fmt.Sprint("line ", lines-1) {
			t.Errorf("%d lines from %q to %q, and %d are lost; want the first and the last of %d", len(kept), kept[0], kept[len(kept)-1],
				lost, lines)
		}
		notice := strings.Split(out.text.String(), "\n")[1]
		if !strings.Contains(notice, `"level":"WARN"`) || !strings.HasSuffix(notice, fmt.Sprintf(`"lines":%d}`, lost)) {
			t.Errorf("after the first line: got %.300q; want that %d lines are missing", notice, lost)
		}
		if got := kept[1]; got != fmt.Sprint("line ", lost+1) {
			t.Errorf("after the gap: got %s; want line %d", got, lost+1)
		}
	})
}

// TestLogFails logs to an output that fails, as a pipe that was closed or a full disk: what it did not take is lost, and
// counted once it takes lines again.
func TestLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuckOutput{free: make(chan struct{}), err: errors.New("full")}
		close(out.free)
		q := newLogQueue(out)
		for range 3 {
			io.WriteString(q, "lost\n")
			synctest.Wait()
		}
		out.err = nil
		io.WriteString(q, "kept\n")
		q.end()
		if got := out.text.String(); q.lost.Load() != 3 || !strings.HasSuffix(got, "lines=3\nkept\n") {
			t.Errorf("%d lines are lost, and the log is %q; want 3, said before the line that is kept", q.lost.Load(), got)
		}
	})
}

// TestLogEndsSlowly ends a queue whose output is slow: the last line gets out.
func TestLogEndsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuckOutput{free: make(chan struct{}), slow: 1100 * time.Microsecond}
		close(out.free)
		q := newLogQueue(out)
		for i := range 1000 {
			fmt.Fprintf(q, "line %d %s\n", i, strings.Repeat("x", 1000))
		}
		q.end()
		if got := out.text.String(); !strings.Contains(got, "\nline 999 ") || !strings.Contains(got, fmt.Sprint("lines=", q.lost.Load(), "\n")) {
			t.Errorf("the log ends with %.100q; want the last line, and that %d are missing", got[max(len(got)-1100, 0):], q.lost.Load())
		}
	})
}

// TestLogEnd ends a queue whose output is stuck: the end waits for it a little.
func TestLogEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuckOutput{free: make(chan struct{})}
		q := newLogQueue(out)
		io.WriteString(q, "line\n")
		began := time.Now()
		if q.end(); time.Since(began) != logPatience {
			t.Errorf("the end took %s; want %s", time.Since(began), logPatience)
		}
		close(out.free)
	})
}
