package main

// The mount-point API's operations on tasks and steps, with their views, and its
// analytics in the form of the embedded service. Figures are kept by whole hours: the
// oldest hour that counts is the one in which the requested period begins.

import (
	"cmp"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// readNested reads an object that the body may wrap: {"task": {…}} for {…}.
func readNested(r *http.Request, name string) ([]byte, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	f := fieldReader{}
	eachMember(body, func(key string, raw []byte) bool {
		if key != name || jsonKind(raw) == 'n' {
			return true
		}
		if body = raw; jsonKind(raw) != '{' {
			f.complain(name, "must be an object")
		}
		return false
	})
	return body, f.failure("the request is refused")
}

func (a *mountAPI) createTask(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readNested(r, "task")
	if err != nil {
		return nil, err
	}
	return a.submit(w, r, "mount /tasks", body, func(t *task) any {
		return mountTaskView{task: t, rights: mountRights{contextShown, true}}
	})
}

func (a *mountAPI) listTasks(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	rights := q.mountRights(r)
	page, err := a.page(w, r, q, a.link(r, "/tasks"), briefStates, briefWords)
	return mountListView{page, rights}, err
}

// briefWords lists the words of a filter by state here.
var briefWords = strings.Join(briefStatusNames[:], ", ") + "; nor one of the exact states " +
	strings.Join(taskStateNames[:], ", ")

// briefStates returns the states that a word of a filter means.
func briefStates(word string) (stateSet, bool) {
	if status, ok := parseBriefStatus(word); ok {
		return status.states(), true
	}
	return exactState(word)
}

func (a *mountAPI) getTask(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	analyzed := q.flag("include_dependencies")
	rights := q.mountRights(r)
	t, err := a.awaited(w, r, q, "id")
	if err != nil {
		return nil, err
	}
	v := mountTaskView{task: t, rights: rights, withSteps: true}
	if analyzed {
		if err := askFor(4*len(t.steps), w.(*recorder)); err != nil {
			return nil, err
		}
		v.more = &mountAnalysisView{}
		v.more.Dependencies, v.more.Analysis = analyzeTask(t, a.svc.clock.now())
		return v, nil
	}
	return a.ofTask(w, r, t, a.svc.clock.now(), v), nil
}

func (a *mountAPI) explainTask(w http.ResponseWriter, r *http.Request) (any, error) {
	v, err := a.explanation(w, r, "id")
	if err != nil {
		return nil, err
	}
	v.Status, v.State = v.state.brief().String(), v.state.String()
	return v, nil
}

func (a *mountAPI) cancelTask(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.cancelIn(r, "id")
	if err != nil {
		return nil, err
	}
	return a.ofTask(w, r, t, a.svc.clock.now(), mountTaskView{task: t, rights: mountRightsOf(r)}), nil
}

func (a *mountAPI) listSteps(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	rights := q.mountRights(r)
	if err := q.done(); err != nil {
		return nil, err
	}
	t, err := a.taskIn(w, r, "task_id")
	if err != nil {
		return nil, err
	}
	return a.ofTask(w, r, t, a.svc.clock.now(), mountStepsView{t, rights}), nil
}

func (a *mountAPI) getStep(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	rights := q.mountRights(r)
	if err := q.done(); err != nil {
		return nil, err
	}
	t, i, err := a.stepIn(w, r, "task_id", "step_id")
	return a.stepAnswer(w, r, mountStepView{t, i, rights}, err)
}

// stepAnswer answers with a step, unless err is not nil.
func (a *mountAPI) stepAnswer(w http.ResponseWriter, r *http.Request, v mountStepView, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return a.ofTask(w, r, v.task, a.svc.clock.now(), v), nil
}

func (a *mountAPI) adjustStep(w http.ResponseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r, "task_id", "step_id")
	if err != nil {
		return nil, err
	}
	body, err := readNested(r, "workflow_step")
	if err != nil {
		return nil, err
	}
	by, err := parseAdjustment(body)
	if err != nil {
		return nil, err
	}
	who, err := a.actorOf(r)
	if err != nil {
		return nil, err
	}
	t, i, err := a.svc.operator.adjust(r.Context(), taskID, stepID, by, who)
	return a.stepAnswer(w, r, mountStepView{t, i, mountRightsOf(r)}, err)
}

