package main

// JSON Schema, draft 2020-12, as far as people use it: a schema in a template is read once, which finds all its faults
// and compiles its patterns, and is then followed for each value. A keyword that is not known is refused when the
// schema is read, so that no value is judged by half a schema. References lead to places in the same schema only.

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a check.
const (
	maxMisfits       = 10     // reported
	maxSchemaDepth   = 10_000 // nested schemas; a reference counts as one
	maxPointer       = 500    // bytes of a misfit's place
	maxDivisorDigits = 1000   // of multipleOf, which bounds how long a division takes
)

// misfit is a place in a value that does not fit its schema.
type misfit struct {
	at   string // a JSON Pointer
	got  string // "" if want says it
	want string

	nearest *misfit // with anyOf and oneOf: the first in the schema that came nearest
}

// why says what is wrong at the place, with the values that were got or without.
func (m misfit) why(values bool) string {
	text := pick(m.got == "" || !values, m.want, "got "+m.got+"; "+m.want)
	if m.nearest != nil {
		text += "; in the nearest, " + m.nearest.text(values)
	}
	return text
}

// text also names the place, unless it is the value as a whole.
func (m misfit) text(values bool) string { return pick(m.at == "", "", m.at+": ") + m.why(values) }

// misfits are the places in a value that do not fit.
type misfits []misfit

func (all misfits) String() string { return all.text(true) }

// wants is like String, but without the values that were got. It is for the log.
func (all misfits) wants() string { return all.text(false) }

func (all misfits) text(values bool) string {
	lines := make([]string, len(all))
	for i, m := range all {
		lines[i] = m.text(values)
	}
	return strings.Join(lines, "; ")
}

// texts returns a text for each place, for a value at a path of a request.
func (all misfits) texts(path string) (texts []string) {
	for _, m := range all {
		texts = append(texts, path+m.at+": "+m.why(true))
	}
	return texts
}

// jsonSchema is a schema that was read. It is immutable.
type jsonSchema struct {
	tree     jsonTree
	targets  map[int]int              // nodes of the tree: those of references, and where they lead
	patterns map[string]schemaPattern // by text
	problems inputProblems            // for which it cannot be used; their fields are paths in the template
}

// schemaPattern is a pattern that can be matched.
type schemaPattern struct {
	re   *regexp.Regexp
	size int // instructions
}

// schemaKeywords holds every known keyword with what its value is, "" for annotations;
// docs/reference/schemas.md lists them.
var schemaKeywords = map[string]string{
	"$schema": "dialect", "$ref": "reference", "$defs": "named", "definitions": "named", "type": "types",
	"enum": "list", "const": "value", "multipleOf": "divisor", "minimum": "number", "maximum": "number",
	"exclusiveMinimum": "number", "exclusiveMaximum": "number", "minLength": "count", "maxLength": "count",
	"pattern": "pattern", "format": "string", "minProperties": "count", "maxProperties": "count", "required": "names",
	"properties": "named", "patternProperties": "patterns", "additionalProperties": "schema", "propertyNames": "schema",
	"minItems": "count", "maxItems": "count", "uniqueItems": "boolean", "prefixItems": "schemas", "items": "schema",
	"allOf": "schemas", "anyOf": "schemas", "oneOf": "schemas", "not": "schema", "if": "schema", "then": "schema",
	"else": "schema",
	"$id":  "", "$comment": "", "title": "", "description": "", "default": "", "examples": "", "deprecated": "",
	"readOnly": "", "writeOnly": "", "contentEncoding": "", "contentMediaType": "", "contentSchema": "",
}

// schemaTypes holds the types, each as messages have it.
var schemaTypes = map[string]string{
	"null": "null", "boolean": "true or false", "object": "an object", "array": "a list", "number": "a number",
	"integer": "an integer", "string": "a string",
}

const schemaDialect = "https://json-schema.org/draft/2020-12/schema"

// Reading a schema.

