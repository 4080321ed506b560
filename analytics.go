package main

// The analytics family: figures of what happened to tasks and steps, by hour. They are counted from records as these
// are applied, and read as of one moment. It may use tasks; it does not know the store, which calls it under its lock,
// nor who asks.
//
//	analytics.go           the figures as reports: performance, history, bottlenecks, recommendations
//	analytics_book.go      the book of figures, by hour, and its lines in the store; counting: what a record adds,
//	                       counters for /metrics

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// figureFilter selects templates; empty members select all.
type figureFilter struct{ namespace, name, version string }

func (f figureFilter) selects(id templateID) bool {
	return (f.namespace == "" || f.namespace == id.namespace) &&
		(f.name == "" || f.name == id.name) && (f.version == "" || f.version == id.version)
}

// namedFigures holds the figures of a template, or of one of its steps.
type namedFigures struct {
	templateID
	step string // "" for the template
	figureRow
}

// hoursAgo returns the hour to count from for the last hours: the whole hour in which that time began.
func hoursAgo(now instant, hours int) int64 {
	return hourOf(now.add(-time.Duration(hours) * time.Hour))
}

// selected returns the figures of the selected templates, in the order of their first use.
func (f *frozenFigures) selected(filter figureFilter) []*templateFigures {
	return slices.DeleteFunc(slices.Clone(f.templates), func(t *templateFigures) bool { return !filter.selects(t.name) })
}

// byTemplate returns what was counted for each template from an hour on, in the
// order of their first use. Templates without figures are left out.
func (f *frozenFigures) byTemplate(filter figureFilter, from int64) []namedFigures {
	var all []namedFigures
	for _, t := range f.selected(filter) {
		if n := (namedFigures{templateID: t.name}); t.own.since(from, &n.figureRow) {
			all = append(all, n)
		}
	}
	return all
}

// byHour returns what was counted in each hour from one on, the oldest first.
func (f *frozenFigures) byHour(filter figureFilter, from int64) []*figureRow {
	sums := map[int64]*figureRow{}
	for _, t := range f.selected(filter) {
		for _, r := range t.own.hours(from) {
			if sums[r.hour] == nil {
				sums[r.hour] = &figureRow{hour: r.hour}
			}
			sums[r.hour].merge(r)
		}
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b *figureRow) int { return cmp.Compare(a.hour, b.hour) })
}

// byStep returns what was counted for each step from an hour on.
func (f *frozenFigures) byStep(filter figureFilter, from int64) []namedFigures {
	var all []namedFigures
	for _, t := range f.selected(filter) {
		for i, s := range t.steps {
			if n := (namedFigures{templateID: t.name, step: t.names[i]}); s.since(from, &n.figureRow) {
				all = append(all, n)
			}
		}
	}
	return all
}

// total returns what was counted for all selected templates together. Its times
// are those of tasks; the counts of steps are included.
func (f *frozenFigures) total(filter figureFilter, from int64) *figureRow {
	sum := new(figureRow)
	for _, t := range f.selected(filter) {
		t.own.since(from, sum)
	}
	return sum
}

// share returns part / whole with four decimals, or 0 if whole is 0.
func share(part, whole uint64) float64 {
	return math.Round(ratio(float64(part), float64(whole))*10000) / 10000
}

// percent returns part / whole × 100 with two decimals, or 0 if whole is 0.
func percent(part, whole uint64) float64 {
	return math.Round(ratio(float64(part), float64(whole))*10000) / 100
}

// microSeconds converts an average in microseconds to seconds, to the microsecond.
func microSeconds(us float64) float64 { return math.Round(us) / 1e6 }

// outcomes returns how many times tasks completed, failed or were cancelled.
func (r *figureRow) outcomes() uint64 {
	return r.counts[tasksCompleted] + r.counts[tasksFailed] + r.counts[tasksCancelled]
}

// completionRate and taskErrorRate return shares of the outcomes, in percent.
func (r *figureRow) completionRate() float64 { return percent(r.counts[tasksCompleted], r.outcomes()) }

