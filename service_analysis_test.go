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
		d, v := analyzeTask(analysisTask(test.parents, test.states), testStart)
		if got := sketch(&d, &v); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// TestAnalysisOnTheWire compares a whole answer, with every member.
func TestAnalysisOnTheWire(t *testing.T) {
	task := analysisTask([][]int{nil, {0}, {0}}, "ewp")
	task.steps[0].attempts = 3
	d, v := analyzeTask(task, testStart)
	wantText(t, d, `{"analysis":"0 of 3 steps completed, 0 ready, 2 blocked and 1 failed; `+
		`the longest path has 2.","ready_steps":[],"blocked_steps":["b","c"],"completed_steps":[]}`)
	const a, b, c = `"00000000-0000-0000-8000-000000000002"`, `"00000000-0000-0000-8000-000000000003"`,
		`"00000000-0000-0000-8000-000000000004"`
	wantText(t, v.DependencyGraph, `{"nodes":[{"id":`+a+`,"name":"a","level":0},{"id":`+b+`,"name":"b","level":1},`+
		`{"id":`+c+`,"name":"c","level":1}],"edges":[{"from":`+a+`,"to":`+b+`,"from_name":"a","to_name":"b"},`+
		`{"from":`+a+`,"to":`+c+`,"from_name":"a","to_name":"c"}],"total_edges":2,"edges_truncated":false,`+
		`"dependency_levels":{`+a+`:0,`+b+`:1,`+c+`:1}}`)
	wantText(t, v.CriticalPaths, `{"longest_path_length":2,"paths":[{"step_names":["a","b"],"length":2,"completed_steps":0,`+
		`"blocked_steps":1,"error_steps":1,"ready_steps":0,"completion_percentage":0},{"step_names":["a","c"],"length":2,`+
		`"completed_steps":0,"blocked_steps":1,"error_steps":1,"ready_steps":0,"completion_percentage":0}]}`)
	wantText(t, v.ParallelismOpportunities, `{"total_levels":2,"max_parallel_steps":2,"levels":[{"level":0,"total_steps":1,`+
		`"ready_steps":0,"completed_steps":0,"step_names":["a"]},{"level":1,"total_steps":2,"ready_steps":0,`+
		`"completed_steps":0,"step_names":["b","c"]}]}`)
	wantText(t, v.ErrorChains, `{"total_error_steps":1,"error_chains":[{"error_step_name":"a",`+
		`"downstream_steps":["b","c"],"total_impact":2}]}`)
	wantText(t, v.Bottlenecks, `{"total_bottlenecks":1,"bottlenecks":[{"step_name":"a","current_state":"error",`+
		`"attempts":3,"retry_limit":3,"impact_score":66.67,"severity":"critical","bottleneck_type":"retries_exhausted",`+
		`"resolution_strategy":"Remove the cause, then reset the step; or complete or resolve it by hand."}]}`)
	wantText(t, v.TaskExecutionSummary, `{"total_steps":3,"total_dependencies":2,"dependency_levels":2,`+
		`"longest_path_length":2,"overall_health":"blocked","recommendations":["Failed steps: 1; 2 unfinished steps `+
		`wait for them. An operator must act on the failed ones.","Steps that wait for another attempt: 1, the first due at `+
		`2026-01-01T00:01:00.000000Z."]}`)
	wantText(t, v.AnalysisTimestamp, `"2026-01-01T00:00:00.000000Z"`)
}

