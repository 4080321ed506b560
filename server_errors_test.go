package main

// No secret of the configuration and no credential in a URL appears in any output
// of the service.

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// plantedSecret is the secret that a test puts into a key.
func plantedSecret(key string) string { return "s3cr3t-of-" + strings.ReplaceAll(key, ".", "-") }

// plantSecrets puts a secret into every configuration key that may have one, and
// returns the values by key as environment variables would have them. Keys that
// refuse such a value are left out.
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
			} else if raw, err := k.parseText(text); err != nil {
				continue
			} else if planted, faults := k.convert(raw); faults == nil {
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

// secretText formats a value, or a table with that one entry, like a variable.
func secretText(def any, value string) (string, bool) {
	switch def.(type) {
	case string:
		return value, true
	case map[string]string:
		text, err := json.Marshal(map[string]string{"X-Planted": value})
		return string(text), err == nil
	case headerTables:
		text, err := json.Marshal(map[string]map[string]string{"https://planted.example": {"X-Planted": value}})
		return string(text), err == nil
	case []apiKeyConfig:
		text, err := json.Marshal([]map[string]any{{"key": value, "permissions": []string{"tasks:read"}}})
		return string(text), err == nil
	case []subscriberConfig:
		text, err := json.Marshal([]map[string]any{{
			"name": "planted", "url": "http://user:" + value + "@127.0.0.1:1/?key=" + value, "events": []string{"*"},
			"secret": "whsec_" + base64.StdEncoding.EncodeToString([]byte(value)), "max_attempts": 1,
		}})
		return string(text), err == nil
	}
	return "", false
}

const secretTemplate = `{
	"namespace": "t", "name": "leaky", "version": "1.0.0", "identity_strategy": "always_unique",
	"description": "see https://user:s3cr3t-of-text@example.com/",
	"steps": [
		{"name": "mapped", "handler": {"callable": "X-Planted"}, "retry": {"max_attempts": 1},
			"publishes_events": [{"name": "leaky.ended", "description": "", "schema": {}, "condition": "always"}]},
		{"name": "default", "handler": {"callable": "Nobody"}, "retry": {"max_attempts": 1}},
		{"name": "own", "handler": {"callable": "http://user:s3cr3t-of-url@127.0.0.1:1/?token=s3cr3t-of-query",
			"initialization": {"upload": "https://h/u?sig=s3cr3t-of-signature"}}, "retry": {"max_attempts": 1}},
		{"name": "program", "handler": {"callable": "exec:s3cr3t"}, "dependencies": ["own"]}
	]
}`

func TestSecretsStayInside(t *testing.T) {
	slow(t)
	t.Parallel()
	var log lockedText
	var texts map[string]string
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "leaky.json"), []byte(secretTemplate))
	s := newTestServer(t, serviceTest{log: &log, templates: dir, config: func(c *Config) {
		texts = plantSecrets(t, c)
		c.Orchestration.Web.ConfigEndpointEnabled = true
		c.Worker.Undelivered = undeliveredFail
	}})
	w := s.with(newWorkerAPI(s.svc, nil))
	id := s.create(`{"namespace":"t","name":"leaky"}`)
	task := s.await(id, "blocked_by_failures")
	eventually(t, "a delivery that fails", func() bool { return strings.Contains(log.String(), "a subscriber did not accept") })
	values := map[string]string{
		"task_uuid": id, "step_uuid": task.text("steps.0.workflow_step_uuid"),
		"namespace": "t", "name": "leaky", "version": "1.0.0", "file": "x", "build": "x", "page": "tasks",
	}
	leaks := func(what, text string) {
		t.Helper()
		whole := strings.Contains(what, "/v1/backup") || strings.HasSuffix(strings.Split(what, "?")[0], "/template") // for those with all permissions
		text = strings.ReplaceAll(text, base64.StdEncoding.EncodeToString([]byte("s3cr3t-of")), "s3cr3t-of")
		if at := strings.Index(text, "s3cr3t-of"); at >= 0 && !whole {
			t.Errorf("%s has a secret in it: …%s…", what, text[max(at-100, 0):min(at+60, len(text))])
		}
	}
	s.svc.store.events.close() // otherwise its stream does not end
	leaks("the events", allEvents(t, s.svc, eventFilter{}, 0))
	everyGET(t, s, newOrchestrationAPI(s.svc, nil).routes(), values, leaks)
	everyGET(t, w, newWorkerAPI(s.svc, nil).routes(), values, leaks)
	values["id"], values["task_id"], values["step_id"] = id, id, values["step_uuid"]
	mount := newOrchestrationAPI(s.svc, nil).mount
	everyGET(t, s, s.svc.cfg.Mount.mounted(mount.routes()), values, leaks)
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

