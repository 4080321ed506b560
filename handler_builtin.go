package main

// The builtin handlers: small steps for demos, tests and glue. They compute at once; a delay
// that they ask for is a timer of the engine.

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// builtin is a handler that is part of the program.
type builtin struct {
	name        string // after builtin:
	help        string // one line: what it does with which members of handler.initialization
	needsInputs bool   // it reads more of the attempt than number and config
	// run returns the outcome, which counts once the delay has passed, in the
	// service's time. It is called without locks and keeps nothing.
	run func(a *attempt) (o outcome, delay time.Duration)
}

// builtins holds every builtin in the order of the documentation.
var builtins = []builtin{
	{name: "noop", run: runNoop,
		help: "succeeds with null"},
	{name: "echo", run: runEcho, needsInputs: true,
		help: "succeeds with its inputs, which are the task's context unless an operator set others"},
	{name: "sleep", run: runSleep,
		help: "succeeds with null after duration_ms milliseconds (0)"},
	{name: "fail", run: runFail,
		help: `fails with message, error_type ("builtin_fail") and retryable (false)`},
	{name: "flaky", run: runFlaky,
		help: `fails retryably on the first failures attempts (1), then succeeds with {"attempts": n}`},
	{name: "sum", run: runSum, needsInputs: true,
		help: "succeeds with add (0) plus every dependency result that is a number or has a number as value"},
	{name: "decide", run: runDecide, needsInputs: true,
		help: "decides to create the steps that branches lists for the value of the input member field, else those of default"},
	{name: "batch", run: runBatch, needsInputs: true,
		help: "splits total_items (0) into batches of batch_size (100), both from the inputs if they are numbers there"},
	{name: "tally", run: runTally,
		help: `succeeds with {"value": n}, n being end_cursor - start_cursor of its batch`},
}

// findBuiltin returns the builtin of a name.
func findBuiltin(name string) (*builtin, error) {
	names := make([]string, len(builtins))
	for i := range builtins {
		if builtins[i].name == name {
			return &builtins[i], nil
		}
		names[i] = builtins[i].name
	}
	return nil, fmt.Errorf("unknown builtin %q; want %s", name, anyOf(names))
}

func runNoop(*attempt) (outcome, time.Duration) { return outcome{success: true}, 0 }

func runEcho(a *attempt) (outcome, time.Duration) {
	return outcome{success: true, result: compactResult(a.allInputs())}, 0
}

// maxSleepMS is the longest sleep, some thirty years.
const maxSleepMS = 1_000_000_000_000

func runSleep(a *attempt) (outcome, time.Duration) {
	c := memberReader{data: a.config}
	ms := c.integer("duration_ms", 0, maxSleepMS)
	if c.problem != "" {
		return c.invalidConfig(), 0
	}
	return outcome{success: true}, time.Duration(ms) * time.Millisecond
}

func runFail(a *attempt) (outcome, time.Duration) {
	c := memberReader{data: a.config}
	message := c.text("message", "the step fails on purpose")
	errorType := c.text("error_type", "builtin_fail")
	retryable := c.flag("retryable", false)
	if c.problem != "" {
		return c.invalidConfig(), 0
	}
	return failedOutcome(errorType, message, retryable), 0
}

func runFlaky(a *attempt) (outcome, time.Duration) {
	const most = 1_000_000
	c := memberReader{data: a.config}
	failures := c.integer("failures", 1, most)
	if c.problem != "" {
		return c.invalidConfig(), 0
	}
	if int64(a.number) <= failures {
		return typedFailure("builtin_flaky", "attempt %d of %d that fail on purpose", a.number, failures), 0
	}
	return outcome{success: true, result: fmt.Appendf(nil, `{"attempts":%d}`, a.number)}, 0
}

func runSum(a *attempt) (outcome, time.Duration) {
	c := memberReader{data: a.config}
	sum := c.number("add")
	if c.problem != "" {
		return c.invalidConfig(), 0
	}
	for _, r := range a.results {
		if n := summand(r.result); n != nil {
			f, _ := strconv.ParseFloat(string(n), 64) // finite, or checkJSON would have refused it
			sum += f
		}
	}
	if math.IsInf(sum, 0) {
		return typedFailure(invalidResultType, "the sum is too large for a number"), 0
	}
	return outcome{success: true, result: strconv.AppendFloat(nil, sum+0, 'f', -1, 64)}, 0 // 0 and not -0
}

