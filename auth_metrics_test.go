package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// authMetricLines collects samples like name{label="value"} 1.
type authMetricLines struct{ text string }

func (l *authMetricLines) family(name, kind, _ string) { l.text += name + " is a " + kind + "\n" }

func (l *authMetricLines) sample(name string, value float64, labels ...string) {
	for i := 0; i < len(labels); i += 2 {
		name += fmt.Sprintf("{%s=%q}", labels[i], labels[i+1])
	}
	l.text += strings.ReplaceAll(name, "}{", ",") + fmt.Sprint(" ", value, "\n")
}

func authMetricsText(all ...*authMetrics) string {
	var l authMetricLines
	writeAuthMetrics(&l, all...)
	return l.text
}

func TestAuthMetrics(t *testing.T) {
	b := newAuthBench(t, withAPIKeys)
	token := rs256(t, goodClaims(""))
	b.bearer(token)
	b.bearer(token)
	b.bearer("x")
	b.ask()
	b.ask("X-API-Key: " + testAPIKey)
	b.ask("X-API-Key: guess")
	b.metrics.countVerification(3 * time.Millisecond)
	b.metrics.countVerification(time.Minute)
	text := authMetricsText(b.metrics, &authMetrics{})
	for _, want := range []string{
		"stepwell_auth_failures_total is a counter\n",
		`stepwell_auth_failures_total{reason="missing"} 1` + "\n",
		`stepwell_auth_failures_total{reason="invalid"} 1` + "\n",
		`stepwell_auth_failures_total{reason="malformed"} 1` + "\n",
		`stepwell_auth_requests_total{method="jwt",result="success"} 2` + "\n",
		`stepwell_auth_requests_total{method="jwt",result="failure"} 1` + "\n",
		`stepwell_auth_requests_total{method="api_key",result="success"} 1` + "\n",
		`stepwell_auth_requests_total{method="api_key",result="failure"} 1` + "\n",
		`stepwell_auth_requests_total{method="none",result="failure"} 1` + "\n",
		`stepwell_auth_requests_total{method="forward",result="unavailable"} 0` + "\n",
		"stepwell_auth_jwt_verification_duration_seconds is a histogram\n",
		// Two tokens in no time on the virtual clock, and the two above.
		`stepwell_auth_jwt_verification_duration_seconds_bucket{le="2.5e-05"} 2` + "\n",
		`stepwell_auth_jwt_verification_duration_seconds_bucket{le="0.005"} 3` + "\n",
		`stepwell_auth_jwt_verification_duration_seconds_bucket{le="10"} 3` + "\n",
		`stepwell_auth_jwt_verification_duration_seconds_bucket{le="+Inf"} 4` + "\n",
		"stepwell_auth_jwt_verification_duration_seconds_sum 60.003\n",
		"stepwell_auth_jwt_verification_duration_seconds_count 4\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q in %s", want, text)
		}
	}
}
