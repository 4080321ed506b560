package wire

// Checks of answers by the OpenAPI document: the operation must declare the status, and the
// body must match the schema of that response. A member that is missing, that the schema does
// not name, or that has another type is a problem.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Contract is the OpenAPI document of a surface. A nil one accepts every answer.
type Contract struct {
	doc    map[string]any
	prefix string // before the document's paths
}

// NewContract returns the contract in the text of a document. Its paths follow prefix.
func NewContract(text []byte, prefix string) (*Contract, error) {
	doc, err := Decode(text)
	if err != nil {
		return nil, err
	}
	object, ok := doc.(map[string]any)
	if !ok || object["paths"] == nil {
		return nil, errors.New("not an OpenAPI document")
	}
	return &Contract{object, prefix}, nil
}

// openAPI returns the contract in openapi.json, which has the schemas of all surfaces.
var openAPI = sync.OnceValue(func() *Contract {
	dir := "."
	for range 3 { // tests run in the root, in e2e or here
		if text, err := os.ReadFile(filepath.Join(dir, "openapi.json")); err == nil {
			c, err := NewContract(text, "")
			if err != nil {
				panic(err)
			}
			return c
		}
		dir = filepath.Join("..", dir)
	}
	panic("found no openapi.json")
})

func schemas() map[string]any {
	v, _ := LookUp(openAPI().doc, "components.schemas")
	return v.(map[string]any)
}

// Answer is a complete response.
type Answer struct {
	Code    int
	Header  http.Header
	Body    []byte
	Request string // method and path, for messages
}

// String returns the answer as a message shows it.
func (a *Answer) String() string {
	if a == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\t%s answered %d\n", a.Request, a.Code)
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		fmt.Fprintf(&b, "\t%s: %s\n", name, strings.Join(a.Header[name], ", "))
	}
	fmt.Fprintf(&b, "\t%s", Cut(string(a.Body)))
	return b.String()
}

// Cut shortens a text for a message.
func Cut(s string) string {
	const most = 4000
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
}

// follow returns v, or the object that v refers to.
func follow(doc map[string]any, v any) map[string]any {
	object, _ := v.(map[string]any)
	ref, ok := object["$ref"].(string)
	if !ok {
		return object
	}
	target := any(doc)
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		in, _ := target.(map[string]any)
		target = in[name]
	}
	object, _ = target.(map[string]any)
	return object
}

// Problem returns what is wrong with an answer. It ignores requests that match no
// operation.
func (c *Contract) Problem(a *Answer) error {
	if c == nil {
		return nil
	}
	method, target, _ := strings.Cut(a.Request, " ")
	path, _, _ := strings.Cut(target, "?")
	operation := c.operation(method, path)
	if operation == nil {
		return nil
	}
	if err := c.Undeclared(method, path, a.Code); err != nil {
		return err
	}
	declared := operation["responses"].(map[string]any)[fmt.Sprint(a.Code)]
	return errors.Join(c.responseProblems(follow(c.doc, declared), a)...)
}

// Undeclared returns an error if the operation of a request does not declare a status.
func (c *Contract) Undeclared(method, path string, status int) error {
	operation := c.operation(method, path)
	if operation == nil || operation["responses"].(map[string]any)[fmt.Sprint(status)] != nil {
		return nil
	}
	return fmt.Errorf("got status %d, which the operation %v does not declare", status, operation["operationId"])
}

// Documents reports whether the document has an operation for a request, with the parameters in its query.
func (c *Contract) Documents(method, target string) bool {
	path, query, _ := strings.Cut(target, "?")
	operation := c.operation(method, path)
	asked, err := url.ParseQuery(query)
	if operation == nil || err != nil {
		return false
	}
	declared, _ := operation["parameters"].([]any)
	for _, p := range declared {
		if p := follow(c.doc, p); p["in"] == "query" {
			delete(asked, p["name"].(string))
		}
	}
	return len(asked) == 0
}

