package main

// The orchestration role's API: tasks, steps, templates, analytics and the configuration.

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// orchestrationAPI is the surface of the orchestration role.
type orchestrationAPI struct {
	*roleHealth
	surface *surface
	mount   *mountAPI           // the other surface on the listener; nil if it is off
	console func() *consoleSite // made when it is first needed
}

// newOrchestrationAPI makes the surface of a service. shared is nil when nothing
// is shared with the surfaces of other services.
func newOrchestrationAPI(s *service, shared *surfaceCache) *orchestrationAPI {
	a := &orchestrationAPI{
		surface: newSurface(s, shared, "orchestration", orchestrationError),
		roleHealth: &roleHealth{role: "orchestration", clock: s.clock, checker: s.health, complete: func(v *readyView) {
			v.Info = s.health.info()
		}},
	}
	a.surface.openapi = shared.document(a.surface)
	a.console = cached(shared, "console", func() func() *consoleSite {
		return sync.OnceValue(func() *consoleSite { return newConsoleSite(s.cfg, a.surface.auth.config) })
	})
	rows := s.cfg.Orchestration.Web.enabled(a.routes())
	if !s.cfg.Console.Enabled {
		rows = slices.DeleteFunc(rows, route.isConsole)
	}
	a.surface.handle(rows)
	if a.surface.extension != nil {
		a.surface.extension.extend(a.surface, shared)
	}
	a.mount = newMountAPI(s, shared, a.surface.stats)
	return a
}

// ServeHTTP passes requests below the mount point to that surface.
func (a *orchestrationAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.surface.svc.cfg.Mount.under(r.URL.Path) {
		a.mount.surface.ServeHTTP(w, r)
		return
	}
	a.surface.ServeHTTP(w, r)
}

func (a *orchestrationAPI) createTask(w *responseWriter, r *http.Request) (any, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	return a.surface.submit(w, r, creationRoute{taskRoute, parseTaskRequest}, body, a.created)
}

// created returns the view of a task for its creator, who sees all of it.
func (a *orchestrationAPI) created(t *task) any {
	return taskView{task: t, now: a.surface.svc.clock.now()}
}

