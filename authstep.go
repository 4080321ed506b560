package main

// The authentication step of the surfaces: between finding the route and reading
// the body it finds out who asks, and refuses who may not.

import (
	"context"
	"log/slog"
	"net/http"
)

// addAuthCheck adds what keeps the role from verifying credentials to the checks
// of /health/ready. Without authentication there is nothing to check.
func (s *service) addAuthCheck(checks map[string]checkView, a *authenticator) {
	if a.config.Enabled {
		checks["authentication"] = s.checked("credentials can be verified", a.ready)
	}
}

// admit is the request with its security context when the caller may go on, or
// why not. Public routes take everybody, whatever credentials came. Nothing of
// the body is read.
func (s *surface) admit(w http.ResponseWriter, r *http.Request, row route) (*http.Request, error) {
	if len(row.permissions) == 0 {
		return r, nil
	}
	sc, f := s.auth.authenticateAt(r, s.credentialTime(row))
	switch {
	case f != nil:
	case row.controls():
		f = s.auth.authorizeAll(sc)
	default:
		f = s.auth.authorize(sc, row.permissions...)
	}
	s.logAdmission(w, r, sc, f)
	if f != nil {
		f.setHeaders(w.Header())
		leaveBody(w, r)
		return r, f.failure()
	}
	return r.WithContext(withSecurity(r.Context(), sc)), nil
}

// credentialTime is what the times in credentials are held against: real time,
// unless fixture mode was told otherwise. The control API stays within reach
// wherever the virtual clock stands.
func (s *surface) credentialTime(row route) instant {
	f := &s.svc.cfg.Fixture
	if f.Enabled && f.VirtualCredentials && !row.controls() && s.auth.forward == nil {
		return s.svc.clock.now()
	}
	return s.auth.clock.now()
}

// leaveBody lets the answer go out at once. On a connection that stays, net/http
// would first read a good part of a body that nobody wants, for as long as the
// client likes to take.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
}

// logAdmission says who was let in and who was not, and why. A credential is
// nowhere in it.
func (s *surface) logAdmission(w http.ResponseWriter, r *http.Request, sc *securityContext, f *authFailure) {
	level, message := slog.LevelDebug, "a request was let in"
	switch {
	case f == nil && sc.method == authByNothing:
		return
	case f == nil:
	case f.severity == severityLow:
		level, message = slog.LevelInfo, "a request was refused"
	default:
		level, message = slog.LevelWarn, "a request was refused"
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("route", r.Pattern), slog.String("request_id", w.(*recorder).requestID),
	}
	if sc != nil {
		attrs = append(attrs, slog.String("subject", sc.subject), slog.String("method", string(sc.method)))
	} else {
		attrs = append(attrs, slog.String("method", string(f.method)))
	}
	if f != nil {
		attrs = append(attrs, slog.Int("status", f.status), slog.String("reason", string(f.reason)),
			slog.String("detail", f.detail))
	}
	s.log.LogAttrs(r.Context(), level, message, attrs...)
}

// subjectOf is who asks; "" where authentication is off or names nobody.
func subjectOf(ctx context.Context) string {
	if sc := securityOf(ctx); sc != nil {
		return sc.subject
	}
	return ""
}

// mayReadContexts tells whether the caller may see the context of a task,
// wherever it appears.
func mayReadContexts(ctx context.Context) bool { return securityOf(ctx).may(permTasksContextRead) }
