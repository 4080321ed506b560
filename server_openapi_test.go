package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"testing"
)

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

// TestMountDocumentHasNoVersions checks that the mount point's document names no path under /v1.
func TestMountDocumentHasNoVersions(t *testing.T) {
	t.Parallel()
	doc := must(wire.Decode(openAPIForSurface("X-Key", "/stepwell", "mount")))(t)
	for _, part := range doc.(map[string]any) {
		if text := wire.Text(part); strings.Contains(text, "/v1") {
			t.Errorf("got %.200s; want no /v1", text[max(strings.Index(text, "/v1")-100, 0):])
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
		key := configKeys[i].schema()
		key["description"] = configKeys[i].description()
		section["properties"].(map[string]any)[parts[len(parts)-1]] = key
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

// description returns the key's help as a sentence. The two roles share a schema.
func (k *configKey) description() string {
	help := strings.ToUpper(k.help[:1]) + k.help[1:] + "."
	if strings.HasPrefix(k.path, "orchestration.web.") || strings.HasPrefix(k.path, "worker.web.") {
		help = strings.NewReplacer("the orchestration API", "the role's API", "the worker API", "the role's API").Replace(help)
	}
	return help
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
		return map[string]any{"type": "object", "additionalProperties": true} // generators cannot express a text or a table
	}
	name := map[reflect.Type]string{
		reflect.TypeFor[[]apiKeyConfig](): "ApiKeySection", reflect.TypeFor[[]subscriberConfig](): "SubscriberSection",
	}[reflect.TypeOf(k.def)]
	return map[string]any{"type": "array", "items": map[string]any{"$ref": "#/components/schemas/" + name}}
}

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
				if !row.isPublic() {
					permission = "credentials"
				}
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
			if permission == "" && operation["security"] != nil {
				permission = "credentials"
			}
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
	line, codes := "**Required Permission:** `"+permission+"`", []string{"401", "403", "500"}
	if permission == "credentials" {
		line, codes = description, []string{"401", "500"}
	}
	if !slices.Contains(strings.Split(description, "\n"), line) {
		t.Errorf("%s: got description %q; want the line %q", route, description, line)
	}
	for _, code := range codes {
		if _, ok := operation["responses"].(map[string]any)[code]; !ok {
			t.Errorf("%s: got no response %s; want one", route, code)
		}
	}
}

// eachOpenAPIDocument runs f with the document of each surface.
func eachOpenAPIDocument(t *testing.T, f func(t *testing.T, surface string, doc map[string]any)) {
	sequential(t)
	t.Helper()
	for surface := range openAPIRoutes() {
		t.Run(surface, func(t *testing.T) {
			text := openAPIForSurface("X-Key", "/stepwell", surface)
			doc := must(wire.Decode(text))(t)
			f(t, surface, doc.(map[string]any))
		})
	}
}

// freeValues are the members whose values have no type that the program could know: what callers,
// templates and handlers give, and two more.
var freeValues = strings.Fields("context options metadata custom inputs config configuration result results payload " +
	"data body cursor accumulated_results dependency_results default_context initialization composition " +
	"task_handler schema result_schema input_schema config_schema" +
	" order" + // conditions whose members depend on those of match
	" http_headers" + // a text, or texts by origin or callable
	" seed") // the lines of a state

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

// TestOpenAPIDescriptions checks that a document describes everything that generators show to people.
func TestOpenAPIDescriptions(t *testing.T) {
	t.Parallel()
	eachOpenAPIDocument(t, func(t *testing.T, surface string, doc map[string]any) {
		for _, problem := range openAPIUndescribed(doc) {
			t.Error(problem)
		}
	})
}

// formSchemas are those whose descriptions say what a value looks like, so that each member that refers to one must say
// what its value means.
var formSchemas = strings.Fields("Identifier ZonedTime NaiveTime Timestamp Duration TaskState StepState BriefStatus")

var (
	openAPISentence = regexp.MustCompile(`^[^a-z](?s:.*)\.$`)
	openAPIUnworded = regexp.MustCompile(`[^a-z0-9]`)
)

// openAPIGaps collects what a document does not describe in a sentence that says more than the name.
type openAPIGaps struct {
	doc      map[string]any
	problems []string
}

func (g *openAPIGaps) check(at, name string, object map[string]any) {
	text, _ := object["description"].(string)
	text, _, _ = strings.Cut(text, "\n\n**Required Permission")
	words := func(s string) string { return openAPIUnworded.ReplaceAllString(strings.ToLower(s), "") }
	if said := words(text); !openAPISentence.MatchString(text) || said == words(name) || said == "the"+words(name) {
		g.problems = append(g.problems,
			fmt.Sprintf("%s: got %q; want a sentence with a full stop that says more than the name", at, text))
	}
}

// schemas checks every schema with a name in v.
func (g *openAPIGaps) schemas(v any, at string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			g.schemas(e, at)
		}
	case map[string]any:
		for key, value := range v {
			switch key {
			case "example", "examples", "default", "const", "enum", "not":
			case "schemas", "properties":
				for name, schema := range value.(map[string]any) {
					g.member(strings.TrimPrefix(at+"."+name, "."), name, schema.(map[string]any))
				}
			default:
				g.schemas(value, at)
			}
		}
	}
}

func (g *openAPIGaps) member(at, name string, schema map[string]any) {
	described := schema
	if ref, _ := schema["$ref"].(string); len(schema) == 1 && !slices.Contains(formSchemas, path.Base(ref)) {
		described = openAPIFollow(g.doc, schema)
	}
	g.check(at, name, described)
	g.schemas(schema, at)
}

// operation checks an operation, its parameters, its body and its responses with their headers.
func (g *openAPIGaps) operation(route string, operation map[string]any) {
	g.check(route, route, operation)
	for _, p := range operation["parameters"].([]any) {
		parameter := openAPIFollow(g.doc, p)
		name := parameter["name"].(string)
		g.check(route+" "+name, name, parameter)
	}
	if body, ok := operation["requestBody"]; ok {
		g.check(route+" requestBody", "requestBody", openAPIFollow(g.doc, body))
	}
	for code, r := range operation["responses"].(map[string]any) {
		response := openAPIFollow(g.doc, r)
		g.check(route+" "+code, code, response)
		headers, _ := response["headers"].(map[string]any)
		for name, header := range headers {
			g.check(route+" "+code+" "+name, name, openAPIFollow(g.doc, header))
		}
	}
}

// openAPIUndescribed returns the gaps of a document.
func openAPIUndescribed(doc map[string]any) []string {
	g := &openAPIGaps{doc: doc}
	g.schemas(map[string]any{"schemas": doc["components"].(map[string]any)["schemas"]}, "")
	g.schemas(doc["components"].(map[string]any)["responses"], "response")
	g.schemas(doc["paths"], "path")
	for _, tag := range doc["tags"].([]any) {
		g.check("tag", tag.(map[string]any)["name"].(string), tag.(map[string]any))
	}
	eachOpenAPIOperation(doc, g.operation)
	return g.problems
}
