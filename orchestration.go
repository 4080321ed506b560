package main

// The orchestration role's API: tasks, steps, the dead letter queue, templates and
// analytics, and outside actors, who list and claim steps and answer under a lease.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// orchestrationAPI is the surface of the orchestration role.
type orchestrationAPI struct {
	*surface
	*roleHealth
	mount   *mountAPI // the other surface on the listener; nil if it is off
	console func() *consoleSite
}

// newOrchestrationAPI makes the surface of a service. shared is nil when nothing
// is shared with the surfaces of other services.
func newOrchestrationAPI(s *service, shared *surfaceCache) *orchestrationAPI {
	a := &orchestrationAPI{
		surface:    newSurface(s, shared, "orchestration", orchestrationError),
		roleHealth: orchestrationHealth(s.cfg, s.clock, s.health),
	}
	a.openapi = shared.document(a.surface, nil)
	a.console = cachedConsole(shared, a.surface)
	rows := s.cfg.Orchestration.Web.enabled(a.routes())
	if !s.cfg.Console.Enabled {
		rows = slices.DeleteFunc(rows, route.isConsole)
	}
	a.handle(rows)
	if a.extension != nil {
		a.extension.extend(a.surface, shared)
	}
	a.mount = newMountAPI(s, shared, a.stats)
	return a
}

// orchestrationHealth returns the health routes of the role.
func orchestrationHealth(cfg *Config, clk clock, h *health) *roleHealth {
	return &roleHealth{role: "orchestration", clock: clk, checker: h, complete: func(v *readyView) {
		v.Info = healthInfo(cfg, h.operationalState())
	}}
}

// ServeHTTP passes requests below the mount point to that surface.
func (a *orchestrationAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.svc.cfg.Mount.under(r.URL.Path) {
		a.mount.ServeHTTP(w, r)
		return
	}
	a.surface.ServeHTTP(w, r)
}

func (a *orchestrationAPI) createTask(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	return a.submit(w, r, "/v1/tasks", body, func(t *task) any {
		return taskView{task: t, now: a.svc.clock.now()}
	})
}

func (a *orchestrationAPI) listTasks(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	right := q.contextRight(r)
	page, err := a.page(w, r, q, r.URL.Path, func(word string) (stateSet, bool) {
		state, ok := filteredState(word)
		return setOf(state), ok
	}, strings.Join(stateWords, ", "))
	return taskListView{page, right}, err
}

func (a *orchestrationAPI) getTask(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	right := q.contextRight(r)
	t, err := a.awaited(w, r, q, "task_uuid")
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	return a.ofTask(w, r, t, now, taskView{t, now, right}), nil
}

func (a *orchestrationAPI) cancelTask(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.cancelIn(r, "task_uuid")
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	return a.ofTask(w, r, t, now, taskView{t, now, (&query{}).contextRight(r)}), nil
}

// contextView is the answer of GET /v1/tasks/{task_uuid}/context.
type contextView struct {
	TaskUUID uuid            `json:"task_uuid"`
	Context  json.RawMessage `json:"context"`
}

func (a *orchestrationAPI) getContext(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.taskIn(w, r, "task_uuid")
	if err != nil {
		return nil, err
	}
	return a.ofTask(w, r, t, a.svc.clock.now(), contextView{t.id, t.by.context}), nil
}

func (a *orchestrationAPI) getTransitions(w http.ResponseWriter, r *http.Request) (any, error) {
	v, err := heldByID(w, r, "task_uuid", a.svc.history.transitions)
	if err != nil {
		return nil, err
	}
	return a.ofTask(w, r, v.task, a.svc.clock.now(), v), nil
}

func (a *orchestrationAPI) explainTask(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.explanation(w, r, "task_uuid")
}

func (a *orchestrationAPI) listSteps(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.taskIn(w, r, "task_uuid")
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	return a.ofTask(w, r, t, now, jsonList{len(t.steps), func(o *jsonWriter, i int) {
		t.stepView(i, now, a.svc.workerID).writeJSON(o)
	}}), nil
}

