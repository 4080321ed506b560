package main

import (
	"testing"
)

const longTemplate = `{"namespace":"t","name":"long","version":"1.0.0","steps":[
 {"name":"flaky","handler":{"callable":"builtin:flaky","initialization":{"failures":3}},
  "retry":{"max_attempts":4,"backoff":"exponential","backoff_base_ms":3600000,"max_backoff_ms":86400000}},
 {"name":"rest","handler":{"callable":"builtin:sleep","initialization":{"duration_ms":604800000}},"dependencies":["flaky"],"timeout_seconds":700000}]}`

// TestLongWaits: retries after hours and a wait of a week end at once, and the
// history has the hours and the week.
func TestLongWaits(t *testing.T) {
	for _, move := range []string{`{"advance":"200h"}`, `{"auto":true}`} {
		s := newFixtureServer(t, serviceTest{extra: []string{longTemplate}, config: func(c *Config) { c.Engine.Jitter = false }})
		s.clock(`{"freeze":true}`).want(200)
		began := realNow()
		id := s.create(`{"namespace":"t","name":"long"}`)
		s.clock("%s", move).want(200)
		s.do("POST", "/_stepwell/wait-idle", "").want(200)
		v := s.do("GET", "/v1/tasks/"+id, "").want(200)
		if took := realNow().sub(began); took.Seconds() > 1 {
			t.Errorf("%s took %v", move, took)
		}
		if v.text("status") != "complete" {
			t.Fatalf("%s: %s", move, v.body)
		}
		span := mustInstant(v.text("completed_at")).sub(mustInstant(v.text("created_at")))
		if span.Hours() != 7+168 {
			t.Errorf("%s: the task took %v; want 175 h", move, span)
		}
	}
}
