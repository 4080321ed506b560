package main

// Reading YAML: one document of YAML 1.2 (https://yaml.org/spec/1.2.2) with the core
// schema and merge keys. It becomes the JSON text of the same value, to the last digit.
// A text whose value JSON cannot express, or is not certain, is refused with its place.

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxYAMLExpansion = 4 << 20 // what aliases and merge keys may add, in bytes of JSON
	maxYAMLKey       = 1024    // the length of a key that its colon follows, in bytes; a rule of YAML
)

// yamlKind is the kind of a node.
type yamlKind string

const (
	yamlScalar yamlKind = "a scalar"
	yamlList   yamlKind = "a sequence"
	yamlMap    yamlKind = "a mapping"
)

// yamlNode is a node of a document. Aliases share the node they refer to.
type yamlNode struct {
	kind    yamlKind
	offset  int          // where it begins in the text
	text    string       // of a scalar: without quotes, escapes and indentation
	json    []byte       // of a scalar: its value as JSON
	plain   bool         // a scalar without quotes and without a tag
	items   []*yamlNode  // of a sequence
	members []yamlMember // of a mapping
	merges  bool         // a mapping with a merge key, which is not among the members
	size    int          // of its JSON, in bytes
}

// yamlMember is one member of a mapping.
type yamlMember struct {
	key    string
	offset int // of the key
	merge  bool
	value  *yamlNode
}

func (n *yamlNode) appendJSON(dst []byte) []byte {
	switch n.kind {
	case yamlList:
		dst = append(dst, '[')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst)
		}
		return append(dst, ']')
	case yamlMap:
		dst = append(dst, '{')
		for i, m := range n.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.value.appendJSON(append(appendJSONString(dst, m.key), ':'))
		}
		return append(dst, '}')
	}
	return append(dst, n.json...)
}

// yamlError says where and why a text is refused.
type yamlError struct {
	offset int // in the text that newYAMLReader returns
	reason string
}

func (e *yamlError) Error() string { return e.reason }

// readYAML reads a document. The offsets of the node and of the error, if there is one,
// are in text: data with \n for every line break and without a byte order mark.
func readYAML(data []byte) (root *yamlNode, text []byte, err *yamlError) {
	data = unmarked(data)
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	y := &yamlReader{data: data, anchors: map[string]*yamlNode{}, handles: map[string]string{}}
	defer func() {
		// Any other panic is a bug, and the conversion below panics again.
		if failed := recover(); failed != nil {
			root, text, err = nil, data, failed.(*yamlError)
		}
	}()
	y.checkCharacters()
	return y.document(), data, nil
}

// yamlReader reads a text from its start to its end once. Its methods begin at i and move it
// to where what they read ends. They panic with a *yamlError.
type yamlReader struct {
	data    []byte
	i       int
	line    int // the offset of the line that i is in
	indent  int // the number of spaces the line begins with
	depth   int
	anchors map[string]*yamlNode // nil while the node is read
	handles map[string]string    // of tags, from %TAG

	expansion int // what aliases and merge keys have added, in bytes of JSON
}

func (y *yamlReader) fail(offset int, format string, args ...any) {
	panic(&yamlError{offset, fmt.Sprintf(format, args...)})
}

func (y *yamlReader) checkCharacters() {
	for i := 0; i < len(y.data); {
		r, size := utf8.DecodeRune(y.data[i:])
		switch {
		case (r == utf8.RuneError && size == 1 || r == 0) && isUTF16(y.data):
			y.fail(i, "UTF-16; want UTF-8")
		case r == utf8.RuneError && size == 1:
			y.fail(i, "invalid UTF-8")
		case r < ' ' && r != '\n' && r != '\t', r >= 0x7f && r < 0xa0 && r != 0x85, r == 0xfeff, r&^1 == 0xfffe:
			y.fail(i, "a character %U that YAML does not allow here", r)
		}
		i += size
	}
}

// Places in the text.

// at returns the byte k after the current one, or 0 after the end.
func (y *yamlReader) at(k int) byte {
	if y.i+k < len(y.data) {
		return y.data[y.i+k]
	}
	return 0
}

func yamlBlank(c byte) bool { return c == ' ' || c == '\t' }

