package main

import (
	"encoding/json"
	"stepwell/e2e/wire"
	"testing"
)

// noError ends the test if err is not nil.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must2 is must for calls that return two values.
func must2[T, U any](v T, u U, err error) func(testing.TB) (T, U) {
	return func(t testing.TB) (T, U) {
		t.Helper()
		noError(t, err)
		return v, u
	}
}

// mustJSON returns a value as JSON.
func mustJSON(t testing.TB, v any) string {
	t.Helper()
	return string(must(json.Marshal(v))(t))
}

// must returns a function that returns v, or ends the test if err is not nil: the value of
// a call f() that may fail is must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return wire.Must(v, err)
}