// repeatTask creates a task that repeats another from a step on. The new task has the context and the results of the
// old one, which the caller must be allowed to read.
func (a *orchestrationAPI) repeatTask(w *responseWriter, r *http.Request) (any, error) {
	id, err := pathID(r, "task_uuid")
	if err != nil {
		return nil, err
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	parse := func(body []byte) (*taskRequest, error) {
		q, err := parseAgain(body, &againRequest{task: id, by: w})
		if err == nil {
			err = a.surface.require(r, permTasksContextRead, permStepsRead)
		}
		return q, err
	}
	return a.surface.submit(w, r, creationRoute{taskRoute + "/" + id.String() + "/again", parse}, body, a.created)
}

func (a *orchestrationAPI) listTasks(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	right, speaks := q.contextRight(r), q.flag("about")
	page, err := a.surface.page(w, r, q, filteredState, strings.Join(stateWords, ", "))
	return taskListView{page, right, speaks, securityOf(r.Context()).may}, err
}

func (a *orchestrationAPI) getTask(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	right := q.contextRight(r)
	t, err := a.surface.awaited(w, r, q, "task_uuid")
	return a.surface.taskAnswer(w, r, t, err, func(now instant) any {
		return taskView{t, now, right, a.surface.undelivered(r, t)}
	})
}

func (a *orchestrationAPI) cancelTask(w *responseWriter, r *http.Request) (any, error) {
	t, err := a.surface.cancelIn(r, "task_uuid")
	return a.surface.taskAnswer(w, r, t, err, func(now instant) any {
		return taskView{t, now, (&query{}).contextRight(r), a.surface.undelivered(r, t)}
	})
}

// contextView is the answer of GET /v1/tasks/{task_uuid}/context.
type contextView struct {
	TaskUUID uuid            `json:"task_uuid"`
	Context  json.RawMessage `json:"context"`
}

func (a *orchestrationAPI) getContext(w *responseWriter, r *http.Request) (any, error) {
	t, err := a.surface.taskIn(w, r, "task_uuid")
	return a.surface.taskAnswer(w, r, t, err, func(instant) any { return contextView{t.id, t.by.context} })
}

// definitionView is the template that a task was created with, unredacted.
type definitionView struct {
	TaskUUID   uuid            `json:"task_uuid"`
	Hash       string          `json:"hash"`
	Definition json.RawMessage `json:"definition"`
}

func (a *orchestrationAPI) getDefinition(w *responseWriter, r *http.Request) (any, error) {
	t, err := a.surface.taskIn(w, r, "task_uuid")
	return a.surface.taskAnswer(w, r, t, err, func(instant) any { return definitionView{t.id, t.tpl.hash, t.tpl.json} })
}

func (a *orchestrationAPI) getTransitions(w *responseWriter, r *http.Request) (any, error) {
	v, err := heldByID(w, r, "task_uuid", func(id uuid, by holder) (*historyView, error) {
		return a.surface.svc.history.transitions(id, by, mayReadResults(r.Context()))
	})
	if err != nil {
		return nil, err
	}
	return a.surface.ofTask(w, r, v.task, a.surface.svc.clock.now(), v), nil
}

func (a *orchestrationAPI) explainTask(w *responseWriter, r *http.Request) (any, error) {
	return a.surface.explanation(w, r, "task_uuid")
}

func (a *orchestrationAPI) listSteps(w *responseWriter, r *http.Request) (any, error) {
	t, err := a.surface.taskIn(w, r, "task_uuid")
	return a.surface.taskAnswer(w, r, t, err, func(now instant) any {
		undelivered := a.surface.undelivered(r, t)
		return jsonList{len(t.steps), func(o *jsonWriter, i int) {
			v := newStepView(t, i, now, a.surface.svc.workerID)
			v.undelivered = undelivered
			v.writeJSON(o)
		}}
	})
}

func (a *orchestrationAPI) getStep(w *responseWriter, r *http.Request) (any, error) {
	t, i, err := a.surface.stepIn(w, r, "task_uuid", "step_uuid")
	return a.stepAnswer(w, r, t, i, err)
}

// stepAnswer answers with a step, unless err is not nil. Who may act on steps need not be
// allowed to read their results.
func (a *orchestrationAPI) stepAnswer(w *responseWriter, r *http.Request, t *task, i int, err error) (any, error) {
	return a.surface.taskAnswer(w, r, t, err, func(now instant) any {
		v := newStepView(t, i, now, a.surface.svc.workerID)
		v.undelivered = a.surface.undelivered(r, t)
		if !mayReadResults(r.Context()) {
			v.redactResults()
		}
		return v
	})
}

func (a *orchestrationAPI) getAudit(w *responseWriter, r *http.Request) (any, error) {
	t, i, err := a.surface.stepIn(w, r, "task_uuid", "step_uuid") // for the tag, which may be older than the audit
	if err != nil {
		return nil, err
	}
	v, err := a.surface.svc.history.audit(t.id, i, w)
	err = a.surface.shown(r, t.id, err)
	return a.surface.taskAnswer(w, r, t, err, func(instant) any { return v })
}

func (a *orchestrationAPI) actOnStep(w *responseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r, "task_uuid", "step_uuid")
	if err != nil {
		return nil, err
	}
	q, err := readAs(r, parseStepRequest)
	if err != nil {
		return nil, err
	}
	if q.who, err = a.surface.actorOf(r); err != nil {
		return nil, err
	}
	t, i, err := a.surface.svc.operator.act(r.Context(), taskID, stepID, q)
	if err == nil {
		hintMisfits(w, completionResult, q.doubts)
	}
	return a.stepAnswer(w, r, t, i, err)
}

func (a *orchestrationAPI) listTemplates(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	namespace := q.text("namespace")
	if err := q.done(); err != nil {
		return nil, err
	}
	all := a.surface.svc.templates.registry()
	return withTag(w, r, weakTag(all.hash()), all.listView(namespace)), a.surface.holdTemplates(w)
}

func (a *orchestrationAPI) getTemplate(w *responseWriter, r *http.Request) (any, error) {
	tpl, err := a.surface.templateIn(w, r, r.PathValue("version"))
	if err != nil {
		return nil, err
	}
	return withTag(w, r, weakTag(tpl.hash), tpl.detailView()), nil
}