func (r *figureRow) taskErrorRate() float64 { return percent(r.counts[tasksFailed], r.outcomes()) }

// attemptErrorRate returns the share of attempts that failed, in percent.
func (r *figureRow) attemptErrorRate() float64 {
	return percent(r.counts[attemptsFailed], r.counts[attemptsEnded])
}

// health returns completed / (completed + failed), or 1 if both are 0.
func (r *figureRow) health() float64 {
	ended := r.counts[tasksCompleted] + r.counts[tasksFailed]
	if ended == 0 {
		return 1
	}
	return float64(r.counts[tasksCompleted]) / float64(ended)
}

// averageAttempt returns how long attempts ran on average, in seconds.
func (r *figureRow) averageAttempt() float64 {
	return microSeconds(ratio(float64(r.counts[attemptMicros]), float64(r.counts[attemptsMeasured])))
}

// averageWait returns how long steps waited for their dependencies on average, in seconds.
func (r *figureRow) averageWait() float64 {
	return microSeconds(ratio(float64(r.counts[dependencyMicros]), float64(r.counts[dependencyWaits])))
}

// averageTime returns the average of times, in seconds.
func (r *figureRow) averageTime() float64 { return microSeconds(r.times.mean()) }

// errorTypeCount is how many attempts failed with an error type.
type errorTypeCount struct {
	ErrorType string `json:"error_type"`
	Count     uint64 `json:"count"`
}

// errorTypes returns the error types of failed attempts, the most common first.
func (r *figureRow) errorTypes() []errorTypeCount {
	all := []errorTypeCount{}
	for name, n := range r.types {
		all = append(all, errorTypeCount{name, n})
	}
	slices.SortFunc(all, func(a, b errorTypeCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ErrorType, b.ErrorType))
	})
	return all
}

// commonestError names the error type of most failed attempts, as the end of a sentence. A state
// document may count failures without their types.
func (r *figureRow) commonestError() string {
	all := r.errorTypes()
	if len(all) == 0 {
		return ""
	}
	if all[0].ErrorType == otherErrorType {
		return ", most often with a custom error type"
	}
	return ", most often with " + all[0].ErrorType
}

// stateCounts is how many tasks and steps of the store are in each state.
type stateCounts struct {
	tasks [taskStates]int
	steps [stepStates]int
}

// active returns how many tasks are neither over nor blocked.
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

// performance returns how the service did within the last hours: how many tasks were created (total_tasks ever),
// completed and failed, how fast, how reliably. Rates per hour count what was created, since the first task if that was
// later; a shorter time than a minute counts as one.
func (f *frozenFigures) performance(states *stateCounts, now instant, hours int) performanceView {
	from := hoursAgo(now, hours)
	ever, r := f.total(figureFilter{}, allTime), f.total(figureFilter{}, from)
	span := max(now.sub(max(hourStart(from), f.began())), time.Minute)
	perHour := func(n uint64) int64 { return int64(math.Round(float64(n) / span.Hours())) }
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

// fareHistoryView is the answer of /v1/analytics/history.
type fareHistoryView struct {
	Hours               []hourView         `json:"hours"`
	Templates           []templateFareView `json:"templates"`
	AnalysisPeriodStart zonedTime          `json:"analysis_period_start"`
	CalculatedAt        zonedTime          `json:"calculated_at"`
}

// minuteHistoryView is the answer to a request that asks for minutes, too.
type minuteHistoryView struct {
	fareHistoryView
	Minutes      []minuteView `json:"minutes"`
	MinutesStart zonedTime    `json:"minutes_start"`
}

// minuteView has the counts of one minute.
type minuteView struct {
	Minute zonedTime `json:"minute"` // its start
	fareView
}

// hourView has the counts of one hour.
type hourView struct {
	Hour zonedTime `json:"hour"` // its start
	fareView
}

// templateFareView has the counts of one template.
type templateFareView struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	fareView
}

