package main

// JSON Schema: the keywords of single values, such as types, bounds and lengths.

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// Checks of any value.

// schemaTypes holds the types, each as messages have it.
var schemaTypes = map[string]string{
	"null": "null", "boolean": "true or false", "object": "an object", "array": "a list", "number": "a number",
	"integer": "an integer", "string": "a string",
}

func compileType(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	var names, words []string
	take := func(value []byte) bool {
		name, _ := jsonString(value)
		if schemaTypes[name] == "" || slices.Contains(names, name) {
			c.problem(at, "%s is not one of %s, each once", clippedText(string(value)),
				anyOf(slices.Sorted(maps.Keys(schemaTypes))))
		}
		names, words = append(names, name), append(words, schemaTypes[name])
		return true
	}
	if jsonKind(raw) == '"' {
		take(raw)
	} else if !eachElement(raw, take) || len(names) == 0 {
		c.problem(at, "is %s; want a type, or a list of them", templateValueKind(raw))
	}
	want := "want " + anyOf(words)
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
		return slices.ContainsFunc(names, n.is) || v.misfit(n, want)
	})
}

// is reports whether the value has a type.
func (n *jsonValue) is(name string) bool {
	switch name {
	case "null":
		return n.kind == 'n'
	case "boolean":
		return n.kind == 't' || n.kind == 'f'
	case "object":
		return n.kind == '{'
	case "array":
		return n.kind == '['
	case "string":
		return n.kind == '"'
	case "integer":
		return n.kind == '0' && parseDecimal(n.raw).integer()
	}
	return n.kind == '0'
}

func compileEnum(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	if jsonKind(raw) != '[' {
		c.problem(at, "is %s; want a list", templateValueKind(raw))
		return
	}
	c.oneOfValues(s, templateElements(raw))
}

func compileConst(c *schemaCompiler, s *schemaNode, _ schemaPlace, raw []byte) {
	c.oneOfValues(s, [][]byte{raw})
}

func (c *schemaCompiler) oneOfValues(s *schemaNode, values [][]byte) {
	allowed, shown := map[string]bool{}, make([]string, len(values))
	for i, raw := range values {
		allowed[string(newJSONValue(raw).normal(nil))], shown[i] = true, clippedText(string(raw))
	}
	want := "want " + clipText(anyOf(shown), 300)
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
		return allowed[v.normal(n)] || v.misfit(n, want)
	})
}

// Checks of numbers and strings.

// number reads the value of a keyword that is a number.
func (c *schemaCompiler) number(at schemaPlace, raw []byte) decimal {
	if jsonKind(raw) != '0' {
		c.problem(at, "is %s; want a number", templateValueKind(raw))
		return decimal{}
	}
	return parseDecimal(raw)
}

func compileBound(word string, holds func(c int) bool) compileFunc {
	return func(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
		limit, want := c.number(at, raw), fmt.Sprintf("want %s %s", word, clippedText(string(raw)))
		s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
			return n.kind != '0' || holds(parseDecimal(n.raw).compare(limit)) || v.misfit(n, want)
		})
	}
}

func compileMultiple(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	of := c.number(at, raw)
	if of.negative || of.digits == "" {
		c.problem(at, "is %s; want a number above 0", clippedText(string(raw)))
		return
	}
	want := "want a multiple of " + clippedText(string(raw))
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
		return n.kind != '0' || parseDecimal(n.raw).multipleOf(of) || v.misfit(n, want)
	})
}

// count reads the value of a keyword that is a number of something.
func (c *schemaCompiler) count(at schemaPlace, raw []byte) int {
	n, fits, integer := nearestInt(raw)
	if !integer || n < 0 {
		c.problem(at, "is %s; want an integer from 0", clippedText(string(raw)))
	} else if !fits {
		n = 1<<63 - 1
	}
	return int(n)
}

// compileSize compiles a limit on the length of strings, lists or objects.
func compileSize(kind byte, most bool) compileFunc {
	unit := map[byte][2]string{
		'"': {"character", "characters"}, '[': {"element", "elements"}, '{': {"member", "members"},
	}[kind]
	return func(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
		limit := c.count(at, raw)
		want := fmt.Sprintf("want %s %s", pick(most, "at most", "at least"), counted(limit, unit[0], unit[1]))
		s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
			size := n.size()
			return n.kind != kind || pick(most, size <= limit, size >= limit) ||
				v.misfitIn(v.at, counted(size, unit[0], unit[1]), want)
		})
	}
}

// size returns the number of characters, elements or members.
func (n *jsonValue) size() int {
	if n.kind == '"' {
		return utf8.RuneCountInString(n.text)
	}
	return len(n.values)
}
