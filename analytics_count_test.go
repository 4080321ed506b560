package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// compactAround is compact, with something happening after the cut and before the lines are written.
func compactAround(t *testing.T, s *store, between func()) {
	t.Helper()
	cut := s.cut()
	noError(t, s.journal.replace(cut.offset, cut.life, func(w *lineWriter) error {
		between()
		return s.write(cut, w)
	}))
}

// TestFiguresAfterRestart restarts at random points of random stories, with and
// without compactions: the figures stay the same.
func TestFiguresAfterRestart(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for _, tc := range []struct {
		name string
		tell func(y *story, r *rand.Rand, ids []uuid) []uuid
	}{
		{"records only", func(y *story, r *rand.Rand, ids []uuid) []uuid {
			return y.randomStory(r, ids, 60)
		}},
		{"compacted, then records", func(y *story, r *rand.Rand, ids []uuid) []uuid {
			ids = y.randomStory(r, ids, 40)
			noError(y.t, y.svc.store.compact())
			return y.randomStory(r, ids, 20)
		}},
		{"compacted", func(y *story, r *rand.Rand, ids []uuid) []uuid {
			ids = y.randomStory(r, ids, 60)
			noError(y.t, y.svc.store.compact())
			return ids
		}},
		{"changes during a compaction", func(y *story, r *rand.Rand, ids []uuid) []uuid {
			ids = y.randomStory(r, ids, 20)
			compactAround(y.t, y.svc.store, func() { ids = y.randomStory(r, ids, 40) })
			return y.randomStory(r, ids, r.IntN(20))
		}},
		{"a cut that is given up", func(y *story, r *rand.Rand, ids []uuid) []uuid {
			y.svc.store.cut()
			return y.randomStory(r, ids, 40)
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

// TestFiguresOutliveTasks reads a compacted part without its tasks.
func TestFiguresOutliveTasks(t *testing.T) {
	o := storyOptions(t.TempDir())
	s := openTestService(t, o)
	tellFigures(newStory(t, s))
	before := performanceOf(s, 1)
	before.ActiveTasks = 0
	cut := s.store.cut()
	cut.tasks, cut.header.tasks = taskCut{}, 0
	noError(t, s.store.journal.replace(cut.offset, cut.life, func(w *lineWriter) error { return s.store.write(cut, w) }))
	s = reopenTestService(t, s, o)
	s.finish(context.Background())
	defer s.close()
	if n := len(s.store.tasks.slots); n != 0 {
		t.Fatalf("%d tasks are still there", n)
	}
	if got := performanceOf(s, 1); got != before {
		t.Errorf("without its tasks the store reports\n%+v\nwant\n%+v", got, before)
	}
}

// figuresText returns everything that was counted, sorted.
func figuresText(a *analytics) string { return frozenText(a.freeze()) }

func frozenText(f *frozenFigures) string {
	var all []string
	f.writeLines(1, func(line []byte) error {
		all = append(all, string(line))
		return nil
	})
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// TestCountingOrder counts the logs of many tasks in another order than they happened, over
// more hours than are kept: the figures are the same, even if a reader holds them in between,
// and those of the reader do not change.
func TestCountingOrder(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for seed := range uint64(5) {
		s := newTestService(t, storyOptions(""))
		y := newStory(t, s)
		r := rand.New(rand.NewPCG(seed, 1))
		y.randomStory(r, nil, 600)
		all := strings.Split(strings.TrimSpace(lines(s)), "\n")
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		a := newAnalytics()
		var held []*frozenFigures
		var texts []string
		for i, line := range all {
			must(s.store.replayLine([]byte(line), a))(t)
			if i%10 == 0 {
				held = append(held, a.freeze())
				texts = append(texts, frozenText(held[len(held)-1]))
			}
		}
		if got, want := figuresText(a), figuresText(s.store.analytics); got != want {
			t.Fatalf("seed %d: counted in another order the figures are\n%s\nwant\n%s", seed, got, want)
		}
		for i := range held {
			if frozenText(held[i]) != texts[i] {
				t.Fatalf("seed %d: figures handed out after %d tasks have changed", seed, i*10)
			}
		}
	}
}

// reread returns what a start reads from the directory of a closed service, before its engine
// continues.
func reread(t *testing.T, s *service, dir string) *store {
	t.Helper()
	again := must(openStore(journalOptions{dir: dir, log: s.log, now: s.clock.now}, defaultKeptEvents, s.clock, s.log))(t)
	noError(t, again.close())
	return again
}

// BenchmarkFreeze copies the figures of 100 templates with five steps each, as every reader of them does under the lock.
func BenchmarkFreeze(b *testing.B) {
	a := newAnalytics()
	for i := range 100 {
		t := a.book.findOrAdd(templateID{"n", fmt.Sprint("t", i), "1.0.0"})
		for n := range 5 {
			t.findOrAdd(fmt.Sprint("s", n))
		}
		for _, s := range append(t.steps, t.own) {
			for us := int64(1); us < 1e9; us *= 2 { // 30 bins
				figureRows{s.all, s.hour(1, keptHours)}.observe(us)
			}
		}
	}
	for b.Loop() {
		a.freeze()
	}
}
