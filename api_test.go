package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// apiTemplates is where the templates of the conversations are.
const apiTemplates = "testdata/templates"

// TestConversations plays every conversation of testdata/api on a fresh service.
func TestConversations(t *testing.T) {
	for _, file := range conversationFiles(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			directives := conversationDirectives(file)
			svc := newTestService(t, serviceTest{
				templates: apiTemplates, config: func(c *Config) { configureConversation(t, c, directives["config"]) },
			})
			var h http.Handler = newOrchestrationAPI(svc)
			if directives["surface"] == "worker" {
				h = newWorkerAPI(svc)
			}
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			runConversation(t, server.URL, file)
		})
	}
}

// configureConversation sets what the config directives of a conversation say,
// in the form of environment variables.
func configureConversation(t *testing.T, c *Config, directives string) {
	t.Helper()
	for line := range strings.Lines(directives) {
		path, text, _ := strings.Cut(strings.TrimSpace(line), " = ")
		k := configKeyAt(path)
		if k == nil {
			t.Fatalf("there is no key %q to configure", path)
		}
		value, faults := k.convertText(text)
		if faults != nil {
			t.Fatal(faults)
		}
		k.set(c, value)
	}
}

func TestBadInput(t *testing.T) {
	testBadInput(t, newTestServer(t, serviceTest{templates: apiTemplates}).url)
}