// yamlSpace reports whether c separates tokens; 0 is the end of the text.
func yamlSpace(c byte) bool { return yamlBlank(c) || c == '\n' || c == 0 }

func yamlFlowMark(c byte) bool { return c != 0 && strings.IndexByte(",[]{}", c) >= 0 }

// mark reports whether an indicator of blocks is at i: a character before white space.
func (y *yamlReader) mark(c byte) bool { return y.at(0) == c && yamlSpace(y.at(1)) }

// atLine makes i the start of a line.
func (y *yamlReader) atLine() {
	y.line = y.i
	for y.indent = 0; y.at(y.indent) == ' '; y.indent++ {
	}
}

// border reports whether the current line is --- or ..., which end a document.
func (y *yamlReader) border() bool {
	line := y.data[y.line:]
	return (bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(line, []byte("..."))) &&
		(len(line) == 3 || yamlSpace(line[3]))
}

func (y *yamlReader) blanks() {
	for yamlBlank(y.at(0)) {
		y.i++
	}
}

// gap skips white space, comments and line breaks, and reports whether it came to another line.
func (y *yamlReader) gap() (another bool) {
	for {
		y.blanks()
		if y.at(0) == '#' && (y.i == y.line || yamlBlank(y.data[y.i-1])) {
			for y.i < len(y.data) && y.at(0) != '\n' {
				y.i++
			}
		}
		if y.at(0) != '\n' {
			return another
		}
		y.i++
		y.atLine()
		another = true
	}
}

// first reports whether nothing but white space precedes i in its line.
func (y *yamlReader) first() bool {
	return len(bytes.TrimLeft(y.data[y.line+min(y.indent, y.i-y.line):y.i], "\t ")) == 0
}

// tabbed reports whether a tab belongs to the white space that precedes i, which is first in its line.
func (y *yamlReader) tabbed() bool { return y.i != y.line+y.indent }

// outdented reports whether a line inside quotes or brackets is indented by too little for a node inside column n. Like
// libyaml, and unlike the specification, it allows column n itself, where brackets and texts are often closed.
func (y *yamlReader) outdented(n int) bool { return y.indent < n || y.indent == n && y.tabbed() }

// endLine checks that nothing but a comment follows in the line.
func (y *yamlReader) endLine() {
	if y.gap() || y.i == len(y.data) {
		return
	}
	if y.at(0) == '#' {
		y.fail(y.i, "unexpected '#'; a comment needs a space before it")
	}
	y.fail(y.i, "unexpected text after the value")
}

// The document.

func (y *yamlReader) document() *yamlNode {
	y.atLine()
	directives := y.directives()
	begun := y.i == y.line && y.border() && y.at(0) == '-'
	switch {
	case begun:
		y.i += 3
	case directives:
		y.fail(y.i, "want --- after the directives")
	}
	root := y.block(-1, false, false)
	if !begun && root.plain && root.text == "" {
		y.fail(y.i, "the document is empty")
	}
	y.gap()
	for y.i < len(y.data) && y.i == y.line && y.border() && y.at(0) == '.' {
		y.i += 3
		y.endLine()
	}
	switch {
	case y.i < len(y.data) && y.i == y.line && y.border():
		y.fail(y.i, "a second document; want one")
	case y.i < len(y.data):
		y.fail(y.i, "text that does not belong to the value before it")
	}
	return root
}

// yamlDirective matches %YAML and %TAG with their parameters, and any other directive.
var yamlDirective = compiled(
	`^%(?:YAML[ \t]+(\d+\.\d+)|TAG[ \t]+(![0-9A-Za-z-]*!|!)[ \t]+(\S+)|` +
		`[^\s#]+(?:[ \t]+[^\s#]\S*)*)(?:[ \t]+(?:#.*)?)?$`)