// parseAdjustment reads {"retry_limit"?: 1–100, "inputs"?: object}. At least one
// of them is required.
func parseAdjustment(body []byte) (*adjustment, error) {
	f, by := fieldReader{}, &adjustment{}
	eachMember(body, func(key string, raw []byte) bool {
		switch {
		case jsonKind(raw) == 'n':
		case key == "retry_limit":
			by.maxAttempts = f.count(key, raw, 1, maxRetryLimit)
		case key == "inputs":
			by.inputs = f.object(key, raw)
		}
		return true
	})
	if by.maxAttempts == 0 && by.inputs == nil && len(f.problems) == 0 {
		f.complain("retry_limit", "is required unless inputs is given")
		f.complain("inputs", "is required unless retry_limit is given")
	}
	return by, f.failure("the step is not changed")
}

// cancelStep cancels a step in the name of the authenticated subject.
func (a *mountAPI) cancelStep(w http.ResponseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r, "task_id", "step_id")
	if err != nil {
		return nil, err
	}
	who, err := a.actorOf(r)
	if err != nil {
		return nil, err
	}
	q := &stepRequest{action: actionCancel, by: cmp.Or(who.subject, defaultInitiator), who: who,
		reason: "Cancelled at the mount point"}
	t, i, err := a.svc.operator.act(r.Context(), taskID, stepID, q)
	return a.stepAnswer(w, r, mountStepView{t, i, mountRightsOf(r)}, err)
}

// The views of tasks and steps.

// mountRights says what a caller may see of tasks.
type mountRights struct {
	context contextRight // of tasks, and step inputs that equal them
	results bool         // of steps, and inputs that an operator set
}

// mountRights returns what the caller may see and asks for.
func (q *query) mountRights(r *http.Request) mountRights {
	return mountRights{q.contextRight(r), mayReadResults(r.Context())}
}

// mountRightsOf returns what the caller may see.
func mountRightsOf(r *http.Request) mountRights { return (&query{}).mountRights(r) }

// mountTaskView is a task, with its steps if it is requested alone.
type mountTaskView struct {
	task      *task
	rights    mountRights
	withSteps bool
	more      *mountAnalysisView // nil for none
}

// mountAnalysisView is the part of a task that include_dependencies adds.
type mountAnalysisView struct {
	Dependencies dependenciesView       `json:"dependencies"`
	Analysis     dependencyAnalysisView `json:"dependency_analysis"`
}

func (v mountTaskView) writeJSON(o *jsonWriter) {
	t := v.task
	o.b = append(o.b, '{')
	o.id("id", t.id)
	o.id("task_id", t.id)
	o.text("name", t.tpl.name)
	o.text("namespace", t.tpl.namespace)
	o.text("version", t.tpl.version)
	o.text("full_name", t.tpl.fullName())
	o.text("status", t.state.brief().String())
	o.text("state", t.state.String())
	v.rights.context.write(o, "context", t.by.context)
	o.text("initiator", t.by.initiator)
	o.text("source_system", t.by.source)
	o.text("reason", t.by.reason)
	o.texts("tags", t.by.tags)
	o.number("priority", t.by.priority)
	o.id("correlation_id", t.correlation())
	o.textOrNull("trace_id", t.by.traceID())
	o.flag("complete", t.state == taskComplete)
	o.zoned("requested_at", t.requestedAt())
	o.zoned("created_at", t.created)
	o.zoned("updated_at", t.updated)
	o.zoned("completed_at", t.completed)
	if v.withSteps {
		o.name("steps")
		mountStepsView{t, v.rights}.writeList(o)
	}
	if v.more != nil {
		o.members(reflect.ValueOf(*v.more))
	}
	o.b = append(o.b, '}')
}

