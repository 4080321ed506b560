package main

// Reading a template definition: it is checked against tables of fields and written in its
// normalized form. Every problem is reported with its path, and with its place in the file.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parseTemplate reads a definition in a format, json, toml or yaml, and resolves it for an environment ("": no
// overrides). It returns a template, or all problems. Problems and warnings name their places in the file, which is not
// read; "" is no file. The rules may be nil.
func parseTemplate(
	file string, data []byte, format, env string, rules *templateRules,
) (*template, inputProblems, []string) {
	r := &templateReader{file: file, blamed: map[string]bool{}, spelling: map[string]string{}}
	if rules != nil {
		r.rules = *rules
	}
	t := r.template(data, format, env)
	for n, list := range []*inputProblems{&r.problems, &r.warnings} {
		if r.unnamed[n] > 0 {
			*list = append(*list, inputProblem{Message: fmt.Sprintf("and %d more", r.unnamed[n])})
		}
	}
	r.locate(r.problems, r.warnings)
	var warnings []string
	for _, w := range r.warnings {
		warnings = append(warnings, w.String())
	}
	return t, r.problems, warnings
}

// templateRules holds the rules for definitions that the configuration sets, and the budget for reading one.
type templateRules struct {
	callable func(callable string) error // what is wrong with the callable of a step; nil accepts all
	unrun    func(callable string) bool  // reports whether no handler runs a callable, for warnings; nil gives none
	schemas  schemaRule
	passed   func(file, why string) // told of the files of a directory that are not read; nil tells nobody
	known    map[string]bool        // files that were templates, and must still be if they exist
	budget   *budget                // of the request that the definition is from; nil for a file
	bounded  bool                   // the file may be anybody's: its schemas have the budget of a request
}

// schemaRule says what to do with a schema that cannot be enforced.
type schemaRule int

const (
	schemasKept    schemaRule = iota // they are not looked at
	schemasTold                      // a warning
	schemasRefused                   // a problem
)

// templateReader reads one definition and collects what is wrong with it.
type templateReader struct {
	file     string
	text     definitionText
	rules    templateRules
	problems inputProblems
	warnings inputProblems
	blamed   map[string]bool   // paths that have a problem
	spelling map[string]string // the path of a field given by an alias: its path with the alias
	unnamed  [2]int            // how many problems and warnings are not listed
}

// problem adds the first problem at a path. Further ones mostly follow from it.
func (r *templateReader) problem(path, format string, args ...any) {
	if !r.blamed[path] && r.names(r.problems, &r.unnamed[0]) {
		r.blamed[path] = true
		r.problems = append(r.problems, inputProblem{Field: path, Message: fmt.Sprintf(format, args...)})
	}
}

func (r *templateReader) warn(path, format string, args ...any) {
	if r.names(r.warnings, &r.unnamed[1]) {
		r.warnings = append(r.warnings, inputProblem{Field: path, Message: fmt.Sprintf(format, args...)})
	}
}

// names reports whether there is room for another problem or warning: a request gets a limited number. It counts those
// that are left out.
func (r *templateReader) names(list inputProblems, unnamed *int) bool {
	named := r.rules.budget == nil || len(list) < maxProblems-1
	if !named {
		*unnamed++
	}
	return named
}

// take takes memory of the budget, and reports whether to continue.
func (r *templateReader) take(n int, path string) bool {
	return r.rules.budget.take(n, path, "the template")
}

// template returns the template, or nil if there are problems.
func (r *templateReader) template(data []byte, format, env string) *template {
	// An estimate, taken before anything is copied: afterwards it would be too late.
	if !r.take(textCopies*len(data)+urlBytes*bytes.Count(data, []byte("://")), "") {
		return nil
	}
	definition := r.definition(data, format)
	if definition == nil {
		return nil
	}
	normal := readTemplate(r, "", definition)
	if r.rules.budget.ended() {
		return nil
	}
	normal = r.resolve(normal, env)
	if len(r.problems) > 0 || r.rules.budget.ended() {
		return nil
	}
	t, err := templateFromNormalized(normal)
	if err != nil {
		r.problem("", "normalized template: %v", err)
		return nil
	}
	r.checkWorkers(t)
	if r.checkSchemas(t); len(r.problems) > 0 {
		return nil
	}
	return t
}

