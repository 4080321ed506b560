package main

// What is made of the figures that are kept as records are applied.
//
// The counters: transitions, attempts and how long they took. /metrics shows
// them; they begin at zero with the process.
//
// The reports: performance over some hours, and bottlenecks over all time. What
// they are made of is kept with the tasks, see analyticscount.go.

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// counters is guarded by the store's mutex: whoever applies records counts.
type counters struct {
	taskMoves [taskStates]uint64 // transitions into each state
	stepMoves [stepStates]uint64
	attempts  [2]uint64     // attempts that ended: failed, succeeded
	durations promHistogram // of attempts run by handlers, in seconds
	late      uint64        // results that came too late to count
}

func (c *counters) taskMoved(_, to taskState) { c.taskMoves[to]++ }

func (c *counters) stepMoved(from, to stepState) {
	c.stepMoves[to]++
	if from != stepInProgress {
		return
	}
	switch to {
	case stepEnqueuedForOrchestration:
		c.attempts[1]++
	case stepEnqueuedAsError:
		c.attempts[0]++
	}
}

// handlerDone counts an attempt that a handler of ours has ended.
func (c *counters) handlerDone(e *ending) { c.durations.observe(e.took) }

// histogram counts durations in fixed buckets.
type promHistogram struct {
	counts [len(promBounds) + 1]uint64 // the last for what is longer
	sum    time.Duration
}

var promBounds = [...]time.Duration{
	time.Millisecond / 2, time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 5 * time.Minute,
}

func (h *promHistogram) observe(d time.Duration) {
	h.sum += d
	for i, bound := range promBounds {
		if d <= bound {
			h.counts[i]++
			return
		}
	}
	h.counts[len(promBounds)]++
}

// figureFilter selects templates; empty members select all.
type figureFilter struct{ namespace, name, version string }

func (f figureFilter) selects(id templateID) bool {
	return (f.namespace == "" || f.namespace == id.namespace) &&
		(f.name == "" || f.name == id.name) && (f.version == "" || f.version == id.version)
}

// namedFigures is what was counted for a template, or for one of its steps.
type namedFigures struct {
	templateID
	step string // "" for the template
	figureRow
}

// hoursAgo is the hour to count from for what happened within some hours: the
// one in which that time began, whole.
func hoursAgo(now instant, hours int) int64 {
	return hourOf(now.add(-time.Duration(hours) * time.Hour))
}

// byTemplate is what was counted for each template from an hour on, in the order
// in which the templates were first used; those without are left out.
func (f *frozenFigures) byTemplate(filter figureFilter, from int64) []namedFigures {
	var all []namedFigures
	for _, t := range f.templates {
		if !filter.selects(t.name) {
			continue
		}
		if n := (namedFigures{templateID: t.name}); t.own.since(from, &n.figureRow) {
			all = append(all, n)
		}
	}
	return all
}

// byStep is byTemplate for the steps.
func (f *frozenFigures) byStep(filter figureFilter, from int64) []namedFigures {
	var all []namedFigures
	for _, t := range f.templates {
		if !filter.selects(t.name) {
			continue
		}
		for i, s := range t.steps {
			if n := (namedFigures{templateID: t.name, step: t.names[i]}); s.since(from, &n.figureRow) {
				all = append(all, n)
			}
		}
	}
	return all
}

// total is what was counted for all selected templates together. Its times are
// those of tasks; figures of steps are in it too.
func (f *frozenFigures) total(filter figureFilter, from int64) *figureRow {
	sum := new(figureRow)
	if filter == (figureFilter{}) {
		f.whole.since(from, sum)
		return sum
	}
	for _, t := range f.templates {
		if filter.selects(t.name) {
			t.own.since(from, sum)
		}
	}
	return sum
}

// percent is part / whole × 100 with two decimals, 0 when there is no whole.
func percent(part, whole uint64) float64 {
	return math.Round(ratio(float64(part), float64(whole))*10000) / 100
}

// microSeconds is an average in microseconds as seconds, to the microsecond.
func microSeconds(us float64) float64 { return math.Round(us) / 1e6 }

// outcomes is how many times tasks came to an end, failed, or were cancelled.
func (r *figureRow) outcomes() uint64 {
	return r.counts[tasksCompleted] + r.counts[tasksFailed] + r.counts[tasksCancelled]
}

// completionRate and taskErrorRate are shares of the outcomes, in percent.
func (r *figureRow) completionRate() float64 { return percent(r.counts[tasksCompleted], r.outcomes()) }