// operation finds the operation of a request; nil if there is none.
func (c *Contract) operation(method, path string) map[string]any {
	path, below := strings.CutPrefix(path, c.prefix)
	if !below {
		return nil
	}
	path = cmp.Or(path, "/")
	if rest, ok := strings.CutPrefix(path, "/api/v1/"); ok {
		path = "/v1/" + rest
	}
	best, literals := map[string]any(nil), -1
	for pattern, item := range c.doc["paths"].(map[string]any) {
		operation, ok := item.(map[string]any)[strings.ToLower(method)].(map[string]any)
		if n := pathLiterals(pattern, path); ok && n > literals {
			best, literals = operation, n
		}
	}
	return best
}

// pathLiterals returns the number of segments of a path that a pattern names, or -1 if it does
// not match.
func pathLiterals(pattern, path string) int {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return -1
	}
	n := 0
	for i := range want {
		switch {
		case want[i] == got[i]:
			n++
		case !strings.HasPrefix(want[i], "{") || got[i] == "":
			return -1
		}
	}
	return n
}

func (c *Contract) responseProblems(declared map[string]any, a *Answer) (problems []error) {
	headers, _ := declared["headers"].(map[string]any)
	for name, h := range headers {
		if follow(c.doc, h)["required"] == true && a.Header.Get(name) == "" {
			problems = append(problems, fmt.Errorf("got no header %s; want one", name))
		}
	}
	content, _ := declared["content"].(map[string]any)
	if len(content) == 0 {
		return problems
	}
	media := contentFor(content, a.Header.Get("Content-Type"))
	if media == nil {
		return append(problems, fmt.Errorf("got Content-Type %q; want one of %q",
			a.Header.Get("Content-Type"), slices.Sorted(maps.Keys(content))))
	}
	v, err := any(string(a.Body)), error(nil)
	if kind := a.Header.Get("Content-Type"); strings.Contains(kind, "json") && kind != "application/jsonl" {
		v, err = Decode(a.Body)
	}
	if err != nil {
		return append(problems, err)
	}
	for _, p := range c.problems("body", media["schema"], v) {
		problems = append(problems, errors.New(p))
	}
	return problems
}

// contentFor returns the declared body of a media type. Parameters do not matter.
func contentFor(content map[string]any, contentType string) map[string]any {
	got, _, _ := mime.ParseMediaType(contentType)
	for declared, media := range content {
		want, _, _ := mime.ParseMediaType(declared)
		if want == got || want == "*/*" {
			return media.(map[string]any)
		}
	}
	return nil
}

// SchemaKeywords are the keywords that problems checks, and those that do not restrict values.
// default is not among them: generated TypeScript then demands the member, and generated Python
// sends it.
var SchemaKeywords = []string{
	"$ref", "type", "const", "enum", "anyOf", "oneOf", "properties", "required", "additionalProperties", "items",
	"pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "minProperties", "maxProperties",
	"not", "description", "examples", "format", "discriminator",
}

// SchemaProblems lists where v, an example, does not match a schema of the document.
func SchemaProblems(doc map[string]any, schema, v any) []string {
	return (&Contract{doc: doc}).problems("example", schema, v)
}

var escapedRune = regexp.MustCompile(`\\u([0-9a-f]{4})`)

// Matches reports whether a text matches a pattern of ECMA-262, which Go has but for the spelling of \uXXXX.
func Matches(pattern, text string) bool {
	return regexp.MustCompile(escapedRune.ReplaceAllString(pattern, `\x{$1}`)).MatchString(text)
}

// problems lists where v does not match a schema.
func (c *Contract) problems(path string, schema, v any) []string {
	s := follow(c.doc, schema)
	for _, word := range []string{"anyOf", "oneOf"} {
		if alternatives, ok := s[word].([]any); ok {
			return c.alternativeProblems(path, alternatives, v)
		}
	}
	if !schemaTypeFits(s["type"], v) {
		return []string{fmt.Sprintf("%s: got %s; want type %s", path, Cut(Text(v)), Text(s["type"]))}
	}
	problems := schemaValueProblems(path, s, v)
	if s["not"] != nil && len(c.problems(path, s["not"], v)) == 0 {
		problems = append(problems, fmt.Sprintf("%s: got %s; want none of %s", path, Cut(Text(v)), Text(s["not"])))
	}
	switch v := v.(type) {
	case map[string]any:
		problems = append(problems, c.memberProblems(path, s, v)...)
	case []any:
		for i, e := range v {
			if s["items"] != nil {
				problems = append(problems, c.problems(fmt.Sprintf("%s.%d", path, i), s["items"], e)...)
			}
		}
	}
	return problems
}

