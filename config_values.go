package main

// Converting what files, variables and flags contain to the values of keys, also of those that
// hold lists of tables.

import (
	"cmp"
	"encoding/base64"
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
		// The table of the file must stay whole: locate walks through it afterwards.
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

// convertText is convert for a variable or a flag: lists are separated by commas or JSON arrays, tables are JSON
// objects, lists of tables JSON arrays.
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
		if strings.HasPrefix(strings.TrimSpace(text), "[") {
			raw, err = parseConfigJSON(text, '[')
			break
		}
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
	text = string(unmarked([]byte(text)))
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
	case []string:
		return "a list separated by commas, or a JSON array of strings"
	case string, int64:
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

// Keys that hold lists of tables, such as API keys and subscribers: converting, checking,
// showing and writing them.

// copyTables returns a copy of a list of tables, with what change makes of each member.
func (k *configKey) copyTables(list any, change func(member *configKey, v any) any) any {
	from := reflect.ValueOf(list)
	to := reflect.MakeSlice(from.Type(), from.Len(), from.Len())
	for i := range from.Len() {
		old, made := from.Index(i).Addr().Interface(), to.Index(i).Addr().Interface()
		for m := range k.members {
			member := &k.members[m]
			member.set(made, change(member, member.get(old)))
		}
	}
	return to.Interface()
}

// apiKeyMembers has no checks: messages about a value could repeat it, and a value in a
// wrong place may be the key.
var apiKeyMembers = []configKey{
	{path: "key", def: "", secret: secretValue, missing: "it is missing or empty"},
	{path: "permissions", def: []string{}, missing: "must not be empty: a key without permissions is useless"},
	{path: "description", def: ""},
}

// Subscribers of domain events.

var subscriberMembers = []configKey{
	{path: "name", def: "", check: checkSubscriberName, missing: "it is missing", unique: true},
	{path: "url", def: "", secret: maskURLs, check: checkSubscriberURL, missing: "it is missing"},
	{path: "secret", def: "", secret: secretValue, check: checkSigningSecret, missing: "it is missing"},
	{path: "events", def: []string{}, check: checkEventPattern},
	{path: "max_attempts", def: 8, min: 1, max: 50},
	{path: "timeout_seconds", def: 15, min: 1, max: 300},
}

var subscriberName = compiled(`^[A-Za-z0-9_.:-]{1,100}$`)

func checkSubscriberName(s string) error {
	return refuseIf(!subscriberName().MatchString(s), `is not a name: 1 to 100 letters, digits, "_", ".", ":" and "-"`)
}

func checkSubscriberURL(s string) error {
	return refuseIf(webURL(s) == nil, "is not a URL like https://example.com/events")
}

func checkEventPattern(s string) error {
	return refuseIf(s == "" || strings.Contains(strings.TrimSuffix(s, "*"), "*"),
		"is not the name of an event, or the beginning of one and *")
}

// signingKey returns the key in a secret; nil if there is none.
func signingKey(secret string) []byte {
	text, marked := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !marked || err != nil || len(key) < 24 || len(key) > 64 {
		return nil
	}
	return key
}

func checkSigningSecret(s string) error {
	return refuseIf(signingKey(s) == nil,
		"is not whsec_ and 24 to 64 bytes in base64, as in: echo whsec_$(openssl rand -base64 32)")
}

// tableList converts a list of tables from TOML, of either type that the decoder uses, or
// JSON.
func (c *configConverter) tableList(raw any) any {
	entries, ok := raw.([]any)
	tables, alsoOK := raw.([]map[string]any)
	for _, table := range tables {
		entries = append(entries, table)
	}
	if !ok && !alsoOK {
		c.mismatch(c.path, tomlTypeName(c.def), raw)
	}
	list := reflect.MakeSlice(reflect.TypeOf(c.def), len(entries), len(entries))
	for i, entry := range entries {
		path := fmt.Sprintf("%s[%d]", c.path, i)
		if table, ok := entry.(map[string]any); ok {
			c.entry(path, table, list, i)
		} else {
			c.mismatch(path, "a table", entry)
		}
	}
	return list.Interface()
}

// entry converts a table to an element of a list, and compares it with those before it.
func (c *configConverter) entry(path string, table map[string]any, list reflect.Value, index int) {
	known, foreign := make([]string, len(c.members)), false
	for i := range c.members {
		known[i] = c.members[i].path
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(known, name) {
			c.complain(joinConfigPath(path, name), "%s", unknownConfigName("key", name, known))
			foreign = true
		}
	}
	for _, m := range c.members {
		raw, given := table[m.path]
		if n, ok := raw.(float64); ok && n == math.Trunc(n) && m.max > 0 {
			raw = int64(n) // from JSON
		}
		m.path = path + "." + m.path
		value, faults := m.def, inputProblems(nil)
		if given {
			value, faults = m.convert(raw)
		}
		c.faults = append(c.faults, faults...)
		if len(faults) > 0 {
			continue
		}
		m.set(list.Index(index).Addr().Interface(), value)
		if m.missing != "" && reflect.ValueOf(value).Len() == 0 && !foreign { // an unknown key may be this one, misspelled
			c.complain(m.path, "%s", m.missing)
		}
		for i := range index {
			if m.unique && value != "" && value == m.get(list.Index(i).Addr().Interface()) {
				c.complain(m.path, "duplicates that of %s[%d]", c.path[strings.LastIndexByte(c.path, '.')+1:], i)
			}
		}
	}
}