// fareView says how tasks fared; the durations are of completed tasks.
type fareView struct {
	CreatedTasks           uint64  `json:"created_tasks"`
	CompletedTasks         uint64  `json:"completed_tasks"`
	FailedTasks            uint64  `json:"failed_tasks"`
	CancelledTasks         uint64  `json:"cancelled_tasks"`
	EndedAttempts          uint64  `json:"ended_attempts"`
	FailedAttempts         uint64  `json:"failed_attempts"`
	AverageDurationSeconds float64 `json:"average_duration_seconds"`
	P50DurationSeconds     float64 `json:"p50_duration_seconds"`
	P95DurationSeconds     float64 `json:"p95_duration_seconds"`
}

func (r *figureRow) fare() fareView {
	return fareView{
		CreatedTasks: r.counts[tasksCreated], CompletedTasks: r.counts[tasksCompleted],
		FailedTasks: r.counts[tasksFailed], CancelledTasks: r.counts[tasksCancelled],
		EndedAttempts: r.counts[attemptsEnded], FailedAttempts: r.counts[attemptsFailed],
		AverageDurationSeconds: r.averageTime(),
		P50DurationSeconds:     microSeconds(r.times.quantile(0.5)),
		P95DurationSeconds:     microSeconds(r.times.quantile(0.95)),
	}
}

// history returns how the selected templates fared within the last hours, by hour and
// by template. Hours and templates without figures are left out.
func (f *frozenFigures) history(filter figureFilter, now instant, hours int) fareHistoryView {
	from := hoursAgo(now, hours)
	v := fareHistoryView{Hours: []hourView{}, Templates: []templateFareView{},
		AnalysisPeriodStart: zonedTime(hourStart(from)), CalculatedAt: zonedTime(now)}
	for _, r := range f.byHour(filter, from) {
		v.Hours = append(v.Hours, hourView{zonedTime(hourStart(r.hour)), r.fare()})
	}
	for _, n := range f.byTemplate(filter, from) {
		v.Templates = append(v.Templates, templateFareView{n.namespace, n.name, n.version, n.fare()})
	}
	return v
}

// withMinutes adds the last minutes to a history. They begin with the process: the store keeps hours.
func (f *frozenFigures) withMinutes(v fareHistoryView, now instant, minutes int) minuteHistoryView {
	from := max(minuteOf(now)-int64(minutes), f.live)
	m := minuteHistoryView{v, []minuteView{}, zonedTime(minuteStart(from))}
	for _, r := range f.minutes.hours(from) {
		m.Minutes = append(m.Minutes, minuteView{zonedTime(minuteStart(r.hour)), r.fare()})
	}
	return m
}

// bottlenecksView is the answer of /v1/analytics/bottlenecks.
type bottlenecksView struct {
	SlowSteps           []slowStepView          `json:"slow_steps"`
	SlowTasks           []slowTaskView          `json:"slow_tasks"`
	ResourceUtilization resourceUtilizationView `json:"resource_utilization"`
	Recommendations     []string                `json:"recommendations"`
}

// slowStepView is one step of a template. An execution is an attempt that
// ended. The error rate of these views is a fraction, as existing clients read it.
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

// slowTaskView is one template. An execution is a task that completed or failed; the durations are of completed tasks.
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

// resourceUtilizationView has no pool to report: the store is part of the process.
type resourceUtilizationView struct {
	DatabasePoolUtilization float64        `json:"database_pool_utilization"`
	SystemHealth            map[string]int `json:"system_health"`
}

// bottlenecks returns what took longest on average, over all time: at most limit
// steps and as many templates, of those executed at least minimum times.
func (f *frozenFigures) bottlenecks(states *stateCounts, limit, minimum int) bottlenecksView {
	steps := slowest(f.byStep(figureFilter{}, allTime), (*figureRow).attempts, minimum)
	tasks := slowest(f.byTemplate(figureFilter{}, allTime), (*figureRow).executions, minimum)
	return bottlenecksView{
		SlowSteps:           firstViews(steps, limit, (*namedFigures).slowStep),
		SlowTasks:           firstViews(tasks, limit, (*namedFigures).slowTask),
		ResourceUtilization: resourceUtilizationView{SystemHealth: states.view()},
		Recommendations:     recommendations(states.tasks[taskBlockedByFailures], steps),
	}
}

