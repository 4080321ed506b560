package main

// The formats of a definition, JSON, TOML and YAML: each is read as JSON and says where the fields are in its text.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// definition returns a definition as compact JSON that passes checkJSON, or nil if it is not valid in its format.
func (r *templateReader) definition(data []byte, format string) []byte {
	data = unmarked(data)
	r.text.text = data
	var text []byte
	switch format {
	case "toml":
		text = r.fromTOML(data)
	case "yaml":
		text = r.fromYAML(data)
	default:
		text = r.fromJSON(data)
	}
	if text == nil {
		return nil
	}
	// TOML and YAML allow what JSON from outside must not have, such as deep nesting and U+0000.
	if err, ok := errors.AsType[*jsonError](checkJSON(text)); ok {
		r.problem("", "as JSON: %s", err.reason) // the offset is not one in the file
		return nil
	}
	return compactJSON(make([]byte, 0, len(text)), text)
}

func (r *templateReader) fromJSON(data []byte) []byte {
	err, bad := errors.AsType[*jsonError](checkJSON(data))
	switch {
	case bad && r.file == "":
		r.problem("", "%v", err)
	case bad:
		r.text.fault = err.offset
		r.problem("", "invalid JSON: %s", err.reason)
	default:
		r.text.find = func(f *pathFinder) { f.json(data, skipJSONSpace(data, 0), "") }
		return data
	}
	return nil
}

// fromTOML is fromJSON for TOML. Values that JSON cannot express are problems, and null in the result.
func (r *templateReader) fromTOML(data []byte) []byte {
	keys, tooDeep := findTOMLKeys(string(data), maxJSONDepth, templateMemberPath)
	if tooDeep >= 0 {
		r.text.fault = tooDeep
		r.problem("", "invalid TOML: deeper than %d levels", maxJSONDepth)
		return nil
	}
	var table map[string]any
	if err := toml.Unmarshal(data, &table); err != nil {
		reason := strings.TrimPrefix(err.Error(), "toml: ")
		if p, ok := errors.AsType[toml.ParseError](err); ok {
			r.text.fault, reason = min(p.Position.Start, len(data)), p.Message
		}
		r.problem("", "invalid TOML: %s", reason)
		return nil
	}
	r.text.find = func(f *pathFinder) {
		for path, key := range keys {
			f.offsets[path] = key.offset
		}
	}
	return r.tomlValue("", table)
}

func (r *templateReader) fromYAML(data []byte) []byte {
	root, text, err := readYAML(data)
	r.text.text = text
	if err != nil {
		r.text.fault = err.offset
		r.problem("", "YAML: %s", err.reason)
		return nil
	}
	r.text.find = func(f *pathFinder) { f.yaml(root, "") }
	return root.appendJSON(nil)
}

// tomlValue returns a decoded value as JSON. Integers are exact; floats have their
// shortest form with a point or an exponent.
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
		r.problem(path, "is a %T, which JSON cannot express", value)
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
		r.problem(path, "is %v, which JSON cannot express", f)
		return templateNullJSON
	}
	text := strconv.AppendFloat(nil, f, 'g', -1, 64)
	if !strings.ContainsAny(string(text), ".e") {
		text = append(text, ".0"...)
	}
	return text
}

// Places.

// definitionText knows where the fields of a definition are in its text.
type definitionText struct {
	text  []byte
	fault int                 // the offset of the error, if the text is not valid
	find  func(f *pathFinder) // nil if the text is not valid
}

// locate gives problems the file, the line and the column they are about.
func (r *templateReader) locate(lists ...inputProblems) {
	if r.file == "" {
		return
	}
	problems := slices.Concat(lists...)
	if len(problems) == 0 {
		return
	}
	f := &pathFinder{wanted: map[string]bool{}, offsets: map[string]int{}}
	for _, p := range problems {
		f.want(p.Field)
	}
	if r.text.find != nil {
		r.text.find(f)
	}
	type located struct {
		offset int
		*inputProblem
	}
	var found []located
	for _, list := range lists {
		for i := range list {
			found = append(found, located{max(nearest(f.offsets, list[i].Field), r.text.fault), &list[i]})
		}
	}
	slices.SortStableFunc(found, func(a, b located) int { return cmp.Compare(a.offset, b.offset) })
	at := newTextCursor(r.text.text)
	for _, p := range found {
		at.moveTo(p.offset)
		p.Source = fmt.Sprintf("%s:%d:%d", r.file, at.line, at.column)
	}
}

// textCursor is a place in a text. It moves forward, so that many places take one pass.
type textCursor struct {
	text         []byte
	offset       int
	line, column int // from 1, the column in characters
}

func newTextCursor(text []byte) *textCursor { return &textCursor{text: text, line: 1, column: 1} }

// moveTo moves the cursor to an offset that is not before it.
func (c *textCursor) moveTo(offset int) {
	passed := c.text[c.offset:offset]
	c.offset = offset
	if breaks := bytes.Count(passed, []byte{'\n'}); breaks > 0 {
		c.line, c.column = c.line+breaks, 1
		passed = passed[bytes.LastIndexByte(passed, '\n')+1:]
	}
	c.column += utf8.RuneCount(passed)
}

// pathFinder collects the offsets of paths in a text: where the key of a member or the item of a list begins.
type pathFinder struct {
	wanted  map[string]bool // paths, and those around them
	offsets map[string]int
}

func (f *pathFinder) want(path string) {
	for ; path != "" && !f.wanted[path]; path = path[:max(strings.LastIndexAny(path, ".["), 0)] {
		f.wanted[path] = true
	}
}

// found records the offset of a path if it is wanted, and reports whether it is.
func (f *pathFinder) found(path string, offset int) bool {
	if f.wanted[path] {
		f.offsets[path] = offset
	}
	return f.wanted[path]
}

// json looks into the value at i.
func (f *pathFinder) json(data []byte, i int, path string) {
	bracket := data[i]
	for n := 0; bracket == '{' || bracket == '['; n++ {
		if i = skipJSONSpace(data, i+1); data[i] == '}' || data[i] == ']' {
			return
		}
		start, inner := i, templateItemPath(path, n)
		if bracket == '{' {
			end := skipJSONString(data, i)
			inner = templateMemberPath(path, string(unescapeJSON(data[i:end])))
			i = skipJSONSpace(data, skipJSONSpace(data, end)+1)
		}
		if f.found(inner, start) {
			f.json(data, i, inner)
		}
		if i = skipJSONSpace(data, skipJSONValue(data, i)); data[i] != ',' {
			return
		}
	}
}

func (f *pathFinder) yaml(node *yamlNode, path string) {
	for i, item := range node.items {
		if inner := templateItemPath(path, i); f.found(inner, item.offset) {
			f.yaml(item, inner)
		}
	}
	for _, m := range node.members {
		if inner := templateMemberPath(path, m.key); f.found(inner, m.offset) {
			f.yaml(m.value, inner)
		}
	}
}

// Converting a definition to JSON.

// convertTemplate returns the definition of a file as JSON, or its line in a store. It fails if the definition has
// problems.
func convertTemplate(file string, data []byte, to string) ([]byte, error) {
	from := templateFormat(file)
	t, problems, _ := parseTemplate(file, data, from, "", nil)
	if t == nil {
		return nil, problems
	}
	if to == "line" {
		return fmt.Appendf(nil, `{"hash":%q,"definition":%s}`+"\n", t.hash, t.json), nil
	}
	var out bytes.Buffer
	err := json.Indent(&out, (&templateReader{file: file}).definition(data, from), "", "  ")
	return append(out.Bytes(), '\n'), err
}