// wantText compares a view with its JSON.
func wantText(t *testing.T, v any, want string) {
	t.Helper()
	if got := viewText(t, v); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func viewText(t testing.TB, v any) string {
	t.Helper()
	text := must(json.Marshal(v))(t)
	return string(text)
}

func TestAnalysisAdvice(t *testing.T) {
	for _, test := range []struct {
		parents [][]int
		states  string
		want    string
	}{
		{chainGraph(4), "pppp", "[]"},
		{chainGraph(5), "pppp" + "p", "[All 5 steps run one after another; " +
			"those that do not need each other's results could run side by side.]"},
		{fanGraph(5), "ceewp", "[Failed steps: 2; 1 unfinished step waits for them. An operator must act on the failed ones. " +
			"Steps that wait for another attempt: 1, the first due at 2026-01-01T00:01:00.000000Z.]"},
		{fanGraph(5), "ccccc", "[]"},
	} {
		_, v := analyzeTask(analysisTask(test.parents, test.states), testStart)
		if got := fmt.Sprint(v.TaskExecutionSummary.Recommendations); got != test.want {
			t.Errorf("%s: got %s; want %s", test.states, got, test.want)
		}
	}
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
		_, v := analyzeTask(task, testStart)
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
		d, v := analyzeTask(task, testStart)
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
	slow(t)
	t.Parallel()
	const most, mostBytes = 40, 600 // a step's name is in up to 5 paths and 10 chains
	for _, shape := range analysisShapes {
		for _, n := range []int{100, 1000, 10000} {
			task := shapedTask(shape.of, n, shape.first, shape.rest)
			g := newListedGraph(shape.of(n))
			d, v := analyzeGraph(task, g, testStart)
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

// TestAnalysisOfManyEdges analyzes 100 layers of 100 steps that each wait for a
// whole layer.
func TestAnalysisOfManyEdges(t *testing.T) {
	t.Parallel()
	parents := make([][]int, 10000)
	layer := make([]int, 100)
	for i := range parents {
		if i%100 == 0 && i > 0 {
			layer = make([]int, 100)
			for n := range layer {
				layer[n] = i - 100 + n
			}
		}
		if i >= 100 {
			parents[i] = layer
		}
	}
	task := analysisTask(parents, strings.Repeat("c", 100)+strings.Repeat("i", 100)+strings.Repeat("p", 9800))
	g := newListedGraph(parents)
	_, v := analyzeGraph(task, g, testStart)
	if size := 10000 + 990000; g.looks > 40*size {
		t.Errorf("%d looks for %d steps and dependencies", g.looks, size)
	}
	s, p := v.TaskExecutionSummary, v.CriticalPaths
	if s.TotalDependencies != 990000 || s.LongestPathLength != 100 || v.ParallelismOpportunities.MaxParallelSteps != 100 {
		t.Errorf("got %+v; want 990000 dependencies, 100 steps in a row, 100 in parallel", s)
	}
	if len(p.Paths) != 5 || p.Paths[4].Length != 100 || p.Paths[0].CompletionPercentage != 1 {
		t.Errorf("got paths %+v; want 5 of 100 steps, of which one is completed", p.Paths)
	}
	if n := v.Bottlenecks.TotalBottlenecks; n != 100 || v.Bottlenecks.Bottlenecks[9].ImpactScore != 98.99 {
		t.Errorf("got %d bottlenecks, %+v; want 100 for each of which 9800 of 9900 wait", n, v.Bottlenecks)
	}
	d := v.DependencyGraph
	if len(d.Nodes) != 10000 || len(d.Edges) != maxListedEdges || d.TotalEdges != 990000 || !d.EdgesTruncated {
		t.Errorf("got %d nodes, %d of %d edges, truncated %v; want all nodes, the first %d edges of 990000, and so said",
			len(d.Nodes), len(d.Edges), d.TotalEdges, d.EdgesTruncated, maxListedEdges)
	}
	if last := d.Edges[maxListedEdges-1]; d.Nodes[100].Level != 1 || last.ToName == "" {
		t.Errorf("got last edge %+v; want one of the first levels", last)
	}
	if n := len(viewText(t, v)); n > 8<<20 {
		t.Errorf("got %d bytes of JSON; want less than 8 MiB", n)
	}
}

// TestAnalysisOfManyFailures analyzes 9,998 failed steps and one that waits for
// them.
func TestAnalysisOfManyFailures(t *testing.T) {
	t.Parallel()
	_, v := analyzeTask(analysisTask(fanGraph(10000), "c"+strings.Repeat("e", 9998)+"p"), testStart)
	if v.ErrorChains.TotalErrorSteps != 9998 || len(v.ErrorChains.ErrorChains) != maxErrorChains {
		t.Errorf("got %d failed steps and %d chains; want 9998 and %d", v.ErrorChains.TotalErrorSteps,
			len(v.ErrorChains.ErrorChains), maxErrorChains)
	}
	for i, c := range v.ErrorChains.ErrorChains {
		if c.TotalImpact != 1 || i == 0 && c.ErrorStepName != "b" {
			t.Errorf("chain %d: got %+v; want b and the ones after it, with one step behind", i, c)
		}
	}
	if v.Bottlenecks.TotalBottlenecks != 9998 || len(v.Bottlenecks.Bottlenecks) != maxStepBlockages {
		t.Errorf("got %d bottlenecks; want 9998", v.Bottlenecks.TotalBottlenecks)
	}
}

// TestAnalysisOfRealTasks analyzes a task that the engine runs, and compares the
// number of failed steps with the engine's.
func TestAnalysisOfRealTasks(t *testing.T) {
	_, y := newStoryServer(t)
	id := y.create("chain")
	check := func(want string) {
		t.Helper()
		task := must(y.svc.store.view(id))(t)
		d, v := analyzeTask(task, y.clock.now())
		if got := sketch(&d, &v); got != want || v.ErrorChains.TotalErrorSteps != task.blockers {
			t.Errorf("got\n%s\nwant\n%s; blockers %d", got, want, task.blockers)
		}
	}
	check("ready [] blocked [b] completed []; errors 0:; bottlenecks 1: a queued medium 50; healthy")
	y.run(id, 0, time.Second, timedOnce)
	check("ready [] blocked [b] completed []; errors 0:; bottlenecks 1: a waiting_for_retry high 50; recovering")
	y.clock.advance(10 * time.Second)
	y.run(id, 0, time.Second, outOfStock)
	check("ready [] blocked [b] completed []; errors 1: a[b]; bottlenecks 1: a permanent_failure critical 50; blocked")
	y.act(id, 0, resolveAction)
	check("ready [] blocked [] completed [a]; errors 0:; bottlenecks 0:; healthy")
	y.run(id, 1, time.Second, succeeded)
	check("ready [] blocked [] completed [a b]; errors 0:; bottlenecks 0:; healthy")
}

func BenchmarkAnalyzeTask(b *testing.B) {
	for _, shape := range analysisShapes {
		for _, n := range []int{1000, 10000} {
			task := shapedTask(shape.of, n, shape.first, shape.rest)
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(shape.name, " ", "-"), n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					analyzeTask(task, testStart)
				}
			})
		}
	}
}

// TestAnalysisOfAGrowingTask analyzes a task with steps that were created while it
// ran.
func TestAnalysisOfAGrowingTask(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{testTemplate("grows",
		stepSpec{kind: stepBatchable, name: "split", callable: "builtin:echo"},
		stepSpec{kind: stepBatchWorker, name: "w", callable: "Outside", after: []string{"split"}},
		stepSpec{kind: stepDeferredConvergence, name: "end", callable: "builtin:noop", after: []string{"w"}})}})
	task := settled(t, s, mustCreate(t, s, "grows", `"context":`+createBatches("w", 3)).id)
	d, v := analyzeTask(task, testStart)
	const want = "ready [] blocked [end] completed [split]; errors 0:; bottlenecks 3: " +
		"w_001 queued low 25 w_002 queued low 25 w_003 queued low 25; healthy"
	if got := sketch(&d, &v); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := fmt.Sprint(v.DependencyGraph.DependencyLevels); len(v.DependencyGraph.Nodes) != 5 ||
		len(v.DependencyGraph.Edges) != 6 || v.CriticalPaths.LongestPathLength != 3 || len(v.CriticalPaths.Paths) != 3 {
		t.Errorf("got levels %s, %+v; want 5 steps, 6 dependencies, 3 paths of 3", got, v.CriticalPaths)
	}
}