// directives reads the directives before a document, and reports whether there are any.
func (y *yamlReader) directives() (found bool) {
	version := ""
	for y.gap(); y.i == y.line && y.at(0) == '%'; y.gap() {
		start := y.i
		for y.i < len(y.data) && y.at(0) != '\n' {
			y.i++
		}
		text := y.data[start:y.i]
		m := yamlDirective().FindSubmatch(text)
		switch word, _, _ := bytes.Cut(bytes.ReplaceAll(text, []byte("\t"), []byte(" ")), []byte(" ")); {
		case m == nil, string(word) == "%YAML" && m[1] == nil, string(word) == "%TAG" && m[2] == nil:
			y.fail(start, "not a directive of YAML")
		case m[1] != nil && version != "":
			y.fail(start, "a second %%YAML directive")
		case m[1] != nil && (m[1][0] != '1' || slices.Contains([]string{"1.0", "1.1"}, string(m[1]))):
			y.fail(start, "YAML %s; want 1.2", m[1])
		case m[1] != nil:
			version = string(m[1])
		case m[2] != nil && y.handles[string(m[2])] != "":
			y.fail(start, "a second directive for the tags %s", m[2])
		case m[2] != nil:
			y.handles[string(m[2])] = string(m[3])
		}
		found = true
	}
	return found
}

// Blocks.

// yamlContent is the place of a node in a block, up to its properties.
type yamlContent struct {
	n          int  // the column of the collection around it
	start, col int  // where it begins
	collection bool // a block collection may begin here

	outer, own yamlProperties // from lines before, and from this line
}

// block reads the node after an indicator (-, ? or :) of a collection in column n, or the document with n = -1. The
// node is in a deeper column. compact allows a collection in the line of the indicator, level a sequence in column n.
func (y *yamlReader) block(n int, compact, level bool) *yamlNode {
	y.deeper()
	defer func() { y.depth-- }()
	var outer yamlProperties
	// A line may have properties alone. After it, nothing can begin in the line of the indicator any more.
	for from := y.i; ; from = len(y.data) {
		y.gap()
		if y.i == len(y.data) || y.first() && y.endsBlock(n, level && y.mark('-')) {
			return y.empty(outer)
		}
		c := yamlContent{n: n, start: y.i, col: y.i - y.line, outer: outer}
		c.collection = y.first() && !y.tabbed() ||
			compact && from < y.i && len(bytes.Trim(y.data[from:y.i], " ")) == 0
		if c.own = y.properties(); !c.own.given() || !y.restIsEmpty() {
			return y.content(c)
		}
		outer = y.join(outer, c.own)
	}
}

// deeper counts a level of nesting; the caller takes it back.
func (y *yamlReader) deeper() {
	if y.depth++; y.depth > maxJSONDepth+1 {
		y.fail(y.i, "deeper than %d levels", maxJSONDepth)
	}
}

// endsBlock reports whether the line does not belong to a node inside column n. level allows column n.
func (y *yamlReader) endsBlock(n int, level bool) bool {
	if y.border() {
		return true
	}
	if y.indent <= n && y.tabbed() {
		y.failTab()
	}
	return y.indent < n || y.indent == n && !level
}

func (y *yamlReader) failTab() { y.fail(y.line+y.indent, "a tab in the indentation; want spaces") }

// restIsEmpty reports whether nothing but a comment follows in the line.
func (y *yamlReader) restIsEmpty() bool {
	y.blanks()
	return y.at(0) == '\n' || y.at(0) == 0 || y.at(0) == '#' && yamlBlank(y.data[y.i-1])
}

// content reads a node after its properties.
func (y *yamlReader) content(c yamlContent) *yamlNode {
	bare := !c.own.given()
	switch {
	case bare && y.mark('-'):
		y.allow(c, "a sequence")
		return y.sequence(c)
	case bare && (y.mark('?') || y.mark(':')):
		y.allow(c, "a mapping")
		return y.mapping(c, nil)
	case y.at(0) == '|' || y.at(0) == '>':
		node := &yamlNode{kind: yamlScalar, offset: y.i}
		node.text = y.blockScalar(c.n)
		return y.finish(node, y.join(c.outer, c.own))
	}
	line := y.line
	node := y.inline(c.n, false)
	y.blanks()
	if !y.mark(':') {
		y.endLine()
		return y.finish(node, y.join(c.outer, c.own))
	}
	y.checkKey(c.start, line)
	y.allow(c, "a mapping")
	return y.mapping(c, y.finish(node, c.own))
}

