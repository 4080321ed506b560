package main

import (
	"strings"
	"testing"
)

func TestUnfitFiguresAreRefused(t *testing.T) {
	const row = `{"hour":5,"counts":{"tasks_created":1}}`
	line := func(kind, seq, more, hours string) string {
		return `{"figures":"` + kind + `","seq":` + seq + `,"namespace":"t","name":"x","version":"1.0.0"` + more +
			`,"all":{"counts":{"tasks_created":1}},"hours":[` + hours + `]}`
	}
	good := line("template", "7", "", row)
	for _, tc := range []struct{ line, reason string }{
		{line("step", "7", `,"step":"a"`, row), ""},
		{line("step", "8", `,"step":"a"`, row), "as of sequence 8 after figures as of sequence 7"},
		{line("step", "0", `,"step":"a"`, row), "as of sequence 0"},
		{line("colour", "7", "", row), "unknown kind"},
		{line("step", "7", `,"step":"a","mood":1`, row), "mood"},
		{line("step", "7", `,"step":"a"`, row+","+row), "hour 5 comes after hour 5"},
		{line("step", "7", `,"step":"a"`, `{"counts":{"smiles":1}}`), "unknown counts"},
		{line("template", "7", "", row), "duplicate figures of"},
		{`{"figures":[`, "figures: "},
	} {
		a := newAnalytics()
		noError(t, a.load([]byte(good)))
		err := a.load([]byte(tc.line))
		if (err == nil) != (tc.reason == "") || err != nil && !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("%s: got %v; want %q", tc.line, err, tc.reason)
		}
	}
	l := &restorer{s: &store{analytics: newAnalytics(), tasks: slotTable{slots: make([]slot, 1)}}}
	if err := l.figuresLine([]byte(good)); err == nil || !strings.Contains(err.Error(), "after a task") {
		t.Errorf("figures after a task: got %v", err)
	}
}
