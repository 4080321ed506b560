package main

// Hints at what a request contains and the service does not know, although the caller may think that it does. A hint
// never refuses anything, since clients send all sorts of things.

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const maxHints = 10 // in one answer

// hint adds a header Warning to the answer of a request, with the code for others than caches, as Kubernetes does it
// (RFC 7234, section 5.5). A newer RFC has no use for the header, and forbids none.
func hint(h http.Header, format string, args ...any) {
	if text := asciiText(fmt.Sprintf(format, args...)); len(h["Warning"]) < maxHints {
		h["Warning"] = append(h["Warning"], `299 - "`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)+`"`)
	}
}

// hintMisfits adds a hint for each place where a result, at a path of the request, does not fit its schema.
func hintMisfits(w *responseWriter, path string, found misfits) {
	for _, text := range found.texts(path) {
		hint(w.Header(), "%s", text)
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