// links answers at the root with the main paths.
func (a *orchestrationAPI) links(w *responseWriter, r *http.Request) (any, error) {
	links := map[string]string{
		"tasks": "/v1/tasks", "templates": "/v1/templates", "health": "/health/ready",
		"metrics": "/metrics", "openapi": "/api-docs/openapi.json", "docs": "/api-docs/ui",
	}
	if a.surface.svc.cfg.Console.Enabled {
		links["console"] = consolePath
	}
	return linksReply(w, r, links), nil
}

// Analytics.

// The upper bounds of the query parameters of GET /v1/analytics/bottlenecks.
const (
	maxBottlenecks   = 1000
	maxMinExecutions = 1_000_000_000
)

func (a *orchestrationAPI) performance(_ *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	hours := q.number("hours", 24, 1, keptHours)
	if err := q.done(); err != nil {
		return nil, err
	}
	now := a.surface.svc.clock.now()
	figures, states := a.surface.svc.store.figures()
	return figures.performance(&states, now, hours), nil
}

func (a *orchestrationAPI) history(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	hours := q.number("hours", 24, 1, keptHours)
	minutes := q.number("minutes", 0, 1, keptMinutes)
	filter := figureFilter{q.text("namespace"), q.text("name"), q.text("version")}
	if minutes > 0 && filter != (figureFilter{}) {
		q.refuse("minutes are counted for all templates together: leave out namespace, name and version")
	}
	if err := q.done(); err != nil {
		return nil, err
	}
	figures, _ := a.surface.svc.store.figures()
	if err := w.holdEach(hours+minutes+len(figures.templates), 512); err != nil {
		return nil, err
	}
	now := a.surface.svc.clock.now()
	v := figures.history(filter, now, hours)
	if minutes > 0 {
		return figures.withMinutes(v, now, minutes), nil
	}
	return v, nil
}

func (a *orchestrationAPI) bottlenecks(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	limit := q.number("limit", 10, 1, maxBottlenecks)
	minimum := q.number("min_executions", 5, 0, maxMinExecutions)
	if err := q.doneHolding(w, 2*limit, 256); err != nil {
		return nil, err
	}
	figures, states := a.surface.svc.store.figures()
	return figures.bottlenecks(&states, limit, minimum), nil
}

func (a *orchestrationAPI) failures(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f, since := taskFilter{namespace: q.text("namespace"), name: q.text("name")}, q.instant("since")
	limit := q.number("limit", 50, 1, maxBottlenecks)
	if err := q.doneHolding(w, limit, 1024); err != nil {
		return nil, err
	}
	v, err := a.surface.svc.failures(&f, since, limit, mayReadResults(r.Context()), w)
	return v, cmp.Or(err, a.surface.svc.store.waitAll(r.Context()))
}

// listActs answers those who may see everything on which operators act.
func (a *orchestrationAPI) listActs(w *responseWriter, r *http.Request) (any, error) {
	if err := a.surface.require(r, permStepsRead, permDLQRead); err != nil {
		return nil, err
	}
	q := queryOf(r)
	acts := actQuery{q.instant("since"), q.text("actor"), q.text("request_id")}
	skip, limit, err := q.listPage(w, 50, 512)
	if err != nil {
		return nil, err
	}
	v, total, err := a.surface.svc.history.acts(acts, skip, limit, w)
	if err != nil {
		return nil, err
	}
	return a.pageAnswer(w, r, v, total)
}

func (a *orchestrationAPI) getSummary(w *responseWriter, r *http.Request) (any, error) {
	t, err := a.surface.taskIn(w, r, "task_uuid")
	return a.surface.taskAnswer(w, r, t, err, func(now instant) any {
		v, path := newSummaryView(t, now), taskPath(r, t.id)
		v.Links = summaryLinks{path, path + "/workflow_steps", strings.Replace(path, "/v1/tasks/", "/v1/dlq/task/", 1)}
		return v
	})
}

// GET /config of both roles: the effective configuration without secrets, in the form that existing clients know.

// configMetadataView is the time, environment and version of an answer.
type configMetadataView struct {
	Timestamp   zonedTime `json:"timestamp"`
	Environment string    `json:"environment"`
	Version     string    `json:"version"`
}

