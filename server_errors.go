package main

// The one place where an error becomes a response: its status and codes, and its body on each surface.

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// failureForms gives each kind of failure its status and its names on the three surfaces.
var failureForms = [...]struct {
	status int
	code   string // on the orchestration role
	word   string // on the worker role; "" for an answer in the orchestration role's form
	mount  mountForm
}{
	internalFailure:   {500, "INTERNAL_ERROR", "internal_error", mountForm{kind: "InternalError"}},
	badRequest:        {400, "BAD_REQUEST", "invalid_request", mountForm{kind: "BadRequest"}},
	invalidUUID:       {400, "INVALID_UUID", "invalid_request", mountForm{kind: "BadRequest", code: "BAD_REQUEST"}},
	invalidJSON:       {400, "JSON_ERROR", "invalid_request", mountForm{kind: "BadRequest", code: "BAD_REQUEST"}},
	notFound:          {404, "NOT_FOUND", "not_found", mountForm{kind: "NotFound"}},
	namespaceNotFound: {404, "NOT_FOUND", "not_found", mountForm{kind: "NamespaceNotFound", code: "NAMESPACE_NOT_FOUND"}},
	templateNotFound:  {404, "NOT_FOUND", "template_not_found", mountForm{kind: "HandlerNotFound", code: "HANDLER_NOT_FOUND"}},
	taskMissing:       {404, "NOT_FOUND", "not_found", mountForm{kind: "TaskNotFound", code: "TASK_NOT_FOUND"}},
	stepMissing:       {404, "NOT_FOUND", "not_found", mountForm{kind: "StepNotFound", code: "STEP_NOT_FOUND"}},
	methodNotAllowed:  {405, "METHOD_NOT_ALLOWED", "method_not_allowed", mountForm{kind: "MethodNotAllowed"}},
	conflict:          {409, "CONFLICT", "conflict", mountForm{kind: "Conflict"}},
	invalidTransition: {400, "BAD_REQUEST", "invalid_request", mountForm{"InvalidTransition", "INVALID_TRANSITION", 409}},
	tooLarge:          {413, "PAYLOAD_TOO_LARGE", "payload_too_large", mountForm{kind: "PayloadTooLarge"}},
	unsupportedMedia:  {415, "UNSUPPORTED_MEDIA_TYPE", "unsupported_media_type", mountForm{kind: "UnsupportedMediaType"}},
	unsupportedCoding: {415, "UNSUPPORTED_MEDIA_TYPE", "unsupported_media_type", mountForm{kind: "UnsupportedMediaType"}},
	invalidFields:     {422, "VALIDATION_FAILED", "validation_failed", mountForm{kind: "ValidationError", code: "INVALID_TASK_CONFIG"}},
	unauthenticated:   {401, "AUTHENTICATION_FAILED", "", mountForm{kind: "AuthenticationError"}},
	forbidden:         {403, "AUTHORIZATION_FAILED", "", mountForm{kind: "AuthorizationError"}},
	unavailable:       {503, "SERVICE_UNAVAILABLE", "service_unavailable", mountForm{kind: "ServiceUnavailable"}},
	backpressure:      {503, "BACKPRESSURE", "backpressure", mountForm{kind: "ServiceUnavailable", code: "SERVICE_UNAVAILABLE"}},
	misdirected:       {421, "MISDIRECTED_REQUEST", "misdirected_request", mountForm{kind: "BadRequest", code: "BAD_REQUEST"}},
	notIdle:           {408, "NOT_IDLE", "not_idle", mountForm{kind: "ServiceUnavailable", code: "SERVICE_UNAVAILABLE"}},
	taskDropped:       {410, "TASK_DROPPED", "task_dropped", mountForm{kind: "TaskDropped"}},
	storeFull:         {503, "STORE_FULL", "store_full", mountForm{kind: "ServiceUnavailable", code: "SERVICE_UNAVAILABLE"}},
	taskMovedOn:       {412, "PRECONDITION_FAILED", "precondition_failed", mountForm{kind: "PreconditionFailed"}},
	unverified:        {422, "VERIFICATION_FAILED", "verification_failed", mountForm{kind: "ValidationError", code: "INVALID_TASK_CONFIG"}},
}

