package main

// Converting a definition to another format: writing it as JSON, TOML or YAML.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// convertTemplate returns the definition of a file in another format, or its line in a store. Comments are lost. It fails
// if the definition has problems, or if the result would not be the same template.
func convertTemplate(file string, data []byte, to string) ([]byte, error) {
	from := templateFormat(file)
	t, problems, _ := parseTemplate(file, data, from, "", nil)
	if t == nil {
		return nil, problems
	}
	if to == "line" {
		return fmt.Appendf(nil, `{"hash":%q,"definition":%s}`+"\n", t.hash, t.json), nil
	}
	w, r := &definitionWriter{file: file}, &templateReader{file: file}
	w.write(r.definition(data, from), to)
	if w.problems != nil {
		return nil, w.problems
	}
	// The result is read back and compared, so that no loss goes unnoticed, whatever its reason.
	again, problems, _ := parseTemplate(to+" of "+file, w.out.Bytes(), to, "", nil)
	if again != nil && sameJSON(again.json, t.json) {
		return w.out.Bytes(), nil
	}
	r.locate(problems)
	for _, path := range w.nulls {
		problems = append(problems, inputProblem{Source: file, Field: path, Message: "is null, which TOML cannot express"})
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
		// Without Clip, the keys of sibling tables could share an array and overwrite each other.
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
		w.problems = append(w.problems, inputProblem{Source: w.file, Field: path, Message: reason})
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
	// TOML drops a line break that follows the opening quotes.
	return `"""` + "\n" + strings.Join(lines, "\n") + `"""`
}

// yamlMembers writes the members of an object: the first one after the text first, the others after an indentation.
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
