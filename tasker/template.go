package main

// The commands check and convert: what Tasker makes of a template, which it refuses, or of which it ignores or changes
// something. Each rule was tried with it. The templates are read and written by stepwell.

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// rule is a rule for the values at some paths of a definition, as it is written.
type rule struct {
	at      string                                // paths without indexes; * is an environment
	refused bool                                  // the template or its tasks are refused; else something is ignored or changed
	finds   func(v json.RawMessage) string        // what is wrong; "" for nothing
	fix     func(json.RawMessage) json.RawMessage // what to write instead, nil to leave it out; a nil function if nothing helps
}

var rules = []rule{
	{"", true, when(lacks("namespace_name", "namespace"), "has no namespace_name"), nil}, // portable adds it
	{"", true, when(lacks("steps"), "has no steps"), nil},
	{"namespace", true, when(always, "is not read there; write namespace_name"), nil}, // portable renames it
	{"name", true, longer(64), nil},
	{"version", true, longer(16), nil},
	{"description", true, longer(255), nil},
	{"steps[].name", true, longer(128), nil},
	{"steps", true, when(func(v json.RawMessage) bool { return string(v) == "[]" }, "is empty"), nil},
	{"steps[]", true, when(func(v json.RawMessage) bool {
		return isOfType(v, "decision") && len(elements(at(v, "dependencies")))+len(elements(at(v, "depends_on"))) == 0
	}, "is a decision without a dependency"), nil},
	{"steps[].dependencies steps[].depends_on", true, when(func(v json.RawMessage) bool {
		return len(elements(v)) > len(elements(withoutRepeats(v)))
	}, "names a step twice"), withoutRepeats},
	{"steps steps[].type steps[].step_type steps[].dependencies steps[].depends_on steps[].retry steps[].publishes_events " +
		"steps[].publishes_events[].condition steps[].publishes_events[].delivery_mode steps[].handler.initialization " +
		"steps[].retry.retryable steps[].retry.max_attempts steps[].retry.backoff metadata.tags system_dependencies " +
		"system_dependencies.secondary domain_events environments environments.* environments.*.steps " +
		"environments.*.steps[].retry.retryable environments.*.steps[].retry.max_attempts environments.*.steps[].retry.backoff",
		true, when(isNull, "is null, which does not count as absent there; leave it out"), leaveOut},
	{"namespace_name system_dependencies.primary lifecycle.staleness_action", false, when(isNull, "is read as a text there"), leaveOut},
	{"steps[].timeout_seconds steps[].retry.max_attempts steps[].retry.backoff_base_ms steps[].retry.max_backoff_ms " +
		"steps[].batch_config.batch_size steps[].batch_config.parallelism lifecycle.max_duration_minutes " +
		"lifecycle.max_waiting_for_dependencies_minutes lifecycle.max_waiting_for_retry_minutes " +
		"lifecycle.max_steps_in_process_minutes environments.*.steps[].timeout_seconds " +
		"environments.*.steps[].retry.max_attempts environments.*.steps[].retry.backoff_base_ms " +
		"environments.*.steps[].retry.max_backoff_ms",
		true, hasPoint, withoutPoint},
	{"steps[].retry.backoff steps[].retry.backoff_base_ms steps[].retry.max_backoff_ms", false,
		when(func(v json.RawMessage) bool { return !isNull(v) }, "is ignored there; retries come within a second"), nil},
	{"identity_strategy", false, when(func(v json.RawMessage) bool { return isSet(v) && string(v) != `"strict"` },
		"is ignored there; every template is strict"), nil},
	{"default_context environments search task_handler steps[].composition", false, when(isSet, "has no effect there"), nil},
	{"metadata", false, ownMetadata, nil},
	{"steps[]", false, when(func(v json.RawMessage) bool {
		return isOfType(v, "batch_worker") && members(at(v, "batch_config")) == nil
	}, "is a batch_worker without a batch_config, of which no instance is made there"), nil},
	{"steps[].handler.callable", false, runHere, nil},
}

// when returns the finding of a rule for the values that it concerns.
func when(concerns func(json.RawMessage) bool, what string) func(json.RawMessage) string {
	return func(v json.RawMessage) string {
		if concerns(v) {
			return what
		}
		return ""
	}
}

func always(json.RawMessage) bool              { return true }
func leaveOut(json.RawMessage) json.RawMessage { return nil }
func isSet(v json.RawMessage) bool             { return !isNull(v) && len(v) > len("{}") }
func isOfType(step json.RawMessage, t string) bool {
	return text(step, "type")+text(step, "step_type") == t
}

// lacks reports whether an object has no member under one of some names.
func lacks(names ...string) func(json.RawMessage) bool {
	return func(object json.RawMessage) bool {
		all := members(object)
		return !slices.ContainsFunc(names, func(name string) bool { return all[name] != nil })
	}
}

func longer(most int) func(json.RawMessage) string {
	return func(v json.RawMessage) string {
		var s string
		if json.Unmarshal(v, &s); utf8.RuneCountInString(s) > most {
			return fmt.Sprintf("has %d characters, more than the %d there", utf8.RuneCountInString(s), most)
		}
		return ""
	}
}