// mountStepsView lists the steps of a task, each after its dependencies.
type mountStepsView struct {
	task   *task
	rights mountRights
}

func (v mountStepsView) writeJSON(o *jsonWriter) {
	o.b = append(o.b, `{"steps":`...)
	v.writeList(o)
	o.b = append(o.b, '}')
}

func (v mountStepsView) writeList(o *jsonWriter) {
	order := v.task.stepOrder()
	o.list(len(order), func(i int) { mountStepView{v.task, order[i], v.rights}.writeJSON(o) })
}

// stepOrder returns the indexes of the steps, each after its parents.
func (t *task) stepOrder() []int {
	if t.plan == nil {
		return t.tpl.order
	}
	parents := make([][]int, len(t.steps))
	for i := range parents {
		parents[i] = t.parents(i)
	}
	g, cycle := newGraph(parents)
	if cycle != nil {
		panic("a task's steps wait for each other") // no template has a cycle
	}
	return g.order
}

// mountStepView is one step.
type mountStepView struct {
	task   *task
	step   int
	rights mountRights
}

func (v mountStepView) writeJSON(o *jsonWriter) {
	t, i := v.task, v.step
	s, def := &t.steps[i], t.def(i)
	o.b = append(o.b, '{')
	o.id("id", t.stepID(i))
	o.id("workflow_step_id", t.stepID(i))
	o.id("task_id", t.id)
	o.text("name", def.name)
	o.text("status", s.state.brief().String())
	o.text("state", s.state.String())
	o.number("attempts", s.attempts)
	o.number("retry_limit", s.maxAttempts)
	o.flag("retryable", def.retry.Retryable)
	o.flag("retry_eligible", t.retryEligible(i))
	o.flag("skippable", false)
	o.flag("processed", s.state.satisfies())
	o.flag("in_process", s.state.brief() == briefInProgress)
	s.writeBackoff(o)
	v.writeInputs(o)
	v.writeResults(o)
	o.zoned("started_at", s.attempted)
	o.zoned("completed_at", s.completed)
	o.zoned("last_attempted_at", s.attempted)
	o.ids("parents_ids", t, t.parents(i))
	o.ids("children_ids", t, t.children(i))
	o.name("depends_on")
	parents := t.parents(i)
	o.list(len(parents), func(n int) { o.b = appendJSONString(o.b, t.def(parents[n]).name) })
	o.b = append(o.b, '}')
}

// writeInputs writes what the next attempt gets: the task's context, which takes the
// permission to read contexts, unless an operator set other inputs.
func (v mountStepView) writeInputs(o *jsonWriter) {
	right := v.rights.context
	if v.task.steps[v.step].inputs != "" {
		if right = contextShown; !v.rights.results {
			right = contextRedacted
		}
	}
	right.write(o, "inputs", v.task.inputsFor(v.step))
}

func (v mountStepView) writeResults(o *jsonWriter) {
	last := v.task.steps[v.step].last
	switch {
	case last == nil:
		o.raw("results", nil)
	case !v.rights.results:
		o.raw("results", nil)
		o.flag("results_redacted", true)
	case last.success:
		o.raw("results", last.result)
	default:
		o.raw("results", mountFailure(last.err))
	}
}

// mountFailure renames the members of an attempt's error for this surface.
func mountFailure(stepError []byte) []byte {
	o := jsonWriter{b: []byte{'{'}}
	eachMemberBytes(stepError, func(key, value []byte) bool {
		switch name := string(key); name {
		case "message":
			o.raw("error", value)
		case "error_type":
			o.raw("error_class", value)
		default:
			o.raw(name, value)
		}
		return true
	})
	return append(o.b, '}')
}

