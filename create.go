package main

// Creating a task: its payload and the rules for every field, the template it
// names, and its identity.

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of the creation payload, in characters.
const (
	maxNameLength   = 255
	maxReasonLength = 500
	maxTags         = 100
	priorityLimit   = 100 // priorities beyond ±this are clamped
)

// taskRequest is the payload of a creation, read and checked field by field.
type taskRequest struct {
	name, namespace, version string
	context                  []byte // JSON object, compact; nil when not given
	initiator, source        string
	reason                   string
	tags                     []string
	priority                 int
	correlation, parent      uuid
	key                      string
	requested                instant
	options                  []byte
	traceparent              string
	subject                  string // the authenticated caller, or ""
}

// parseTaskRequest reads a payload that passed checkJSON. A failure of the kind
// invalidFields names every offending field.
func parseTaskRequest(body []byte) (*taskRequest, error) {
	if jsonKind(body) != '{' {
		return nil, failf(badRequest, "the body must be a JSON object")
	}
	q := &taskRequest{namespace: "default"}
	f := fieldReader{}
	eachMember(body, func(key string, raw []byte) bool {
		if jsonKind(raw) != 'n' {
			q.field(&f, key, raw)
		}
		return true
	})
	if q.name == "" && !f.complainedOf("name") {
		f.complain("name", "is required")
	}
	return q, f.failure("the task cannot be created")
}

func (q *taskRequest) field(f *fieldReader, key string, raw []byte) {
	switch key {
	case "name":
		q.name = f.text(key, raw, 1, maxNameLength)
	case "namespace":
		q.namespace = f.text(key, raw, 1, maxNameLength)
	case "version":
		q.version = f.text(key, raw, 1, maxNameLength)
	case "context":
		q.context = f.object(key, raw)
	case "initiator":
		q.initiator = f.text(key, raw, 1, maxNameLength)
	case "source_system":
		q.source = f.text(key, raw, 1, maxNameLength)
	case "reason":
		q.reason = f.text(key, raw, 1, maxReasonLength)
	case "tags":
		q.tags = f.texts(key, raw)
	case "priority":
		q.priority = f.clamped(key, raw, priorityLimit)
	case "correlation_id":
		q.correlation = f.id(key, raw)
	case "parent_correlation_id":
		q.parent = f.id(key, raw)
	case "idempotency_key":
		q.key = f.text(key, raw, 1, maxNameLength)
	case "requested_at":
		q.requested = f.instant(key, raw)
	case "options":
		q.options = f.object(key, raw)
	}
}

// fieldReader reads the members of a body and collects what is wrong with them.
type fieldReader struct {
	problems []fieldProblem
}

func (f *fieldReader) complain(field, format string, args ...any) {
	f.problems = append(f.problems, fieldProblem{field, fmt.Sprintf(format, args...)})
}

func (f *fieldReader) complainedOf(field string) bool {
	for _, p := range f.problems {
		if p.Field == field {
			return true
		}
	}
	return false
}

// failure is nil when nothing was wrong.
func (f *fieldReader) failure(what string) error {
	if len(f.problems) == 0 {
		return nil
	}
	names := make([]string, len(f.problems))
	for i, p := range f.problems {
		names[i] = p.Field + " " + p.Message
	}
	return &failure{kind: invalidFields, message: what + ": " + strings.Join(names, "; "), details: f.problems}
}

// text reads a string of lo to hi characters.
func (f *fieldReader) text(key string, raw []byte, lo, hi int) string {
	s, ok := jsonString(raw)
	if !ok {
		f.complain(key, "must be a string")
		return ""
	}
	if n := utf8.RuneCountInString(s); n < lo || n > hi {
		f.complain(key, "must have %d to %d characters, not %d", lo, hi, n)
	}
	return s
}

func (f *fieldReader) texts(key string, raw []byte) []string {
	texts := []string{}
	ok := eachElement(raw, func(e []byte) bool {
		if jsonKind(e) != '"' {
			f.complain(fmt.Sprintf("%s[%d]", key, len(texts)), "must be a string")
			return false
		}
		texts = append(texts, f.text(fmt.Sprintf("%s[%d]", key, len(texts)), e, 1, maxNameLength))
		return len(texts) <= maxTags
	})
	if !ok {
		f.complain(key, "must be an array of strings")
	}
	if len(texts) > maxTags {
		f.complain(key, "must have at most %d elements", maxTags)
	}
	return texts
}

// object reads a JSON object, compacted.
func (f *fieldReader) object(key string, raw []byte) []byte {
	if jsonKind(raw) != '{' {
		f.complain(key, "must be an object")
		return nil
	}
	return compactJSON(make([]byte, 0, len(raw)), raw)
}

// clamped reads an integer and brings it within ±limit.
func (f *fieldReader) clamped(key string, raw []byte, limit int64) int {
	n, ok := jsonInt(raw)
	if !ok {
		switch {
		case jsonKind(raw) != '0' || strings.ContainsAny(string(raw), ".eE"):
			f.complain(key, "must be an integer")
		case raw[0] == '-':
			n = -limit
		default:
			n = limit
		}
	}
	return int(min(max(n, -limit), limit))
}

