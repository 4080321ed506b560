package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// inlineParts matches the scripts and styles of a page.
var inlineParts = regexp.MustCompile(`(?s)<(script|style)>(.*?)</`)

// TestDocsPageIsWhole checks that the page works under its policy and loads nothing
// from elsewhere.
func TestDocsPageIsWhole(t *testing.T) {
	p := newDocsSite(&docsConfig{}).page()
	page := string(p.html)
	parts := inlineParts.FindAllStringSubmatch(page, -1)
	if len(parts) != 2 {
		t.Fatalf("got %d scripts and styles; want one of each", len(parts))
	}
	for _, part := range parts {
		if want := part[1] + "-src " + contentHash([]byte(part[2])); !strings.Contains(p.policy, want+";") {
			t.Errorf("got policy %s; want %s in it", p.policy, want)
		}
		if len(part[2]) < 1000 || strings.Contains(part[2], "</") {
			t.Errorf("%s: got %d bytes; want the whole of it", part[1], len(part[2]))
		}
	}
	if strings.Contains(page, "<!--") {
		t.Error("got a place that was not filled in")
	}
	markup := inlineParts.ReplaceAllString(page, "")
	for _, forbidden := range []string{` style="`, ` onclick=`, ` onload=`, "<link rel=\"stylesheet\"", " src="} {
		if strings.Contains(markup, forbidden) {
			t.Errorf("got %q in the markup; the policy forbids it", forbidden)
		}
	}
	for _, url := range regexp.MustCompile(`https?://[^"'\s)]+`).FindAllString(page, -1) {
		if url != "http://www.w3.org/2000/svg" {
			t.Errorf("got %s; want nothing from elsewhere", url)
		}
	}
	for _, dangerous := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
		if strings.Contains(page, dangerous) {
			t.Errorf("got %s; want text nodes only", dangerous)
		}
	}
}

// swaggerDirectory makes the part of a Swagger UI distribution that the page uses.
func swaggerDirectory(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dist")
	noError(t, os.MkdirAll(filepath.Join(dir, "assets"), 0o700))
	for name, text := range map[string]string{
		"swagger-ui.css": "body {}", "swagger-ui-bundle.js": "let x", "index.html": "theirs",
		"assets/logo.svg": "<svg/>", "../secret": "secret",
	} {
		writeFile(t, filepath.Join(dir, name), []byte(text))
	}
	noError(t, os.Symlink("../secret", filepath.Join(dir, "link")))
	return dir
}

func TestSwaggerDirectory(t *testing.T) {
	dir := swaggerDirectory(t)
	s := newTestServer(t, serviceTest{config: func(c *Config) { c.Docs.SwaggerUI = dir }})
	for path, files := range map[string]string{
		"/api-docs": "./api-docs/ui", "/api-docs/ui": "./ui", "/api-docs/ui/": ".", "/api-docs/ui/index.html": ".",
	} {
		a := s.do("GET", path, "").want(200)
		if !strings.Contains(string(a.body), `<script src="`+files+`/swagger-ui-bundle.js">`) {
			t.Errorf("%s: got %s; want files at %s", path, a.body, files)
		}
		start := inlineParts.FindSubmatch(a.body)
		if policy := a.header.Get("Content-Security-Policy"); !strings.Contains(policy, contentHash(start[2])) {
			t.Errorf("%s: got policy %s; want the hash of %s", path, policy, start[2])
		}
	}
	for path, want := range map[string]struct{ body, contentType string }{
		"swagger-ui.css":       {"body {}", "text/css; charset=utf-8"},
		"swagger-ui-bundle.js": {"let x", "text/javascript; charset=utf-8"},
		"assets/logo.svg":      {"<svg/>", "image/svg+xml"},
	} {
		a := s.do("GET", "/api-docs/ui/"+path, "").want(200)
		if string(a.body) != want.body || a.header.Get("Content-Type") != want.contentType ||
			a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %v %s; want %v", path, a.header, a.body, want)
		}
	}
	for _, path := range []string{"nothing.js", "assets", "assets/", "link", "..%2Fsecret", "%2e%2e%2fsecret", "%2Fetc%2Fpasswd"} {
		if a := s.do("GET", "/api-docs/ui/"+path, "").want(404); a.text("error.code") != "NOT_FOUND" {
			t.Errorf("%s: got %s; want NOT_FOUND", path, a.body)
		}
	}
}

func TestSwaggerURL(t *testing.T) {
	s := newTestServer(t, serviceTest{config: func(c *Config) { c.Docs.SwaggerUI = "https://cdn.example.com:8443/swagger@5/" }})
	a := s.do("GET", "/api-docs/ui", "").want(200)
	for _, want := range []string{
		`<script src="https://cdn.example.com:8443/swagger@5/swagger-ui-bundle.js">`,
		`<link rel="stylesheet" href="https://cdn.example.com:8443/swagger@5/swagger-ui.css">`,
	} {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("got %s; want %s", a.body, want)
		}
	}
	policy := a.header.Get("Content-Security-Policy")
	if !strings.Contains(policy, " https://cdn.example.com:8443;") || !strings.Contains(policy, "connect-src 'self';") {
		t.Errorf("got policy %s; want the one origin, and requests to ourselves alone", policy)
	}
	s.do("GET", "/api-docs/ui/swagger-ui.css", "").want(404)
}

func TestSwaggerConfiguration(t *testing.T) {
	for value, ok := range map[string]bool{
		"": true, "./dist": true, "/usr/share/swagger": true, "https://cdn.example.com/swagger": true, "http://[::1]:80": true,
		"https://": false, "https://user:secret@h/x": false, "https://h/x?key=secret": false, "https://h/x#a": false,
		"https://h/a b": false, "https://h/a;script-src *": false, "https://h'/": false, "https://h/a,b": false,
	} {
		in := configInput{files: oneConfigFile("[docs]", "swagger_ui = "+quoteTOML(value))}
		_, _, err := in.load()
		if (err == nil) != ok {
			t.Errorf("%q: got %v; want ok = %v", value, err, ok)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v; want it without the secret", value, err)
		}
	}
}

