package main

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestContentType sends bodies of a known and an unknown length: only where there
// is a body it must be JSON.
func TestContentType(t *testing.T) {
	api := newOrchestrationAPI(newTestService(t, serviceTest{}), nil)
	for _, tc := range []struct {
		body, given string
		length      int64
		want        int
		code        string
	}{
		{`{"name":"none"}`, "application/json", 15, 404, "NOT_FOUND"},
		{`{"name":"none"}`, "application/problem+json; charset=utf-8", -1, 404, "NOT_FOUND"},
		{`{"name":"none"}`, "text/plain", 15, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{`{"name":"none"}`, "", -1, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{``, "", 0, 400, "JSON_ERROR"},
		{``, "", -1, 400, "JSON_ERROR"},
	} {
		r := httptest.NewRequest("POST", "/v1/tasks", strings.NewReader(tc.body))
		r.ContentLength = tc.length
		r.Header.Set("Content-Type", tc.given)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		a := &answer{t, w.Code, w.Header(), w.Body.Bytes()}
		if a.status != tc.want || a.text("error.code") != tc.code {
			t.Errorf("%q as %q, length %d: got %d %s; want %d %s",
				tc.body, tc.given, tc.length, a.status, a.text("error.code"), tc.want, tc.code)
		}
	}
}
