package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// analysisStates holds the states of steps by letter.
var analysisStates = map[byte]stepState{
	'p': stepPending, 'q': stepEnqueued, 'i': stepInProgress, 'w': stepWaitingForRetry, 'c': stepComplete,
	'e': stepInError, 'x': stepCancelled, 'r': stepResolvedManually,
}

// analysisTask returns a task with the given parents and state of each step. Steps
// are called a, b, …, and s26, … from the 27th on. Failed and running steps have
// had one attempt.
func analysisTask(parents [][]int, states string) *task {
	children := graphChildren(parents)
	tpl := &template{namespace: "t", name: "analysis", version: "1.0.0", steps: make([]stepTemplate, len(parents))}
	for i := range tpl.steps {
		name := fmt.Sprintf("s%d", i)
		if i < 26 {
			name = string(rune('a' + i))
		}
		tpl.steps[i] = stepTemplate{name: name, parents: parents[i], children: children[i]}
		tpl.steps[i].retry.Retryable, tpl.steps[i].retry.MaxAttempts = true, 3
	}
	t := newTask(&record{task: uuid{15: 1}, at: testStart, created: &creation{}}, tpl)
	t.counts = [stepStates]int{}
	for i := range t.steps {
		s := &t.steps[i]
		s.state = analysisStates[states[i]]
		t.counts[s.state]++
		if strings.IndexByte("iwec", states[i]) >= 0 {
			s.attempts = 1
		}
		if s.state == stepWaitingForRetry {
			s.retryAt = testStart.add(time.Minute)
		}
		s.waitingFor = 0
		for _, p := range parents[i] {
			s.waitingFor += boolCount(!analysisStates[states[p]].satisfies())
		}
	}
	return t
}

// sketch sums up an analysis in one line.
func sketch(d *dependenciesView, v *dependencyAnalysisView) string {
	text := fmt.Sprintf("ready %v blocked %v completed %v; errors %d:", d.ReadySteps, d.BlockedSteps,
		d.CompletedSteps, v.ErrorChains.TotalErrorSteps)
	for _, c := range v.ErrorChains.ErrorChains {
		text += fmt.Sprintf(" %s%v", c.ErrorStepName, c.DownstreamSteps)
	}
	text += fmt.Sprintf("; bottlenecks %d:", v.Bottlenecks.TotalBottlenecks)
	for _, b := range v.Bottlenecks.Bottlenecks {
		text += fmt.Sprintf(" %s %s %s %g", b.StepName, b.BottleneckType, b.Severity, b.ImpactScore)
	}
	return text + "; " + v.TaskExecutionSummary.OverallHealth
}

