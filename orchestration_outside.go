package main

// Steps for outside actors: listing and claiming them, and the answers under a lease.

import (
	"cmp"
	"fmt"
	"net/http"
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

// claimSteps hands out steps.
func (a *orchestrationAPI) claimSteps(w *responseWriter, r *http.Request) (any, error) {
	q, err := readAs(r, parseClaim)
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
	given, err := a.surface.svc.outside.claim(r.Context(), q)
	return claimsView(given), err
}

// actorReader reads the members of an outside actor's request. Members that are null count as absent.
type actorReader struct{ stepRequestParser }

func (p *actorReader) seconds(key string, standard int, lo, hi int64) time.Duration {
	return time.Duration(p.optionalCount(key, standard, lo, hi)) * time.Second
}

// parseClaim reads the body of a claim.
func parseClaim(body []byte) (*claimRequest, error) {
	p := &actorReader{stepRequestParser{body: body}}
	q := &claimRequest{
		callables:  p.names("callables", maxCallableLength),
		namespaces: p.names("namespaces", maxNameLength),
		limit:      p.optionalCount("limit", 1, 1, maxClaims),
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
	q.worker = p.optionalText("worker_id", maxNameLength)
	return q, p.failure("no steps can be claimed")
}

// names reads an array of strings. It returns nil if the array is absent.
func (p *actorReader) names(key string, longest int) (names []string) {
	if raw := p.member(key); raw != nil {
		p.array(key, raw, maxClaimPatterns, "strings", func(at string, e []byte) {
			names = append(names, p.text(at, e, 1, longest))
		})
	}
	return names
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
	body, err := readBody(r)
	if err != nil {
		return v, err
	}
	p := &actorReader{stepRequestParser{body: body}}
	if q.seen, err = a.surface.seenVersions(r); err != nil {
		return v, err
	}
	q.setLease(p.required("lease", maxNameLength))
	read(p, &q.leaseAnswer)
	if err = p.failure("cannot " + string(verb) + " the step"); err != nil {
		return v, err
	}
	if err = a.surface.svc.cfg.Worker.checkSize(&q.outcome); err != nil {
		return v, err
	}
	if v, err = a.surface.svc.outside.answer(r.Context(), q); err == nil {
		hintMisfits(w, "/result", q.outcome.doubts)
		w.Header()["Cache-Control"] = privately
		w.Header()["Etag"] = []string{a.surface.versionTag(q.version, hiddenFrom(r.Context()))}
	}
	return v, err
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
	claimed := q.oneOf("state", stepEnqueued.String(), stepInProgress.String()) == stepInProgress.String()
	byDeadline := q.oneOf("sort", "claim", "answer_due_at") == "answer_due_at"
	// Callables are compared as they are shown.
	callable, namespace, people := redactName(q.text("callable")), q.text("namespace"), q.flag("for_person")
	if err := q.doneHolding(w, limit, 512); err != nil {
		return nil, err
	}
	matches := func(key claimKey) bool {
		return (callable == "" || fitsPattern(callable, key.callable)) && (namespace == "" || namespace == key.namespace) &&
			(!people || a.surface.svc.outside.people.has(key.callable))
	}
	v := a.surface.svc.outside.steps(claimed, mayReadContexts(r.Context()), byDeadline, matches, offset, limit)
	return v, a.surface.svc.store.waitAll(r.Context())
}