// ids appends the ids of some of a task's steps.
func (o *jsonWriter) ids(name string, t *task, steps []int) {
	o.name(name)
	o.list(len(steps), func(n int) { o.b = append(t.stepID(steps[n]).appendText(append(o.b, '"')), '"') })
}

// mountListView is one page of tasks.
type mountListView struct {
	taskPage
	rights mountRights
}

func (v mountListView) writeJSON(o *jsonWriter) {
	o.b = append(o.b, `{"tasks":`...)
	v.write(o, func(t *task, _ int) { mountTaskView{task: t, rights: v.rights}.writeJSON(o) })
	o.b = append(o.b, `,"pagination":{`...)
	o.number("current_page", v.page)
	o.number("per_page", v.perPage)
	o.number("total_pages", v.pages())
	o.number("total_count", v.total)
	v.writeMore(o)
	o.b = append(o.b, '}', '}')
}

// How long an answer is cached.
const (
	performanceTTL = 90 * time.Second
	bottlenecksTTL = 120 * time.Second
)

const (
	maxSlowest = 10 // the entries of each list
	adviceFrom = 5  // the executions that a recommendation requires
)

// mountAnalytics computes the figures of one service, and keeps recent answers.
type mountAnalytics struct {
	*service
	performance answerCache[struct{}, mountPerformanceView]
	bottlenecks answerCache[bottleneckQuery, mountBottlenecksView]
}

// bottleneckQuery is a query of the bottlenecks, and the key of its cached answer.
type bottleneckQuery struct {
	figureFilter
	hours int
}

// cacheKey formats the query like a URL.
func (q bottleneckQuery) cacheKey() string {
	v := url.Values{"period": {strconv.Itoa(q.hours)}}
	for name, value := range map[string]string{"namespace": q.namespace, "name": q.name, "version": q.version} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return "bottlenecks?" + v.Encode()
}

// analyticsReady returns an error in a process that keeps no tasks. A journal that
// cannot be written does not matter, as all figures are in memory.
func (s *mountAnalytics) analyticsReady() error {
	if s.store == nil {
		return failf(unavailable, "analytics cannot be computed: this process keeps no tasks")
	}
	return nil
}

// answerPerformance returns the performance figures, at most performanceTTL old.
func (s *mountAnalytics) answerPerformance() (mountPerformanceView, error) {
	v, hit, err := s.performance.get(struct{}{}, s.clock, performanceTTL, s.computePerformance)
	v.CacheInfo = cacheInfoView{hit, "performance", int(performanceTTL.Seconds())}
	return v, err
}

func (s *mountAnalytics) computePerformance() (v mountPerformanceView, err error) {
	if err := s.analyticsReady(); err != nil {
		return v, err
	}
	now := s.clock.now()
	figures, states := s.store.figures()
	day := figures.total(figureFilter{}, hoursAgo(now, 24))
	v.SystemOverview = systemOverviewView{
		ActiveTasks: states.active(), TotalNamespaces: len(s.templates.registry().namespaces()),
		UniqueTaskTypes: len(s.templates.registry().byName), SystemHealthScore: day.health(),
	}
	v.PerformanceTrends = trendsView{
		figures.total(figureFilter{}, hoursAgo(now, 1)).trend(),
		figures.total(figureFilter{}, hoursAgo(now, 4)).trend(), day.trend(),
	}
	v.TelemetryInsights = figures.total(figureFilter{}, allTime).telemetry()
	v.GeneratedAt = zonedTime(now)
	return v, nil
}

func (r *figureRow) trend() trendView {
	return trendView{
		TaskThroughput: r.counts[tasksCreated], CompletionRate: r.completionRate(), ErrorRate: r.taskErrorRate(),
		AvgTaskDuration: r.averageTime(), AvgStepDuration: r.averageAttempt(), StepThroughput: r.counts[stepsCreated],
	}
}

