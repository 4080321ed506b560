package main

// Analytics of the mount point, in the form of the embedded service. Figures are kept by whole
// hours: the oldest hour that counts is the one in which the requested period begins.

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// How long an answer is cached.
const (
	performanceTTL = 90 * time.Second
	bottlenecksTTL = 120 * time.Second
)

const (
	maxSlowest = 10 // the entries of each list
	adviceFrom = 5  // the attempts of a step that a recommendation requires
)

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

// performance answers with the performance figures, at most performanceTTL old.
func (a *mountAPI) performance(_ *responseWriter, _ *http.Request) (any, error) {
	v, hit, err := a.performanceAnswers.get(struct{}{}, a.surface.svc.clock, performanceTTL, a.surface.svc.mountPerformance)
	v.CacheInfo = cacheInfoView{hit, "performance", int(performanceTTL.Seconds())}
	return v, err
}

func (s *service) mountPerformance() (v mountPerformanceView, err error) {
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

// telemetry returns the counts of transitions by name.
func (r *figureRow) telemetry() map[string]uint64 {
	v := map[string]uint64{}
	for f, name := range figureNames {
		switch figure(f) {
		case attemptsMeasured, attemptMicros, dependencyWaits, dependencyMicros: // for averages, which other answers have
		case stepsResolved:
			v["steps_resolved_manually"] = r.counts[f]
		default:
			v[name] = r.counts[f]
		}
	}
	return v
}

// The edges of the distribution in microseconds, and the ranges between them.
var (
	distributionEdges  = []int64{10e3, 100e3, 1e6, 10e6, 60e6, 600e6, 3600e6}
	distributionRanges = []string{"<10ms", "10ms-100ms", "100ms-1s", "1s-10s", "10s-1m", "1m-10m", "10m-1h", ">=1h"}
)

// bottlenecks answers with what was slow or failed, at most bottlenecksTTL old.
func (a *mountAPI) bottlenecks(_ *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	asked := bottleneckQuery{
		figureFilter{namespace: q.text("namespace"), name: q.text("name"), version: q.text("version")},
		q.number("period", 24, 1, keptHours),
	}
	if err := q.done(); err != nil {
		return nil, err
	}
	v, hit, err := a.bottleneckAnswers.get(asked, a.surface.svc.clock, bottlenecksTTL, func() (mountBottlenecksView, error) {
		return a.surface.svc.mountBottlenecks(asked), nil
	})
	v.CacheInfo = cacheInfoView{hit, asked.cacheKey(), int(bottlenecksTTL.Seconds())}
	return v, err
}

func (s *service) mountBottlenecks(q bottleneckQuery) mountBottlenecksView {
	now := s.clock.now()
	from := hoursAgo(now, q.hours)
	figures, _ := s.store.figures()
	// slowest sorts and drops entries in place, so it gets clones of these.
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
				sum.counts[attemptsFailed], recent.attemptErrorRate(), sum.errorTypes(),
				percent(sum.counts[retriesSucceeded], sum.counts[retriesEnded]),
			},
			DependencyBottlenecks: dependencyBottlenecksView{
				sum.counts[dependencyWaits], sum.averageWait(), mostBlocked(steps),
			},
		},
		PerformanceDistribution: sum.distribution(),
		Recommendations: recommendations(s.store.count(&taskFilter{
			namespace: q.namespace, name: q.name, version: q.version, states: setOf(taskBlockedByFailures),
		}), slowest(slices.Clone(steps), (*figureRow).attempts, adviceFrom)),
		Scope: scopeView{q.namespace, q.name, q.version}, AnalysisPeriodHours: q.hours,
		AnalysisPeriodStart: zonedTime(hourStart(from)), GeneratedAt: zonedTime(now),
	}
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

// distribution counts by the histogram's bins: percentiles and the edges of the buckets are at most 6 % off.
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
	TelemetryInsights map[string]uint64  `json:"telemetry_insights"` // over all time, across restarts
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

// scopeSummaryView counts the tasks created, and the template names, whatever the version, that had any activity.
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