func (f *fieldReader) id(key string, raw []byte) uuid {
	s, ok := jsonString(raw)
	if !ok {
		f.complain(key, "must be a UUID string")
		return uuid{}
	}
	id, ok := parseUUID(s)
	if !ok {
		f.complain(key, "%.60q is not a UUID", s)
	}
	return id
}

func (f *fieldReader) instant(key string, raw []byte) instant {
	s, ok := jsonString(raw)
	if !ok {
		f.complain(key, "must be a timestamp string")
		return 0
	}
	at, err := parseInstant(s)
	if err != nil {
		f.complain(key, "%.60q is not a timestamp like 2026-01-31T12:00:00Z", s)
	}
	return at
}

// createTask creates a task and lets its first steps run. The task is durable
// when it returns. mayRead tells whether the caller may learn the id of a task
// that it duplicates.
func (s *service) createTask(ctx context.Context, q *taskRequest, mayRead bool) (*task, error) {
	done, err := s.submitTask(ctx, &submission{taskRequest: q, mayRead: mayRead})
	if err != nil {
		return nil, err
	}
	return done.task, nil
}

// ids is how many ids a task takes: its own, its steps', and a correlation id.
func (t *template) ids() int { return len(t.steps) + 2 }

// templateFor is the template that a payload names.
func (s *service) templateFor(q *taskRequest) (*template, error) {
	tpl, err := s.template(q.namespace, q.name, q.version)
	if err != nil {
		return nil, err
	}
	if q.key == "" && tpl.strategy == strategyCallerProvided {
		return nil, failf(badRequest, "template %s takes its identity from the caller: idempotency_key is required",
			tpl.fullName())
	}
	return tpl, nil
}

func (s *service) unknownTemplate(namespace, name, version string) error {
	full := namespace + "." + name
	if version != "" {
		full += "@" + version
	}
	f := failf(templateNotFound, "no template %s is registered", full)
	if near := s.registry().nearest(namespace, name, version); near != "" {
		f.message += "; did you mean " + near + "?"
	}
	return f
}

// creation is what the task will keep of its payload.
func (s *service) creation(q *taskRequest, tpl *template) (*creation, error) {
	by := &creation{
		template: tpl.hash, context: tpl.defaultContext,
		initiator: q.initiatorOr(defaultInitiator), source: orDefault(q.source, defaultSource),
		reason: orDefault(q.reason, defaultReason), tags: q.tags, priority: q.priority,
		correlation: q.correlation, parentCorrelation: q.parent, requested: q.requested,
		options: q.options, key: q.key, traceparent: q.traceparent,
	}
	if q.context != nil {
		by.context = mergeObjects(nil, tpl.defaultContext, q.context)
	}
	if limit := s.cfg.Tasks.MaxContextBytes; int64(len(by.context)) > limit {
		return nil, failf(tooLarge, "the task's context has %d bytes, more than the %d allowed", len(by.context), limit)
	}
	by.identity = identityOf(tpl, q.key, by.context)
	return by, nil
}

// initiatorOr is the initiator: the one given, else the authenticated caller as
// far as there is room, else the standard one.
func (q *taskRequest) initiatorOr(standard string) string {
	subject := q.subject
	if utf8.RuneCountInString(subject) > maxNameLength {
		subject = string([]rune(subject)[:maxNameLength])
	}
	return orDefault(q.initiator, orDefault(subject, standard))
}

func orDefault(s, standard string) string {
	if s == "" {
		return standard
	}
	return s
}

// identityOf is what makes two tasks the same: the caller's key within
// namespace and name, else by the template's strategy.
func identityOf(tpl *template, key string, context []byte) (k identityKey) {
	var parts [][]byte
	switch {
	case key != "":
		parts = [][]byte{[]byte("key"), []byte(tpl.namespace), []byte(tpl.name), []byte(key)}
	case tpl.strategy == strategyStrict:
		parts = [][]byte{[]byte("strict"), []byte(tpl.namespace), []byte(tpl.name), []byte(tpl.version),
			canonicalJSON(nil, context)}
	default:
		return k
	}
	return hashOf(parts...)
}

// admitLocked refuses a task that exists already, or that the queue has no room for.
func (s *service) admitLocked(by *creation, mayRead bool) error {
	if by.identity != (identityKey{}) {
		if id, ok := s.store.identities[by.identity]; ok {
			return duplicateOf(id, mayRead)
		}
	}
	if err := s.store.journal.behind(); err != nil {
		return err
	}
	if n := s.engine.queuedLocked(); n >= s.cfg.Engine.MaxQueued {
		return &failure{kind: backpressure, retryAfter: outcomeRetryEvery,
			message: fmt.Sprintf("%d steps wait to run already", n)}
	}
	return nil
}

func duplicateOf(id uuid, mayRead bool) error {
	f := failf(conflict, "a task with this identity already exists")
	if mayRead {
		f.existing = id
		f.message += ": " + f.existing.String()
	}
	return f
}
