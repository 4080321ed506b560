package main

// Reading the fields of a request body. A method that reads a field records a problem when the value is wrong.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the fields of a request, in characters.
const (
	maxNameLength   = 255
	maxReasonLength = 500
	maxTags         = 100
)

// maxProblems is how many problems of a request, or of a schema, are named.
const maxProblems = 100

// fieldReader reads the fields of a request body and collects their problems.
type fieldReader struct {
	problems inputProblems
	more     int     // problems that are not named
	budget   *budget // of the request, for what is decoded; nil for no limit
}

func (f *fieldReader) complain(field, format string, args ...any) {
	if len(f.problems) == maxProblems {
		f.more++
		return
	}
	f.problems = append(f.problems, inputProblem{Field: field, Message: fmt.Sprintf(format, args...)})
}

// complainedOf reports whether a field has a problem already.
func (f *fieldReader) complainedOf(field string) bool {
	return slices.ContainsFunc(f.problems, func(p inputProblem) bool { return p.Field == field })
}

// failure returns the failure of a body with problems, or nil when it has none.
func (f *fieldReader) failure(what string) error {
	if len(f.problems) == 0 {
		return nil
	}
	names := make([]string, len(f.problems))
	for i, p := range f.problems {
		names[i] = p.Field + " " + p.Message
	}
	if f.more > 0 {
		names = append(names, fmt.Sprintf("and %d more", f.more))
	}
	return &failure{kind: invalidFields, message: what + ": " + strings.Join(names, "; "), details: f.problems}
}

// text reads a string of lo to hi characters.
func (f *fieldReader) text(key string, raw []byte, lo, hi int) string {
	s, ok := jsonString(raw)
	if !ok {
		f.complain(key, "must be a string")
		return ""
	}
	if n := utf8.RuneCountInString(s); n < lo || n > hi {
		f.complain(key, "must have %d to %d characters, not %d", lo, hi, n)
	}
	return s
}

// name reads a string that becomes a name, or selects what has it.
func (f *fieldReader) name(key string, raw []byte) string {
	s := f.text(key, raw, 1, maxNameLength)
	if fault := nameFault(s); fault != "" {
		f.complain(key, "%s", fault)
	}
	return s
}

// texts reads an array of names, at most maxTags.
func (f *fieldReader) texts(key string, raw []byte) []string {
	texts := []string{}
	if jsonKind(raw) != '[' {
		f.complain(key, "must be an array of strings")
	}
	for e := range jsonElements(raw) {
		at := fmt.Sprintf("%s[%d]", key, len(texts))
		if jsonKind(e) != '"' {
			f.complain(at, "must be a string")
			break
		}
		texts = append(texts, f.name(at, e))
		// One too many is read; the rest of a long array is not decoded.
		if len(texts) > maxTags {
			f.complain(key, "must have at most %d elements", maxTags)
			break
		}
	}
	return texts
}

// array reads an array of 1 to most elements by calling read for each. One too many is read.
func (f *fieldReader) array(path string, raw []byte, most int, elements string, read func(at string, e []byte)) {
	n := 0
	for e := range jsonElements(raw) {
		read(fmt.Sprintf("%s[%d]", path, n), e)
		if n++; n > most {
			break
		}
	}
	if n == 0 || n > most {
		f.complain(path, "must be an array of 1 to %d %s", most, elements)
	}
}

// word reads a string that must be one of the words.
func (f *fieldReader) word(path string, raw []byte, words ...string) string {
	s, _ := jsonString(raw)
	if !slices.Contains(words, s) {
		f.complain(path, "must be %s", anyOf(words))
	}
	return s
}

// flag reads true or false.
func (f *fieldReader) flag(path string, raw []byte) bool {
	kind := jsonKind(raw)
	if kind != 't' && kind != 'f' {
		f.complain(path, "must be true or false")
	}
	return kind == 't'
}

// object reads a JSON object and returns it without white space.
func (f *fieldReader) object(key string, raw []byte) []byte {
	if jsonKind(raw) != '{' {
		f.complain(key, "must be an object")
		return nil
	}
	return compactJSON(make([]byte, 0, len(raw)), raw)
}

// count reads an integer from lo to hi.
func (f *fieldReader) count(key string, raw []byte, lo, hi int64) int {
	n, ok := jsonInt(raw)
	if !ok || n < lo || n > hi {
		f.complain(key, "must be an integer from %d to %d", lo, hi)
	}
	return int(n)
}

func (f *fieldReader) id(key string, raw []byte) uuid {
	s, ok := jsonString(raw)
	if !ok {
		f.complain(key, "must be a UUID string")
		return uuid{}
	}
	id, ok := parseUUID(s)
	if !ok {
		f.complain(key, "%.60q is not a UUID", s)
	}
	return id
}

// instant reads a timestamp.
func (f *fieldReader) instant(key string, raw []byte) instant {
	s, ok := jsonString(raw)
	if !ok {
		f.complain(key, "must be a timestamp string")
		return 0
	}
	at, err := parseInstant(s)
	if err != nil {
		f.complain(key, "%.60q is not a timestamp like 2026-01-31T12:00:00Z", s)
	}
	return at
}

// zonedForm reports whether a JSON string ends as a timestamp with a zone does.
func zonedForm(raw []byte) bool {
	s, _ := jsonString(raw)
	at := strings.LastIndexAny(s, "Zz+-")
	return at > strings.IndexByte(s, 'T')
}

// duration reads a duration as parseDuration does, which must not be less than least.
func (f *fieldReader) duration(key string, raw []byte, least time.Duration) time.Duration {
	return f.durationWithin(key, raw, least, math.MaxInt64)
}

// boundedDuration reads a duration from 0 to most.
func (f *fieldReader) boundedDuration(path string, raw []byte, most time.Duration) time.Duration {
	return f.durationWithin(path, raw, 0, most)
}

func (f *fieldReader) durationWithin(key string, raw []byte, least, most time.Duration) time.Duration {
	s, _ := jsonString(raw)
	switch d, err := parseDuration(s); {
	case err == errLongDuration || d > most:
		f.complain(key, "must be at most %s", pick(most == math.MaxInt64, "292 years", most.String()))
		return 0
	case err != nil || d < least:
		f.complain(key, "must be a string like 90s, 1h30m or 1d, not less than %s", least)
		return 0
	default:
		return d
	}
}
