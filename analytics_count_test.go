package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// reread returns what a start reads from the directory of a closed service, before its engine
// continues.
func reread(t *testing.T, s *service, dir string) *store {
	t.Helper()
	again := must(openStore(journalOptions{dir: dir, log: s.log, now: s.clock.now}, defaultKeptEvents, s.clock, s.log))(t)
	noError(t, again.close())
	return again
}

// snapshotAround is snapshot, with something happening after the cut and before
// the tasks' lines are written.
func snapshotAround(t *testing.T, s *store, between func()) {
	t.Helper()
	w := must(s.journal.startSnapshot())(t)
	s.mu.Lock()
	covered := w.cut()
	count, figures, lost := len(s.slots), s.analytics.freeze(), s.events.missing()
	s.holdLocked()
	s.mu.Unlock()
	defer s.release()
	between()
	noError(t, w.line(appendEventsLine(nil, lost, 0, 0)))
	noError(t, s.writeSnapshot(w, count, figures, covered))
	noError(t, w.commit())
}

// TestFiguresAfterRestart restarts at random points of random stories, with and
// without snapshots: the figures stay the same.
func TestFiguresAfterRestart(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for _, tc := range []struct {
		name string
		tell func(y *story, r *rand.Rand, ids []uuid) []uuid
	}{
		{"journal only", func(y *story, r *rand.Rand, ids []uuid) []uuid {
			return y.randomStory(r, ids, 60)
		}},
		{"snapshot, then journal", func(y *story, r *rand.Rand, ids []uuid) []uuid {
			ids = y.randomStory(r, ids, 40)
			noError(y.t, y.svc.store.snapshot())
			return y.randomStory(r, ids, 20)
		}},
		{"snapshot alone", func(y *story, r *rand.Rand, ids []uuid) []uuid {
			ids = y.randomStory(r, ids, 60)
			noError(y.t, y.svc.store.snapshot())
			return ids
		}},
		{"changes while the snapshot is written", func(y *story, r *rand.Rand, ids []uuid) []uuid {
			ids = y.randomStory(r, ids, 20)
			snapshotAround(y.t, y.svc.store, func() { ids = y.randomStory(r, ids, 40) })
			return y.randomStory(r, ids, r.IntN(20))
		}},
		{"a snapshot that is given up", func(y *story, r *rand.Rand, ids []uuid) []uuid {
			w := must(y.svc.store.journal.startSnapshot())(y.t)
			y.svc.store.figures()
			ids = y.randomStory(r, ids, 40)
			w.abort()
			return ids
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range uint64(3) {
				dir := t.TempDir()
				o := storyOptions(dir)
				o.config = func(c *Config) { c.Store.Sync = "never" }
				r := rand.New(rand.NewPCG(seed, 7))
				var ids []uuid
				for range 3 {
					s := openTestService(t, o)
					ids = tc.tell(newStory(t, s), r, ids)
					closeTestService(t, s)
					before := figuresText(s.store.analytics)
					if got := figuresText(reread(t, s, dir).analytics); got != before {
						t.Fatalf("seed %d: after the restart the figures are\n%s\nwant\n%s", seed, got, before)
					}
				}
			}
		})
	}
}

// TestFiguresOutliveTasks reads a snapshot whose tasks were dropped.
func TestFiguresOutliveTasks(t *testing.T) {
	o := storyOptions(t.TempDir())
	s := openTestService(t, o)
	tellFigures(newStory(t, s))
	before := performanceOf(s, 1)
	before.ActiveTasks = 0
	w := must(s.store.journal.startSnapshot())(t)
	covered := w.cut()
	noError(t, s.store.writeSnapshot(w, 0, s.store.analytics.freeze(), covered))
	noError(t, w.commit())
	s = reopenTestService(t, s, o)
	s.finish(context.Background())
	defer s.close()
	if n := len(s.store.slots); n != 0 {
		t.Fatalf("%d tasks are still there", n)
	}
	if got := performanceOf(s, 1); got != before {
		t.Errorf("without its tasks the store reports\n%+v\nwant\n%+v", got, before)
	}
}

// TestSnapshotWithoutFigures reads a snapshot from before figures were kept:
// they are counted from the tasks.
func TestSnapshotWithoutFigures(t *testing.T) {
	t.Parallel()
	o := storyOptions(t.TempDir())
	s := openTestService(t, o)
	y := newStory(t, s)
	tellFigures(y)
	w := must(s.store.journal.startSnapshot())(t)
	covered := w.cut()
	noError(t, s.store.writeSnapshot(w, len(s.store.slots), &frozenFigures{}, covered))
	noError(t, w.commit())
	tellFigures(y)
	closeTestService(t, s)
	want := figuresText(s.store.analytics)
	if got := figuresText(reread(t, s, o.dir).analytics); got != want {
		t.Errorf("the figures are\n%s\nwant\n%s", got, want)
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
	l := &restorer{s: &store{analytics: newAnalytics(), slots: make([]slot, 1)}}
	if err := l.figuresLine([]byte(good)); err == nil || !strings.Contains(err.Error(), "after a task") {
		t.Errorf("figures after a task: got %v", err)
	}
}

// TestFiguresRoundTrip writes and reads a row with every member.
func TestFiguresRoundTrip(t *testing.T) {
	a := newAnalytics()
	own := &a.book.template(a.book.findOrAdd(templateID{"n", "m", "1.0.0"})).own
	all, hour := a.book.rows(own, hourOf(testStart))
	whole, wholeHour := a.book.rows(&a.book.whole, hourOf(testStart))
	p := figureRows{all, hour, whole, wholeHour}
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
		if strings.Contains(line, `"whole"`) {
			continue
		}
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
