package main

// The JSON that templates are made of, taken apart and put together, and how
// TOML becomes such JSON.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// templateObject is an object taken apart, its members in their order.
type templateObject []templateMember

// templateMember is one member of an object, the value as JSON.
type templateMember struct {
	key   string
	value []byte
}

// templateMembers takes an object apart; other values have no members.
func templateMembers(data []byte) templateObject {
	var o templateObject
	if len(data) == 0 {
		return nil
	}
	eachMember(data, func(key string, value []byte) bool {
		o = append(o, templateMember{key, value})
		return true
	})
	return o
}

// value is the value of a member, nil when there is none.
func (o templateObject) value(key string) []byte {
	if i := o.index(key); i >= 0 {
		return o[i].value
	}
	return nil
}

// set replaces the value of a member, if there is one.
func (o templateObject) set(key string, value []byte) {
	if i := o.index(key); i >= 0 {
		o[i].value = value
	}
}

func (o templateObject) index(key string) int {
	return slices.IndexFunc(o, func(m templateMember) bool { return m.key == key })
}

func (o templateObject) sort() {
	slices.SortFunc(o, func(a, b templateMember) int { return strings.Compare(a.key, b.key) })
}

// json puts the object together.
func (o templateObject) json() []byte {
	text := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(appendJSONString(text, m.key), ':')
		text = append(text, m.value...)
	}
	return append(text, '}')
}

// templateElements takes a list apart; other values have no elements.
func templateElements(data []byte) [][]byte {
	var elements [][]byte
	if len(data) == 0 {
		return nil
	}
	eachElement(data, func(value []byte) bool {
		elements = append(elements, value)
		return true
	})
	return elements
}

// templateListJSON puts a list together.
func templateListJSON(elements [][]byte) []byte {
	text := []byte{'['}
	for i, e := range elements {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, e...)
	}
	return append(text, ']')
}

// templateText is the member of an object where that is a string, else "".
func templateText(object []byte, key string) string {
	text, _ := templateString(templateMembers(object).value(key))
	return text
}

// templateString decodes data where it is a string.
func templateString(data []byte) (text string, ok bool) {
	if len(data) == 0 || data[0] != '"' {
		return "", false
	}
	err := json.Unmarshal(data, &text)
	return text, err == nil
}

func templateNull(data []byte) bool { return string(data) == "null" }

// templateMemberPath is the path of a member: a.b, or a["b c"] for an unusual key.
func templateMemberPath(path, key string) string {
	switch {
	case key == "" || len(key) > 60 || strings.ContainsFunc(key, unusualInTemplatePath):
		return path + "[" + clippedText(strconv.Quote(key)) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

func unusualInTemplatePath(c rune) bool { return c != '_' && notSemverRune(c) }

func templateItemPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// clippedText shortens what a message quotes from a definition.
func clippedText(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// fromTOML is the definition as JSON, nil when it is no TOML. Values that JSON
// has not are problems, and null in the result.
func (r *templateReader) fromTOML(data []byte) []byte {
	var table map[string]any
	if err := toml.Unmarshal(data, &table); err != nil {
		r.problem("", "%s", templateTOMLReason(err))
		return nil
	}
	return r.tomlValue("", table)
}

func templateTOMLReason(err error) string {
	if p, ok := errors.AsType[toml.ParseError](err); ok {
		return fmt.Sprintf("line %d: %s", p.Position.Line, p.Message)
	}
	return strings.TrimPrefix(err.Error(), "toml: ")
}

// tomlValue is a decoded value as JSON: integers exactly, floats in their
// shortest form, which keeps a point or an exponent.
func (r *templateReader) tomlValue(path string, value any) []byte {
	switch v := value.(type) {
	case string:
		return appendJSONString(nil, v)
	case bool:
		return strconv.AppendBool(nil, v)
	case int64:
		return strconv.AppendInt(nil, v, 10)
	case float64:
		return r.tomlFloat(path, v)
	case map[string]any:
		var o templateObject
		for _, key := range slices.Sorted(maps.Keys(v)) {
			o = append(o, templateMember{key, r.tomlValue(templateMemberPath(path, key), v[key])})
		}
		return o.json()
	case []map[string]any:
		return tomlList(r, path, v)
	case []any:
		return tomlList(r, path, v)
	case time.Time:
		r.problem(path, "is a TOML date or time; write it as a string")
	default:
		r.problem(path, "is a %T, which JSON has not", value)
	}
	return templateNullJSON
}

func tomlList[T any](r *templateReader, path string, list []T) []byte {
	var elements [][]byte
	for i, v := range list {
		elements = append(elements, r.tomlValue(templateItemPath(path, i), v))
	}
	return templateListJSON(elements)
}

func (r *templateReader) tomlFloat(path string, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.problem(path, "is %v, which JSON has not", f)
		return templateNullJSON
	}
	text := strconv.AppendFloat(nil, f, 'g', -1, 64)
	if !strings.ContainsAny(string(text), ".e") {
		text = append(text, ".0"...)
	}
	return text
}