// firstViews returns views of the first figures, at most limit.
func firstViews[V any](all []namedFigures, limit int, view func(n *namedFigures) V) []V {
	views := make([]V, min(limit, len(all)))
	for i := range views {
		views[i] = view(&all[i])
	}
	return views
}

// executions returns how many times tasks completed or failed.
func (r *figureRow) executions() uint64 { return r.counts[tasksCompleted] + r.counts[tasksFailed] }

// attempts returns how many attempts ended.
func (r *figureRow) attempts() uint64 { return r.counts[attemptsEnded] }

// slowest keeps what was executed often enough, at least once, and sorts it by average duration, the slowest first.
func slowest(all []namedFigures, executions func(r *figureRow) uint64, minimum int) []namedFigures {
	all = slices.DeleteFunc(all, func(n namedFigures) bool {
		return executions(&n.figureRow) < uint64(max(minimum, 1))
	})
	slices.SortFunc(all, func(a, b namedFigures) int {
		return cmp.Or(cmp.Compare(b.times.mean(), a.times.mean()), a.compareName(&b))
	})
	return all
}

func (n *namedFigures) compareName(o *namedFigures) int {
	return cmp.Or(strings.Compare(n.namespace, o.namespace), strings.Compare(n.name, o.name),
		strings.Compare(n.version, o.version), strings.Compare(n.step, o.step))
}

func (n *namedFigures) slowStep() slowStepView {
	return slowStepView{
		NamespaceName: n.namespace, TaskName: n.name, Version: n.version, StepName: n.step,
		AverageDurationSeconds: n.averageTime(), MaxDurationSeconds: microSeconds(float64(n.times.max)),
		ExecutionCount: n.attempts(), ErrorCount: n.counts[attemptsFailed],
		ErrorRate: share(n.counts[attemptsFailed], n.attempts()), LastExecutedAt: zonedTime(n.last),
	}
}

func (n *namedFigures) slowTask() slowTaskView {
	return slowTaskView{
		NamespaceName: n.namespace, TaskName: n.name, Version: n.version,
		AverageDurationSeconds: n.averageTime(), MaxDurationSeconds: microSeconds(float64(n.times.max)),
		ExecutionCount:   n.executions(),
		AverageStepCount: ratio(float64(n.counts[stepsCreated]), float64(n.counts[tasksCreated])),
		ErrorCount:       n.counts[tasksFailed], ErrorRate: share(n.counts[tasksFailed], n.executions()),
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

// Recommendations: sentences about what stands out in the figures. Each states what was measured; figures in which
// nothing stands out give none.

const (
	maxRecommendations = 5
	highErrorRate      = 10.0 // percent of a step's attempts
)

// recommendations returns sentences about how many tasks are blocked, and which of some steps often fail, those that hurt
// the most tasks first.
func recommendations(blocked int, steps []namedFigures) []string {
	said := []string{}
	if blocked > 0 {
		said = append(said, fmt.Sprintf("Tasks blocked by failures: %d. They wait for an operator to reset, "+
			"complete or resolve their failed steps.", blocked))
	}
	steps = slices.SortedStableFunc(slices.Values(steps), func(a, b namedFigures) int { return cmp.Compare(b.hurt(), a.hurt()) })
	for _, n := range steps {
		if n.attemptErrorRate() >= highErrorRate && len(said) < maxRecommendations {
			said = append(said, fmt.Sprintf("Step %s of %s fails in %.2f %% of its %s%s.", n.step, n.fullName(),
				n.attemptErrorRate(), counted(int(n.attempts()), "attempt", "attempts"), n.commonestError()))
		}
	}
	return said
}

func (id templateID) fullName() string { return id.namespace + "." + id.name + "@" + id.version }

// hurt returns how many steps failed in their first attempt. It takes each task once, however often it was retried.
func (r *figureRow) hurt() uint64 {
	return r.counts[attemptsFailed] - (r.counts[retriesEnded] - r.counts[retriesSucceeded])
}
