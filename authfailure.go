package main

// How a refused request is answered, as far as authentication decides it.

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// authSeverity says how alarming a refusal is; it also sets how long the caller
// is asked to wait.
type authSeverity string

const (
	severityLow    authSeverity = "low"    // everyday: no credentials, expired, not permitted
	severityMedium authSeverity = "medium" // a broken or misdirected client
	severityHigh   authSeverity = "high"   // looks like guessing or forging
)

// authFailure is why a request is not let through. Nothing of a credential is in
// it, but for the names of unknown permissions.
type authFailure struct {
	status   int    // 401, 403 or 503
	code     string // of the error body
	message  string // of the error body
	reason   authReason
	severity authSeverity
	detail   string     // for the log alone
	method   authMethod // how the caller tried; "" for one who was known and not permitted
}

func (f *authFailure) Error() string { return f.message }

// setHeaders sets the headers that go with the failure.
func (f *authFailure) setHeaders(h http.Header) {
	if n := f.retrySeconds(); n > 0 {
		h.Set("Retry-After", strconv.Itoa(n))
	}
	if f.status == http.StatusServiceUnavailable {
		return
	}
	h.Set("X-Auth-Failure-Reason", string(f.reason))
	h.Set("X-Auth-Failure-Severity", string(f.severity))
	if f.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer error="`+f.bearerError()+`"`)
	}
}

// retrySeconds is the Retry-After; 0 means none.
func (f *authFailure) retrySeconds() int {
	switch {
	case f.status == http.StatusServiceUnavailable, f.severity == severityMedium:
		return 5
	case f.severity == severityHigh:
		return 60
	}
	return 0
}

// failure is the failure that the surfaces make a response of; setHeaders goes
// before.
func (f *authFailure) failure() *failure {
	kind := map[int]failureKind{
		http.StatusUnauthorized:       unauthenticated,
		http.StatusForbidden:          forbidden,
		http.StatusServiceUnavailable: unavailable,
	}[f.status]
	return &failure{kind: kind, message: f.message, retryAfter: time.Duration(f.retrySeconds()) * time.Second}
}

// bearerError is the error code of RFC 6750.
func (f *authFailure) bearerError() string {
	if f.reason == reasonMissing {
		return "invalid_request"
	}
	return "invalid_token"
}

// refused is a 401 for a reason.
func refused(reason authReason, severity authSeverity, detail string) *authFailure {
	message := map[authReason]string{
		reasonMissing:   "Missing credentials",
		reasonExpired:   "Expired credentials",
		reasonInvalid:   "Invalid credentials",
		reasonMalformed: "Malformed credentials",
	}[reason]
	return &authFailure{
		status: http.StatusUnauthorized, code: "AUTHENTICATION_FAILED", message: message,
		reason: reason, severity: severity, detail: detail,
	}
}

// unknownPermissions is the 401 of strict validation.
func unknownPermissions(unknown []string) *authFailure {
	f := refused(reasonInvalid, severityMedium, "unknown permissions")
	f.message = "Unknown permissions: " + strings.Join(unknown, ", ")
	return f
}

// notPermitted is a 403.
func notPermitted(message string) *authFailure {
	return &authFailure{
		status: http.StatusForbidden, code: "AUTHORIZATION_FAILED", message: message,
		reason: reasonForbidden, severity: severityLow, detail: message,
	}
}

// cannotTell is a 503: whoever could verify the credentials does not answer.
func cannotTell(detail string) *authFailure {
	return &authFailure{
		status:  http.StatusServiceUnavailable,
		code:    "SERVICE_UNAVAILABLE",
		message: "Credentials cannot be verified at the moment",
		detail:  detail,
	}
}

// tokenRefused is the answer to what a tokenVerifier said.
func tokenRefused(err error) *authFailure {
	t, ok := err.(*tokenError)
	if !ok {
		return cannotTell(err.Error())
	}
	severity := severityMedium
	switch {
	case t.reason == reasonExpired:
		severity = severityLow
	case t.forged:
		severity = severityHigh
	}
	return refused(t.reason, severity, t.detail)
}
