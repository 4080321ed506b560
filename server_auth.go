package main

// Admission: after a request matches a route and before its body is read, the
// surface finds out who sent it and refuses callers without permission.

import (
	"context"
	"log/slog"
	"net/http"
	"net/textproto"
)

// admit returns the request with the caller's security context, or an error if the
// caller may not use the route. Public routes ignore credentials.
func (s *surface) admit(w *responseWriter, r *http.Request, row servedRoute) (*http.Request, error) {
	if row.isPublic() {
		return r, nil
	}
	sc, f := s.auth.authenticate(r.Context(), callerOf(r), s.credentialTime(row))
	switch {
	case f != nil:
	case row.needsAll():
		f = s.auth.authorizeAll(sc, everything...)
	default:
		f = s.auth.authorize(sc, row.permissions...)
	}
	w.caller = sc
	if f != nil {
		s.logRefusal(w, r, sc, f)
		return r, f
	}
	return r.WithContext(withSecurity(r.Context(), sc)), nil
}

// callerOf returns what identifies the sender of a request.
func callerOf(r *http.Request) caller {
	return caller{textproto.MIMEHeader(r.Header), r.Method, r.URL, r.Host, r.RemoteAddr}
}

// setRefusalHeaders tells a client why its credentials were refused.
func setRefusalHeaders(h http.Header, f *failure) {
	if f.refusal == nil || f.refusal.reason == "" {
		return
	}
	h.Set("X-Auth-Failure-Reason", f.refusal.reason)
	h.Set("X-Auth-Failure-Severity", f.refusal.severity)
	challenge := `Bearer error="invalid_token"` // as in RFC 6750
	switch {
	case f.refusal.reason == reasonMissing:
		challenge = `Bearer realm="stepwell"`
	case f.kind == forbidden:
		challenge = `Bearer error="insufficient_scope"`
	}
	h.Set("WWW-Authenticate", challenge)
}

// credentialTime returns the time at which credentials must be valid: real time, unless fixture mode is configured to
// use the virtual clock. Routes that control the service use real time, so that they work whatever the virtual time is.
func (s *surface) credentialTime(row servedRoute) instant {
	f := &s.svc.cfg.Fixture
	if f.Enabled && f.VirtualCredentials && !row.controls && s.auth.forward == nil {
		return s.svc.clock.now()
	}
	return s.auth.clock.now()
}

// logRefusal logs who was refused, and why, without credentials.
func (s *surface) logRefusal(w *responseWriter, r *http.Request, sc *securityContext, f *failure) {
	level := pick(f.refusal.severity == severityLow, slog.LevelInfo, slog.LevelWarn)
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	// Refusals that anybody can cause must not displace those of callers who were recognized.
	dropped, ok := pick(sc == nil, s.auth.logRate, s.auth.logSeen).allow(realNow())
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("route", r.Pattern), slog.String("request_id", w.requestID),
	}
	if sc != nil {
		attrs = append(attrs, slog.String("subject", sc.subject), slog.String("method", sc.method))
	} else {
		attrs = append(attrs, slog.String("method", f.refusal.method))
	}
	attrs = append(attrs, slog.Int("status", failureForms[f.kind].status), slog.String("reason", f.refusal.reason),
		slog.String("severity", f.refusal.severity), slog.String("detail", f.refusal.detail))
	if dropped > 0 {
		attrs = append(attrs, slog.Int("not_logged", dropped)) // before this one
	}
	s.log.LogAttrs(r.Context(), level, "a request was refused", attrs...)
}

// callerView lists the permissions of a caller.
type callerView struct {
	Subject     *string    `json:"subject"` // null when the credential names none
	Method      string     `json:"method"`
	Permissions []string   `json:"permissions"`
	ExpiresAt   *zonedTime `json:"expires_at"` // null when the credential does not expire
}

// callerPermissions tells a caller what it may do, so that a page offers only that.
func (s *surface) callerPermissions(_ *responseWriter, r *http.Request) (any, error) {
	sc := securityOf(r.Context())
	v := callerView{Method: sc.method, Permissions: []string{}}
	for _, p := range sc.permissions.list() {
		v.Permissions = append(v.Permissions, p.String())
	}
	if sc.subject != "" {
		v.Subject = &sc.subject
	}
	if sc.expiry != 0 {
		v.ExpiresAt = new(zonedTime(sc.expiry))
	}
	return v, nil
}

// require returns an error unless the caller has all of some permissions.
func (s *surface) require(r *http.Request, all ...permission) error {
	if f := s.auth.authorizeAll(securityOf(r.Context()), all...); f != nil {
		return f
	}
	return nil
}

// mayReadContexts reports whether the caller may see the contexts of tasks.
func mayReadContexts(ctx context.Context) bool { return securityOf(ctx).may(permTasksContextRead) }

// mayReadResults reports whether the caller may see the results of steps and what handlers say about failures.
func mayReadResults(ctx context.Context) bool { return securityOf(ctx).may(permStepsRead) }

// mayReadDeliveries reports whether the caller may see why events were not delivered.
func mayReadDeliveries(ctx context.Context) bool { return securityOf(ctx).may(permDLQRead) }
