package main

// Keys that hold lists of tables, such as API keys and subscribers: converting, checking,
// showing and writing them.

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

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
	{path: "permissions", def: []string{}, missing: "there are none: the key would be good for nothing"},
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
	if !subscriberName().MatchString(s) {
		return errors.New(`is not a name: 1 to 100 letters, digits, "_", ".", ":" and "-"`)
	}
	return nil
}

func checkSubscriberURL(s string) error {
	if checkTargetValue(s) != nil || strings.HasPrefix(s, "builtin:") {
		return errors.New("is not a URL like https://example.com/events")
	}
	return nil
}

func checkEventPattern(s string) error {
	if s == "" || strings.Contains(strings.TrimSuffix(s, "*"), "*") {
		return errors.New("is not the name of an event, or the beginning of one and *")
	}
	return nil
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
	if signingKey(s) == nil {
		return errors.New("is not whsec_ and 24 to 64 bytes in base64, as in: echo whsec_$(openssl rand -base64 32)")
	}
	return nil
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
