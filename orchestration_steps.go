package main

// The orchestration role's API for outside actors: listing steps, claiming them,
// and answering under a lease.

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Limits of what outside actors ask for.
const (
	maxClaims          = 100
	maxClaimPatterns   = 100
	maxCallableLength  = 500
	maxWaitSeconds     = 60
	standardLease      = 30
	maxLeaseSeconds    = 24 * 60 * 60
	defaultOutsideName = "outside-actor" // of one that gives no worker_id, without authentication
)

func (a *orchestrationAPI) claimSteps(w http.ResponseWriter, r *http.Request) (any, error) {
	p, err := readActor(r)
	if err != nil {
		return nil, err
	}
	q, err := p.claimRequest()
	if err != nil {
		return nil, err
	}
	q.subject = subjectOf(r.Context())
	q.worker = cmp.Or(q.worker, firstCharacters(q.subject, maxNameLength), defaultOutsideName)
	// A read deadline that passes while a handler works would cancel its request.
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	given, err := a.svc.outside.claim(r.Context(), q)
	if err != nil {
		return nil, err
	}
	return claimsView(given), nil
}

func firstCharacters(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}

// actorReader reads the members of an outside actor's request.
type actorReader struct {
	stepRequestParser
	result []byte // the member of that name, which alone may be null
}

func readActor(r *http.Request) (*actorReader, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	p := &actorReader{stepRequestParser: stepRequestParser{members: map[string][]byte{}}}
	eachMember(body, func(key string, raw []byte) bool {
		if key == "result" {
			p.result = raw
		}
		if jsonKind(raw) != 'n' {
			p.members[key] = raw
		}
		return true
	})
	return p, nil
}

// number reads an integer from lo to hi; when it is not given it is the standard.
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
	if raw, ok := p.members["worker_id"]; ok {
		q.worker = p.text("worker_id", raw, 1, maxNameLength)
	}
	return q, p.failure("no steps can be claimed")
}

// names reads an array of strings; nil when it is not given.
func (p *actorReader) names(key string, longest int) (names []string) {
	raw, ok := p.members[key]
	if !ok {
		return nil
	}
	ok = eachElement(raw, func(e []byte) bool {
		names = append(names, p.text(fmt.Sprintf("%s[%d]", key, len(names)), e, 1, longest))
		return len(names) <= maxClaimPatterns
	})
	if jsonKind(raw) != '[' || ok && len(names) == 0 || len(names) > maxClaimPatterns {
		p.complain(key, "must be an array of 1 to %d strings", maxClaimPatterns)
	}
	return names
}

// claimsView is what a claimer gets: the envelope of each step, and its lease.
type claimsView []claim

func (v claimsView) appendJSON(b []byte) []byte {
	b = append(b, '[')
	for i, c := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.attempt.envelope(b)
		b = appendJSONString(append(b[:len(b)-1], `,"callable":`...), c.callable)
		b = append(b, `,"lease":"`...)
		b = append(b, c.token...)
		b = append(b, `","lease_expires_at":"`...)
		b = c.lease.until.appendZoned(b)
		b = append(b, '"', '}')
	}
	return append(b, ']')
}

// answer reads what the three ways to answer have in common, and takes the answer.
func (a *orchestrationAPI) answer(
	r *http.Request, verb leaseVerb, read func(*actorReader, *leaseAnswer),
) (v stepView, err error) {
	id, err := pathID(r, "step_uuid")
	if err != nil {
		return v, err
	}
	p, err := readActor(r)
	if err != nil {
		return v, err
	}
	q := &leaseAnswer{verb: verb, subject: subjectOf(r.Context())}
	q.setLease(p.required("lease", maxNameLength))
	read(p, q)
	if err := p.failure("cannot " + string(verb) + " the step"); err != nil {
		return v, err
	}
	if limit := a.svc.cfg.Worker.MaxResultBytes; int64(len(q.outcome.result)) > limit {
		return v, failf(tooLarge, "the result is larger than worker.max_result_bytes, %d", limit)
	}
	return a.svc.outside.answer(r.Context(), id, q)
}

// leaseView says how long a lease holds.
type leaseView struct {
	StepUUID       uuid      `json:"step_uuid"`
	LeaseExpiresAt zonedTime `json:"lease_expires_at"`
}

func (a *orchestrationAPI) extendLease(_ http.ResponseWriter, r *http.Request) (any, error) {
	var given *leaseAnswer
	v, err := a.answer(r, extendVerb, func(p *actorReader, q *leaseAnswer) {
		q.lease = p.seconds("lease_seconds", standardLease, 1, maxLeaseSeconds)
		given = q
	})
	if err != nil {
		return nil, err
	}
	return leaseView{v.StepUUID, zonedTime(given.until)}, nil
}