// authConfigView is the authentication of a role, without keys.
type authConfigView struct {
	Enabled            bool     `json:"enabled"`
	VerificationMethod string   `json:"verification_method"`
	JWTIssuer          string   `json:"jwt_issuer"`
	JWTAudience        string   `json:"jwt_audience"`
	APIKeyHeader       string   `json:"api_key_header"`
	APIKeyCount        int      `json:"api_key_count"`
	StrictValidation   bool     `json:"strict_validation"`
	AllowedAlgorithms  []string `json:"allowed_algorithms"`
}

func authView(c *roleWebConfig) authConfigView {
	a := &c.Auth
	return authConfigView{
		Enabled: a.Enabled, VerificationMethod: a.JWTVerificationMethod,
		JWTIssuer: a.JWTIssuer, JWTAudience: a.JWTAudience,
		APIKeyHeader: a.APIKeyHeader, APIKeyCount: len(a.APIKeys),
		StrictValidation: a.StrictValidation, AllowedAlgorithms: a.JWTAllowedAlgorithms,
	}
}

// breakerConfigView is always zero: a single process needs no circuit breakers.
type breakerConfigView struct {
	Enabled          bool `json:"enabled"`
	FailureThreshold int  `json:"failure_threshold"`
	TimeoutSeconds   int  `json:"timeout_seconds"`
	SuccessThreshold int  `json:"success_threshold"`
}

// poolConfigView is always 1 and 1: the journal has one writer.
type poolConfigView struct {
	WebAPIPoolSize       int `json:"web_api_pool_size"`
	WebAPIMaxConnections int `json:"web_api_max_connections"`
}

// messagingConfigView names the queues in which ready steps wait.
type messagingConfigView struct {
	Backend string   `json:"backend"`
	Queues  []string `json:"queues"`
}

// orchestrationConfigView is the answer of the orchestration role.
type orchestrationConfigView struct {
	Metadata        configMetadataView  `json:"metadata"`
	Auth            authConfigView      `json:"auth"`
	CircuitBreakers breakerConfigView   `json:"circuit_breakers"`
	DatabasePools   poolConfigView      `json:"database_pools"`
	DeploymentMode  string              `json:"deployment_mode"`
	Messaging       messagingConfigView `json:"messaging"`
	Config          map[string]any      `json:"config"`
}

func (s *service) configMetadata() configMetadataView {
	return configMetadataView{zonedTime(s.clock.now()), s.cfg.Environment, version}
}

// messagingView names the engine's two queues, or none without an engine.
func (s *service) messagingView() messagingConfigView {
	v := messagingConfigView{Backend: "in_process", Queues: []string{}}
	if s.engine != nil {
		v.Queues = []string{"local", "http"}
	}
	return v
}

func (a *orchestrationAPI) config(_ *responseWriter, _ *http.Request) (any, error) {
	return orchestrationConfigView{
		Metadata:       a.surface.svc.configMetadata(),
		Auth:           authView(&a.surface.svc.cfg.Orchestration.Web),
		DatabasePools:  poolConfigView{1, 1},
		DeploymentMode: "standalone",
		Messaging:      a.surface.svc.messagingView(),
		Config:         a.surface.svc.cfg.redacted(),
	}, nil
}

// The dead letter queue and staleness over HTTP.

// maxDLQLimit is the largest number of entries or tasks in one answer.
const maxDLQLimit = 1000

// maxSkipped bounds for how many skipped elements of a list memory is held, where the list must be sorted.
const maxSkipped = 1 << 20

// letterFilter reads the filter of dead letters, except for their status.
func (q *query) letterFilter() dlqFilter {
	return dlqFilter{
		reason:  queryWord(q, "dlq_reason", parseDLQReason, dlqReasonNames[:]),
		failure: q.failureGroup(), over: queryWord(q, "over", parseFlag, []string{"true", "false"}),
		namespace: q.text("namespace"), name: q.text("name"), step: q.text("step"), made: q.period("created"),
	}
}

func parseFlag(word string) (is, ok bool) { return word == "true", word == "true" || word == "false" }

// listPage reads which part of a list a request asks for, and asks for the memory of an answer whose elements have each
// bytes.
func (q *query) listPage(w *responseWriter, standard, each int) (skip, limit int, err error) {
	limit, skip = q.number("limit", standard, 1, maxDLQLimit), q.number("offset", 0, 0, 1<<31-1)
	return skip, limit, q.doneHolding(w, limit, each)
}