// checkKey checks the length of a key that ends before the colon at i.
func (y *yamlReader) checkKey(start, line int) {
	switch {
	case y.line != line:
		y.fail(y.i, "unexpected ':' after several lines of text; is a key indented more than those before it?")
	case y.i-start > maxYAMLKey:
		y.fail(start, "a key of more than %d bytes; write ? before it", maxYAMLKey)
	}
}

// allow checks that a block collection may begin here.
func (y *yamlReader) allow(c yamlContent, what string) {
	if !c.collection {
		y.fail(c.start, "%s cannot begin here; want it on its own line, indented with spaces", what)
	}
}

// another goes to the next line with text and reports whether it has an entry of a collection in a column.
func (y *yamlReader) another(col int) bool {
	y.gap()
	if y.i == len(y.data) || y.border() {
		return false
	}
	if y.tabbed() {
		y.failTab()
	}
	if y.indent > col {
		y.fail(y.i, "wrong indentation: column %d, but the entries before begin in column %d", y.indent+1, col+1)
	}
	return y.indent == col
}

func (y *yamlReader) sequence(c yamlContent) *yamlNode {
	node := &yamlNode{kind: yamlList, offset: c.start}
	for more := true; more; more = y.another(c.col) && y.mark('-') {
		y.i++
		node.items = append(node.items, y.block(c.col, true, false))
	}
	return y.finish(node, c.outer)
}

// mapping reads a mapping. Its first key is nil unless it was read, up to its colon.
func (y *yamlReader) mapping(c yamlContent, key *yamlNode) *yamlNode {
	node := &yamlNode{kind: yamlMap, offset: c.start}
	for more := true; more; more = y.another(c.col) {
		start, explicit := y.i, false
		if key != nil {
			start = c.start
		} else if explicit = y.mark('?'); explicit {
			y.i++
			key = y.block(c.col, true, true)
		} else {
			key = y.implicitKey(c.col)
		}
		member := y.member(key, start)
		if explicit {
			// Unless a colon follows in another line.
			member.value = y.empty(yamlProperties{})
		}
		if !explicit || y.another(c.col) && y.mark(':') {
			y.i++
			member.value = y.block(c.col, explicit, true)
		}
		node.members = append(node.members, member)
		key = nil
	}
	return y.finish(node, c.outer)
}

// implicitKey reads a key that its colon follows, up to the colon.
func (y *yamlReader) implicitKey(n int) *yamlNode {
	start, line := y.i, y.line
	own := y.properties()
	y.blanks()
	if y.mark(':') {
		return y.empty(own)
	}
	key := y.inline(n, false)
	y.blanks()
	if !y.mark(':') {
		y.fail(y.i, "want a colon and a space after a key")
	}
	y.checkKey(start, line)
	return y.finish(key, own)
}

// member returns a member with a key, without its value.
func (y *yamlReader) member(key *yamlNode, start int) yamlMember {
	m := yamlMember{key: key.text, offset: start}
	switch {
	case key.kind != yamlScalar:
		y.fail(start, "the key is %s, which JSON cannot express", key.kind)
	case key.plain && key.text == "":
		y.fail(start, "an empty key")
	case key.json[0] == '"':
		m.merge = key.plain && key.text == "<<"
	// Keys such as 1 and true keep their text in JSON. 0x10 would become 16, which may not be meant.
	case string(key.json) != key.text || key.text == "null":
		y.fail(start, "the key %s is not a text; put it in quotes", clippedText(key.text))
	}
	return m
}

// Nodes.

// yamlProperties are what may precede a node.
type yamlProperties struct {
	offset      int
	tag, anchor string // "" for none
}

func (p yamlProperties) given() bool { return p.tag != "" || p.anchor != "" }

// properties reads the properties that begin at i, and the white space after them.
func (y *yamlReader) properties() yamlProperties {
	p := yamlProperties{offset: y.i}
	for {
		switch {
		case y.at(0) == '&' && p.anchor == "":
			p.anchor = y.anchor()
			if node, known := y.anchors[p.anchor]; known && node == nil {
				y.fail(p.offset, "the anchor %s inside the node that has it", clippedText(p.anchor))
			}
			y.anchors[p.anchor] = nil
		case y.at(0) == '!' && p.tag == "":
			p.tag = y.tag()
		default:
			return p
		}
		y.blanks()
	}
}

