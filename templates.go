package main

// What a workflow template is once it is resolved, and how it is read back
// from its normalized form. How that form comes about stands in
// templateread.go and templatefields.go.

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// identityStrategy says when two tasks of a template are the same task.
type identityStrategy string

const (
	strategyStrict         identityStrategy = "strict"
	strategyCallerProvided identityStrategy = "caller_provided"
	strategyAlwaysUnique   identityStrategy = "always_unique"
)

// backoffKind says how the delay before a retry grows.
type backoffKind string

const (
	backoffNone        backoffKind = "none"
	backoffLinear      backoffKind = "linear"
	backoffExponential backoffKind = "exponential"
	backoffFibonacci   backoffKind = "fibonacci"
)

// The kinds of steps.
const (
	stepStandard            = "standard"
	stepDecision            = "decision"
	stepDeferredConvergence = "deferred_convergence"
	stepBatchable           = "batchable"
	stepBatchWorker         = "batch_worker"
)

// template is one resolved workflow definition; immutable once made. Its byte
// slices are JSON texts, most of them parts of json.
type template struct {
	namespace, name, version string
	semver                   semver // version, read
	description              *string
	strategy                 identityStrategy
	defaultContext           []byte         // an object
	lifecycle                *lifecycle     // nil when the template has none
	steps                    []stepTemplate // in the order of the definition
	order                    []int          // indexes, each after its parents; of the free, the first defined
	dynamic                  bool           // some step's kind is not standard
	flow                     *flow          // of a dynamic one; else nil
	json                     []byte         // the normalized form, compact: what is served and kept
	hash                     string         // lower-case hex of the first 16 bytes of SHA-256 over json
}

// lifecycle holds a template's own limits, in minutes; nil: the service's limit.
type lifecycle struct {
	maxDurationMinutes               *int
	maxWaitingForDependenciesMinutes *int
	maxWaitingForRetryMinutes        *int
	maxStepsInProcessMinutes         *int
	stalenessAction                  string // dlq, error, none; "" when the template has no word on it
}

// stepTemplate is one step of a template.
type stepTemplate struct {
	name, kind        string
	description       *string
	callable, method  string // method is "" when absent
	resolver          *string
	handler           []byte // the whole handler, an object
	config            []byte // handler.initialization, an object
	parents, children []int  // indexes into template.steps; parents as listed, children ascending
	retry             retryPolicy
	timeoutSeconds    int
	parentsOnly       bool   // the handler gets the results of its parents, not of all ancestors
	id                uuid   // named_step_uuid
	resultSchema      []byte // nil when absent
	batchWorker       string // the step that batches are made of; "" when nothing names one
}

// retryPolicy says whether and when a failed step is tried again.
type retryPolicy struct {
	retryable     bool
	maxAttempts   int // counts the first attempt; 0 behaves as 1
	backoff       backoffKind
	baseMS, maxMS int
}

func (t *template) fullName() string { return t.namespace + "." + t.name + "@" + t.version }

// templateFromNormalized reads what template.json was: the same json, hash and
// fields. It checks the shape, not the rules for new templates, so that what
// was once accepted can always be read back.
func templateFromNormalized(data []byte) (*template, error) {
	if err := checkJSON(data); err != nil {
		return nil, fmt.Errorf("normalized template: %w", err)
	}
	t := &template{json: bytes.Clone(data), strategy: strategyStrict, defaultContext: []byte("{}")}
	d := &templateDecoder{}
	d.members(t.json, func(key string, value []byte) { d.templateMember(t, key, value) })
	d.identify(t)
	d.link(t)
	if d.err != nil {
		return nil, fmt.Errorf("normalized template: %w", d.err)
	}
	return t, nil
}

// templateDecoder fills a template from its normalized form and keeps the first error.
type templateDecoder struct {
	err          error
	dependencies [][]string // by step
}

