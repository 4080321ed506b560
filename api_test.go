package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// apiTemplates is where the templates of the conversations are.
const apiTemplates = "testdata/templates"

// TestConversations plays every conversation of testdata/api on a fresh service.
func TestConversations(t *testing.T) {
	for _, file := range conversationFiles(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			svc := newTestService(t, serviceTest{templates: apiTemplates})
			var h http.Handler = newOrchestrationAPI(svc)
			if conversationDirectives(file)["surface"] == "worker" {
				h = newWorkerAPI(svc)
			}
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			runConversation(t, server.URL, file)
		})
	}
}

func TestBadInput(t *testing.T) {
	testBadInput(t, newTestServer(t, serviceTest{templates: apiTemplates}).url)
}
