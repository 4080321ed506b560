package main

// The normalized form of a template, and reading it back: the JSON that is hashed and stored.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// templateForm is a template while its normalized form is read. Its byte slices are parts of that form. Members that
// the program does not use are left out.
type templateForm struct {
	*template
	inputSchema []byte
	forms       []stepForm
}

func (f *templateForm) places() []place {
	return []place{
		{"namespace_name", &f.namespace},
		{"name", &f.name},
		{"version", &f.version},
		{"description", &f.description},
		{"identity_strategy", &f.strategy},
		{"default_context", &f.defaultContext},
		{"input_schema", &f.inputSchema},
		{"search", f.readSearch},
		{"lifecycle", f.readLifecycle},
		{"steps", f.readSteps},
	}
}

func (f *templateForm) readLifecycle(data []byte) error {
	if jsonKind(data) == 'n' {
		return nil
	}
	f.lifecycle = new(lifecycle)
	return readForm(data, f.lifecycle.places())
}

// readSearch reads paths, whose number and form a state from outside must keep to as well.
func (f *templateForm) readSearch(data []byte) error {
	r := templateReader{blamed: map[string]bool{}}
	if searchValue(&r, "search", data); len(r.problems) > 0 {
		return r.problems
	}
	return json.Unmarshal(data, &f.search)
}

func (f *templateForm) readSteps(data []byte) error {
	// Counted first, so that the list of a template with thousands of steps is allocated once.
	f.forms = make([]stepForm, 0, jsonLength(data))
	if kind := jsonKind(data); kind != '[' && kind != 'n' {
		return errors.New("not a list")
	}
	for raw := range jsonElements(data) {
		s := stepForm{stepTemplate: stepTemplate{
			kind: stepStandard, timeoutSeconds: 30, retry: retryPolicy{true, 3, backoffExponential, 1000, 30000},
		}}
		if err := readForm(raw, s.places()); err != nil {
			return err
		}
		f.forms = append(f.forms, s)
	}
	return nil
}

// stepForm is one step of a templateForm, without parents and children.
type stepForm struct {
	stepTemplate
	dependencies []byte // names of steps
	batchConfig  []byte // an object; nil or null for none
}

func (s *stepForm) places() []place {
	return []place{
		{"name", &s.name},
		{"type", &s.kind},
		{"description", &s.description},
		{"handler", &s.handler},
		{"dependencies", &s.dependencies},
		{"retry", func(data []byte) error { return readForm(data, s.retry.places()) }},
		{"timeout_seconds", &s.timeoutSeconds},
		{"result_schema", &s.resultSchema},
		{"batch_config", &s.batchConfig},
		{"publishes_events", s.readPublished},
	}
}

func (s *stepForm) readPublished(data []byte) (err error) {
	for raw := range jsonElements(data) {
		p := publishedEvent{condition: "success", mode: "durable"}
		err = readForm(raw, p.places())
		s.publishes = append(s.publishes, p)
		if err != nil {
			break
		}
	}
	return err
}

func (p *retryPolicy) places() []place {
	return []place{
		{"retryable", &p.Retryable},
		{"max_attempts", &p.MaxAttempts},
		{"backoff", &p.Backoff},
		{"backoff_base_ms", &p.BaseMS},
		{"max_backoff_ms", &p.MaxMS},
	}
}

func (l *lifecycle) places() []place {
	return []place{
		{"max_duration_minutes", &l.MaxDurationMinutes},
		{"max_waiting_for_dependencies_minutes", &l.MaxWaitingForDependenciesMinutes},
		{"max_waiting_for_retry_minutes", &l.MaxWaitingForRetryMinutes},
		{"max_steps_in_process_minutes", &l.MaxStepsInProcessMinutes},
		{"staleness_action", &l.StalenessAction},
	}
}

// templateFromNormalized reads template.json back: json, hash and fields are the same. It checks the shape but not the
// rules for new templates, so that it can read every template that was ever accepted.
func templateFromNormalized(data []byte) (*template, error) {
	// The template keeps parts of the text, and data may be a line in a buffer that is used again.
	text := bytes.Clone(data)
	if err := checkJSON(text); err != nil {
		return nil, err
	}
	f := &templateForm{template: &template{
		strategy: strategyStrict, defaultContext: []byte("{}"), json: text, shownJSON: redact(text),
	}}
	if err := readForm(text, f.places()); err != nil {
		return nil, err
	}
	t := f.template
	var ok bool
	if t.semver, ok = parseSemver(t.version); !ok || t.namespace == "" || t.name == "" {
		return nil, errors.New("no namespace, no name or no valid version")
	}
	sum := sha256.Sum256(text)
	t.hash = hex.EncodeToString(sum[:16])
	t.input = newSchemaSource("input_schema", f.inputSchema)
	t.steps = make([]stepTemplate, len(f.forms))
	for i := range f.forms {
		s := &f.forms[i]
		if err := s.complete(); err != nil {
			return nil, err
		}
		s.id = stableID(t.namespace, t.name, t.version, s.name)
		path := templateItemPath("steps", i)
		s.result = newSchemaSource(path+".result_schema", s.resultSchema)
		for n := range s.publishes {
			p := &s.publishes[n]
			p.payload = newSchemaSource(templateItemPath(path+".publishes_events", n)+".schema", p.schema)
		}
		t.steps[i] = s.stepTemplate
		t.dynamic = t.dynamic || s.kind != stepStandard
		t.publishes = t.publishes || s.publishes != nil
	}
	if err := checkObject(t.defaultContext); err != nil {
		return nil, err
	}
	return t, t.link(f.forms)
}

