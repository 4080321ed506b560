package main

import (
	"strings"
	"testing"
	"time"
)

// TestFiguresRoundTrip writes and reads a row with every member.
func TestFiguresRoundTrip(t *testing.T) {
	a := newAnalytics()
	own := a.book.findOrAdd(templateID{"n", "m", "1.0.0"}).own
	p := figureRows{own.all, own.hour(hourOf(testStart), keptHours)}
	for f := range figureCount {
		p.count(f, uint64(f)+1)
	}
	p.observe(int64(time.Second / time.Microsecond))
	p.addType(errorKind(timedOnce.err.errorType))
	p.addType(errorKind("http_503"))
	p.addType(errorKind("of its own"))
	p.addType(errorKind(""))
	p.seen(testStart)
	b := newAnalytics()
	for line := range strings.SplitSeq(figuresText(a), "\n") {
		noError(t, b.load([]byte(line+"}")))
	}
	want := figuresText(a)
	if got := figuresText(b); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	for _, part := range []string{`"timeout":1`, `"http_5…":1`, `"other":2`, `"bins":[[`, `"last":`, `"dependency_micros":17`} {
		if !strings.Contains(want, part) {
			t.Errorf("%s is not in %s", part, want)
		}
	}
}

func performanceOf(s *service, hours int) performanceView {
	figures, states := s.store.figures()
	return figures.performance(&states, s.clock.now(), hours)
}

// TestHourEdges creates a task in the last microsecond of an hour and one in the first of the
// next.
func TestHourEdges(t *testing.T) {
	_, y := newStoryServer(t)
	y.clock.advance(time.Hour - time.Microsecond)
	y.create("chain")
	y.clock.advance(time.Microsecond)
	y.create("chain")
	for _, tc := range []struct {
		wait  time.Duration // since the previous one
		hours int
		want  uint64
	}{
		{0, 1, 2},
		{time.Hour - time.Microsecond, 1, 2}, // 01:59:59.999999: from 00:00 on
		{time.Microsecond, 1, 1},             // 02:00: from 01:00 on
		{0, 2, 2},
		{time.Hour, 1, 0},
		{keptHours*time.Hour - 2*time.Hour - time.Microsecond, 720, 2},
		{time.Microsecond, 720, 1}, // the first is no longer in a kept hour
		{time.Hour, 720, 0},
	} {
		y.clock.advance(tc.wait)
		figures, _ := y.svc.store.figures()
		from := hoursAgo(y.clock.now(), tc.hours)
		if got := figures.total(figureFilter{}, from).counts[tasksCreated]; got != tc.want {
			t.Errorf("at %s, %d hours: got %d tasks; want %d", y.clock.now().zoned(), tc.hours, got, tc.want)
		}
		if v := performanceOf(y.svc, tc.hours); v.TotalTasks != 2 {
			t.Errorf("at %s: got %d tasks in all; want 2", y.clock.now().zoned(), v.TotalTasks)
		}
	}
	if hourOf(-1) != -1 || hourOf(instant(hourMicros)) != 1 || hourStart(1) != instant(hourMicros) {
		t.Error("hours do not begin where they should")
	}
}

// TestKeptHours creates a task an hour for longer than hours are kept.
func TestKeptHours(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	_, y := newStoryServer(t)
	for range keptHours + 100 {
		y.create("chain")
		y.clock.advance(time.Hour)
	}
	figures, _ := y.svc.store.figures()
	own := figures.templates[0].own
	if n := len(own.past) + 1; n != keptHours+1 {
		t.Errorf("got %d hours; want %d", n, keptHours+1)
	}
	if own.all.counts[tasksCreated] != keptHours+100 {
		t.Errorf("over all time: got %d tasks; want %d", own.all.counts[tasksCreated], keptHours+100)
	}
	if v := performanceOf(y.svc, 720); v.TotalTasks != keptHours+100 || v.TasksPerHour != 1 {
		t.Errorf("got %d tasks, %d per hour; want %d, 1", v.TotalTasks, v.TasksPerHour, keptHours+100)
	}
}

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
		{line("step", "7", `,"step":"a"`, `{"counts":{"smiles":1}}`), "smiles"},
		{line("template", "7", "", row), "duplicate figures of"},
	} {
		a := newAnalytics()
		noError(t, a.load([]byte(good)))
		err := a.load([]byte(tc.line))
		if (err == nil) != (tc.reason == "") || err != nil && !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("%s: got %v; want %q", tc.line, err, tc.reason)
		}
	}
	l := &restorer{s: &store{analytics: newAnalytics(), tasks: slotTable{slots: make([]*slot, 1)}}}
	if err := l.figuresLine([]byte(good)); err == nil || !strings.Contains(err.Error(), "after a task") {
		t.Errorf("figures after a task: got %v", err)
	}
}
