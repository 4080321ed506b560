package main

// The text of a context by which Tasker computes the identity of a task.

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// hashed returns a decoded JSON value as Tasker hashes it: the keys of objects in the order of their bytes and without
// escapes, no white space, and floating-point numbers in their shortest form.
func hashed(v any) string {
	var parts []string
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, `"`+key+`":`+hashed(v[key]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case []any:
		for _, item := range v {
			parts = append(parts, hashed(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case string:
		return hashedText(v)
	case json.Number:
		return hashedNumber(string(v))
	}
	return string(encode(v))
}

// hashedText returns a JSON text in which only quotes, backslashes and control characters are escaped.
func hashedText(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(text)
	return strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(b.String(), "\n"))
}

// hashedNumber returns an integer of 64 bits as it is, and any other number in floating point: without an exponent if it
// is 0, or from 1e-5 to below 1e16 without its sign.
func hashedNumber(text string) string {
	_, err := strconv.ParseInt(text, 10, 64)
	if _, unsigned := strconv.ParseUint(text, 10, 64); text != "-0" && (err == nil || unsigned == nil) {
		return text
	}
	f, _ := strconv.ParseFloat(text, 64)
	if size := math.Abs(f); size != 0 && (size < 1e-5 || size >= 1e16) {
		return strings.Replace(strconv.FormatFloat(f, 'e', -1, 64), "e-0", "e-", 1) // Go pads exponents to two digits
	}
	if f == math.Trunc(f) {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