// elements returns the elements of a JSON list.
func elements(list json.RawMessage) (all []json.RawMessage) {
	json.Unmarshal(list, &all)
	return all
}

func withoutRepeats(list json.RawMessage) json.RawMessage {
	var kept []json.RawMessage
	for _, v := range elements(list) {
		if !slices.ContainsFunc(kept, func(k json.RawMessage) bool { return bytes.Equal(k, v) }) {
			kept = append(kept, v)
		}
	}
	return encode(kept)
}

func hasPoint(v json.RawMessage) string {
	if n := withoutPoint(v); bytes.ContainsAny(v, ".eE") && n != nil {
		return fmt.Sprintf("%s is not taken for an integer there; write %s", v, n)
	}
	return ""
}

func withoutPoint(v json.RawMessage) json.RawMessage {
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return nil
	}
	return strconv.AppendInt(nil, int64(f), 10)
}

func ownMetadata(v json.RawMessage) string {
	own := slices.DeleteFunc(slices.Sorted(maps.Keys(members(v))), func(name string) bool {
		return slices.Contains(strings.Fields("author tags documentation_url created_at updated_at"), name)
	})
	if len(own) == 0 {
		return ""
	}
	return "is kept there without " + strings.Join(own, ", ")
}

var ownCallables = regexp.MustCompile(`^"(builtin:|exec:|https?://)`)

func runHere(v json.RawMessage) string {
	if m := ownCallables.FindSubmatch(v); m != nil {
		return "only Stepwell runs " + string(m[1]) + " itself; there, the step fails unless a worker has a handler of this name"
	}
	return ""
}

// checker says what is wrong with a template.
type checker struct {
	file     string
	said     []string
	refused  int      // how much Tasker refuses
	handlers []string // callables that have a handler, or prefixes and *
	outside  bool     // callables without a handler are reported
}

func (c *checker) found(path, fault string, refused bool) {
	switch text := strings.ReplaceAll(c.file+": "+path+": "+fault, ": : ", ": "); {
	case fault == "":
	case refused:
		c.said, c.refused = append(c.said, text), c.refused+1
	default:
		c.said = append(c.said, "warning: "+text)
	}
}

// value checks a value by its path, also given without indexes.
func (c *checker) value(path, place string, v json.RawMessage) {
	for _, r := range rules {
		if slices.Contains(strings.Split(r.at, " "), place) {
			c.found(path, r.finds(v), r.refused)
		}
	}
	if place == "steps[].handler.callable" {
		c.callable(path, v)
	}
	if v[0] == '-' || '0' <= v[0] && v[0] <= '9' {
		c.found(path, rounded(string(v)), !bytes.ContainsAny(v, ".eE"))
	}
	all := members(v)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c.value(below(path, name), placeBelow(place, name), all[name])
	}
	for i, item := range elements(v) {
		c.value(fmt.Sprintf("%s[%d]", path, i), place+"[]", item)
	}
}

func below(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func placeBelow(place, name string) string {
	return strings.Replace(below(place, name), "environments."+name, "environments.*", 1)
}

// callable warns of a callable that no handler covers: here, the step waits for somebody.
func (c *checker) callable(path string, v json.RawMessage) {
	name := strings.Trim(string(v), `"`)
	covers := func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
	}
	if c.outside && runHere(v) == "" && !slices.ContainsFunc(c.handlers, covers) {
		c.found(path, name+" has no handler here, so that its step waits for a person or an outside worker; there, "+
			"the step fails unless a worker has a handler of this name", false)
	}
}

// rounded returns what is wrong with a number; "" for nothing.
func rounded(number string) string {
	_, err := strconv.ParseInt(number, 10, 64)
	if _, unsigned := strconv.ParseUint(number, 10, 64); err == nil || unsigned == nil {
		return ""
	}
	f, err := strconv.ParseFloat(number, 64)
	if err == nil && strings.ContainsAny(number, ".eE") && significant(number) == significant(strconv.FormatFloat(f, 'e', -1, 64)) {
		return ""
	}
	return number + " has more digits or a larger exponent than numbers have there"
}

// significant returns the digits of a number without zeros at either end.
func significant(number string) string {
	mantissa, _, _ := strings.Cut(strings.ToLower(number), "e")
	return strings.Trim(strings.NewReplacer("-", "", ".", "").Replace(mantissa), "0")
}

var (
	mergeKey  = regexp.MustCompile(`(?m)(^|[\s{,])<<\s*:`)
	oddNumber = regexp.MustCompile(`(?m)[:,\[-]\s+([-+]?(?:0[0-9]+|0b[01]+))\s*(?:[,}\]#]|$)`)
)