func (r *figureRow) taskErrorRate() float64 { return percent(r.counts[tasksFailed], r.outcomes()) }

// attemptErrorRate is the share of attempts that failed, in percent.
func (r *figureRow) attemptErrorRate() float64 {
	return percent(r.counts[attemptsFailed], r.counts[attemptsEnded])
}

// retrySuccessRate is the share of retries that succeeded, in percent.
func (r *figureRow) retrySuccessRate() float64 {
	return percent(r.counts[retriesSucceeded], r.counts[retriesEnded])
}

// health is completed / (completed + failed), 1 with neither.
func (r *figureRow) health() float64 {
	ended := r.counts[tasksCompleted] + r.counts[tasksFailed]
	if ended == 0 {
		return 1
	}
	return float64(r.counts[tasksCompleted]) / float64(ended)
}

// averageAttempt is how long attempts ran, in seconds.
func (r *figureRow) averageAttempt() float64 {
	return microSeconds(ratio(float64(r.counts[attemptMicros]), float64(r.counts[attemptsMeasured])))
}

// averageWait is how long steps waited for the steps they depend on, in seconds.
func (r *figureRow) averageWait() float64 {
	return microSeconds(ratio(float64(r.counts[dependencyMicros]), float64(r.counts[dependencyWaits])))
}

// averageTime is the average of what times holds, in seconds.
func (r *figureRow) averageTime() float64 { return microSeconds(r.times.mean()) }

// errorTypeCount is how many attempts failed with an error type.
type errorTypeCount struct {
	ErrorType string `json:"error_type"`
	Count     uint64 `json:"count"`
}

