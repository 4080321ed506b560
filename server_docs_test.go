package main

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
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