func (d *templateDecoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// scalar decodes a string, number, bool or null; null leaves what a pointer points to alone.
func (d *templateDecoder) scalar(data []byte, into any) {
	if err := json.Unmarshal(data, into); err != nil {
		d.fail(err)
	}
}

// object is data, which must be an object.
func (d *templateDecoder) object(data []byte) []byte {
	if data[0] != '{' {
		d.fail(errors.New("an object is missing"))
	}
	return data
}

func (d *templateDecoder) members(data []byte, f func(key string, value []byte)) {
	if templateNull(data) {
		return
	}
	if !eachMember(data, func(key string, value []byte) bool { f(key, value); return d.err == nil }) {
		d.fail(errors.New("an object is missing"))
	}
}

func (d *templateDecoder) elements(data []byte, f func(value []byte)) {
	if templateNull(data) {
		return
	}
	if !eachElement(data, func(value []byte) bool { f(value); return d.err == nil }) {
		d.fail(errors.New("a list is missing"))
	}
}

func (d *templateDecoder) templateMember(t *template, key string, value []byte) {
	switch key {
	case "namespace_name":
		d.scalar(value, &t.namespace)
	case "name":
		d.scalar(value, &t.name)
	case "version":
		d.scalar(value, &t.version)
	case "description":
		d.scalar(value, &t.description)
	case "identity_strategy":
		d.scalar(value, (*string)(&t.strategy))
	case "default_context":
		t.defaultContext = d.object(value)
	case "lifecycle":
		if !templateNull(value) {
			t.lifecycle = &lifecycle{}
			d.members(value, func(key string, value []byte) { d.lifecycleMember(t.lifecycle, key, value) })
		}
	case "steps":
		d.elements(value, func(value []byte) { d.step(t, value) })
	}
}

func (d *templateDecoder) lifecycleMember(l *lifecycle, key string, value []byte) {
	switch key {
	case "max_duration_minutes":
		d.scalar(value, &l.maxDurationMinutes)
	case "max_waiting_for_dependencies_minutes":
		d.scalar(value, &l.maxWaitingForDependenciesMinutes)
	case "max_waiting_for_retry_minutes":
		d.scalar(value, &l.maxWaitingForRetryMinutes)
	case "max_steps_in_process_minutes":
		d.scalar(value, &l.maxStepsInProcessMinutes)
	case "staleness_action":
		d.scalar(value, &l.stalenessAction)
	}
}

func (d *templateDecoder) step(t *template, data []byte) {
	s := stepTemplate{
		kind:           stepStandard,
		config:         []byte("{}"),
		retry:          retryPolicy{true, 3, backoffExponential, 1000, 30000},
		timeoutSeconds: 30,
	}
	d.dependencies = append(d.dependencies, nil)
	batchConfig := []byte("{}")
	d.members(data, func(key string, value []byte) {
		if key == "batch_config" {
			batchConfig = value
		}
		d.stepMember(&s, key, value)
	})
	s.parentsOnly = templateText(s.config, "dependency_results") == "parents"
	s.batchWorker = templateText(s.config, "worker_template_name")
	if name := templateText(batchConfig, "worker_template"); name != "" {
		s.batchWorker = name
	}
	t.dynamic = t.dynamic || s.kind != stepStandard
	t.steps = append(t.steps, s)
}

func (d *templateDecoder) stepMember(s *stepTemplate, key string, value []byte) {
	switch key {
	case "name":
		d.scalar(value, &s.name)
	case "description":
		d.scalar(value, &s.description)
	case "type":
		d.scalar(value, &s.kind)
	case "handler":
		s.handler = value
		d.members(value, func(key string, value []byte) { d.handlerMember(s, key, value) })
	case "dependencies":
		last := &d.dependencies[len(d.dependencies)-1]
		d.elements(value, func(value []byte) {
			*last = append(*last, "")
			d.scalar(value, &(*last)[len(*last)-1])
		})
	case "retry":
		d.members(value, func(key string, value []byte) { d.retryMember(&s.retry, key, value) })
	case "timeout_seconds":
		d.scalar(value, &s.timeoutSeconds)
	case "result_schema":
		s.resultSchema = d.object(value)
	}
}

func (d *templateDecoder) handlerMember(s *stepTemplate, key string, value []byte) {
	switch key {
	case "callable":
		d.scalar(value, &s.callable)
	case "method":
		d.scalar(value, &s.method)
	case "resolver":
		d.scalar(value, &s.resolver)
	case "initialization":
		s.config = d.object(value)
	}
}

func (d *templateDecoder) retryMember(p *retryPolicy, key string, value []byte) {
	switch key {
	case "retryable":
		d.scalar(value, &p.retryable)
	case "max_attempts":
		d.scalar(value, &p.maxAttempts)
	case "backoff":
		d.scalar(value, (*string)(&p.backoff))
	case "backoff_base_ms":
		d.scalar(value, &p.baseMS)
	case "max_backoff_ms":
		d.scalar(value, &p.maxMS)
	}
}

// identify sets what follows from the template's names and text.
func (d *templateDecoder) identify(t *template) {
	var ok bool
	if t.semver, ok = parseSemver(t.version); !ok || t.namespace == "" || t.name == "" {
		d.fail(errors.New("namespace, name and version do not identify it"))
	}
	sum := sha256.Sum256(t.json)
	t.hash = hex.EncodeToString(sum[:16])
	for i := range t.steps {
		t.steps[i].id = stableID(t.namespace, t.name, t.version, t.steps[i].name)
	}
}

// link turns the names of dependencies into parents, children and an order.
func (d *templateDecoder) link(t *template) {
	index := make(map[string]int, len(t.steps))
	for i, s := range t.steps {
		index[s.name] = i
	}
	parents := make([][]int, len(t.steps))
	lastChild := make([]int, len(t.steps)) // by parent, plus 1
	for i, names := range d.dependencies {
		for _, name := range names {
			p, ok := index[name]
			if !ok || lastChild[p] == i+1 {
				d.fail(fmt.Errorf("step %q cannot depend on %q", t.steps[i].name, name))
				return
			}
			lastChild[p] = i + 1
			parents[i] = append(parents[i], p)
		}
	}
	g, cycle := newGraph(parents)
	if cycle != nil || len(index) < len(t.steps) {
		d.fail(errors.New("its steps do not make a graph"))
		return
	}
	t.order = g.order
	for i := range t.steps {
		t.steps[i].parents, t.steps[i].children = parents[i], g.children[i]
	}
	if t.dynamic {
		t.flow = newFlow(t)
	}
}
