// Package wire checks the wire contract for tests: it reads JSON strictly, and checks requests
// and answers by the OpenAPI document. The tests of the program's
// parts and the tests of the whole program share it; the program itself does not use it.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Timestamps have exactly six fractional digits.
const (
	zonedLayout = "2006-01-02T15:04:05.000000Z"
	naiveLayout = "2006-01-02T15:04:05.000000"
)

// Decode reads the one JSON value of a body, with numbers as json.Number.
// Unlike encoding/json it refuses duplicate members and invalid UTF-8.
func Decode(body []byte) (any, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("invalid UTF-8")
	}
	var text json.RawMessage
	if err := json.Unmarshal(body, &text); err != nil {
		return nil, fmt.Errorf("decoding JSON: %w", err)
	}
	return (&decoder{text: text}).value()
}

// decoder reads a valid JSON text. It is several times as fast as json.Decoder.Token.
type decoder struct {
	text []byte
	i    int // of the next byte
}

// next skips white space, and the byte after it if that is c.
func (d *decoder) next(c byte) bool {
	for d.text[d.i] <= ' ' {
		d.i++
	}
	if d.text[d.i] != c {
		return false
	}
	d.i++
	return true
}

func (d *decoder) value() (any, error) {
	switch {
	case d.next('{'):
		return d.object()
	case d.next('['):
		return d.list()
	case d.next('"'):
		return d.string(), nil
	}
	start := d.i
	for d.i < len(d.text) && strings.IndexByte(" \t\r\n,]}", d.text[d.i]) < 0 {
		d.i++
	}
	switch word := string(d.text[start:d.i]); word {
	case "null":
		return nil, nil
	case "true", "false":
		return word == "true", nil
	default:
		return json.Number(word), nil
	}
}

func (d *decoder) object() (any, error) {
	object := map[string]any{}
	for !d.next('}') {
		d.next(',')
		d.next('"')
		name := d.string()
		if _, ok := object[name]; ok {
			return nil, fmt.Errorf("duplicate member %q", name)
		}
		d.next(':')
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		object[name] = v
	}
	return object, nil
}

func (d *decoder) list() (any, error) {
	list := []any{}
	for !d.next(']') {
		d.next(',')
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// string returns the string whose opening quote was read.
func (d *decoder) string() (s string) {
	start := d.i
	for d.text[d.i] != '"' {
		if d.text[d.i] == '\\' {
			d.i++
		}
		d.i++
	}
	d.i++
	text := d.text[start : d.i-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	json.Unmarshal(d.text[start-1:d.i], &s)
	return s
}

// Text returns a decoded value as JSON, for comparisons and messages.
func Text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Equal compares decoded JSON; numbers are equal when their values are.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || number(a).Cmp(number(b)) == 0)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, Equal)
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

func number(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		panic("not a JSON number: " + n.String())
	}
	return r
}

// LookUp finds the value at a path in decoded JSON. The format of conversations describes
// paths.
func LookUp(v any, path string) (any, bool) {
	if path == "." {
		return v, true
	}
	return lookUpIn(v, splitPath(path))
}

func splitPath(path string) []string {
	segments := strings.Split(strings.ReplaceAll(path, `\.`, "\x00"), ".")
	for i, s := range segments {
		segments[i] = strings.ReplaceAll(s, "\x00", ".")
	}
	return segments
}

func lookUpIn(v any, path []string) (any, bool) {
	if len(path) == 0 {
		return v, true
	}
	switch v := v.(type) {
	case map[string]any:
		member, ok := v[path[0]]
		if !ok {
			return nil, false
		}
		return lookUpIn(member, path[1:])
	case []any:
		return lookUpInList(v, path)
	}
	return nil, false
}

func lookUpInList(list []any, path []string) (any, bool) {
	segment, rest := path[0], path[1:]
	switch name, want, selects := strings.Cut(segment, "="); {
	case segment == "#":
		return lookUpIn(json.Number(strconv.Itoa(len(list))), rest)
	case segment == "*":
		return lookUpEach(list, rest), true
	case selects:
		i := slices.IndexFunc(list, func(e any) bool {
			value, ok := lookUpIn(e, []string{name})
			return ok && value == any(want)
		})
		if i < 0 {
			return nil, false
		}
		return lookUpIn(list[i], rest)
	}
	i, err := strconv.Atoi(segment)
	if err != nil || i < 0 || i >= len(list) {
		return nil, false
	}
	return lookUpIn(list[i], rest)
}

