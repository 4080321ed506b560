package main

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// storedTaskLines returns the lines of tasks in many states, without their sums.
func storedTaskLines(t *testing.T) (lines [][]byte) {
	t.Helper()
	s := eventWorld(t, serviceTest{clock: newVirtualClock(testStart)})
	defer closeTestService(t, s)
	for line := range bytes.Lines([]byte(exported(t, s))) {
		if bytes.HasPrefix(line, []byte(taskHead)) {
			lines = append(lines, cutSum(line))
		}
	}
	if len(lines) < 10 {
		t.Fatalf("got %d lines of tasks", len(lines))
	}
	return lines
}

// checkShort checks that a line comes back from its short form, with its id and numbers.
func checkShort(t *testing.T, line []byte) (short shortLine) {
	t.Helper()
	short = shorten([]byte("x"), line)[1:]
	if got := short.text(); !bytes.Equal(got, line) {
		t.Fatalf("got %s; want %s", got, line)
	}
	id, ok := short.taskID()
	if want, valid := lineID(line); ok != valid || id != want {
		t.Errorf("got id %s, %v; want %s, %v: %s", id, ok, want, valid, line)
	}
	return short
}

// TestShortLines shortens lines of tasks, and lines that no task has.
func TestShortLines(t *testing.T) {
	if len(lineWords) > 0x20 || lineWords[logCode].text != logWord || lineWords[0].text != taskHead ||
		!strings.Contains(lineWords[errorCode].text, `"error":`) {
		t.Errorf("got %d words; want 32 at most, with those of codes 0, %d and %d in place", len(lineWords), logCode, errorCode)
	}
	for _, line := range storedTaskLines(t) {
		short := checkShort(t, line)
		for _, name := range []string{`,"created":`, `,"seq":`, `,"last":`} {
			if got, want := short.number(name), lineNumber(line, name); got != want || want == 0 {
				t.Errorf("%s: got %d; want %d: %s", name, got, want, line)
			}
		}
		if bytes.Contains(line, []byte(`"error":`)) && !short.mayHaveError() {
			t.Errorf("the error is not seen in %s", line)
		}
		if h := must(readTaskHead(line))(t); h.counts == [stepStates]int{stepComplete: 4} && 2*len(short) > len(line) {
			t.Errorf("got %d bytes for %d: %s", len(short), len(line), line)
		}
	}
	const id = `01a206b4-ab5b-7576-be95-471a2111fe97`
	for _, line := range []string{
		``, `{`, `{"task":"`, `{"task":"` + id, `{"task":"` + strings.ToUpper(id), `{"task":"` + strings.ReplaceAll(id, "-", "") + `"}`,
		`{"task":"` + id + "\x00", `{"task":"` + id + `","created":007,"updated":0,"completed":-1,"last":12345678901234567890}`,
		`{"task":"` + id + `","template":"x","template":"` + strings.Repeat("A0", 16) + `","template":"` + strings.Repeat("a0", 16) +
			`","template":"` + strings.Repeat("a0", 16) + `","template":"` + strings.Repeat("a1", 16),
		`{"task":"` + id + `","created":5,"updated":999999999999999999,"completed":0,"at":1.5,"at":1e9,"seq":`,
		`{"task":"` + id + strings.Repeat("ü,{}\"", maxShortened),
	} {
		checkShort(t, []byte(line))
	}
}

// TestShortLinesOfAnyText shortens lines whose bytes were changed at random.
func TestShortLinesOfAnyText(t *testing.T) {
	lines, r := storedTaskLines(t), rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		line := slices.Clone(lines[r.IntN(len(lines))])
		for range 1 + r.IntN(4) {
			at := r.IntN(len(line))
			switch r.IntN(3) {
			case 0:
				line[at] = byte(r.IntN(256))
			case 1:
				line = slices.Delete(line, at, min(at+r.IntN(9), len(line)))
			default:
				line = slices.Insert(line, at, []byte(lineWords[r.IntN(len(lineWords))].text)...)
			}
		}
		short := shorten(nil, line)
		if got := shortLine(short).text(); !bytes.Equal(got, line) {
			t.Fatalf("got %q; want %q", got, line)
		}
		if got := shorten(nil, line); !bytes.Equal(got, short) {
			t.Fatalf("got %q without the lines before it; want %q", got, short)
		}
	}
}