func (y *yamlReader) join(outer, own yamlProperties) yamlProperties {
	switch {
	case !outer.given():
		return own
	case outer.tag != "" && own.tag != "" || outer.anchor != "" && own.anchor != "":
		y.fail(own.offset, "two tags or two anchors of one node")
	}
	return yamlProperties{outer.offset, outer.tag + own.tag, outer.anchor + own.anchor}
}

// anchor reads the name of an anchor or alias after its mark.
func (y *yamlReader) anchor() string {
	start := y.i
	for y.i++; !yamlSpace(y.at(0)) && !yamlFlowMark(y.at(0)); y.i++ {
	}
	if y.i == start+1 {
		y.fail(start, "want a name after %c", y.data[start])
	}
	return string(y.data[start+1 : y.i])
}

func (y *yamlReader) alias() *yamlNode {
	start := y.i
	name := y.anchor()
	node, known := y.anchors[name]
	switch {
	case !known:
		y.fail(start, "no anchor &%s before this alias", clippedText(name))
	case node == nil:
		y.fail(start, "the alias *%s inside the node it refers to", clippedText(name))
	}
	// Aliases of aliases could make gigabytes of a few lines.
	y.expand(start, node.size)
	return node
}

// expand counts what an alias or a merge key adds.
func (y *yamlReader) expand(offset, size int) {
	if y.expansion += size; y.expansion > maxYAMLExpansion {
		y.fail(offset, "aliases add more than %d MiB", maxYAMLExpansion>>20)
	}
}

// yamlTag matches a tag in short form, with its handle and suffix.
var yamlTag = compiled(`^(![0-9A-Za-z-]*!|!)([0-9A-Za-z%#;/?:@&=+$_.~*'()-]*)$`)

// coreTags begins the tags that are read; the rest of a tag is a key of yamlForms, or map or seq.
const coreTags = "tag:yaml.org,2002:"

// tag reads a tag. It returns ! or the part after coreTags.
func (y *yamlReader) tag() string {
	start := y.i
	// A tag in angle brackets may contain the marks at which others end.
	if y.at(1) == '<' {
		y.i += max(bytes.IndexByte(y.data[y.i:], '>'), 0)
	}
	for y.i++; !yamlSpace(y.at(0)) && !yamlFlowMark(y.at(0)); y.i++ {
	}
	text := string(y.data[start:y.i])
	if text == "!" {
		return text
	}
	full := strings.TrimSuffix(strings.TrimPrefix(text, "!<"), ">")
	if m := yamlTag().FindStringSubmatch(text); m != nil {
		prefix := y.handles[m[1]]
		if prefix == "" && m[1] == "!!" {
			prefix = coreTags
		}
		full = prefix + m[2]
	}
	name, core := strings.CutPrefix(full, coreTags)
	if !core || yamlForms[name] == nil && name != "map" && name != "seq" && name != "str" {
		y.fail(start, "the tag %s; want none, or !!str, !!int, !!float, !!bool, !!null, !!map or !!seq",
			clippedText(text))
	}
	return name
}

// inline reads a node that may be a key: an alias, a scalar that is not a block, or a flow
// collection. Its further lines are indented by more than n columns.
func (y *yamlReader) inline(n int, flow bool) *yamlNode {
	node := &yamlNode{kind: yamlScalar, offset: y.i}
	switch y.at(0) {
	case '*':
		return y.alias()
	case '"':
		node.text = y.double(n)
	case '\'':
		node.text = y.single(n)
	case '[', '{':
		return y.flow(n)
	default:
		node.text, node.plain = y.plain(n, flow), true
	}
	return node
}

// empty returns a node without content.
func (y *yamlReader) empty(p yamlProperties) *yamlNode {
	if p.tag == "!" {
		y.fail(p.offset, "a tag without a value")
	}
	return y.finish(&yamlNode{kind: yamlScalar, offset: y.i, plain: true}, p)
}

