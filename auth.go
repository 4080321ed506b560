package main

// Who is asking: the security context of a request.

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// authMethod is how a caller proved who it is; the words are metric labels.
type authMethod string

const (
	authByNothing authMethod = "none" // authentication is disabled
	authByToken   authMethod = "jwt"
	authByAPIKey  authMethod = "api_key"
	authByForward authMethod = "forward"
)

// securityContext is who asks, and what it may do. It is never changed once made.
type securityContext struct {
	subject     string // "" when the credential names none
	method      authMethod
	permissions permissionSet
	issuer      string  // of a token
	expiry      instant // of a token; zero when the credential has no end
}

// unrestricted is the context of every request while authentication is disabled.
func unrestricted() *securityContext {
	return &securityContext{method: authByNothing, permissions: everyPermission}
}

// may tells whether the context holds p. A nil context may do nothing.
func (sc *securityContext) may(p permission) bool { return sc != nil && sc.permissions.has(p) }

// securityKey is the key of the security context in a context.Context.
type securityKey struct{}

// withSecurity hands sc down to whatever handles the request.
func withSecurity(ctx context.Context, sc *securityContext) context.Context {
	return context.WithValue(ctx, securityKey{}, sc)
}

// securityOf is the security context of a request; nil where no authentication
// has taken place, as on public resources.
func securityOf(ctx context.Context) *securityContext {
	sc, _ := ctx.Value(securityKey{}).(*securityContext)
	return sc
}

// Permissions: the vocabulary, and who may do what with it. Pure.

// permission is one of the 17 things that a route can ask for.
type permission uint8

const (
	permTasksCreate permission = iota
	permTasksRead
	permTasksList
	permTasksCancel
	permTasksContextRead
	permStepsRead
	permStepsResolve
	permDLQRead
	permDLQUpdate
	permDLQStats
	permTemplatesRead
	permTemplatesValidate
	permSystemConfigRead
	permSystemHandlersRead
	permSystemAnalyticsRead
	permWorkerConfigRead
	permWorkerTemplatesRead
	permissionCount
)

var permissionNames = [permissionCount]string{
	"tasks:create", "tasks:read", "tasks:list", "tasks:cancel", "tasks:context_read",
	"steps:read", "steps:resolve",
	"dlq:read", "dlq:update", "dlq:stats",
	"templates:read", "templates:validate",
	"system:config_read", "system:handlers_read", "system:analytics_read",
	"worker:config_read", "worker:templates_read",
}

func (p permission) String() string { return permissionNames[p] }

// resource is the part before the colon.
func (p permission) resource() string {
	r, _, _ := strings.Cut(permissionNames[p], ":")
	return r
}

// permissionResources are the resources, in the order of the vocabulary.
var permissionResources = []string{"tasks", "steps", "dlq", "templates", "system", "worker"}

// allWildcards lists the wildcards, which together grant everything.
func allWildcards() []string {
	wildcards := make([]string, len(permissionResources))
	for i, r := range permissionResources {
		wildcards[i] = r + ":*"
	}
	return wildcards
}

// permissionSet holds permissions, one bit each; a wildcard is the bits of its
// resource. The zero value allows nothing.
type permissionSet uint32

// everyPermission is what the six wildcards grant.
const everyPermission permissionSet = 1<<permissionCount - 1

// permissionSets is what each string of the vocabulary grants: the 17
// permissions and the six wildcards.
var permissionSets = makePermissionSets()

func makePermissionSets() map[string]permissionSet {
	sets := make(map[string]permissionSet)
	for p := range permissionCount {
		sets[p.String()] = 1 << p
		sets[p.resource()+":*"] |= 1 << p
	}
	return sets
}

// parsePermissions makes a set of what a credential lists. Strings outside the
// vocabulary grant nothing and come back, each once, in the order given. A bare
// "*" is one of them.
func parsePermissions(list []string) (set permissionSet, unknown []string) {
	seen := make(map[string]bool)
	for _, s := range list {
		granted, ok := permissionSets[s]
		if !ok && !seen[s] {
			seen[s] = true
			unknown = append(unknown, s)
		}
		set |= granted
	}
	return set, unknown
}

// has tells whether the set allows p.
func (s permissionSet) has(p permission) bool { return s>>p&1 == 1 }

// list is the permissions of the set.
func (s permissionSet) list() []permission {
	list := []permission{}
	for p := range permissionCount {
		if s.has(p) {
			list = append(list, p)
		}
	}
	return list
}

// names lists the permissions of the set, wildcards spelled out.
func (s permissionSet) names() []string {
	names := []string{}
	for p := range permissionCount {
		if s.has(p) {
			names = append(names, p.String())
		}
	}
	return names
}

// rolePattern is a customary set of permissions, by name.
type rolePattern struct {
	name        string
	permissions []string // as a token lists them
}

// rolePatterns are the roles that the command line knows.
var rolePatterns = []rolePattern{
	{"read-only-operator", []string{"tasks:read", "tasks:list", "steps:read", "dlq:read", "dlq:stats"}},
	{"task-submitter", []string{"tasks:create", "tasks:read", "tasks:list"}},
	{"ops-admin", []string{"tasks:*", "steps:*", "dlq:*", "system:*"}},
	{"worker-service", []string{"worker:config_read", "worker:templates_read"}},
	{"full-access", allWildcards()},
}

