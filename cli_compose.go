package main

// Answers that are composed of others where a service lacks a route or reports less, as Tasker does: why a task is
// stuck, its transitions, the states in a list of tasks, how the steps of a template depend on each other, and what a
// new task must say.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// taskParts holds the responses about a task of which other answers are composed.
type taskParts struct {
	c     *client
	path  string
	task  document
	steps []document // with their results
	shape *shape
	now   instant // of the service
}

func (c *client) taskParts(ctx context.Context, path string) (*taskParts, error) {
	t, err := c.get(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	steps, err := c.get(ctx, path+"/workflow_steps", nil)
	return &taskParts{c, path, t, steps.list(), c.shape(ctx, t), c.p.serviceNow()}, err
}

// composed returns what the service has at a path below that of a task, or composes it if the service lacks the route.
func (c *client) composed(
	ctx context.Context, task, below string, compose func(p *taskParts, ctx context.Context) any,
) (d document, composed bool, err error) {
	d, err = c.get(ctx, task+below, nil)
	if !c.lacks(ctx, err, task) {
		return d, false, err
	}
	p, err := c.taskParts(ctx, task)
	if err != nil {
		return d, false, err
	}
	return asDocument(compose(p, ctx)), true, nil
}

// explained returns why a task makes no progress.
func (c *client) explained(ctx context.Context, task string) (document, error) {
	d, _, err := c.composed(ctx, task, "/explain", (*taskParts).explanation)
	return d, err
}

// asDocument encodes a value, which may contain documents, as a document.
func asDocument(v any) document {
	text, _ := json.Marshal(v)
	return newDocument(text)
}

// Why a task makes no progress.

func (p *taskParts) explanation(context.Context) any {
	v := &taskExplanation{Status: p.task.exact("status"), Steps: []stepExplanation{}}
	v.TaskUUID, _ = parseUUID(p.task.exact("task_uuid"))
	for _, s := range p.steps {
		if _, over := overStates[s.exact("current_state")]; !over {
			v.Steps = append(v.Steps, p.explain(s))
		}
	}
	// lead only compares explanations, so it needs no explainer, which would need a store.
	lead := (*explainer)(nil).lead(v.Steps)
	switch _, ended := endStates[v.Status]; {
	case ended && !p.stopped():
		v.Message = fmt.Sprintf("the task is %s: nothing is left to do", v.Status)
	case lead == nil:
		v.Message = "every step of the task is finished, and it is about to end"
	default:
		v.Message, v.Remedy = lead.said(), lead.Remedy
	}
	if v.Remedy != "" {
		v.Message += "; " + v.Remedy
	}
	return v
}

// overStates are the states of finished steps, with whether those after one may start.
var overStates = map[string]bool{"complete": true, "resolved_manually": true, "cancelled": false}

// stopped reports whether no step of the task may start.
func (p *taskParts) stopped() bool {
	return p.task.exact("status") == "blocked_by_failures" || p.task.exact("status") == "error"
}

// explain explains an unfinished step.
func (p *taskParts) explain(s document) stepExplanation {
	e := stepExplanation{Name: s.exact("name"), CurrentState: s.exact("current_state"), WaitsFor: []string{}, Actions: []string{},
		Attempt: int(s.number("attempts")), MaxAttempts: int(s.number("max_attempts"))}
	e.StepUUID, _ = parseUUID(s.exact("step_uuid"))
	tries := fmt.Sprintf("on attempt %d of %d", e.Attempt, e.MaxAttempts)
	failure := ""
	if message := headline(s.exact("results.error.message")); message != "" {
		failure = fmt.Sprintf(": %s (%s)", clipText(message, maxShownError), s.exact("results.error.error_type"))
	}
	switch e.CurrentState {
	case "error":
		e.because(causeFailed, "failed for good %s, %s%s", agoFor(instantAt(s, "updated_at"), p.now), tries, failure)
		e.Remedy = "fix what failed, then reset it"
		e.may(actionReset, actionResolve, actionComplete)
	case "in_progress":
		e.Since = zonedTime(instantAt(s, "last_attempted_at"))
		e.because(causeRunning, "has run for %s, %s", roughly(p.now.sub(instant(e.Since))), tries)
		if failure != "" {
			e.Message += fmt.Sprintf(", after attempt %d failed%s", e.Attempt-1, failure)
		}
	case "waiting_for_retry":
		e.because(causeRetry, "failed %s, %s%s", agoFor(instantAt(s, "updated_at"), p.now), tries, failure)
		e.DueAt = zonedTime(instantAt(s, "next_retry_at"))
		if e.DueAt != 0 && !p.stopped() {
			e.Remedy = "it is retried " + inFor(instant(e.DueAt), p.now)
		}
	case "pending":
		p.pending(&e)
	default:
		e.because(causeStarting, "has waited for a worker for %s", roughly(p.now.sub(instantAt(s, "updated_at"))))
	}
	if e.Remedy != "" {
		e.Message += "; " + e.Remedy
	}
	return e
}

// pending explains a step that has not started.
func (p *taskParts) pending(e *stepExplanation) {
	cause, first := causeDependencies, ""
	for _, parent := range p.shape.parents[p.shape.declared(e.Name)] {
		for _, s := range p.steps {
			name, state := s.exact("name"), s.exact("current_state")
			if name != parent && p.shape.declared(name) != parent || overStates[state] {
				continue
			}
			e.WaitsFor = append(e.WaitsFor, name)
			switch state {
			case "error":
				cause, first = causeParentFailed, fmt.Sprintf("%q, which failed for good", name)
			case "cancelled":
				cause, first = causeCancelled, fmt.Sprintf("%q, which was cancelled", name)
			}
		}
	}
	switch {
	case first != "":
		e.because(cause, "needs step %s", first)
	case len(e.WaitsFor) > 0:
		e.because(cause, "waits for %s", quotedNames(e.WaitsFor))
	case p.stopped():
		e.because(causeTaskStopped, "is ready, but cannot start while the task is %s", p.task.exact("status"))
	default:
		e.because(causeStarting, "is ready and about to start")
	}
}

// instantAt returns the time at a path, or 0.
func instantAt(d document, path string) instant {
	i, _ := parseInstant(d.exact(path))
	return i
}

// The transitions that can be derived from the steps and their audit.

// mostAudits is how many steps of a task have their audit fetched; of the others only the last attempt is known.
const mostAudits = 50

func (p *taskParts) transitions(ctx context.Context) any {
	all, audits := []transitionView{}, 0
	for _, s := range p.steps {
		move := stepMoves(s, &all)
		attempts := int(s.number("attempts"))
		var ends []document
		// Steps with one attempt are known from themselves: the audit costs a request for each step.
		if attempts > 1 && audits < mostAudits {
			audits++
			d, _ := p.c.get(ctx, p.path+"/workflow_steps/"+s.exact("step_uuid")+"/audit", nil) // without it less is known
			ends = plainAudit(d).list()
			slices.Reverse(ends) // the oldest first
		}
		move(instantAt(s, "created_at"), "pending", 0)
		for i, end := range ends[:min(len(ends), max(attempts-1, 0))] {
			ran := time.Duration(end.number("execution_time_ms")) * time.Millisecond
			move(instantAt(end, "recorded_at").add(-ran), "in_progress", i+1)
			move(instantAt(end, "recorded_at"), "waiting_for_retry", 0)
		}
		if attempts > 0 {
			move(instantAt(s, "last_attempted_at"), "in_progress", attempts)
		}
		if state := s.exact("current_state"); state != "pending" && state != "in_progress" {
			move(cmp.Or(instantAt(s, "completed_at"), instantAt(s, "updated_at")), state, 0)
		}
	}
	// Stable, so that the moves of a step at the same time stay in their order.
	slices.SortStableFunc(all, func(a, b transitionView) int { return cmp.Compare(a.RecordedAt, b.RecordedAt) })
	if status := p.task.exact("status"); len(all) > 0 {
		if _, ended := endStates[status]; ended {
			all = append(all, transitionView{RecordedAt: all[len(all)-1].RecordedAt, ToState: status})
		}
	}
	for i := range all {
		all[i].Sequence = uint64(i + 1)
	}
	return map[string]any{"task_uuid": p.task.exact("task_uuid"), "transitions": all}
}

// stepMoves returns a function that adds the moves of a step in their order.
func stepMoves(s document, all *[]transitionView) func(at instant, to string, attempt int) {
	id, _ := parseUUID(s.exact("step_uuid"))
	name, from := s.exact("name"), (*string)(nil)
	return func(at instant, to string, attempt int) {
		*all = append(*all, transitionView{RecordedAt: zonedTime(at), StepUUID: &id, StepName: &name, FromState: from, ToState: to,
			Attempt: attempt})
		from = &to
	}
}

// plainAudit returns an audit whose results are outcomes. Tasker's are events that contain the outcome as data.
func plainAudit(d document) document {
	entries := []map[string]json.RawMessage{}
	if d.at("0.result.data").raw == nil || json.Unmarshal(d.raw, &entries) != nil {
		return d
	}
	for i, e := range d.list() {
		entries[i]["result"] = e.at("result.data").raw
		if ms := e.at("result.data.metadata.execution_time_ms"); ms.raw != nil {
			entries[i]["execution_time_ms"] = ms.raw
		}
	}
	return asDocument(entries)
}

// Lists of tasks.

// askedTogether is how many tasks are fetched at once.
const askedTogether = 8

// withStates fetches the tasks of a list whose state may be less exact there: a service may list all unfinished ones as
// pending, a state in which no task stays, and complete ones as completed.
func (c *client) withStates(ctx context.Context, tasks []document) []document {
	tasks = slices.Clone(tasks)
	turns := make(chan struct{}, askedTogether)
	var asking sync.WaitGroup
	for i, t := range tasks {
		if s := t.exact("status"); s != "pending" && s != "completed" {
			continue
		}
		turns <- struct{}{}
		asking.Go(func() {
			if d, err := c.get(ctx, "/v1/tasks/"+t.exact("task_uuid"), nil); err == nil {
				tasks[i] = d
			}
			<-turns
		})
	}
	asking.Wait()
	return tasks
}

// searchedPages is how many pages are searched if a service may not know a filter.
const searchedPages = 10

// plainQuery returns the query for a page that is filtered here. Its status only separates complete tasks from all
// others.
func plainQuery(filter url.Values, perPage int) url.Values {
	q := maps.Clone(filter)
	q.Set("per_page", strconv.Itoa(perPage))
	if q.Has("status") {
		q.Set("status", pick(q.Get("status") == "complete", "completed", "pending"))
	}
	return q
}

// matching returns the tasks of a page that pass a filter which the service may not know completely.
func (c *client) matching(ctx context.Context, tasks []document, filter url.Values) ([]document, error) {
	for name := range filter {
		if !slices.Contains(knownFilters, name) && !strings.HasPrefix(name, "context.") {
			return nil, exitf(exitFailed, "%s has no filter and no order %s: only Stepwell has it", c.url, name)
		}
	}
	if filter.Has("status") {
		tasks = c.withStates(ctx, tasks)
	}
	return slices.DeleteFunc(slices.Clone(tasks), func(t document) bool { return !matches(filter, t) }), nil
}

// knownFilters are the filters of lists of tasks that every service has, or that matches can check.
var knownFilters = []string{"namespace", "name", "version", "status", "initiator", "source_system", "correlation_id",
	"parent_correlation_id", "tag", "q", "created_after", "created_before"}

// matches reports whether a listed task passes a filter, for services that ignore it.
func matches(filter url.Values, t document) bool {
	for name, values := range filter {
		for _, v := range values {
			if !matchesOne(name, v, t) {
				return false
			}
		}
	}
	return true
}

func matchesOne(name, v string, t document) bool {
	switch name {
	case "namespace", "name", "version", "initiator", "source_system", "correlation_id", "parent_correlation_id":
		return strings.EqualFold(t.exact(name), v)
	case "tag":
		return slices.ContainsFunc(t.at("tags").list(), func(tag document) bool { return tag.exact("") == v })
	case "status":
		return slices.Contains(strings.Split(v, ","), t.exact(name))
	case "q":
		return strings.Contains(strings.ToLower(qualifiedName(t)), strings.ToLower(v))
	case "created_after", "created_before":
		bound, err := parseInstant(v)
		return err != nil || (instantAt(t, "created_at") > bound) == (name == "created_after")
	}
	return !strings.HasPrefix(name, "context.") || t.exact(name) == v
}

// Templates and new tasks.

// newest returns the newest version of a template, or "".
func (c *client) newest(ctx context.Context, r templateRef) string {
	d, _ := c.get(ctx, "/v1/templates", url.Values{"namespace": {r.namespace}})
	versions := []*template{}
	for _, t := range d.at("templates").list() {
		if v, ok := parseSemver(t.exact("version")); ok && t.exact("namespace") == r.namespace && t.exact("name") == r.name {
			versions = append(versions, &template{version: t.exact("version"), semver: v})
		}
	}
	if len(versions) == 0 {
		return ""
	}
	slices.SortFunc(versions, func(a, b *template) int { return a.semver.compare(b.semver) })
	return latestTemplate(versions).version
}

// withDependencies adds to a template what only the summary of one of its tasks has: the type, handler and dependencies
// of each step.
func (c *client) withDependencies(ctx context.Context, d document) document {
	var t map[string]json.RawMessage
	var steps []map[string]any
	if d.at("steps.0").raw == nil || d.at("steps.0.dependencies").raw != nil || json.Unmarshal(d.raw, &t) != nil ||
		json.Unmarshal(t["steps"], &steps) != nil {
		return d
	}
	tasks, _, _ := c.tasks(ctx, url.Values{"namespace": {d.exact("namespace")}, "name": {d.exact("name")},
		"version": {d.exact("version")}}, 1)
	if len(tasks) == 0 {
		return d
	}
	summary, _ := c.get(ctx, "/v1/tasks/"+tasks[0].exact("task_uuid")+"/summary", nil)
	for _, s := range summary.at("template.steps").list() {
		for _, step := range steps {
			if step["name"] == s.exact("name") {
				step["type"], step["dependencies"] = s.exact("step_type"), s.at("dependencies")
				step["handler"] = map[string]string{"callable": s.exact("handler")}
			}
		}
	}
	t["steps"], _ = json.Marshal(steps)
	return asDocument(t)
}

var missingField = regexp.MustCompile("missing field `(\\w+)`")

// create creates a task. If the service refuses it because a member is missing, create fills that in and tries again;
// filled lists these members. Stepwell requires none of them.
func (c *client) create(ctx context.Context, body map[string]any, key, by string) (d document, filled []string, err error) {
	for {
		d, err = c.do(ctx, call{method: "POST", path: "/v1/tasks", body: body, key: key})
		if !hasStatus(err, 422) {
			return d, filled, err
		}
		field := missingField.FindStringSubmatch(err.Error())
		// The loop ends: each member is filled in once.
		if field == nil || body[field[1]] != nil {
			return d, filled, err
		}
		switch field[1] {
		case "version":
			r := templateRef{fmt.Sprint(body["namespace"]), fmt.Sprint(body["name"]), ""}
			version := c.newest(ctx, r)
			if version == "" {
				return d, filled, exitf(exitNotFound, "there is no template %s/%s", r.namespace, r.name)
			}
			body["version"] = version
		case "context":
			body["context"] = map[string]any{}
		case "initiator":
			body["initiator"] = by
		case "source_system":
			body["source_system"] = "stepwell"
		case "reason":
			body["reason"] = "created by " + by
		default:
			return d, filled, err
		}
		filled = append(filled, field[1])
	}
}
