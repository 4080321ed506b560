package main

// Converting what files, variables and flags contain to the values of keys, also of those that hold lists of tables.

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
	"time"

	"github.com/BurntSushi/toml"
)

// convert converts a decoded TOML value to the key's type and returns all problems. The value is nil if it has any.
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

// parseText returns the value of a variable or a flag for convert: lists are separated by commas or JSON arrays, tables
// are JSON objects, lists of tables JSON arrays.
func (k *configKey) parseText(text string) (raw any, err error) {
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
		err = fmt.Errorf("%q is not %s", k.shownText(text), textTypeName(k.def))
	}
	return raw, err
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

// Keys that hold lists of tables, such as API keys and subscribers: converting, checking, showing and writing them.

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

// apiKeyMembers has no checks: messages about a value could repeat it, and a value in a wrong place may be the key.
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

// tableList converts a list of tables from TOML, of either type that the decoder uses, or JSON.
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

// TOML: where the keys of a file are, for messages, and values written as TOML.

// quotedCharacter matches a single character in quotes, as the decoder writes it.
var quotedCharacter = compiled(`'\\?[^']'|"\\?[^"]"|'\\x[0-9a-f]{2}'|'\\u[0-9a-f]{4}'`)

// tomlSyntaxProblem returns the decoder's message, unless that may repeat a value, which may be secret.
func tomlSyntaxProblem(err error) string {
	e, ok := errors.AsType[toml.ParseError](err)
	if !ok {
		return "not TOML"
	}
	quotes := strings.ContainsAny(quotedCharacter().ReplaceAllString(e.Message, ""), `'"`)
	// Messages quote what they found. A single character or the name of a key is harmless; anything longer may be a
	// value.
	if quotes && !strings.HasPrefix(e.Message, "Key '") || strings.Contains(e.Message, "out of range") {
		return "not TOML: not a value (text must be in quotes)"
	}
	return "not TOML: " + e.Message
}

// Places of keys: the decoder has no positions for the elements of arrays and for repeated tables.

// tomlKey is the place of a key in a text. The zero value is none.
type tomlKey struct {
	line   int // from 1
	offset int // in bytes, from 0
}

// tomlKeys holds the place of each key of a TOML text by its path; the path of an array element ends in "[0]".
type tomlKeys map[string]tomlKey

// tomlToken matches a string, a comment, a line break, a bare word or a mark.
var tomlToken = compiled(`"""(?:[^\\]|\\[\s\S])*?"{3,5}|'''[\s\S]*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|` +
	`#[^\n]*|\n|[^\s"'#\[\]{},=.]+|\S`)

// tomlKeyFinder reads the tokens of a TOML text and records where keys are.
type tomlKeyFinder struct {
	keys       tomlKeys
	join       func(path, key string) string
	tables     map[string]int // how often [[path]] occurred
	text       string
	start, end int // of the next token
	line       int // of the next token
	most       int // levels
	tooDeep    int // the offset of what is deeper, where reading ends; -1 for nothing
}

// findTOMLKeys finds the keys of a text; for one that is not TOML, they may be wrong or missing. join makes the path of
// a key in a table. tooDeep is the offset of a key or bracket that is deeper than most levels, or -1: the decoder's memory
// grows with the square of the depth. Levels are tables and arrays inside one another, as in JSON; of an array of tables
// in a header, only the table counts.
func findTOMLKeys(text string, most int, join func(path, key string) string) (keys tomlKeys, tooDeep int) {
	if rest, mark := strings.CutPrefix(text, "\ufeff"); mark {
		text = "   " + rest // as many bytes
	}
	f := &tomlKeyFinder{keys: tomlKeys{}, join: join, tables: map[string]int{}, text: text, line: 1, most: most, tooDeep: -1}
	f.next()
	table, depth := "", 1
	for f.peek() != "" {
		if f.accept("[") {
			table, depth = f.header()
		} else {
			f.member(table, depth)
		}
	}
	return f.keys, f.tooDeep
}

// next finds the token after the one that ends at f.end.
func (f *tomlKeyFinder) next() {
	f.start = len(f.text)
	if found := tomlToken().FindStringIndex(f.text[f.end:]); found != nil {
		f.start, f.end = f.end+found[0], f.end+found[1]
	} else {
		f.end = f.start
	}
}

// deeper returns the level below depth, and ends the text if that is too deep.
func (f *tomlKeyFinder) deeper(depth int) int {
	if depth == f.most && f.tooDeep < 0 {
		f.tooDeep, f.start, f.end = f.start, len(f.text), len(f.text)
	}
	return depth + 1
}

// peek returns the next token after line breaks and comments, "" at the end.
func (f *tomlKeyFinder) peek() string {
	for t := f.token(); t != "" && (t == "\n" || t[0] == '#'); t = f.token() {
		f.skip()
	}
	return f.token()
}