// lookUpEach skips elements in which the path leads nowhere.
func lookUpEach(list []any, path []string) []any {
	found := []any{}
	for _, e := range list {
		if value, ok := lookUpIn(e, path); ok {
			found = append(found, value)
		}
	}
	return found
}

var (
	uuidForm = regexp.MustCompile(
		`^[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	intForm = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
)

// Problems lists where v, a result of Decode, does not match a kind; path is the name of v in
// the messages. A kind is one or more alternatives joined by "|":
//
//	uuid uuid7 uuid8        a UUID in lower case; of that version
//	zoned naive             a timestamp with exactly six fractional digits, with and without Z
//	int number              a number written without fraction and exponent; any number
//	string bool object null a value of that type
//	any                     a value of any type
//	[kind]                  a list of kind
//	Name                    a schema of openapi.json
func Problems(path, kind string, v any) (problems []string) {
	alternatives := strings.Split(kind, "|")
	for _, alternative := range alternatives {
		if problems = match(path, alternative, v); problems == nil {
			return nil
		}
	}
	if len(alternatives) == 1 {
		return problems
	}
	return []string{fmt.Sprintf("%s: got %s; want %s", path, Text(v), kind)}
}

// CheckShape decodes a body. The error says where it does not match the shape.
func CheckShape(shape string, body []byte) (any, error) {
	v, err := Decode(body)
	if err != nil {
		return nil, err
	}
	if problems := Problems(shape, shape, v); problems != nil {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	return v, nil
}

// match lists where v does not match one alternative of a kind.
func match(path, kind string, v any) (problems []string) {
	if schema, ok := schemas()[kind]; ok {
		return openAPI().problems(path, schema, v)
	}
	if element, ok := elementKind(kind); ok {
		if list, ok := v.([]any); ok {
			for i, e := range list {
				problems = append(problems, Problems(fmt.Sprintf("%s.%d", path, i), element, e)...)
			}
			return problems
		}
	} else if isScalar(kind, v) {
		return nil
	}
	return []string{fmt.Sprintf("%s: got %s; want %s", path, Text(v), kind)}
}

func elementKind(kind string) (string, bool) {
	rest, ok := strings.CutPrefix(kind, "[")
	return strings.TrimSuffix(rest, "]"), ok
}

func isScalar(kind string, v any) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null" || kind == "any"
	case bool:
		return kind == "bool" || kind == "any"
	case json.Number:
		return kind == "number" || kind == "any" || kind == "int" && intForm.MatchString(v.String())
	case string:
		return isString(kind, v)
	case map[string]any:
		return kind == "object" || kind == "any"
	}
	return kind == "any"
}

func isString(kind, s string) bool {
	switch kind {
	case "string", "any":
		return true
	case "uuid":
		return uuidForm.MatchString(s)
	case "uuid7", "uuid8":
		m := uuidForm.FindStringSubmatch(s)
		return m != nil && m[1] == kind[4:]
	case "zoned":
		return isTime(zonedLayout, s)
	case "naive":
		return isTime(naiveLayout, s)
	}
	return false
}

// isTime compares s with the parsed time in the same layout, because time.Parse accepts more
// than the layout shows.
func isTime(layout, s string) bool {
	t, err := time.Parse(layout, s)
	return err == nil && t.Format(layout) == s
}

// KnowsKind reports whether a kind is a scalar, a schema, or a list of such.
func KnowsKind(kind string) bool {
	if element, ok := elementKind(kind); ok {
		return KnowsKind(element)
	}
	scalars := []string{
		"uuid", "uuid7", "uuid8", "zoned", "naive", "int", "number", "string", "bool", "object", "null", "any",
	}
	return slices.Contains(scalars, kind) || schemas()[kind] != nil
}
