package main

// Metrics of authentication. Their labels are fixed words: nothing that a caller
// sends becomes a label.

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

var (
	authReasons = []string{reasonMissing, reasonExpired, reasonInvalid, reasonMalformed, reasonForbidden}
	authMethods = []string{authByNothing, authByToken, authByAPIKey, authByForward}
	authResults = []string{"success", "failure", "unavailable"}
)

// verificationBounds are the upper bounds of the histogram's buckets.
var verificationBounds = [...]time.Duration{
	25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond,
	500 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond,
	100 * time.Millisecond, 500 * time.Millisecond, time.Second, 10 * time.Second,
}

// authMetrics are the counters of an authenticator. The zero value is ready.
type authMetrics struct {
	failures [5]atomic.Uint64    // by index in authReasons
	requests [4][3]atomic.Uint64 // by index in authMethods and authResults
	denials  [permissionCount]atomic.Uint64

	verifications [len(verificationBounds) + 1]atomic.Uint64 // the last one is above all bounds
	verifying     atomic.Int64                               // nanoseconds in all
}

// countRequest counts an authenticated request, or one that failed with f.
func (m *authMetrics) countRequest(method string, f *failure) {
	result := 0
	switch {
	case f == nil:
	case f.kind == unavailable:
		result = 2
	default:
		result = 1
		m.countFailure(f.refusal.reason)
	}
	if i := slices.Index(authMethods, method); i >= 0 {
		m.requests[i][result].Add(1)
	}
}

func (m *authMetrics) countFailure(reason string) {
	if i := slices.Index(authReasons, reason); i >= 0 {
		m.failures[i].Add(1)
	}
}

// countDenial counts a request that lacked a permission.
func (m *authMetrics) countDenial(p permission) {
	m.countFailure(reasonForbidden)
	m.denials[p].Add(1)
}

// countVerification counts the verification of a token that was not in the cache.
func (m *authMetrics) countVerification(took time.Duration) {
	bucket := 0
	for bucket < len(verificationBounds) && took > verificationBounds[bucket] {
		bucket++
	}
	m.verifications[bucket].Add(1)
	m.verifying.Add(int64(took))
}

// metricsSink receives families of metrics, as /metrics writes them.
type metricsSink interface {
	family(name, kind, help string)
	sample(name string, value float64, labels ...string) // labels are name, value, name, value, …
}

// writeAuthMetrics writes the sums of the counters of several authenticators.
func writeAuthMetrics(to metricsSink, all ...*authMetrics) {
	sum := func(one func(*authMetrics) uint64) (n float64) {
		for _, m := range all {
			n += float64(one(m))
		}
		return n
	}
	const failures, requests = "stepwell_auth_failures_total", "stepwell_auth_requests_total"
	to.family(failures, "counter", "Requests refused by authentication, by reason.")
	for i, reason := range authReasons {
		n := sum(func(m *authMetrics) uint64 { return m.failures[i].Load() })
		to.sample(failures, n, "reason", reason)
	}
	to.family(requests, "counter", "Requests to protected routes, by method and result.")
	for i, method := range authMethods {
		for j, result := range authResults {
			n := sum(func(m *authMetrics) uint64 { return m.requests[i][j].Load() })
			to.sample(requests, n, "method", method, "result", result)
		}
	}
	const denials = "stepwell_permission_denials_total"
	to.family(denials, "counter", "Requests refused for lack of a permission, by permission.")
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
