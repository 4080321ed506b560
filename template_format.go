package main

// The formats of a definition, JSON, TOML and YAML: each is read as JSON, says where
// the fields are in its text, and can be written. The values of YAML's scalars. Reading the
// normalized form back.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// definition returns a definition as compact JSON that passes checkJSON, or nil if it is not valid
// in its format.
func (r *templateReader) definition(data []byte, format string) []byte {
	r.text.text = data
	var text []byte
	switch format {
	case "toml":
		text = r.fromTOML(data)
	case "yaml":
		text = r.fromYAML(data)
	default:
		text = r.fromJSON(data)
	}
	if text == nil {
		return nil
	}
	if err, ok := errors.AsType[*jsonError](checkJSON(text)); ok {
		r.problem("", "as JSON: %s", err.reason) // the offset is not one in the file
		return nil
	}
	return compactJSON(nil, text)
}

func (r *templateReader) fromJSON(data []byte) []byte {
	err, bad := errors.AsType[*jsonError](checkJSON(data))
	switch {
	case bad && r.file == "":
		r.problem("", "%v", err)
	case bad:
		r.text.fault = err.offset
		r.problem("", "invalid JSON: %s", err.reason)
	default:
		r.text.find = func(f *pathFinder) { f.json(data, skipJSONSpace(data, 0), "") }
		return data
	}
	return nil
}

// fromTOML is fromJSON for TOML. Values that JSON cannot express are problems, and null in the result.
func (r *templateReader) fromTOML(data []byte) []byte {
	var table map[string]any
	if err := toml.Unmarshal(data, &table); err != nil {
		reason := strings.TrimPrefix(err.Error(), "toml: ")
		if p, ok := errors.AsType[toml.ParseError](err); ok {
			r.text.fault, reason = min(p.Position.Start, len(data)), p.Message
		}
		r.problem("", "invalid TOML: %s", reason)
		return nil
	}
	r.text.find = func(f *pathFinder) {
		for path, key := range findTOMLKeys(string(data), templateMemberPath) {
			f.offsets[path] = key.offset
		}
	}
	return r.tomlValue("", table)
}

func (r *templateReader) fromYAML(data []byte) []byte {
	root, text, err := readYAML(data)
	r.text.text = text
	if err != nil {
		r.text.fault = err.offset
		r.problem("", "YAML: %s", err.reason)
		return nil
	}
	r.text.find = func(f *pathFinder) { f.yaml(root, "") }
	return root.appendJSON(nil)
}

// tomlValue returns a decoded value as JSON. Integers are exact; floats have their
// shortest form with a point or an exponent.
func (r *templateReader) tomlValue(path string, value any) []byte {
	switch v := value.(type) {
	case string:
		return appendJSONString(nil, v)
	case bool:
		return strconv.AppendBool(nil, v)
	case int64:
		return strconv.AppendInt(nil, v, 10)
	case float64:
		return r.tomlFloat(path, v)
	case map[string]any:
		var o templateObject
		for _, key := range slices.Sorted(maps.Keys(v)) {
			o = append(o, templateMember{key, r.tomlValue(templateMemberPath(path, key), v[key])})
		}
		return o.json()
	case []map[string]any:
		return tomlList(r, path, v)
	case []any:
		return tomlList(r, path, v)
	case time.Time:
		r.problem(path, "is a TOML date or time; write it as a string")
	default:
		r.problem(path, "is a %T, which JSON cannot express", value)
	}
	return templateNullJSON
}

func tomlList[T any](r *templateReader, path string, list []T) []byte {
	var elements [][]byte
	for i, v := range list {
		elements = append(elements, r.tomlValue(templateItemPath(path, i), v))
	}
	return templateListJSON(elements)
}

func (r *templateReader) tomlFloat(path string, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.problem(path, "is %v, which JSON cannot express", f)
		return templateNullJSON
	}
	text := strconv.AppendFloat(nil, f, 'g', -1, 64)
	if !strings.ContainsAny(string(text), ".e") {
		text = append(text, ".0"...)
	}
	return text
}

// Places.