func TestSwaggerFilesAreChecked(t *testing.T) {
	dir := swaggerDirectory(t)
	for _, value := range []string{"", dir, "https://cdn.example.com/x"} {
		if err := checkSwaggerFiles(&docsConfig{value}); err != nil {
			t.Errorf("%q: got %v; want no error", value, err)
		}
	}
	empty := t.TempDir()
	err := checkSwaggerFiles(&docsConfig{empty})
	if want := "docs.swagger_ui: swagger-ui.css in " + empty + ": "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v; want %s…", err, want)
	}
	noError(t, os.Mkdir(filepath.Join(empty, "swagger-ui.css"), 0o700))
	if err := checkSwaggerFiles(&docsConfig{empty}); err == nil || !strings.HasSuffix(err.Error(), ": not a regular file") {
		t.Errorf("got %v; want that it is not a regular file", err)
	}
}

func TestWantsHTML(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/plain": false, "text/*": false, ";;": false,
		"text/html": true, "TEXT/HTML": true, "application/json, text/html;q=0.5": true, "text/html;level=1": true,
		"text/html;q=0": false, "text/html; q=0.0, */*": false, "text/html;q=x": true,
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8": true,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		if got := wantsHTML(r); got != want {
			t.Errorf("%q: got %v; want %v", accept, got, want)
		}
	}
}

// The OpenAPI documents follow their own rules, name every route with its
// permission, and agree with the shapes that responses are checked against.

// openAPIRoutes returns the operations that each surface's document must have, with
// their permissions in the route tables.
func openAPIRoutes() map[string]map[string]string {
	routes := map[string]map[string]string{}
	for _, table := range allRoutes() {
		surface := table.surface
		routes[surface] = map[string]string{}
		for _, row := range table.routes {
			pattern, permission := strings.NewReplacer("{$}", "", "...}", "}").Replace(row.pattern), ""
			switch len(row.permissions) {
			case 0:
			case int(permissionCount):
				permission = "*"
			default:
				permission = row.permissions[0].String()
			}
			routes[surface][pattern] = permission
		}
	}
	routes["fixture"] = map[string]string{}
	for _, row := range (&controlAPI{}).routes() {
		routes["fixture"][row.pattern] = "*"
	}
	return routes
}

// eachOpenAPIDocument runs f with the document of each surface.
func eachOpenAPIDocument(t *testing.T, f func(t *testing.T, surface string, doc map[string]any)) {
	t.Helper()
	for surface := range openAPIRoutes() {
		t.Run(surface, func(t *testing.T) {
			text := must(openAPIForSurface("X-Key", nil, surface))(t)
			doc := must(wire.Decode(text))(t)
			f(t, surface, doc.(map[string]any))
		})
	}
}

// eachOpenAPIOperation calls f for each operation, with "GET /path".
func eachOpenAPIOperation(doc map[string]any, f func(route string, operation map[string]any)) {
	for path, item := range doc["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			f(strings.ToUpper(method)+" "+path, operation.(map[string]any))
		}
	}
}

func TestOpenAPIRoutesAndPermissions(t *testing.T) {
	sequential(t)
	t.Parallel()
	eachOpenAPIDocument(t, func(t *testing.T, surface string, doc map[string]any) {
		got := map[string]string{}
		eachOpenAPIOperation(doc, func(route string, operation map[string]any) {
			permission, _ := operation["x-required-permission"].(string)
			got[route] = permission
			checkOpenAPIPermission(t, route, permission, operation)
			_, refused := operation["responses"].(map[string]any)["421"]
			if open := new(hostGuard).open(route); refused == open {
				t.Errorf("%s: got a response 421: %v; want %v", route, refused, !open)
			}
		})
		if !maps.Equal(got, openAPIRoutes()[surface]) {
			t.Errorf("got routes %q; want %q", got, openAPIRoutes()[surface])
		}
	})
}

func checkOpenAPIPermission(t *testing.T, route, permission string, operation map[string]any) {
	t.Helper()
	security := wire.Text(operation["security"])
	description, _ := operation["description"].(string)
	_, marked := operation["x-surfaces"]
	if permission == "" {
		if security != "null" || strings.Contains(description, "Permission") || marked {
			t.Errorf("%s: got security %s, marked %v, description %q; want a public operation",
				route, security, marked, description)
		}
		return
	}
	if want := `[{"bearer_auth":[]},{"api_key_auth":[]}]`; security != want {
		t.Errorf("%s: got security %s; want %s", route, security, want)
	}
	line := "**Required Permission:** `" + permission + "`"
	if !slices.Contains(strings.Split(description, "\n"), line) {
		t.Errorf("%s: got description %q; want the line %q", route, description, line)
	}
	for _, code := range []string{"401", "403", "500"} {
		if _, ok := operation["responses"].(map[string]any)[code]; !ok {
			t.Errorf("%s: got no response %s; want one", route, code)
		}
	}
}

func TestOpenAPIDocumentsAreWhole(t *testing.T) {
	t.Parallel()
	eachOpenAPIDocument(t, func(t *testing.T, surface string, doc map[string]any) {
		components := doc["components"].(map[string]any)
		used := map[string]bool{}
		openAPIReferences(doc, func(ref string) {
			used[ref] = true
			if _, ok := openAPIResolve(doc, ref); !ok {
				t.Errorf("got no %s; want one", ref)
			}
		})
		for kind, entries := range components {
			for name := range entries.(map[string]any) {
				if ref := "#/components/" + kind + "/" + name; !used[ref] && kind != "securitySchemes" {
					t.Errorf("got %s, which nothing refers to", ref)
				}
			}
		}
		if got, _ := wire.LookUp(doc, "components.securitySchemes.api_key_auth.name"); got != "X-Key" {
			t.Errorf("api key header: got %v; want X-Key", got)
		}
		if got, _ := wire.LookUp(doc, "info.version"); got != version {
			t.Errorf("version: got %v; want %s", got, version)
		}
	})
}

// freeValues are the members whose values have no type that the program could know: what callers,
// templates and handlers give, and two more.
var freeValues = strings.Fields("context options metadata custom inputs config configuration result results payload " +
	"data body cursor accumulated_results dependency_results default_context initialization composition " +
	"task_handler schema result_schema input_schema config_schema" +
	" order" + // conditions whose members depend on those of match
	" tasks templates analytics subscribers requests") // records of a state document

