package main

// Steps for outside actors: listing and claiming them, and the answers under a lease.

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

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
func (a *orchestrationAPI) claimSteps(w *responseWriter, r *http.Request) (any, error) {
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
	// No step is given out after the caller's credential has expired.
	q.subject, q.wait = subjectOf(r.Context()), min(q.wait, a.surface.validFor(r))
	q.worker = cmp.Or(q.worker, fmt.Sprintf("%.*s", maxNameLength, q.subject), defaultOutsideName)
	if q.wait > 0 {
		release, err := a.surface.holdOpen(w, r, q.wait)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	if completed == nil && failed == nil {
		given, err := a.surface.svc.outside.claim(r.Context(), q)
		return claimsView(given), err
	}
	v := exchangeView{}
	if v.steps, err = a.surface.svc.outside.exchange(r.Context(), slices.Concat(completed, failed), q); err != nil {
		return nil, err
	}
	v.completed, v.failed = a.answeredView(w, r, completed), a.answeredView(w, r, failed)
	return reply{http.StatusMultiStatus, v}, nil
}

// actorReader reads the members of an outside actor's request. Members that are
// null count as absent.
type actorReader struct{ stepRequestParser }

func readActor(r *http.Request) (*actorReader, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	return newActorReader(body), nil
}

func newActorReader(body []byte) *actorReader { return &actorReader{stepRequestParser{body: body}} }

// number reads an integer from lo to hi. If it is absent, number returns standard.
func (p *actorReader) number(key string, standard, lo, hi int64) int64 {
	raw := p.member(key)
	if raw == nil {
		return standard
	}
	return int64(p.count(key, raw, lo, hi))
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
		// A callable can be a URL with a password, which actors see and name in its redacted form.
		q.callables[i] = redactName(pattern)
	}
	if raw := p.member("worker_id"); raw != nil {
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
	raw := p.member(key)
	if raw == nil {
		return
	}
	n := 0
	ok := eachElement(raw, func(e []byte) bool {
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
		// Without its last brace, for the members that only a claim has.
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
	w *responseWriter, r *http.Request, verb leaseVerb, read func(*actorReader, *leaseAnswer),
) (v stepView, err error) {
	q := &stepAnswer{leaseAnswer: leaseAnswer{verb: verb, subject: subjectOf(r.Context())}}
	if q.step, err = pathID(r, "step_uuid"); err != nil {
		return v, err
	}
	p, err := readActor(r)
	if err != nil {
		return v, err
	}
	if q.seen, err = a.surface.seenVersions(r); err != nil {
		return v, err
	}
	if err = a.readAnswer(p, q, read); err != nil {
		return v, err
	}
	if v, err = a.surface.svc.outside.answer(r.Context(), q); err == nil {
		w.Header()["Cache-Control"] = privately
		w.Header()["Etag"] = []string{a.surface.versionTag(q.version, hiddenFrom(r.Context()))}
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
	return a.surface.svc.cfg.Worker.checkSize(&q.outcome)
}

// Many answers at once: each is an outcome with its step, and gets the response that it would get alone.

// answerAll returns the handler that takes the outcomes of many claimed steps.
func (a *orchestrationAPI) answerAll(verb leaseVerb) handlerFunc {
	return func(w *responseWriter, r *http.Request) (any, error) {
		p, err := readActor(r)
		if err != nil {
			return nil, err
		}
		if p.member("steps") == nil {
			p.complain("steps", "is required")
		}
		answers, err := a.answersIn(r, p, "steps", verb)
		if err = cmp.Or(err, p.failure("no step is changed")); err != nil {
			return nil, err
		}
		// All answers share one wait for the disk.
		seq, err := a.surface.svc.outside.take(r.Context(), answers)
		if err = cmp.Or(err, a.surface.svc.store.wait(r.Context(), seq)); err != nil {
			return nil, err
		}
		return reply{http.StatusMultiStatus, a.answeredView(w, r, answers)}, nil
	}
}

// answersIn reads an array of answers, nil if it is absent. An answer that is wrong is refused by
// itself.
func (a *orchestrationAPI) answersIn(r *http.Request, p *actorReader, key string, verb leaseVerb) ([]*stepAnswer, error) {
	seen, err := a.surface.seenVersions(r)
	if err != nil || p.member(key) == nil {
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

func (a *orchestrationAPI) answeredView(w *responseWriter, r *http.Request, answers []*stepAnswer) answeredView {
	if answers == nil {
		return nil
	}
	v, hidden := make(answeredView, len(answers)), hiddenFrom(r.Context())
	for i, q := range answers {
		if q.err == nil {
			v[i] = answeredStep{q.step, http.StatusOK, q.view.step.state.String(), a.surface.versionTag(q.version, hidden), nil}
			continue
		}
		f := a.surface.failureOf(w, r, q.err)
		v[i] = answeredStep{step: q.step, status: a.surface.status(f.kind), refused: &errorView{f, w.requestID}}
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
		s.refused.write(o)
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

func (a *orchestrationAPI) extendLease(w *responseWriter, r *http.Request) (any, error) {
	var given *leaseAnswer
	v, err := a.answerClaim(w, r, extendVerb, func(p *actorReader, q *leaseAnswer) {
		q.lease = p.seconds("lease_seconds", standardLease, 1, maxLeaseSeconds)
		given = q
	})
	if err != nil {
		return nil, err
	}
	return leaseView{v.id, zonedTime(given.until)}, nil
}

// outcomeReaders read the members of an answer that belong to its verb.
var outcomeReaders = map[leaseVerb]func(*actorReader, *leaseAnswer){
	completeVerb: func(p *actorReader, q *leaseAnswer) {
		q.outcome.success = true
		result := objectMember(p.body, "result") // which may be null
		if result == nil {
			p.complain("result", "is required")
		}
		q.outcome.result = compactResult(result)
		if raw := p.member("metadata"); raw != nil {
			q.outcome.metadata = p.object("metadata", raw)
		}
	},
	failVerb: func(p *actorReader, q *leaseAnswer) {
		var action stepRequest
		p.stepError(&action)
		q.outcome.err = action.err
		q.outcome.retryAfter = p.seconds("retry_after", 0, 0, int64(maxRetryAfter/time.Second))
	},
	yieldVerb: func(p *actorReader, q *leaseAnswer) { // the step continues from the checkpoint
		data, problem := readCheckpoint(p.body)
		if q.outcome = (outcome{success: true, checkpoint: data}); problem != "" {
			field, message, _ := strings.Cut(strings.TrimPrefix(problem, checkpointMember+"."), " ")
			p.complain(field, "%s", message)
		}
	},
}

// answerOne returns the handler that takes the outcome of a claimed step.
func (a *orchestrationAPI) answerOne(verb leaseVerb) handlerFunc {
	return func(w *responseWriter, r *http.Request) (any, error) {
		return a.answerClaim(w, r, verb, outcomeReaders[verb])
	}
}

// listOutsideSteps lists the steps that outside actors can claim or have claimed.
func (a *orchestrationAPI) listOutsideSteps(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	limit := q.number("limit", 50, 1, 500)
	offset := q.number("offset", 0, 0, 10000)
	state := cmp.Or(queryWord(q, "state", parseStepState, stepStateNames[:]), new(stepEnqueued))
	if q.err == nil && *state != stepEnqueued && *state != stepInProgress {
		q.refuse("state: only steps that are %s or %s can be listed here, not %s", stepEnqueued, stepInProgress, *state)
	}
	// Callables are compared as they are shown.
	callable, namespace, people := redactName(q.text("callable")), q.text("namespace"), q.flag("for_person")
	if err := q.doneHolding(w, limit, 512); err != nil {
		return nil, err
	}
	matches := func(key claimKey) bool {
		return (callable == "" || fitsPattern(callable, key.callable)) && (namespace == "" || namespace == key.namespace) &&
			(!people || a.surface.svc.outside.people.has(key.callable))
	}
	v := a.surface.svc.outside.steps(*state == stepInProgress, mayReadContexts(r.Context()), matches, offset, limit)
	return v, a.surface.svc.store.waitAll(r.Context())
}
