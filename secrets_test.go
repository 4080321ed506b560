package main

// No secret of the configuration, and no credential in a URL, shows in anything
// that the service says.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// plantedSecret is the secret that a test puts into a key.
func plantedSecret(key string) string { return "s3cr3t-of-" + strings.ReplaceAll(key, ".", "-") }

// plantSecrets puts a secret wherever the table of keys says that one may be, and
// returns the text that an environment variable would have, by key. Where a
// value with a secret in it is refused there is nothing to find.
func plantSecrets(t *testing.T, c *Config) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for i := range configKeys {
		k := &configKeys[i]
		if k.secret == notSecret {
			continue
		}
		for _, value := range secretCandidates(k) {
			if text, ok := secretText(k.def, value); !ok {
				t.Errorf("%s: no test knows how to put a secret into a %T", k.path, k.def)
			} else if planted, faults := k.convertText(text); faults == nil {
				k.set(c, planted)
				texts[k.path] = text
				break
			}
		}
	}
	if len(texts) < 5 {
		t.Fatalf("got secrets in %v; want more", texts)
	}
	return texts
}

// secretCandidates are values for a key, the one with the most secrets first.
func secretCandidates(k *configKey) []string {
	s := plantedSecret(k.path)
	if k.secret == maskURLs {
		return []string{"http://user:" + s + "@127.0.0.1:1/p?key=" + s + "#" + s, "http://user:" + s + "@127.0.0.1:1"}
	}
	return []string{s}
}

// secretText is a value, or a table with one entry of it, as a variable has it.
func secretText(def any, value string) (string, bool) {
	switch def.(type) {
	case string:
		return value, true
	case map[string]string:
		text, err := json.Marshal(map[string]string{"X-Planted": value})
		return string(text), err == nil
	case []apiKeyConfig:
		text, err := json.Marshal([]map[string]any{{"key": value, "permissions": []string{"tasks:read"}}})
		return string(text), err == nil
	}
	return "", false
}

// lockedText is a log that several goroutines write.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const secretTemplate = `{
	"namespace": "t", "name": "leaky", "version": "1.0.0", "identity_strategy": "always_unique",
	"description": "see https://user:s3cr3t-of-text@example.com/",
	"steps": [
		{"name": "mapped", "handler": {"callable": "X-Planted"}, "retry": {"max_attempts": 1}},
		{"name": "default", "handler": {"callable": "Nobody"}, "retry": {"max_attempts": 1}},
		{"name": "own", "handler": {"callable": "http://user:s3cr3t-of-url@127.0.0.1:1/"}, "retry": {"max_attempts": 1}},
		{"name": "program", "handler": {"callable": "exec:s3cr3t"}, "dependencies": ["own"]}
	]
}`

func TestSecretsStayInside(t *testing.T) {
	var log lockedText
	var texts map[string]string
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "leaky.json"), []byte(secretTemplate))
	s := newTestServer(t, serviceTest{log: &log, templates: dir, config: func(c *Config) {
		texts = plantSecrets(t, c)
		c.Orchestration.Web.ConfigEndpointEnabled = true
	}})
	w := s.with(newWorkerAPI(s.svc))
	id := s.create(`{"namespace":"t","name":"leaky"}`)
	task := s.await(id, "blocked_by_failures")
	values := map[string]string{
		"task_uuid": id, "step_uuid": task.text("steps.0.workflow_step_uuid"),
		"namespace": "t", "name": "leaky", "version": "1.0.0", "file": "x",
	}
	leaks := func(what, text string) {
		t.Helper()
		if at := strings.Index(text, "s3cr3t-of"); at >= 0 {
			t.Errorf("%s has a secret in it: …%s…", what, text[max(at-100, 0):min(at+60, len(text))])
		}
	}
	s.svc.store.events.close() // or its stream would not end
	leaks("the events", allEvents(t, s.svc, eventFilter{}, 0))
	everyGET(t, s, newOrchestrationAPI(s.svc).routes(), values, leaks)
	everyGET(t, w, newWorkerAPI(s.svc).routes(), values, leaks)
	for _, body := range []string{"", secretTemplate, strings.Replace(secretTemplate, `"own"`, `"default"`, 1)} {
		leaks("validate", string(w.do("POST", "/v1/templates/t/leaky/1.0.0/validate", body).want(200).body))
	}
	leaks("the task", string(task.body))
	leaks("the log", log.String())
	if !strings.Contains(log.String(), "leaky") {
		t.Errorf("got the log %q; want one that warns of the template", &log)
	}
	secretsInConfigShow(t, texts, leaks)
}

var pathParameter = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// everyGET asks every GET route of a surface, with real ids and with unknown
// ones, as a program and as a browser.
func everyGET(t *testing.T, s *testServer, rows []route, values map[string]string, leaks func(what, text string)) {
	t.Helper()
	asked := 0
	for _, pattern := range patternsOf(rows) {
		path, ok := strings.CutPrefix(pattern, "GET ")
		if !ok {
			continue
		}
		path = strings.Replace(path, "{$}", "", 1)
		real := pathParameter.ReplaceAllStringFunc(path, func(p string) string {
			value := values[pathParameter.FindStringSubmatch(p)[1]]
			if value == "" {
				t.Errorf("%s: no value for %s is known to this test", pattern, p)
			}
			return value
		})
		unknown := pathParameter.ReplaceAllString(path, "00000000-0000-7000-8000-000000000000")
		for _, target := range []string{real, real + "?include_cache_stats=true&namespace=t", unknown} {
			a := s.do("GET", target, "")
			if target == real && a.status != http.StatusOK && !strings.Contains(pattern, "{file...}") {
				t.Errorf("GET %s: got %d; want 200: %s", target, a.status, a.body)
			}
			leaks("GET "+target, fmt.Sprint(a.header)+string(a.body))
			asked++
		}
	}
	if asked < 30 {
		t.Errorf("got %d requests; want more", asked)
	}
}

// secretsInConfigShow has "config show" print the same secrets, from each of the
// places that they may come from.
func secretsInConfigShow(t *testing.T, texts map[string]string, leaks func(what, text string)) {
	t.Helper()
	env := map[string]string{}
	for path, text := range texts {
		env[configKeyAt(path).envName()] = text
	}
	for _, output := range []string{"table", "json"} {
		out, err := runConfig(env, "show", "-o", output)
		if err != nil || !strings.Contains(out, redactedText) {
			t.Errorf("config show -o %s: got %v, %s; want secrets redacted", output, err, out)
		}
		leaks("config show -o "+output, out)
	}
	for path := range texts { // what is wrong with a value is told without it
		broken := map[string]string{configKeyAt(path).envName(): "\x01{" + plantedSecret(path) + "@\x00"}
		out, err := runConfig(broken, "show")
		leaks("config show with a broken "+path, fmt.Sprint(out, err))
	}
}
