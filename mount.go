package main

// The mount-point API: the service under a path prefix and without a version, for
// clients of the embedded service. This file has the prefix, links, errors and
// OpenAPI document, health and metrics, and templates, which are "handlers" here.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// mountAPI is the surface under mount.path.
type mountAPI struct {
	*surface
	*mountHealth
	prefix    string         // mount.path
	trusted   []netip.Prefix // proxies whose X-Forwarded-Prefix counts
	analytics *mountAnalytics
}

// newMountAPI returns the surface, or nil if it is off. It shares the listener of
// the orchestration role, and its requests are counted in that role's stats.
func newMountAPI(s *service, shared *surfaceCache, stats *httpStats) *mountAPI {
	c := &s.cfg.Mount
	if c.Path == "" {
		return nil
	}
	a := &mountAPI{
		newSurface(s, shared, "mount", mountError), &mountHealth{s.clock, s.health},
		c.Path, s.cfg.Web.trustedProxies(), &mountAnalytics{service: s},
	}
	a.stats, a.status, a.taskPath = stats, mountStatus, a.taskLink
	a.openapi = shared.document(a.surface, c.editOpenAPI)
	a.handle(c.mounted(a.routes()))
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

// guarded returns the rows that the configuration guards, by pattern, with the
// permissions they require.
func (c *mountConfig) guarded() map[string][]permission {
	guarded := map[string][]permission{}
	if c.StatusRequiresAuth {
		guarded[mountStatusRoute] = needs(permSystemAnalyticsRead)
	}
	if c.MetricsRequireAuth {
		guarded[mountMetricsRoute] = needs(permSystemAnalyticsRead)
	}
	return guarded
}

// mounted returns the rows with the prefix before their paths, and with the
// permissions that the configuration adds. The root answers with and without a
// trailing slash.
func (c *mountConfig) mounted(rows []route) []route {
	var mounted []route
	for _, row := range rows {
		if p, ok := c.guarded()[row.pattern]; ok {
			row.permissions = p
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
	v.Error.Message = f.message
	if f.kind == taskDropped {
		v.Error.TaskID = f.extra.value
	}
	for _, p := range f.details {
		if v.Error.Details == nil {
			v.Error.Details = map[string][]string{}
		}
		v.Error.Details[p.Field] = append(v.Error.Details[p.Field], p.Message)
	}
	return v
}

// links answers at the root with the main paths.
func (a *mountAPI) links(w http.ResponseWriter, r *http.Request) (any, error) {
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

// document answers with the OpenAPI document, with the mount point's URL as the
// caller must write it.
func (a *mountAPI) document(w http.ResponseWriter, r *http.Request) (any, error) {
	doc, err := a.openapi()
	if err != nil {
		return nil, err
	}
	server := func(path string) []byte { return fmt.Appendf(nil, `"servers":[{"url":%q}]`, path) }
	before, after, _ := bytes.Cut(doc.text, server(a.prefix))
	root := a.link(r, "")
	return withTag(w, r, contentTag([]byte(doc.tag+root)), textReply{jsonType, [][]byte{before, server(root), after}}), nil
}

// editOpenAPI sets the server of the document, and adds the permissions of the rows
// that the configuration guards in the words of openapi.json.
func (c *mountConfig) editOpenAPI(doc map[string]any) {
	doc["servers"] = []map[string]string{{"url": c.Path}}
	for pattern, permissions := range c.guarded() {
		method, path, _ := strings.Cut(pattern, " ")
		o := doc["paths"].(map[string]any)[path].(map[string]any)[strings.ToLower(method)].(map[string]any)
		o["security"] = []map[string][]string{{"bearer_auth": {}}, {"api_key_auth": {}}}
		o["x-required-permission"] = permissions[0].String()
		o["description"] = fmt.Sprintf("%s\n\n**Required Permission:** `%s`", o["description"], permissions[0])
	}
}

// Health and metrics of the mount-point API.

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

// mountHealth answers the health routes that need no service.
type mountHealth struct {
	clock   clock
	checker *health
}

// neverStored tells caches not to keep the answer, which is true only now.
func neverStored(w http.ResponseWriter) { w.Header().Set("Cache-Control", "no-store") }

func (h *mountHealth) healthLive(w http.ResponseWriter, _ *http.Request) (any, error) {
	neverStored(w)
	return mountAlive{true, zonedTime(h.clock.now()), "stepwell"}, nil
}

func (h *mountHealth) healthReady(w http.ResponseWriter, _ *http.Request) (any, error) {
	neverStored(w)
	v := h.ready()
	return checkedReply(w, v.Ready, v), nil
}

// ready runs the checks.
func (h *mountHealth) ready() mountReady {
	began := h.clock.now()
	v := mountReady{Ready: true, Checks: map[string]mountCheck{}, Message: "ready", Timestamp: zonedTime(began)}
	for name, c := range h.checker.checks("mount", false) {
		v.Checks[name] = mountCheck{c.Status, c.Message, c.DurationMS}
		if c.Status != healthyWord {
			v.FailedChecks = append(v.FailedChecks, name)
		}
	}
	if len(v.FailedChecks) > 0 {
		slices.Sort(v.FailedChecks)
		v.Ready, v.Message = false, "not ready: "+strings.Join(v.FailedChecks, ", ")
	}
	v.CheckDuration = max(h.clock.now().sub(began), 0).Seconds()
	return v
}

func (a *mountAPI) healthStatus(w http.ResponseWriter, _ *http.Request) (any, error) {
	now, ready := a.svc.clock.now(), a.ready()
	figures, err := mountFiguresOf(a.svc.store)
	if err != nil {
		return nil, err
	}
	v := mountStatusView{
		Healthy: ready.Ready, Status: healthyWord, Metrics: figures, Database: a.svc.database(),
		Checks: ready.Checks, Version: version, UptimeSeconds: a.svc.uptimeSeconds(), Timestamp: zonedTime(now),
	}
	if !v.Healthy {
		v.Status = unhealthyWord
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

func (a *mountAPI) metrics(w http.ResponseWriter, r *http.Request) (any, error) {
	neverStored(w)
	return a.surface.metrics(w, r)
}

// Templates, which this surface calls handlers and lists by namespace and name.

// handlerNamespaces is the answer of GET /handlers.
type handlerNamespaces struct {
	Namespaces      []handlerNamespace `json:"namespaces"`
	TotalNamespaces int                `json:"total_namespaces"`
	GeneratedAt     zonedTime          `json:"generated_at"`
}

// handlerNamespace is a namespace that has templates.
type handlerNamespace struct {
	Name         string            `json:"name"`
	Description  *string           `json:"description"` // always null: namespaces have no descriptions
	HandlerCount int               `json:"handler_count"`
	Handlers     []string          `json:"handlers"`
	Metadata     namespaceMetadata `json:"metadata"`
}

// namespaceMetadata summarizes the templates of a namespace.
type namespaceMetadata struct {
	Versions     []string `json:"versions"` // of any handler, ascending
	VersionCount int      `json:"version_count"`
	StepCount    int      `json:"step_count"` // of the latest versions
}

// handlerList is the answer of GET /handlers/{namespace}.
type handlerList struct {
	Namespace     string           `json:"namespace"`
	Handlers      []handlerSummary `json:"handlers"`
	TotalHandlers int              `json:"total_handlers"`
}

// handlerSummary is the latest version of a handler.
type handlerSummary struct {
	ID            uuid     `json:"id"`
	Name          string   `json:"name"`
	Namespace     string   `json:"namespace"`
	Version       string   `json:"version"`
	Versions      []string `json:"versions"` // ascending
	LatestVersion string   `json:"latest_version"`
	Description   *string  `json:"description"`
	StepCount     int      `json:"step_count"`
	StepNames     []string `json:"step_names"`
}

// handlerView is the answer of GET /handlers/{namespace}/{name}.
type handlerView struct {
	ID              uuid            `json:"id"`
	Name            string          `json:"name"`
	Namespace       string          `json:"namespace"`
	Version         string          `json:"version"`
	FullName        string          `json:"full_name"`
	Description     *string         `json:"description"`
	Available       bool            `json:"available"` // every step can be run, here or by an outside actor
	StepTemplates   jsonList        `json:"step_templates"`
	Configuration   json.RawMessage `json:"configuration"`
	DependencyGraph handlerGraph    `json:"dependency_graph"`
	GeneratedAt     zonedTime       `json:"generated_at"`
}

// handlerStep is one step of a handler.
type handlerStep struct {
	Name              string          `json:"name"`
	Description       *string         `json:"description"`
	HandlerClass      string          `json:"handler_class"`
	DependsOnStep     *string         `json:"depends_on_step"` // null unless it is the only one
	DependsOnSteps    []string        `json:"depends_on_steps"`
	Configuration     json.RawMessage `json:"configuration"`
	DefaultRetryable  bool            `json:"default_retryable"`
	DefaultRetryLimit int             `json:"default_retry_limit"`
	Skippable         bool            `json:"skippable"`
	CustomEvents      json.RawMessage `json:"custom_events"`
}

// handlerGraph is the dependency graph of a handler's steps, by name. An edge leads
// from a step to a step that depends on it.
type handlerGraph struct {
	Nodes          []string `json:"nodes"`
	Edges          jsonList `json:"edges"`
	ExecutionOrder []string `json:"execution_order"`
}

func (a *mountAPI) listNamespaces(w http.ResponseWriter, r *http.Request) (any, error) {
	v := handlerNamespaces{Namespaces: []handlerNamespace{}, GeneratedAt: zonedTime(a.svc.clock.now())}
	all := a.svc.templates.registry()
	for _, n := range all.namespaces() {
		v.Namespaces = append(v.Namespaces, all.handlerNamespace(n.Name))
	}
	v.TotalNamespaces = len(v.Namespaces)
	return withTag(w, r, weakTag(all.hash()), v), a.holdTemplates(w)
}

func (r *registry) handlerNamespace(name string) handlerNamespace {
	v := handlerNamespace{Name: name}
	var all []*template
	for _, versions := range r.handlersOf(name) {
		v.Handlers = append(v.Handlers, versions[0].name)
		v.Metadata.StepCount += len(latestTemplate(versions).steps)
		all = append(all, versions...)
	}
	v.HandlerCount, v.Metadata.VersionCount = len(v.Handlers), len(all)
	slices.SortFunc(all, func(x, y *template) int {
		return cmp.Or(x.semver.compare(y.semver), cmp.Compare(x.version, y.version))
	})
	v.Metadata.Versions = slices.Compact(versionsOf(all))
	return v
}

// handlersOf returns the versions of each handler of a namespace.
func (r *registry) handlersOf(namespace string) (handlers [][]*template) {
	for _, t := range r.all() {
		if versions := r.versions(t.namespace, t.name); t.namespace == namespace && versions[0] == t {
			handlers = append(handlers, versions)
		}
	}
	return handlers
}

func versionsOf(templates []*template) []string {
	versions := make([]string, len(templates))
	for i, t := range templates {
		versions[i] = t.version
	}
	return versions
}

func (a *mountAPI) listHandlers(w http.ResponseWriter, r *http.Request) (any, error) {
	namespace := r.PathValue("namespace")
	all := a.svc.templates.registry()
	handlers := all.handlersOf(namespace)
	if len(handlers) == 0 {
		return nil, unknownNamespace(namespace)
	}
	v := handlerList{Namespace: namespace, TotalHandlers: len(handlers)}
	for _, versions := range handlers {
		v.Handlers = append(v.Handlers, handlerSummaryOf(versions))
	}
	return withTag(w, r, weakTag(all.hash()), v), a.holdTemplates(w)
}

func unknownNamespace(name string) error {
	return failf(namespaceNotFound, "no handlers are registered in namespace %.60q", name)
}

func handlerSummaryOf(versions []*template) handlerSummary {
	t := latestTemplate(versions)
	return handlerSummary{
		ID: t.handlerID(), Name: t.name, Namespace: t.namespace, Version: t.version,
		Versions: versionsOf(versions), LatestVersion: t.version, Description: redactText(t.description),
		StepCount: len(t.steps), StepNames: t.stepNames(indexesOf(t.steps)),
	}
}

// handlerID derives the id from the template's identity: every service gives the
// same one.
func (t *template) handlerID() uuid { return stableID("handler", t.namespace, t.name, t.version) }

func indexesOf[E any](s []E) []int {
	indexes := make([]int, len(s))
	for i := range s {
		indexes[i] = i
	}
	return indexes
}

func (a *mountAPI) getHandler(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	version := q.text("version")
	if err := q.done(); err != nil {
		return nil, err
	}
	namespace := r.PathValue("namespace")
	if len(a.svc.templates.registry().handlersOf(namespace)) == 0 {
		return nil, unknownNamespace(namespace)
	}
	t, err := a.templateIn(w, r, version)
	if err != nil {
		return nil, err
	}
	v, err := a.svc.handlerView(t)
	if err != nil {
		return nil, err
	}
	return withTag(w, r, weakTag(fmt.Sprintf("%s-%t", t.hash, v.Available)), v), nil
}

func (s *service) handlerView(t *template) (handlerView, error) {
	events, err := t.stepEvents()
	return handlerView{
		ID: t.handlerID(), Name: t.name, Namespace: t.namespace, Version: t.version, FullName: t.fullName(),
		Description: redactText(t.description), Available: s.templates.validateRegistered(t).Valid,
		StepTemplates: jsonListOf(len(t.steps), func(i int) handlerStep { return t.handlerStep(i, events[i]) }),
		Configuration: t.shownJSON, DependencyGraph: t.handlerGraph(), GeneratedAt: zonedTime(s.clock.now()),
	}, err
}

func (t *template) handlerStep(i int, events json.RawMessage) handlerStep {
	s := &t.steps[i]
	v := handlerStep{
		Name: s.name, Description: redactText(s.description), HandlerClass: s.shown,
		DependsOnSteps: t.stepNames(s.parents), Configuration: redact(s.config),
		DefaultRetryable: s.retry.Retryable, DefaultRetryLimit: s.retry.MaxAttempts, CustomEvents: events,
	}
	if len(v.DependsOnSteps) == 1 {
		v.DependsOnStep = &v.DependsOnSteps[0]
	}
	return v
}

// stepEvents returns the list publishes_events of each step.
func (t *template) stepEvents() ([]json.RawMessage, error) {
	var definition struct {
		Steps []struct {
			Events json.RawMessage `json:"publishes_events"`
		} `json:"steps"`
	}
	events := make([]json.RawMessage, len(t.steps))
	err := json.Unmarshal(t.shownJSON, &definition)
	for i := range events {
		events[i] = json.RawMessage("[]")
		if i < len(definition.Steps) && jsonKind(definition.Steps[i].Events) == '[' {
			events[i] = definition.Steps[i].Events
		}
	}
	return events, err
}

func (t *template) handlerGraph() handlerGraph {
	edges := 0
	for i := range t.steps {
		edges += len(t.steps[i].parents)
	}
	return handlerGraph{
		Nodes: t.stepNames(indexesOf(t.steps)), ExecutionOrder: t.stepNames(t.order),
		Edges: jsonList{edges, t.edgeWriter()},
	}
}

// edgeWriter returns a function that writes one edge after the other.
func (t *template) edgeWriter() func(o *jsonWriter, _ int) {
	step, parent := 0, -1
	return func(o *jsonWriter, _ int) {
		for parent++; parent == len(t.steps[step].parents); parent = 0 {
			step++
		}
		o.b = append(o.b, '{')
		o.text("from", t.steps[t.steps[step].parents[parent]].name)
		o.text("to", t.steps[step].name)
		o.b = append(o.b, '}')
	}
}
