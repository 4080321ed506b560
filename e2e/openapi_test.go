package e2e

// What the OpenAPI documents declare about requests, against what the program enforces: values at
// every declared limit of every parameter and every member of a body are accepted, and values just
// beyond are refused. A limit that is enforced but not declared shows, because the value at the
// declared limit is then refused.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// undeclarable names the fields, by operation, where the program refuses values that the schema
// allows, each with a rule that JSON Schema cannot state but the description does.
var undeclarable = map[string]string{
	"adjustStep retry_limit":                 "one of the two members must not be null",
	"mount createTask name":                  "the name is here or under task",
	"addTemplate steps":                      "their names differ",
	"addTemplate steps[0].dependencies":      "the names are those of other steps",
	"addTemplate steps[0].dependencies[0]":   "the names are those of other steps",
	"addStub outcomes[0].hang":               "nothing can be combined with it",
	"replaceStubs stubs[0].outcomes[0].hang": "nothing can be combined with it",
	"replaceStubs stubs":                     "too many stubs are a conflict",
	"actOnMany as_of":                        "a record that is not there yet is refused",
	"verify match.kind":                      "without it, the conditions are those on handler calls",
	"addStub match.kind":                     "without it, the conditions are those on handler calls",
	"replaceStubs stubs[0].match.kind":       "without it, the conditions are those on handler calls",
}

// unlimited names the operations whose bodies this test leaves out.
var unlimited = map[string]string{
	"validateTemplate": "it answers 200, and its body is that of addTemplate",
}

// limitCase is one value of a field.
type limitCase struct {
	field string // as errors name it, such as tags[0]
	what  string
	value any
	valid bool
}

// omitted stands for a member that is left out.
type omitted struct{}

// limitSchemas makes cases from the schemas of a document.
type limitSchemas struct {
	doc  map[string]any
	open []any // the references that are being followed
}

func (l *limitSchemas) follow(schema any) map[string]any {
	s, _ := schema.(map[string]any)
	ref, ok := s["$ref"].(string)
	if !ok {
		return s
	}
	target, _ := wire.LookUp(l.doc, strings.ReplaceAll(strings.TrimPrefix(ref, "#/"), "/", "."))
	return target.(map[string]any)
}

// typesOf returns the types that a schema allows, and its alternatives.
func typesOf(s map[string]any) (types []any) {
	switch v := s["type"].(type) {
	case string:
		types = []any{v}
	case []any:
		types = v
	}
	return types
}

func alternatives(s map[string]any) []any {
	for _, word := range []string{"anyOf", "oneOf"} {
		if list, ok := s[word].([]any); ok {
			return list
		}
	}
	return nil
}

// bound returns a number that a schema declares.
func bound(s map[string]any, word string) (n int64, declared bool) {
	number, ok := s[word].(json.Number)
	if ok {
		n, _ = number.Int64()
	}
	return n, ok
}

const exactIntegers = 1<<53 - 1 // the largest integer that every client can send

// sample returns a plain value that a schema allows.
func (l *limitSchemas) sample(schema any) any {
	s := l.follow(schema)
	if v, ok := s["const"]; ok {
		return v
	}
	if words, ok := s["enum"].([]any); ok {
		return words[0]
	}
	if list := alternatives(s); list != nil {
		return l.sample(list[0])
	}
	if examples, ok := s["examples"].([]any); ok && !slices.Contains(typesOf(s), any("object")) {
		return examples[0]
	}
	types := append(typesOf(s), "any")
	switch types[0] {
	case "object":
		object := map[string]any{}
		if n, _ := bound(s, "minProperties"); n > 0 {
			return maps.Clone(s["examples"].([]any)[0].(map[string]any))
		}
		required, _ := s["required"].([]any)
		for _, name := range required {
			object[name.(string)] = l.sample(s["properties"].(map[string]any)[name.(string)])
		}
		return object
	case "array":
		n, _ := bound(s, "minItems")
		return slices.Repeat([]any{l.sample(s["items"])}, int(n))
	case "integer", "number":
		n, _ := bound(s, "minimum")
		return n
	case "boolean":
		return true
	}
	return "x"
}

