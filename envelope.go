package main

// The envelope: what an HTTP or exec handler and an outside actor get to see of
// an attempt.

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
		dst = append(appendJSONString(dst, r.step), ':')
		if r.result == nil {
			dst = append(dst, "null"...)
		}
		dst = append(dst, r.result...)
	}
	return append(dst, "}}"...)
}

// envelopeSize is about how many bytes the envelope takes.
func (a *attempt) envelopeSize() int {
	n := 512 + len(a.context) + len(a.config) + len(a.inputs)
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
	return append(appendObject(append(dst, `,"context":`...), a.context), '}')
}

func (a *attempt) appendStep(dst []byte) []byte {
	dst = a.stepID.appendText(append(dst, `{"step_uuid":"`...))
	dst = appendJSONString(append(dst, `","name":`...), a.stepName)
	dst = strconv.AppendInt(append(dst, `,"attempt":`...), int64(a.number), 10)
	dst = strconv.AppendInt(append(dst, `,"max_attempts":`...), int64(a.maxAttempts), 10)
	dst = strconv.AppendInt(append(dst, `,"timeout_seconds":`...), int64(a.timeout/time.Second), 10)
	dst = appendObject(append(dst, `,"config":`...), a.config)
	return append(appendObject(append(dst, `,"inputs":`...), a.inputs), '}')
}