// TestOpenAPIValuesHaveTypes checks that generated clients get a type for every value but the free ones.
func TestOpenAPIValuesHaveTypes(t *testing.T) {
	t.Parallel()
	eachOpenAPIDocument(t, func(t *testing.T, surface string, doc map[string]any) {
		eachSchema(doc, "", func(name string, schema map[string]any) {
			if isFree(schema) && !slices.Contains(freeValues, name) {
				t.Errorf("%s: got %s; want a type", name, wire.Text(schema))
			}
		})
	})
}

// eachSchema calls f with every schema in v, and the name of the member that it describes.
func eachSchema(v any, name string, f func(name string, schema map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			eachSchema(e, name, f)
		}
	case map[string]any:
		for key, value := range v {
			members, _ := value.(map[string]any)
			switch key {
			case "example", "examples", "default":
				continue
			case "schemas", "properties":
				for member, schema := range members {
					f(member, schema.(map[string]any))
					eachSchema(schema, member, f)
				}
				continue
			case "schema", "items", "additionalProperties":
				if members != nil {
					f(name, members)
				}
			}
			eachSchema(value, name, f)
		}
	}
}

// isFree reports whether a schema allows any value, or any object.
func isFree(schema map[string]any) bool {
	for _, word := range strings.Fields("$ref const enum anyOf oneOf allOf properties items") {
		if _, ok := schema[word]; ok {
			return false
		}
	}
	types := wire.Text(schema["type"])
	_, typed := schema["additionalProperties"].(map[string]any)
	return types == "null" || strings.Contains(types, "object") && !typed
}

// TestOpenAPINames checks the names of the schemas that generated clients of existing services know.
func TestOpenAPINames(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"orchestration": `ApiError BottleneckAnalysis ConfigMetadata DetailedHealthChecks DetailedHealthResponse DlqEntry
			DlqInvestigationQueueEntry DlqInvestigationUpdate DlqReason DlqResolutionStatus DlqStats HealthCheck HealthInfo
			HealthResponse ManualCompletionData NamespaceSummary OrchestrationConfigResponse PaginationInfo
			PerformanceMetrics ReadinessChecks ReadinessResponse ResourceUtilization SafeAuthConfig SafeMessagingConfig
			SlowStepInfo SlowTaskInfo StalenessHealthStatus StalenessMonitoring StepAuditResponse StepDefinition
			StepExecutionError StepExecutionMetadata StepExecutionResult StepManualAction StepReadinessStatus StepResponse
			SystemHealthCounts TaskListResponse TaskRequest TaskResponse TemplateDetail TemplateListResponse
			TemplateSummary UpdateInvestigationResponse`,
		"worker": `ApiError BasicHealthResponse CacheStats DomainEventStats EventRouterStats HandlerMetadata
			InProcessEventBusStats MetricValue MetricsResponse ResolvedTaskTemplate TaskTemplate TemplateResponse
			TemplateValidationResponse WorkerConfigResponse WorkerSystemInfo`,
		"mount": "TaskTemplate",
	}
	eachOpenAPIDocument(t, func(t *testing.T, surface string, doc map[string]any) {
		schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
		for _, name := range strings.Fields(want[surface]) {
			if schemas[name] == nil {
				t.Errorf("%s: got no schema %s; want one", surface, name)
			}
		}
	})
}

// TestOpenAPIOrder checks that a document lists its tags and paths in the order of use.
func TestOpenAPIOrder(t *testing.T) {
	t.Parallel()
	for surface, want := range map[string]struct{ tags, paths string }{
		"orchestration": {
			"Tasks Steps Templates DLQ Analytics Health Configuration Documentation",
			"/v1/tasks /v1/tasks/{task_uuid} /v1/tasks/{task_uuid}/explain /v1/tasks/{task_uuid}/summary ",
		},
		"worker": {"Templates Health Configuration Documentation", "/v1/templates "},
		"mount":  {"Tasks Steps Handlers Analytics Health Documentation", "/tasks /tasks/{id} /tasks/{id}/explain "},
	} {
		text := must(openAPIForSurface("X-Key", nil, surface))(t)
		var doc struct {
			Tags  []struct{ Name string }
			Paths json.RawMessage
		}
		noError(t, json.Unmarshal(text, &doc))
		var tags []string
		for _, tag := range doc.Tags {
			tags = append(tags, tag.Name)
		}
		if got := strings.Join(tags, " "); got != want.tags {
			t.Errorf("%s: got tags %s; want %s", surface, got, want.tags)
		}
		var paths []string
		eachMember(doc.Paths, func(path string, _ []byte) bool { paths = append(paths, path); return true })
		if got := strings.Join(paths, " "); !strings.Contains(got+" ", want.paths) {
			t.Errorf("%s: got paths %s; want %s among them", surface, got, want.paths)
		}
	}
}

// TestMountDocumentHasNoVersions checks that the mount point's document names no path under /v1.
func TestMountDocumentHasNoVersions(t *testing.T) {
	t.Parallel()
	doc := must(wire.Decode(must(openAPIForSurface("X-Key", nil, "mount"))(t)))(t)
	for _, part := range doc.(map[string]any) {
		if text := wire.Text(part); strings.Contains(text, "/v1") {
			t.Errorf("got %.200s; want no /v1", text[max(strings.Index(text, "/v1")-100, 0):])
		}
	}
}

// TestDocumentTellsOfAuthentication checks that the page can learn whether callers need
// credentials.
func TestDocumentTellsOfAuthentication(t *testing.T) {
	t.Parallel()
	for _, enabled := range []bool{true, false} {
		s := newTestServer(t, serviceTest{config: func(c *Config) {
			if enabled {
				withAPIKeys(&c.Orchestration.Web.Auth)
				c.Orchestration.Web.Auth.Enabled = true
			}
		}})
		if got := s.do("GET", "/api-docs.json", "").want(200).get("x-authentication"); got != enabled {
			t.Errorf("got %v; want %v", got, enabled)
		}
	}
}

// openAPIResolve resolves a reference in doc.
func openAPIResolve(doc map[string]any, ref string) (any, bool) {
	v, ok := any(doc), strings.HasPrefix(ref, "#/")
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		object, _ := v.(map[string]any)
		if v, ok = object[name]; !ok {
			return nil, false
		}
	}
	return v, ok
}

// openAPIFollow returns v, or what v refers to.
func openAPIFollow(doc map[string]any, v any) map[string]any {
	object, _ := v.(map[string]any)
	if ref, ok := object["$ref"].(string); ok {
		target, _ := openAPIResolve(doc, ref)
		object, _ = target.(map[string]any)
	}
	return object
}

