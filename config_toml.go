package main

// TOML: where the keys of a file are, for messages, and values written as TOML.

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// quotedCharacter matches a single character in quotes, as the decoder writes it.
var quotedCharacter = compiled(`'\\?[^']'|"\\?[^"]"|'\\x[0-9a-f]{2}'|'\\u[0-9a-f]{4}'`)

// tomlSyntaxProblem returns the decoder's message, unless that may repeat a value,
// which may be secret.
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

// Places of keys: the decoder has no positions for the elements of arrays and for
// repeated tables.

// tomlKey is the place of a key in a text. The zero value is none.
type tomlKey struct {
	line   int // from 1
	offset int // in bytes, from 0
}

// tomlKeys holds the place of each key of a TOML text by its path; the path of an array
// element ends in "[0]".
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

// quoteTOML returns a basic string on one line. It escapes whatever could control a
// terminal.
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
