package main

// Counters of authentication, with fixed labels: nothing that a caller sends
// becomes a label.

import (
	"strconv"
	"sync/atomic"
	"time"
)

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
