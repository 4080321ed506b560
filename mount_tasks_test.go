package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// newMountAnalyticsServer serves only the two endpoints.
func newMountAnalyticsServer(t *testing.T) (*testServer, *story) {
	s, y := newStoryServer(t)
	a := &mountAPI{
		surface:   newSurface(s.svc, nil, "orchestration", orchestrationError),
		analytics: &mountAnalytics{service: s.svc},
	}
	a.surface.handle([]route{
		{"GET /analytics/performance", nil, a.performance},
		{"GET /analytics/bottlenecks", nil, a.bottlenecks},
	})
	return s.with(a.surface), y
}

func TestMountPerformance(t *testing.T) {
	s, y := newMountAnalyticsServer(t)
	tellFigures(y)
	y.clock.advance(30*time.Minute - 80*time.Second)
	trend := map[string]string{
		"task_throughput": "6", "completion_rate": "50", "error_rate": "33.33", // of 3 + 2 + 1 cancelled
		"avg_task_duration": "25.666667",                         // 6, 24, 47
		"avg_step_duration": "7.777778", "step_throughput": "12", // 2 4 1 1 12 3 5 30 12: 70 / 9
	}
	a := s.do("GET", "/analytics/performance", "").want(200)
	for _, window := range []string{"last_hour", "last_4_hours", "last_24_hours"} {
		for name, want := range trend {
			wantJSON(t, a, map[string]string{"performance_trends." + window + "." + name: want})
		}
	}
	wantJSON(t, a, map[string]string{
		"system_overview.active_tasks": "1", "system_overview.system_health_score": "0.6",
		"system_overview.total_namespaces":  fmt.Sprint(len(s.svc.templates.registry().namespaces())),
		"system_overview.unique_task_types": fmt.Sprint(len(s.svc.templates.registry().listView("").Templates)), // each in one version
		"telemetry_insights.tasks_created":  "6", "telemetry_insights.tasks_completed": "3",
		"telemetry_insights.tasks_failed": "2", "telemetry_insights.tasks_cancelled": "1",
		"telemetry_insights.steps_created": "12", "telemetry_insights.steps_completed": "7",
		"telemetry_insights.steps_failed": "2", "telemetry_insights.steps_cancelled": "2",
		"telemetry_insights.steps_resolved_manually": "0", "telemetry_insights.attempts_ended": "10",
		"telemetry_insights.attempts_failed": "3", "telemetry_insights.retries_ended": "1",
		"telemetry_insights.retries_succeeded": "1",
		"generated_at":                         "2026-01-01T00:30:00.000000Z", "cache_info.cached": "false",
		"cache_info.cache_key": "performance", "cache_info.ttl_base": "90",
	})
	y.clock.advance(3 * time.Hour) // to 03:30: from 02:00, from 23:00, from 03:00 the day before
	wantJSON(t, s.do("GET", "/analytics/performance", "").want(200), map[string]string{
		"performance_trends.last_hour.task_throughput": "0", "performance_trends.last_hour.error_rate": "0",
		"performance_trends.last_4_hours.task_throughput": "6", "performance_trends.last_24_hours.task_throughput": "6",
	})
	y.clock.advance(24 * time.Hour)
	wantJSON(t, s.do("GET", "/analytics/performance", "").want(200), map[string]string{
		"performance_trends.last_24_hours.task_throughput": "0", "telemetry_insights.tasks_created": "6",
		"system_overview.system_health_score": "1", "system_overview.active_tasks": "1",
	})
}

func TestMountBottlenecks(t *testing.T) {
	s, y := newMountAnalyticsServer(t)
	tellFigures(y)
	y.clock.advance(30*time.Minute - 80*time.Second)
	const at = "bottleneck_analysis."
	a := s.do("GET", "/analytics/bottlenecks", "").want(200)
	wantJSON(t, a, map[string]string{
		"scope_summary": "map[time_span_hours:24 total_tasks:6 unique_task_types:2]", "scope": "map[]",
		at + "slowest_tasks.0.task_name": "other", at + "slowest_tasks.0.average_duration_seconds": "47",
		at + "slowest_tasks.0.execution_count": "3", at + "slowest_tasks.0.error_rate": "0.6667",
		at + "slowest_tasks.1.task_name": "chain", at + "slowest_tasks.1.average_duration_seconds": "15",
		at + "slowest_steps.0.step_name": "a", at + "slowest_steps.0.average_duration_seconds": "12.666667",
		at + "slowest_steps.3.average_duration_seconds":                         "1.333333",
		at + "error_patterns.total_errors":                                      "3",
		at + "error_patterns.recent_error_rate":                                 "30", // of 10 attempts
		at + "error_patterns.common_error_types":                                "[map[count:2 error_type:other] map[count:1 error_type:timeout]]",
		at + "error_patterns.retry_success_rate":                                "100",
		at + "dependency_bottlenecks.blocking_dependencies":                     "4", // the b of 1, 2, 5 and 6
		at + "dependency_bottlenecks.avg_wait_time":                             "12.25",
		at + "dependency_bottlenecks.most_blocked_steps.0.task_name":            "other", // 35 and 0
		at + "dependency_bottlenecks.most_blocked_steps.0.step_name":            "b",
		at + "dependency_bottlenecks.most_blocked_steps.0.average_wait_seconds": "17.5",
		at + "dependency_bottlenecks.most_blocked_steps.1.average_wait_seconds": "7", // 2 and 12
		at + "dependency_bottlenecks.most_blocked_steps.1.wait_count":           "2",
		"recommendations":       "[" + blockedAdvice + "]",
		"analysis_period_hours": "24", "analysis_period_start": "2025-12-31T00:00:00.000000Z",
		"generated_at": "2026-01-01T00:30:00.000000Z", "cache_info.cached": "false",
		"cache_info.cache_key": "bottlenecks?period=24", "cache_info.ttl_base": "120",
	})
	if got := buckets(a); got != "1s-10s:1 10s-1m:2" {
		t.Errorf("got distribution %s; want 6 s in the fourth, 24 s and 47 s in the fifth", got)
	}
	wantAbout(t, a, map[string]float64{"p50": 24, "p95": 47, "p99": 47})
	if n := len(a.get(at + "slowest_steps").([]any)); n != 4 {
		t.Errorf("got %d slowest steps; want 4", n)
	}
}

