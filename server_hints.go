package main

// Hints at what a request contains and the service does not know, although the caller may think that it does. A hint
// never refuses anything, since clients send all sorts of things.

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const maxHints = 10 // in one answer

// hint adds a header Warning to the answer of a request, with the code for others than caches, as Kubernetes does it
// (RFC 7234, section 5.5). A newer RFC has no use for the header, and forbids none.
func hint(h http.Header, format string, args ...any) {
	if text := asciiText(fmt.Sprintf(format, args...)); len(h["Warning"]) < maxHints {
		h["Warning"] = append(h["Warning"], `299 - "`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)+`"`)
	}
}

// hintTexts returns the hints of an answer.
func hintTexts(h http.Header) (texts []string) {
	for _, value := range h["Warning"] {
		if text, ok := strings.CutPrefix(value, `299 - "`); ok && strings.HasSuffix(text, `"`) {
			texts = append(texts, strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(text[:len(text)-1]))
		}
	}
	return texts
}

// asciiText returns a text for a header.
func asciiText(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// hintsOf returns the headers of the answer to a request, for hints.
func hintsOf(r *http.Request) http.Header {
	if b, ok := r.Body.(*requestBody); ok {
		return b.answer
	}
	return http.Header{}
}

// hintMembers adds hints about members of a body that the operation of a request does not have.
func hintMembers(r *http.Request, body []byte) {
	b, ok := r.Body.(*requestBody)
	if !ok || b.operation == "" {
		return
	}
	known := bodyMembers(b.operation)
	if len(known) == 0 {
		return
	}
	eachMember(body, func(name string, _ []byte) bool {
		if !known[name] {
			near := nearestWord(strings.ToLower(name), slices.Sorted(maps.Keys(known)), typoLimit(name))
			hint(b.answer, "the body has an unknown member, %.60q%s", name, meant(near))
		}
		return len(b.answer["Warning"]) < maxHints
	})
}

var membersOf sync.Map // what bodyMembers returned, by operation

// bodyMembers returns the members that openapi.json names for the body of an operation, such as "POST /v1/tasks"; none
// if it allows any.
func bodyMembers(operation string) map[string]bool {
	if known, ok := membersOf.Load(operation); ok {
		return known.(map[string]bool)
	}
	method, path, _ := strings.Cut(operation, " ")
	schema := openAPIFile
	for _, name := range []string{"paths", path, strings.ToLower(method), "requestBody", "content", "application/json", "schema"} {
		schema = objectMember(schema, name)
	}
	known := map[string]bool{}
	if !addMembers(known, schema) {
		known = nil
	}
	membersOf.Store(operation, known)
	return known
}

// addMembers adds the members of a schema, and reports whether it names all that it allows.
func addMembers(known map[string]bool, schema []byte) bool {
	if name, ok := jsonString(objectMember(schema, "$ref")); ok {
		name = name[strings.LastIndexByte(name, '/')+1:]
		return addMembers(known, objectMember(objectMember(objectMember(openAPIFile, "components"), "schemas"), name))
	}
	all := string(objectMember(schema, "additionalProperties")) != "true"
	eachMember(objectMember(schema, "properties"), func(name string, _ []byte) bool {
		known[name] = true
		return true
	})
	for _, of := range []string{"allOf", "anyOf", "oneOf"} {
		eachElement(objectMember(schema, of), func(part []byte) bool {
			all = addMembers(known, part) && all
			return true
		})
	}
	return all
}
