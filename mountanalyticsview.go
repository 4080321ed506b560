package main

// The analytics of the mount point on the wire. Durations are in seconds.

// cacheInfoView says where an answer comes from; ttl_base is in seconds.
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

// systemOverviewView counts the registered templates by namespace and by name;
// the score is that of the last 24 hours.
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

// trendView is some hours. Throughput is what was created; the rates, in
// percent, are of the tasks that completed, failed or were cancelled.
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
	TasksFailed           uint64 `json:"tasks_failed"` // into blocked_by_failures or error
	TasksCancelled        uint64 `json:"tasks_cancelled"`
	StepsCreated          uint64 `json:"steps_created"`
	StepsCompleted        uint64 `json:"steps_completed"`
	StepsFailed           uint64 `json:"steps_failed"` // for good
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

// scopeSummaryView counts the tasks created, and the names of templates, of
// whatever version, with which anything happened.
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

// errorPatternsView is about attempts that failed. The rates are in percent:
// of all attempts of the last hour, and of retries.
type errorPatternsView struct {
	TotalErrors      uint64           `json:"total_errors"`
	RecentErrorRate  float64          `json:"recent_error_rate"`
	CommonErrorTypes []errorTypeCount `json:"common_error_types"`
	RetrySuccessRate float64          `json:"retry_success_rate"`
}

// dependencyBottlenecksView is about steps with dependencies that became ready:
// how many did, and how long after their task's creation.
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

// distributionView is how long tasks took from creation to completion.
type distributionView struct {
	Percentiles         percentilesView `json:"percentiles"`
	DistributionBuckets []bucketView    `json:"distribution_buckets"`
}

type percentilesView struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

type bucketView struct {
	Range string `json:"range"`
	Count uint64 `json:"count"`
}