// text checks what is only in the text of a template: its format, and YAML that is read otherwise.
func (c *checker) text(data []byte) {
	if ext := filepath.Ext(c.file); ext != ".yaml" && ext != ".yml" {
		c.found("", "only YAML is read there: tasker convert", false)
		return
	}
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		c.found("", "begins with a byte order mark", true)
	}
	if mergeKey.Match(data) {
		c.found("", "has <<, which is a member like any other there, and refused outside of initialization", false)
	}
	for _, m := range oddNumber.FindAllSubmatch(data, -1) {
		c.found("", string(m[1])+" is read otherwise there; write it in quotes or as a plain number", false)
	}
}

// portable rewrites a definition, or a part of it, so that Tasker accepts it without changes; nil leaves it out.
func portable(place string, v json.RawMessage) json.RawMessage {
	for _, r := range rules {
		if r.fix != nil && slices.Contains(strings.Split(r.at, " "), place) && r.finds(v) != "" {
			if v = r.fix(v); v == nil {
				return nil
			}
		}
	}
	if items := elements(v); len(items) > 0 {
		for i := range items {
			items[i] = portable(place+"[]", items[i])
		}
		return encode(items)
	}
	if v[0] != '{' {
		return v
	}
	// Member by member, because their order stays.
	var kept bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(v))
	for d.Token(); d.More(); {
		key, _ := d.Token()
		var value json.RawMessage
		d.Decode(&value)
		name := key.(string)
		if value = portable(placeBelow(place, name), value); value == nil {
			continue
		}
		if place == "" && name == "namespace" {
			name = "namespace_name"
		}
		fmt.Fprintf(&kept, `,%s:%s`, encode(name), value)
	}
	if place == "" && lacks("namespace_name", "namespace")(v) {
		kept.WriteString(`,"namespace_name":"default"`)
	}
	return json.RawMessage("{" + strings.TrimPrefix(kept.String(), ",") + "}")
}

// check checks the file of a template and returns its definition.
func (p *program) check(ctx context.Context, c *checker) (json.RawMessage, error) {
	data, err := os.ReadFile(c.file)
	if err != nil {
		return nil, failf(exitNotFound, "%v", err)
	}
	definition, err := p.callStepwell(ctx, "template", "convert", "--to", "json", c.file)
	if err == nil {
		c.text(data)
		c.value("", "", definition)
	}
	return bytes.TrimSpace(definition), err
}

func (p *program) checkCommand(flags *flag.FlagSet) func(context.Context, []string) error {
	config := flags.String("config", "", "read the handlers from this configuration `FILE` of stepwell, to warn of callables that none covers")
	return func(ctx context.Context, files []string) error {
		if len(files) == 0 {
			return failf(exitUsage, "check: want files or directories of templates")
		}
		handlers, err := p.handlers(ctx, *config)
		if err != nil {
			return err
		}
		refused := 0
		for _, file := range inDirectories(files) {
			c := &checker{file: file, handlers: handlers, outside: true}
			if _, err := p.check(ctx, c); err != nil {
				return err
			}
			for _, text := range c.said {
				p.say("%s", text)
			}
			refused += min(c.refused, 1)
		}
		if refused > 0 {
			return failf(exitFailed, "Tasker refuses %s; tasker convert fixes what it can", counted(refused, "template", "templates"))
		}
		return nil
	}
}

// handlers returns the callables that the configuration of stepwell has a handler for.
func (p *program) handlers(ctx context.Context, config string) (all []string, err error) {
	args := []string{"config", "show", "-o", "json"}
	if config != "" {
		args = append(args, "--config", config)
	}
	text, err := p.callStepwell(ctx, args...)
	var keys []struct {
		Key, Entry string
		Value      json.RawMessage
	}
	if err == nil {
		err = decode(text, &keys)
	}
	for _, k := range keys {
		switch {
		case k.Key == "worker.handlers" && k.Entry != "":
			all = append(all, k.Entry)
		case k.Key == "worker.default_handler" && string(k.Value) != `""`:
			all = append(all, "*")
		}
	}
	return all, err
}

// inDirectories returns files, and the templates in directories instead of these.
func inDirectories(names []string) (files []string) {
	for _, name := range names {
		filepath.WalkDir(name, func(path string, d os.DirEntry, err error) error {
			known := slices.Contains([]string{".json", ".toml", ".yaml", ".yml"}, filepath.Ext(path))
			if path == name && (err != nil || !d.IsDir()) || err == nil && !d.IsDir() && known {
				files = append(files, path)
			}
			return nil
		})
	}
	return files
}

func (p *program) convertCommand(*flag.FlagSet) func(context.Context, []string) error {
	return func(ctx context.Context, files []string) error {
		if len(files) != 1 {
			return failf(exitUsage, "convert: want one file")
		}
		definition, err := p.check(ctx, &checker{file: files[0]})
		if err != nil {
			return err
		}
		definition = portable("", definition)
		c := &checker{file: files[0]}
		c.value("", "", definition)
		for _, text := range c.said {
			p.say("%s", text)
		}
		if c.refused > 0 {
			return failf(exitFailed, "Tasker would refuse the result")
		}
		text, err := p.convert(ctx, definition, "json") // which is YAML, too
		if err == nil {
			_, err = p.stdout.Write(text)
		}
		return err
	}
}