// checkSchemas looks for schemas that cannot be enforced. It compiles those of a request in any
// case, because later nothing would bound that.
func (r *templateReader) checkSchemas(t *template) {
	budget := r.rules.budget
	if r.rules.bounded {
		budget = newLocalBudget()
		defer budget.end()
		defer func() {
			if f, ok := errors.AsType[*failure](budget.err); ok {
				for _, p := range f.details {
					r.problem(p.Field, "%s", p.Message)
				}
			}
		}()
	}
	r.checkAnswers(t, budget)
	for _, s := range t.schemas() {
		if r.rules.schemas == schemasKept && budget == nil {
			return
		}
		schema := s.schemaWithin(budget)
		if r.rules.schemas == schemasKept {
			continue
		}
		for _, p := range schema.problems {
			if r.rules.schemas == schemasRefused {
				r.problem(p.Field, "%s", p.Message)
			} else {
				r.warn(p.Field, "%s; the schema cannot be enforced", p.Message)
			}
		}
	}
}

// checkAnswers looks for deadlines that mean nothing, and for results of unanswered steps that do not fit.
func (r *templateReader) checkAnswers(t *template, budget *budget) {
	for i := range t.steps {
		s, path := &t.steps[i], templateItemPath("steps", i)+".handler.initialization."
		if prefix, _ := cutHandlerPrefix(s.callable); prefix != "" && objectMember(s.config, answerWithin) != nil {
			r.warn(path+answerWithin, "has no effect, because the callable names a handler (%s); timeout_seconds limits each attempt", prefix)
		}
		if _, member, problem := answerRuleOf(s.callable, s.config); problem != "" {
			r.problem(path+member, "%s", problem)
		}
		if s.answer == nil || s.answer.otherwise == nil || s.result == nil {
			continue
		}
		if schema := s.result.schemaWithin(budget); len(schema.problems) == 0 {
			if wrong := schema.check(cmp.Or(budget, newOwnBudget(nil)), s.answer.otherwise); len(wrong) > 0 {
				r.problem(path+ifUnanswered, "does not fit result_schema: %s", wrong)
			}
		}
	}
}

// schemas returns the schemas that can be enforced.
func (t *template) schemas() (all []*schemaSource) {
	if t.input != nil {
		all = append(all, t.input)
	}
	for i := range t.steps {
		if s := t.steps[i].result; s != nil {
			all = append(all, s)
		}
		for _, p := range t.steps[i].publishes {
			if p.payload != nil {
				all = append(all, p.payload)
			}
		}
	}
	return all
}

// templateRule checks the value at path, which is compact JSON, and returns its
// normalized form. It returns null if it adds a problem.
type templateRule func(r *templateReader, path string, data []byte) []byte

// templateField is one field of an object. A null field counts as absent.
type templateField struct {
	name     string // in the normalized form
	alias    string // another name for it, or ""
	value    templateRule
	required bool
	absent   string // the default: JSON that value reads, or null; "" for no such member
}

var templateNullJSON = []byte("null")

// valueOf is the rule for a value of a kind that follows a rule.
func valueOf(kind string, rule templateRule) templateRule {
	return func(r *templateReader, path string, data []byte) []byte {
		if got := templateValueKind(data); got != kind {
			r.problem(path, "is %s; want %s", got, kind)
			return templateNullJSON
		}
		return rule(r, path, data)
	}
}

// anyValue is the rule that accepts every value.
func anyValue(_ *templateReader, _ string, data []byte) []byte { return canonicalJSON(nil, data) }

var (
	freeObject = valueOf("an object", anyValue)
	boolValue  = valueOf("true or false", anyValue)
	nameValue  = textOf(1, maxNameLength, checkNameText)
)

// objectOf is the rule for an object with the given fields. Others are kept after them, sorted, with a warning.
func objectOf(fields ...templateField) templateRule {
	return valueOf("an object", func(r *templateReader, path string, data []byte) []byte {
		return r.object(path, data, fields, false)
	})
}

// openObjectOf is objectOf without the warning.
func openObjectOf(fields ...templateField) templateRule {
	return valueOf("an object", func(r *templateReader, path string, data []byte) []byte {
		return r.object(path, data, fields, true)
	})
}

func (r *templateReader) object(path string, data []byte, fields []templateField, open bool) []byte {
	given, others := r.assign(path, data, fields)
	var members templateObject
	for i, f := range fields {
		if !r.take(fieldBytes, path) {
			return templateNullJSON
		}
		if v := r.field(path, f, given[i]); v != nil {
			members = append(members, templateMember{f.name, v})
		}
	}
	// The hash of a template must not depend on how its file orders them.
	others.sort()
	for _, m := range others {
		if !open {
			r.warn(templateMemberPath(path, m.key), "unknown field, kept as it is%s", fieldHint{m.key, fields})
		}
		members = append(members, templateMember{m.key, canonicalJSON(nil, m.value)})
	}
	return members.json()
}