// finish gives a node its properties and its value.
func (y *yamlReader) finish(node *yamlNode, p yamlProperties) *yamlNode {
	switch {
	case node.size > 0 && p.given():
		y.fail(p.offset, "a tag or an anchor of an alias")
	case node.size > 0:
		return node // finished, where its anchor is
	case node.kind == yamlScalar:
		y.resolve(node, p)
	case p.tag != "" && p.tag != "!" && p.tag != map[yamlKind]string{yamlMap: "map", yamlList: "seq"}[node.kind]:
		y.fail(p.offset, "the tag !!%s of %s", p.tag, node.kind)
	case node.kind == yamlMap:
		y.merge(node)
	}
	node.size = len(node.json) + 2
	for _, item := range node.items {
		node.size += item.size + 1
	}
	for _, m := range node.members {
		node.size += len(m.key) + m.value.size + 4
	}
	if p.anchor != "" {
		y.anchors[p.anchor] = node
	}
	return node
}

// merge checks that no key is repeated, and replaces << by the members it stands for. The keys of
// the mapping itself win, and of several merged mappings the first.
func (y *yamlReader) merge(node *yamlNode) {
	// All own keys come first, because they win wherever << stands.
	known, merges := make(map[string]bool, len(node.members)), false
	for _, m := range node.members {
		if known[m.key] {
			y.fail(m.offset, "the key %s is repeated", clippedText(strconv.Quote(m.key)))
		}
		known[m.key], merges = true, merges || m.merge
	}
	if !merges {
		return
	}
	var members []yamlMember
	for _, m := range node.members {
		if !m.merge {
			members = append(members, m)
			continue
		}
		for _, from := range y.mergeSources(m) {
			y.expand(m.offset, from.size)
			for _, merged := range from.members {
				if !known[merged.key] {
					known[merged.key] = true
					members = append(members, merged)
				}
			}
		}
	}
	node.members, node.merges = members, true
}

// mergeSources returns the mappings that a merge key names.
func (y *yamlReader) mergeSources(m yamlMember) []*yamlNode {
	sources := []*yamlNode{m.value}
	if m.value.kind == yamlList {
		sources = m.value.items
	}
	for _, from := range sources {
		if from.kind != yamlMap {
			y.fail(m.offset, "<< with %s; want a mapping or a sequence of mappings", from.kind)
		}
	}
	return sources
}

// Block scalars.

// yamlHeader matches the header of a block scalar, with an indentation and a chomping indicator in any order.
var yamlHeader = compiled(`^[|>](?:([1-9])?([-+])?|([-+])([1-9]))[ \t]*(?:[ \t]#[^\n]*)?(?:\n|$)`)

// blockScalar reads a literal or folded scalar inside column n.
func (y *yamlReader) blockScalar(n int) string {
	m := yamlHeader().FindSubmatch(y.data[y.i:])
	if m == nil {
		y.fail(y.i, "not a header of a block scalar")
	}
	folded, start := y.at(0) == '>', y.i
	y.i += len(m[0])
	y.atLine()
	indent := 0 // not known yet
	if digit := string(m[1]) + string(m[4]); digit != "" {
		indent = max(n, 0) + int(digit[0]-'0')
	}
	lines := y.blockLines(n, indent)
	if n < 0 && indent > 0 && len(bytes.Join(lines, nil)) > 0 {
		y.fail(start, "an indentation indicator outside of collections")
	}
	full := len(lines)
	for full > 0 && len(lines[full-1]) == 0 {
		full--
	}
	text := joinLines(lines[:full], folded)
	// With - no line break stays at the end, with + all stay, else one.
	switch string(m[2]) + string(m[3]) {
	case "":
		text = append(text, "\n"[:min(full, 1)]...)
	case "+":
		text = append(text, strings.Repeat("\n", len(lines)-full+min(full, 1))...)
	}
	return string(text)
}

// blockLines reads the lines of a block scalar without their indentation. If indent is 0, the first line with text
// determines it.
func (y *yamlReader) blockLines(n, indent int) (lines [][]byte) {
	known, deepest := indent > 0, 0
	for ; y.i < len(y.data) && !y.border(); y.atLine() {
		end := y.i + bytes.IndexByte(y.data[y.i:], '\n')
		if end < y.i {
			end = len(y.data)
		}
		blank := y.i+y.indent == end
		switch {
		case !known && blank:
			deepest = max(deepest, y.indent)
		case !known && y.indent > n:
			if known, indent = true, y.indent; deepest > indent {
				y.fail(y.i+indent, "less indented than an empty line before it")
			}
		}
		if !blank && (!known || y.indent < indent) {
			if y.at(y.indent) == '\t' {
				y.failTab()
			}
			break
		}
		lines = append(lines, y.data[min(y.i+indent, end):end])
		if !known {
			lines[len(lines)-1] = nil
		}
		y.i = min(end+1, len(y.data))
	}
	return lines
}