// alternativeProblems returns nil if an alternative matches, otherwise the problems of the last
// one whose type matches.
func (c *Contract) alternativeProblems(path string, alternatives []any, v any) (least []string) {
	for i, alternative := range alternatives {
		problems := c.problems(path, alternative, v)
		if problems == nil {
			return nil
		}
		if i == 0 || schemaTypeFits(follow(c.doc, alternative)["type"], v) {
			least = problems
		}
	}
	return least
}

func schemaTypeFits(types, v any) bool {
	if list, ok := types.([]any); ok {
		return slices.ContainsFunc(list, func(one any) bool { return schemaTypeFits(one, v) })
	}
	if types == nil {
		return true
	}
	kinds := map[any]string{"integer": "int", "boolean": "bool"}
	if kind, ok := kinds[types]; ok {
		return isScalar(kind, v)
	}
	if types == "array" {
		_, ok := v.([]any)
		return ok
	}
	return isScalar(types.(string), v)
}

// schemaValueProblems lists the problems of a single value.
func schemaValueProblems(path string, s map[string]any, v any) (problems []string) {
	wrong := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s: got %s; want %s", path, Text(v), fmt.Sprintf(format, args...)))
	}
	if want, ok := s["const"]; ok && !Equal(v, want) {
		wrong("%s", Text(want))
	}
	if words, ok := s["enum"].([]any); ok && !slices.ContainsFunc(words, func(w any) bool { return Equal(v, w) }) {
		wrong("one of %s", Text(words))
	}
	if text, ok := v.(string); ok {
		if _, err := time.Parse(time.RFC3339, text); s["format"] == "date-time" && err != nil {
			wrong("a date and time")
		}
		if pattern, ok := s["pattern"].(string); ok && !Matches(pattern, text) {
			wrong("a match of %s", pattern)
		}
		n := float64(utf8.RuneCountInString(text))
		if !within(n, s["minLength"], s["maxLength"]) {
			wrong("%v to %v characters", s["minLength"], s["maxLength"])
		}
	}
	if list, ok := v.([]any); ok && !within(float64(len(list)), s["minItems"], s["maxItems"]) {
		wrong("%v to %v elements", s["minItems"], s["maxItems"])
	}
	if object, ok := v.(map[string]any); ok && !within(float64(len(object)), s["minProperties"], s["maxProperties"]) {
		wrong("%v to %v members", s["minProperties"], s["maxProperties"])
	}
	if number, ok := v.(json.Number); ok {
		if n, err := number.Float64(); err != nil || !within(n, s["minimum"], s["maximum"]) {
			wrong("%v to %v", s["minimum"], s["maximum"])
		}
	}
	return problems
}

// within compares a number with bounds of a schema, which may be absent.
func within(n float64, lo, hi any) bool {
	bound := func(v any, absent float64) float64 {
		if number, ok := v.(json.Number); ok {
			absent, _ = number.Float64()
		}
		return absent
	}
	return bound(lo, n) <= n && n <= bound(hi, n)
}

func (c *Contract) memberProblems(path string, s, object map[string]any) (problems []string) {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := object[name.(string)]; !ok {
			problems = append(problems, fmt.Sprintf("%s.%s: missing", path, name))
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		member, ok := properties[name]
		if !ok {
			member, ok = s["additionalProperties"], s["additionalProperties"] != nil
		}
		if member == false || !ok && properties != nil {
			problems = append(problems, fmt.Sprintf("%s.%s: must not be there", path, name))
			continue
		}
		if ok {
			problems = append(problems, c.problems(path+"."+name, member, object[name])...)
		}
	}
	return problems
}