// errorTypes is why attempts failed, the most common first.
func (r *figureRow) errorTypes() []errorTypeCount {
	all := make([]errorTypeCount, len(r.types))
	for i, t := range r.types {
		all[i] = errorTypeCount{errorKindName(t.kind), t.count}
	}
	slices.SortStableFunc(all, func(a, b errorTypeCount) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

// stateCounts is how many of the tasks kept, and of their steps, are in each state now.
type stateCounts struct {
	tasks [taskStates]int
	steps [stepStates]int
}

// active is how many tasks are neither ended nor blocked.
func (c *stateCounts) active() int {
	n := 0
	for s, count := range c.tasks {
		if !taskState(s).ended() && !taskState(s).failed() {
			n += count
		}
	}
	return n
}

// performanceView is the answer of /v1/analytics/performance.
type performanceView struct {
	TotalTasks                 uint64    `json:"total_tasks"`
	ActiveTasks                int       `json:"active_tasks"`
	CompletedTasks             uint64    `json:"completed_tasks"`
	FailedTasks                uint64    `json:"failed_tasks"`
	CompletionRate             float64   `json:"completion_rate"`
	ErrorRate                  float64   `json:"error_rate"`
	AverageTaskDurationSeconds float64   `json:"average_task_duration_seconds"`
	AverageStepDurationSeconds float64   `json:"average_step_duration_seconds"`
	TasksPerHour               int64     `json:"tasks_per_hour"`
	StepsPerHour               int64     `json:"steps_per_hour"`
	SystemHealthScore          float64   `json:"system_health_score"`
	AnalysisPeriodStart        zonedTime `json:"analysis_period_start"`
	CalculatedAt               zonedTime `json:"calculated_at"`
}

// performance returns how the service did within the last hours: how many tasks
// were created (total_tasks ever), completed and failed, how fast, how reliably.
// Rates per hour count what was created.
func (f *frozenFigures) performance(states *stateCounts, now instant, hours int) performanceView {
	from := hoursAgo(now, hours)
	ever, r := f.total(figureFilter{}, allTime), f.total(figureFilter{}, from)
	perHour := func(n uint64) int64 {
		return int64(math.Round(float64(n) / now.sub(hourStart(from)).Hours()))
	}
	return performanceView{
		TotalTasks: ever.counts[tasksCreated], ActiveTasks: states.active(),
		CompletedTasks: r.counts[tasksCompleted], FailedTasks: r.counts[tasksFailed],
		CompletionRate: r.completionRate(), ErrorRate: r.taskErrorRate(),
		AverageTaskDurationSeconds: r.averageTime(), AverageStepDurationSeconds: r.averageAttempt(),
		TasksPerHour: perHour(r.counts[tasksCreated]), StepsPerHour: perHour(r.counts[stepsCreated]),
		SystemHealthScore:   r.health(),
		AnalysisPeriodStart: zonedTime(hourStart(from)), CalculatedAt: zonedTime(now),
	}
}

// bottlenecksView is the answer of /v1/analytics/bottlenecks.
type bottlenecksView struct {
	SlowSteps           []slowStepView          `json:"slow_steps"`
	SlowTasks           []slowTaskView          `json:"slow_tasks"`
	ResourceUtilization resourceUtilizationView `json:"resource_utilization"`
	Recommendations     []string                `json:"recommendations"`
}

// slowStepView is one step of a template; an execution is an attempt that ended.
type slowStepView struct {
	NamespaceName          string    `json:"namespace_name"`
	TaskName               string    `json:"task_name"`
	Version                string    `json:"version"`
	StepName               string    `json:"step_name"`
	AverageDurationSeconds float64   `json:"average_duration_seconds"`
	MaxDurationSeconds     float64   `json:"max_duration_seconds"`
	ExecutionCount         uint64    `json:"execution_count"`
	ErrorCount             uint64    `json:"error_count"`
	ErrorRate              float64   `json:"error_rate"`
	LastExecutedAt         zonedTime `json:"last_executed_at"`
}

// slowTaskView is one template; an execution is a task that completed or failed,
// the durations are of those that completed.
type slowTaskView struct {
	NamespaceName          string    `json:"namespace_name"`
	TaskName               string    `json:"task_name"`
	Version                string    `json:"version"`
	AverageDurationSeconds float64   `json:"average_duration_seconds"`
	MaxDurationSeconds     float64   `json:"max_duration_seconds"`
	ExecutionCount         uint64    `json:"execution_count"`
	AverageStepCount       float64   `json:"average_step_count"`
	ErrorCount             uint64    `json:"error_count"`
	ErrorRate              float64   `json:"error_rate"`
	LastExecutedAt         zonedTime `json:"last_executed_at"`
}

// resourceUtilizationView has no pool to report on: the store is in the process.
type resourceUtilizationView struct {
	DatabasePoolUtilization float64        `json:"database_pool_utilization"`
	SystemHealth            map[string]int `json:"system_health"`
}

// bottlenecks returns what took longest on average, over all time: at most limit
// steps and as many templates, of those executed at least minimum times.
func (f *frozenFigures) bottlenecks(states *stateCounts, limit, minimum int) bottlenecksView {
	steps := slowest(f.byStep(figureFilter{}, allTime), (*figureRow).attempts, minimum)
	tasks := slowest(f.byTemplate(figureFilter{}, allTime), (*figureRow).executions, minimum)
	v := bottlenecksView{
		SlowSteps: []slowStepView{}, SlowTasks: []slowTaskView{},
		ResourceUtilization: resourceUtilizationView{SystemHealth: states.view()},
		Recommendations:     recommendations(tasks, steps, states),
	}
	for i := range steps[:min(limit, len(steps))] {
		v.SlowSteps = append(v.SlowSteps, steps[i].slowStep())
	}
	for i := range tasks[:min(limit, len(tasks))] {
		v.SlowTasks = append(v.SlowTasks, tasks[i].slowTask())
	}
	return v
}

// executions is how many times tasks completed or failed.
func (r *figureRow) executions() uint64 { return r.counts[tasksCompleted] + r.counts[tasksFailed] }

// attempts is how many attempts ended.
func (r *figureRow) attempts() uint64 { return r.counts[attemptsEnded] }

// slowest keeps what was executed often enough, at least once, the slowest
// average first.
func slowest(all []namedFigures, executions func(r *figureRow) uint64, minimum int) []namedFigures {
	all = slices.DeleteFunc(all, func(n namedFigures) bool {
		return executions(&n.figureRow) < uint64(max(minimum, 1))
	})
	slices.SortFunc(all, func(a, b namedFigures) int {
		return cmp.Or(cmp.Compare(b.times.mean(), a.times.mean()), strings.Compare(a.namespace, b.namespace),
			strings.Compare(a.name, b.name), strings.Compare(a.version, b.version), strings.Compare(a.step, b.step))
	})
	return all
}

func (n *namedFigures) slowStep() slowStepView {
	return slowStepView{
		NamespaceName: n.namespace, TaskName: n.name, Version: n.version, StepName: n.step,
		AverageDurationSeconds: n.averageTime(), MaxDurationSeconds: microSeconds(float64(n.times.max)),
		ExecutionCount: n.attempts(), ErrorCount: n.counts[attemptsFailed], ErrorRate: n.attemptErrorRate(),
		LastExecutedAt: zonedTime(n.last),
	}
}

func (n *namedFigures) slowTask() slowTaskView {
	return slowTaskView{
		NamespaceName: n.namespace, TaskName: n.name, Version: n.version,
		AverageDurationSeconds: n.averageTime(), MaxDurationSeconds: microSeconds(float64(n.times.max)),
		ExecutionCount:   n.executions(),
		AverageStepCount: ratio(float64(n.counts[stepsCreated]), float64(n.counts[tasksCreated])),
		ErrorCount:       n.counts[tasksFailed], ErrorRate: percent(n.counts[tasksFailed], n.executions()),
		LastExecutedAt: zonedTime(n.last),
	}
}

// view names every state as existing clients do: pending_tasks, pending_steps, …
func (c *stateCounts) view() map[string]int {
	v := make(map[string]int, len(c.tasks)+len(c.steps)+2)
	for s, n := range c.tasks {
		v[taskState(s).String()+"_tasks"] = n
		v["total_tasks"] += n
	}
	for s, n := range c.steps {
		v[stepState(s).String()+"_steps"] = n
		v["total_steps"] += n
	}
	return v
}

// Recommendations: sentences about what stands out in the figures. Each names
// what was measured; where nothing stands out there is none.

const (
	maxRecommendations = 5
	adviceEach         = 2    // at most so many of one sort
	highErrorRate      = 10.0 // percent of a step's attempts
	dominantShare      = 0.5  // of the average task, in one of several steps
	wideSpread         = 10.0 // the 95th percentile over the median
	spreadFrom         = 1e6  // µs; a faster 95th percentile is no trouble
)

// recommendations looks at templates and steps with enough executions, the
// slowest first.
func recommendations(tasks, steps []namedFigures, states *stateCounts) []string {
	advice := []string{}
	if n := states.tasks[taskBlockedByFailures]; n > 0 {
		advice = append(advice, fmt.Sprintf("Tasks blocked by failures: %d. They wait for an operator to reset, "+
			"complete or resolve their failed steps.", n))
	}
	advice = append(advice, adviceOnFailures(steps)...)
	advice = append(advice, adviceOnSlowSteps(tasks, steps)...)
	advice = append(advice, adviceOnSpread(tasks)...)
	return advice[:min(len(advice), maxRecommendations)]
}

func (id templateID) fullName() string { return id.namespace + "." + id.name + "@" + id.version }

// adviceOnFailures names the steps that fail most often.
func adviceOnFailures(steps []namedFigures) []string {
	failing := slices.DeleteFunc(slices.Clone(steps), func(n namedFigures) bool {
		return n.attemptErrorRate() < highErrorRate
	})
	slices.SortStableFunc(failing, func(a, b namedFigures) int {
		return cmp.Compare(b.attemptErrorRate(), a.attemptErrorRate())
	})
	var advice []string
	for _, n := range failing[:min(len(failing), adviceEach)] {
		advice = append(advice, fmt.Sprintf("Step %s of %s fails in %.2f %% of its %d attempts, "+
			"most often with %s.", n.step, n.fullName(), n.attemptErrorRate(), n.attempts(), n.errorTypes()[0].ErrorType))
	}
	return advice
}

// adviceOnSlowSteps names the steps that make up most of their tasks' time.
func adviceOnSlowSteps(tasks, steps []namedFigures) []string {
	slowest := map[templateID]*namedFigures{}
	for i := range steps {
		if slowest[steps[i].templateID] == nil {
			slowest[steps[i].templateID] = &steps[i]
		}
	}
	var advice []string
	for _, t := range tasks {
		step := slowest[t.templateID]
		several := t.counts[stepsCreated] > t.counts[tasksCreated]
		if step == nil || !several || len(advice) == adviceEach || t.times.sum == 0 {
			continue
		}
		if step.times.mean() >= dominantShare*t.times.mean() {
			advice = append(advice, fmt.Sprintf("Step %s runs %.3f s on average; whole tasks of %s take %.3f s.",
				step.step, step.averageTime(), t.fullName(), t.averageTime()))
		}
	}
	return advice
}

// adviceOnSpread names the templates some of whose tasks take far longer than most.
func adviceOnSpread(tasks []namedFigures) []string {
	var advice []string
	for _, t := range tasks {
		median, high := t.times.quantile(0.5), t.times.quantile(0.95)
		if high < spreadFrom || high < wideSpread*median || len(advice) == adviceEach {
			continue
		}
		advice = append(advice, fmt.Sprintf("Half of the tasks of %s take up to %.3f s, but one in twenty "+
			"takes %.3f s or more.", t.fullName(), median/1e6, high/1e6))
	}
	return advice
}

// Durations counted in logarithmic bins: percentiles from little memory.

// histogramOctave is how many bins there are from one power of two to the next.
// With 8 a bin's middle is at most 1/17, 5.9 %, away from all that it counts.
const histogramOctave = 8

// latencyHistogram counts durations in microseconds. The zero value is empty, and
// only bins in which something was counted take memory, 8 bytes each. Count,
// sum and max are exact.
type latencyHistogram struct {
	bins  []histogramBin // ascending
	count uint64
	sum   int64
	max   int64
}

// histogramBin is a bin's number in the upper 16 bits, its count in the lower 48.
type histogramBin uint64

const histogramCountBits = 48

func makeHistogramBin(number int, count uint64) histogramBin {
	return histogramBin(uint64(number)<<histogramCountBits | count)
}

func (b histogramBin) number() int { return int(b >> histogramCountBits) }

func (b histogramBin) count() uint64 { return uint64(b) & (1<<histogramCountBits - 1) }

// binOf is the number of the bin for a duration. Below 16 µs each microsecond
// has its own, and so has none an error.
func binOf(us int64) int {
	v := uint64(max(us, 0))
	if v < 2*histogramOctave {
		return int(v)
	}
	shift := bits.Len64(v) - 4 // leaves four bits: 8 to 15
	return shift*histogramOctave + int(v>>shift)
}

// binRange is the durations that a bin counts: from lo up to, not including, hi.
func binRange(number int) (lo, hi float64) {
	if number < 2*histogramOctave {
		return float64(number), float64(number + 1)
	}
	shift := number/histogramOctave - 1
	top := number%histogramOctave + histogramOctave
	return math.Ldexp(float64(top), shift), math.Ldexp(float64(top+1), shift)
}

// binMiddle is the duration that stands for a bin: as far, in proportion, from
// its lower as from its upper end.
func binMiddle(number int) float64 {
	if number < 2*histogramOctave {
		return float64(number)
	}
	lo, hi := binRange(number)
	return 2 * lo * hi / (lo + hi)
}

// observe counts one duration; a negative one, of a clock that went back, as 0.
func (h *latencyHistogram) observe(us int64) {
	us = max(us, 0)
	h.count++
	h.sum += us
	h.max = max(h.max, us)
	number := binOf(us)
	i := h.place(number)
	if i == len(h.bins) || h.bins[i].number() != number {
		h.bins = slices.Insert(h.bins, i, makeHistogramBin(number, 0))
	}
	h.bins[i]++
}

// place is where the bin is, or belongs.
func (h *latencyHistogram) place(number int) int {
	lo, hi := 0, len(h.bins)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if h.bins[mid].number() < number {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// merge counts all that another histogram has.
func (h *latencyHistogram) merge(o *latencyHistogram) {
	h.count += o.count
	h.sum += o.sum
	h.max = max(h.max, o.max)
	for _, b := range o.bins {
		i := h.place(b.number())
		if i == len(h.bins) || h.bins[i].number() != b.number() {
			h.bins = slices.Insert(h.bins, i, makeHistogramBin(b.number(), 0))
		}
		h.bins[i] += histogramBin(b.count())
	}
}

// clone is a copy that later observations do not touch.
func (h *latencyHistogram) clone() latencyHistogram {
	c := *h
	c.bins = slices.Clone(h.bins)
	return c
}

// quantile is the duration in microseconds below or at which the share q of all
// are, by nearest rank; at most 6 % off. 0 when nothing was counted.
func (h *latencyHistogram) quantile(q float64) float64 {
	if h.count == 0 {
		return 0
	}
	rank := uint64(max(math.Ceil(q*float64(h.count)), 1))
	var seen uint64
	for _, b := range h.bins {
		if seen += b.count(); seen >= rank {
			return min(binMiddle(b.number()), float64(h.max))
		}
	}
	return float64(h.max)
}

// mean is the exact average in microseconds, 0 when nothing was counted.
func (h *latencyHistogram) mean() float64 { return ratio(float64(h.sum), float64(h.count)) }

// distribution counts the durations between edges, ascending, in microseconds:
// one count below each edge, and one from the last on. A bin counts whole, by
// its middle.
func (h *latencyHistogram) distribution(edges []int64) []uint64 {
	counts := make([]uint64, len(edges)+1)
	at := 0
	for _, b := range h.bins {
		for at < len(edges) && binMiddle(b.number()) >= float64(edges[at]) {
			at++
		}
		counts[at] += b.count()
	}
	return counts
}

// ratio is part / whole, 0 when there is no whole.
func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
