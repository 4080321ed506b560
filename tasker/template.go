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
	"math/big"
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
	{"", true, lacks("namespace_name", "namespace"), nil}, // portable adds it
	{"", true, lacks("steps"), nil},
	{"namespace", true, says("is not read there; write namespace_name"), nil}, // portable renames it
	{"name", true, longer(64), nil},
	{"version", true, longer(16), nil},
	{"description", true, longer(255), nil},
	{"steps[].name", true, longer(128), nil},
	{"steps", true, empty, nil},
	{"steps[]", true, decidesFirst, nil},
	{"steps[].dependencies steps[].depends_on", true, namesTwice, withoutRepeats},
	{"steps steps[].type steps[].step_type steps[].dependencies steps[].depends_on steps[].retry steps[].publishes_events " +
		"steps[].publishes_events[].condition steps[].publishes_events[].delivery_mode steps[].handler.initialization " +
		"steps[].retry.retryable steps[].retry.max_attempts steps[].retry.backoff metadata.tags system_dependencies " +
		"system_dependencies.secondary domain_events environments environments.* environments.*.steps " +
		"environments.*.steps[].retry.retryable environments.*.steps[].retry.max_attempts environments.*.steps[].retry.backoff",
		true, isNullThere, leaveOut},
	{"namespace_name system_dependencies.primary lifecycle.staleness_action", false, isNullThere, leaveOut}, // the text "null"
	{"steps[].timeout_seconds steps[].retry.max_attempts steps[].retry.backoff_base_ms steps[].retry.max_backoff_ms " +
		"steps[].batch_config.batch_size steps[].batch_config.parallelism lifecycle.max_duration_minutes " +
		"lifecycle.max_waiting_for_dependencies_minutes lifecycle.max_waiting_for_retry_minutes " +
		"lifecycle.max_steps_in_process_minutes environments.*.steps[].timeout_seconds " +
		"environments.*.steps[].retry.max_attempts environments.*.steps[].retry.backoff_base_ms " +
		"environments.*.steps[].retry.max_backoff_ms",
		true, hasPoint, withoutPoint},
	{"steps[].retry.backoff steps[].retry.backoff_base_ms steps[].retry.max_backoff_ms", false, isIgnored, nil},
	{"identity_strategy", false, otherStrategy, nil},
	{"default_context environments search task_handler steps[].composition", false, hasNoEffect, nil},
	{"metadata", false, ownMetadata, nil},
	{"steps[]", false, lacksBatches, nil},
	{"steps[].handler.callable", false, runHere, nil},
}

func says(what string) func(json.RawMessage) string {
	return func(json.RawMessage) string { return what }
}

// lacks is the rule for an object that must have a member under one of its names.
func lacks(names ...string) func(json.RawMessage) string {
	return func(object json.RawMessage) string {
		all := members(object)
		if all == nil || slices.ContainsFunc(names, func(name string) bool { return all[name] != nil }) {
			return ""
		}
		return "has no " + names[0]
	}
}

func longer(most int) func(json.RawMessage) string {
	return func(v json.RawMessage) string {
		if n := utf8.RuneCountInString(text(encode(object{"v": v}), "v")); n > most {
			return fmt.Sprintf("has %d characters, more than the %d there", n, most)
		}
		return ""
	}
}

// elements returns the elements of a JSON list.
func elements(list json.RawMessage) (all []json.RawMessage) {
	json.Unmarshal(list, &all)
	return all
}

func empty(list json.RawMessage) string {
	if string(list) == "[]" {
		return "is empty"
	}
	return ""
}

func decidesFirst(step json.RawMessage) string {
	if typeOf(step) == "decision" && len(elements(at(step, "dependencies")))+len(elements(at(step, "depends_on"))) == 0 {
		return "is a decision without a dependency"
	}
	return ""
}

func typeOf(step json.RawMessage) string { return text(step, "type") + text(step, "step_type") }

func lacksBatches(step json.RawMessage) string {
	if typeOf(step) == "batch_worker" && members(at(step, "batch_config")) == nil {
		return "is a batch_worker without a batch_config, of which no instance is made there"
	}
	return ""
}