// What parts of a definition take, in bytes.
const (
	textCopies  = 4    // of the whole text
	urlBytes    = 64   // of a URL, which its redacted copies make longer
	fieldBytes  = 40   // of an object: its normalized form
	memberBytes = 96   // of an object, and the item of a list
	draftBytes  = 1000 // of a step while it is resolved, and as it is kept
)

// assign finds the member for each field, the zero member if there is none, and the members that are not fields.
func (r *templateReader) assign(
	path string, data []byte, fields []templateField,
) (given, others templateObject) {
	given = make(templateObject, len(fields))
	for _, m := range membersWithin(r.rules.budget, path, data) {
		i := slices.IndexFunc(fields, func(f templateField) bool { return m.key == f.name || m.key == f.alias })
		switch {
		case i < 0 || m.key == "":
			others = append(others, m)
		// Null means absent, so it does not make a field given twice.
		case jsonKind(m.value) == 'n':
		case given[i].value != nil:
			r.problem(templateMemberPath(path, m.key), "is given twice, also as %s", given[i].key)
		default:
			given[i] = m
		}
	}
	return given, others
}

// field returns the normalized value of a field, or nil to leave it out.
func (r *templateReader) field(path string, f templateField, m templateMember) []byte {
	at := templateMemberPath(path, f.name)
	switch {
	case m.value != nil:
		// Problems name a field as its author wrote it.
		if spelled := templateMemberPath(path, m.key); spelled != at {
			r.spelling[at] = spelled
			at = spelled
		}
		return f.value(r, at, m.value)
	case f.required:
		r.problem(at, "is required")
		return templateNullJSON
	case f.absent == "":
		return nil
	case f.absent == "null":
		return templateNullJSON
	}
	// A default goes through the rule too: {} gets the defaults of its own fields.
	return f.value(r, at, []byte(f.absent))
}

// spelled returns the path of a field as the definition spells it.
func (r *templateReader) spelled(path string) string { return cmp.Or(r.spelling[path], path) }

func listOf(item templateRule) templateRule {
	return valueOf("a list", func(r *templateReader, path string, data []byte) []byte {
		n := jsonLength(data)
		if !r.take(n*memberBytes, path) {
			return templateNullJSON
		}
		items := make([][]byte, 0, n)
		for v := range jsonElements(data) {
			items = append(items, item(r, templateItemPath(path, len(items)), v))
			// Items take from the budget as well; once it has ended, there is no point in reading more.
			if !r.take(0, path) {
				break
			}
		}
		return templateListJSON(items)
	})
}

// mapOf is the rule for an object with any keys, whose values follow a rule. It sorts the keys.
func mapOf(value templateRule) templateRule {
	return valueOf("an object", func(r *templateReader, path string, data []byte) []byte {
		var members templateObject
		for _, m := range membersWithin(r.rules.budget, path, data) {
			if jsonKind(m.value) != 'n' {
				v := value(r, templateMemberPath(path, m.key), m.value)
				members = append(members, templateMember{m.key, v})
			}
		}
		members.sort()
		return members.json()
	})
}

// textOf is the rule for a string of least to most characters that passes the checks; most 0 means any length.
func textOf(least, most int, checks ...func(r *templateReader, path, s string)) templateRule {
	return valueOf("a string", func(r *templateReader, path string, data []byte) []byte {
		s, _ := jsonString(data)
		switch n := utf8.RuneCountInString(s); {
		case n < least:
			r.problem(path, "is empty")
		case most > 0 && n > most:
			r.problem(path, "has %d characters; want at most %d", n, most)
		}
		for _, check := range checks {
			check(r, path, s)
		}
		return appendJSONString(nil, s)
	})
}

func wordOf(words ...string) templateRule {
	return textOf(0, 0, func(r *templateReader, path, s string) {
		if !slices.Contains(words, s) {
			field := path[strings.LastIndexByte(path, '.')+1:]
			r.problem(path, "unknown %s %s; want %s%s", field, clippedText(strconv.Quote(s)), anyOf(words), wordHints[field])
		}
	})
}

