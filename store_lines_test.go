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

// checkShort checks that a log comes back from its short form.
func checkShort(t *testing.T, log []byte) (short shortLog) {
	t.Helper()
	var room []byte
	short = shortenIn(&room, log)
	if got := short.text(); !bytes.Equal(got, log) {
		t.Fatalf("got %s; want %s", got, log)
	}
	return short
}

// TestShortLogs shortens logs of tasks, and logs that no task has.
func TestShortLogs(t *testing.T) {
	if len(logWords) > 0x20 || logWords[0].text != recordHead {
		t.Errorf("got %d words; want 32 at most, with %s as the first", len(logWords), recordHead)
	}
	for _, line := range storedTaskLines(t) {
		l := must(readTaskLine(line))(t)
		if short := checkShort(t, l.log); l.counts == [stepStates]int{stepComplete: 4} && 2*len(short) > len(l.log) {
			t.Errorf("got %d bytes for %d: %s", len(short), len(l.log), l.log)
		}
	}
	const id, head = `01a206b4-ab5b-7576-be95-471a2111fe97`, `{"seq":1`
	for _, log := range []string{
		``, `{`, head, head + `","correlation":"` + id, head + `","correlation":"` + strings.ToUpper(id),
		head + `","correlation":"` + strings.ReplaceAll(id, "-", "") + `"}`, head + "\x00",
		head + `,"at":007,"at":0,"at":-1,"at":12345678901234567890`, `{"seq":007`, `{"seq":18446744073709551615`,
		head + `,"lease":"` + strings.Repeat("A0", 16) + `,"lease":"` + strings.Repeat("a0", 16) + `,"lease":"x`,
		head + `,"at":999999999999999999,"at":5,"at":1.5,"at":1e9,"at":`,
		head + strings.Repeat("ü,{}\"", maxShortened),
	} {
		checkShort(t, []byte(log))
	}
}

// TestShortLogsOfAnyText shortens logs whose bytes were changed at random.
func TestShortLogsOfAnyText(t *testing.T) {
	lines, r := storedTaskLines(t), rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		log := slices.Clone(must(readTaskLine(lines[r.IntN(len(lines))]))(t).log)
		for range 1 + r.IntN(4) {
			at := r.IntN(len(log))
			switch r.IntN(3) {
			case 0:
				log[at] = byte(r.IntN(256))
			case 1:
				log = slices.Delete(log, at, min(at+r.IntN(9), len(log)))
			default:
				log = slices.Insert(log, at, []byte(logWords[r.IntN(len(logWords))].text)...)
			}
		}
		checkShort(t, log)
	}
}
