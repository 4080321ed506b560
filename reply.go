package main

// What a handler replied, read into an outcome.

import (
	"bytes"
	"fmt"
)

// parseReply is the outcome that a reply of at most limit bytes stands for. An
// object with a boolean member success is a full outcome, any other JSON is the
// result, and nothing at all the result null.
func parseReply(data []byte, limit int64) outcome {
	if int64(len(data)) > limit {
		return resultTooLarge(limit)
	}
	if len(bytes.Trim(data, " \t\r\n")) == 0 {
		return outcome{success: true}
	}
	if err := checkJSON(data); err != nil {
		return typedFailure(invalidResultType, "the reply: %v", err)
	}
	if success, ok := replySuccess(data); ok {
		return fullOutcome(data, success)
	}
	return outcome{success: true, result: compactResult(data)}
}

// replySuccess is the boolean member success of a reply; ok is false when it
// has none.
func replySuccess(data []byte) (success, ok bool) {
	eachMember(data, func(key string, value []byte) bool {
		if key != "success" {
			return true
		}
		switch jsonKind(value) {
		case 't':
			success, ok = true, true
		case 'f':
			success, ok = false, true
		}
		return false
	})
	return success, ok
}

// fullOutcome reads a reply that is a full outcome. A member that is null counts
// as absent, one with another name is left to later versions.
func fullOutcome(data []byte, success bool) outcome {
	r := replyReader{outcome: outcome{success: success}}
	r.err = stepError{
		message:   "the handler reported a failure and gave no message",
		errorType: handlerErrorType,
		retryable: true,
	}
	eachMember(data, func(key string, value []byte) bool {
		r.member(key, value)
		return r.problem == ""
	})
	if r.problem != "" {
		return typedFailure(invalidResultType, "the reply's %s", r.problem)
	}
	if !success {
		r.outcome.err = &r.err
	}
	return r.outcome
}

// replyReader gathers the members of a full outcome.
type replyReader struct {
	outcome outcome
	err     stepError
	problem string // the first member that will not do; "" while there is none
}

func (r *replyReader) member(key string, value []byte) {
	switch {
	case jsonKind(value) == 'n':
	case key == "result":
		r.outcome.result = compactResult(value)
	case key == "metadata":
		r.outcome.metadata = r.object(key, value)
	case key == "error":
		if r.object(key, value) == nil {
			return
		}
		eachMember(value, func(key string, value []byte) bool {
			r.errorMember(key, value)
			return r.problem == ""
		})
	}
}

func (r *replyReader) errorMember(key string, value []byte) {
	if jsonKind(value) == 'n' {
		return
	}
	path := "error." + key
	switch key {
	case "message":
		r.text(path, value, &r.err.message)
	case "error_type":
		r.text(path, value, &r.err.errorType)
	case "retryable":
		if r.err.retryable = jsonKind(value) == 't'; !r.err.retryable && jsonKind(value) != 'f' {
			r.wrong(path, value, "true or false")
		}
	case "status_code":
		n, ok := jsonInt(value)
		if r.err.statusCode = int(n); !ok || n < 0 || n > 65535 { // clients read 16 bits
			r.wrong(path, value, "an integer from 0 to 65535")
		}
	case "context":
		r.err.context = hideCredentials(r.object(path, value))
	}
}

// text sets dst unless the string is empty.
func (r *replyReader) text(path string, value []byte, dst *string) {
	switch s, ok := jsonString(value); {
	case !ok:
		r.wrong(path, value, "a string")
	case s != "":
		*dst = cleanText([]byte(s))
	}
}

// object is the object value, compact; nil when it is something else.
func (r *replyReader) object(path string, value []byte) []byte {
	if jsonKind(value) != '{' {
		r.wrong(path, value, "an object")
		return nil
	}
	return compactJSON(nil, value)
}

func (r *replyReader) wrong(path string, value []byte, want string) {
	r.problem = wrongKind(path, value, want)
}

// wrongKind says that a member is not what it should be. It shows the value
// only where that is a number.
func wrongKind(path string, value []byte, want string) string {
	got := templateValueKind(value)
	if jsonKind(value) == '0' && len(value) <= 32 {
		got = string(value)
	}
	return fmt.Sprintf("%s is %s; want %s", path, got, want)
}

// compactResult is a result as outcomes hold it: nil for null.
func compactResult(value []byte) []byte {
	compact := compactJSON(make([]byte, 0, len(value)), value)
	if string(compact) == "null" {
		return nil
	}
	return compact
}
