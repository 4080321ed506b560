package main

// Reading a template from outside: a definition is checked against the tables
// of templatefields.go and written again in its normalized form, and every
// problem is noted with its place.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// templateProblem is one reason why a definition is not accepted.
type templateProblem struct {
	file   string // "" for a definition that is in no file
	path   string // like steps[3].retry.max_attempts; "" for the whole
	reason string
}

func (p templateProblem) String() string {
	s := p.reason
	if p.path != "" {
		s = p.path + ": " + s
	}
	if p.file != "" {
		s = p.file + ": " + s
	}
	return s
}

// parseTemplate reads a definition in a format, json or toml, and resolves it
// for an environment ("": no overrides). There is a template or there are
// problems: all of them. The file is only named in problems and warnings.
func parseTemplate(file string, data []byte, format, env string) (*template, []templateProblem, []string) {
	return parseCheckedTemplate(file, data, format, env, nil)
}

// parseCheckedTemplate is parseTemplate where, besides, checkCallable must have
// no error for the callable of any step.
func parseCheckedTemplate(file string, data []byte, format, env string, checkCallable func(string) error) (
	*template, []templateProblem, []string) {
	r := &templateReader{file: file, checkCallable: checkCallable, blamed: map[string]bool{}}
	t := r.template(data, format, env)
	return t, r.problems, r.warnings
}

// templateReader collects what is wrong with one definition.
type templateReader struct {
	file          string
	checkCallable func(callable string) error // nil: not asked
	problems      []templateProblem
	warnings      []string
	blamed        map[string]bool   // paths that have a problem
	spelling      map[string]string // path of a field: its path as the definition spells it, if by an alias
}

// problem notes the first thing that is wrong at a path; what else is found
// there mostly follows from it.
func (r *templateReader) problem(path, format string, args ...any) {
	if !r.blamed[path] {
		r.blamed[path] = true
		r.problems = append(r.problems, templateProblem{r.file, path, fmt.Sprintf(format, args...)})
	}
}

func (r *templateReader) warn(path, format string, args ...any) {
	r.warnings = append(r.warnings, templateProblem{r.file, path, fmt.Sprintf(format, args...)}.String())
}

// template is nil when there are problems.
func (r *templateReader) template(data []byte, format, env string) *template {
	if format == "toml" {
		if data = r.fromTOML(data); data == nil {
			return nil
		}
	}
	if err := checkJSON(data); err != nil {
		if format == "toml" {
			err = fmt.Errorf("as JSON: %w", err) // so that nobody looks for the offset in the file
		}
		r.problem("", "%v", err)
		return nil
	}
	normal := readTemplate(r, "", compactJSON(nil, data))
	normal = r.resolve(normal, env)
	if len(r.problems) > 0 {
		return nil
	}
	t, err := templateFromNormalized(normal)
	if err != nil {
		r.problem("", "%v", err)
		return nil
	}
	r.checkWorkers(t)
	return t
}

// templateRule checks the value at path, compact JSON, and returns its normalized
// form; where it notes a problem, null.
type templateRule func(r *templateReader, path string, data []byte) []byte

// templateField is one field of an object. A field that is null counts as not given.
type templateField struct {
	name     string // in the normalized form
	alias    string // another name for it, or ""
	value    templateRule
	required bool
	absent   string // stands for a field that is not given: JSON that value reads, or null; "" leaves it out
}

var templateNullJSON = []byte("null")

// objectOf is an object with the given fields; others are kept, after them and
// sorted, with a warning.
func objectOf(fields ...templateField) templateRule {
	return func(r *templateReader, path string, data []byte) []byte {
		return r.object(path, data, fields, false)
	}
}

// openObjectOf is objectOf where other fields are welcome.
func openObjectOf(fields ...templateField) templateRule {
	return func(r *templateReader, path string, data []byte) []byte {
		return r.object(path, data, fields, true)
	}
}

func (r *templateReader) object(path string, data []byte, fields []templateField, open bool) []byte {
	if !r.isKind(path, data, "an object") {
		return templateNullJSON
	}
	given, others := r.assign(path, data, fields)
	var members templateObject
	for i, f := range fields {
		if v := r.field(path, f, given[i]); v != nil {
			members = append(members, templateMember{f.name, v})
		}
	}
	others.sort()
	for _, m := range others {
		if !open {
			hint := templateFieldHint(m.key, fields)
			r.warn(templateMemberPath(path, m.key), "unknown field, kept as it is%s", hint)
		}
		members = append(members, templateMember{m.key, canonicalJSON(nil, m.value)})
	}
	return members.json()
}

// assign finds the member given for each field, with the key it is spelled by
// and nothing when there is none, and the members that are no field.
func (r *templateReader) assign(path string, data []byte, fields []templateField) (
	given, others templateObject) {
	given = make(templateObject, len(fields))
	for _, m := range templateMembers(data) {
		i := slices.IndexFunc(fields, func(f templateField) bool { return m.key == f.name || m.key == f.alias })
		switch {
		case i < 0 || m.key == "":
			others = append(others, m)
		case templateNull(m.value):
		case given[i].value != nil:
			r.problem(templateMemberPath(path, m.key), "is given twice, here and as %s", given[i].key)
		default:
			given[i] = m
		}
	}
	return given, others
}

