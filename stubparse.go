package main

// Reading stubs from requests. Whatever is not known or does not go together is
// refused, with its path: a misspelled test must not pass silently.

import (
	"fmt"
	"slices"
	"time"
)

// maxStubOutcomes is how many outcomes a stub may have.
const maxStubOutcomes = 1000

// parseStub reads one stub.
func parseStub(body []byte) (*stub, error) {
	if jsonKind(body) != '{' {
		return nil, failf(badRequest, "the body must be a JSON object")
	}
	f := &fieldReader{}
	s := f.stub("", body)
	return s, f.failure("the stub is refused")
}

// parseStubs reads {"stubs": [...]}.
func parseStubs(body []byte) (all []*stub, err error) {
	if jsonKind(body) != '{' {
		return nil, failf(badRequest, "the body must be a JSON object")
	}
	f, given := &fieldReader{}, false
	eachMember(body, func(key string, raw []byte) bool {
		if given = key == "stubs"; !given {
			f.complain(key, "is not known; stubs is")
		} else if !eachElement(raw, func(e []byte) bool {
			all = append(all, f.stub(fmt.Sprintf("stubs[%d].", len(all)), e))
			return len(all) <= maxStubs
		}) {
			f.complain(key, "must be an array of stubs")
		}
		return true
	})
	if !given && len(f.problems) == 0 {
		f.complain("stubs", "is required")
	}
	return all, f.failure("the stubs stay as they are")
}

// stub reads a stub; before stands before the paths of its members.
func (f *fieldReader) stub(before string, raw []byte) *stub {
	s := &stub{then: thenLast}
	if jsonKind(raw) != '{' {
		f.complain(before+"match", "is required, in an object")
		return s
	}
	eachMember(raw, func(key string, value []byte) bool {
		switch path := before + key; key {
		case "match":
			s.match, s.matchText = f.matcher(path, value, stubMembers), compactJSON(nil, value)
		case "outcomes":
			s.outcomes, s.outcomesText = f.stubOutcomes(path, value), compactJSON(nil, value)
		case "then":
			s.then = stubThen(f.word(path, value, string(thenLast), string(thenHandler), string(thenFail)))
		default:
			f.complain(path, "is none of match, outcomes, then")
		}
		return true
	})
	if s.matchText == nil {
		f.complain(before+"match", "is required; {} matches everything")
	}
	if s.outcomesText == nil {
		f.complain(before+"outcomes", "is required")
	}
	return s
}

// word reads one of some words.
func (f *fieldReader) word(path string, raw []byte, words ...string) string {
	s, _ := jsonString(raw)
	if !slices.Contains(words, s) {
		f.complain(path, "must be one of %q", words)
	}
	return s
}

func (f *fieldReader) stubOutcomes(path string, raw []byte) (all []stubOutcome) {
	isArray := eachElement(raw, func(e []byte) bool {
		all = append(all, f.stubOutcome(fmt.Sprintf("%s[%d]", path, len(all)), e))
		return len(all) <= maxStubOutcomes
	})
	if n := len(all); !isArray || n == 0 || n > maxStubOutcomes {
		f.complain(path, "must be an array of 1 to %d outcomes", maxStubOutcomes)
	}
	return all
}

func (f *fieldReader) stubOutcome(path string, raw []byte) (s stubOutcome) {
	const known = "result, error, delay, hang, fault"
	if jsonKind(raw) != '{' {
		f.complain(path, "must be an object with any of %s", known)
		return s
	}
	given := map[string]bool{}
	eachMember(raw, func(key string, value []byte) bool {
		given[key] = true
		f.stubOutcomeMember(&s, path+"."+key, key, value, known)
		return true
	})
	f.stubOutcomeRules(&s, path, given)
	if s.outcome == nil && s.fault == noFault {
		s.outcome = &outcome{success: true}
	}
	return s
}

func (f *fieldReader) stubOutcomeMember(s *stubOutcome, path, key string, raw []byte, known string) {
	switch key {
	case "result":
		s.outcome = &outcome{success: true, result: compactResult(raw)}
	case "error":
		s.outcome = f.stubError(path, raw)
	case "delay":
		s.delay = f.boundedDuration(path, raw, maxSleepMS*time.Millisecond)
	case "hang":
		if s.hang = jsonKind(raw) == 't'; !s.hang {
			f.complain(path, "must be true")
		}
	case "fault":
		s.fault = stubFault(f.word(path, raw, string(workerLost), string(resultLost),
			string(duplicateDelivery), string(lateCompletion)))
	default:
		f.complain(path, "is none of %s", known)
	}
}

// stubOutcomeRules are about what does not go together.
func (f *fieldReader) stubOutcomeRules(s *stubOutcome, path string, given map[string]bool) {
	switch {
	case len(given) == 0:
		f.complain(path, "must have a result, an error, a delay, hang or a fault")
	case given["result"] && given["error"]:
		f.complain(path+".error", "does not go with a result")
	case given["hang"] && len(given) > 1:
		f.complain(path+".hang", "goes with nothing else")
	case s.fault == workerLost && s.outcome != nil:
		f.complain(path+".fault", "worker_lost comes before a result or an error")
	case s.fault == duplicateDelivery && given["delay"]:
		f.complain(path+".delay", "does not go with duplicate_delivery")
	}
}

// boundedDuration reads a duration from 0 to most.
func (f *fieldReader) boundedDuration(path string, raw []byte, most time.Duration) time.Duration {
	d := f.duration(path, raw, 0)
	if d > most {
		f.complain(path, "must be %s at most", most)
	}
	return d
}

// stubError reads {"message", "error_type"?, "retryable"?, "retry_after"?}.
func (f *fieldReader) stubError(path string, raw []byte) *outcome {
	o := typedFailure(handlerErrorType, "")
	const known = "message, error_type, retryable, retry_after"
	if jsonKind(raw) != '{' {
		f.complain(path, "must be an object with any of %s", known)
		return &o
	}
	eachMember(raw, func(key string, value []byte) bool {
		at := path + "." + key
		switch key {
		case "message":
			o.err.message = cleanText([]byte(f.text(at, value, 1, maxMessageLength)))
		case "error_type":
			o.err.errorType = f.text(at, value, 1, maxNameLength)
		case "retryable":
			if o.err.retryable = jsonKind(value) == 't'; !o.err.retryable && jsonKind(value) != 'f' {
				f.complain(at, "must be true or false")
			}
		case "retry_after":
			o.retryAfter = clampRetryAfter(f.boundedDuration(at, value, maxRetryAfter))
		default:
			f.complain(at, "is none of %s", known)
		}
		return true
	})
	if o.err.message == "" && !f.complainedOf(path+".message") {
		f.complain(path+".message", "is required")
	}
	return &o
}