func TestOpenAPIOperationsAreDescribed(t *testing.T) {
	t.Parallel()
	eachOpenAPIDocument(t, func(t *testing.T, surface string, doc map[string]any) {
		ids, tags := map[any]string{}, wire.Text(doc["tags"])
		eachOpenAPIOperation(doc, func(route string, operation map[string]any) {
			id := operation["operationId"]
			if ids[id] != "" || id == nil {
				t.Errorf("%s: got operation id %v, that of %q; want a different one", route, id, ids[id])
			}
			ids[id] = route
			for _, tag := range operation["tags"].([]any) {
				if !strings.Contains(tags, wire.Text(tag)) {
					t.Errorf("%s: got unknown tag %v", route, tag)
				}
			}
			checkOpenAPIParameters(t, doc, route, operation)
			if body, ok := operation["requestBody"]; ok {
				checkOpenAPIContent(t, doc, route+" request", openAPIFollow(doc, body))
			}
			for code, response := range operation["responses"].(map[string]any) {
				if code != "204" && code != "304" { // which have no content
					checkOpenAPIContent(t, doc, route+" "+code, openAPIFollow(doc, response))
				}
			}
		})
	})
}

// checkOpenAPIParameters checks that exactly the path's parameters are declared, and
// that every parameter has a schema and an example that matches it.
func checkOpenAPIParameters(t *testing.T, doc map[string]any, route string, operation map[string]any) {
	t.Helper()
	var declared []string
	for _, p := range operation["parameters"].([]any) {
		parameter := openAPIFollow(doc, p)
		name := parameter["name"].(string)
		if parameter["in"] == "path" {
			declared = append(declared, "{"+name+"}")
		}
		if parameter["schema"] == nil || parameter["example"] == nil || parameter["description"] == nil {
			t.Errorf("%s: got %s; want schema, example and description", route, wire.Text(parameter))
		}
		for _, problem := range wire.SchemaProblems(doc, parameter["schema"], parameter["example"]) {
			t.Errorf("%s: parameter %s: %s", route, name, problem)
		}
	}
	inPath := regexp.MustCompile(`\{[^}]*\}`).FindAllString(route, -1)
	slices.Sort(inPath)
	if slices.Sort(declared); !slices.Equal(inPath, declared) {
		t.Errorf("%s: got path parameters %q; want %q", route, declared, inPath)
	}
}

// checkOpenAPIContent checks that a body has a schema, and examples that match it.
func checkOpenAPIContent(t *testing.T, doc map[string]any, what string, body map[string]any) {
	t.Helper()
	content, _ := body["content"].(map[string]any)
	if len(content) == 0 || body["description"] == nil {
		t.Errorf("%s: got %s; want a description and content", what, wire.Text(body))
	}
	for mediaType, c := range content {
		media := c.(map[string]any)
		examples, _ := media["examples"].(map[string]any)
		if example, ok := media["example"]; ok {
			examples = map[string]any{"example": map[string]any{"value": example}}
		}
		if len(examples) == 0 || media["schema"] == nil {
			t.Errorf("%s %s: got %d examples, schema %v; want both", what, mediaType, len(examples), media["schema"])
		}
		for name, example := range examples {
			value := openAPIFollow(doc, example)["value"]
			for _, problem := range wire.SchemaProblems(doc, media["schema"], value) {
				t.Errorf("%s %s, example %s: %s", what, mediaType, name, problem)
			}
		}
	}
}

// consolePaths are the paths that the bar of the console leads to.
var consolePaths = map[string]bool{"/console": true, "/console/": true, "/console/tasks": true, "/console/templates": true,
	"/console/dlq": true, "/console/analytics": true, "/console/fixture": true, "/console/start": true, "/api-docs/ui": true}

var consoleLinks = regexp.MustCompile(`(?:src|href)="([^"#]+)"`)

// TestConsolePages checks that the page is the same at every path, that its files are found from
// there, also below the prefix of a proxy, and that browsers keep these files.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{})
	for _, path := range []string{
		"/console", "/console/", "/console/tasks", "/console/tasks?status=error", "/console/tasks/x",
		"/console/templates/a/b/1.0.0", "/console/templates/a%2Fb/c/1.0.0", "/console/nowhere",
	} {
		a := s.do("GET", path, "").want(200)
		policy := a.header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'sha256-") ||
			strings.Contains(policy, "unsafe") || a.header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: got headers %v; want a strict policy and no-cache", path, a.header)
		}
		files := 0
		for _, link := range consoleLinks.FindAllStringSubmatch(string(a.body), -1) {
			if strings.HasPrefix(link[1], "data:") {
				continue
			}
			page, _ := url.Parse("http://proxy.example/flows" + path)
			target, _ := page.Parse(link[1])
			file, below := strings.CutPrefix(target.Path, "/flows/console/web/")
			if !below {
				if !consolePaths[strings.TrimPrefix(target.Path, "/flows")] {
					t.Errorf("%s: the link %s leads to %s", path, link[1], target)
				}
				continue
			}
			files++
			got := s.do("GET", "/console/web/"+file, "").want(200)
			if !strings.Contains(got.header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: got Cache-Control %q", file, got.header.Get("Cache-Control"))
			}
		}
		if files != 1 {
			t.Errorf("%s: got %d links to files; want the script that loads the others", path, files)
		}
	}
}

// TestConsoleFiles checks the type of files, and that a path of another build is not kept.
func TestConsoleFiles(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{})
	a := s.do("GET", "/console/web/old/main.js", "").want(200)
	if a.header.Get("Content-Type") != "text/javascript; charset=utf-8" || a.header.Get("Cache-Control") != "no-cache" ||
		a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got headers %v; want a script, not kept", a.header)
	}
	for _, name := range []string{"index.html", "console.css", "none.js", "..%2Findex.html"} {
		s.do("GET", "/console/web/old/"+name, "").want(404)
	}
}

// TestConsoleFacts checks what the page says about the service.
func TestConsoleFacts(t *testing.T) {
	cfg := defaultConfig()
	cfg.Fixture.Enabled = true
	page := string(newConsoleSite(cfg, &authConfig{Enabled: true, APIKeyHeader: `X-"Key`}).pageAt("/console").html)
	for _, want := range []string{`data-fixture="true"`, `data-auth="true"`, `data-key-header="X-&#34;Key"`, `data-version="` + version + `"`} {
		if !strings.Contains(page, want) {
			t.Errorf("got no %s in the page", want)
		}
	}
	if strings.Contains(page, "<!--") || strings.Contains(page, "FILES") || strings.Contains(page, "CONSOLE") {
		t.Errorf("got a place that was not filled in:\n%s", page)
	}
}

