package main

// The template family: workflow templates, from definition to registry, and the graphs of their steps. It uses base and
// config; it does not know tasks or what runs steps.
//
//	template.go                 the resolved template and its steps, and what steps publish
//	template_registry.go        the registry, and the order of versions; resolving a definition: the overrides of
//	                            an environment, dependencies
//	template_load.go            loading the templates of directories and files
//	template_read.go            reading a definition: the tables of fields and their rules
//	template_form.go            the normalized form
//	template_format.go          the formats of a definition: JSON, TOML, YAML; places in a text; converting a
//	                            definition to another format
//	template_yaml.go            the YAML reader
//	template_graph.go           dependency graphs: cycles, levels, paths, flow
//	template_schema.go          JSON Schema: its keywords, reading it, checking values; its formats of texts

import (
	"strings"
	"sync"
	"time"
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

// What it means if an instance of a batch worker fails for good.
const (
	batchFailFast = "fail_fast"           // the task is blocked
	batchContinue = "continue_on_failure" // the task is blocked once none of its other steps can run
	batchIsolate  = "isolate"             // likewise, but steps that depend on the batches run without the failed one
)

// template is one resolved workflow definition. It is immutable, and its byte slices are JSON texts.
type template struct {
	namespace, name, version string
	semver                   semver // version, parsed
	description              *string
	strategy                 identityStrategy
	defaultContext           []byte         // an object
	input                    *schemaSource  // of contexts; nil for none
	search                   []string       // paths of the members of a context by which tasks are found
	lifecycle                *lifecycle     // nil if the template has none
	steps                    []stepTemplate // in the order of the definition
	order                    []int          // step indexes, parents first, else as defined
	dynamic                  bool           // some step's kind is not standard
	publishes                bool           // some step publishes events
	flow                     *flow          // nil unless dynamic
	json                     []byte         // the normalized form, compact: what is kept
	shownJSON                []byte         // json, redacted: what is served
	hash                     string         // lower-case hex of the first 16 bytes of SHA-256 over json
}

// lifecycle holds the limits that a template sets, in minutes; nil means the service's limit.
type lifecycle struct {
	MaxDurationMinutes               *int
	MaxWaitingForDependenciesMinutes *int
	MaxWaitingForRetryMinutes        *int
	MaxStepsInProcessMinutes         *int
	StalenessAction                  string // dlq, error, none; "" for the default
}

// stepTemplate is one step of a template.
type stepTemplate struct {
	name, kind        string
	description       *string
	callable, method  string // method is "" if absent
	shown             string // the callable, redacted: what views, logs and outside actors get
	resolver          *string
	handler           []byte // the whole handler, an object
	config            []byte // handler.initialization, an object
	parents, children []int  // indexes into template.steps; parents as listed, children ascending
	retry             retryPolicy
	timeoutSeconds    int
	parentsOnly       bool   // the handler gets the results of its parents, not of all ancestors
	id                uuid   // named_step_uuid
	resultSchema      []byte // nil if absent
	result            *schemaSource
	batchWorker       string       // the step whose instances work on the batches; "" if none is named
	handed            []byte       // the members of the handler except its configuration, as handlers get them
	batch             *batchPolicy // of a batch_worker step
	answer            *answerRule  // how long it waits for an answer; nil for no limit
	publishes         []publishedEvent
}

// batchPolicy is how the instances of a batch_worker step are worked on: by its own batch_config,
// or else by that of a batchable step that creates it.
type batchPolicy struct {
	parallelism     int    // how many may run at once; 0 for no limit
	failureStrategy string // what it means if one fails for good
	metadata        []byte // an object: the configuration, as instances get it
}

// answerRule is how long a step whose callable names no handler waits for an answer, and what then.
type answerRule struct {
	text      string        // within, as written
	within    time.Duration // since it was first enqueued, or since an operator reset it
	otherwise []byte        // the result if nobody answers, JSON; nil: the step fails
}

// due returns the deadline of a step that was enqueued at an instant.
func (r *answerRule) due(at instant) instant { return min(at.add(r.within), lastInstant) }

// schemaSource is a schema in a template, compiled when it is first needed.
type schemaSource struct {
	path     string // in the template
	text     []byte // an object
	once     sync.Once
	compiled *jsonSchema
}

// newSchemaSource returns nil for no schema.
func newSchemaSource(path string, text []byte) *schemaSource {
	if text == nil || jsonKind(text) == 'n' {
		return nil
	}
	return &schemaSource{path: path, text: text}
}

func (s *schemaSource) schema() *jsonSchema {
	return s.schemaWithin(nil)
}

// schemaWithin is schema, which if it is not compiled yet, takes memory of a budget. If that ends
// meanwhile, the whole template must be given up.
func (s *schemaSource) schemaWithin(b *budget) *jsonSchema {
	s.once.Do(func() { s.compiled = compileSchema(s.path, s.text, b) })
	return s.compiled
}

// schemaFaults returns why schemas of a template cannot be enforced, which are compiled within a budget.
func (t *template) schemaFaults(b *budget) (faults inputProblems) {
	for _, s := range t.schemas() {
		faults = append(faults, s.schemaWithin(b).problems...)
	}
	return faults
}

// retryPolicy decides whether and when a failed step is tried again.
type retryPolicy struct {
	Retryable   bool
	MaxAttempts int // counts the first attempt; 0 behaves as 1
	Backoff     backoffKind
	BaseMS      int
	MaxMS       int
}

func (t *template) fullName() string { return t.namespace + "." + t.name + "@" + t.version }

// ids returns how many ids a task takes: its own, its steps', and a correlation id.
func (t *template) ids() int { return len(t.steps) + 2 }

func (t *template) stepNames(steps []int) []string {
	names := make([]string, len(steps))
	for n, i := range steps {
		names[n] = t.steps[i].name
	}
	return names
}

// What tasks are found by.

const (
	maxSearchPaths = 8
	maxSearchText  = 255 // bytes of a value; a longer one is not searched
)

// searched returns the values of a context that the template searches, as a JSON object by path, or nil if there
// are none. Only strings, numbers and booleans count. It goes into the record of a creation.
func (t *template) searched(context []byte) []byte {
	var found templateObject
	for _, path := range t.search {
		value, key, rest := context, "", path
		for more := true; more && value != nil; value = objectMember(value, key) {
			key, rest, more = strings.Cut(rest, ".")
		}
		switch jsonKind(value) {
		case '"', '0', 't', 'f':
			if len(value) <= maxSearchText+len(`""`) {
				found = append(found, templateMember{path, value})
			}
		}
	}
	if found == nil {
		return nil
	}
	return found.json()
}

// What steps publish.

// publishedEvent is an event that a step publishes when an attempt has ended.
type publishedEvent struct {
	name      string
	condition string // success, failure, retryable_failure, permanent_failure or always
	mode      string // durable, fast or broadcast
	publisher string // the subscriber that gets it, besides those that ask for it; "" for none
	schema    []byte // a JSON Schema of the payload

	payload *schemaSource // schema
}

func (p *publishedEvent) places() []place {
	return []place{
		{"name", &p.name},
		{"condition", &p.condition},
		{"delivery_mode", &p.mode},
		{"publisher", &p.publisher},
		{"schema", &p.schema},
	}
}

// fast reports whether the event is lost with the process.
func (p *publishedEvent) fast() bool { return p.mode == "fast" }

// payloadFit says how a payload fits the schema of an event.
type payloadFit struct {
	unfit     string // why it does not; "" if it does, or if the schema cannot be enforced
	asContext bool   // the context of an error is the payload, since that fits and the error does not
}

// fits returns how a payload fits each event of a step, or else the context of the error that it is, which may be nil.
func (s *stepTemplate) fits(b *budget, payload, context []byte) []payloadFit {
	fits := make([]payloadFit, len(s.publishes))
	for n := range s.publishes {
		p := s.publishes[n].payload
		if p == nil || len(p.schema().problems) > 0 {
			continue
		}
		f := &fits[n]
		f.unfit = p.schema().check(b, payload).String()
		if f.unfit != "" && context != nil && len(p.schema().check(b, context)) == 0 {
			*f = payloadFit{asContext: true}
		}
	}
	return fits
}

// follows reports whether the event is published after an attempt that succeeded or failed; again says whether the step
// will be tried again.
func (p *publishedEvent) follows(success, again bool) bool {
	switch p.condition {
	case "always":
		return true
	case "failure":
		return !success
	case "retryable_failure":
		return !success && again
	case "permanent_failure":
		return !success && !again
	}
	return success
}