// cases calls add for the values at and beyond the limits of a schema.
func (l *limitSchemas) cases(field string, schema any, add func(c limitCase)) {
	ref := schema.(map[string]any)["$ref"]
	if ref != nil && slices.Contains(l.open, ref) {
		return
	}
	l.open = append(l.open, ref)
	defer func() { l.open = l.open[:len(l.open)-1] }()
	s := l.follow(schema)
	says := func(valid bool, what string, value any) { add(limitCase{field, what, value, valid}) }
	if list := alternatives(s); list != nil {
		for _, alternative := range list {
			l.cases(field, alternative, func(c limitCase) {
				if c.valid || c.field != field { // what one alternative excludes, another may allow
					add(c)
				}
			})
		}
		return
	}
	words, _ := s["enum"].([]any)
	if v, ok := s["const"]; ok {
		words = []any{v}
	}
	if words != nil {
		for _, word := range words {
			says(true, "a word", word)
		}
		says(false, "another word", "no-such-word")
		return
	}
	types := typesOf(s)
	if types == nil {
		says(s["not"] == nil, "null", nil) // no schema excludes anything else
	}
	for _, kind := range types {
		switch kind {
		case "null":
			says(true, "null", nil)
		case "boolean":
			says(true, "true", true)
			says(true, "false", false)
		case "integer":
			l.integers(s, says)
		case "string":
			l.strings(s, says)
		case "array":
			l.arrays(field, s, add)
		case "object":
			l.objects(field, s, add)
		}
	}
	if wrong := map[any]any{"boolean": "maybe", "integer": "seven", "string": 7, "array": "none", "object": "none"}; types != nil {
		says(false, "another type", wrong[types[0]])
	}
}

func (l *limitSchemas) integers(s map[string]any, says func(valid bool, what string, value any)) {
	for word, beyond := range map[string]int64{"minimum": -1, "maximum": 1} {
		n, declared := bound(s, word)
		if !declared {
			says(true, "no "+word, beyond*exactIntegers)
			continue
		}
		says(true, word, n)
		says(false, "beyond the "+word, n+beyond)
	}
	says(false, "a fraction", 7.5)
}

func (l *limitSchemas) strings(s map[string]any, says func(valid bool, what string, value any)) {
	least, _ := bound(s, "minLength")
	most, limited := bound(s, "maxLength")
	pattern, _ := s["pattern"].(string)
	_, formatted := s["format"].(string)
	fits := func(text string) bool { return !formatted && wire.Matches(pattern, text) }
	if formatted || pattern != "" {
		says(true, "an example", l.sample(s))
		says(false, "no match", "~ no match ~"+strings.Repeat("\u202e", boolCount(fits("~ no match ~"))))
	}
	if shortest := strings.Repeat("é", int(least)); fits(shortest) {
		says(true, "the shortest", shortest)
	}
	for _, letter := range []string{"é", "a"} {
		if longest := strings.Repeat(letter, int(max(most, least, 3000*int64(boolCount(!limited))))); fits(longest) {
			says(true, "the longest", longest)
			break
		}
	}
	if limited {
		says(false, "too long", strings.Repeat("a", int(most)+1))
	}
	if least > 0 {
		says(false, "too short", strings.Repeat("a", int(least)-1))
	}
}

