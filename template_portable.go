package main

// What Tasker, the distributed service with the same API, makes of a template and of a task's context:
// what it refuses, and what it ignores or changes. Each rule was tried with it.

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// portableRule is a rule for the values at some paths of a definition, as it is written.
type portableRule struct {
	at      string                    // paths without indexes; * is an environment
	refused bool                      // the template or its tasks are refused; else something is ignored or changed
	finds   func(value []byte) string // what is wrong; "" for nothing
	fix     func(value []byte) []byte // what to write instead, nil to leave it out; a nil function if nothing helps
}

var portableRules = []portableRule{
	{"", true, lacks("namespace_name", "namespace"), nil},
	{"", true, lacks("steps"), nil},
	{"namespace", true, says("is not read there; write namespace_name"), nil}, // portableForm renames it
	{"name", true, longer(64), nil},
	{"version", true, longer(16), nil},
	{"description", true, longer(255), nil},
	{"steps[].name", true, longer(128), nil},
	{"steps", true, emptyList, nil},
	{"steps[]", true, decidesFirst, nil},
	{"steps[].dependencies steps[].depends_on", true, namesTwice, withoutRepeats},
	{"steps steps[].type steps[].step_type steps[].dependencies steps[].depends_on steps[].retry " +
		"steps[].publishes_events steps[].publishes_events[].condition steps[].publishes_events[].delivery_mode " +
		"steps[].handler.initialization " +
		"steps[].retry.retryable steps[].retry.max_attempts steps[].retry.backoff metadata.tags system_dependencies " +
		"system_dependencies.secondary domain_events environments environments.* environments.*.steps " +
		"environments.*.steps[].retry.retryable environments.*.steps[].retry.max_attempts " +
		"environments.*.steps[].retry.backoff",
		true, isNull, leaveOut},
	{"namespace_name system_dependencies.primary lifecycle.staleness_action", false, isNull, leaveOut}, // the text "null"
	{"steps[].timeout_seconds steps[].retry.max_attempts steps[].retry.backoff_base_ms steps[].retry.max_backoff_ms " +
		"steps[].batch_config.batch_size steps[].batch_config.parallelism " +
		"lifecycle.max_duration_minutes lifecycle.max_waiting_for_dependencies_minutes " +
		"lifecycle.max_waiting_for_retry_minutes lifecycle.max_steps_in_process_minutes " +
		"environments.*.steps[].timeout_seconds environments.*.steps[].retry.max_attempts " +
		"environments.*.steps[].retry.backoff_base_ms environments.*.steps[].retry.max_backoff_ms",
		true, hasPoint, withoutPoint},
	{"identity_strategy", false, otherStrategy, nil},
	{"default_context environments search task_handler steps[].composition", false, hasNoEffect, nil},
	{"metadata", false, ownMetadata, nil},
	{"steps[]", false, lacksBatches, nil},
	{"steps[].handler.callable", false, runHere, nil},
}

// portableRulesAt returns the rules by path.
var portableRulesAt = sync.OnceValue(func() map[string][]*portableRule {
	byPath := map[string][]*portableRule{}
	for i := range portableRules {
		for _, at := range strings.Split(portableRules[i].at, " ") {
			byPath[at] = append(byPath[at], &portableRules[i])
		}
	}
	return byPath
})

func says(text string) func([]byte) string { return func([]byte) string { return text } }

// lacks is the rule for an object that must have a member under one of its names.
func lacks(names ...string) func([]byte) string {
	return func(object []byte) string {
		for _, name := range names {
			if objectMember(object, name) != nil {
				return ""
			}
		}
		return "has no " + names[0]
	}
}

func longer(most int) func([]byte) string {
	return func(value []byte) string {
		text, _ := jsonString(value)
		if n := utf8.RuneCountInString(text); n > most {
			return fmt.Sprintf("has %d characters, more than the %d there", n, most)
		}
		return ""
	}
}

func emptyList(value []byte) string {
	return pick(jsonKind(value) == '[' && len(templateElements(value)) == 0, "is empty", "")
}

// dependencies returns the names that a step depends on.
func dependencies(step []byte) [][]byte {
	return slices.Concat(
		templateElements(objectMember(step, "dependencies")), templateElements(objectMember(step, "depends_on")))
}

func isOfType(step []byte, kind string) bool {
	return templateText(step, "type") == kind || templateText(step, "step_type") == kind
}

func decidesFirst(step []byte) string {
	return pick(isOfType(step, stepDecision) && len(dependencies(step)) == 0, "is a decision without a dependency", "")
}