// buckets returns the buckets of a distribution that are not empty.
func buckets(a *answer) string {
	var text []string
	for i := range a.get("performance_distribution.distribution_buckets").([]any) {
		at := fmt.Sprintf("performance_distribution.distribution_buckets.%d.", i)
		if n := a.text(at + "count"); n != "0" {
			text = append(text, a.text(at+"range")+":"+n)
		}
	}
	return strings.Join(text, " ")
}

func TestMountBottlenecksOfAScope(t *testing.T) {
	s, y := newMountAnalyticsServer(t)
	tellFigures(y)
	for query, want := range map[string]map[string]string{
		"?namespace=t&name=chain&version=1.0.0&period=1": {
			"scope_summary":                        "map[time_span_hours:1 total_tasks:2 unique_task_types:1]",
			"scope":                                "map[name:chain namespace:t version:1.0.0]",
			"cache_info.cache_key":                 "bottlenecks?name=chain&namespace=t&period=1&version=1.0.0",
			"bottleneck_analysis.error_patterns":   "map[common_error_types:[map[count:1 error_type:timeout]] recent_error_rate:20 retry_success_rate:100 total_errors:1]",
			"performance_distribution.percentiles": "map[p50:6.017914 p95:24 p99:24]", // by bins; 6 and 24 s
			"recommendations":                      "[]",
		},
		"?name=other&namespace=&version=%20": {
			"scope_summary": "map[time_span_hours:24 total_tasks:4 unique_task_types:1]", "scope": "map[name:other]",
			"recommendations": "[" + blockedAdvice + "]",
		},
		"?name=chain&version=1.0": {"scope_summary.total_tasks": "0", "scope": "map[name:chain version:1.0]"},
		"?name=Chain":             {"scope_summary.total_tasks": "0"},
		"?namespace=u&name=chain": {"scope_summary.total_tasks": "0"},
		"?namespace=t%26name%3Dchain": {
			"cache_info.cache_key": "bottlenecks?namespace=t%26name%3Dchain&period=24", "scope_summary.unique_task_types": "0",
			"bottleneck_analysis.slowest_tasks": "[]", "bottleneck_analysis.slowest_steps": "[]", "recommendations": "[]",
			"bottleneck_analysis.error_patterns.common_error_types":         "[]",
			"bottleneck_analysis.dependency_bottlenecks.most_blocked_steps": "[]",
		},
	} {
		a := s.do("GET", "/analytics/bottlenecks"+query, "").want(200)
		wantJSON(t, a, want)
		if strings.Contains(string(a.body), "null") {
			t.Errorf("%s: null in %s", query, a.body)
		}
	}
}

func TestMountAnalyticsAreCached(t *testing.T) {
	s, y := newMountAnalyticsServer(t)
	for path, ttl := range map[string]time.Duration{
		"/analytics/performance": 90 * time.Second, "/analytics/bottlenecks?namespace=t": 2 * time.Minute,
	} {
		ask := func(wait time.Duration, cached bool, at instant) {
			t.Helper()
			y.clock.advance(wait)
			y.create("chain")
			wantJSON(t, s.do("GET", path, "").want(200), map[string]string{
				"cache_info.cached": fmt.Sprint(cached), "generated_at": at.zoned()})
		}
		first := y.clock.now()
		ask(0, false, first)
		ask(0, true, first)
		ask(ttl-time.Microsecond, true, first)
		ask(time.Microsecond, false, first.add(ttl))
		ask(ttl/2, true, first.add(ttl))
		ask(ttl, false, first.add(ttl*5/2))
	}
}

// TestMountQueriesShareNothing sends queries that a careless cache key would mix up.
func TestMountQueriesShareNothing(t *testing.T) {
	s, _ := newMountAnalyticsServer(t)
	keys := map[string]string{}
	for _, query := range []string{
		"", "?period=25", "?namespace=a_b", "?namespace=a&name=b", "?namespace=a&version=b", "?name=a&version=b",
		"?namespace=a", "?name=a", "?version=a", "?namespace=a%26name%3Db", "?namespace=a&name=b&version=c",
		"?namespace=a_b_c", "?namespace=a_b&name=c", "?namespace=a&name=b_c", "?namespace=a%20", "?name=B", "?name=b",
	} {
		a := s.do("GET", "/analytics/bottlenecks"+query, "").want(200)
		key := a.text("cache_info.cache_key")
		if a.text("cache_info.cached") != "false" || keys[key] != "" {
			t.Errorf("%q shares an entry, or the key %s with %q", query, key, keys[key])
		}
		keys[key] = "'" + query + "'"
	}
	for _, same := range []string{"?period=24", "?period=", "?period=%20", "?namespace=&name=&version=", "?version=%20%09", "?unknown=x"} {
		if a := s.do("GET", "/analytics/bottlenecks"+same, "").want(200); a.text("cache_info.cached") != "true" {
			t.Errorf("%q: got a new answer; want the one to the empty query", same)
		}
	}
}
