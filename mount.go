package main

// The mount-point API: the service under a path prefix and without a version, for clients of the
// embedded service. This file has the prefix, links and errors.

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// mountAPI is the surface under mount.path.
type mountAPI struct {
	surface            *surface
	prefix             string         // mount.path
	trusted            []netip.Prefix // proxies whose X-Forwarded-Prefix counts
	performanceAnswers answerCache[struct{}, mountPerformanceView]
	bottleneckAnswers  answerCache[bottleneckQuery, mountBottlenecksView]
}

// newMountAPI returns the surface, or nil if it is off. It shares the listener of
// the orchestration role, and its requests are counted in that role's stats.
func newMountAPI(s *service, shared *surfaceCache, stats *httpStats) *mountAPI {
	c := &s.cfg.Mount
	if c.Path == "" {
		return nil
	}
	a := &mountAPI{
		surface: newSurface(s, shared, "mount", mountError), prefix: c.Path, trusted: s.cfg.Web.trustedProxies(),
	}
	a.surface.stats, a.surface.status, a.surface.taskPath = stats, mountStatus, a.taskLink
	a.surface.openapi = shared.document(a.surface)
	a.surface.handle(c.mounted(a.routes()))
	return a
}

// under reports whether a path is the mount point or below it.
func (c *mountConfig) under(path string) bool {
	rest, ok := strings.CutPrefix(path, c.Path)
	return ok && c.Path != "" && (rest == "" || rest[0] == '/')
}

// The rows that [mount] can put behind a permission.
const (
	mountStatusRoute  = "GET /health/status"
	mountMetricsRoute = "GET /metrics"
)

// mounted returns the rows with the prefix before their paths, and with the permissions that the configuration adds.
// The root answers with and without a trailing slash.
func (c *mountConfig) mounted(rows []route) []route {
	var mounted []route
	for _, row := range rows {
		if row.pattern == mountStatusRoute && c.StatusRequiresAuth || row.pattern == mountMetricsRoute && c.MetricsRequireAuth {
			row.permissions = needs(permSystemAnalyticsRead)
		}
		method, path, _ := strings.Cut(row.pattern, " ")
		if path == "/{$}" {
			mounted = append(mounted, route{method + " " + c.Path, row.permissions, row.handle})
		}
		row.pattern = method + " " + c.Path + path
		mounted = append(mounted, row)
	}
	return mounted
}

// link returns a path below the mount point as the caller must write it, with the
// prefix that a trusted proxy says it has removed.
func (a *mountAPI) link(r *http.Request, path string) string {
	before := ""
	if isTrustedProxy(peerAddress(r.RemoteAddr), a.trusted) {
		before = strings.TrimRight(r.Header.Get("X-Forwarded-Prefix"), "/")
	}
	// The prefix becomes a part of links and headers, so it must be a plain path.
	if !mountPathForm().MatchString(before) {
		before = ""
	}
	return before + a.prefix + path
}

func (a *mountAPI) taskLink(r *http.Request, id uuid) string { return a.link(r, "/tasks/"+id.String()) }

// mountErrorView is the body of an error.
type mountErrorView struct {
	Error struct {
		Type    string              `json:"type"`
		Message string              `json:"message"`
		Details map[string][]string `json:"details,omitempty"` // by field
		Code    string              `json:"code"`
		TaskID  any                 `json:"task_id,omitempty"` // that a repeated request created
	} `json:"error"`
}

func mountError(f *failure, _ string, _ instant) any {
	var v mountErrorView
	v.Error.Type, v.Error.Code = failureForms[f.kind].mount.kind, mountCode(f.kind)
	v.Error.Message, v.Error.Details = f.message, map[string][]string{}
	if f.kind == taskDropped {
		v.Error.TaskID = f.extra.value
	}
	for _, p := range f.details {
		v.Error.Details[p.Field] = append(v.Error.Details[p.Field], p.Message)
	}
	return v
}

// links answers at the root with the main paths.
func (a *mountAPI) links(w *responseWriter, r *http.Request) (any, error) {
	links := map[string]string{
		"handlers": "/handlers", "tasks": "/tasks", "performance": "/analytics/performance",
		"bottlenecks": "/analytics/bottlenecks", "health": "/health/ready", "status": "/health/status",
		"metrics": "/metrics", "openapi": "/api-docs.json", "docs": "/api-docs/ui",
	}
	for name, path := range links {
		links[name] = a.link(r, path)
	}
	return linksReply(w, r, links), nil
}

// Health, status and metrics of the mount point.

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

func (a *mountAPI) healthLive(*responseWriter, *http.Request) (any, error) {
	return mountAlive{true, zonedTime(a.surface.svc.clock.now()), "stepwell"}, nil
}

func (a *mountAPI) healthReady(w *responseWriter, _ *http.Request) (any, error) {
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

// mountFiguresOf counts tasks and steps by status, and failed steps by whether they may be retried.
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
