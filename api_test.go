package main

import (
	"io/fs"
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
			directives := conversationDirectives(file)
			o := serviceTest{templates: apiTemplates, config: configuredBy(t, directives["config"])}
			if directives["surface"] == "fixture" || testConfig(t, o).Fixture.Enabled {
				runConversation(t, newFixtureServer(t, o).url, file)
				return
			}
			svc := newTestService(t, o)
			var h http.Handler = newOrchestrationAPI(svc, nil)
			if directives["surface"] == "worker" {
				h = newWorkerAPI(svc, nil)
			}
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			runConversation(t, server.URL, file)
		})
	}
}

// configuredBy sets what a configuration file says, but for what the harness
// itself is about: store, templates and log.
func configuredBy(t *testing.T, text string) func(c *Config) {
	return func(c *Config) {
		read := func(name string) ([]byte, error) {
			if name != "conversation.toml" {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		}
		noEnv := func(string) string { return "" }
		loaded, _, err := loadConfig(configArgs{files: []string{"conversation.toml"}}, noEnv, nil, read)
		if err != nil {
			t.Fatal(err)
		}
		loaded.Store, loaded.Templates, loaded.Log = c.Store, c.Templates, c.Log
		*c = *loaded
	}
}

func TestBadInput(t *testing.T) {
	testBadInput(t, newTestServer(t, serviceTest{templates: apiTemplates}).url)
}
