package main

// The fields of a template as tables, and the rules for single values that only
// templates have. What holds between fields stands in templateresolve.go.

// The limits of numbers.
const (
	maxBackoffMS        = 7 * 24 * 60 * 60 * 1000
	maxTimeoutSeconds   = 1<<31 - 1
	maxLifecycleMinutes = 100_000_000 // 190 years; more overflows a time.Duration
)

// The tables refer to each other, the inner ones first. Their order is the
// order of members in the normalized form.
var (
	retryFields = []templateField{
		{name: "retryable", value: boolValue, absent: "true"},
		{name: "max_attempts", value: attemptsValue, absent: "3"},
		{name: "backoff", value: wordOf("none", "linear", "exponential", "fibonacci"), absent: `"exponential"`},
		{name: "backoff_base_ms", value: usualIntegerOf(0, maxBackoffMS, 100, 3600000), absent: "1000"},
		{name: "max_backoff_ms", value: usualIntegerOf(0, maxBackoffMS, 1000, 3600000), absent: "30000"},
	}
	handlerFields = []templateField{
		{name: "callable", value: callableText, required: true},
		{name: "method", value: textOf(0, 0)},
		{name: "resolver", value: textOf(0, 0), absent: "null"},
		{name: "initialization", value: freeObject, absent: "{}"},
	}
	batchFields = []templateField{
		{name: "batch_size", value: integerOf(1, 1<<31-1), required: true},
		{name: "parallelism", value: integerOf(1, 1<<31-1), required: true},
		{name: "cursor_field", value: textOf(1, 0), required: true},
		{name: "worker_template", value: textOf(1, 255), required: true},
		{name: "failure_strategy", value: wordOf("continue_on_failure", "fail_fast", "isolate"), required: true},
	}
	publishedEventFields = []templateField{
		{name: "name", value: textOf(1, 0), required: true},
		{name: "description", value: textOf(0, 0), required: true},
		{name: "schema", value: freeObject, required: true},
		{name: "condition", value: textOf(1, 0)},
		{name: "delivery_mode", value: textOf(1, 0)},
		{name: "publisher", value: textOf(1, 0)},
	}
	stepFields = []templateField{
		{name: "name", value: textOf(1, 255), required: true},
		{name: "description", value: textOf(0, 0), absent: "null"},
		{name: "type", alias: "step_type", value: wordOf(stepStandard, stepDecision, stepDeferredConvergence,
			stepBatchable, stepBatchWorker), absent: `"standard"`},
		{name: "handler", value: objectOf(handlerFields...), required: true},
		{name: "dependencies", alias: "depends_on", value: listOf(textOf(1, 255)), absent: "[]"},
		{name: "retry", value: objectOf(retryFields...), absent: "{}"},
		{name: "timeout_seconds", value: integerOf(1, maxTimeoutSeconds), absent: "30"},
		{name: "result_schema", value: freeObject},
		{name: "system_dependency", value: textOf(0, 0), absent: "null"},
		{name: "publishes_events", value: listOf(objectOf(publishedEventFields...)), absent: "[]"},
		{name: "batch_config", value: objectOf(batchFields...), absent: "null"},
		{name: "composition", value: anyValue},
	}
	overrideFields = []templateField{
		{name: "name", value: textOf(1, 255), required: true},
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
		{name: "tags", value: listOf(textOf(0, 0))},
		{name: "documentation_url", value: textOf(0, 0)},
	}
	systemFields = []templateField{
		{name: "primary", value: textOf(1, 0), absent: `"default"`},
		{name: "secondary", value: listOf(textOf(1, 0)), absent: "[]"},
	}
	domainEventFields = []templateField{
		{name: "name", value: textOf(1, 0), required: true},
		{name: "description", value: textOf(0, 0)},
		{name: "schema", value: freeObject},
	}
	readTemplate = objectOf([]templateField{
		{name: "name", value: textOf(1, 255), required: true},
		{name: "namespace_name", alias: "namespace", value: namespaceText, absent: `"default"`},
		{name: "version", value: versionText, required: true},
		{name: "description", value: textOf(0, 0), absent: "null"},
		{name: "metadata", value: openObjectOf(metadataFields...), absent: "null"},
		{name: "identity_strategy", value: wordOf("strict", "caller_provided", "always_unique"), absent: `"strict"`},
		{name: "default_context", value: freeObject, absent: "{}"},
		{name: "input_schema", value: freeObject, absent: "null"},
		{name: "lifecycle", value: objectOf(lifecycleFields...), absent: "null"},
		{name: "system_dependencies", value: objectOf(systemFields...), absent: "{}"},
		{name: "domain_events", value: listOf(objectOf(domainEventFields...)), absent: "[]"},
		{name: "task_handler", value: anyValue},
		{name: "environments", value: mapOf(objectOf(environmentFields...)), absent: "{}"},
		{name: "steps", value: listOf(objectOf(stepFields...)), absent: "[]"},
	}...)
)

func namespaceText(r *templateReader, path string, data []byte) []byte {
	data = textOf(1, 29)(r, path, data)
	if s, ok := templateString(data); ok && !isTemplateNamespace(s) {
		r.problem(path, "%q is not made of a-z, 0-9 and _, starting with a letter", clippedText(s))
	}
	return data
}

func isTemplateNamespace(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return s != ""
}

func versionText(r *templateReader, path string, data []byte) []byte {
	s, ok := r.text(path, data)
	if !ok {
		return templateNullJSON
	}
	if _, ok := parseSemver(s); !ok {
		r.problem(path, "%q is no semantic version like 1.2.3", clippedText(s))
	}
	return appendJSONString(nil, s)
}

func callableText(r *templateReader, path string, data []byte) []byte {
	data = textOf(1, 500)(r, path, data)
	if s, ok := templateString(data); ok && r.checkCallable != nil {
		if err := r.checkCallable(s); err != nil {
			r.problem(path, "%v", err)
		}
	}
	return data
}

func attemptsValue(r *templateReader, path string, data []byte) []byte {
	data = integerOf(0, 100)(r, path, data)
	if string(data) == "0" {
		r.warn(path, "0 behaves as 1")
	}
	return data
}
