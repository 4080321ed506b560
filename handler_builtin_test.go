package main

import (
	"testing"
	"time"
)

// runBuiltin runs a builtin on an attempt as the engine would.
func runBuiltin(t *testing.T, name string, a *attempt) (outcome, time.Duration) {
	t.Helper()
	b := must(findBuiltin(name))(t)
	return b.run(a)
}

func TestFailSaysWhatItIsTold(t *testing.T) {
	o, _ := runBuiltin(t, "fail", newTestAttempt(`{"message": "the card \u00fc was declined"}`))
	if got, want := o.err.message, "the card ü was declined"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func TestEchoNeverTakesItsInputsForAnOutcome(t *testing.T) {
	a := newTestAttempt(`{}`)
	a.inputs = []byte(`{ "success": false }`)
	o, _ := runBuiltin(t, "echo", a)
	if got, want := showOutcome(o), `ok {"success":false}`; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

// TestBuiltinsReadOnlyWhatTheySay runs each builtin without the parts of the
// attempt that it claims not to need, and checks that it is documented.
func TestBuiltinsReadOnlyWhatTheySay(t *testing.T) {
	for _, b := range builtins {
		if b.help == "" {
			t.Errorf("%s: no help", b.name)
		}
		if b.needsInputs {
			continue
		}
		if o, _ := b.run(&attempt{number: 1, config: []byte(`{}`)}); o.success == (o.err != nil) {
			t.Errorf("%s: got %s", b.name, showOutcome(o))
		}
	}
}

func TestSum(t *testing.T) {
	for _, row := range []struct {
		add     string
		results []string
		want    string
	}{
		{"1", []string{"2", "3"}, "ok 6"},
		{"-1", []string{`{"value": 5, "other": 7}`, `"8"`, `null`, ``, `[9]`, `true`, `{"value": "9"}`}, "ok 4"},
		{"0", []string{"0.25", "0.5"}, "ok 0.75"},
		{"1e21", nil, "ok 1000000000000000000000"},
		{"0.5", []string{"1.5e0", "-2E0"}, "ok 0"},
		{"1e3", []string{"25e-2"}, "ok 1000.25"},
		{"-0", nil, "ok 0"},
		{"1e308", []string{"1e308"}, "invalid_result permanent"},
		{"1", []string{"1e-99999999999999999999", "1e-1000000000"}, "ok 1"},
		{"1", []string{"0e99999999999999999999"}, "ok 1"},
	} {
		a := newTestAttempt(`{"add": ` + row.add + `}`)
		for _, r := range row.results {
			a.results = append(a.results, namedResult{step: "s", pastOutcome: pastOutcome{result: []byte(r)}})
		}
		o, _ := runBuiltin(t, "sum", a)
		if got := showOutcome(o); got != row.want {
			t.Errorf("%s + %v: got %s; want %s", row.add, row.results, got, row.want)
		}
	}
}