func lacksBatches(step []byte) string {
	lacking := isOfType(step, stepBatchWorker) && jsonKind(objectMember(step, "batch_config")) != '{'
	return pick(lacking, "is a batch_worker without a batch_config, of which no instance is made there", "")
}

func namesTwice(list []byte) string {
	return pick(len(templateElements(list)) > len(templateElements(withoutRepeats(list))), "names a step twice", "")
}

func withoutRepeats(list []byte) []byte {
	var kept [][]byte
	seen := map[string]bool{}
	for _, v := range templateElements(list) {
		if !seen[string(v)] {
			seen[string(v)], kept = true, append(kept, v)
		}
	}
	return templateListJSON(kept)
}

func isNull(value []byte) string {
	return pick(jsonKind(value) == 'n', "is null, which does not count as absent there; leave it out", "")
}

func leaveOut([]byte) []byte { return nil }

func hasPoint(value []byte) string {
	if n, fits, _ := nearestInt(value); fits && bytes.ContainsAny(value, ".eE") {
		return fmt.Sprintf("%s is not taken for an integer there; write %d", clippedText(string(value)), n)
	}
	return ""
}

func withoutPoint(value []byte) []byte {
	n, _, _ := nearestInt(value)
	return strconv.AppendInt(nil, n, 10)
}

func otherStrategy(value []byte) string {
	text, isText := jsonString(value)
	return pick(isText && text != string(strategyStrict), "is ignored there; every template is strict", "")
}

func hasNoEffect(value []byte) string {
	empty := jsonKind(value) == 'n' || len(value) == len("{}")
	return pick(empty, "", "has no effect there")
}

func ownMetadata(value []byte) string {
	var own []string
	for _, m := range templateMembers(value) {
		if !slices.Contains(strings.Fields("author tags documentation_url created_at updated_at"), m.key) {
			own = append(own, clippedText(m.key))
		}
	}
	return pick(own == nil, "", "is kept there without "+strings.Join(own, ", "))
}

func runHere(value []byte) string {
	text, _ := jsonString(value)
	for _, prefix := range []string{"builtin:", "exec:", "http://", "https://"} {
		if strings.HasPrefix(text, prefix) {
			return "only Stepwell runs " + prefix + " itself; there, the step fails unless a worker has a handler of this name"
		}
	}
	return ""
}

// portableNumber returns what is wrong with a number, wherever it is in a definition or a context; "" for other values.
func portableNumber(value []byte) string {
	if jsonKind(value) != '0' || tomlNumber(value) {
		return ""
	}
	if _, err := strconv.ParseUint(string(value), 10, 64); err == nil {
		return ""
	}
	return clippedText(string(value)) + " has more digits or a larger exponent than numbers have there"
}

// portability adds a problem for each thing that is refused in a definition, and a warning for each that
// is ignored or changed. A path is also given without indexes.
func (r *templateReader) portability(path, at string, value []byte) {
	for _, rule := range portableRulesAt()[at] {
		r.unportable(path, rule.finds(value), rule.refused)
	}
	r.unportable(path, portableNumber(value), !bytes.ContainsAny(value, ".eE")) // other numbers are rounded
	for _, m := range templateMembers(value) {
		r.portability(templateMemberPath(path, m.key), portablePath(at, m.key), m.value)
	}
	for i, v := range templateElements(value) {
		r.portability(templateItemPath(path, i), at+"[]", v)
	}
}

func (r *templateReader) unportable(path, fault string, refused bool) {
	switch {
	case fault == "":
	case refused:
		r.problem(path, "not portable: %s", fault)
	default:
		r.warn(path, "not portable: %s", fault)
	}
}

// portablePath returns the path of a member as rules have it.
func portablePath(at, key string) string {
	switch at {
	case "":
		return key
	case "environments":
		key = "*"
	}
	return at + "." + key
}

// portableText checks what is only in the text of a definition: its format, and YAML that is read otherwise.
func (r *templateReader) portableText(data []byte, format string) {
	switch {
	case r.file == "":
	case format != "yaml":
		r.warn("", "not portable: only YAML is read there: stepwell template convert --portable")
	case bytes.HasPrefix(data, []byte("\ufeff")):
		r.problem("", "not portable: begins with a byte order mark")
	}
	if format == "yaml" {
		if root, _, err := readYAML(data); err == nil {
			r.portableYAML(root, "")
		}
	}
}

// yamlNumbersThere are plain scalars that one reader takes for a number and another for a text.
var yamlNumbersThere = compiled(`^[-+]?(0[0-9]+|0b[01]+)$`)