func namesTwice(list json.RawMessage) string {
	if len(elements(list)) > len(elements(withoutRepeats(list))) {
		return "names a step twice"
	}
	return ""
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

func isNullThere(v json.RawMessage) string {
	if isNull(v) {
		return "is null, which does not count as absent there; leave it out"
	}
	return ""
}

func leaveOut(json.RawMessage) json.RawMessage { return nil }

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

func isIgnored(v json.RawMessage) string {
	if isNull(v) {
		return ""
	}
	return "is ignored there; retries come within a second"
}

func otherStrategy(v json.RawMessage) string {
	if !isNull(v) && string(v) != `"strict"` {
		return "is ignored there; every template is strict"
	}
	return ""
}

func hasNoEffect(v json.RawMessage) string {
	if isNull(v) || len(v) == len("{}") {
		return ""
	}
	return "has no effect there"
}

func ownMetadata(v json.RawMessage) string {
	known := strings.Fields("author tags documentation_url created_at updated_at")
	own := slices.DeleteFunc(slices.Sorted(maps.Keys(members(v))), func(name string) bool { return slices.Contains(known, name) })
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

// checker collects what is wrong with a template.
type checker struct {
	file               string
	problems, warnings []string
	handlers           []string // callables that have a handler, or prefixes and *
	outside            bool     // callables without a handler are reported
}

func (c *checker) found(path, fault string, refused bool) {
	at := c.file + ": "
	if path != "" {
		at += path + ": "
	}
	switch {
	case fault == "":
	case refused:
		c.problems = append(c.problems, at+fault)
	default:
		c.warnings = append(c.warnings, at+fault)
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
		c.value(below(path, name), below(place, placeName(place, name)), all[name])
	}
	for i, item := range elements(v) {
		c.value(fmt.Sprintf("%s[%d]", path, i), place+"[]", item)
	}
}

func below(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func placeName(place, name string) string {
	if place == "environments" {
		return "*"
	}
	return name
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
	exact, ok := new(big.Rat).SetString(number)
	if _, err := strconv.ParseUint(strings.TrimPrefix(number, "-"), 10, 63); err == nil {
		return ""
	}
	if _, err := strconv.ParseUint(number, 10, 64); err == nil {
		return ""
	}
	f, _ := strconv.ParseFloat(number, 64)
	short, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if ok && strings.ContainsAny(number, ".eE") && short != nil && exact.Cmp(short) == 0 {
		return ""
	}
	return number + " has more digits or a larger exponent than numbers have there"
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
		if value = portable(below(place, placeName(place, name)), value); value == nil {
			continue
		}
		if place == "" && name == "namespace" {
			name = "namespace_name"
		}
		fmt.Fprintf(&kept, `,%s:%s`, encode(name), value)
	}
	if place == "" && lacks("namespace_name", "namespace")(v) != "" {
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
		files, err = templateFiles(files)
		if err != nil {
			return err
		}
		refused := 0
		for _, file := range files {
			c := &checker{file: file, handlers: handlers, outside: true}
			if _, err := p.check(ctx, c); err != nil {
				return err
			}
			for _, w := range c.warnings {
				p.say("warning: %s", w)
			}
			for _, problem := range c.problems {
				p.say("%s", problem)
			}
			refused += min(len(c.problems), 1)
		}
		if refused > 0 {
			return failf(exitFailed, "Tasker refuses %s; tasker convert mends what it can", counted(refused, "template", "templates"))
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

// templateFiles returns the files of templates among some files and directories.
func templateFiles(names []string) (files []string, err error) {
	for _, name := range names {
		entries, bad := os.ReadDir(name)
		if bad != nil {
			files = append(files, name)
			continue
		}
		for _, e := range entries {
			if slices.Contains([]string{".json", ".toml", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
				files = append(files, filepath.Join(name, e.Name()))
			}
		}
	}
	return files, nil
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
		for _, w := range c.warnings {
			p.say("warning: %s", w)
		}
		if len(c.problems) > 0 {
			return failf(exitFailed, "%s", strings.Join(c.problems, "\n"))
		}
		return inFile("template.json", definition, func(file string) error {
			text, err := p.callStepwell(ctx, "template", "convert", "--to", "yaml", file)
			if err == nil {
				_, err = p.stdout.Write(text)
			}
			return err
		})
	}
}
