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

func TestBuiltins(t *testing.T) {
	for _, row := range []struct {
		name, config string
		number       int
		want         string
		delay        time.Duration
	}{
		{"noop", `{}`, 1, `ok null`, 0},
		{"noop", `{"anything": [1]}`, 1, `ok null`, 0},
		{"echo", `{}`, 1, `ok {"order":8}`, 0},

		{"sleep", `{}`, 1, `ok null`, 0},
		{"sleep", `{"duration_ms": null}`, 1, `ok null`, 0},
		{"sleep", `{"duration_ms": 1500}`, 1, `ok null`, 1500 * time.Millisecond},
		{"sleep", `{"duration_ms": 1000000000000}`, 1, `ok null`, 1000000000 * time.Second},
		{"sleep", `{"duration_ms": 1000000000001}`, 1,
			"initialization.duration_ms is 1000000000001; want an integer from 0 to 1000000000000", 0},
		{"sleep", `{"duration_ms": -1}`, 1,
			"initialization.duration_ms is -1; want an integer from 0 to 1000000000000", 0},
		{"sleep", `{"duration_ms": 1.5}`, 1,
			"initialization.duration_ms is 1.5; want an integer from 0 to 1000000000000", 0},
		{"sleep", `{"duration_ms": "2s"}`, 1,
			"initialization.duration_ms is a string; want an integer from 0 to 1000000000000", 0},

		{"fail", `{}`, 1, `builtin_fail permanent`, 0},
		{"fail", `{"retryable": true, "error_type": "down", "message": "m"}`, 1, `down retryable`, 0},
		{"fail", `{"retryable": null, "error_type": ""}`, 1, `builtin_fail permanent`, 0},
		{"fail", `{"retryable": 1}`, 1, "initialization.retryable is 1; want true or false", 0},
		{"fail", `{"message": {}}`, 1, "initialization.message is an object; want a string", 0},
		{"fail", `{"error_type": []}`, 1, "initialization.error_type is a list; want a string", 0},

		{"flaky", `{}`, 1, `builtin_flaky retryable`, 0},
		{"flaky", `{}`, 2, `ok {"attempts":2}`, 0},
		{"flaky", `{"failures": 0}`, 1, `ok {"attempts":1}`, 0},
		{"flaky", `{"failures": 2}`, 2, `builtin_flaky retryable`, 0},
		{"flaky", `{"failures": 2}`, 3, `ok {"attempts":3}`, 0},
		{"flaky", `{"failures": -2}`, 3, "initialization.failures is -2; want an integer from 0 to 1000000", 0},
		{"flaky", `{"failures": true}`, 3,
			"initialization.failures is true or false; want an integer from 0 to 1000000", 0},

		{"sum", `{}`, 1, `ok 0`, 0},
		{"sum", `{"add": 3}`, 1, `ok 3`, 0},
		{"sum", `{"add": "3"}`, 1, "initialization.add is a string; want a number", 0},

		{"decide", `{"field": "order", "branches": {"8": ["a", "b"], "9": []}, "default": ["c"]}`, 1,
			`ok {"decision_point_outcome":{"type":"create_steps","step_names":["a","b"]}}`, 0},
		{"decide", `{"field": "other", "branches": {"8": ["a"]}, "default": ["c"]}`, 1,
			`ok {"decision_point_outcome":{"type":"create_steps","step_names":["c"]}}`, 0},
		{"decide", `{"field": "order"}`, 1, `ok {"decision_point_outcome":{"type":"no_branches"}}`, 0},
		{"decide", `{}`, 1, "initialization.field is missing; want the name of a member of the inputs", 0},
		{"decide", `{"field": "order", "branches": []}`, 1,
			"initialization.branches is a list; want an object of lists of step names", 0},

		{"batch", `{}`, 1, `ok {"batch_processing_outcome":{"type":"no_batches"}}`, 0},
		{"batch", `{"total_items": 5, "batch_size": 3, "worker_template_name": "w"}`, 1,
			`ok {"batch_processing_outcome":{"type":"create_batches","worker_template_name":"w","worker_count":2,"cursor_configs":[` +
				`{"batch_id":"001","start_cursor":0,"end_cursor":3,"batch_size":3},` +
				`{"batch_id":"002","start_cursor":3,"end_cursor":5,"batch_size":3}],"total_items":5}}`, 0},
		{"batch", `{"total_items": 5, "batch_size": 0}`, 1, "initialization.batch_size is 0; want at least 1", 0},
		{"batch", `{"total_items": 10001, "batch_size": 1}`, 1, "10001 items make 10001 batches of 1, more than 10000", 0},

		{"tally", `{}`, 1, `ok {"value":0}`, 0},
		{"tally", `{"cursor": {"start_cursor": 20, "end_cursor": 25}}`, 1, `ok {"value":5}`, 0},
		{"tally", `{"cursor": 7}`, 1, "initialization.cursor is 7; want an object", 0},
		{"tally", `{"cursor": {"end_cursor": "x"}}`, 1,
			"cursor.end_cursor is a string; want an integer from 0 to 1000000000000000", 0},
	} {
		a := newTestAttempt(row.config)
		a.number = row.number
		o, delay := runBuiltin(t, row.name, a)
		got := showOutcome(o)
		if o.err != nil && o.err.errorType == invalidConfigType && !o.err.retryable {
			got = o.err.message
		}
		if got != row.want || delay != row.delay {
			t.Errorf("%s %s, attempt %d: got %s after %v; want %s after %v",
				row.name, row.config, row.number, got, delay, row.want, row.delay)
		}
	}
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

func TestSum(t *testing.T) {
	for _, row := range []struct {
		add     string
		results []string
		want    string
	}{
		{"1", []string{"2", "3"}, "ok 6"},
		{"-1", []string{`{"value": 5, "other": 7}`, `"8"`, `null`, ``, `[9]`, `true`, `{"value": "9"}`}, "ok 4"},
		{"0", []string{"9007199254740993", "9007199254740993"}, "ok 18014398509481986"},
		{"0", []string{"123456789012345678901234567890", "1"}, "ok 123456789012345678901234567891"},
		{"0", []string{"0.1", "0.2"}, "ok 0.3"},
		{"0.5", []string{"1.5e0", "-2E0"}, "ok 0"},
		{"1e3", []string{"25e-2"}, "ok 1000.25"},
		{"-0", nil, "ok 0"},
		{"1e308", []string{"1e308"}, "invalid_result permanent"},
		{"1", []string{"1e-99999999999999999999", "1e-1000000000"}, "ok 1"},
		{"1", []string{"0e99999999999999999999"}, "ok 1"},
	} {
		a := newTestAttempt(`{"add": ` + row.add + `}`)
		for _, r := range row.results {
			a.results = append(a.results, namedResult{"s", []byte(r)})
		}
		o, _ := runBuiltin(t, "sum", a)
		if got := showOutcome(o); got != row.want {
			t.Errorf("%s + %v: got %s; want %s", row.add, row.results, got, row.want)
		}
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
