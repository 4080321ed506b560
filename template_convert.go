package main

// Converting a definition to another format: writing it as JSON or YAML.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
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
	definition := (&templateReader{file: file}).definition(data, from)
	if to == "json" {
		var out bytes.Buffer
		err := json.Indent(&out, definition, "", "  ")
		return append(out.Bytes(), '\n'), err
	}
	w := &yamlWriter{}
	w.members(definition, "", "")
	// The result is read back and compared, so that no loss goes unnoticed, whatever its reason.
	again, problems, _ := parseTemplate(to+" of "+file, w.out.Bytes(), to, "", nil)
	if again == nil || !sameJSON(again.json, t.json) {
		return nil, problems
	}
	return w.out.Bytes(), nil
}

// yamlWriter writes a definition, which is compact JSON, as YAML.
type yamlWriter struct{ out bytes.Buffer }

// members writes the members of an object: the first one after the text first, the others after an indentation.
func (w *yamlWriter) members(object []byte, first, indent string) {
	for _, m := range templateMembers(object) {
		w.out.WriteString(first + yamlWord(m.key) + ":")
		first = indent
		if len(templateMembers(m.value)) > 0 {
			w.out.WriteByte('\n')
			w.members(m.value, indent+"  ", indent+"  ")
		} else {
			w.value(m.value, indent)
		}
	}
}

// value writes a value after the mark of an entry with an indentation, to the end of the line.
func (w *yamlWriter) value(value []byte, indent string) {
	items := templateElements(value)
	switch kind := jsonKind(value); {
	case len(items) > 0:
		w.out.WriteByte('\n')
	case kind == '"':
		text, _ := jsonString(value)
		w.text(text, indent)
	default:
		fmt.Fprintf(&w.out, " %s\n", value)
	}
	for _, item := range items {
		w.out.WriteString(indent + "  -")
		if len(templateMembers(item)) > 0 {
			w.members(item, " ", indent+"    ")
		} else {
			w.value(item, indent+"  ")
		}
	}
}

// text writes a text: several lines as a literal.
func (w *yamlWriter) text(text, indent string) {
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