// complete reads the handler, and sets what follows from the members.
func (s *stepForm) complete() error {
	s.config = []byte("{}")
	if s.handler != nil {
		if err := readForm(s.handler, s.handlerPlaces()); err != nil {
			return err
		}
	}
	s.shown = redactName(s.callable)
	s.handed = appendHanded(nil, &s.stepTemplate)
	s.parentsOnly = templateText(s.config, "dependency_results") == "parents"
	s.batchWorker = cmp.Or(
		templateText(s.batchConfig, "worker_template"), templateText(s.config, "worker_template_name"))
	if s.resultSchema != nil {
		if err := checkObject(s.resultSchema); err != nil {
			return err
		}
	}
	if err := checkObject(s.config); err != nil {
		return err
	}
	s.answer, _, _ = answerRuleOf(s.callable, s.config)
	return nil
}

// cutHandlerPrefix cuts one of the four prefixes off a callable; prefix is "" if it
// has none. Letter case does not matter in the schemes of URLs.
func cutHandlerPrefix(callable string) (prefix, rest string) {
	for _, prefix := range [...]string{"builtin:", "exec:"} {
		if rest, ok := strings.CutPrefix(callable, prefix); ok {
			return prefix, rest
		}
	}
	for _, prefix := range [...]string{"http://", "https://"} {
		if n := len(prefix); len(callable) >= n && strings.EqualFold(callable[:n], prefix) {
			return prefix, callable[n:]
		}
	}
	return "", callable
}

// answerRuleOf reads how long a step waits for an answer from its handler.initialization, which belongs to the handler if the
// callable names one. If a member is wrong, answerRuleOf returns no rule, but the member and its problem.
func answerRuleOf(callable string, config []byte) (rule *answerRule, member, problem string) {
	within, otherwise := objectMember(config, answerWithin), objectMember(config, ifUnanswered)
	if prefix, _ := cutHandlerPrefix(callable); prefix != "" {
		return nil, "", ""
	}
	if jsonKind(otherwise) == 'n' {
		otherwise = nil
	}
	switch kind := jsonKind(within); {
	case (within == nil || kind == 'n') && otherwise != nil:
		return nil, ifUnanswered, "needs " + answerWithin + `, such as "72h"`
	case within == nil || kind == 'n':
		return nil, "", ""
	case kind != '"':
		return nil, answerWithin, "is " + templateValueKind(within) + `; want a duration such as "72h"`
	}
	text, _ := jsonString(within)
	switch limit, err := parseDuration(text); {
	case err != nil:
		return nil, answerWithin, fmt.Sprintf("%s: %v", clippedText(strconv.Quote(text)), err)
	case limit < time.Second:
		return nil, answerWithin, fmt.Sprintf("%s is too short; want at least 1s", clippedText(strconv.Quote(text)))
	default:
		return &answerRule{text, limit, otherwise}, "", ""
	}
}

// The members of handler.initialization that answerRuleOf reads.
const (
	answerWithin = "answer_within"
	ifUnanswered = "if_unanswered"
)

func (s *stepForm) handlerPlaces() []place {
	return []place{
		{"callable", &s.callable},
		{"method", &s.method},
		{"resolver", &s.resolver},
		{"initialization", &s.config},
	}
}

// appendHanded appends a handler with its callable, redacted, and with the method and the
// resolver that the template gives.
func appendHanded(dst []byte, s *stepTemplate) []byte {
	o := jsonWriter{b: append(dst, '{')}
	o.text("callable", s.shown)
	if s.method != "" {
		o.text("method", s.method)
	}
	if s.resolver != nil {
		o.text("resolver", *s.resolver)
	}
	return append(o.b, '}')
}

func checkObject(data []byte) error {
	if data[0] != '{' {
		return fmt.Errorf("%s where an object is expected", templateValueKind(data))
	}
	return nil
}

func (b *batchPolicy) places() []place {
	return []place{{"parallelism", &b.parallelism}, {"failure_strategy", &b.failureStrategy}}
}

// Reading the normalized form back.

// place is where a member of an object goes: a *[]byte gets its text, a function reads it, and any
// other pointer is for encoding/json.
type place struct {
	name string
	at   any
}

// readForm reads an object, or null, from valid JSON. Reading all of it with encoding/json would read
// "Name" as "name" and scan the dependencies of a dense graph four times.
func readForm(data []byte, places []place) (err error) {
	if kind := jsonKind(data); kind != '{' && kind != 'n' {
		return checkObject(data)
	}
	for key, value := range jsonMemberBytes(data) {
		i := slices.IndexFunc(places, func(p place) bool { return p.name == string(key) })
		if i < 0 {
			continue
		}
		switch at := places[i].at.(type) {
		case *[]byte:
			*at = value
		case func([]byte) error:
			err = at(value)
		default:
			err = json.Unmarshal(value, at)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}
