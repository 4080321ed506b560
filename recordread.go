package main

// Reading records back from the journal, strictly: what cannot be understood is
// an error, never a loss.

import (
	"encoding/hex"
	"fmt"
	"time"
)

// decodeRecord reads a record from its JSON object, whose slices it keeps.
// Members that it does not know are an error: they would be lost.
func decodeRecord(line []byte) (*record, error) {
	d := recordDecoder{r: &record{kind: recordKinds, step: -1}}
	if !eachMemberBytes(line, d.member) {
		return nil, fmt.Errorf("a record must be a JSON object")
	}
	if d.err != nil {
		return nil, d.err
	}
	if d.r.kind == recordKinds {
		return nil, fmt.Errorf("record without a kind")
	}
	d.r.created, d.r.end = d.created, d.end
	if d.r.kind == recRan {
		d.r.startedAt = d.r.at - d.began
	}
	return d.r, d.complete()
}

// recordDecoder collects the members of one record.
type recordDecoder struct {
	r       *record
	created *creation
	end     *ending
	began   instant // how long before the record the attempt started
	err     error
}

// complete checks that the parts which the kind needs are there.
func (d *recordDecoder) complete() error {
	r := d.r
	switch {
	case r.kind == recTemplate:
		if r.hash == "" || r.definition == nil {
			return fmt.Errorf("template record without hash or definition")
		}
	case r.kind == recCreated:
		if r.created == nil || r.created.template == "" {
			return fmt.Errorf("created record without its template")
		}
		fillCreation(r.created)
	case r.kind == recCancelled, r.kind == recDropped:
	case r.kind == recStale:
		if r.stale == nil {
			return fmt.Errorf("stale record without its limit")
		}
	case r.kind == recDLQUpdate:
		if r.investigation == nil {
			return fmt.Errorf("investigated record without its entry")
		}
	case r.step < 0:
		return fmt.Errorf("%s record without a step", r.kind)
	case r.kind == recClaimed && (r.lease == nil || r.lease.hash == leaseHash{} || r.lease.until == 0),
		r.kind == recExtended && (r.lease == nil || r.lease.until == 0):
		return fmt.Errorf("%s record without its lease", r.kind)
	case r.kind == recAdjusted:
		return r.adjustment.problem()
	case r.action == actionFail && (r.end == nil || r.end.success):
		return fmt.Errorf("a failure by an operator without its error")
	case r.end == nil && r.hasOutcome():
		r.end = &ending{success: true}
	}
	return nil
}

func fillCreation(c *creation) {
	if c.initiator == "" {
		c.initiator = defaultInitiator
	}
	if c.source == "" {
		c.source = defaultSource
	}
	if c.reason == "" {
		c.reason = defaultReason
	}
	if c.context == nil {
		c.context = []byte("{}")
	}
}

func (d *recordDecoder) member(key, value []byte) bool {
	switch string(key) {
	case "seq":
		d.r.seq = uint64(d.number(value))
	case "at":
		d.r.at = instant(d.number(value))
	case "kind":
		d.r.kind = recordKind(d.word(value, recordKindNames[:]))
	case "task":
		d.r.task = d.id(value)
	case "step":
		d.r.step = int(d.number(value))
	case "began":
		d.began = instant(d.number(value))
	case "action":
		d.r.action = stepAction(d.word(value, stepActionNames[:]))
	case "by":
		d.r.by = d.text(value)
	case "subject":
		d.r.subject = d.text(value)
	case "ids":
		d.r.ids = d.id(value)
	case "hash":
		d.r.hash = d.text(value)
	case "definition":
		d.r.definition = value
	case "stale":
		d.r.stale = d.staleMark(value)
	case "dlq":
		d.r.investigation = d.investigation(value)
	case "lease", "until":
		d.leaseMember(string(key), value)
	case "worker": // a claim's, or an outcome's
		if d.r.kind == recClaimed {
			d.lease().worker = d.text(value)
		} else {
			d.endingMember(string(key), value)
		}
	case "max_attempts", "inputs":
		d.adjustmentMember(string(key), value)
	case "sum":
	case "reason": // an operator's, or a created task's
		d.r.reason = d.text(value)
		if d.r.kind == recCreated {
			d.creation().reason = d.r.reason
		}
	case "ok", "ms", "attempt", "retry_at", "result", "error", "metadata":
		d.endingMember(string(key), value)
	default:
		d.creationMember(string(key), value)
	}
	if d.err != nil {
		d.err = fmt.Errorf("member %q: %w", key, d.err)
	}
	return d.err == nil
}

func (d *recordDecoder) creation() *creation {
	if d.created == nil {
		d.created = new(creation)
	}
	return d.created
}

func (d *recordDecoder) creationMember(key string, value []byte) {
	c := d.creation()
	switch key {
	case "template":
		c.template = d.text(value)
	case "identity":
		raw, err := hex.DecodeString(d.text(value))
		if err != nil || copy(c.identity[:], raw) != len(c.identity) {
			d.err = fmt.Errorf("not an identity of 32 hex digits")
		}
	case "context":
		c.context = value
	case "initiator":
		c.initiator = d.text(value)
	case "source":
		c.source = d.text(value)
	case "tags":
		eachElement(value, func(e []byte) bool {
			c.tags = append(c.tags, d.text(e))
			return true
		})
	case "priority":
		c.priority = int(d.number(value))
	case "correlation":
		c.correlation = d.id(value)
	case "parent_correlation":
		c.parentCorrelation = d.id(value)
	case "requested":
		c.requested = instant(d.number(value))
	case "options":
		c.options = value
	case "key":
		c.key = d.text(value)
	case "traceparent":
		c.traceparent = d.text(value)
	case "request":
		var ok bool
		if c.request, ok = parseRequestMark(d.text(value)); !ok {
			d.err = fmt.Errorf("not the mark of a request, 64 hex digits")
		}
	default:
		d.err = fmt.Errorf("unknown member, from a newer version")
	}
}

func (d *recordDecoder) endingMember(key string, value []byte) {
	if d.end == nil {
		d.end = &ending{success: true}
	}
	switch key {
	case "ok":
		d.end.success = string(value) == "true"
	case "ms":
		d.end.took = time.Duration(d.number(value)) * time.Millisecond
	case "attempt":
		d.end.attempt = int(d.number(value))
	case "retry_at":
		d.end.retryAt = instant(d.number(value))
	case "result":
		d.end.result = value
	case "error":
		d.end.err = value
	case "metadata":
		d.end.metadata = value
	case "worker":
		d.end.worker = d.text(value)
	}
}

func (d *recordDecoder) number(value []byte) int64 {
	n, ok := jsonInt(value)
	if !ok {
		d.err = fmt.Errorf("%.40s is no integer", value)
	}
	return n
}

func (d *recordDecoder) text(value []byte) string {
	s, ok := jsonString(value)
	if !ok {
		d.err = fmt.Errorf("%.40s is no string", value)
	}
	return s
}

func (d *recordDecoder) id(value []byte) uuid {
	id, ok := parseUUID(d.text(value))
	if !ok && d.err == nil {
		d.err = fmt.Errorf("%.40s is no UUID", value)
	}
	return id
}

func (d *recordDecoder) word(value []byte, words []string) int {
	s := d.text(value)
	for i, w := range words {
		if w == s {
			return i
		}
	}
	if d.err == nil {
		d.err = fmt.Errorf("unknown word %q, from a newer version or damaged", s)
	}
	return 0
}