// definitionText knows where the fields of a definition are in its text.
type definitionText struct {
	text  []byte
	fault int                 // the offset of the error, if the text is not valid
	find  func(f *pathFinder) // nil if the text is not valid
}

// locate gives problems the file, the line and the column they are about.
func (r *templateReader) locate(lists ...inputProblems) {
	if r.file == "" {
		return
	}
	problems := slices.Concat(lists...)
	if len(problems) == 0 {
		return
	}
	f := &pathFinder{wanted: map[string]bool{}, offsets: map[string]int{}}
	for _, p := range problems {
		f.want(p.Field)
	}
	if r.text.find != nil {
		r.text.find(f)
	}
	lines := newTextLines(r.text.text)
	for _, list := range lists {
		for i := range list {
			line, column := lines.place(max(nearest(f.offsets, list[i].Field), r.text.fault))
			list[i].Source = fmt.Sprintf("%s:%d:%d", r.file, line, column)
		}
	}
}

// textLines knows the lines of a text.
type textLines struct {
	text   []byte
	starts []int // the offset of each line
}

func newTextLines(text []byte) textLines {
	l := textLines{text, []int{0}}
	for i, c := range text {
		if c == '\n' {
			l.starts = append(l.starts, i+1)
		}
	}
	return l
}

// place returns the line and the column of an offset, both from 1, the column in characters.
func (l textLines) place(offset int) (line, column int) {
	line, found := slices.BinarySearch(l.starts, offset)
	if found {
		line++
	}
	return line, utf8.RuneCount(l.text[l.starts[line-1]:offset]) + 1
}

// pathFinder collects the offsets of paths in a text: of the key of a member, of the item of a list.
type pathFinder struct {
	wanted  map[string]bool // paths, and those around them
	offsets map[string]int
}

func (f *pathFinder) want(path string) {
	for ; path != "" && !f.wanted[path]; path = path[:max(strings.LastIndexAny(path, ".["), 0)] {
		f.wanted[path] = true
	}
}

// found records the offset of a path if it is wanted, and reports whether it is.
func (f *pathFinder) found(path string, offset int) bool {
	if f.wanted[path] {
		f.offsets[path] = offset
	}
	return f.wanted[path]
}

// json looks into the value at i.
func (f *pathFinder) json(data []byte, i int, path string) {
	bracket := data[i]
	for n := 0; bracket == '{' || bracket == '['; n++ {
		if i = skipJSONSpace(data, i+1); data[i] == '}' || data[i] == ']' {
			return
		}
		start, inner := i, templateItemPath(path, n)
		if bracket == '{' {
			end := skipJSONString(data, i)
			inner = templateMemberPath(path, string(unescapeJSON(data[i:end])))
			i = skipJSONSpace(data, skipJSONSpace(data, end)+1)
		}
		if f.found(inner, start) {
			f.json(data, i, inner)
		}
		if i = skipJSONSpace(data, skipJSONValue(data, i)); data[i] != ',' {
			return
		}
	}
}

func (f *pathFinder) yaml(node *yamlNode, path string) {
	for i, item := range node.items {
		if inner := templateItemPath(path, i); f.found(inner, item.offset) {
			f.yaml(item, inner)
		}
	}
	for _, m := range node.members {
		if inner := templateMemberPath(path, m.key); f.found(inner, m.offset) {
			f.yaml(m.value, inner)
		}
	}
}

// Writing.

// convertTemplate returns the definition of a file in another format. Comments are lost. It fails
// if the definition has problems, and if the result would not be the same template.
func convertTemplate(file string, data []byte, to string) ([]byte, error) {
	from := templateFormat(file)
	t, problems, _ := parseTemplate(file, data, from, "", nil)
	if t == nil {
		return nil, problems
	}
	w := &definitionWriter{file: file}
	w.write((&templateReader{}).definition(data, from), to)
	if w.problems != nil {
		return nil, w.problems
	}
	again, problems, _ := parseTemplate(to+" of "+file, w.out.Bytes(), to, "", nil)
	if again != nil && sameJSON(again.json, t.json) {
		return w.out.Bytes(), nil
	}
	for _, path := range w.nulls {
		problems = append(problems, inputProblem{file, path, "is null, which TOML cannot express"})
	}
	return nil, problems
}