func (r *figureRow) telemetry() telemetryView {
	c := &r.counts
	return telemetryView{
		TasksCreated: c[tasksCreated], TasksCompleted: c[tasksCompleted],
		TasksFailed: c[tasksFailed], TasksCancelled: c[tasksCancelled],
		StepsCreated: c[stepsCreated], StepsCompleted: c[stepsCompleted], StepsFailed: c[stepsFailed],
		StepsCancelled: c[stepsCancelled], StepsResolvedManually: c[stepsResolved],
		AttemptsEnded: c[attemptsEnded], AttemptsFailed: c[attemptsFailed],
		RetriesEnded: c[retriesEnded], RetriesSucceeded: c[retriesSucceeded],
	}
}

// The edges of the distribution in microseconds, and the ranges between them.
var (
	distributionEdges  = []int64{10e3, 100e3, 1e6, 10e6, 60e6, 600e6, 3600e6}
	distributionRanges = []string{"<10ms", "10ms-100ms", "100ms-1s", "1s-10s", "10s-1m", "1m-10m", "10m-1h", ">=1h"}
)

// answerBottlenecks returns what was slow or failed, at most bottlenecksTTL old.
func (s *mountAnalytics) answerBottlenecks(q bottleneckQuery) (mountBottlenecksView, error) {
	v, hit, err := s.bottlenecks.get(q, s.clock, bottlenecksTTL, func() (mountBottlenecksView, error) {
		return s.computeBottlenecks(q)
	})
	v.CacheInfo = cacheInfoView{hit, q.cacheKey(), int(bottlenecksTTL.Seconds())}
	return v, err
}

func (s *mountAnalytics) computeBottlenecks(q bottleneckQuery) (v mountBottlenecksView, err error) {
	if err := s.analyticsReady(); err != nil {
		return v, err
	}
	now := s.clock.now()
	from := hoursAgo(now, q.hours)
	figures, _ := s.store.figures()
	tasks, steps := figures.byTemplate(q.figureFilter, from), figures.byStep(q.figureFilter, from)
	sum := figures.total(q.figureFilter, from)
	recent := figures.total(q.figureFilter, hoursAgo(now, 1))
	return mountBottlenecksView{
		ScopeSummary: scopeSummaryView{sum.counts[tasksCreated], taskTypes(tasks), q.hours},
		BottleneckAnalysis: bottleneckAnalysisView{
			SlowestTasks: firstViews(slowest(slices.Clone(tasks), (*figureRow).executions, 1), maxSlowest,
				(*namedFigures).slowTask),
			SlowestSteps: firstViews(slowest(slices.Clone(steps), (*figureRow).attempts, 1), maxSlowest,
				(*namedFigures).slowStep),
			ErrorPatterns: errorPatternsView{
				sum.counts[attemptsFailed], recent.attemptErrorRate(), sum.errorTypes(), sum.retrySuccessRate(),
			},
			DependencyBottlenecks: dependencyBottlenecksView{
				sum.counts[dependencyWaits], sum.averageWait(), mostBlocked(steps),
			},
		},
		PerformanceDistribution: sum.distribution(),
		Recommendations:         s.adviceFor(q, tasks, steps),
		Scope:                   scopeView{q.namespace, q.name, q.version}, AnalysisPeriodHours: q.hours,
		AnalysisPeriodStart: zonedTime(hourStart(from)), GeneratedAt: zonedTime(now),
	}, nil
}

// taskTypes returns the number of different names of the templates.
func taskTypes(templates []namedFigures) int {
	types := map[templateName]bool{}
	for _, t := range templates {
		types[templateName{t.namespace, t.name}] = true
	}
	return len(types)
}

