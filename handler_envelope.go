package main

// The envelope: an attempt as the JSON object that HTTP handlers, programs and outside actors
// get.

import (
	"slices"
	"strconv"
	"time"
)

// envelope appends the attempt as the JSON object that handlers get.
func (a *attempt) envelope(dst []byte) []byte {
	dst = slices.Grow(dst, a.envelopeSize())
	dst = a.appendTask(append(dst, `{"task":`...))
	dst = a.appendStep(append(dst, `,"step":`...))
	dst = append(dst, `,"dependency_results":{`...)
	for i, r := range a.results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendOrNull(append(appendJSONString(dst, r.step), ':'), r.result)
	}
	return append(dst, "}}"...)
}

// envelopeSize returns about how many bytes the envelope takes.
func (a *attempt) envelopeSize() int {
	n := 512 + len(a.traceparent) + len(a.tracestate) + len(a.context) + len(a.config) + len(a.inputs) + len(a.batch) + len(a.handler)
	if a.checkpoint != nil {
		n += len(a.checkpoint.data)
	}
	for _, r := range a.results {
		n += len(r.step) + len(r.result) + 8
	}
	return n
}

func (a *attempt) appendTask(dst []byte) []byte {
	dst = a.taskID.appendText(append(dst, `{"task_uuid":"`...))
	dst = appendJSONString(append(dst, `","namespace":`...), a.namespace)
	dst = appendJSONString(append(dst, `,"name":`...), a.name)
	dst = appendJSONString(append(dst, `,"version":`...), a.version)
	dst = appendJSONString(append(dst, `,"correlation_id":`...), a.correlationID)
	if a.traceparent != "" {
		dst = appendJSONString(append(dst, `,"traceparent":`...), a.traceparent)
	}
	if a.tracestate != "" {
		dst = appendJSONString(append(dst, `,"tracestate":`...), a.tracestate)
	}
	return append(append(append(dst, `,"context":`...), orEmptyObject(a.context)...), '}')
}

func (a *attempt) appendStep(dst []byte) []byte {
	dst = a.stepID.appendText(append(dst, `{"step_uuid":"`...))
	dst = appendJSONString(append(dst, `","name":`...), a.stepName)
	dst = strconv.AppendInt(append(dst, `,"attempt":`...), int64(a.number), 10)
	dst = strconv.AppendInt(append(dst, `,"max_attempts":`...), int64(a.maxAttempts), 10)
	dst = strconv.AppendInt(append(dst, `,"timeout_seconds":`...), int64(a.timeout/time.Second), 10)
	dst = append(append(dst, `,"config":`...), orEmptyObject(a.config)...)
	dst = append(append(dst, `,"inputs":`...), a.allInputs()...)
	if a.checkpoint != nil {
		dst = a.checkpoint.appendJSON(append(dst, `,"checkpoint":`...))
	}
	return append(append(append(dst, `,"handler":`...), orEmptyObject(a.handler)...), '}')
}

// deliveryKey names what a handler is given: the same when a delivery is repeated, another one
// after each checkpoint.
func (a *attempt) deliveryKey() string {
	key := strconv.AppendInt(append(a.stepID.appendText(make([]byte, 0, 64)), ':'), int64(a.number), 10)
	if a.checkpoint != nil {
		key = strconv.AppendInt(append(key, ':'), int64(a.checkpoint.number), 10)
	}
	return string(key)
}

// allInputs returns the inputs, with those of a batch worker.
func (a *attempt) allInputs() []byte {
	if a.batch == nil {
		return orEmptyObject(a.inputs)
	}
	return mergeObjects(nil, a.inputs, a.batch)
}
