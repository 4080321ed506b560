package main

import (
	"testing"
	"time"
)

// TestOutcomeMetadata expects the members that existing clients parse strictly to
// override those that handlers and operators send.
func TestOutcomeMetadata(t *testing.T) {
	const standard = `"execution_time_ms":12,"worker_id":"w","completed_at":"2026-01-01T00:00:00.000000Z"`
	for _, tc := range []struct{ name, sent, want string }{
		{"nothing was sent", ``, `{` + standard + `}`},
		{"members of its own", `{"region":"eu","tries":[1]}`, `{"region":"eu","tries":[1],` + standard + `}`},
		{"members of another type", `{"completed_at":null,"execution_time_ms":1.5,"worker_id":7}`,
			`{"completed_at":"2026-01-01T00:00:00.000000Z","execution_time_ms":12,"worker_id":"w"}`},
	} {
		e := &ending{success: true, took: 12 * time.Millisecond}
		if tc.sent != "" {
			e.metadata = []byte(tc.sent)
		}
		got := objectMember(jsonOf(outcomeView{e, uuid{}, testStart, "w"}), "metadata")
		if string(got) != tc.want {
			t.Errorf("%s: got %s; want %s", tc.name, got, tc.want)
		}
	}
}
