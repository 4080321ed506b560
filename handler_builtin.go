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
	needsInputs bool   // it reads more of the attempt than number and config
	// do returns the outcome, which counts once the delay has passed, in the service's time, unless the configuration has
	// a problem. It is called without locks and keeps nothing.
	do func(a *attempt, config *memberReader) (o outcome, delay time.Duration)
}

// builtins holds every builtin in the order of docs/reference/handlers.md, which says what each does.
var builtins = []builtin{
	{name: "noop", do: doNoop},
	{name: "echo", do: doEcho, needsInputs: true},
	{name: "sleep", do: doSleep},
	{name: "fail", do: doFail},
	{name: "flaky", do: doFlaky},
	{name: "sum", do: doSum, needsInputs: true},
	{name: "decide", do: doDecide, needsInputs: true},
	{name: "batch", do: doBatch, needsInputs: true},
	{name: "tally", do: doTally},
}

// run makes an attempt. The outcome counts once the delay has passed.
func (b *builtin) run(a *attempt) (outcome, time.Duration) {
	config := memberReader{data: a.config}
	o, delay := b.do(a, &config)
	if config.problem != "" {
		return typedFailure(invalidConfigType, "initialization.%s", config.problem), 0
	}
	return o, delay
}

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

func doNoop(*attempt, *memberReader) (outcome, time.Duration) { return outcome{success: true}, 0 }

func doEcho(a *attempt, _ *memberReader) (outcome, time.Duration) {
	return outcome{success: true, result: compactResult(a.allInputs())}, 0
}

// maxSleepMS is the longest sleep, some thirty years.
const maxSleepMS = 1_000_000_000_000

func doSleep(_ *attempt, c *memberReader) (outcome, time.Duration) {
	return outcome{success: true}, time.Duration(c.integer("duration_ms", 0, maxSleepMS)) * time.Millisecond
}

func doFail(_ *attempt, c *memberReader) (outcome, time.Duration) {
	message := c.text("message", "the step fails on purpose")
	errorType := c.text("error_type", "builtin_fail")
	return failedOutcome(errorType, message, c.flag("retryable", false)), 0
}

func doFlaky(a *attempt, c *memberReader) (outcome, time.Duration) {
	if failures := c.integer("failures", 1, 1_000_000); int64(a.number) <= failures {
		return typedFailure("builtin_flaky", "attempt %d of %d that fail on purpose", a.number, failures), 0
	}
	return outcome{success: true, result: fmt.Appendf(nil, `{"attempts":%d}`, a.number)}, 0
}

func doSum(a *attempt, c *memberReader) (outcome, time.Duration) {
	sum := c.number("add")
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

// summand returns a result that is a number, or the number in its member value. It returns nil if there is none.
func summand(result []byte) []byte {
	if jsonKind(result) == '{' {
		result = objectMember(result, "value")
	}
	if jsonKind(result) != '0' {
		return nil
	}
	return result
}

// The builtins for dynamic steps: one decides, one splits into batches, and one works on a batch.

// doDecide looks the value of an input member up among the branches.
func doDecide(a *attempt, c *memberReader) (outcome, time.Duration) {
	field := c.text("field", "")
	branches := c.member("branches", "{", "an object of lists of step names")
	chosen := c.member("default", "[", "a list of step names")
	if c.problem == "" && field == "" {
		c.problem = "field is missing; want the name of a member of the inputs"
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

// doBatch splits total_items into batches of batch_size.
func doBatch(a *attempt, c *memberReader) (outcome, time.Duration) {
	const most = 1_000_000_000_000_000
	c.data = mergeObjects(nil, a.config, numbersOf(a.inputs, "total_items", "batch_size"))
	total, size := c.integer("total_items", 0, most), c.integer("batch_size", 100, most)
	worker := c.text("worker_template_name", "")
	if c.problem == "" && size == 0 {
		c.problem = "batch_size is 0; want at least 1"
	}
	if c.problem != "" || total == 0 {
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

// doTally counts the items in the batch of a batch_worker instance.
func doTally(_ *attempt, c *memberReader) (outcome, time.Duration) {
	const most = 1_000_000_000_000_000
	cursor := memberReader{data: c.member("cursor", "{", "an object"), path: "cursor."}
	from, to := int64(0), int64(0)
	if cursor.data != nil {
		from, to = cursor.integer("start_cursor", 0, most), cursor.integer("end_cursor", 0, most)
	}
	if cursor.problem != "" {
		return typedFailure(invalidConfigType, "%s", cursor.problem), 0
	}
	return outcome{success: true, result: fmt.Appendf(nil, `{"value":%d}`, max(to-from, 0))}, 0
}
