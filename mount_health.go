package main

// Health, status and metrics of the mount point.

import (
	"net/http"
	"slices"
	"strings"
)

// mountCheck is the result of one check.
type mountCheck struct {
	Status         string `json:"status"`
	Message        string `json:"message"`
	ResponseTimeMS int64  `json:"response_time_ms"`
}

// mountReady is the answer of /health/ready.
type mountReady struct {
	Ready         bool                  `json:"ready"`
	Checks        map[string]mountCheck `json:"checks"`
	Message       string                `json:"message"`
	Timestamp     zonedTime             `json:"timestamp"`
	CheckDuration float64               `json:"check_duration"` // seconds
	FailedChecks  []string              `json:"failed_checks,omitempty"`
}

// mountAlive is the answer of /health/live.
type mountAlive struct {
	Alive     bool      `json:"alive"`
	Timestamp zonedTime `json:"timestamp"`
	Service   string    `json:"service"`
}

// mountStatusView is the answer of /health/status.
type mountStatusView struct {
	Healthy       bool                  `json:"healthy"`
	Status        string                `json:"status"`
	Metrics       mountFigures          `json:"metrics"`
	Database      mountDatabase         `json:"database"`
	Checks        map[string]mountCheck `json:"checks"`
	Version       string                `json:"version"`
	UptimeSeconds int64                 `json:"uptime_seconds"`
	Timestamp     zonedTime             `json:"timestamp"`
}

// mountFigures counts the tasks and steps in the store.
type mountFigures struct {
	Tasks   mountCounts  `json:"tasks"`
	Steps   mountCounts  `json:"steps"`
	Retries mountRetries `json:"retries"`
}

// mountCounts counts tasks or steps by status.
type mountCounts struct {
	Total            int `json:"total"`
	Pending          int `json:"pending"`
	InProgress       int `json:"in_progress"`
	Complete         int `json:"complete"`
	Error            int `json:"error"`
	Cancelled        int `json:"cancelled"`
	ResolvedManually int `json:"resolved_manually"`
}

func (c *mountCounts) add(s briefStatus, n int) {
	c.Total += n
	*[briefStatuses]*int{&c.Pending, &c.InProgress, &c.Complete, &c.Error, &c.Cancelled, &c.ResolvedManually}[s] += n
}

// mountRetries counts failed steps, and steps that wait for their next attempt.
type mountRetries struct {
	RetryableErrors  int `json:"retryable_errors"` // in error with attempts left, after a permanent failure
	ExhaustedRetries int `json:"exhausted_retries"`
	InBackoff        int `json:"in_backoff"`
}

// mountDatabase says where state is kept and how durable it is.
type mountDatabase struct {
	Path          *string   `json:"path"` // null in memory
	JournalBytes  int64     `json:"journal_bytes"`
	SnapshotBytes int64     `json:"snapshot_bytes"`
	LastSyncAt    zonedTime `json:"last_sync_at"`
	Durability    string    `json:"durability"`
}

// neverStored tells caches not to keep the answer, which is true only now.
func neverStored(w *responseWriter) { w.Header().Set("Cache-Control", "no-store") }

func (a *mountAPI) healthLive(w *responseWriter, _ *http.Request) (any, error) {
	neverStored(w)
	return mountAlive{true, zonedTime(a.surface.svc.clock.now()), "stepwell"}, nil
}

func (a *mountAPI) healthReady(w *responseWriter, _ *http.Request) (any, error) {
	neverStored(w)
	v := a.ready()
	return checkedReply(w, v.Ready, v), nil
}

// ready runs the checks.
func (a *mountAPI) ready() mountReady {
	clock := a.surface.svc.clock
	began := clock.now()
	v := mountReady{Ready: true, Checks: map[string]mountCheck{}, Message: "ready", Timestamp: zonedTime(began)}
	for name, c := range a.surface.svc.health.checks("mount", false) {
		v.Checks[name] = mountCheck{c.Status, c.Message, c.DurationMS}
		if c.Status != healthyWord {
			v.FailedChecks = append(v.FailedChecks, name)
		}
	}
	if len(v.FailedChecks) > 0 {
		slices.Sort(v.FailedChecks)
		v.Ready, v.Message = false, "not ready: "+strings.Join(v.FailedChecks, ", ")
	}
	v.CheckDuration = max(clock.now().sub(began), 0).Seconds()
	return v
}

func (a *mountAPI) healthStatus(w *responseWriter, _ *http.Request) (any, error) {
	now, ready := a.surface.svc.clock.now(), a.ready()
	figures, err := mountFiguresOf(a.surface.svc.store)
	if err != nil {
		return nil, err
	}
	v := mountStatusView{
		Healthy: ready.Ready, Status: pick(ready.Ready, healthyWord, unhealthyWord),
		Metrics: figures, Database: a.surface.svc.database(), Checks: ready.Checks,
		Version: version, UptimeSeconds: a.surface.svc.uptimeSeconds(), Timestamp: zonedTime(now),
	}
	neverStored(w)
	return checkedReply(w, v.Healthy, v), nil
}

func (s *service) database() mountDatabase {
	st := s.store.status()
	v := mountDatabase{
		JournalBytes: st.journalBytes, SnapshotBytes: st.snapshotBytes,
		LastSyncAt: zonedTime(st.lastSync), Durability: st.durability,
	}
	if !s.cfg.Store.Memory {
		v.Path = &s.cfg.Store.Path
	}
	return v
}

// mountFiguresOf counts tasks and steps by status, and failed steps by whether
// they may be retried.
func mountFiguresOf(s *store) (v mountFigures, err error) {
	counts := s.counts()
	for state, n := range counts.tasks {
		v.Tasks.add(taskState(state).brief(), n)
	}
	for state, n := range counts.steps {
		v.Steps.add(stepState(state).brief(), n)
	}
	v.Retries.InBackoff = counts.steps[stepWaitingForRetry]
	// Only steps in error must be looked at one by one, and usually there are few.
	if counts.steps[stepInError] > 0 {
		err = s.eachInError(v.Retries.count)
	}
	return v, err
}

func (v *mountRetries) count(t *task) {
	for i := range t.steps {
		switch {
		case t.steps[i].state != stepInError:
		case t.retryEligible(i):
			v.RetryableErrors++
		default:
			v.ExhaustedRetries++
		}
	}
}

func (a *mountAPI) metrics(w *responseWriter, r *http.Request) (any, error) {
	neverStored(w)
	return a.surface.metrics(w, r)
}