// mountForm is the form of a failure on the mount point. Code and status are those
// of the orchestration role unless they are set.
type mountForm struct {
	kind, code string
	status     int
}

func roleStatus(k failureKind) int { return failureForms[k].status }

func mountCode(k failureKind) string { return cmp.Or(failureForms[k].mount.code, failureForms[k].code) }

func mountStatus(k failureKind) int { return cmp.Or(failureForms[k].mount.status, roleStatus(k)) }

// writeError turns an error into a response.
func (s *surface) writeError(w *responseWriter, r *http.Request, err error) {
	f, id := s.failureOf(w, r, err), w.requestID
	h := w.Header()
	setRefusalHeaders(h, f)
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(retrySeconds(f)))
	}
	if f.kind == unsupportedCoding {
		h.Set("Accept-Encoding", "identity") // RFC 9110, section 12.5.3
	}
	if !f.existing.isZero() {
		h.Set("Location", s.taskPath(r, f.existing))
	}
	delete(h, "Etag") // of the answer that was not completed
	h["Cache-Control"] = noStore
	switch err = writeJSON(w, s.status(f.kind), jsonType, s.encode(f, id, s.svc.clock.now())); {
	case err == nil:
	case kindOf(err) == backpressure && f.kind != backpressure: // no room for so long an error
		s.writeError(w, r, err)
	default:
		s.log.Error("an error could not be encoded", "request_id", id, "error", err)
	}
}

// failureOf returns what the caller may know of an error. The log has the rest.
func (s *surface) failureOf(w *responseWriter, r *http.Request, err error) *failure {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{message: "internal error", cause: err}
		if errors.Is(err, context.Canceled) {
			f = failf(unavailable, "the request was cancelled")
		}
	}
	if f.kind == internalFailure {
		s.log.Error("a request failed", "request_id", w.requestID, "method", r.Method, "path", r.URL.Path,
			"error", f.cause)
		f.message = "internal error"
	}
	if f.retryAfter == 0 && f.kind == unavailable {
		f.retryAfter = time.Second
	}
	return f
}

func retrySeconds(f *failure) int { return max(int((f.retryAfter+time.Second-1)/time.Second), 1) }

// errorView is the body of an error of the orchestration role.
type errorView struct {
	*failure
	requestID string
}

func orchestrationError(f *failure, requestID string, _ instant) any { return errorView{f, requestID} }

func (v errorView) writeJSON(o *jsonWriter) {
	o.b = append(o.b, `{"error":`...)
	v.write(o)
	o.b = append(o.b, '}')
}

// write writes the error alone.
func (v errorView) write(o *jsonWriter) {
	o.b = append(o.b, '{')
	o.text("code", failureForms[v.kind].code)
	o.text("message", v.message)
	if len(v.details) > 0 {
		o.name("details")
		o.value(v.details)
	}
	o.text("request_id", v.requestID)
	if v.retryAfter > 0 {
		o.number("retry_after_seconds", retrySeconds(v.failure))
	}
	if v.extra.name != "" {
		o.name(v.extra.name)
		o.value(v.extra.value)
	}
	o.b = append(o.b, '}')
}

// workerErrorView is the body of an error of the worker role.
type workerErrorView struct {
	Error     string    `json:"error"`
	Message   string    `json:"message"`
	Timestamp zonedTime `json:"timestamp"`
	RequestID string    `json:"request_id"`
}

// workerError returns the body of an error of the worker role. 401 and 403 have no
// word and take the orchestration role's form.
func workerError(f *failure, requestID string, now instant) any {
	word := failureForms[f.kind].word
	if word == "" {
		return orchestrationError(f, requestID, now)
	}
	return workerErrorView{word, f.message, zonedTime(now), requestID}
}