func (a *orchestrationAPI) getStep(w http.ResponseWriter, r *http.Request) (any, error) {
	t, i, err := a.stepIn(w, r, "task_uuid", "step_uuid")
	return a.stepAnswer(w, r, t, i, err)
}

// stepAnswer answers with a step, unless err is not nil. Who may act on steps need not be
// allowed to read their results.
func (a *orchestrationAPI) stepAnswer(w http.ResponseWriter, r *http.Request, t *task, i int, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	v := t.stepView(i, now, a.svc.workerID)
	if !mayReadResults(r.Context()) {
		v.redactResults()
	}
	return a.ofTask(w, r, t, now, v), nil
}

func (a *orchestrationAPI) getAudit(w http.ResponseWriter, r *http.Request) (any, error) {
	t, i, err := a.stepIn(w, r, "task_uuid", "step_uuid") // for the tag, which may be older than the audit
	if err != nil {
		return nil, err
	}
	v, err := a.svc.history.audit(t.id, t.stepID(i), w.(*recorder))
	if err = a.shown(r, t.id, err); err != nil {
		return nil, err
	}
	return a.ofTask(w, r, t, a.svc.clock.now(), v), nil
}

func (a *orchestrationAPI) actOnStep(w http.ResponseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r, "task_uuid", "step_uuid")
	if err != nil {
		return nil, err
	}
	q, err := readAs(r, parseStepRequest)
	if err != nil {
		return nil, err
	}
	if q.who, err = a.actorOf(r); err != nil {
		return nil, err
	}
	t, i, err := a.svc.operator.act(r.Context(), taskID, stepID, q)
	return a.stepAnswer(w, r, t, i, err)
}

func (a *orchestrationAPI) listTemplates(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	namespace := q.text("namespace")
	if err := q.done(); err != nil {
		return nil, err
	}
	all := a.svc.templates.registry()
	return withTag(w, r, weakTag(all.hash()), all.listView(namespace)), a.holdTemplates(w)
}

func (a *orchestrationAPI) getTemplate(w http.ResponseWriter, r *http.Request) (any, error) {
	tpl, err := a.templateIn(w, r, r.PathValue("version"))
	if err != nil {
		return nil, err
	}
	return withTag(w, r, weakTag(tpl.hash), tpl.detailView()), nil
}