// definitionWriter writes a definition, which is compact JSON.
type definitionWriter struct {
	file     string
	out      bytes.Buffer
	problems inputProblems
	nulls    []string // paths of the members that TOML leaves out
}

func (w *definitionWriter) write(definition []byte, format string) {
	switch format {
	case "toml":
		w.tomlTable(nil, "", definition)
	case "yaml":
		w.yamlMembers(definition, "", "")
	default:
		if err := json.Indent(&w.out, definition, "", "  "); err != nil {
			w.problems = inputProblems{{Source: w.file, Message: err.Error()}}
		}
		w.out.WriteByte('\n')
	}
}

// tomlTable writes the members of a table: first the values, then the tables.
func (w *definitionWriter) tomlTable(key toml.Key, path string, object []byte) {
	var tables templateObject
	for _, m := range templateMembers(object) {
		at := templateMemberPath(path, m.key)
		switch {
		case jsonKind(m.value) == 'n':
			w.nulls = append(w.nulls, at)
		case isTOMLTable(m.value):
			tables = append(tables, m)
		default:
			fmt.Fprintf(&w.out, "%s = %s\n", toml.Key{m.key}, w.tomlText(at, m.value))
		}
	}
	for _, m := range tables {
		inner, at := append(slices.Clip(key), m.key), templateMemberPath(path, m.key)
		if jsonKind(m.value) == '{' {
			fmt.Fprintf(&w.out, "\n[%s]\n", inner)
			w.tomlTable(inner, at, m.value)
		}
		for i, v := range templateElements(m.value) {
			fmt.Fprintf(&w.out, "\n[[%s]]\n", inner)
			w.tomlTable(inner, templateItemPath(at, i), v)
		}
	}
}

// isTOMLTable reports whether a value is written with a header: an object or a list of objects, if not empty.
func isTOMLTable(value []byte) bool {
	elements := templateElements(value)
	return len(templateMembers(value)) > 0 || len(elements) > 0 &&
		!slices.ContainsFunc(elements, func(v []byte) bool { return jsonKind(v) != '{' })
}