// schemaReader reads one document. It ends early when its budget does, and at maxProblems.
type schemaReader struct {
	*jsonSchema
	budget *budget
	nodes  map[int]bool // that are schemas
	refs   []func()     // to resolve when all schemas are known
	named  bool         // inside of an inner schema with an $id, to which references would be relative
}

// schemaBytes is what a schema takes, besides its text and its places in the tree.
const schemaBytes = 64

// compileSchema reads a schema that passed checkJSON. Its faults are among the problems. It takes
// memory of the budget, whose end leaves the schema incomplete.
func compileSchema(path string, text []byte, b *budget) *jsonSchema {
	s := &jsonSchema{targets: map[int]int{}, patterns: map[string]schemaPattern{}}
	if !b.take(treeBytes(text), path, "the schema") {
		return s
	}
	root := newJSONValue(text)
	s.tree = *root.tree
	r := &schemaReader{jsonSchema: s, budget: b, nodes: map[int]bool{}}
	r.schema(path, root)
	for _, resolve := range r.refs {
		resolve()
	}
	return s
}

func (r *schemaReader) problem(path, format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, inputProblem{Field: path, Message: fmt.Sprintf(format, args...)})
	}
}

// schema reads a schema and what it contains.
func (r *schemaReader) schema(path string, s jsonValue) {
	if len(r.problems) == maxProblems || !r.budget.take(schemaBytes, path, "the schema") {
		return
	}
	if r.nodes[s.node] = true; s.is("object") {
		defer func(before bool) { r.named = before }(r.named)
		r.named = r.named || s.node > 0 && s.has("$id")
		for name, value := range s.inner() {
			if len(r.problems) == maxProblems { // a hint takes long, and there may be any number of unknown members
				return
			}
			r.keyword(templateMemberPath(path, string(name.text())), string(name.text()), value)
		}
	} else if !s.is("boolean") {
		r.problem(path, "is %s; want a schema: an object, true or false", s.shown())
	}
}

// keyword reads a member of a schema.
func (r *schemaReader) keyword(path, name string, w jsonValue) {
	kind, known := schemaKeywords[name]
	if !known {
		near := nearestWord(name, slices.Sorted(maps.Keys(schemaKeywords)), typoLimit(name))
		r.problem(path, "the keyword %s is not supported%s", clippedText(name), meant(near))
	}
	texts, areTexts := w.texts()
	want, fits, i := "", true, 0
	switch kind {
	case "dialect":
		want, fits = schemaDialect, w.is("string") && strings.TrimSuffix(texts[0], "#") == schemaDialect
	case "string", "pattern", "reference":
		if want, fits = "a string", w.is("string"); fits && kind == "pattern" {
			r.pattern(path, texts[0])
		} else if fits && kind == "reference" {
			named := r.named
			r.refs = append(r.refs, func() { r.reference(path, texts[0], w, named) })
		}
	case "number":
		want, fits = "a number", w.is("number")
	case "divisor":
		want = fmt.Sprintf("a number above 0 of at most %d digits", maxDivisorDigits)
		if fits = w.is("number"); fits {
			d := parseDecimal(w.raw())
			fits = d.sign() > 0 && len(d.digits) <= maxDivisorDigits
		}
	case "count":
		want, fits = "an integer from 0", w.is("integer") && parseDecimal(w.raw()).sign() >= 0
	case "boolean":
		want, fits = "true or false", w.is("boolean")
	case "list":
		want, fits = "a list", w.is("array")
	case "names":
		want, fits = "a list of names", w.is("array") && areTexts
	case "types":
		want = "one or more of " + anyOf(slices.Sorted(maps.Keys(schemaTypes))) + ", each once"
		fits = areTexts && len(texts) > 0
		for i, text := range texts {
			fits = fits && schemaTypes[text] != "" && !slices.Contains(texts[:i], text)
		}
	case "schema":
		r.schema(path, w)
	case "schemas":
		if want, fits = "a list of schemas, at least one", w.is("array") && w.size() > 0; fits {
			for _, part := range w.inner() {
				r.schema(templateItemPath(path, i), part)
				i++
			}
		}
	case "named", "patterns":
		if want, fits = "an object of schemas", w.is("object"); fits {
			for key, part := range w.inner() {
				under := templateMemberPath(path, string(key.text()))
				if r.schema(under, part); kind == "patterns" {
					r.pattern(under, string(key.text()))
				}
			}
		}
	}
	if !fits {
		r.problem(path, "is %s; want %s", w.shown(), want)
	}
}

