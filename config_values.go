package main

// Converting what files, variables and flags contain to the values of keys, and back
// to TOML; then the checks of values, the rules about several keys, and redaction.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Subscribers of domain events.

// subscribers converts a list of subscribers, whose names must differ.
func (c *configConverter) subscribers(raw any) []subscriberConfig {
	list := []subscriberConfig{}
	for i, entry := range c.tables(raw) {
		s := c.subscriber(fmt.Sprintf("%s[%d]", c.path, i), entry)
		for n := range list {
			if s.Name != "" && list[n].Name == s.Name {
				c.complain(fmt.Sprintf("%s[%d].name", c.path, i), "duplicates that of subscribers[%d]", n)
			}
		}
		list = append(list, s)
	}
	return list
}

// subscriber converts an entry.
func (c *configConverter) subscriber(path string, raw any) subscriberConfig {
	s := subscriberConfig{Events: []string{}, MaxAttempts: 8, TimeoutSeconds: 15}
	table, ok := raw.(map[string]any)
	if !ok {
		c.mismatch(path, "a table", raw)
		return s
	}
	members := []configKey{
		{path: "name", check: checkSubscriberName}, {path: "url", secret: maskURLs, check: checkSubscriberURL},
		{path: "secret", secret: secretValue, check: checkSigningSecret},
		{path: "events", def: []string(nil), check: checkEventPattern},
		{path: "max_attempts", def: int64(0), min: 1, max: 50}, {path: "timeout_seconds", def: int64(0), min: 1, max: 300},
	}
	texts := map[string]*string{"name": &s.Name, "url": &s.URL, "secret": &s.Secret}
	numbers := map[string]*int{"max_attempts": &s.MaxAttempts, "timeout_seconds": &s.TimeoutSeconds}
	var known []string
	for _, k := range members {
		name := k.path
		known = append(known, name)
		value, given := table[name]
		k.path = path + "." + name
		m := configConverter{configKey: &k}
		switch {
		case !given && texts[name] != nil:
			m.complain(k.path, "it is missing")
		case !given:
		case name == "events":
			s.Events = m.list(value)
		case texts[name] != nil:
			*texts[name] = m.text(k.path, value)
		default:
			if f, ok := value.(float64); ok && f == math.Trunc(f) { // from JSON
				value = int64(f)
			}
			n, _ := m.scalar(value).(int64)
			*numbers[name] = int(n)
		}
		c.faults = append(c.faults, m.faults...)
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(known, name) {
			c.complain(joinConfigPath(path, name), "%s", unknownConfigName("key", name, known))
		}
	}
	return s
}

// convert converts a decoded TOML value to the key's type and returns all problems.
// The value is nil if it has any.
func (k *configKey) convert(raw any) (any, inputProblems) {
	c := configConverter{configKey: k}
	var value any
	switch k.def.(type) {
	case []string:
		value = c.list(raw)
	case map[string]string:
		value = c.table(c.path, raw)
	case headerTables:
		value = c.headerTables(raw)
	case []apiKeyConfig:
		value = c.apiKeys(raw)
	case []subscriberConfig:
		value = c.subscribers(raw)
	default:
		value = c.scalar(raw)
	}
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return value, nil
}

// configConverter converts a value of a key and collects problems.
type configConverter struct {
	*configKey
	faults inputProblems
}

func (c *configConverter) complain(path, format string, args ...any) {
	c.faults = append(c.faults, inputProblem{Field: path, Message: fmt.Sprintf(format, args...)})
}

// mismatch complains about the type of a value.
func (c *configConverter) mismatch(path, want string, raw any) {
	c.complain(path, "want %s, got %s", want, tomlTypeName(raw))
}

func (c *configConverter) scalar(raw any) any {
	if reflect.TypeOf(raw) != reflect.TypeOf(c.def) {
		c.mismatch(c.path, tomlTypeName(c.def), raw)
		return nil
	}
	if n, ok := raw.(int64); ok && (n < c.min || n > c.max) {
		c.complain(c.path, "%d is not in the range from %d to %d", n, c.min, c.max)
	}
	if _, ok := raw.(string); ok {
		c.text(c.path, raw)
	}
	return raw
}

// text converts a string, or an element or entry of the key, and checks it.
func (c *configConverter) text(path string, raw any) string {
	s, ok := raw.(string)
	switch {
	case !ok:
		c.mismatch(path, "a string", raw)
	case c.words != nil && !slices.Contains(c.words, s):
		c.complain(path, "%q is not one of %s", c.shownText(s), strings.Join(c.words, ", "))
	case c.check != nil:
		if err := c.check(s); err != nil {
			c.complain(path, "%q %v", c.shownText(s), err)
		}
	}
	return s
}

func (c *configConverter) list(raw any) []string {
	elements, ok := raw.([]any)
	if !ok {
		c.mismatch(c.path, tomlTypeName(c.def), raw)
	}
	list := make([]string, len(elements))
	for i, e := range elements {
		list[i] = c.text(fmt.Sprintf("%s[%d]", c.path, i), e)
	}
	return list
}

// table converts a table of strings at a path: the key's, or one in it.
func (c *configConverter) table(tablePath string, raw any) map[string]string {
	entries, ok := raw.(map[string]any)
	if !ok {
		c.mismatch(tablePath, tomlTypeName(c.def), raw)
	}
	table := make(map[string]string, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		path, canonical := joinConfigPath(tablePath, name), c.entryName(name)
		if c.checkName != nil {
			if err := c.checkName(name); err != nil {
				c.complain(path, "%q %v", redactName(name), err)
			}
		}
		if _, twice := table[canonical]; twice {
			c.complain(path, "%q occurs twice", canonical)
		}
		table[canonical] = c.text(path, entries[name])
	}
	return table
}