func TestAnalyzeTask(t *testing.T) {
	diamond := [][]int{nil, {0}, {0}, {1, 2}}
	for _, test := range []struct {
		name    string
		parents [][]int
		states  string
		want    string
	}{
		{"no steps", nil, "", "ready [] blocked [] completed []; errors 0:; bottlenecks 0:; healthy"},
		{"one that runs", [][]int{nil}, "i", "ready [] blocked [] completed []; errors 0:; bottlenecks 0:; healthy"},
		{"a new diamond", diamond, "pppp",
			"ready [a] blocked [b c d] completed []; errors 0:; bottlenecks 1: a not_started medium 75; healthy"},
		{"queued", diamond, "qppp",
			"ready [] blocked [b c d] completed []; errors 0:; bottlenecks 1: a queued medium 75; healthy"},
		{"both sides", diamond, "cipp",
			"ready [c] blocked [d] completed [a]; errors 0:; bottlenecks 2: b running low 33.33 c not_started low 33.33; healthy"},
		{"waits for a retry", diamond, "cwrp",
			"ready [] blocked [d] completed [a c]; errors 0:; bottlenecks 1: b waiting_for_retry high 50; recovering"},
		{"a failed side", diamond, "cecp",
			"ready [] blocked [d] completed [a c]; errors 1: b[d]; bottlenecks 1: b permanent_failure critical 50; blocked"},
		{"complete", diamond, "cccr", "ready [] blocked [] completed [a b c d]; errors 0:; bottlenecks 0:; healthy"},
		{"a cancelled step that another waits for", diamond, "cxcp",
			"ready [] blocked [d] completed [a c]; errors 1: b[d]; bottlenecks 1: b cancelled critical 100; blocked"},
		{"all others cancelled", diamond, "cxxx", "ready [] blocked [] completed [a]; errors 0:; bottlenecks 0:; blocked"},
		{"a failed step that none waits for", [][]int{nil, nil}, "ec",
			"ready [] blocked [] completed [b]; errors 1: a[]; bottlenecks 0:; blocked"},
		// c was resolved, so that d does not wait for a through it
		{"not past a resolved step", [][]int{nil, {0}, {0}, {2}}, "eprp",
			"ready [d] blocked [b] completed [c]; errors 1: a[b]; bottlenecks 1: a permanent_failure critical 33.33; blocked"},
		{"disconnected, the widest first", [][]int{nil, {0}, nil, {2}, {3}, {3}}, "epippp",
			"ready [] blocked [b d e f] completed []; errors 1: a[b]; " +
				"bottlenecks 2: c running medium 50 a permanent_failure critical 16.67; blocked"},
		{"the nearest first", [][]int{{3}, {3, 2}, {3}, nil}, "pppe",
			"ready [] blocked [a b c] completed []; errors 1: d[a b c]; bottlenecks 1: d permanent_failure critical 75; blocked"},
	} {
		task := analysisTask(test.parents, test.states)
		d, v := analyzeTask(task, task, testStart)
		if got := sketch(&d, &v); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

func viewText(t testing.TB, v any) string {
	t.Helper()
	text := must(json.Marshal(v))(t)
	return string(text)
}

// TestBlockage has a row for each reason why a step is not done.
func TestBlockage(t *testing.T) {
	for _, test := range []struct {
		name   string
		state  byte
		change func(t *task, s *step)
		want   string
	}{
		{"all attempts used", 'e', func(_ *task, s *step) { s.attempts = 3 }, "retries_exhausted critical"},
		{"not at the last", 'e', nil, "permanent_failure critical"},
		{"for good at the last", 'e', func(_ *task, s *step) {
			s.attempts, s.last = 3, &ending{err: []byte(`{"message":"no","retryable":false}`)}
		}, "permanent_failure critical"},
		{"timed out at the last", 'e', func(_ *task, s *step) {
			s.attempts, s.last = 3, &ending{err: []byte(`{"message":"late","retryable":true}`)}
		}, "retries_exhausted critical"},
		{"a step that is never tried again", 'e', func(t *task, s *step) {
			t.tpl.steps[0].retry.Retryable, s.attempts = false, 3
		}, "permanent_failure critical"},
		{"its second attempt", 'i', func(_ *task, s *step) { s.attempts = 2 }, "running high"},
		{"its first attempt", 'i', nil, "running medium"},
		{"cancelled", 'x', nil, "cancelled critical"},
	} {
		task := analysisTask(chainGraph(2), string(test.state)+"p")
		if test.change != nil {
			test.change(task, &task.steps[0])
		}
		_, v := analyzeTask(task, task, testStart)
		b := v.Bottlenecks.Bottlenecks[0]
		if got := b.BottleneckType + " " + b.Severity; got != test.want || b.ResolutionStrategy == "" {
			t.Errorf("%s: got %s, %q; want %s", test.name, got, b.ResolutionStrategy, test.want)
		}
	}
}

// randomStates returns possible states: a step that has run has completed parents.
func randomStates(r *rand.Rand, parents [][]int) string {
	order, _ := graphLevels(newListedGraph(parents), len(parents))
	states := make([]byte, len(parents))
	for _, i := range order {
		letters := "ccccrqiwepx"
		if slices.ContainsFunc(parents[i], func(p int) bool { return !analysisStates[states[p]].satisfies() }) {
			letters = "ppppxr"
		}
		states[i] = letters[r.IntN(len(letters))]
	}
	return string(states)
}

// waitsFor reports whether step i cannot run before step by is done.
func waitsFor(t *task, i, by int) bool {
	if t.steps[i].state.finished() {
		return false
	}
	for _, p := range t.parents(i) {
		if p == by || waitsFor(t, p, by) {
			return true
		}
	}
	return false
}

// TestAnalysisByBruteForce compares analyses of random tasks with a search from
// each step.
func TestAnalysisByBruteForce(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		parents := randomGraph(r, r.IntN(12))
		task := analysisTask(parents, randomStates(r, parents))
		d, v := analyzeTask(task, task, testStart)
		if strings.Contains(viewText(t, d)+viewText(t, v), "null") {
			t.Fatalf("seed %d: null in %s", seed, viewText(t, v))
		}
		impact, failed, holding := map[string]int{}, 0, 0
		for by := range task.steps {
			n, direct := 0, 0
			for i := range task.steps {
				n += boolCount(waitsFor(task, i, by))
				direct += boolCount(!task.steps[i].state.finished() && slices.Contains(parents[i], by))
			}
			s := &task.steps[by]
			impact[task.def(by).name] = n
			failed += boolCount(s.state == stepInError || s.state == stepCancelled && direct > 0)
			free := s.waitingFor == 0 || s.state == stepCancelled
			holding += boolCount(direct > 0 && !s.state.satisfies() && free)
		}
		if v.ErrorChains.TotalErrorSteps != failed || v.Bottlenecks.TotalBottlenecks != holding {
			t.Fatalf("seed %d: got %d failed steps, %d bottlenecks; want %d, %d", seed,
				v.ErrorChains.TotalErrorSteps, v.Bottlenecks.TotalBottlenecks, failed, holding)
		}
		for _, c := range v.ErrorChains.ErrorChains {
			if c.TotalImpact != impact[c.ErrorStepName] || len(c.DownstreamSteps) != c.TotalImpact {
				t.Fatalf("seed %d: behind %s got %v; want %d", seed, c.ErrorStepName, c.DownstreamSteps, impact[c.ErrorStepName])
			}
		}
		unfinished := uint64(len(slices.DeleteFunc(slices.Clone(task.steps), func(s step) bool { return s.state.finished() })))
		for _, b := range v.Bottlenecks.Bottlenecks {
			if want := percent(uint64(impact[b.StepName]), unfinished); b.ImpactScore != want {
				t.Fatalf("seed %d: impact of %s: got %g; want %g", seed, b.StepName, b.ImpactScore, want)
			}
		}
	}
}

// analysisShapes holds the shapes that must be analyzed in linear time, each with
// the states that cost most.
var analysisShapes = []struct {
	name  string
	of    func(n int) [][]int
	first string // state of the first steps
	rest  string
}{
	{"chain", chainGraph, "e", "p"},
	{"backwards", backwardsChainGraph, "p", "p"},
	{"fan that failed", fanGraph, "c", "e"},
	{"fan that waits", fanGraph, "e", "p"},
	{"layers", layersGraph, "eeeeeeeeee", "p"},
	{"diamonds", diamondsGraph, "e", "p"},
	{"apart", func(n int) [][]int { return make([][]int, n) }, "c", "p"},
}

// diamondsGraph returns a chain of diamonds, which has 2^(n/3) paths.
func diamondsGraph(n int) [][]int {
	parents := chainGraph(n)
	for i := 3; i < n; i += 3 {
		parents[i-1] = []int{i - 3}
		parents[i] = []int{i - 2, i - 1}
	}
	return parents
}

func shapedTask(of func(n int) [][]int, n int, first, rest string) *task {
	return analysisTask(of(n), first+strings.Repeat(rest, n-len(first)))
}

// TestAnalysisIsLinear expects the looks at the graph and the bytes of the answer
// to be proportional to the number of steps and dependencies.
func TestAnalysisIsLinear(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	const most, mostBytes = 40, 600 // a step's name is in up to 5 paths and 10 chains
	for _, shape := range analysisShapes {
		for _, n := range []int{100, 1000, 10000} {
			task := shapedTask(shape.of, n, shape.first, shape.rest)
			g := newListedGraph(shape.of(n))
			d, v := analyzeTask(task, g, testStart)
			size := n + v.TaskExecutionSummary.TotalDependencies
			if g.looks > most*size {
				t.Errorf("%s of %d: %d looks for %d steps and dependencies", shape.name, n, g.looks, size)
			}
			if n > 1000 {
				continue
			}
			if bytes := len(viewText(t, v)) + len(viewText(t, d)); bytes > mostBytes*size {
				t.Errorf("%s of %d: %d bytes for %d steps and dependencies", shape.name, n, bytes, size)
			}
		}
	}
}

func BenchmarkAnalyzeTask(b *testing.B) {
	for _, shape := range analysisShapes {
		for _, n := range []int{1000, 10000} {
			task := shapedTask(shape.of, n, shape.first, shape.rest)
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(shape.name, " ", "-"), n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					analyzeTask(task, task, testStart)
				}
			})
		}
	}
}
