package main

// Bulk actions: reading the request, and streaming the progress as JSON lines.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// actOnMany does one action on all that a filter selects. Once the stream has begun, its last line says
// what became of the action.
func (a *orchestrationAPI) actOnMany(w *responseWriter, r *http.Request) (any, error) {
	q, err := readAs(r, parseBulkRequest)
	if err != nil {
		return nil, err
	}
	// The route admits callers with any of three permissions: which ones are needed depends on the action and its filter.
	if err := a.surface.require(r, append(needs(q.needs), q.lists...)...); err != nil {
		return nil, err
	}
	if values := q.filter.tasks.values; len(values) > 0 {
		if !mayReadContexts(r.Context()) {
			return nil, a.surface.auth.deny(permTasksContextRead)
		}
		if err := a.surface.svc.searchable(values); err != nil {
			return nil, err
		}
	}
	q.one.who = taskActor{subject: subjectOf(r.Context()), reason: q.one.reason, request: w.requestID}
	q.one.by = cmp.Or(q.one.by, q.one.who.subject, "api")
	q.one.who.by, q.close.by, q.close.subject, q.close.request = q.one.by, &q.one.by, q.one.who.subject, w.requestID
	run, err := a.surface.svc.beginBulk(q)
	if err != nil {
		return nil, err
	}
	runs := &a.surface.svc.quotas.actions
	if !runs.take(1) {
		return nil, runs.refuse("%d actions on many run already: wait until one of them has ended", runs.most)
	}
	defer runs.give(1)
	run.valid = func() time.Duration { return a.surface.validFor(r) }
	// The service knows no HTTP, so it gets the codes and the stream as functions.
	run.code = func(k failureKind) string { return failureForms[k].code }
	setBodyHeaders(w.Header(), "text/plain; charset=utf-8") // which generated clients can read; JSON lines have no registered type
	w.Header()["X-Accel-Buffering"] = []string{"no"}        // for proxies
	run.tell = func(line any) error {
		text, err := json.Marshal(line)
		if err != nil {
			return err
		}
		return w.sendNow(append(text, '\n'))
	}
	if err := run.run(r.Context()); err != nil {
		// The status was sent long ago: all that is left is to end the connection, so that the client sees an
		// incomplete stream.
		w.gone = true
		w.cutOff(err)
	}
	return written{}, nil
}

// bulkParser reads the body of a bulk action.
type bulkParser struct {
	stepRequestParser
	q bulkRequest
}

const (
	maxBulkIDs    = 1000 // tasks or deliveries that a filter may name
	maxBulkFilter = 100  // members of a filter
)

// bulkMembers are those of the body. Another one is refused: with a misspelled dry_run, everything would be acted on.
var bulkMembers = strings.Fields("action filter reason by dry_run as_of first max_attempts clear_checkpoint completion_data resolution_status")

// parseBulkRequest reads the body of a bulk action. The error names every invalid field.
func parseBulkRequest(body []byte) (*bulkRequest, error) {
	p := bulkParser{stepRequestParser: stepRequestParser{body: body}}
	names := make([]string, len(bulkActions))
	for i := range bulkActions {
		names[i] = bulkActions[i].name
	}
	word := p.required("action", maxNameLength)
	i := slices.Index(names, word)
	if i < 0 {
		if word != "" {
			p.complain("action", "must be %s, not %.60q", anyOf(names), word)
		}
		return nil, p.failure("the bulk action is refused")
	}
	p.q.bulkAction = &bulkActions[i]
	p.q.one.action = p.q.action
	p.q.one.reason = p.required("reason", maxReasonLength)
	for name, raw := range jsonMembers(body) {
		if jsonKind(raw) != 'n' && !slices.Contains(bulkMembers, name) {
			p.complain(clipText(name, 60), "is unknown; want %s", anyOf(bulkMembers))
		}
	}
	p.options()
	p.filter()
	return &p.q, p.failure("the bulk action is refused")
}

// options reads everything but the action, the reason and the filter.
func (p *bulkParser) options() {
	q := &p.q
	q.one.by, q.dryRun = p.optionalText("by", maxNameLength), p.optionalFlag("dry_run")
	if raw := p.member("as_of"); raw != nil {
		if q.asOf = string(raw); jsonKind(raw) == '"' {
			q.asOf = p.text("as_of", raw, 1, maxNameLength)
		}
	}
	q.first = p.optionalCount("first", 0, 1, 1_000_000)
	if p.member("completion_data") != nil || q.action == actionComplete {
		p.completion(&q.one)
	}
	forget, limit := p.optionalFlag("clear_checkpoint"), p.optionalCount("max_attempts", 0, 1, maxRetryLimit)
	if q.action == actionReset {
		q.one.clear, q.one.limit = forget, limit
	}
	q.close = investigation{status: dlqManuallyResolved, notes: &q.one.reason}
	if raw := p.member("resolution_status"); raw != nil {
		var ok bool
		q.close.status, ok = parseDLQStatus(p.text("resolution_status", raw, 1, maxNameLength))
		if !ok || q.close.status == dlqPending {
			p.complain("resolution_status", "must be %s", anyOf(dlqStatusNames[1:]))
		}
	}
}

