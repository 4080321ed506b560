package main

import (
	"encoding/json"
	"testing"
	"time"
)

// TestSummaryTimes checks that the summary has zoned times in the task and naive ones in the
// steps, as existing clients read them.
func TestSummaryTimes(t *testing.T) {
	task := analysisTask([][]int{nil}, "e")
	task.steps[0].attempted = testStart.add(time.Second)
	v := newSummaryView(task, testStart)
	for _, tc := range []struct {
		name string
		at   json.Marshaler
		want string
	}{
		{"task.created_at", v.Task.CreatedAt, `"2026-01-01T00:00:00.000000Z"`},
		{"task.completed_at", v.Task.CompletedAt, `null`},
		{"steps.0.created_at", newSummaryStep(task, 0).CreatedAt, `"2026-01-01T00:00:00.000000"`},
		{"steps.0.last_attempted_at", newSummaryStep(task, 0).LastAttemptedAt, `"2026-01-01T00:00:01.000000"`},
		{"steps.0.completed_at", newSummaryStep(task, 0).CompletedAt, `null`},
	} {
		if got := string(must(tc.at.MarshalJSON())(t)); got != tc.want {
			t.Errorf("%s: got %s; want %s", tc.name, got, tc.want)
		}
	}
}