// field is the normalized value of a field, nil when it is to be left out.
func (r *templateReader) field(path string, f templateField, m templateMember) []byte {
	at := templateMemberPath(path, f.name)
	switch {
	case m.value != nil:
		if spelled := templateMemberPath(path, m.key); spelled != at {
			r.respell(at, spelled)
			at = spelled
		}
		return f.value(r, at, m.value)
	case f.required:
		r.problem(at, "is required")
		return templateNullJSON
	case f.absent == "":
		return nil
	case f.absent == "null":
		return templateNullJSON
	}
	return f.value(r, at, []byte(f.absent))
}

func (r *templateReader) respell(path, spelled string) {
	if r.spelling == nil {
		r.spelling = map[string]string{}
	}
	r.spelling[path] = spelled
}

// spelled is the path of a field as the definition spells it.
func (r *templateReader) spelled(path string) string { return cmp.Or(r.spelling[path], path) }

// listOf is a list with each item as item says.
func listOf(item templateRule) templateRule {
	return func(r *templateReader, path string, data []byte) []byte {
		if !r.isKind(path, data, "a list") {
			return templateNullJSON
		}
		var items [][]byte
		for i, v := range templateElements(data) {
			items = append(items, item(r, templateItemPath(path, i), v))
		}
		return templateListJSON(items)
	}
}

// mapOf is an object whose keys are free, sorted, with each value as value says.
func mapOf(value templateRule) templateRule {
	return func(r *templateReader, path string, data []byte) []byte {
		if !r.isKind(path, data, "an object") {
			return templateNullJSON
		}
		var members templateObject
		for _, m := range templateMembers(data) {
			if !templateNull(m.value) {
				members = append(members, templateMember{m.key, value(r, templateMemberPath(path, m.key), m.value)})
			}
		}
		members.sort()
		return members.json()
	}
}

// textOf is a string of least to most characters; most 0: of any length.
func textOf(least, most int) templateRule {
	return func(r *templateReader, path string, data []byte) []byte {
		s, ok := r.text(path, data)
		if !ok {
			return templateNullJSON
		}
		switch n := utf8.RuneCountInString(s); {
		case n < least:
			r.problem(path, "is empty")
		case most > 0 && n > most:
			r.problem(path, "has %d characters, above %d", n, most)
		}
		return appendJSONString(nil, s)
	}
}

// text decodes a string; another kind of value is a problem.
func (r *templateReader) text(path string, data []byte) (s string, ok bool) {
	if !r.isKind(path, data, "a string") {
		return "", false
	}
	return templateString(data)
}

// wordOf is one of the given words.
func wordOf(words ...string) templateRule {
	return func(r *templateReader, path string, data []byte) []byte {
		s, ok := r.text(path, data)
		if !ok {
			return templateNullJSON
		}
		if !slices.Contains(words, s) {
			r.problem(path, "%s is none of %s", clippedText(strconv.Quote(s)), strings.Join(words, ", "))
		}
		return appendJSONString(nil, s)
	}
}

// integerOf is an integer from least to most.
func integerOf(least, most int64) templateRule { return usualIntegerOf(least, most, least, most) }

// usualIntegerOf is an integer from least to most; outside low to high it is warned of.
func usualIntegerOf(least, most, low, high int64) templateRule {
	return func(r *templateReader, path string, data []byte) []byte {
		if !r.isKind(path, data, "a number") {
			return templateNullJSON
		}
		text := clippedText(string(data))
		if strings.ContainsAny(string(data), ".eE") {
			r.problem(path, "%s is no integer", text)
			return templateNullJSON
		}
		n, _ := strconv.ParseInt(string(data), 10, 64) // the nearest int64 when it is out of range
		switch {
		case n < least:
			r.problem(path, "%s is below %d", text, least)
		case n > most:
			r.problem(path, "%s is above %d", text, most)
		case n < low:
			r.warn(path, "%d is unusual, below %d", n, low)
		case n > high:
			r.warn(path, "%d is unusual, above %d", n, high)
		}
		return strconv.AppendInt(nil, n, 10)
	}
}

func boolValue(r *templateReader, path string, data []byte) []byte {
	if !r.isKind(path, data, "true or false") {
		return templateNullJSON
	}
	return data
}

// freeObject is an object whose content is its author's business.
func freeObject(r *templateReader, path string, data []byte) []byte {
	if !r.isKind(path, data, "an object") {
		return templateNullJSON
	}
	return canonicalJSON(nil, data)
}

func anyValue(r *templateReader, path string, data []byte) []byte { return canonicalJSON(nil, data) }

// isKind reports whether data is of the kind; otherwise it notes the problem.
func (r *templateReader) isKind(path string, data []byte, want string) bool {
	got := templateValueKind(data)
	if got != want {
		r.problem(path, "is %s; want %s", got, want)
	}
	return got == want
}

func templateValueKind(data []byte) string {
	switch data[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

// templateFieldHint names the field that was likely meant by another key.
func templateFieldHint(key string, fields []templateField) string {
	for _, f := range fields {
		if typoDistance(strings.ToLower(key), f.name, typoLimit(key)) <= typoLimit(key) {
			return " (is " + f.name + " meant?)"
		}
	}
	return ""
}