// isBulkList reports whether a member of the filter of an action is an array.
func isBulkList(action, name string) bool {
	return name == "status" && action != bulkResend || slices.Contains([]string{"tag", "step_status", "task_uuid", "delivery"}, name)
}

// filter reads the filter: an object with the names of the lists' query parameters.
func (p *bulkParser) filter() {
	values := url.Values{}
	for name, raw := range jsonMembers(p.member("filter")) {
		if len(values) > maxBulkFilter {
			p.complain("filter", "has more than %d members", maxBulkFilter)
			break
		}
		if len(name) > maxNameLength {
			p.complain("filter", "has an unknown member, %.60q…", name)
			break
		}
		read := func(at string, raw []byte) {
			text, _ := jsonString(raw)
			if kind := jsonKind(raw); (name == "over" || name == "dead_letter") && (kind == 't' || kind == 'f') {
				text = string(raw)
			}
			if strings.TrimSpace(strings.ReplaceAll(text, ",", "")) == "" { // which a list takes for no filter
				p.complain(at, "must be a string that is not blank")
			}
			values.Add(name, text)
		}
		if !isBulkList(p.q.name, name) {
			read("filter."+name, raw)
			continue
		}
		for element := range jsonElements(raw) {
			read(fmt.Sprintf("filter.%s[%d]", name, len(values[name])), element)
			if len(values[name]) > maxBulkIDs { // more are refused anyway
				break
			}
		}
		if len(values[name]) == 0 {
			p.complain("filter."+name, "must be an array of one string or more")
		}
	}
	if p.q.action == actionComplete && values["step"] == nil {
		p.complain("filter.step", "is required: the result is for one step")
	}
	if len(values) == 0 {
		p.complain("filter", "must be an object with one member or more, so that nothing is done to everything by mistake")
		return
	}
	q, f := &query{values: values}, &p.q.filter
	f.ids = bulkIDs(q, "task_uuid", "tasks", "a UUID", parseUUID)
	switch p.q.name {
	case bulkClose:
		f.letters = q.letterFilter()
		f.letters.status = cmp.Or(queryWord(q, "resolution_status", parseDLQStatus, dlqStatusNames[:]), new(dlqPending))
	case bulkResend:
		f.deliveries = q.deliveryFilter()
		f.deliveries.status = cmp.Or(f.deliveries.status, deliveryDead)
		f.chosen = bulkIDs(q, "delivery", "deliveries", "the id of a delivery", func(id string) (string, bool) {
			_, _, _, ok := parseDeliveryID(id)
			return id, ok
		})
	default:
		f.tasks = q.taskFilter()
		f.tasks.states = q.states(filteredState, strings.Join(stateWords, ", "))
		f.stuck = queryWord(q, "dead_letter", parseFlag, []string{"true", "false"})
		p.steps(q)
	}
	for name := range values {
		if !slices.Contains(q.known, name) {
			p.complain("filter."+name, "is unknown; want %s", anyOf(q.known))
		}
	}
	p.q.lists = p.q.filterNeeds(slices.Sorted(maps.Keys(values)))
	if q.err != nil {
		p.complain("filter", "is wrong: %s", q.err)
	}
}

// filterNeeds returns the permissions that a filter with these members needs: those of the lists that it replaces, as its
// dry runs tell what is in them. Ids that the caller names need none, nor does the name of a step of these tasks.
func (a *bulkAction) filterNeeds(members []string) (needs []permission) {
	named := slices.Contains(members, "task_uuid")
	for _, name := range members {
		ofStep := a.action != noAction && (name == "step" || name == "step_status")
		switch {
		case name == "task_uuid" || name == "delivery" || named && ofStep && name == "step":
			continue
		case name == "failure_group":
			needs = append(needs, permStepsRead) // it follows from messages
		case name == "dead_letter":
			needs = append(needs, permDLQRead)
		case a.action != noAction && !ofStep:
			needs = append(needs, permTasksList)
		}
		needs = append(needs, a.list)
	}
	return needs
}

// steps reads which steps of the tasks an action is for.
func (p *bulkParser) steps(q *query) {
	if p.q.action == noAction {
		return
	}
	f := &p.q.filter
	f.step = q.text("step")
	for _, word := range q.texts("step_status") {
		state, ok := parseStepState(word)
		if !ok {
			q.refuse("step_status must be %s, not %.60q", anyOf(stepStateNames[:]), word)
		}
		f.states = append(f.states, state)
	}
}

// bulkIDs reads the ids of many tasks or deliveries that a member of a filter names. It returns nil if there are none.
func bulkIDs[K comparable](q *query, name, many, kind string, parse func(word string) (K, bool)) (ids map[K]bool) {
	words := q.texts(name)
	if len(words) > maxBulkIDs {
		q.refuse("%s names %d %s; at most %d are allowed", name, len(words), many, maxBulkIDs)
	}
	for _, word := range words {
		id, ok := parse(word)
		if !ok {
			q.refuse("%s: %.60q is not %s", name, word, kind)
		}
		if ids == nil {
			ids = map[K]bool{}
		}
		ids[id] = true
	}
	return ids
}