var consoleImports = regexp.MustCompile(`(?:from|import\() ?"\./([^"]+)"`)

// TestConsoleIsWhole checks that the files together are small, import only each other, and have
// neither inline code nor anything from elsewhere.
func TestConsoleIsWhole(t *testing.T) {
	site := newConsoleSite(defaultConfig(), &authConfig{})
	size, plain := 0, 0
	texts := maps.Clone(site.files)
	texts["index.html"] = []byte(site.page)
	for name, text := range texts {
		size, plain = size+compressedSize(text), plain+len(text)
		for _, found := range regexp.MustCompile(`https?://[^"'\s)]+`).FindAllString(string(text), -1) {
			if found != "http://www.w3.org/2000/svg" && !strings.HasPrefix(found, "http://127.0.0.1") {
				t.Errorf("%s: got %s; want nothing from elsewhere", name, found)
			}
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style: \""} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s: got %s; the policy forbids it", name, bad)
			}
		}
		for line := range strings.Lines(string(text)) {
			for _, m := range consoleImports.FindAllStringSubmatch(line, -1) {
				if site.files[m[1]] == nil {
					t.Errorf("%s: imports %s, which does not exist", name, m[1])
				}
			}
		}
	}
	if size > 95_000 || plain > 232_000 {
		t.Errorf("a browser loads %d bytes, %d uncompressed; want 95,000 and 232,000 at most", size, plain)
	}
	first := 0
	for _, name := range []string{"index.html", "begin.js", "main.js", "api.js", "ui.js", "tasks.js"} {
		first += compressedSize(texts[name])
	}
	if first > 40_000 {
		t.Errorf("a browser loads %d bytes for the page of the tasks; want 40,000 at most", first)
	}
	t.Logf("%d bytes, compressed; %d plain; %d for the page of the tasks", size, plain, first)
}

// compressedSize returns how many bytes a browser loads for a text.
func compressedSize(text []byte) int {
	var b bytes.Buffer
	w := newGzipWriter()
	w.Reset(&b)
	w.Write(text)
	w.Close()
	return b.Len()
}

// TestConsoleOff switches the console off: browsers are led to the documentation.
func TestConsoleOff(t *testing.T) {
	t.Parallel()
	for enabled, want := range map[bool]string{true: "/console", false: "/api-docs/ui"} {
		s := newTestServer(t, serviceTest{config: func(c *Config) { c.Console.Enabled = enabled }})
		r, _ := http.NewRequest("GET", s.url+"/", nil)
		r.Header.Set("Accept", "text/html")
		resp := must(http.DefaultTransport.RoundTrip(r))(t)
		resp.Body.Close()
		if resp.StatusCode != 302 || resp.Header.Get("Location") != want {
			t.Errorf("console.enabled = %v: got %d to %s; want 302 to %s", enabled, resp.StatusCode, resp.Header.Get("Location"), want)
		}
		links := s.do("GET", "/", "").want(200).get("links").(map[string]any)
		if _, linked := links["console"]; linked != enabled {
			t.Errorf("console.enabled = %v: got links %v", enabled, links)
		}
		status := map[bool]int{true: 200, false: 404}[enabled]
		s.do("GET", "/console/tasks", "").want(status)
		s.do("GET", "/console", "").want(status)
	}
}

// guardedServer serves a surface on its own listener, as the program does.
type guardedServer struct {
	t   *testing.T
	url string
}

func newGuardedServer(t *testing.T, h http.Handler, address string) *guardedServer {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("%s cannot be listened on: %v", address, err)
	}
	s := newHTTPServer(l, h, manyConnections(), slog.New(slog.DiscardHandler))
	go s.serve()
	t.Cleanup(func() { s.server.Close() })
	return &guardedServer{t, s.url()}
}

// ask sends an empty object with a Host ("" for the usual one) and an Origin ("" for
// none).
func (s *guardedServer) ask(method, path, host, origin string) *answer {
	s.t.Helper()
	if origin == "" {
		return s.askWith(method, path, host, "", "")
	}
	return s.askWith(method, path, host, "Origin", origin)
}

// askWith is ask with any header ("" for none). It does not follow redirects.
func (s *guardedServer) askWith(method, path, host, header, value string) *answer {
	s.t.Helper()
	req := must(http.NewRequest(method, s.url+path, strings.NewReader("{}")))(s.t)
	if host != "" {
		req.Host = host
	}
	if header != "" {
		req.Header.Set(header, value)
	}
	req.Header.Set("Content-Type", "application/json")
	return readAnswer(s.t, must(http.DefaultTransport.RoundTrip(req))(s.t))
}

func guardConfig(c *Config) {
	c.Web.AllowedHosts = []string{"Steps.Test", "10.9.8.7"}
	c.Web.AllowedOrigins = []string{"https://app.example:8443"}
}

