package main

// Where in a TOML text its keys stand: the decoder does not say. The text has
// been decoded before; of any other, the lines may be wrong or missing.

import (
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// configLines holds the line, from 1, of each key of a TOML text by its dotted
// path, as joinConfigPath makes it; the path of an array element ends in "[0]".
type configLines map[string]int

func findConfigLines(text string) configLines {
	s := &configLineScanner{
		text: strings.TrimPrefix(text, "\ufeff"), line: 1,
		lines: make(configLines), tables: make(map[string]int),
	}
	for table := ""; ; {
		s.skipBlank("")
		switch {
		case s.pos == len(s.text):
			return s.lines
		case s.text[s.pos] == '[':
			table = s.header()
		default:
			s.pair(table)
		}
	}
}

// of is the line of a path, or else of the nearest thing around it; 0 when
// there is none.
func (l configLines) of(path string) int {
	for path != "" {
		if line := l[path]; line > 0 {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}

// configLineScanner walks through a TOML text. Every step gets on by a byte at
// least, whatever the text.
type configLineScanner struct {
	text   string
	pos    int
	line   int // of pos
	lines  configLines
	tables map[string]int // how often [[path]] stood there
}

// header reads [path] or [[path]] and returns the path of the table.
func (s *configLineScanner) header() string {
	line := s.line
	s.next()
	many := s.peek() == '['
	if many {
		s.next()
	}
	path := ""
	parts := s.key()
	for i, part := range parts {
		path = joinConfigPath(path, part)
		s.record(path, line)
		if many && i == len(parts)-1 {
			s.tables[path]++
		}
		if n := s.tables[path]; n > 0 {
			path = fmt.Sprintf("%s[%d]", path, n-1)
			s.record(path, line)
		}
	}
	for s.peek() == ']' {
		s.next()
	}
	return path
}

// pair reads key = value within the table at path.
func (s *configLineScanner) pair(path string) {
	line := s.line
	for _, part := range s.key() {
		path = joinConfigPath(path, part)
		s.record(path, line)
	}
	s.skipBlank("")
	if s.peek() != '=' {
		s.next()
		return
	}
	s.next()
	s.skipBlank("")
	s.value(path)
}

// key reads a key: parts between dots, bare or quoted.
func (s *configLineScanner) key() (parts []string) {
	for {
		s.skipBlank("")
		start := s.pos
		if c := s.peek(); c == '"' || c == '\'' {
			s.quoted()
			parts = append(parts, unquoteTOML(s.text[start:s.pos]))
		} else {
			s.until("=.]#\"' \t\r\n")
			parts = append(parts, s.text[start:s.pos])
		}
		s.skipBlank("")
		if s.peek() != '.' {
			return parts
		}
		s.next()
	}
}

func (s *configLineScanner) value(path string) {
	switch s.peek() {
	case '"', '\'':
		s.quoted()
	case '[':
		s.next()
		for i := 0; s.inside(']'); i++ {
			element := fmt.Sprintf("%s[%d]", path, i)
			s.record(element, s.line)
			s.value(element)
		}
	case '{':
		s.next()
		for s.inside('}') {
			s.pair(path)
		}
	default:
		s.until(",]}#\n")
	}
}

// inside goes to the next item of an array or inline table. At its end, it
// steps over the bracket and reports false.
func (s *configLineScanner) inside(end byte) bool {
	s.skipBlank(",")
	switch s.peek() {
	case end:
		s.next()
		return false
	case ']', '}', 0:
		return false
	}
	return true
}

// quoted steps over a string, on one line or on several.
func (s *configLineScanner) quoted() {
	quote := s.text[s.pos : s.pos+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s.text[s.pos:], triple) {
		quote = triple
	}
	s.skip(len(quote))
	for s.pos < len(s.text) && !strings.HasPrefix(s.text[s.pos:], quote) {
		if s.text[s.pos] == '\\' && quote[0] == '"' {
			s.next()
		}
		s.next()
	}
	s.skip(len(quote))
	for len(quote) == 3 && s.peek() == quote[0] { // """ may follow one or two of its own
		s.next()
	}
}

// skipBlank steps over white space, comments and the bytes of more.
func (s *configLineScanner) skipBlank(more string) {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '#':
			s.until("\n")
		case strings.IndexByte(" \t\r\n", c) >= 0 || strings.IndexByte(more, c) >= 0:
			s.next()
		default:
			return
		}
	}
}

func (s *configLineScanner) until(stop string) {
	for s.pos < len(s.text) && strings.IndexByte(stop, s.text[s.pos]) < 0 {
		s.next()
	}
}

func (s *configLineScanner) skip(n int) {
	for range n {
		s.next()
	}
}

func (s *configLineScanner) next() {
	if s.pos < len(s.text) {
		if s.text[s.pos] == '\n' {
			s.line++
		}
		s.pos++
	}
}

// peek is the byte at hand, 0 at the end.
func (s *configLineScanner) peek() byte {
	if s.pos == len(s.text) {
		return 0
	}
	return s.text[s.pos]
}

// record keeps the first line of a path.
func (s *configLineScanner) record(path string, line int) {
	if _, ok := s.lines[path]; !ok {
		s.lines[path] = line
	}
}

// unquoteTOML is what a quoted key on one line stands for.
func unquoteTOML(quoted string) string {
	var v struct{ Key string }
	if _, err := toml.Decode("key = "+quoted, &v); err != nil {
		return quoted
	}
	return v.Key
}