// mostBlocked returns the steps with the longest average wait for dependencies.
func mostBlocked(all []namedFigures) []blockedStepView {
	all = slices.DeleteFunc(slices.Clone(all), func(n namedFigures) bool { return n.counts[dependencyWaits] == 0 })
	slices.SortFunc(all, func(a, b namedFigures) int {
		return cmp.Or(cmp.Compare(b.averageWait(), a.averageWait()), a.compareName(&b))
	})
	return firstViews(all, maxSlowest, func(n *namedFigures) blockedStepView {
		return blockedStepView{n.namespace, n.name, n.version, n.step, n.averageWait(), n.counts[dependencyWaits]}
	})
}

// distribution counts by the histogram's bins: percentiles and the edges of the
// buckets are at most 6 % off.
func (r *figureRow) distribution() distributionView {
	seconds := func(q float64) float64 { return microSeconds(r.times.quantile(q)) }
	v := distributionView{Percentiles: map[string]float64{
		"p50": seconds(0.5), "p95": seconds(0.95), "p99": seconds(0.99),
	}}
	for i, n := range r.times.distribution(distributionEdges) {
		v.DistributionBuckets = append(v.DistributionBuckets, bucketView{distributionRanges[i], n})
	}
	return v
}

// adviceFor returns recommendations for the scope of a query.
func (s *mountAnalytics) adviceFor(q bottleneckQuery, tasks, steps []namedFigures) []string {
	var states stateCounts
	states.tasks[taskBlockedByFailures] = s.store.count(&taskFilter{
		namespace: q.namespace, name: q.name, version: q.version, states: setOf(taskBlockedByFailures),
	})
	return recommendations(slowest(slices.Clone(tasks), (*figureRow).executions, adviceFrom),
		slowest(slices.Clone(steps), (*figureRow).attempts, adviceFrom), &states)
}

func (a *mountAPI) performance(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return a.analytics.answerPerformance()
}

func (a *mountAPI) bottlenecks(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	asked := bottleneckQuery{
		figureFilter{namespace: q.text("namespace"), name: q.text("name"), version: q.text("version")},
		q.number("period", 24, 1, keptHours),
	}
	if err := q.done(); err != nil {
		return nil, err
	}
	return a.analytics.answerBottlenecks(asked)
}

// The views. Durations are in seconds.

// cacheInfoView reports whether an answer was cached.
type cacheInfoView struct {
	Cached   bool   `json:"cached"`
	CacheKey string `json:"cache_key"`
	TTLBase  int    `json:"ttl_base"`
}

// mountPerformanceView is the answer of /analytics/performance.
type mountPerformanceView struct {
	SystemOverview    systemOverviewView `json:"system_overview"`
	PerformanceTrends trendsView         `json:"performance_trends"`
	TelemetryInsights telemetryView      `json:"telemetry_insights"`
	GeneratedAt       zonedTime          `json:"generated_at"`
	CacheInfo         cacheInfoView      `json:"cache_info"`
}

// systemOverviewView counts active tasks, and namespaces and names of registered
// templates. The score is that of the last 24 hours.
type systemOverviewView struct {
	ActiveTasks       int     `json:"active_tasks"`
	TotalNamespaces   int     `json:"total_namespaces"`
	UniqueTaskTypes   int     `json:"unique_task_types"`
	SystemHealthScore float64 `json:"system_health_score"`
}

type trendsView struct {
	LastHour    trendView `json:"last_hour"`
	Last4Hours  trendView `json:"last_4_hours"`
	Last24Hours trendView `json:"last_24_hours"`
}

// trendView covers some hours. The throughputs count what was created; the rates
// are percentages of the tasks that completed, failed or were cancelled.
type trendView struct {
	TaskThroughput  uint64  `json:"task_throughput"`
	CompletionRate  float64 `json:"completion_rate"`
	ErrorRate       float64 `json:"error_rate"`
	AvgTaskDuration float64 `json:"avg_task_duration"`
	AvgStepDuration float64 `json:"avg_step_duration"`
	StepThroughput  uint64  `json:"step_throughput"`
}

