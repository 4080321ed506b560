package main

// Health and metrics of the mount-point API.

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// mountCheck is one check.
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

// mountHealth is the answer of /health/status.
type mountHealth struct {
	Healthy       bool                  `json:"healthy"`
	Status        string                `json:"status"`
	Metrics       mountFigures          `json:"metrics"`
	Database      mountDatabase         `json:"database"`
	Checks        map[string]mountCheck `json:"checks"`
	Version       string                `json:"version"`
	UptimeSeconds int64                 `json:"uptime_seconds"`
	Timestamp     zonedTime             `json:"timestamp"`
}

// mountFigures are counts of what the store holds now.
type mountFigures struct {
	Tasks   mountCounts  `json:"tasks"`
	Steps   mountCounts  `json:"steps"`
	Retries mountRetries `json:"retries"`
}

// mountCounts is a count by status.
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

// mountRetries counts failed steps, and those that wait to be tried again.
type mountRetries struct {
	RetryableErrors  int `json:"retryable_errors"` // in error, with attempts left: they failed for good before
	ExhaustedRetries int `json:"exhausted_retries"`
	InBackoff        int `json:"in_backoff"`
}

// mountDatabase is where state is kept, and how safely.
type mountDatabase struct {
	Path          *string   `json:"path"` // null in memory
	JournalBytes  int64     `json:"journal_bytes"`
	SnapshotBytes int64     `json:"snapshot_bytes"`
	LastSyncAt    zonedTime `json:"last_sync_at"`
	Durability    string    `json:"durability"`
}

// neverStored keeps answers that are true for a moment out of caches.
func neverStored(w http.ResponseWriter) { w.Header().Set("Cache-Control", "no-store") }

// mountChecks are the checks of the surface.
func (a *mountAPI) checks() map[string]checkView {
	scheduler, _ := a.svc.schedulerCheck()
	checks := map[string]checkView{
		"database":  a.svc.checked("the journal can be written", a.svc.checkStore),
		"scheduler": scheduler,
	}
	a.svc.addAuthCheck(checks, a.auth)
	return checks
}

// readyOf is the answer that checks make. What they took is for the caller to add.
func readyOf(checks map[string]checkView, now instant) mountReady {
	v := mountReady{Ready: true, Checks: map[string]mountCheck{}, Message: "ready", Timestamp: zonedTime(now)}
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		c := checks[name]
		v.Checks[name] = mountCheck{c.Status, c.Message, c.DurationMS}
		if c.Status != healthyWord {
			v.Ready = false
			v.FailedChecks = append(v.FailedChecks, name)
		}
	}
	if !v.Ready {
		v.Message = "not ready: " + strings.Join(v.FailedChecks, ", ")
	}
	return v
}

// writeMountReady answers 200 when every check is healthy, else 503.
func writeMountReady(w http.ResponseWriter, v mountReady) error {
	neverStored(w)
	if v.Ready {
		return writeJSON(w, http.StatusOK, v)
	}
	w.Header().Set("Retry-After", "1")
	return writeJSON(w, http.StatusServiceUnavailable, v)
}

func writeMountAlive(w http.ResponseWriter, now instant) error {
	neverStored(w)
	return writeJSON(w, http.StatusOK, mountAlive{true, zonedTime(now), "stepwell"})
}

func (a *mountAPI) healthReady(w http.ResponseWriter, _ *http.Request) error {
	began := a.svc.clock.now()
	v := readyOf(a.checks(), began)
	v.CheckDuration = max(a.svc.clock.now().sub(began), 0).Seconds()
	return writeMountReady(w, v)
}

func (a *mountAPI) healthLive(w http.ResponseWriter, _ *http.Request) error {
	return writeMountAlive(w, a.svc.clock.now())
}

func (a *mountAPI) healthStatus(w http.ResponseWriter, _ *http.Request) error {
	now := a.svc.clock.now()
	ready := readyOf(a.checks(), now)
	figures, err := a.svc.store.mountFigures()
	if err != nil {
		return err
	}
	v := mountHealth{
		Healthy: ready.Ready, Status: healthyWord, Metrics: figures, Database: a.svc.database(),
		Checks: ready.Checks, Version: version, UptimeSeconds: int64(max(now.sub(a.svc.started), 0).Seconds()),
		Timestamp: zonedTime(now),
	}
	neverStored(w)
	if v.Healthy {
		return writeJSON(w, http.StatusOK, v)
	}
	v.Status = unhealthyWord
	w.Header().Set("Retry-After", "1")
	return writeJSON(w, http.StatusServiceUnavailable, v)
}

func (s *service) database() mountDatabase {
	st := s.store.journal.status()
	v := mountDatabase{
		JournalBytes: st.journalBytes, SnapshotBytes: st.snapshotBytes,
		LastSyncAt: zonedTime(st.lastSync), Durability: st.durability,
	}
	if !s.cfg.Store.Memory {
		v.Path = &s.cfg.Store.Path
	}
	return v
}

// mountFigures counts tasks and steps by status, and looks at the failed ones.
func (s *store) mountFigures() (v mountFigures, err error) {
	s.mu.Lock()
	for status := range s.index.statuses {
		v.Tasks.add(briefStatus(status), s.index.statuses[status].count())
	}
	for state, n := range s.index.steps {
		v.Steps.add(stepState(state).brief(), n)
	}
	v.Retries.InBackoff = s.index.steps[stepWaitingForRetry]
	failed := s.index.steps[stepInError]
	s.mu.Unlock()
	if failed > 0 {
		err = s.countFailed(&v.Retries)
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

// countFailed looks at every task that may have a step in error, taking the
// lock for some at a time. Ended ones are looked at without it.
func (s *store) countFailed(v *mountRetries) error {
	next := uint32(0)
	for more := true; more; {
		var lines [][]byte
		lines, next, more = s.countFailedBatch(v, next)
		for _, line := range lines {
			h, err := readTaskHeader(line)
			if err == nil && h.counts[stepInError] == 0 {
				continue
			}
			t, err := s.thaw(line)
			if err != nil {
				return fmt.Errorf("looking at failed steps: %w", err)
			}
			v.count(t)
		}
	}
	return nil
}

// maxStepsLooked is about how many steps are looked at under the lock at a time.
const maxStepsLooked = 4096

// countFailedBatch counts in some of those tasks from a position on. It returns
// the lines of the ended ones among them, and where to go on.
func (s *store) countFailedBatch(v *mountRetries, from uint32) (lines [][]byte, next uint32, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for looked := 0; looked < maxStepsLooked; {
		pos, ok := s.index.statuses[briefError].next(from)
		if !ok {
			return lines, from, false
		}
		from = pos + 1
		t := s.slots[pos].live
		if t == nil {
			lines = append(lines, s.slots[pos].line)
			looked++
			continue
		}
		looked += 1 + len(t.steps)
		v.count(t)
	}
	return lines, from, true
}

func (a *mountAPI) metrics(w http.ResponseWriter, _ *http.Request) error {
	neverStored(w)
	return writeBody(w, http.StatusOK, metricsContentType, []byte(a.svc.metrics(a.stats)))
}