// links answers at the root with the main paths.
func (a *orchestrationAPI) links(w http.ResponseWriter, r *http.Request) (any, error) {
	links := map[string]string{
		"tasks": "/v1/tasks", "templates": "/v1/templates", "health": "/health/ready",
		"metrics": "/metrics", "openapi": "/api-docs/openapi.json", "docs": "/api-docs/ui",
	}
	if a.svc.cfg.Console.Enabled {
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

func (a *orchestrationAPI) performance(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	hours := q.number("hours", 24, 1, keptHours)
	if err := q.done(); err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	figures, states := a.svc.store.figures()
	return figures.performance(&states, now, hours), nil
}

func (a *orchestrationAPI) history(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	hours := q.number("hours", 24, 1, keptHours)
	filter := figureFilter{q.text("namespace"), q.text("name"), q.text("version")}
	if err := q.done(); err != nil {
		return nil, err
	}
	figures, _ := a.svc.store.figures()
	if err := w.(*recorder).holdEach(hours+len(figures.templates), 512); err != nil {
		return nil, err
	}
	return figures.history(filter, a.svc.clock.now(), hours), nil
}

func (a *orchestrationAPI) bottlenecks(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	limit := q.number("limit", 10, 1, maxBottlenecks)
	minimum := q.number("min_executions", 5, 0, maxMinExecutions)
	if err := q.done(); err != nil {
		return nil, err
	}
	if err := w.(*recorder).holdEach(2*limit, 256); err != nil {
		return nil, err
	}
	figures, states := a.svc.store.figures()
	return figures.bottlenecks(&states, limit, minimum), nil
}

// Limits and defaults of the requests of outside actors.
const (
	maxClaims          = 100
	maxClaimPatterns   = 100
	maxCallableLength  = 500
	maxWaitSeconds     = 60
	standardLease      = 30
	maxLeaseSeconds    = 24 * 60 * 60
	defaultOutsideName = "outside-actor" // without worker_id and authentication
)

// claimSteps takes the outcomes of steps claimed before, if the request has some, and hands out
// steps.
func (a *orchestrationAPI) claimSteps(w http.ResponseWriter, r *http.Request) (any, error) {
	p, err := readActor(r)
	if err != nil {
		return nil, err
	}
	completed, err := a.answersIn(r, p, "complete", completeVerb)
	if err != nil {
		return nil, err
	}
	failed, err := a.answersIn(r, p, "fail", failVerb)
	if err != nil {
		return nil, err
	}
	q, err := p.claimRequest()
	if err != nil {
		return nil, err
	}
	q.subject, q.wait = subjectOf(r.Context()), min(q.wait, a.validFor(r))
	q.worker = cmp.Or(q.worker, fmt.Sprintf("%.*s", maxNameLength, q.subject), defaultOutsideName)
	if q.wait > 0 {
		release, err := a.holdOpen(w, r, q.wait)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	if completed == nil && failed == nil {
		given, err := a.svc.outside.claim(r.Context(), q)
		return claimsView(given), err
	}
	v := exchangeView{}
	if v.steps, err = a.svc.outside.exchange(r.Context(), slices.Concat(completed, failed), q); err != nil {
		return nil, err
	}
	v.completed, v.failed = a.answeredView(w, r, completed), a.answeredView(w, r, failed)
	return reply{http.StatusMultiStatus, v}, nil
}

// actorReader reads the members of an outside actor's request. Members that are
// null count as absent.
type actorReader struct {
	stepRequestParser
	result []byte // the member result, which may be null
}

func readActor(r *http.Request) (*actorReader, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	return newActorReader(body), nil
}

func newActorReader(body []byte) *actorReader {
	return &actorReader{newStepRequestParser(body), objectMember(body, "result")}
}

// number reads an integer from lo to hi. If it is absent, number returns standard.
func (p *actorReader) number(key string, standard, lo, hi int64) int64 {
	raw, ok := p.members[key]
	if !ok {
		return standard
	}
	n, ok := jsonInt(raw)
	if !ok || n < lo || n > hi {
		p.complain(key, "must be an integer from %d to %d", lo, hi)
	}
	return n
}

func (p *actorReader) seconds(key string, standard, lo, hi int64) time.Duration {
	return time.Duration(p.number(key, standard, lo, hi)) * time.Second
}

func (p *actorReader) claimRequest() (*claimRequest, error) {
	q := &claimRequest{
		callables:  p.names("callables", maxCallableLength),
		namespaces: p.names("namespaces", maxNameLength),
		limit:      int(p.number("limit", 1, 1, maxClaims)),
		lease:      p.seconds("lease_seconds", standardLease, 1, maxLeaseSeconds),
		wait:       p.seconds("wait_seconds", 0, 0, maxWaitSeconds),
	}
	if q.callables == nil && !p.complainedOf("callables") {
		p.complain("callables", "is required")
	}
	for i, pattern := range q.callables {
		q.callables[i] = redactName(pattern)
	}
	if raw, ok := p.members["worker_id"]; ok {
		q.worker = p.text("worker_id", raw, 1, maxNameLength)
	}
	return q, p.failure("no steps can be claimed")
}

// names reads an array of strings. It returns nil if the array is absent.
func (p *actorReader) names(key string, longest int) (names []string) {
	p.array(key, "an array of 1 to %d strings", 1, maxClaimPatterns, func(i int, e []byte) {
		names = append(names, p.text(fmt.Sprintf("%s[%d]", key, i), e, 1, longest))
	})
	return names
}

// array calls f for the elements of an array of least to most elements, if there is one. form says
// what it must be.
func (p *actorReader) array(key, form string, least, most int, f func(i int, e []byte)) {
	raw, ok := p.members[key]
	if !ok {
		return
	}
	n := 0
	ok = eachElement(raw, func(e []byte) bool {
		if n++; n <= most {
			f(n-1, e)
		}
		return n <= most
	})
	if !ok || n < least || n > most {
		p.complain(key, "must be "+form, most)
	}
}

// claimsView lists claimed steps: the envelope of each, and its lease.
type claimsView []claimedStep

func (v claimsView) writeJSON(o *jsonWriter) {
	o.list(len(v), func(i int) {
		c := &v[i]
		if o.holdElement(c.attempt.envelopeSize()) != nil {
			return
		}
		o.b = c.attempt.envelope(o.b)
		o.b = o.b[:len(o.b)-1]
		o.text("callable", c.callable)
		o.text("lease", c.token)
		o.zoned("lease_expires_at", c.lease.until)
		o.b = append(o.b, '}')
	})
}

// answerClaim reads an answer to a claimed step and passes it to the service. read
// reads the members that belong to the verb.
func (a *orchestrationAPI) answerClaim(
	w http.ResponseWriter, r *http.Request, verb leaseVerb, read func(*actorReader, *leaseAnswer),
) (v stepView, err error) {
	q := &stepAnswer{leaseAnswer: leaseAnswer{verb: verb, subject: subjectOf(r.Context())}}
	if q.step, err = pathID(r, "step_uuid"); err != nil {
		return v, err
	}
	p, err := readActor(r)
	if err != nil {
		return v, err
	}
	if q.seen, err = a.seenVersions(r); err != nil {
		return v, err
	}
	if err = a.readAnswer(p, q, read); err != nil {
		return v, err
	}
	if v, err = a.svc.outside.answer(r.Context(), q); err == nil {
		w.Header()["Cache-Control"] = privately
		w.Header()["Etag"] = []string{a.versionTag(q.version, hiddenFrom(r.Context()))}
	}
	return v, err
}

// readAnswer reads the members of an answer.
func (a *orchestrationAPI) readAnswer(p *actorReader, q *stepAnswer, read func(*actorReader, *leaseAnswer)) error {
	q.setLease(p.required("lease", maxNameLength))
	read(p, &q.leaseAnswer)
	if err := p.failure("cannot " + string(q.verb) + " the step"); err != nil {
		return err
	}
	return a.svc.cfg.Worker.checkSize(&q.outcome)
}

// Many answers at once: each is an outcome with its step, and is answered by itself as alone.

// completeAll and failAll take the outcomes of many claimed steps.
func (a *orchestrationAPI) completeAll(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.answerAll(w, r, completeVerb)
}

func (a *orchestrationAPI) failAll(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.answerAll(w, r, failVerb)
}

func (a *orchestrationAPI) answerAll(w http.ResponseWriter, r *http.Request, verb leaseVerb) (any, error) {
	p, err := readActor(r)
	if err != nil {
		return nil, err
	}
	if p.members["steps"] == nil {
		p.complain("steps", "is required")
	}
	answers, err := a.answersIn(r, p, "steps", verb)
	if err = cmp.Or(err, p.failure("no step is changed")); err != nil {
		return nil, err
	}
	seq, err := a.svc.outside.take(r.Context(), answers)
	if err = cmp.Or(err, a.svc.store.wait(r.Context(), seq)); err != nil {
		return nil, err
	}
	return reply{http.StatusMultiStatus, a.answeredView(w, r, answers)}, nil
}

// answersIn reads an array of answers, nil if it is absent. An answer that is wrong is refused by
// itself.
func (a *orchestrationAPI) answersIn(r *http.Request, p *actorReader, key string, verb leaseVerb) ([]*stepAnswer, error) {
	seen, err := a.seenVersions(r)
	if err != nil || p.members[key] == nil {
		return nil, err
	}
	answers := []*stepAnswer{}
	p.array(key, "an array of at most %d outcomes", 0, maxClaims, func(_ int, e []byte) {
		q := &stepAnswer{leaseAnswer: leaseAnswer{verb: verb, subject: subjectOf(r.Context()), seen: seen}}
		q.err = a.readStepAnswer(e, q)
		answers = append(answers, q)
	})
	return answers, nil
}

// readStepAnswer reads an answer that names its step.
func (a *orchestrationAPI) readStepAnswer(text []byte, q *stepAnswer) (err error) {
	if jsonKind(text) != '{' {
		return failf(badRequest, "an outcome must be a JSON object")
	}
	p := newActorReader(text)
	if word := p.required("step_uuid", maxNameLength); word != "" {
		if q.step, err = idNamed("step_uuid", word); err != nil {
			return err
		}
	}
	return a.readAnswer(p, q, outcomeReaders[q.verb])
}

// answeredStep says what became of an answer.
type answeredStep struct {
	step       uuid // zero if it names none
	status     int
	state, tag string     // of the step after it, unless it was refused
	refused    *errorView // nil if it was not
}

// answeredView lists what became of answers, in their order.
type answeredView []answeredStep

func (a *orchestrationAPI) answeredView(w http.ResponseWriter, r *http.Request, answers []*stepAnswer) answeredView {
	if answers == nil {
		return nil
	}
	v, hidden := make(answeredView, len(answers)), hiddenFrom(r.Context())
	for i, q := range answers {
		if q.err == nil {
			v[i] = answeredStep{q.step, http.StatusOK, q.view.CurrentState, a.versionTag(q.version, hidden), nil}
			continue
		}
		f := a.failureOf(w, r, q.err)
		v[i] = answeredStep{step: q.step, status: a.status(f.kind), refused: newErrorView(f, w.(*recorder).requestID)}
	}
	return v
}

func (v answeredView) writeJSON(o *jsonWriter) { o.list(len(v), func(i int) { v[i].write(o) }) }

func (s *answeredStep) write(o *jsonWriter) {
	o.b = append(o.b, '{')
	if s.step.isZero() {
		o.raw("step_uuid", nil)
	} else {
		o.id("step_uuid", s.step)
	}
	o.number("status", s.status)
	if s.refused == nil {
		o.text("current_state", s.state)
		o.text("etag", s.tag)
	} else {
		o.name("error")
		o.value(s.refused.Error)
	}
	o.b = append(o.b, '}')
}

// exchangeView is the answer to a claim with outcomes.
type exchangeView struct {
	completed, failed answeredView // nil if the request has none
	steps             claimsView
}

func (v exchangeView) writeJSON(o *jsonWriter) {
	o.b = append(o.b, '{')
	if v.completed != nil {
		o.name("complete")
		v.completed.writeJSON(o)
	}
	if v.failed != nil {
		o.name("fail")
		v.failed.writeJSON(o)
	}
	o.name("steps")
	v.steps.writeJSON(o)
	o.b = append(o.b, '}')
}

// leaseView is the answer to an extended lease.
type leaseView struct {
	StepUUID       uuid      `json:"step_uuid"`
	LeaseExpiresAt zonedTime `json:"lease_expires_at"`
}

func (a *orchestrationAPI) extendLease(w http.ResponseWriter, r *http.Request) (any, error) {
	var given *leaseAnswer
	v, err := a.answerClaim(w, r, extendVerb, func(p *actorReader, q *leaseAnswer) {
		q.lease = p.seconds("lease_seconds", standardLease, 1, maxLeaseSeconds)
		given = q
	})
	if err != nil {
		return nil, err
	}
	return leaseView{v.StepUUID, zonedTime(given.until)}, nil
}

// outcomeReaders read the members of an answer that belong to its verb.
var outcomeReaders = map[leaseVerb]func(*actorReader, *leaseAnswer){
	completeVerb: func(p *actorReader, q *leaseAnswer) {
		q.outcome.success = true
		if p.result == nil {
			p.complain("result", "is required")
		}
		q.outcome.result = compactResult(p.result)
		if raw, ok := p.members["metadata"]; ok {
			q.outcome.metadata = p.object("metadata", raw)
		}
	},
	failVerb: func(p *actorReader, q *leaseAnswer) {
		var action stepRequest
		p.stepError(&action)
		q.outcome.err = action.err
		q.outcome.retryAfter = p.seconds("retry_after", 0, 0, int64(maxRetryAfter/time.Second))
	},
}

func (a *orchestrationAPI) completeClaimed(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.answerClaim(w, r, completeVerb, outcomeReaders[completeVerb])
}

func (a *orchestrationAPI) failClaimed(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.answerClaim(w, r, failVerb, outcomeReaders[failVerb])
}

// yieldClaimed gives a claimed step back with a checkpoint, from which it goes on.
func (a *orchestrationAPI) yieldClaimed(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.answerClaim(w, r, yieldVerb, func(p *actorReader, q *leaseAnswer) {
		var given templateObject
		for key, value := range p.members {
			given = append(given, templateMember{key, value})
		}
		given.sort()
		data, problem := readCheckpoint(given.json())
		if q.outcome = (outcome{success: true, checkpoint: data}); problem != "" {
			field, message, _ := strings.Cut(strings.TrimPrefix(problem, checkpointMember+"."), " ")
			p.complain(field, "%s", message)
		}
	})
}

// listOutsideSteps lists the steps that outside actors can claim or have claimed.
func (a *orchestrationAPI) listOutsideSteps(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	limit := q.number("limit", 50, 1, 500)
	offset := q.number("offset", 0, 0, 10000)
	state := cmp.Or(queryWord(q, "state", parseStepState, stepStateNames[:]), new(stepEnqueued))
	if q.err == nil && *state != stepEnqueued && *state != stepInProgress {
		q.refuse("state: only steps that are %s or %s can be listed here, not %s", stepEnqueued, stepInProgress, *state)
	}
	callable, namespace := redactName(q.text("callable")), q.text("namespace")
	if err := q.done(); err != nil {
		return nil, err
	}
	matches := func(key claimKey) bool {
		return (callable == "" || fitsCallable(callable, key.callable)) && (namespace == "" || namespace == key.namespace)
	}
	if err := w.(*recorder).holdEach(limit, 512); err != nil {
		return nil, err
	}
	v := a.svc.outside.steps(*state == stepInProgress, matches, offset, limit)
	return v, a.svc.store.waitAll(r.Context())
}

// The dead letter queue, staleness and summaries.

// maxDLQLimit is the largest number of entries or tasks in one answer.
const maxDLQLimit = 1000

func (a *orchestrationAPI) listDLQ(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f := dlqFilter{
		queryWord(q, "resolution_status", parseDLQStatus, dlqStatusNames[:]),
		queryWord(q, "dlq_reason", parseDLQReason, dlqReasonNames[:]),
	}
	limit, offset := q.number("limit", 50, 1, maxDLQLimit), q.number("offset", 0, 0, 1<<31-1)
	if err := q.done(); err != nil {
		return nil, err
	}
	if err := w.(*recorder).holdEach(limit, 256); err != nil {
		return nil, err
	}
	v := a.svc.dlq.entries(f, offset, limit, mayReadResults(r.Context()))
	return v, a.svc.store.waitAll(r.Context())
}

func (a *orchestrationAPI) getTaskDLQ(w http.ResponseWriter, r *http.Request) (any, error) {
	v, err := heldByID(w, r, "task_uuid", func(id uuid, by holder) (*dlqTaskView, error) {
		return a.svc.dlq.ofTask(id, mayReadResults(r.Context()), by)
	})
	if err != nil {
		return nil, err
	}
	return a.ofTask(w, r, v.task, a.svc.clock.now(), v), nil
}

func (a *orchestrationAPI) dlqQueue(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	reason := queryWord(q, "dlq_reason", parseDLQReason, dlqReasonNames[:])
	limit := q.number("limit", 100, 1, maxDLQLimit)
	if err := q.done(); err != nil {
		return nil, err
	}
	if err := w.(*recorder).holdEach(limit, 512); err != nil {
		return nil, err
	}
	v, err := a.svc.dlq.queue(reason, limit)
	return v, cmp.Or(err, a.svc.store.waitAll(r.Context()))
}

func (a *orchestrationAPI) staleness(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	limit := q.number("limit", 100, 1, maxDLQLimit)
	if err := q.done(); err != nil {
		return nil, err
	}
	if err := w.(*recorder).holdEach(limit, 512); err != nil {
		return nil, err
	}
	v := a.svc.staleness.report(limit)
	return v, a.svc.store.waitAll(r.Context())
}

func (a *orchestrationAPI) dlqStats(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return a.svc.dlq.stats(), nil
}

// dlqUpdateView is the answer to an update of an entry.
type dlqUpdateView struct {
	Success      bool   `json:"success"`
	Message      string `json:"message"`
	DLQEntryUUID uuid   `json:"dlq_entry_uuid"`
}

func (a *orchestrationAPI) updateDLQ(_ http.ResponseWriter, r *http.Request) (any, error) {
	id, err := pathID(r, "dlq_entry_uuid")
	if err != nil {
		return nil, err
	}
	q, err := readAs(r, parseInvestigation)
	if err != nil {
		return nil, err
	}
	seen, err := a.seenVersions(r)
	if err != nil {
		return nil, err
	}
	if err := a.svc.dlq.update(r.Context(), id, q, seen); err != nil {
		return nil, err
	}
	return dlqUpdateView{true, "DLQ entry updated", id}, nil
}

// parseInvestigation reads the body of an update, an object. Its failure names
// every invalid member.
func parseInvestigation(body []byte) (*investigation, error) {
	q := &investigation{status: noDLQStatus}
	var f fieldReader
	eachMember(body, func(key string, raw []byte) bool {
		if jsonKind(raw) != 'n' {
			q.field(&f, key, raw)
		}
		return true
	})
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

func (a *orchestrationAPI) getSummary(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.taskIn(w, r, "task_uuid")
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	v := t.summary(now)
	v.Links = summaryLinksOf(r, t.id)
	return a.ofTask(w, r, t, now, v), nil
}

// summaryLinksOf returns links under the prefix that the caller used.
func summaryLinksOf(r *http.Request, id uuid) summaryLinks {
	path := taskPath(r, id)
	return summaryLinks{
		Task: path, Steps: path + "/workflow_steps", DLQ: strings.Replace(path, "/v1/tasks/", "/v1/dlq/task/", 1),
	}
}

// consoleRoutes returns the console's rows.
func (a *orchestrationAPI) consoleRoutes() []route {
	return []route{
		{"GET /console", public, a.consolePage},
		{"GET /console/{page...}", public, a.consolePage},
		{"GET /console/web/{build}/{file}", public, a.consoleFile},
	}
}

// isConsole reports whether a row belongs to the console.
func (r route) isConsole() bool { return strings.HasPrefix(r.pattern, "GET "+consolePath) }

// consolePage answers with the one page, which shows what its path names.
func (a *orchestrationAPI) consolePage(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.console().pageAt(r.URL.EscapedPath()).reply(w, r), nil
}

// consoleFile answers with a file of the page. A browser keeps it for good, unless its path
// names another build, as after an upgrade.
func (a *orchestrationAPI) consoleFile(w http.ResponseWriter, r *http.Request) (any, error) {
	site := a.console()
	text, ok := site.files[r.PathValue("file")]
	if !ok {
		return nil, failf(notFound, "no such path: %s", r.URL.Path)
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
	if r.PathValue("build") == site.build {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	return textReply{"text/javascript; charset=utf-8", [][]byte{text}}, nil
}