// token returns the next token, "" at the end.
func (f *tomlKeyFinder) token() string { return f.text[f.start:f.end] }

func (f *tomlKeyFinder) skip() {
	f.line += strings.Count(f.token(), "\n")
	f.next()
}

// accept takes the next token if it is the one wanted.
func (f *tomlKeyFinder) accept(token string) bool {
	ok := f.peek() == token
	if ok {
		f.skip()
	}
	return ok
}

// header reads [key] or [[key]] after the first bracket and returns the table's path and level.
func (f *tomlKeyFinder) header() (path string, depth int) {
	list := f.accept("[")
	depth = 1
	for more := true; more; {
		at := f.place()
		depth = f.deeper(depth)
		var part string
		part, more = f.part("]")
		path = f.record(f.join(path, part), at)
		if list && !more {
			f.tables[path]++
		}
		if n := f.tables[path]; n > 0 {
			path = f.record(fmt.Sprintf("%s[%d]", path, n-1), at)
		}
	}
	if list {
		f.accept("]")
	}
	return path, depth
}

// member reads "key = value" in the table at a path.
func (f *tomlKeyFinder) member(path string, depth int) {
	for more := true; more; {
		at := f.place()
		var part string
		if part, more = f.part("="); more {
			depth = f.deeper(depth)
		}
		path = f.record(f.join(path, part), at)
	}
	f.value(path, depth)
}

// part reads a part of a key and the dot after it, or else the token that ends the key.
func (f *tomlKeyFinder) part(end string) (part string, more bool) {
	if t := f.peek(); t != "" && t != end {
		part = unquoteTOML(t)
		f.skip()
	}
	more = f.accept(".")
	if !more {
		f.accept(end)
	}
	return part, more
}

// value reads the value at a path, in a table or array of a level.
func (f *tomlKeyFinder) value(path string, depth int) {
	switch {
	case f.accept("["):
		depth = f.deeper(depth)
		for i := 0; !f.accept("]") && f.peek() != ""; i++ {
			f.value(f.record(fmt.Sprintf("%s[%d]", path, i), f.place()), depth)
			f.accept(",")
		}
	case f.accept("{"):
		depth = f.deeper(depth)
		for !f.accept("}") && f.peek() != "" {
			f.member(path, depth)
			f.accept(",")
		}
	default: // one or more tokens of a line
		for more := f.peek() != ""; more; more = !strings.Contains("\n,]}", f.token()) { // which "" is in
			f.skip()
		}
	}
}

// place returns the place of the next token.
func (f *tomlKeyFinder) place() tomlKey {
	f.peek()
	return tomlKey{f.line, f.start}
}

// record keeps the first place of a path, which it returns.
func (f *tomlKeyFinder) record(path string, at tomlKey) string {
	// A table can be named again by its subtables: the first place is where a reader looks for it.
	if _, ok := f.keys[path]; !ok {
		f.keys[path] = at
	}
	return path
}

// unquoteTOML returns a part of a key without its quotes.
func unquoteTOML(quoted string) string {
	if !strings.ContainsAny(quoted[:1], `"'`) {
		return quoted
	}
	var v struct{ Key string }
	if _, err := toml.Decode("key = "+quoted, &v); err != nil {
		return quoted
	}
	return v.Key
}

// tomlTypeName names the type of a decoded value or of a key's default.
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
	case map[string]string:
		return "a table of strings"
	case headerTables:
		return "a table of strings and of tables of strings"
	case map[string]any:
		return "a table"
	case nil:
		return "null" // only JSON has it
	}
	return "an array of tables"
}

// tomlLiteral returns a value of a key as TOML.
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
		return tomlTable(v)
	case map[string]any:
		return tomlTable(v)
	case headerTables:
		return tomlTable(v.nested())
	}
	if list := reflect.ValueOf(v); list.Kind() == reflect.Slice {
		return tomlTables(list)
	}
	return fmt.Sprint(v)
}

// tomlTables returns a list of structs as inline tables, with the names that JSON has.
func tomlTables(list reflect.Value) string {
	tables := make([]string, list.Len())
	for i := range tables {
		var members []string
		for f, v := range list.Index(i).Fields() {
			members = append(members, f.Tag.Get("json")+" = "+tomlLiteral(v.Interface()))
		}
		tables[i] = "{" + strings.Join(members, ", ") + "}"
	}
	return "[" + strings.Join(tables, ", ") + "]"
}

func tomlTable[V any](table map[string]V) string {
	items := make([]string, 0, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		items = append(items, joinConfigPath("", name)+" = "+tomlLiteral(table[name]))
	}
	return "{" + strings.Join(items, ", ") + "}"
}

// quoteTOML returns a basic string on one line. It escapes whatever could control a terminal.
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