// pageAnswer answers with a part of a list. A header has the length of the whole list.
func (a *orchestrationAPI) pageAnswer(w *responseWriter, r *http.Request, part any, total int) (any, error) {
	w.Header()["X-Total-Count"] = []string{strconv.Itoa(total)}
	return part, a.surface.svc.store.waitAll(r.Context())
}

func (a *orchestrationAPI) listDLQ(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f := q.letterFilter()
	f.status = queryWord(q, "resolution_status", parseDLQStatus, dlqStatusNames[:])
	skip, limit, err := q.listPage(w, 50, 256)
	if err = cmp.Or(err, mayGroup(a.surface, r, f.failure)); err != nil {
		return nil, err
	}
	v, total := a.surface.svc.dlq.entries(f, skip, limit, mayReadResults(r.Context()))
	return a.pageAnswer(w, r, v, total)
}

func (a *orchestrationAPI) getTaskDLQ(w *responseWriter, r *http.Request) (any, error) {
	v, err := heldByID(w, r, "task_uuid", func(id uuid, by holder) (*dlqTaskView, error) {
		return a.surface.svc.dlq.ofTask(id, mayReadResults(r.Context()), by)
	})
	if err != nil {
		return nil, err
	}
	return a.surface.ofTask(w, r, v.task, a.surface.svc.clock.now(), v), nil
}

func (a *orchestrationAPI) dlqQueue(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f := q.letterFilter()
	skip, limit, err := q.listPage(w, 100, 512)
	if err = cmp.Or(err, mayGroup(a.surface, r, f.failure), w.holdEach(min(skip, maxSkipped), 128)); err != nil {
		return nil, err
	}
	v, total := a.surface.svc.dlq.queue(f, skip, limit, mayReadResults(r.Context()))
	return a.pageAnswer(w, r, v, total)
}

func (a *orchestrationAPI) staleness(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f := taskFilter{namespace: q.text("namespace"), name: q.text("name")}
	skip, limit, err := q.listPage(w, 100, 512)
	if err = cmp.Or(err, w.holdEach(min(skip, maxSkipped), 128)); err != nil {
		return nil, err
	}
	v, total := a.surface.svc.staleness.report(&f, skip, limit)
	return a.pageAnswer(w, r, v, total)
}

func (a *orchestrationAPI) dlqStats(_ *responseWriter, _ *http.Request) (any, error) {
	return a.surface.svc.dlq.stats(), nil
}

// dlqUpdateView is the answer to an update of an entry.
type dlqUpdateView struct {
	Success      bool   `json:"success"`
	Message      string `json:"message"`
	DLQEntryUUID uuid   `json:"dlq_entry_uuid"`
}

func (a *orchestrationAPI) updateDLQ(_ *responseWriter, r *http.Request) (any, error) {
	id, err := pathID(r, "dlq_entry_uuid")
	if err != nil {
		return nil, err
	}
	q, err := readAs(r, parseInvestigation)
	if err != nil {
		return nil, err
	}
	seen, err := a.surface.seenVersions(r)
	if err != nil {
		return nil, err
	}
	q.subject = subjectOf(r.Context())
	if err := a.surface.svc.dlq.update(r.Context(), id, q, seen); err != nil {
		return nil, err
	}
	return dlqUpdateView{true, "DLQ entry updated", id}, nil
}

// parseInvestigation reads the body of an update, an object. Its failure names every invalid member.
func parseInvestigation(body []byte) (*investigation, error) {
	q := &investigation{status: noDLQStatus}
	var f fieldReader
	for key, raw := range jsonMembers(body) {
		if jsonKind(raw) != 'n' {
			q.field(&f, key, raw)
		}
	}
	return q, f.failure("the entry is not updated")
}

func (q *investigation) field(f *fieldReader, key string, raw []byte) {
	switch key {
	case "resolution_status":
		word, _ := jsonString(raw)
		status, ok := parseDLQStatus(word)
		if !ok {
			f.complain(key, "must be one of %s", strings.Join(dlqStatusNames[:], ", "))
			return
		}
		q.status = status
	case "resolution_notes":
		q.notes = new(f.text(key, raw, 0, maxMessageLength))
	case "resolved_by":
		q.by = new(f.text(key, raw, 1, maxNameLength))
	case "metadata":
		q.metadata = f.object(key, raw)
	}
}