func boolCount(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (l *limitSchemas) arrays(field string, s map[string]any, add func(c limitCase)) {
	l.cases(field+"[0]", s["items"], func(c limitCase) {
		c.value = []any{c.value}
		add(c)
	})
	least, _ := bound(s, "minItems")
	most, limited := bound(s, "maxItems")
	list := func(n int64) []any { return slices.Repeat([]any{l.sample(s["items"])}, int(n)) }
	if most <= 1000 {
		add(limitCase{field, "the longest list", list(max(most, 200*int64(boolCount(!limited)))), true})
	}
	add(limitCase{field, "the shortest list", list(least), true})
	if limited {
		add(limitCase{field, "too long a list", list(most + 1), false})
	}
	if least > 0 {
		add(limitCase{field, "too short a list", list(least - 1), false})
	}
}

func (l *limitSchemas) objects(field string, s map[string]any, add func(c limitCase)) {
	at := func(name string) string { return strings.TrimPrefix(field+"."+name, ".") }
	with := func(c limitCase, name string) limitCase {
		object := l.sample(s).(map[string]any)
		if object[name] = c.value; c.value == (omitted{}) {
			delete(object, name)
		}
		c.value = object
		return c
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		l.cases(at(name), properties[name], func(c limitCase) { add(with(c, name)) })
	}
	required, _ := s["required"].([]any)
	for _, name := range required {
		add(with(limitCase{at(name.(string)), "left out", omitted{}, false}, name.(string)))
	}
	unknown := s["additionalProperties"] != false
	if _, least := bound(s, "minProperties"); least {
		add(limitCase{field, "no members", map[string]any{}, false})
	}
	if value, ok := s["additionalProperties"].(map[string]any); ok {
		l.cases(at("zzz"), value, func(c limitCase) { add(with(c, "zzz")) })
	} else if properties != nil {
		add(with(limitCase{at("zzz"), "an unknown member", "x", unknown}, "zzz"))
	}
}

// limitOperation is one operation of a document.
type limitOperation struct {
	*limitSchemas
	t      *testing.T
	url    string // of the surface
	method string
	path   string
	id     string
	params []map[string]any
	body   any // the schema of the body; nil without one
	seen   map[string]bool
}

// try sends a request with one case, and reports a valid value that is refused or an invalid one
// that is not.
func (o *limitOperation) try(in string, c limitCase) {
	target, header, body := o.target(in, c), http.Header{}, any(nil)
	if o.body != nil {
		body = o.sample(o.body)
	}
	query := url.Values{}
	if c.field == "timeout" && in == "query" {
		query.Set("wait", "terminal") // which it belongs to
	}
	switch in {
	case "query":
		name, _, _ := strings.Cut(c.field, "[")
		list, ok := c.value.([]any)
		if !ok {
			list = []any{c.value}
		}
		for _, v := range list {
			query.Add(name, fmt.Sprint(v))
		}
	case "header":
		header.Set(c.field, strings.ReplaceAll(fmt.Sprint(c.value), "é", "e"))
	case "body":
		body = c.value
	}
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	a := o.send(target, header, body)
	refused := a != nil && complains(a, c.field, !c.valid)
	key := o.id + " " + c.field
	if _, known := undeclarable[key]; known && refused == c.valid {
		o.seen[key] = true
		return
	}
	if refused == c.valid {
		o.t.Errorf("%s, %s %s, %s (%s): refused is %v; want %v: %v", o.id, in, c.field, c.what, wire.Cut(fmt.Sprint(c.value)),
			refused, !c.valid, a)
	}
}

// target returns the path with the examples of its parameters, but for that of a case.
func (o *limitOperation) target(in string, c limitCase) string {
	target := o.path
	for _, p := range o.params {
		if p["in"] == "path" {
			value := p["example"]
			if in == "path" && p["name"] == c.field {
				value = c.value
			}
			target = strings.ReplaceAll(target, "{"+p["name"].(string)+"}", url.PathEscape(fmt.Sprint(value)))
		}
	}
	return target
}

// tryTogether sends two parameters of a query. JSON Schema cannot state that they cannot be combined, so their
// descriptions must.
func (o *limitOperation) tryTogether(p, q map[string]any) {
	both, stated := url.Values{}, 0
	for _, pair := range [][2]map[string]any{{p, q}, {q, p}} {
		both.Set(pair[0]["name"].(string), fmt.Sprint(pair[0]["example"]))
		words := fmt.Sprintf("not together with `%s`", pair[1]["name"])
		stated += boolCount(strings.Contains(strings.ToLower(pair[0]["description"].(string)), words))
	}
	a := o.send(o.target("", limitCase{})+"?"+both.Encode(), http.Header{}, nil)
	refused := a != nil && a.Code == 400 && strings.Contains(string(a.Body), "cannot be combined")
	if 2*boolCount(refused) != stated {
		o.t.Errorf("%s, %s: refused is %v; want the same in both descriptions: %v", o.id, both.Encode(), refused, a)
	}
}

// send sends a request. It returns nil if there is no answer at once, as for one that waits.
func (o *limitOperation) send(target string, header http.Header, body any) *wire.Answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if o.id == "claimSteps" { // which may wait for a minute
		ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
	}
	var text io.Reader
	if body != nil {
		text = strings.NewReader(string(wire.Must(json.Marshal(body))(o.t)))
		header.Set("Content-Type", "application/json")
	}
	r := wire.Must(http.NewRequestWithContext(ctx, o.method, o.url+target, text))(o.t)
	r.Header = header
	resp, err := http.DefaultClient.Do(r)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		o.t.Fatalf("%s %s: %v", o.id, target, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge && len(target) > 16<<10 {
		return nil // an encoded text of this length does not fit into a header
	}
	a := &wire.Answer{Code: resp.StatusCode, Header: resp.Header, Request: o.method + " " + target}
	if resp.StatusCode >= 400 || resp.StatusCode == http.StatusMultiStatus {
		if a.Body, err = io.ReadAll(resp.Body); err != nil {
			o.t.Fatalf("%s %.200s: %d, %v", o.id, target, resp.StatusCode, err)
		}
	}
	return a
}

// complains reports whether an answer refuses a request because of a field, or if above is true
// because of an object around it by a message that names the field.
func complains(a *wire.Answer, field string, above bool) bool {
	if list, of, many := strings.Cut(field, "[0]"); many && a.Code == http.StatusMultiStatus {
		return complains(firstOf(a, list), strings.TrimPrefix(of, "."), above)
	}
	if a.Code != 400 && a.Code != 422 {
		return false
	}
	var v struct {
		Error struct {
			Code, Message string
			Details       json.RawMessage
		}
		Message string // at the worker role
	}
	if json.Unmarshal(a.Body, &v) != nil {
		json.Unmarshal(a.Body, &struct{ Message *string }{&v.Message})
	}
	names := []string{}
	leaf, _, _ := strings.Cut(field[strings.LastIndexByte(field, '.')+1:], "[")
	var list []struct{ Field, Message string }
	if json.Unmarshal(v.Error.Details, &list); list != nil {
		for _, p := range list {
			if names = append(names, p.Field); above && strings.HasPrefix(field, p.Field+".") && strings.Contains(p.Message, leaf) {
				return true
			}
		}
	} else {
		var members map[string]any
		json.Unmarshal(v.Error.Details, &members)
		names = slices.Collect(maps.Keys(members))
	}
	if len(names) == 0 {
		if v.Error.Code == "VERIFICATION_FAILED" {
			return false
		}
		return strings.Contains(v.Error.Message+v.Message, leaf)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return field == "" || name == field || strings.HasPrefix(name, field+".") || strings.HasPrefix(name, field+"[")
	})
}