// everyGET requests every GET route of a surface, with known and with unknown ids,
// as a program and as a browser.
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
		if strings.HasSuffix(real, "/v1/find") {
			real += "?q=leaky"
		}
		unknown := pathParameter.ReplaceAllString(path, "00000000-0000-7000-8000-000000000000")
		for _, target := range []string{real, real + "?include_cache_stats=true&namespace=t", unknown} {
			a := s.do("GET", target, "")
			if target == real && a.status != http.StatusOK && !strings.Contains(pattern, "{file") {
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

// secretsInConfigShow runs "config show" with the same secrets from each source of
// the configuration.
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
	for path := range texts { // problems are reported without the value
		broken := map[string]string{configKeyAt(path).envName(): "\x01{" + plantedSecret(path) + "@\x00"}
		out, err := runConfig(broken, "show")
		leaks("config show with a broken "+path, fmt.Sprint(out, err))
	}
}

// TestInternalErrorsStayInside requests a route that fails and one that panics: the
// caller learns only the request id, which is also in the log.
func TestInternalErrorsStayInside(t *testing.T) {
	var log strings.Builder
	svc := newTestService(t, serviceTest{log: &log})
	a := newOrchestrationAPI(svc, nil)
	a.surface.handle([]route{
		{"GET /fails", public, func(*responseWriter, *http.Request) (any, error) { return nil, errors.New("the secret cause") }},
		{"GET /panics", public, func(_ *responseWriter, r *http.Request) (any, error) {
			budgetOf(r).take(1, "", "")
			panic("the secret cause")
		}},
	})
	counted := func(want string) {
		if !strings.Contains(string(served(t, a, "GET", "/metrics", "").body), "\nstepwell_internal_errors_total{role=\"orchestration\"} "+want+"\n") {
			t.Errorf("the metrics do not count %s internal errors", want)
		}
	}
	counted("0")
	for _, path := range []string{"/fails", "/panics"} {
		got := string(served(t, a, "GET", path, "", "X-Request-Id: id-of-"+path[1:]).want(500).body)
		if strings.Contains(got, "secret") || !strings.Contains(got, "id-of-") {
			t.Errorf("%s: got %s", path, got)
		}
		if !strings.Contains(log.String(), "the secret cause") || !strings.Contains(log.String(), "id-of-"+path[1:]) {
			t.Errorf("%s: the log lacks the cause or the request id: %s", path, &log)
		}
	}
	if used := svc.quotas.memory.used.Load(); used != 0 {
		t.Errorf("got %d bytes of the budget still in use; want none", used)
	}
	counted("2")
}

// TestEveryFailureHasAWord checks that the table of failures is complete: only the
// two worker errors that have the orchestration role's body may lack a word.
func TestEveryFailureHasAWord(t *testing.T) {
	for kind, row := range failureForms {
		without := failureKind(kind) == unauthenticated || failureKind(kind) == forbidden
		if row.status == 0 || row.code == "" || (row.word == "") != without {
			t.Errorf("kind %d: got %+v; want status, code and word", kind, row)
		}
	}
}