// joinLines joins the lines of a block scalar. Folding joins lines by a space, unless one of them
// begins with white space; n empty lines between them become n line breaks.
func joinLines(lines [][]byte, folded bool) (text []byte) {
	if !folded {
		return bytes.Join(lines, []byte("\n"))
	}
	breaks, began, deep := 0, false, false
	for _, line := range lines {
		if len(line) == 0 {
			breaks++
			continue
		}
		wasDeep := deep
		deep = yamlBlank(line[0])
		if began && (deep || wasDeep) {
			breaks++
		} else if began && breaks == 0 {
			text = append(text, ' ')
		}
		text = append(append(text, strings.Repeat("\n", breaks)...), line...)
		breaks, began = 0, true
	}
	return text
}

// Flow collections.

// flowGap skips white space and line breaks inside a flow collection that began at start.
func (y *yamlReader) flowGap(n, start int) {
	another := y.gap()
	switch {
	case y.i == len(y.data):
		y.fail(start, "no closing bracket")
	case another && y.border():
		y.fail(y.i, "the document ends inside a flow collection")
	case another && y.outdented(n):
		y.fail(y.i, "a line of a flow collection, indented by %d spaces; want at least %d", y.indent, max(n, 0))
	}
}

// flowNext goes to the next entry of a flow collection: after its bracket, or after a comma.
func (y *yamlReader) flowNext(end byte, n, start int) bool {
	if y.i > start {
		y.flowGap(n, start)
		if y.at(0) != ',' && y.at(0) != end {
			y.fail(y.i, "want ',' or %q", end)
		}
	}
	if y.at(0) != end {
		y.i++
		y.flowGap(n, start)
	}
	if y.at(0) == end {
		y.i++
		return false
	}
	return true
}

// flow reads a list or a mapping in brackets.
func (y *yamlReader) flow(n int) *yamlNode {
	y.deeper()
	defer func() { y.depth-- }()
	list := y.at(0) == '['
	node := &yamlNode{kind: pick(list, yamlList, yamlMap), offset: y.i}
	for y.flowNext(pick[byte](list, ']', '}'), n, node.offset) {
		item, pair := y.flowEntry(n, node.offset, list)
		switch {
		case !list:
			node.members = append(node.members, *pair)
			continue
		case item == nil: // a pair in a sequence is a mapping with one member
			item = &yamlNode{kind: yamlMap, offset: pair.offset, members: []yamlMember{*pair}}
			y.finish(item, yamlProperties{})
		}
		node.items = append(node.items, item)
	}
	return node
}

// flowEntry reads an entry of the flow collection that began at start: a pair of a key and a value,
// or in a list also a node.
func (y *yamlReader) flowEntry(n, start int, list bool) (*yamlNode, *yamlMember) {
	offset, line, explicit := y.i, y.line, y.mark('?')
	if explicit {
		y.i++
	}
	node, enclosed := y.flowNode(n, start)
	y.flowGap(n, start)
	colon := y.flowColon(enclosed)
	switch {
	case node == nil && (explicit || colon):
		y.fail(offset, "an empty key")
	case node == nil:
		y.failUnexpected()
	case list && !explicit && !colon:
		return node, nil
	case list && !explicit:
		y.checkKey(offset, line)
	}
	m := y.member(node, offset)
	m.value = y.empty(yamlProperties{})
	if colon {
		y.i++
		if value, _ := y.flowNode(n, start); value != nil {
			m.value = value
		}
	}
	return nil, &m
}

// flowNode reads a node in a flow collection, nil if it has neither content nor properties.
// enclosed reports whether quotes or brackets are around it.
func (y *yamlReader) flowNode(n, start int) (node *yamlNode, enclosed bool) {
	var p yamlProperties
	for {
		y.flowGap(n, start)
		own := y.properties()
		if !own.given() {
			break
		}
		p = y.join(p, own)
	}
	switch c := y.at(0); {
	case strings.IndexByte(",]}", c) < 0 && !y.flowColon(false):
		return y.finish(y.inline(n, true), p), strings.IndexByte(`"'[{`, c) >= 0
	case p.given():
		return y.empty(p), false
	}
	return nil, false
}