// rolePermissions are the permissions of a role pattern.
func rolePermissions(name string) ([]string, bool) {
	for _, r := range rolePatterns {
		if r.name == name {
			return r.permissions, true
		}
	}
	return nil, false
}

// How a refused request is answered, as far as authentication decides it.

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

// Counters of authentication, with fixed labels: nothing that a caller sends
// becomes a label.

var (
	authReasons = []authReason{reasonMissing, reasonExpired, reasonInvalid, reasonMalformed, reasonForbidden}
	authMethods = []authMethod{authByNothing, authByToken, authByAPIKey, authByForward}
	authResults = []string{"success", "failure", "unavailable"}
)

// verificationBounds are the upper bounds of the histogram's buckets.
var verificationBounds = [...]time.Duration{
	25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond,
	500 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond,
	100 * time.Millisecond, 500 * time.Millisecond, time.Second, 10 * time.Second,
}

// authMetrics counts what an authenticator does. The zero value is ready.
type authMetrics struct {
	failures [5]atomic.Uint64    // by place in authReasons
	requests [4][3]atomic.Uint64 // by place in authMethods and authResults
	denials  [permissionCount]atomic.Uint64

	verifications [len(verificationBounds) + 1]atomic.Uint64 // the last one is beyond the bounds
	verifying     atomic.Int64                               // nanoseconds in all
}

// answered counts a request; f is nil for one that was let through.
func (m *authMetrics) answered(method authMethod, f *authFailure) {
	result := 0
	switch {
	case f == nil:
	case f.reason == "":
		result = 2
	default:
		result = 1
		m.failed(f.reason)
	}
	for i, known := range authMethods {
		if method == known {
			m.requests[i][result].Add(1)
		}
	}
}

func (m *authMetrics) failed(reason authReason) {
	for i, known := range authReasons {
		if reason == known {
			m.failures[i].Add(1)
		}
	}
}

// denied counts a request that lacked a permission.
func (m *authMetrics) denied(p permission) {
	m.failed(reasonForbidden)
	m.denials[p].Add(1)
}

// verified counts a token verification that was not answered by the cache.
func (m *authMetrics) verified(took time.Duration) {
	bucket := 0
	for bucket < len(verificationBounds) && took > verificationBounds[bucket] {
		bucket++
	}
	m.verifications[bucket].Add(1)
	m.verifying.Add(int64(took))
}

// metricsSink takes families of metrics, as /metrics writes them.
type metricsSink interface {
	family(name, kind, help string)
	sample(name string, value float64, labels ...string) // labels are name, value, name, value, …
}

// writeAuthMetrics writes the sums of several authenticators' counters.
func writeAuthMetrics(to metricsSink, all ...*authMetrics) {
	sum := func(one func(*authMetrics) uint64) (n float64) {
		for _, m := range all {
			n += float64(one(m))
		}
		return n
	}
	const failures, requests = "stepwell_auth_failures_total", "stepwell_auth_requests_total"
	to.family(failures, "counter", "Requests refused, by reason.")
	for i, reason := range authReasons {
		n := sum(func(m *authMetrics) uint64 { return m.failures[i].Load() })
		to.sample(failures, n, "reason", string(reason))
	}
	to.family(requests, "counter", "Requests that were to be authenticated, by method and result.")
	for i, method := range authMethods {
		for j, result := range authResults {
			n := sum(func(m *authMetrics) uint64 { return m.requests[i][j].Load() })
			to.sample(requests, n, "method", string(method), "result", result)
		}
	}
	const denials = "stepwell_permission_denials_total"
	to.family(denials, "counter", "Requests that lacked a permission, by permission.")
	for p := range permissionCount {
		n := sum(func(m *authMetrics) uint64 { return m.denials[p].Load() })
		to.sample(denials, n, "permission", p.String())
	}
	writeVerifications(to, sum)
}

func writeVerifications(to metricsSink, sum func(func(*authMetrics) uint64) float64) {
	const name = "stepwell_auth_jwt_verification_duration_seconds"
	to.family(name, "histogram", "Time to verify a token that was not in the cache.")
	total := 0.0
	for i := range len(verificationBounds) + 1 {
		total += sum(func(m *authMetrics) uint64 { return m.verifications[i].Load() })
		bound := "+Inf"
		if i < len(verificationBounds) {
			bound = strconv.FormatFloat(verificationBounds[i].Seconds(), 'g', -1, 64)
		}
		to.sample(name+"_bucket", total, "le", bound)
	}
	spent := sum(func(m *authMetrics) uint64 { return uint64(m.verifying.Load()) })
	to.sample(name+"_sum", spent/float64(time.Second))
	to.sample(name+"_count", total)
}

// subjectOf is who asks; "" where authentication is off or names nobody.
func subjectOf(ctx context.Context) string {
	if sc := securityOf(ctx); sc != nil {
		return sc.subject
	}
	return ""
}