// headerTables converts a table of headers and of tables of headers.
func (c *configConverter) headerTables(raw any) headerTables {
	entries, _ := raw.(map[string]any)
	tables := headerTables{}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		inner, ok := entries[name].(map[string]any)
		if !ok {
			continue
		}
		path := joinConfigPath(c.path, name)
		scope, err := headerScope(name)
		if err != nil {
			c.complain(path, "%q %v", redactName(name), err)
		}
		if tables[scope] != nil {
			c.complain(path, "%q occurs twice", redactName(scope))
		}
		tables[scope] = c.table(path, inner)
		entries = maps.Clone(entries)
		delete(entries, name)
	}
	if entries != nil {
		raw = entries
	}
	return tables.with(headerTables{"": c.table(c.path, raw)})
}

// entryName returns the canonical name of a table entry.
func (k *configKey) entryName(name string) string {
	if k.canonName == nil {
		return name
	}
	return k.canonName(name)
}

// convertText is convert for a variable or a flag: lists are separated by
// commas, tables are JSON objects, lists of tables JSON arrays.
func (k *configKey) convertText(text string) (any, inputProblems) {
	var raw any
	var err error
	switch k.def.(type) {
	case bool:
		raw, err = strconv.ParseBool(text)
	case int64:
		raw, err = strconv.ParseInt(text, 10, 64)
	case string:
		raw = text
	case []string:
		list := []any{}
		for _, item := range splitList(text) {
			list = append(list, item)
		}
		raw = list
	case map[string]string, headerTables:
		raw, err = parseConfigJSON(text, '{')
	case []apiKeyConfig, []subscriberConfig:
		raw, err = parseConfigJSON(cmp.Or(strings.TrimSpace(text), "[]"), '[')
	}
	if err != nil {
		message := fmt.Sprintf("%q is not %s", k.shownText(text), textTypeName(k.def))
		return nil, inputProblems{{Field: k.path, Message: message}}
	}
	return k.convert(raw)
}

// parseConfigJSON parses a JSON text of a kind, as jsonKind returns it.
func parseConfigJSON(text string, kind byte) (v any, err error) {
	if err = checkJSON([]byte(text)); err == nil && jsonKind([]byte(text)) != kind {
		err = errors.New("another kind of value")
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &v)
	}
	return v, err
}

// textTypeName is tomlTypeName for variables and flags.
func textTypeName(def any) string {
	switch def.(type) {
	case bool:
		return "true or false"
	case map[string]string:
		return "a JSON object of strings"
	case headerTables:
		return "a JSON object of strings and of objects of strings"
	case []apiKeyConfig, []subscriberConfig:
		return "a JSON array of objects"
	}
	return tomlTypeName(def)
}

// joinConfigPath appends a part to a dotted path, quoted where TOML requires it.
func joinConfigPath(path, part string) string {
	part = toml.Key{part}.String()
	if path == "" {
		return part
	}
	return path + "." + part
}

// apiKeys converts a list of API keys from TOML, of either type that the decoder uses, or
// JSON.
func (c *configConverter) apiKeys(raw any) []apiKeyConfig {
	list := []apiKeyConfig{}
	for i, entry := range c.tables(raw) {
		list = append(list, c.apiKey(fmt.Sprintf("%s[%d]", c.path, i), entry))
	}
	return list
}

// tables returns the entries of a list of tables.
func (c *configConverter) tables(raw any) []any {
	tables, ok := raw.([]map[string]any)
	entries, alsoOK := raw.([]any)
	for _, table := range tables {
		entries = append(entries, table)
	}
	if !ok && !alsoOK {
		c.mismatch(c.path, tomlTypeName(c.def), raw)
	}
	return entries
}

// apiKey converts an entry. Its messages do not repeat a value, which may be the key.
func (c *configConverter) apiKey(path string, raw any) (key apiKeyConfig) {
	table, ok := raw.(map[string]any)
	if !ok {
		c.mismatch(path, "a table", raw)
		return key
	}
	before := len(c.faults)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		member := configConverter{configKey: &configKey{path: joinConfigPath(path, name), def: []string(nil)}}
		switch name {
		case "key":
			key.Key = member.text(member.path, table[name])
		case "description":
			key.Description = member.text(member.path, table[name])
		case "permissions":
			key.Permissions = member.list(table[name])
		default:
			member.complain(member.path, "%s",
				unknownConfigName("key", name, []string{"key", "permissions", "description"}))
		}
		c.faults = append(c.faults, member.faults...)
	}
	if len(c.faults) > before {
		return key
	}
	if key.Key == "" {
		c.complain(path+".key", "it is missing or empty")
	}
	if len(key.Permissions) == 0 {
		c.complain(path+".permissions", "there are none: the key would be good for nothing")
	}
	return key
}

// cloneAPIKeys returns a deep copy.
func cloneAPIKeys(list []apiKeyConfig) []apiKeyConfig {
	list = slices.Clone(list)
	for i := range list {
		list[i].Permissions = slices.Clone(list[i].Permissions)
	}
	return list
}

// redactAPIKeys returns a copy without the keys.
func redactAPIKeys(list []apiKeyConfig) []apiKeyConfig {
	list = cloneAPIKeys(list)
	for i := range list {
		list[i].Key = redactedText
	}
	return list
}

// apiKeysLiteral returns a list of API keys as TOML.
func apiKeysLiteral(list []apiKeyConfig) string {
	items := make([]string, len(list))
	for i, k := range list {
		items[i] = fmt.Sprintf("{key = %s, permissions = %s, description = %s}",
			quoteTOML(k.Key), tomlLiteral(k.Permissions), quoteTOML(k.Description))
	}
	return "[" + strings.Join(items, ", ") + "]"
}