// flowColon reports whether a colon is at i. After a key in quotes or brackets, nothing needs to follow it, as in JSON.
func (y *yamlReader) flowColon(enclosed bool) bool {
	return y.at(0) == ':' && (enclosed || yamlSpace(y.at(1)) || yamlFlowMark(y.at(1)))
}

// YAML: the values of scalars.

// yamlForms are the forms of plain scalars that are not texts, by their tags; others are texts.
var yamlForms = map[string]func(text string) bool{
	"null": func(text string) bool { return slices.Contains([]string{"", "~", "null", "Null", "NULL"}, text) },
	"bool": func(text string) bool {
		return slices.Contains([]string{"true", "True", "TRUE", "false", "False", "FALSE"}, text)
	},
	"int":   func(text string) bool { return yamlInt().MatchString(text) },
	"float": func(text string) bool { return yamlFloat().MatchString(text) },
}

var (
	yamlInt   = compiled(`^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$`)
	yamlFloat = compiled(`^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|` +
		`[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
)

// resolve gives a scalar its value.
func (y *yamlReader) resolve(node *yamlNode, p yamlProperties) {
	tag := p.tag
	if tag == "" && node.plain {
		tag = plainTag(node.text)
	}
	node.plain = node.plain && p.tag == ""
	if form := yamlForms[p.tag]; form != nil && !form(node.text) || tag == "map" || tag == "seq" {
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
	tags := []string{"null", "bool"}
	// The first character rules out half of the forms.
	if text != "" && strings.IndexByte("+-.0123456789", text[0]) >= 0 {
		tags = []string{"int", "float"}
	}
	for _, tag := range tags {
		if yamlForms[tag](text) {
			return tag
		}
	}
	return "str"
}

func (y *yamlReader) number(node *yamlNode) []byte {
	text := strings.TrimPrefix(node.text, "+")
	if strings.ContainsAny(text, "iInN") {
		y.fail(node.offset, "%s, which JSON cannot express", text)
	}
	// Converting a long number takes long. It stays as it is, and is refused below.
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
	start, text := y.i, y.plainLine(nil, flow)
	for y.plainGoesOn(n, flow) {
		text = y.plainLine(y.lineBreaks(text, n, start), flow)
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
	// This only looks ahead: the reader stays behind the text that was read.
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

// lineBreaks reads line breaks, and the white space around them, inside a scalar that began at start. A single one
// becomes a space.
func (y *yamlReader) lineBreaks(text []byte, n, start int) []byte {
	breaks := 0
	for y.blanks(); y.at(0) == '\n'; y.blanks() {
		y.i++
		y.atLine()
		breaks++
	}
	switch {
	case y.border() || y.outdented(n) && y.at(0) != 0: // only in quotes: plainGoesOn looked ahead
		y.failUnclosed(start)
	case breaks == 1:
		return append(text, ' ')
	}
	return append(text, bytes.Repeat([]byte("\n"), breaks-1)...)
}

func (y *yamlReader) failUnclosed(start int) {
	y.fail(start, "the quote %c is never closed", y.data[start])
}

// single reads a scalar in single quotes.
func (y *yamlReader) single(n int) string {
	var text []byte
	start := y.i
	for y.i++; ; {
		switch c := y.at(0); {
		case c == 0:
			y.failUnclosed(start)
		case c == '\'' && y.at(1) != '\'':
			y.i++
			return string(text)
		case c == '\n':
			text = y.lineBreaks(bytes.TrimRight(text, " \t"), n, start)
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
			y.failUnclosed(start)
		case c == '"':
			y.i++
			return string(text)
		case c == '\n':
			text = append(text[:kept], bytes.TrimRight(text[kept:], " \t")...)
			text = y.lineBreaks(text, n, start)
			kept = len(text)
		case c == '\\' && y.at(1) == '\n':
			y.i++
			// An escaped line break leaves no space.
			text = bytes.TrimSuffix(y.lineBreaks(text, n, start), []byte(" "))
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