// reference finds the schema that a reference leads to.
func (r *schemaReader) reference(path, ref string, w jsonValue, named bool) {
	u, err := url.Parse(ref)
	if err != nil || named || ref == "" || ref[0] != '#' {
		r.problem(path, "%q is outside of the schema; references to other documents are not supported", clippedText(ref))
		return
	}
	target, found := jsonValue{w.tree, 0}, true
	for i, token := range strings.Split(u.Fragment, "/") {
		if found = found && (i > 0 || token == ""); found && i > 0 {
			target, found = target.step(pointerUnescaper.Replace(token))
		}
	}
	if !found || !r.nodes[target.node] {
		r.problem(path, "%q leads to no schema in this document", clippedText(ref))
	}
	r.targets[w.node] = target.node
}

var (
	pointerEscaper   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// step returns the member or element that a part of a JSON Pointer names.
func (n jsonValue) step(token string) (jsonValue, bool) {
	if n.is("array") {
		i := 0
		for _, value := range n.inner() {
			if strconv.Itoa(i) == token {
				return value, true
			}
			i++
		}
	}
	return n.find(token)
}

// What a pattern takes while it is read and compiled, in bytes.
const (
	patternBytes     = 3 << 10 // each byte of its text: that of a property, such as \pL, has hundreds of ranges
	instructionBytes = 160
)

// pattern compiles a pattern. Its size is known before it is compiled, since a repetition multiplies what it repeats.
func (r *schemaReader) pattern(path, text string) {
	if r.patterns[text].re != nil || !r.budget.take(patternBytes*len(text), path, "the text of the pattern") {
		return
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	r.budget.give(patternBytes * len(text))
	if err != nil {
		r.problem(path, "%q is not a pattern of RE2: %s", clippedText(text), err.(*syntax.Error).Code)
		return
	}
	size := programSize(parsed)
	what := fmt.Sprintf("the pattern %q of %d instructions", clippedText(text), size)
	if r.budget.take(instructionBytes*size, path, what) {
		re, _ := regexp.Compile(text) // which was parsed
		r.patterns[text] = schemaPattern{re, size}
	}
}

// programSize returns how many instructions an expression compiles to, at most. A large class of characters counts as
// several.
func programSize(re *syntax.Regexp) (n int) {
	for _, sub := range re.Sub {
		n += programSize(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass:
		return 1 + len(re.Rune)/16
	case syntax.OpRepeat:
		n = n*max(re.Min, re.Max, 1) + max(re.Max-re.Min, 0)
	}
	return n + 2
}

// Checking values.

// schemaRun is one check of a value.
type schemaRun struct {
	*jsonSchema
	budget *budget
	at     []byte // where in the value
	found  misfits
	quiet  int // above 0: misfits are not collected
	depth  int
}

// check returns what is wrong with a value that passed checkJSON. It takes memory from the budget, and ends early if
// that ends.
func (s *jsonSchema) check(b *budget, value []byte) misfits {
	v, own := &schemaRun{jsonSchema: s, budget: b}, s.tree // its own, since trees are not safe for concurrent use
	if own.index = nil; !v.take(treeBytes(value), "the decoded value") {
		return nil
	}
	// A check that was given up proves nothing, whatever it has found by then.
	if v.fits(jsonValue{&own, 0}, newJSONValue(value)); b.steps < 0 {
		return misfits{{want: "the schema takes too many steps to check the value"}}
	}
	return v.found
}

func (v *schemaRun) take(n int, what string) bool { return v.budget.take(n, string(v.at), what) }

// spend takes steps of the budget, and reports whether to continue.
func (v *schemaRun) spend(steps int) bool {
	v.budget.steps = max(v.budget.steps-steps, -1)
	return v.budget.steps >= 0 && !v.budget.ended()
}

// The steps that a schema and each of its keywords cost, in addition to those for what the keyword looks at.
const (
	schemaSteps  = 16
	keywordSteps = 4
)

func (v *schemaRun) fits(s, n jsonValue) bool {
	each := keywordSteps*(1+n.size()) + len(n.raw())/8
	if v.depth == maxSchemaDepth || !v.spend(schemaSteps+s.size()*each) {
		// Without steps, all checks around this one end as well. Otherwise, not would turn this result around.
		v.budget.steps = -1
		return false
	}
	v.depth++
	ok := s.kind() != 'f' || v.misfit(n, "want no value here")
	// The others are followed even if one fails, so that all misfits are found.
	for name, w := range s.inner() {
		ok = v.keyword(string(name.text()), s, w, n) && ok
	}
	v.depth--
	return ok
}

// keyword applies the member w of the schema s to a value.
func (v *schemaRun) keyword(name string, s, w, n jsonValue) bool {
	switch name {
	case "$ref":
		return v.fits(jsonValue{w.tree, v.targets[w.node]}, n)
	case "type":
		return v.typed(w, n)
	case "const":
		return v.among([]jsonValue{w}, n)
	case "enum":
		return v.among(w.elements(), n)
	case "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		return !n.is("number") || v.number(name, w, n)
	case "minLength", "maxLength", "minProperties", "maxProperties", "minItems", "maxItems":
		return v.size(name, w, n)
	case "pattern":
		return !n.is("string") || v.matches(w, n) || v.misfit(n, "want a text that matches "+clippedText(string(w.text())))
	case "format":
		valid := schemaFormats[string(w.text())]
		return valid == nil || !n.is("string") || v.spend(formatSteps*len(n.raw())) && valid(string(n.text())) ||
			v.misfit(n, "want the format "+string(w.text()))
	case "required", "properties", "patternProperties", "additionalProperties", "propertyNames":
		return !n.is("object") || v.object(name, s, w, n)
	case "items", "prefixItems", "uniqueItems":
		return !n.is("array") || v.list(name, s, w, n)
	case "allOf":
		ok := true
		for _, part := range w.inner() {
			ok = v.fits(part, n) && ok
		}
		return ok
	case "anyOf", "oneOf":
		return v.branches(name, w, n)
	case "not":
		return !v.quietly(w, n) || v.misfit(n, "want what the schema of not refuses")
	case "if":
		next, found := s.find(pick(v.quietly(w, n), "then", "else"))
		return !found || v.fits(next, n)
	}
	return true
}

func (n jsonValue) is(name string) bool {
	switch n.kind() {
	case 'n':
		return name == "null"
	case 't', 'f':
		return name == "boolean"
	case '{':
		return name == "object"
	case '[':
		return name == "array"
	case '"':
		return name == "string"
	}
	return name == "number" || name == "integer" && parseDecimal(n.raw()).integer()
}

func (v *schemaRun) typed(w, n jsonValue) bool {
	names, _ := w.texts()
	if slices.ContainsFunc(names, n.is) {
		return true
	}
	for i, name := range names {
		names[i] = schemaTypes[name]
	}
	return v.misfit(n, "want "+anyOf(names))
}

// texts returns a text as a list of one, or those of a list, and whether it has nothing else.
func (n jsonValue) texts() (all []string, ok bool) {
	if n.is("string") {
		return []string{string(n.text())}, true
	}
	ok = n.is("array")
	for _, value := range n.inner() {
		if ok = ok && value.is("string"); ok {
			all = append(all, string(value.text()))
		}
	}
	return all, ok
}

// among applies const or enum: the value must be one of some.
func (v *schemaRun) among(values []jsonValue, n jsonValue) bool {
	if !v.spend(len(n.raw())) {
		return false
	}
	const most, width = 100, 300 // of the values that are shown, and their text
	got, shown := n.normal(nil), []string{}
	for _, one := range values {
		if v.spend(1+len(one.raw())/4) && bytes.Equal(got, one.normal(nil)) {
			return true
		}
		if len(shown) < most && v.quiet == 0 {
			shown = append(shown, clippedText(string(one.raw())))
		}
	}
	return v.misfit(n, "want "+clipText(anyOf(shown), width))
}

func (v *schemaRun) number(name string, w, n jsonValue) bool {
	if !v.spend(4*len(n.raw()) + len(w.raw())) {
		return false
	}
	got, limit := parseDecimal(n.raw()), parseDecimal(w.raw())
	word, ok := "a multiple of", false
	switch c := got.compare(limit); name {
	case "multipleOf":
		ok = got.multipleOf(limit)
	case "minimum":
		word, ok = "at least", c >= 0
	case "maximum":
		word, ok = "at most", c <= 0
	case "exclusiveMinimum":
		word, ok = "more than", c > 0
	case "exclusiveMaximum":
		word, ok = "less than", c < 0
	}
	return ok || v.misfit(n, "want "+word+" "+clippedText(string(w.raw())))
}

// size applies a limit on the length of strings, lists or objects.
func (v *schemaRun) size(name string, w, n jsonValue) bool {
	kind, unit, size := "array", "element", n.size()
	switch name[len("min"):] {
	case "Properties":
		kind, unit = "object", "member"
	case "Length":
		kind, unit = "string", "character"
	}
	if !n.is(kind) {
		return true
	}
	if kind == "string" {
		size = utf8.RuneCount(n.text())
	}
	limit, _, _ := nearestInt(w.raw())
	word, ok := "at least", int64(size) >= limit
	if name[:len("max")] == "max" {
		word, ok = "at most", int64(size) <= limit
	}
	return ok || v.misfitAt(counted(size, unit, unit+"s"), "want "+word+" "+counted(int(limit), unit, unit+"s"))
}

func (v *schemaRun) object(name string, s, w, n jsonValue) bool {
	ok := true
	switch name {
	case "required":
		for _, key := range w.inner() {
			if v.spend(8) && !n.has(string(key.text())) {
				ok = v.under(key, 0, func() bool { return v.misfitAt("", "is required") })
			}
		}
	case "properties":
		for key, part := range w.inner() {
			if value, found := n.find(string(key.text())); v.spend(8) && found {
				ok = v.under(key, 0, func() bool { return v.fits(part, value) }) && ok
			}
		}
	case "propertyNames":
		for key := range n.inner() {
			ok = v.under(key, 0, func() bool { return v.fits(w, key) }) && ok
		}
	case "patternProperties":
		for pattern, part := range w.inner() {
			for key, value := range n.inner() {
				if v.matches(pattern, key) {
					ok = v.under(key, 0, func() bool { return v.fits(part, value) }) && ok
				}
			}
		}
	case "additionalProperties":
		props, named := s.find("properties")
		patterns, matched := s.find("patternProperties")
		for key, value := range n.inner() {
			if named && props.has(string(key.text())) || matched && v.matchesAny(patterns, key) {
				continue
			}
			ok = v.under(key, 0, func() bool { return v.fits(w, value) }) && ok
		}
	}
	return ok
}

func (v *schemaRun) list(name string, s, w, n jsonValue) bool {
	if name == "uniqueItems" {
		return w.kind() == 'f' || v.unique(n)
	}
	var prefix []jsonValue
	if list, found := s.find("prefixItems"); found {
		prefix = list.elements()
	}
	ok, i := true, 0
	for _, value := range n.inner() {
		if (i < len(prefix)) == (name == "prefixItems") {
			part := w
			if i < len(prefix) {
				part = prefix[i]
			}
			ok = v.under(jsonValue{}, i, func() bool { return v.fits(part, value) }) && ok
		}
		i++
	}
	return ok
}

func (v *schemaRun) unique(n jsonValue) bool {
	memory := 96*n.size() + 4*len(n.raw())
	if !v.take(memory, "comparing the elements for uniqueItems") {
		return true
	}
	defer v.budget.give(memory)
	seen := make(map[string]int, n.size())
	for _, value := range n.inner() {
		text := string(value.normal(nil))
		if first, twice := seen[text]; twice {
			return v.misfitAt(fmt.Sprintf("equal elements %d and %d", first, len(seen)), "want different ones")
		}
		seen[text] = len(seen)
	}
	return true
}

// branches applies anyOf or oneOf.
func (v *schemaRun) branches(name string, w, n jsonValue) bool {
	fit, before, nearest := 0, v.found, misfits(nil)
	for _, part := range w.inner() {
		// Apart from what was found before, so that the branches can be compared.
		v.found = nil
		if v.fits(part, n) {
			fit++
		} else if nearest == nil || len(v.found) < len(nearest) {
			nearest = v.found
		}
	}
	if v.found = before; fit > 0 {
		return fit == 1 || name == "anyOf" ||
			v.misfitAt(fmt.Sprintf("what fits %d of the %d schemas of oneOf", fit, w.size()), "want one")
	}
	v.misfitAt("", fmt.Sprintf("fits none of %s of %s", counted(w.size(), "schema", "schemas"), name))
	if len(nearest) > 0 && len(v.found) > len(before) {
		v.found[len(before)].nearest = &nearest[0]
	}
	return false
}

// under calls f at the member with a name, or at the i-th element if there is none.
func (v *schemaRun) under(name jsonValue, i int, f func() bool) bool {
	before := len(v.at)
	if name.tree != nil {
		v.at = append(v.at, "/"+pointerEscaper.Replace(string(name.text()))...)
	} else {
		v.at = strconv.AppendInt(append(v.at, '/'), int64(i), 10)
	}
	ok := f()
	v.at = v.at[:before]
	return ok
}

// quietly applies a schema without collecting misfits.
func (v *schemaRun) quietly(s, n jsonValue) bool {
	v.quiet++
	defer func() { v.quiet-- }()
	return v.fits(s, n)
}

// misfit notes that a value is wrong, and returns false.
func (v *schemaRun) misfit(n jsonValue, want string) bool {
	if v.quiet == 0 && v.spend(len(n.raw())) {
		v.misfitAt(n.shown(), want)
	}
	return false
}

// misfitAt is misfit with another text for the value.
func (v *schemaRun) misfitAt(got, want string) bool {
	if v.quiet == 0 && len(v.found) < maxMisfits {
		v.found = append(v.found, misfit{at: clipText(string(v.at), maxPointer), got: got, want: want})
	}
	return false
}

// matchesAny reports whether a name matches one of the patterns of patternProperties.
func (v *schemaRun) matchesAny(patterns, name jsonValue) bool {
	for pattern := range patterns.inner() {
		if v.matches(pattern, name) {
			return true
		}
	}
	return false
}

// matches reports whether a text matches a pattern. A match cannot be interrupted, so the steps are spent before it: at
// most one for each byte and instruction.
func (v *schemaRun) matches(pattern, n jsonValue) bool {
	p := v.patterns[string(pattern.text())]
	return v.spend(schemaSteps+len(n.raw())*p.size) && p.re.Match(n.text())
}

// The keyword format of JSON Schema: which formats of texts are checked, and how.

// formatSteps is how many steps of a check each byte of a text costs, in the slowest format.
const formatSteps = 16

// schemaFormats holds the checked formats; docs/reference/schemas.md lists them.
var schemaFormats = map[string]func(s string) bool{
	"date-time": validDateTime, "date": validDate, "time": validTime, "email": validEmail, "uri": validURI,
	"uuid": func(s string) bool { return uuidSyntax().MatchString(s) },
	"ipv4": validIPv4, "ipv6": validIPv6,
	// The syntax of RFC 1123. Labels in Punycode are not decoded: what they may stand for needs tables of Unicode.
	"hostname": func(s string) bool { return len(s) <= 253 && hostSyntax().MatchString(s) },
}

const (
	hostLabel  = `[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?`
	emailLabel = `[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?`
	emailAtom  = "[\\w!#$%&'*+/=?^`{|}~-]+"
	uriPath    = `(?:/` + uriChar + `*)*`
	uriChar    = `(?:[\w.~!$&'()*+,;=:@-]|` + uriPercent + `)`
	uriPercent = `%[0-9A-Fa-f]{2}`
	uriTail    = `(?:[/?]|` + uriChar + `)*`
)

var (
	dateSyntax  = compiled(`^(\d{4})-(\d{2})-(\d{2})$`)
	timeSyntax  = compiled(`^(\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:[zZ]|([+-])(\d{2}):(\d{2}))$`)
	uuidSyntax  = compiled(`^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	hostSyntax  = compiled(`^` + hostLabel + `(?:\.` + hostLabel + `)*$`)
	emailSyntax = compiled(`^(` + emailAtom + `(?:\.` + emailAtom + `)*|"(?:[ !#-\[\]-~]|\\[ -~])*")@(?:(` +
		emailLabel + `(?:\.` + emailLabel + `)*)|\[(.*)\])$`)
	uriSyntax = compiled(`^[A-Za-z][A-Za-z0-9+.-]*:(?://(?:(?:[\w.~!$&'()*+,;=:-]|` + uriPercent +
		`)*@)?(?:(\[[^\]]*\])|(?:[\w.~!$&'()*+,;=-]|` + uriPercent + `)*)(?::[0-9]*)?` + uriPath +
		`|/(?:` + uriChar + `+` + uriPath + `)?|` + uriChar + `+` + uriPath + `|)(?:\?` + uriTail + `)?(?:#` + uriTail + `)?$`)
	futureAddressSyntax = compiled(`^[vV][0-9A-Fa-f]+\.[\w.~!$&'()*+,;=:-]+$`)
)

func validDate(s string) bool {
	_, err := time.Parse(time.DateOnly, s)
	return err == nil && dateSyntax().MatchString(s)
}

// validTime reports whether s is a time of RFC 3339. A leap second is at the end of a day
// in UTC.
func validTime(s string) bool {
	m := timeSyntax().FindStringSubmatch(s)
	if m == nil {
		return false
	}
	number := func(i int) int { n, _ := strconv.Atoi(m[i]); return n }
	hour, minute, second, offset := number(1), number(2), number(3), number(5)*60+number(6)
	if hour > 23 || minute > 59 || second > 60 || number(5) > 23 || number(6) > 59 {
		return false
	}
	if m[4] == "+" {
		offset = -offset
	}
	// The days keep the sum above 0.
	return second < 60 || (hour*60+minute+offset+2*24*60)%(24*60) == 24*60-1
}

func validDateTime(s string) bool {
	return len(s) > 10 && s[10]|0x20 == 't' && validDate(s[:10]) && validTime(s[11:])
}

func validIPv4(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is4()
}

func validIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && a.Zone() == ""
}

func validEmail(s string) bool {
	m := emailSyntax().FindStringSubmatch(s)
	if m == nil || len(m[1]) > 64 || len(m[2]) > 253 {
		return false
	}
	v6, isV6 := strings.CutPrefix(m[3], "IPv6:")
	return m[2] != "" || isV6 && validIPv6(v6) || validIPv4(m[3])
}

// validURI checks the syntax of RFC 3986.
func validURI(s string) bool {
	m := uriSyntax().FindStringSubmatch(s)
	if m == nil {
		return false
	}
	address := strings.Trim(m[1], "[]")
	return m[1] == "" || validIPv6(address) || futureAddressSyntax().MatchString(address)
}