// summand returns a result that is a number, or the number in its member value. It
// returns nil if there is none.
func summand(result []byte) []byte {
	if jsonKind(result) == '{' {
		result = objectMember(result, "value")
	}
	if jsonKind(result) != '0' {
		return nil
	}
	return result
}

// The builtins for dynamic steps: one decides, one splits into batches, and one
// works on a batch.

// runDecide looks the value of an input member up among the branches.
func runDecide(a *attempt) (outcome, time.Duration) {
	c := memberReader{data: a.config}
	field := c.text("field", "")
	branches := c.member("branches", "{", "an object of lists of step names")
	chosen := c.member("default", "[", "a list of step names")
	if c.problem == "" && field == "" {
		c.problem = "field is missing; want the name of a member of the inputs"
	}
	if c.problem != "" {
		return c.invalidConfig(), 0
	}
	value := objectMember(a.inputs, field)
	name, isText := jsonString(value)
	if !isText {
		name = string(value)
	}
	if list := objectMember(branches, name); list != nil {
		chosen = list
	}
	if chosen == nil {
		return outcome{success: true, result: []byte(`{"decision_point_outcome":{"type":"no_branches"}}`)}, 0
	}
	return outcome{success: true, result: compactResult(fmt.Appendf(nil,
		`{"decision_point_outcome":{"type":"create_steps","step_names":%s}}`, chosen))}, 0
}

// runBatch splits total_items into batches of batch_size.
func runBatch(a *attempt) (outcome, time.Duration) {
	const most = 1_000_000_000_000_000
	c := memberReader{data: mergeObjects(nil, a.config, numbersOf(a.inputs, "total_items", "batch_size"))}
	total, size := c.integer("total_items", 0, most), c.integer("batch_size", 100, most)
	worker := c.text("worker_template_name", "")
	if c.problem == "" && size == 0 {
		c.problem = "batch_size is 0; want at least 1"
	}
	if c.problem != "" {
		return c.invalidConfig(), 0
	}
	if total == 0 {
		return outcome{success: true, result: []byte(`{"batch_processing_outcome":{"type":"no_batches"}}`)}, 0
	}
	n := (total + size - 1) / size
	if n > maxInstances {
		return typedFailure(invalidConfigType, "%d items make %d batches of %d, more than %d",
			total, n, size, maxInstances), 0
	}
	b := []byte(`{"batch_processing_outcome":{"type":"create_batches",`)
	if worker != "" {
		b = append(appendJSONString(append(b, `"worker_template_name":`...), worker), ',')
	}
	b = fmt.Appendf(b, `"worker_count":%d,"cursor_configs":[`, n)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"batch_id":"%03d","start_cursor":%d,"end_cursor":%d,"batch_size":%d}`,
			i+1, i*size, min((i+1)*size, total), size)
	}
	return outcome{success: true, result: fmt.Appendf(b, `],"total_items":%d}}`, total)}, 0
}

// numbersOf returns an object of the named members that are numbers.
func numbersOf(object []byte, names ...string) []byte {
	var o templateObject
	for _, name := range names {
		if value := objectMember(object, name); value != nil && jsonKind(value) == '0' {
			o = append(o, templateMember{name, value})
		}
	}
	return o.json()
}

// runTally counts the items in the batch of a batch_worker instance.
func runTally(a *attempt) (outcome, time.Duration) {
	c := memberReader{data: a.config}
	cursor := memberReader{data: c.member("cursor", "{", "an object")}
	if c.problem != "" {
		return c.invalidConfig(), 0
	}
	const most = 1_000_000_000_000_000
	from, to := int64(0), int64(0)
	if cursor.data != nil {
		from, to = cursor.integer("start_cursor", 0, most), cursor.integer("end_cursor", 0, most)
	}
	if cursor.problem != "" {
		return typedFailure(invalidConfigType, "cursor.%s", cursor.problem), 0
	}
	return outcome{success: true, result: fmt.Appendf(nil, `{"value":%d}`, max(to-from, 0))}, 0
}
