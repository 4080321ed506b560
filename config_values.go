package main

// Converting what files, variables and flags contain to the values of keys.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

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
	default:
		if k.members != nil {
			value = c.tableList(raw)
		} else {
			value = c.scalar(raw)
		}
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
	default: // a list of tables
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
	case string, int64, []string:
		return tomlTypeName(def)
	}
	return "a JSON array of objects"
}

// joinConfigPath appends a part to a dotted path, quoted where TOML requires it.
func joinConfigPath(path, part string) string {
	part = toml.Key{part}.String()
	if path == "" {
		return part
	}
	return path + "." + part
}