// TestForeignPages sends what browsers send for foreign pages and for our own.
func TestForeignPages(t *testing.T) {
	const let = 422 // the guard lets it pass, but an empty object is not a task
	svc := newTestService(t, serviceTest{config: guardConfig})
	loopback := newGuardedServer(t, newOrchestrationAPI(svc, nil), "127.0.0.1:0")
	wide := newGuardedServer(t, newOrchestrationAPI(svc, nil), "0.0.0.0:0")
	own := strings.TrimPrefix(loopback.url, "http://")
	for _, tt := range []struct {
		host, origin   string
		loopback, wide int
	}{
		{"", "", let, let},
		{"", "http://evil.example", 400, 400},
		{"", "http://evil.example:8080", 400, 400},
		{"", "http://localhost.evil.example", 400, 400},
		{"", "http://127.0.0.1.evil.example", 400, 400},
		{"", "http://evillocalhost", 400, 400},
		{"", "null", 400, 400},
		{"", "file://", 400, 400},
		{"", "app://", 400, 400},
		{"", "http://", 400, 400},
		{"", "http://:8080", 400, 400},
		{"", "app://localhost", 400, 400}, // not a page of a web server
		{"", "localhost", 400, 400},
		{"", "ionic://steps.test", 400, 400},
		{"", "https://app.example", 400, 400},
		{"", "https://app.example:8443", let, let},
		{"", "https://APP.example:8443", let, let},
		{"", "http://" + own, let, let},
		{"", "http://localhost:3000", let, let},
		{"", "http://console.localhost", let, let},
		{"", "http://[::1]:3000", let, let},
		{"", "http://steps.test", let, let},
		{"evil.example", "", 421, let},
		{"evil.example:8080", "http://evil.example:8080", 421, 421}, // the name was made to resolve to this host
		{"evil.example", "http://localhost", 421, 421},
		{"10.9.8.8:80", "http://10.9.8.8:80", 421, let}, // a page cannot choose what an address means
		{"[2001:db8::1]:80", "http://[2001:db8::1]:80", 421, let},
		{"steps.test:80", "http://steps.test:80", let, let},
		{"evil.example", "http://other.example", 400, 400},
		{"localhost", "", let, let},
		{"LOCALHOST.:1", "", let, let},
		{"a.b.localhost:9", "", let, let},
		{"127.9.9.9", "", let, let},
		{"[::1]:99", "", let, let},
		{"[::ffff:127.0.0.1]", "", let, let},
		{"host.docker.internal:8080", "", let, let},
		{"steps.test:80", "", let, let},
		{"10.9.8.7", "", let, let},
		{"10.9.8.8", "", 421, let},
		{"0.0.0.0:8080", "", 421, let},
		{"127.0.0.1.evil.example", "", 421, let},
	} {
		for s, want := range map[*guardedServer]int{loopback: tt.loopback, wide: tt.wide} {
			a := s.ask("POST", "/v1/tasks", tt.host, tt.origin)
			code := map[int]string{400: "BAD_REQUEST", 421: "MISDIRECTED_REQUEST", let: "VALIDATION_FAILED"}[want]
			if a.status != want || a.text("error.code") != code {
				t.Errorf("%s, Host %q, Origin %q: got %d, %s; want %d", s.url, tt.host, tt.origin, a.status, a.body, want)
			}
		}
	}
}

// TestForeignHosts sends requests to every route of every surface with a foreign host name, as
// a page can whose name was made to resolve to this host: without the headers of a browser,
// with an Origin, and with Sec-Fetch-Site.
func TestForeignHosts(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	svc := newTestService(t, serviceTest{config: func(c *Config) {
		c.Orchestration.Web.ConfigEndpointEnabled = true
		c.Mount.StatusRequiresAuth, c.Mount.MetricsRequireAuth = true, true // without effect
	}})
	a := newOrchestrationAPI(svc, nil)
	for _, s := range []*surface{a.surface, a.mount.surface, newWorkerAPI(svc, nil).surface} {
		loopback, wide := newGuardedServer(t, s, "127.0.0.1:0"), newGuardedServer(t, s, "0.0.0.0:0")
		for _, row := range s.rows {
			method, path, _ := strings.Cut(row.pattern, " ")
			open := regexp.MustCompile(`^(/stepwell)?/(health|metrics|api-docs|console)\b`).MatchString(path)
			method = strings.Replace(method, "GET", "HEAD", 1) // which ends event streams at once
			path = strings.NewReplacer("{$}", "", "...", "").Replace(path)
			for _, server := range []*guardedServer{loopback, wide} {
				for _, header := range []string{"", "Origin", "Sec-Fetch-Site"} {
					a := server.askWith(method, path, "evil.example", header, "http://evil.example")
					want := !open && (server == loopback || header != "")
					if refused := a.status == 421; refused != want {
						t.Errorf("%s, %s, %q: got %d; want it refused: %v", s.name, row.pattern, header, a.status, want)
					}
				}
			}
		}
	}
}

// TestForeignPagesMayRead checks requests of pages of other origins that change nothing.
// Browsers do not show the answers to such pages.
func TestForeignPagesMayRead(t *testing.T) {
	t.Parallel()
	svc := newTestService(t, serviceTest{})
	s := newGuardedServer(t, newOrchestrationAPI(svc, nil), "127.0.0.1:0")
	for _, path := range []string{"/health", "/metrics", "/api-docs", "/v1/tasks"} {
		for _, method := range []string{"GET", "HEAD"} {
			if a := s.ask(method, path, "", "http://evil.example"); a.status != 200 {
				t.Errorf("%s %s: got %d; want 200", method, path, a.status)
			}
		}
	}
}

// TestWorkerRefusesForeignPages checks that errors have the worker role's form.
func TestWorkerRefusesForeignPages(t *testing.T) {
	svc := newTestService(t, serviceTest{})
	s := newGuardedServer(t, newWorkerAPI(svc, nil), "127.0.0.1:0")
	const path = "/v1/templates/demo/diamond/1.0.0/validate"
	a := s.ask("POST", path, "evil.example", "").want(421)
	if a.text("error") != "misdirected_request" || !strings.Contains(a.text("message"), "web.allowed_hosts") {
		t.Errorf("got %s", a.body)
	}
	if a = s.ask("POST", path, "", "http://evil.example").want(400); a.text("error") != "invalid_request" {
		t.Errorf("got %s", a.body)
	}
}

// TestCredentialsReplaceTheGuard checks that the guard is off with authentication, because
// foreign pages have no credentials.
func TestCredentialsReplaceTheGuard(t *testing.T) {
	svc := newTestService(t, serviceTest{config: func(c *Config) {
		a := &c.Orchestration.Web.Auth
		a.Enabled, a.APIKeysEnabled, a.APIKeys = true, true, surfaceKeys
		a.JWTPublicKey = publicPEM(t, authKeys().rsa)
	}})
	s := newGuardedServer(t, newOrchestrationAPI(svc, nil), "127.0.0.1:0")
	if a := s.ask("POST", "/v1/tasks", "evil.example", "http://evil.example"); a.status != 401 {
		t.Errorf("got %d; want 401: %s", a.status, a.body)
	}
}