// firstOf returns what an answer to many things says about the first of a list, as if it was alone.
func firstOf(a *wire.Answer, list string) *wire.Answer {
	items := []json.RawMessage{}
	if json.Unmarshal(a.Body, &items) != nil {
		lists := map[string]json.RawMessage{}
		json.Unmarshal(a.Body, &lists)
		json.Unmarshal(lists[list], &items)
	}
	var of struct{ Status int }
	json.Unmarshal(items[0], &of)
	return &wire.Answer{Code: of.Status, Body: items[0]}
}

func TestDeclaredLimits(t *testing.T) {
	t.Parallel()
	p := serve(t, "--fixture", "--templates", apiTemplates(t))
	seen := map[string]bool{}
	for _, s := range []struct{ url, prefix string }{
		{p.ready.OrchestrationURL, ""}, {p.ready.WorkerURL, ""}, {p.ready.OrchestrationURL, mountTestPath},
	} {
		text := (&api{t, s.url}).do("GET", s.prefix+"/api-docs/openapi.json", "").want(200).body
		doc := wire.Must(wire.Decode(text))(t).(map[string]any)
		paths := doc["paths"].(map[string]any)
		for _, path := range slices.Backward(slices.Sorted(maps.Keys(paths))) { // the control of fixture mode last
			for _, method := range slices.Sorted(maps.Keys(paths[path].(map[string]any))) {
				operation := paths[path].(map[string]any)[method].(map[string]any)
				l := &limitSchemas{doc: doc}
				o := &limitOperation{l, t, s.url + s.prefix, strings.ToUpper(method), path, name(s.prefix, operation), nil, nil, seen}
				o.run(operation)
			}
		}
	}
	for key := range undeclarable {
		if !seen[key] {
			t.Errorf("%s: is declared well; it needs no exception", key)
		}
	}
}

// run tries all cases of the operation.
func (o *limitOperation) run(operation map[string]any) {
	parameters, _ := operation["parameters"].([]any)
	for _, p := range parameters {
		o.params = append(o.params, o.follow(p))
	}
	if unlimited[o.id] == "" {
		o.body, _ = wire.LookUp(operation, "requestBody.content.application/json.schema") // a state is no JSON, but lines
	}
	for _, p := range o.params {
		schema := maps.Clone(o.follow(p["schema"]))
		if schema["examples"] == nil {
			schema["examples"] = []any{p["example"]}
		}
		o.cases(p["name"].(string), schema, func(c limitCase) {
			texts := wire.Text(schema["type"]) != `"integer"` && wire.Text(schema["type"]) != `"boolean"`
			blank := c.value == "" && p["in"] != "header"       // which counts as absent
			if !blank && !(texts && c.what == "another type") { // all types are texts
				o.try(p["in"].(string), c)
			}
		})
	}
	for i, p := range o.params {
		for _, q := range o.params[i+1:] {
			if o.method == "GET" && p["in"] == "query" && q["in"] == "query" {
				o.tryTogether(p, q)
			}
		}
	}
	if o.body != nil {
		o.cases("", o.body, func(c limitCase) {
			if !strings.HasPrefix(c.field, "seed") { // whose text or array must have the lines of a state
				o.try("body", c)
			}
		})
	}
}

// name returns how undeclarable names an operation of a surface.
func name(prefix string, operation map[string]any) string {
	id := operation["operationId"].(string)
	if prefix != "" && id == "createTask" {
		return "mount " + id
	}
	return id
}