func (a *orchestrationAPI) completeClaimed(_ http.ResponseWriter, r *http.Request) (any, error) {
	v, err := a.answer(r, completeVerb, func(p *actorReader, q *leaseAnswer) {
		q.outcome.success = true
		if p.result == nil {
			p.complain("result", "is required")
		}
		q.outcome.result = compactResult(p.result)
		if raw, ok := p.members["metadata"]; ok {
			q.outcome.metadata = p.object("metadata", raw)
		}
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (a *orchestrationAPI) failClaimed(_ http.ResponseWriter, r *http.Request) (any, error) {
	v, err := a.answer(r, failVerb, func(p *actorReader, q *leaseAnswer) {
		var action stepRequest
		p.stepError(&action)
		q.outcome.err = action.err
		q.outcome.retryAfter = p.seconds("retry_after", 0, 0, int64(maxRetryAfter/time.Second))
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// listOutsideSteps lists the steps that outside actors can claim, or have.
func (a *orchestrationAPI) listOutsideSteps(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	limit := q.number("limit", 50, 1, 500)
	offset := q.number("offset", 0, 0, 10000)
	claimed := q.claimedSteps()
	if q.err != nil {
		return nil, q.err
	}
	callable, namespace := q.text("callable"), q.text("namespace")
	matches := func(key claimKey) bool {
		return (callable == "" || fitsCallable(callable, key.callable)) && (namespace == "" || namespace == key.namespace)
	}
	return a.svc.outside.steps(claimed, matches, offset, limit), nil
}

// claimedSteps reads the state that is listed: of the claimed steps, or of those
// that can be.
func (q *query) claimedSteps() bool {
	word := cmp.Or(q.text("state"), stepEnqueued.String())
	state, known := parseStepState(word)
	switch {
	case q.err != nil:
	case !known:
		q.err = failf(badRequest, "state: %.60q is none of %s", word, strings.Join(stepStateNames[:], ", "))
	case state != stepEnqueued && state != stepInProgress:
		q.err = failf(badRequest, "state: steps can be listed here that are %s or %s, not %s",
			stepEnqueued, stepInProgress, state)
	}
	return state == stepInProgress
}

// The dead letter queue, staleness and summaries on the orchestration role's
// surface: what requests say, and the form of updates.

// maxDLQLimit bounds how many entries or tasks one answer holds.
const maxDLQLimit = 1000

// dlqStatus and dlqReason read the filters of lists of entries.
func (q *query) dlqStatus() *dlqStatus {
	return queryWord(q, "resolution_status", parseDLQStatus, dlqStatusNames[:])
}

func (q *query) dlqReason() *dlqReason {
	return queryWord(q, "dlq_reason", parseDLQReason, dlqReasonNames[:])
}

// queryWord reads a filter for one of some words; absent or blank it is nil.
func queryWord[T any](q *query, name string, parse func(string) (T, bool), words []string) *T {
	word := q.values.Get(name)
	if word == "" {
		return nil
	}
	v, ok := parse(word)
	if !ok && q.err == nil {
		q.err = failf(badRequest, "%s: %.60q is none of %s", name, word, strings.Join(words, ", "))
	}
	return &v
}

func (a *orchestrationAPI) listDLQ(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f := dlqFilter{q.dlqStatus(), q.dlqReason()}
	limit, offset := q.number("limit", 50, 1, maxDLQLimit), q.number("offset", 0, 0, 1<<31-1)
	if q.err != nil {
		return nil, q.err
	}
	return a.svc.dlq.entries(f, offset, limit)
}

func (a *orchestrationAPI) getTaskDLQ(_ http.ResponseWriter, r *http.Request) (any, error) {
	id, err := pathID(r, "task_uuid")
	if err != nil {
		return nil, err
	}
	return a.svc.dlq.ofTask(id)
}

func (a *orchestrationAPI) dlqQueue(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	reason := q.dlqReason()
	limit := q.number("limit", 100, 1, maxDLQLimit)
	if q.err != nil {
		return nil, q.err
	}
	return a.svc.dlq.queue(reason, limit)
}

func (a *orchestrationAPI) staleness(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	limit := q.number("limit", 100, 1, maxDLQLimit)
	if q.err != nil {
		return nil, q.err
	}
	return a.svc.staleness.report(limit), nil
}

func (a *orchestrationAPI) dlqStats(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return a.svc.dlq.stats(), nil
}

// dlqUpdateView answers an update of an entry.
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
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	q, err := parseInvestigation(body)
	if err != nil {
		return nil, err
	}
	if err := a.svc.dlq.update(r.Context(), id, q); err != nil {
		return nil, err
	}
	return dlqUpdateView{true, "DLQ entry updated", id}, nil
}

// parseInvestigation reads the body of an update. A failure of the kind
// invalidFields names every offending field.
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

func (a *orchestrationAPI) getSummary(_ http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.taskIn(r)
	if err != nil {
		return nil, err
	}
	v := t.summary(a.svc.clock.now())
	v.Links = summaryLinksOf(r, t.id)
	return v, nil
}

// summaryLinksOf is where more is found, under the prefix that the caller used.
func summaryLinksOf(r *http.Request, id uuid) summaryLinks {
	path := taskPath(r, id)
	return summaryLinks{
		Task: path, Steps: path + "/workflow_steps", DLQ: strings.Replace(path, "/v1/tasks/", "/v1/dlq/task/", 1),
	}
}