// TestCookiesNeedAnOwnOrigin checks requests with cookies and passwords, which browsers add to
// requests of foreign pages, too, so that an authenticator cannot tell whether the user wants
// the request.
func TestCookiesNeedAnOwnOrigin(t *testing.T) {
	who := newWhoServer(t)
	who.say(200, `{"subject":"ann","permissions":["tasks:*"]}`)
	svc := newTestService(t, serviceTest{config: func(c *Config) {
		guardConfig(c)
		c.Orchestration.Web.Auth.Enabled, c.Orchestration.Web.Auth.AuthenticatorURL = true, who.URL
	}})
	a := newOrchestrationAPI(svc, nil)
	for _, tt := range []struct {
		method, path, header, value, origin string
		want                                int
	}{
		{"POST", "/v1/tasks", "Cookie", "session=x", "https://evil.example", 400},
		{"POST", "/v1/tasks", "Cookie", "session=x", "null", 400},
		{"POST", "/stepwell/tasks", "Cookie", "session=x", "https://evil.example", 400},
		{"POST", "/v1/tasks", "Cookie", "session=x", "https://steps.example", 422},
		{"POST", "/v1/tasks", "Cookie", "session=x", "https://app.example:8443", 422},
		{"POST", "/v1/tasks", "Cookie", "session=x", "", 422},
		{"POST", "/v1/tasks", "Authorization", "Basic eDp5", "https://evil.example", 400},
		{"POST", "/v1/tasks", "Authorization", "Bearer x", "https://evil.example", 422}, // no browser adds it
		{"POST", "/v1/tasks", "X-Api-Key", "x", "https://evil.example", 422},
		{"GET", "/v1/tasks", "Cookie", "session=x", "https://evil.example", 200},
		{"GET", "/health", "Cookie", "session=x", "https://evil.example", 200},
	} {
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader("{}"))
		r.Host = "steps.example"
		r.Header = http.Header{"Content-Type": {"application/json"}, tt.header: {tt.value}}
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		w := httptest.NewRecorder()
		if a.ServeHTTP(w, r); w.Code != tt.want {
			t.Errorf("%+v: got %d %s", tt, w.Code, w.Body)
		}
	}
}

// TestGuardConfiguration checks that names with a port or a path are refused, because they
// would never match.
func TestGuardConfiguration(t *testing.T) {
	for value, ok := range map[string]bool{
		"steps.test": true, "10.9.8.7": true, "::1": true, "steps.test:80": false, "http://steps.test": false, "": false,
	} {
		if err := checkHostValue(value); (err == nil) != ok {
			t.Errorf("web.allowed_hosts %q: got %v; want ok %v", value, err, ok)
		}
	}
	for value, ok := range map[string]bool{
		"https://a.example": true, "http://a.example:8080": true, "https://a.example/": false, "a.example": false,
		"null": false, "https://": false, "https://user@a.example": false, "*": true, "https://*.example": true,
	} {
		if err := checkOriginValue(value); (err == nil) != ok {
			t.Errorf("web.allowed_origins %q: got %v; want ok %v", value, err, ok)
		}
	}
}

// TestPagesOfOtherOrigins checks which answers a browser shows to a page of another origin.
func TestPagesOfOtherOrigins(t *testing.T) {
	const app, other = "https://App.example:8443", "https://other.example"
	for _, tt := range []struct {
		allowed                   []string
		method, path, origin      string
		status                    int
		shown, credentials, asked string // asked: Access-Control-Allow-Methods of a preflight
	}{
		{nil, "GET", "/v1/tasks", app, 200, "", "", ""},
		{nil, "OPTIONS", "/v1/tasks", app, 405, "", "", ""},
		{[]string{app}, "GET", "/v1/tasks", app, 200, app, "true", ""},
		{[]string{app}, "GET", "/v1/tasks", other, 200, "", "", ""},
		{[]string{app}, "GET", "/v1/tasks", "", 200, "", "", ""},
		{[]string{app}, "POST", "/v1/tasks", app, 422, app, "true", ""},
		{[]string{app}, "POST", "/v1/tasks", other, 400, "", "", ""},
		{[]string{app}, "PUT", "/v1/tasks", app, 405, app, "true", ""},
		{[]string{app}, "GET", "/v1/tasks/x", app, 400, app, "true", ""},
		{[]string{app}, "GET", "/stepwell/tasks", app, 200, app, "true", ""},
		{[]string{app}, "GET", "/metrics", app, 200, app, "true", ""},
		{[]string{app}, "HEAD", "/v1/events", app, 200, app, "true", ""},
		{[]string{app}, "OPTIONS", "/v1/tasks", app, 204, app, "true", "GET, HEAD, POST"},
		{[]string{app}, "OPTIONS", "/api/v1/tasks/x", app, 204, app, "true", "DELETE, GET, HEAD"},
		{[]string{app}, "OPTIONS", "/stepwell/tasks/x/workflow_steps/y", app, 204, app, "true", "DELETE, GET, HEAD, PATCH"},
		{[]string{app}, "OPTIONS", "/v1/tasks", other, 405, "", "", ""},
		{[]string{app}, "OPTIONS", "/nowhere", app, 404, "", "", ""},
		{[]string{"*"}, "GET", "/v1/tasks", other, 200, "*", "", ""},
		{[]string{"*"}, "GET", "/v1/tasks", "null", 200, "*", "", ""},
		{[]string{"*"}, "POST", "/v1/tasks", other, 422, "*", "", ""},
		{[]string{"*"}, "OPTIONS", "/v1/tasks", other, 204, "*", "", "GET, HEAD, POST"},
		{[]string{"*", app}, "GET", "/v1/tasks", app, 200, app, "true", ""},
		{[]string{"*", app}, "GET", "/v1/tasks", other, 200, "*", "", ""},
	} {
		svc := newTestService(t, serviceTest{config: func(c *Config) { c.Web.AllowedOrigins = tt.allowed }})
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader("{}"))
		r.Host, r.Header = "localhost", http.Header{"Content-Type": {"application/json"}}
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		if tt.method == "OPTIONS" {
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header.Set("Access-Control-Request-Headers", "authorization,if-match")
		}
		w := httptest.NewRecorder()
		newOrchestrationAPI(svc, nil).ServeHTTP(w, r)
		h := w.Header()
		if w.Code != tt.status || h.Get("Access-Control-Allow-Origin") != tt.shown ||
			h.Get("Access-Control-Allow-Credentials") != tt.credentials || h.Get("Access-Control-Allow-Methods") != tt.asked {
			t.Errorf("%+v: got %d with %v", tt, w.Code, h)
		}
		varies := strings.Contains(strings.Join(h["Vary"], ","), "Origin")
		if want := tt.allowed != nil && tt.status != 404; varies != want {
			t.Errorf("%+v: got Vary %q; want Origin in it: %v", tt, h["Vary"], want)
		}
		if headers := h.Get("Access-Control-Allow-Headers"); (headers == "authorization,if-match") != (tt.asked != "") {
			t.Errorf("%+v: got allowed headers %q", tt, headers)
		}
	}
}