// wordHints says, for a field with an unknown word, how to get what has no word.
var wordHints = map[string]string{"backoff": "; for waits of equal length, linear with max_backoff_ms equal to backoff_base_ms"}

// integerOf is the rule for an integer from least to most.
func integerOf(least, most int64) templateRule { return usualIntegerOf(least, most, least) }

// usualIntegerOf is integerOf with a warning below low.
func usualIntegerOf(least, most, low int64) templateRule {
	return valueOf("a number", func(r *templateReader, path string, data []byte) []byte {
		text := clippedText(string(data))
		n, _, ok := nearestInt(data)
		if !ok {
			r.problem(path, "%s is not an integer", text)
			return templateNullJSON
		}
		switch {
		case n < least:
			r.problem(path, "%s is below %d", text, least)
		case n > most:
			r.problem(path, "%s is above %d", text, most)
		case n < low:
			r.warn(path, "%d is unusual, below %d", n, low)
		}
		return strconv.AppendInt(nil, n, 10)
	})
}

func templateValueKind(data []byte) string {
	switch data[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

// fieldHint suggests, as text, the field that an unknown key probably means. It is only computed for warnings that are
// listed.
type fieldHint struct {
	key    string
	fields []templateField
}

func (h fieldHint) String() string {
	for _, f := range h.fields {
		if typoDistance(strings.ToLower(h.key), f.name, typoLimit(h.key)) <= typoLimit(h.key) {
			return " (did you mean " + f.name + "?)"
		}
	}
	return ""
}

// The fields of a template as tables, and the rules for their values.

// The limits of numbers.
const (
	maxBackoffMS      = 7 * 24 * 60 * 60 * 1000
	maxTimeoutSeconds = 1<<31 - 1
)

// The tables of fields, inner objects first. The normalized form has its members in this order.
var (
	retryFields = []templateField{
		{name: "retryable", value: boolValue, absent: "true"},
		{name: "max_attempts", value: attemptsValue, absent: "3"},
		{name: "backoff", value: wordOf("none", "linear", "exponential", "fibonacci"), absent: `"exponential"`},
		{name: "backoff_base_ms", value: usualIntegerOf(0, maxBackoffMS, 100), absent: "1000"},
		{name: "max_backoff_ms", value: usualIntegerOf(0, maxBackoffMS, 1000), absent: "30000"},
	}
	handlerFields = []templateField{
		{name: "callable", value: textOf(1, 500, checkCallableText), required: true},
		{name: "method", value: textOf(0, 0)},
		{name: "resolver", value: textOf(0, 0), absent: "null"},
		{name: "initialization", value: freeObject, absent: "{}"},
	}
	batchFields = []templateField{
		{name: "batch_size", value: integerOf(1, 1<<31-1), required: true},
		{name: "parallelism", value: integerOf(1, 1<<31-1), required: true},
		{name: "cursor_field", value: textOf(1, 0), required: true},
		{name: "worker_template", value: nameValue, required: true},
		{name: "failure_strategy", value: wordOf(batchContinue, batchFailFast, batchIsolate), required: true},
	}
	publishedEventFields = []templateField{
		{name: "name", value: textOf(1, 0, checkNameText), required: true},
		{name: "description", value: textOf(0, 0), required: true},
		{name: "schema", value: freeObject, required: true},
		{name: "condition", value: wordOf("success", "failure", "retryable_failure", "permanent_failure", "always")},
		{name: "delivery_mode", value: wordOf("durable", "fast", "broadcast")},
		{name: "publisher", value: textOf(1, 0)},
	}
	stepFields = []templateField{
		{name: "name", value: nameValue, required: true},
		{name: "description", value: textOf(0, 0), absent: "null"},
		{name: "type", alias: "step_type", value: wordOf(stepStandard, stepDecision, stepDeferredConvergence,
			stepBatchable, stepBatchWorker), absent: `"standard"`},
		{name: "handler", value: objectOf(handlerFields...), required: true},
		{name: "dependencies", alias: "depends_on", value: listOf(nameValue), absent: "[]"},
		{name: "retry", value: objectOf(retryFields...), absent: "{}"},
		{name: "timeout_seconds", value: integerOf(1, maxTimeoutSeconds), absent: "30"},
		{name: "result_schema", value: freeObject},
		{name: "system_dependency", value: textOf(0, 0), absent: "null"},
		{name: "publishes_events", value: listOf(objectOf(publishedEventFields...)), absent: "[]"},
		{name: "batch_config", value: objectOf(batchFields...), absent: "null"},
		{name: "composition", value: anyValue},
	}
	overrideFields = []templateField{
		{name: "name", value: nameValue, required: true},
		{name: "handler", value: objectOf(templateField{name: "initialization", value: freeObject})},
		{name: "timeout_seconds", value: integerOf(1, maxTimeoutSeconds)},
		{name: "retry", value: objectOf(retryFields...)},
	}
	environmentFields = []templateField{
		{name: "steps", value: listOf(objectOf(overrideFields...)), absent: "[]"},
	}
	lifecycleMinutes = integerOf(1, maxLifecycleMinutes)
	lifecycleFields  = []templateField{
		{name: "max_duration_minutes", value: lifecycleMinutes},
		{name: "max_waiting_for_dependencies_minutes", value: lifecycleMinutes},
		{name: "max_waiting_for_retry_minutes", value: lifecycleMinutes},
		{name: "max_steps_in_process_minutes", value: lifecycleMinutes},
		{name: "staleness_action", value: wordOf("dlq", "error", "none")},
	}
	metadataFields = []templateField{
		{name: "author", value: textOf(0, 0)},
		{name: "tags", value: listOf(textOf(0, 0, checkNameText))},
		{name: "documentation_url", value: textOf(0, 0)},
	}
	systemFields = []templateField{
		{name: "primary", value: textOf(1, 0), absent: `"default"`},
		{name: "secondary", value: listOf(textOf(1, 0)), absent: "[]"},
	}
	domainEventFields = []templateField{
		{name: "name", value: textOf(1, 0, checkNameText), required: true},
		{name: "description", value: textOf(0, 0)},
		{name: "schema", value: freeObject},
	}
	templateFields = []templateField{
		{name: "name", value: nameValue, required: true},
		{name: "namespace_name", alias: "namespace", value: textOf(1, 29, checkNameText, checkNamespaceText), absent: `"default"`},
		{name: "version", value: textOf(0, 0, checkVersionText), required: true},
		{name: "description", value: textOf(0, 0), absent: "null"},
		{name: "metadata", value: openObjectOf(metadataFields...), absent: "null"},
		{name: "identity_strategy", value: wordOf("strict", "caller_provided", "always_unique"), absent: `"strict"`},
		{name: "default_context", value: freeObject, absent: "{}"},
		{name: "input_schema", value: freeObject, absent: "null"},
		{name: "search", value: searchValue},
		{name: "lifecycle", value: objectOf(lifecycleFields...), absent: "null"},
		{name: "system_dependencies", value: objectOf(systemFields...), absent: "{}"},
		{name: "domain_events", value: listOf(objectOf(domainEventFields...)), absent: "[]"},
		{name: "task_handler", value: anyValue},
		{name: "environments", value: mapOf(objectOf(environmentFields...)), absent: "{}"},
		{name: "steps", value: listOf(stepValue), absent: "[]"},
	}
	readTemplate = objectOf(templateFields...)
)

func checkNameText(r *templateReader, path, s string) {
	if fault := nameFault(s); fault != "" {
		r.problem(path, "%q %s", clippedText(s), fault)
	}
	if isDots(s) {
		r.problem(path, "%q means a directory in a path, so it must not be a name", s)
	}
}

// namespaceSyntax is the form of a namespace.
var namespaceSyntax = compiled(`^[a-z][a-z0-9_]*$`)

func checkNamespaceText(r *templateReader, path, s string) {
	if !namespaceSyntax().MatchString(s) {
		r.problem(path, "%q must start with a letter and have only a-z, 0-9 and _", clippedText(s))
	}
}

func checkVersionText(r *templateReader, path, s string) {
	if _, ok := parseSemver(s); !ok {
		r.problem(path, "%q is not a semantic version like 1.2.3", clippedText(s))
	}
}

func checkCallableText(r *templateReader, path, s string) {
	if r.rules.callable == nil {
		return
	}
	if err := r.rules.callable(s); err != nil {
		r.problem(path, "%v", err)
	}
}

func attemptsValue(r *templateReader, path string, data []byte) []byte {
	data = integerOf(0, 100)(r, path, data)
	if string(data) == "0" {
		r.warn(path, "0 behaves as 1")
	}
	return data
}

// stepValue is the rule for a step. It warns of a limit on attempts that nothing makes.
func stepValue(r *templateReader, path string, data []byte) []byte {
	handler := objectMember(data, "handler")
	callable := templateText(handler, "callable")
	if r.rules.unrun != nil && objectMember(data, "timeout_seconds") != nil && r.rules.unrun(callable) &&
		objectMember(objectMember(handler, "initialization"), answerWithin) == nil {
		r.warn(path+".timeout_seconds", "does not limit how long the step waits for an answer, because no handler runs %s; "+
			`for a deadline, write handler.initialization.%s: "72h"`, clippedText(strconv.Quote(redactName(callable))), answerWithin)
	}
	return readStep(r, path, data)
}

var readStep = objectOf(stepFields...)

// searchValue is the rule for the paths of a context by which tasks are found.
func searchValue(r *templateReader, path string, data []byte) []byte {
	data = listOf(textOf(1, maxNameLength, checkSearchPath))(r, path, data)
	paths := templateElements(data)
	if len(paths) > maxSearchPaths {
		r.problem(path, "has %d paths; want at most %d", len(paths), maxSearchPaths)
		paths = paths[:maxSearchPaths] // comparing each with all others would take long
	}
	for i, p := range paths {
		if slices.ContainsFunc(paths[:i], func(earlier []byte) bool { return bytes.Equal(earlier, p) }) {
			r.problem(templateItemPath(path, i), "repeats %s", clippedText(string(p)))
		}
	}
	return data
}

// searchPathSyntax is the form of a path: names of members, with dots between them.
var searchPathSyntax = compiled(`^[^.=\s\pC]+(\.[^.=\s\pC]+)*$`)

func checkSearchPath(r *templateReader, path, s string) {
	if !searchPathSyntax().MatchString(s) {
		r.problem(path, "%q must be names of members with dots between them, like customer.email", clippedText(s))
	}
}

// JSON objects and lists as members and elements.

// templateObject is the members of an object, in their order.
type templateObject []templateMember

// templateMember is one member of an object, the value as JSON.
type templateMember struct {
	key   string
	value []byte
}

// templateMembers returns the members of an object, or nil for other values.
func templateMembers(data []byte) templateObject { return membersWithin(nil, "", data) }

// membersWithin is templateMembers for what is at a path, up to the end of a budget.
func membersWithin(b *budget, path string, data []byte) (o templateObject) {
	n := pick(jsonKind(data) == '{', jsonLength(data), 0)
	if n == 0 || !b.take(n*memberBytes, path, "the object") {
		return nil
	}
	o = make(templateObject, 0, n)
	for key, value := range jsonMembers(data) {
		o = append(o, templateMember{key, value})
		if !b.take(len(key), path, "the object") {
			break
		}
	}
	return o
}

// value returns the value of a member, or nil if there is none.
func (o templateObject) value(key string) []byte {
	if i := o.index(key); i >= 0 {
		return o[i].value
	}
	return nil
}

// set replaces the value of a member, if it exists.
func (o templateObject) set(key string, value []byte) {
	if i := o.index(key); i >= 0 {
		o[i].value = value
	}
}

func (o templateObject) index(key string) int {
	return slices.IndexFunc(o, func(m templateMember) bool { return m.key == key })
}

func (o templateObject) sort() {
	slices.SortFunc(o, func(a, b templateMember) int { return strings.Compare(a.key, b.key) })
}

func (o templateObject) json() []byte {
	w := jsonWriter{b: []byte{'{'}}
	for _, m := range o {
		w.key(m.key)
		w.b = append(w.b, m.value...)
	}
	return append(w.b, '}')
}

// templateElements returns the elements of a list, or nil for other values.
func templateElements(data []byte) [][]byte { return slices.Collect(jsonElements(data)) }

func templateListJSON(elements [][]byte) []byte {
	return slices.Concat([]byte{'['}, bytes.Join(elements, []byte{','}), []byte{']'})
}

// templateText returns a member of an object if it is a string, else "".
func templateText(object []byte, key string) string {
	text, _ := jsonString(objectMember(object, key))
	return text
}

// templateMemberPath returns the path of a member: a.b, or a["b c"] for an unusual key.
func templateMemberPath(path, key string) string {
	switch {
	case key == "" || len(key) > 60 || strings.ContainsFunc(key, unusualInTemplatePath):
		return path + "[" + clippedText(strconv.Quote(key)) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

func unusualInTemplatePath(c rune) bool {
	return c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}

func templateItemPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// clippedText redacts and shortens a text that a message quotes.
func clippedText(s string) string { return clipText(string(redact([]byte(s))), 80) }
