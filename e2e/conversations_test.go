package e2e

// The conversations of testdata/api, each with a new program.

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// TestConversations plays every conversation with a program that has the templates
// of testdata/templates and the configuration that the conversation asks for.
func TestConversations(t *testing.T) {
	contracts := fetchContracts(t)
	for _, file := range conversationFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			c := wire.Must(readConversation(file))(t)
			mode := "--memory"
			if c.surface() == "fixture" {
				mode = "--fixture"
			}
			p := serve(t, mode, "--quiet", "--templates", apiTemplates(t), "--config", configFile(t, c.directives["config"]))
			url := p.ready.OrchestrationURL
			if c.surface() == "worker" {
				url = p.ready.WorkerURL
			}
			player := newConvPlayer(c, url, 10*time.Second)
			player.contract = contracts[c.surface()]
			for _, problem := range player.playAll() {
				t.Error(problem)
			}
			p.stop()
			if said := p.stderr.String(); strings.Contains(said, `"level":"ERROR"`) {
				t.Errorf("the program logged errors:\n%s", said)
			}
		})
	}
}

// apiTemplates returns the directory with the templates of the conversations.
func apiTemplates(t *testing.T) string {
	t.Helper()
	dir := wire.Must(filepath.Abs(repository("testdata/templates")))(t)
	return dir
}

// fetchContracts returns the OpenAPI documents that the program serves, by surface.
func fetchContracts(t *testing.T) map[string]*wire.Contract {
	t.Helper()
	plain, fixture := serve(t, "--memory"), serve(t, "--fixture")
	contracts := map[string]*wire.Contract{}
	for surface, from := range map[string]struct{ url, prefix string }{
		"orchestration": {plain.ready.OrchestrationURL, ""},
		"worker":        {plain.ready.WorkerURL, ""},
		"mount":         {plain.ready.OrchestrationURL, mountTestPath},
		"fixture":       {fixture.ready.OrchestrationURL, ""},
	} {
		text := (&api{t, from.url}).do("GET", from.prefix+"/api-docs/openapi.json", "").want(200).body
		c := wire.Must(wire.NewContract(text, from.prefix))(t)
		contracts[surface] = c
	}
	plain.stop()
	fixture.stop()
	return contracts
}