// telemetryView counts transitions over all time, across restarts.
type telemetryView struct {
	TasksCreated          uint64 `json:"tasks_created"`
	TasksCompleted        uint64 `json:"tasks_completed"`
	TasksFailed           uint64 `json:"tasks_failed"` // entered blocked_by_failures or error
	TasksCancelled        uint64 `json:"tasks_cancelled"`
	StepsCreated          uint64 `json:"steps_created"`
	StepsCompleted        uint64 `json:"steps_completed"`
	StepsFailed           uint64 `json:"steps_failed"` // permanently
	StepsCancelled        uint64 `json:"steps_cancelled"`
	StepsResolvedManually uint64 `json:"steps_resolved_manually"`
	AttemptsEnded         uint64 `json:"attempts_ended"`
	AttemptsFailed        uint64 `json:"attempts_failed"`
	RetriesEnded          uint64 `json:"retries_ended"`
	RetriesSucceeded      uint64 `json:"retries_succeeded"`
}

// mountBottlenecksView is the answer of /analytics/bottlenecks.
type mountBottlenecksView struct {
	ScopeSummary            scopeSummaryView       `json:"scope_summary"`
	BottleneckAnalysis      bottleneckAnalysisView `json:"bottleneck_analysis"`
	PerformanceDistribution distributionView       `json:"performance_distribution"`
	Recommendations         []string               `json:"recommendations"`
	Scope                   scopeView              `json:"scope"`
	AnalysisPeriodHours     int                    `json:"analysis_period_hours"`
	AnalysisPeriodStart     zonedTime              `json:"analysis_period_start"` // of the oldest hour counted
	GeneratedAt             zonedTime              `json:"generated_at"`
	CacheInfo               cacheInfoView          `json:"cache_info"`
}

// scopeSummaryView counts the tasks created, and the template names, whatever the
// version, that had any activity.
type scopeSummaryView struct {
	TotalTasks      uint64 `json:"total_tasks"`
	UniqueTaskTypes int    `json:"unique_task_types"`
	TimeSpanHours   int    `json:"time_span_hours"`
}

type scopeView struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Version   string `json:"version,omitempty"`
}

type bottleneckAnalysisView struct {
	SlowestTasks          []slowTaskView            `json:"slowest_tasks"`
	SlowestSteps          []slowStepView            `json:"slowest_steps"`
	ErrorPatterns         errorPatternsView         `json:"error_patterns"`
	DependencyBottlenecks dependencyBottlenecksView `json:"dependency_bottlenecks"`
}

// errorPatternsView counts failed attempts. The rates are percentages: of the
// attempts of the last hour that failed, and of the retries that succeeded.
type errorPatternsView struct {
	TotalErrors      uint64           `json:"total_errors"`
	RecentErrorRate  float64          `json:"recent_error_rate"`
	CommonErrorTypes []errorTypeCount `json:"common_error_types"`
	RetrySuccessRate float64          `json:"retry_success_rate"`
}

// dependencyBottlenecksView counts the steps with dependencies that became ready,
// and averages how long that took from their task's creation.
type dependencyBottlenecksView struct {
	BlockingDependencies uint64            `json:"blocking_dependencies"`
	AvgWaitTime          float64           `json:"avg_wait_time"`
	MostBlockedSteps     []blockedStepView `json:"most_blocked_steps"`
}

type blockedStepView struct {
	NamespaceName      string  `json:"namespace_name"`
	TaskName           string  `json:"task_name"`
	Version            string  `json:"version"`
	StepName           string  `json:"step_name"`
	AverageWaitSeconds float64 `json:"average_wait_seconds"`
	WaitCount          uint64  `json:"wait_count"`
}

// distributionView distributes the times from creation to completion.
type distributionView struct {
	Percentiles         map[string]float64 `json:"percentiles"`
	DistributionBuckets []bucketView       `json:"distribution_buckets"`
}

type bucketView struct {
	Range string `json:"range"`
	Count uint64 `json:"count"`
}