// tomlText returns a value in one line.
func (w *definitionWriter) tomlText(path string, value []byte) string {
	var parts []string
	switch jsonKind(value) {
	case '{':
		for _, m := range templateMembers(value) {
			if at := templateMemberPath(path, m.key); jsonKind(m.value) == 'n' {
				w.nulls = append(w.nulls, at)
			} else {
				parts = append(parts, toml.Key{m.key}.String()+" = "+w.tomlText(at, m.value))
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case '[':
		for i, v := range templateElements(value) {
			parts = append(parts, w.tomlText(templateItemPath(path, i), v))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case '"':
		text, _ := jsonString(value)
		return tomlString(text)
	}
	if jsonKind(value) == 'n' || jsonKind(value) == '0' && !tomlNumber(value) {
		reason := "is " + string(value) + ", which TOML cannot express"
		w.problems = append(w.problems, inputProblem{w.file, path, reason})
	}
	return string(value)
}

// tomlNumber reports whether TOML keeps every digit of a number: it has integers and floats of 64 bits.
func tomlNumber(number []byte) bool {
	if !bytes.ContainsAny(number, ".eE") {
		_, err := strconv.ParseInt(string(number), 10, 64)
		return err == nil
	}
	f, _ := strconv.ParseFloat(string(number), 64)
	return sameJSON(number, strconv.AppendFloat(nil, f, 'g', -1, 64))
}

// tomlString quotes a text, which keeps its line breaks.
func tomlString(text string) string {
	if !strings.Contains(text, "\n") {
		return quoteTOML(text)
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		quoted := quoteTOML(line)
		lines[i] = quoted[1 : len(quoted)-1]
	}
	return `"""` + "\n" + strings.Join(lines, "\n") + `"""`
}

// yamlMembers writes the members of an object with an indentation, the first of them after another one.
func (w *definitionWriter) yamlMembers(object []byte, first, indent string) {
	for _, m := range templateMembers(object) {
		w.out.WriteString(first + yamlWord(m.key) + ":")
		first = indent
		if len(templateMembers(m.value)) > 0 {
			w.out.WriteByte('\n')
			w.yamlMembers(m.value, indent+"  ", indent+"  ")
		} else {
			w.yamlValue(m.value, indent)
		}
	}
}

// yamlValue writes a value after the mark of an entry with an indentation, to the end of the line.
func (w *definitionWriter) yamlValue(value []byte, indent string) {
	items := templateElements(value)
	switch kind := jsonKind(value); {
	case len(items) > 0:
		w.out.WriteByte('\n')
	case kind == '"':
		text, _ := jsonString(value)
		w.yamlText(text, indent)
	default:
		fmt.Fprintf(&w.out, " %s\n", value)
	}
	for _, item := range items {
		w.out.WriteString(indent + "  -")
		if len(templateMembers(item)) > 0 {
			w.yamlMembers(item, " ", indent+"    ")
		} else {
			w.yamlValue(item, indent+"  ")
		}
	}
}

// yamlText writes a text: several lines as a literal.
func (w *definitionWriter) yamlText(text, indent string) {
	body, ended := strings.CutSuffix(text, "\n")
	odd := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	if !strings.Contains(text, "\n") || body == "" || strings.ContainsAny(body[:1], " \n") ||
		strings.HasSuffix(body, "\n") || strings.ContainsFunc(text, odd) {
		fmt.Fprintf(&w.out, " %s\n", yamlWord(text))
		return
	}
	w.out.WriteString(map[bool]string{true: " |\n", false: " |-\n"}[ended])
	for line := range strings.SplitSeq(body, "\n") {
		if line != "" {
			line = indent + "  " + line
		}
		w.out.WriteString(line + "\n")
	}
}

// yamlWord returns a text in one line, in quotes if any reader of YAML might take it for something else.
func yamlWord(text string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	first, _ := utf8.DecodeRuneInString(text)
	switch {
	case !unicode.IsLetter(first) && first != '_', strings.ContainsFunc(text, odd), plainTag(text) != "str",
		strings.Contains(text, ": "), strings.Contains(text, " #"),
		strings.HasSuffix(text, ":"), strings.HasSuffix(text, " "),
		slices.Contains(strings.Fields("y n yes no on off"), strings.ToLower(text)):
	default:
		return text
	}
	var b strings.Builder
	for _, r := range string(appendJSONString(nil, text)) {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	return b.String()
}

// YAML: the values of scalars.

// yamlForms are the forms of plain scalars that are not texts, by their tags; others are texts.
var yamlForms = map[string]func() *regexp.Regexp{
	"null": compiled(`^(?:null|Null|NULL|~|)$`),
	"bool": compiled(`^(?:true|True|TRUE|false|False|FALSE)$`),
	"int":  compiled(`^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$`),
	"float": compiled(`^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|` +
		`[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`),
}

// resolve gives a scalar its value.
func (y *yamlReader) resolve(node *yamlNode, p yamlProperties) {
	tag := p.tag
	if tag == "" && node.plain {
		tag = plainTag(node.text)
	}
	node.plain = node.plain && p.tag == ""
	if form := yamlForms[tag]; form != nil && !form().MatchString(node.text) || tag == "map" || tag == "seq" {
		y.fail(p.offset, "%s is not a value of the tag !!%s", clippedText(strconv.Quote(node.text)), tag)
	}
	switch tag {
	case "null":
		node.json = templateNullJSON
	case "bool":
		node.json = []byte(strings.ToLower(node.text))
	case "int", "float":
		node.json = y.number(node)
	default:
		if i := strings.IndexByte(node.text, 0); i >= 0 {
			y.fail(node.offset, "a text with U+0000")
		}
		node.json = appendJSONString(nil, node.text)
	}
}

// plainTag returns the tag of a plain scalar in the core schema.
func plainTag(text string) string {
	if text != "" && strings.IndexByte("+-.0123456789~nNtTfF", text[0]) < 0 {
		return "str"
	}
	for _, tag := range []string{"null", "bool", "int", "float"} {
		if yamlForms[tag]().MatchString(text) {
			return tag
		}
	}
	return "str"
}

// number returns a number as JSON.
func (y *yamlReader) number(node *yamlNode) []byte {
	text := strings.TrimPrefix(node.text, "+")
	if strings.ContainsAny(text, "iInN") {
		y.fail(node.offset, "%s, which JSON cannot express", text)
	}
	if len(text) > 1 && strings.IndexByte("ox", text[1]) >= 0 && len(text) < 1000 {
		n, _ := new(big.Int).SetString(text, 0)
		text = n.String()
	}
	number := decimalJSON(text)
	if checkJSON(number) != nil {
		y.fail(node.offset, "the number %s is too large", clippedText(text))
	}
	return number
}

// decimalJSON returns a decimal number as JSON: with one digit before the point at least, without
// zeros before that, with a digit after the point.
func decimalJSON(text string) []byte {
	text, negative := strings.CutPrefix(text, "-")
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	whole, rest := strings.TrimLeft(text[:end], "0"), text[end:]
	if whole == "" {
		whole = "0"
	}
	if len(rest) > 0 && rest[0] == '.' && (len(rest) == 1 || rest[1] < '0' || rest[1] > '9') {
		rest = ".0" + rest[1:]
	}
	if negative {
		whole = "-" + whole
	}
	return []byte(whole + rest)
}

// YAML: scalars that are not blocks.

// plain reads a scalar without quotes.
func (y *yamlReader) plain(n int, flow bool) string {
	if c := y.at(0); c == 0 || strings.IndexByte("\n#,[]{}&*!|>'\"%@`", c) >= 0 ||
		strings.IndexByte("-?:", c) >= 0 && (yamlSpace(y.at(1)) || flow && yamlFlowMark(y.at(1))) {
		y.failUnexpected()
	}
	text := y.plainLine(nil, flow)
	for y.plainGoesOn(n, flow) {
		text = y.plainLine(y.lineBreaks(text, n), flow)
	}
	return string(text)
}

// failUnexpected fails at what cannot begin a value.
func (y *yamlReader) failUnexpected() {
	switch r, _ := utf8.DecodeRune(y.data[y.i:]); {
	case y.i == len(y.data):
		y.fail(y.i, "unexpected end")
	case r == '\n':
		y.fail(y.i, "unexpected end of the line")
	default:
		y.fail(y.i, "unexpected %q", r)
	}
}

// plainLine appends the text of one line.
func (y *yamlReader) plainLine(text []byte, flow bool) []byte {
	start, end := y.i, y.i
	for ; !y.endsPlain(flow); y.i++ {
		if !yamlBlank(y.at(0)) {
			end = y.i + 1
		}
	}
	y.i = end
	return append(text, y.data[start:end]...)
}

// endsPlain reports whether a plain scalar ends before i.
func (y *yamlReader) endsPlain(flow bool) bool {
	switch c := y.at(0); c {
	case 0, '\n':
		return true
	case ':':
		return yamlSpace(y.at(1)) || flow && yamlFlowMark(y.at(1))
	case '#':
		return y.i == y.line || yamlBlank(y.data[y.i-1])
	default:
		return flow && yamlFlowMark(c)
	}
}

// plainGoesOn reports whether the next line with text belongs to the plain scalar before i.
func (y *yamlReader) plainGoesOn(n int, flow bool) bool {
	before := *y
	defer func() { *y = before }()
	if y.blanks(); y.at(0) != '\n' {
		return false
	}
	for y.at(0) == '\n' {
		y.i++
		y.atLine()
		y.blanks()
	}
	return y.indent > n && !y.border() && !y.endsPlain(flow)
}

// lineBreaks reads line breaks, and the white space around them, inside a scalar. A single one
// becomes a space.
func (y *yamlReader) lineBreaks(text []byte, n int) []byte {
	breaks := 0
	for y.blanks(); y.at(0) == '\n'; y.blanks() {
		y.i++
		y.atLine()
		breaks++
	}
	switch {
	case y.border():
		y.fail(y.line, "the document ends inside a scalar")
	case y.indent <= n && y.at(0) != 0:
		y.fail(y.i, "a line of a scalar, indented by %d spaces; want more than %d", y.indent, n)
	case breaks == 1:
		return append(text, ' ')
	}
	return append(text, bytes.Repeat([]byte("\n"), breaks-1)...)
}

// single reads a scalar in single quotes.
func (y *yamlReader) single(n int) string {
	var text []byte
	start := y.i
	for y.i++; ; {
		switch c := y.at(0); {
		case c == 0:
			y.fail(start, "no closing quote")
		case c == '\'' && y.at(1) != '\'':
			y.i++
			return string(text)
		case c == '\n':
			text = y.lineBreaks(bytes.TrimRight(text, " \t"), n)
		case c == '\'':
			y.i++
			fallthrough
		default:
			text = append(text, c)
			y.i++
		}
	}
}

// double reads a scalar in double quotes.
func (y *yamlReader) double(n int) string {
	var text []byte
	start, kept := y.i, 0 // white space after kept is dropped before a line break
	for y.i++; ; {
		switch c := y.at(0); {
		case c == 0:
			y.fail(start, "no closing quote")
		case c == '"':
			y.i++
			return string(text)
		case c == '\n':
			text = append(text[:kept], bytes.TrimRight(text[kept:], " \t")...)
			text = y.lineBreaks(text, n)
			kept = len(text)
		case c == '\\' && y.at(1) == '\n':
			y.i++
			text = bytes.TrimSuffix(y.lineBreaks(text, n), []byte(" "))
			kept = len(text)
		case c == '\\':
			text = y.escape(text)
			kept = len(text)
		default:
			text = append(text, c)
			y.i++
		}
	}
}

// yamlEscapes maps the character after a backslash to what both stand for.
var yamlEscapes = map[byte]rune{
	'0': 0, 'a': '\a', 'b': '\b', 't': '\t', '\t': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r', 'e': 0x1b,
	' ': ' ', '"': '"', '/': '/', '\\': '\\', 'N': 0x85, '_': 0xa0, 'L': 0x2028, 'P': 0x2029,
}

// escape appends the character that an escape stands for.
func (y *yamlReader) escape(text []byte) []byte {
	if r, ok := yamlEscapes[y.at(1)]; ok {
		y.i += 2
		return utf8.AppendRune(text, r)
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[y.at(1)]
	hex := string(y.data[min(y.i+2, len(y.data)):min(y.i+2+digits, len(y.data))])
	r, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || len(hex) < digits || digits == 0 || r > utf8.MaxRune || !utf8.ValidRune(rune(r)) {
		y.fail(y.i, "not an escape of YAML")
	}
	y.i += 2 + digits
	return utf8.AppendRune(text, rune(r))
}

// Reading the normalized form back.

// place is where a member of an object goes: a *[]byte gets its text, a function reads it, and any
// other pointer is for encoding/json.
type place struct {
	name string
	at   any
}

// readForm reads an object, or null, from valid JSON. Reading all of it with encoding/json would read
// "Name" as "name" and scan the dependencies of a dense graph four times.
func readForm(data []byte, places []place) (err error) {
	if !eachMemberBytes(data, func(key, value []byte) bool {
		i := slices.IndexFunc(places, func(p place) bool { return p.name == string(key) })
		if i < 0 {
			return true
		}
		switch at := places[i].at.(type) {
		case *[]byte:
			*at = value
		case func([]byte) error:
			err = at(value)
		default:
			err = readPlain(value, at)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err == nil
	}) && jsonKind(data) != 'n' {
		err = checkObject(data)
	}
	return err
}

// readPlain is json.Unmarshal, and faster for what every step has.
func readPlain(value []byte, at any) error {
	switch at := at.(type) {
	case *string:
		if value[0] == '"' {
			*at = string(unescapeJSON(value))
			return nil
		}
	case *int:
		if n, err := strconv.Atoi(string(value)); err == nil {
			*at = n
			return nil
		}
	}
	return json.Unmarshal(value, at)
}