// TestControlIsForNoPage checks that no page of another origin can use the routes that control
// the service, whatever is configured.
func TestControlIsForNoPage(t *testing.T) {
	w := newFixtureServer(t, serviceTest{config: func(c *Config) { c.Web.AllowedOrigins = []string{"*", "https://app.example"} }}).world
	a := newOrchestrationAPI(w.service(), nil)
	for _, row := range (&controlAPI{}).routes() {
		method, path, _ := strings.Cut(row.pattern, " ")
		for _, m := range []string{method, "OPTIONS"} {
			r := httptest.NewRequest(m, path, strings.NewReader("{}"))
			r.Header = http.Header{"Origin": {"https://app.example"}, "Access-Control-Request-Method": {method}}
			rec := httptest.NewRecorder()
			a.ServeHTTP(rec, r)
			for name := range rec.Header() {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s %s: got %d with %s", m, path, rec.Code, name)
				}
			}
		}
	}
}

// TestEveryOriginBringsNoCookies checks that "*" does not stand for requests to which the browser
// adds credentials.
func TestEveryOriginBringsNoCookies(t *testing.T) {
	who := newWhoServer(t)
	who.say(200, `{"subject":"ann","permissions":["tasks:*"]}`)
	svc := newTestService(t, serviceTest{config: func(c *Config) {
		c.Web.AllowedOrigins = []string{"*"}
		c.Orchestration.Web.Auth.Enabled, c.Orchestration.Web.Auth.AuthenticatorURL = true, who.URL
	}})
	for header, want := range map[string]int{"Cookie": 400, "X-Api-Key": 422} {
		r := httptest.NewRequest("POST", "/v1/tasks", strings.NewReader("{}"))
		r.Host = "localhost"
		r.Header = http.Header{"Content-Type": {"application/json"}, header: {"x=y"}, "Origin": {"https://evil.example"}}
		w := httptest.NewRecorder()
		if newOrchestrationAPI(svc, nil).ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: got %d %s; want %d", header, w.Code, w.Body, want)
		}
	}
}

// TestExposedHeaders checks that pages may read every header that the document declares.
func TestExposedHeaders(t *testing.T) {
	exposed := splitList(exposedHeaders)
	eachOpenAPIDocument(t, func(t *testing.T, _ string, doc map[string]any) {
		eachOpenAPIOperation(doc, func(route string, operation map[string]any) {
			for code, response := range operation["responses"].(map[string]any) {
				headers, _ := openAPIFollow(doc, response)["headers"].(map[string]any)
				for name := range headers {
					if !slices.Contains(exposed, name) && name != "Cache-Control" && name != "Content-Type" {
						t.Errorf("%s %s: got the header %s; want it exposed", route, code, name)
					}
				}
			}
		})
	})
}

// TestConfigSchemas compares the sections of the configuration in openapi.json with the table of keys.
func TestConfigSchemas(t *testing.T) {
	doc := must(wire.Decode(openAPIFile))(t).(map[string]any)
	for name, schema := range configSchemas() {
		got := openAPIFollow(doc, map[string]any{"$ref": "#/components/schemas/" + name})
		delete(got, "description")
		if got, want := must(json.Marshal(got))(t), must(json.Marshal(schema))(t); !bytes.Equal(got, want) {
			t.Errorf("%s: got %s; want %s", name, got, want)
		}
	}
}

// configSchemas returns the schemas that the table of keys stands for: one for all sections, one for
// those that the worker shows, one for each section, and one for the authentication that three of
// them have.
func configSchemas() map[string]any {
	schemas := map[string]any{}
	all := configSchemaOf(schemas, "Configuration")
	for i := range configKeys {
		section, parts := all, strings.Split(configKeys[i].path, ".")
		for j, part := range parts[:len(parts)-1] {
			name := strings.ToUpper(part[:1]) + part[1:] + "Section"
			if part == "web" && j > 0 {
				name = "Role" + name
			}
			section["properties"].(map[string]any)[part] = map[string]any{"$ref": "#/components/schemas/" + name}
			section = configSchemaOf(schemas, name)
		}
		section["properties"].(map[string]any)[parts[len(parts)-1]] = configKeys[i].schema()
	}
	shown := configSchemaOf(schemas, "WorkerConfiguration")["properties"].(map[string]any)
	for _, name := range workerSections {
		shown[name] = all["properties"].(map[string]any)[name]
	}
	for _, schema := range schemas {
		s := schema.(map[string]any)
		s["required"] = slices.Sorted(maps.Keys(s["properties"].(map[string]any)))
	}
	return schemas
}

// configSchemaOf returns the schema of a name, which it adds if there is none.
func configSchemaOf(schemas map[string]any, name string) map[string]any {
	if schemas[name] == nil {
		schemas[name] = map[string]any{"type": "object", "properties": map[string]any{}}
	}
	return schemas[name].(map[string]any)
}

// schema returns the schema of a key's value, as it is shown.
func (k *configKey) schema() map[string]any {
	text := map[string]any{"type": "string"}
	switch k.def.(type) {
	case string:
		if k.words != nil {
			text["enum"] = k.words
		}
		return text
	case bool:
		return map[string]any{"type": "boolean"}
	case int64:
		return map[string]any{"type": "integer", "minimum": k.min, "maximum": k.max}
	case []string:
		return map[string]any{"type": "array", "items": text}
	case map[string]string:
		return map[string]any{"type": "object", "additionalProperties": text}
	case headerTables:
		table := map[string]any{"type": "object", "additionalProperties": text}
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"anyOf": []any{text, table}}}
	}
	name := map[reflect.Type]string{
		reflect.TypeFor[[]apiKeyConfig](): "ApiKeySection", reflect.TypeFor[[]subscriberConfig](): "SubscriberSection",
	}[reflect.TypeOf(k.def)]
	return map[string]any{"type": "array", "items": map[string]any{"$ref": "#/components/schemas/" + name}}
}