func (r *templateReader) portableYAML(node *yamlNode, path string) {
	if node.merges {
		r.unportable(path, "has <<, which is a member like any other there", !strings.Contains(path, ".initialization"))
	}
	if node.plain && yamlNumbersThere().MatchString(node.text) {
		r.unportable(path, clippedText(node.text)+" is read otherwise there; write it in quotes or as a plain number", false)
	}
	for i, item := range node.items {
		r.portableYAML(item, templateItemPath(path, i))
	}
	for _, m := range node.members {
		r.portableYAML(m.value, templateMemberPath(path, m.key))
	}
}

// portableForm rewrites a definition, or a part of it, so that Tasker accepts it without changes; nil leaves it out. It
// remains the same template.
func portableForm(at string, value []byte) []byte {
	for _, rule := range portableRulesAt()[at] {
		if rule.fix != nil && rule.finds(value) != "" {
			if value = rule.fix(value); value == nil {
				return nil
			}
		}
	}
	switch jsonKind(value) {
	case '[':
		items := templateElements(value)
		for i := range items {
			items[i] = portableForm(at+"[]", items[i])
		}
		return templateListJSON(items)
	case '{':
		var kept templateObject
		for _, m := range templateMembers(value) {
			if at == "" && m.key == "namespace" {
				m.key = "namespace_name"
			}
			if m.value = portableForm(portablePath(at, m.key), m.value); m.value != nil {
				kept = append(kept, m)
			}
		}
		if at == "" && kept.value("namespace_name") == nil {
			kept = append(kept, templateMember{"namespace_name", []byte(`"default"`)})
		}
		return kept.json()
	}
	return value
}

// Contexts of tasks.

// The limits of Tasker.
const (
	portableText     = 128 // of initiator, source_system and reason, in characters
	portableDepth    = 10
	portableLength   = 10_000  // of a text, in bytes
	portableMembers  = 1000    // of an object or a list
	portableBytes    = 1 << 20 // of a context
	portableProblems = 10      // how many problems of a task are named
)

// portableContext returns what Tasker refuses, drops or changes in a context, by JSON Pointers
// below a path.
func portableContext(path string, context []byte) inputProblems {
	c := contextCheck{}
	if len(context) > portableBytes {
		c.complain(path, "is refused there: it has more than %d bytes", portableBytes)
	}
	c.value(path, 0, context)
	return c.problems
}

// contextCheck collects what is wrong with a context.
type contextCheck struct{ problems inputProblems }

func (c *contextCheck) complain(path, format string, args ...any) {
	if len(c.problems) < portableProblems {
		c.problems = append(c.problems, inputProblem{Field: path, Message: "not portable: " + fmt.Sprintf(format, args...)})
	}
}

func (c *contextCheck) value(path string, depth int, value []byte) {
	if depth > portableDepth {
		c.complain(path, "is refused there: it is deeper than %d levels", portableDepth)
		return
	}
	if fault := portableNumber(value); fault != "" {
		c.complain(path, "%s", fault)
	}
	n := 0
	each := func(key string, v []byte) bool {
		if n++; n > portableMembers {
			c.complain(path, "is refused there: it has more than %d members", portableMembers)
			return false
		}
		c.value(path+"/"+pointerEscaper.Replace(key), depth+1, v)
		return len(c.problems) < portableProblems
	}
	switch jsonKind(value) {
	case '{':
		eachMember(value, func(key string, v []byte) bool {
			c.key(path, key)
			return each(key, v)
		})
	case '[':
		eachElement(value, func(v []byte) bool { return each(strconv.Itoa(n), v) })
	case '"':
		c.text(path, value)
	}
}

// key checks the name of a member.
func (c *contextCheck) key(path, key string) {
	lower := strings.ToLower(key)
	if strings.HasPrefix(lower, "on") || slices.Contains([]string{"script", "eval", "function"}, lower) {
		c.complain(path+"/"+pointerEscaper.Replace(clippedText(key)), "is dropped there for its name")
	}
	if len(key) > portableLength {
		c.complain(path, "is refused there for the name of a member")
	}
}

// rewrittenTexts are the parts of a text that are replaced.
var rewrittenTexts = []string{"<script>", "</script>", "javascript:", "data:text/html"}

func (c *contextCheck) text(path string, value []byte) {
	text, _ := jsonString(value)
	if len(text) > portableLength {
		c.complain(path, "is refused there: it has more than %d bytes", portableLength)
	}
	for _, part := range rewrittenTexts {
		if strings.Contains(text, part) {
			c.complain(path, "is changed there for %s", part)
		}
	}
}
