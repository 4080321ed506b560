package main

// The builtins for dynamic steps: one that decides, one that splits into
// batches, and one that works on a batch.

import (
	"fmt"
	"time"
)

// runDecide looks up the value of an input member among the branches.
func runDecide(a *attempt) (outcome, time.Duration) {
	c := initialization{data: a.config}
	field := c.text("field", "")
	branches := c.member("branches", "{", "an object of lists of step names")
	chosen := c.member("default", "[", "a list of step names")
	if c.problem == "" && field == "" {
		c.problem = "field is missing; want the name of a member of the inputs"
	}
	if c.problem != "" {
		return c.failure(), 0
	}
	if list := objectMember(branches, valueText(objectMember(a.inputs, field))); branches != nil && list != nil {
		chosen = list
	}
	if chosen == nil {
		return outcome{success: true, result: []byte(`{"decision_point_outcome":{"type":"no_branches"}}`)}, 0
	}
	return outcome{success: true, result: compactResult(fmt.Appendf(nil,
		`{"decision_point_outcome":{"type":"create_steps","step_names":%s}}`, chosen))}, 0
}

// valueText is a string without its quotes, another value as it is written.
func valueText(value []byte) string {
	if s, ok := jsonString(value); ok {
		return s
	}
	return string(value)
}

// runBatch splits total_items into batches of batch_size.
func runBatch(a *attempt) (outcome, time.Duration) {
	const most = 1_000_000_000_000_000
	c := initialization{data: mergeObjects(nil, a.config, numbersOf(a.inputs, "total_items", "batch_size"))}
	total, size := c.integer("total_items", 0, most), c.integer("batch_size", 100, most)
	worker := c.text("worker_template_name", "")
	if c.problem == "" && size == 0 {
		c.problem = "batch_size is 0; want at least 1"
	}
	if c.problem != "" {
		return c.failure(), 0
	}
	if total == 0 {
		return outcome{success: true, result: []byte(`{"batch_processing_outcome":{"type":"no_batches"}}`)}, 0
	}
	n := (total + size - 1) / size
	if n > maxInstances {
		return typedFailure(invalidConfigType, "%d items make %d batches of %d, more than %d", total, n, size, maxInstances), 0
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

// numbersOf is an object of those of the named members that are numbers.
func numbersOf(object []byte, names ...string) []byte {
	var o templateObject
	for _, name := range names {
		if value := objectMember(object, name); value != nil && jsonKind(value) == '0' {
			o = append(o, templateMember{name, value})
		}
	}
	return o.json()
}

// runTally counts the items of the batch that an instance of a batch_worker
// step is for.
func runTally(a *attempt) (outcome, time.Duration) {
	c := initialization{data: a.config}
	cursor := initialization{data: c.member("cursor", "{", "an object")}
	if c.problem != "" {
		return c.failure(), 0
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
