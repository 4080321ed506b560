package main

// From what a file, a variable or a flag says to a value of a key, and back to
// the TOML that says it.

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// configFault is what is wrong with a value.
type configFault struct {
	path    string // of the key, or of the entry or element within it
	message string
}

// convert makes a value of the key's type of what toml.Decode made of it, and
// lists everything that is wrong with it. The value is nil when anything is.
func (k *configKey) convert(raw any) (any, []configFault) {
	var value any
	var faults []configFault
	switch k.def.(type) {
	case bool:
		v, ok := raw.(bool)
		value, faults = v, k.wantConfigType(raw, ok)
	case int64:
		v, ok := raw.(int64)
		value, faults = v, k.wantConfigType(raw, ok)
		if ok {
			faults = k.checkRange(v)
		}
	case string:
		v, ok := raw.(string)
		value, faults = v, k.wantConfigType(raw, ok)
		if ok {
			faults = k.checkString(k.path, v)
		}
	case []string:
		value, faults = k.convertList(raw)
	case map[string]string:
		value, faults = k.convertTable(raw)
	case []apiKeyConfig:
		value, faults = k.convertAPIKeys(raw)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return value, nil
}

func (k *configKey) wantConfigType(raw any, ok bool) []configFault {
	if ok {
		return nil
	}
	return []configFault{{k.path, fmt.Sprintf("want %s, got %s", tomlTypeName(k.def), tomlTypeName(raw))}}
}

func (k *configKey) checkRange(n int64) []configFault {
	if k.min <= n && n <= k.max {
		return nil
	}
	return []configFault{{k.path, fmt.Sprintf("%d is not in the range from %d to %d", n, k.min, k.max)}}
}

func (k *configKey) checkString(path, s string) []configFault {
	if k.words != nil && !slices.Contains(k.words, s) {
		message := fmt.Sprintf("%q is not one of %s", k.shownText(s), strings.Join(k.words, ", "))
		return []configFault{{path, message}}
	}
	if k.check == nil {
		return nil
	}
	if err := k.check(s); err != nil {
		return []configFault{{path, fmt.Sprintf("%q %v", k.shownText(s), err)}}
	}
	return nil
}

func (k *configKey) convertList(raw any) ([]string, []configFault) {
	elements, ok := raw.([]any)
	if !ok {
		return nil, k.wantConfigType(raw, false)
	}
	list := make([]string, 0, len(elements))
	var faults []configFault
	for i, e := range elements {
		path := fmt.Sprintf("%s[%d]", k.path, i)
		s, ok := e.(string)
		if !ok {
			faults = append(faults, configFault{path, "want a string, got " + tomlTypeName(e)})
			continue
		}
		faults = append(faults, k.checkString(path, s)...)
		list = append(list, s)
	}
	return list, faults
}

func (k *configKey) convertTable(raw any) (map[string]string, []configFault) {
	entries, ok := raw.(map[string]any)
	if !ok {
		return nil, k.wantConfigType(raw, false)
	}
	table := make(map[string]string, len(entries))
	var faults []configFault
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		path := joinConfigPath(k.path, name)
		s, ok := entries[name].(string)
		if !ok {
			faults = append(faults, configFault{path, "want a string, got " + tomlTypeName(entries[name])})
			continue
		}
		faults = append(faults, k.checkEntryName(path, name)...)
		faults = append(faults, k.checkString(path, s)...)
		canonical := k.entryName(name)
		if _, twice := table[canonical]; twice {
			faults = append(faults, configFault{path, fmt.Sprintf("%q is there twice", canonical)})
		}
		table[canonical] = s
	}
	return table, faults
}

func (k *configKey) checkEntryName(path, name string) []configFault {
	if k.checkName == nil {
		return nil
	}
	if err := k.checkName(name); err != nil {
		return []configFault{{path, fmt.Sprintf("%q %v", redactName(name), err)}}
	}
	return nil
}

// entryName is the one spelling of the name of a table entry.
func (k *configKey) entryName(name string) string {
	if k.canonName == nil {
		return name
	}
	return k.canonName(name)
}

// convertText is convert for a variable or a flag: lists are separated by
// commas, tables are JSON objects, lists of tables JSON arrays.
func (k *configKey) convertText(text string) (any, []configFault) {
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
		raw = splitConfigList(text)
	case map[string]string:
		raw, err = parseConfigTable(text)
	case []apiKeyConfig:
		raw, err = parseConfigEntries(text)
	}
	if err != nil {
		message := fmt.Sprintf("%q is not %s", k.shownText(text), textTypeName(k.def))
		return nil, []configFault{{k.path, message}}
	}
	return k.convert(raw)
}

func splitConfigList(text string) []any {
	list := []any{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

func parseConfigTable(text string) (map[string]any, error) {
	if err := checkJSON([]byte(text)); err != nil {
		return nil, err
	}
	var table map[string]any
	if err := json.Unmarshal([]byte(text), &table); err != nil {
		return nil, err
	}
	if table == nil {
		return nil, fmt.Errorf("null is no object")
	}
	return table, nil
}

// tomlTypeName says what a decoded value, or the default of a key, is.
func tomlTypeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case time.Time:
		return "a date or time"
	case []string:
		return "an array of strings"
	case []any:
		return "an array"
	case []map[string]any, []apiKeyConfig:
		return "an array of tables"
	case map[string]string:
		return "a table of strings"
	case map[string]any:
		return "a table"
	}
	return "null" // only JSON has it
}

// textTypeName is tomlTypeName for the text of a variable or a flag.
func textTypeName(def any) string {
	switch def.(type) {
	case bool:
		return "true or false"
	case map[string]string:
		return "a JSON object of strings"
	case []apiKeyConfig:
		return "a JSON array of objects"
	}
	return tomlTypeName(def)
}

// joinConfigPath appends a part to a dotted path, quoted where TOML asks for it.
func joinConfigPath(path, part string) string {
	part = toml.Key{part}.String()
	if path == "" {
		return part
	}
	return path + "." + part
}

// tomlLiteral is a value of a key as TOML.
func tomlLiteral(v any) string {
	switch v := v.(type) {
	case string:
		return quoteTOML(v)
	case []string:
		items := make([]string, len(v))
		for i, s := range v {
			items[i] = quoteTOML(s)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]string:
		items := make([]string, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			items = append(items, joinConfigPath("", name)+" = "+quoteTOML(v[name]))
		}
		return "{" + strings.Join(items, ", ") + "}"
	case []apiKeyConfig:
		return apiKeysLiteral(v)
	}
	return fmt.Sprint(v)
}

// quoteTOML is a basic string on one line, with everything escaped that a
// terminal might obey.
func quoteTOML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case !strconv.IsPrint(r):
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
