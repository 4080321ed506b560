package main

// JSON Schema, draft 2020-12: a schema of a template is compiled once, with every fault of
// it, and then checks values. What it does not know is refused when it is compiled, so that
// no value is judged by half a schema. References lead to places in the same schema only.

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a check. The steps grow with the size of the value.
const (
	maxMisfits      = 10        // reported
	maxSchemaDepth  = 10_000    // schemas inside one another, of which a reference counts as one
	baseSchemaSteps = 1_000_000 // schemas applied to values, and bytes compared, for every value
	schemaStepsEach = 32        // further ones for each byte of the value
)

// misfit is a place in a value that does not fit its schema.
type misfit struct {
	at   string // a JSON Pointer
	got  string // "" if want says it
	want string
}

// why says what is wrong at the place.
func (m misfit) why() string { return pick(m.got == "", m.want, "got "+m.got+"; "+m.want) }

// String has the place too, unless it is the value as a whole.
func (m misfit) String() string { return pick(m.at == "", "", m.at+": ") + m.why() }

// misfits are the places in a value that do not fit.
type misfits []misfit

func (all misfits) String() string { return all.join(misfit.String) }

// wants is String without the values, for the log.
func (all misfits) wants() string {
	return all.join(func(m misfit) string { return misfit{at: m.at, want: m.want}.String() })
}

func (all misfits) join(text func(misfit) string) string {
	lines := make([]string, len(all))
	for i, m := range all {
		lines[i] = text(m)
	}
	return strings.Join(lines, "; ")
}

// jsonSchema is a compiled schema. It is immutable.
type jsonSchema struct {
	root     *schemaNode
	problems inputProblems // for which it cannot be used; their fields are paths in the template
	warnings inputProblems
	tracks   bool // some part asks what the others evaluated
}

// schemaNode is one schema in a document. Members that check nothing alone are for the
// checks of others.
type schemaNode struct {
	resource *schemaResource
	checks   []schemaCheck
	last     []schemaCheck // made if the others hold: they need what those evaluated
	inPlace  []*schemaNode // applied to the same value as this one

	props       map[string]*schemaNode
	patterns    []schemaPattern
	prefix      []*schemaNode
	then        *schemaNode
	otherwise   *schemaNode
	minContains int
	maxContains int // -1 for no limit
}

type schemaPattern struct {
	re *regexp.Regexp
	s  *schemaNode
}

// schemaCheck checks one keyword. It adds what it evaluates, if anybody asks.
type schemaCheck func(v *schemaRun, n *jsonValue, e *evaluated) bool

// Compiling.

// schemaPlace is a place in a schema: as a JSON Pointer, and as templates name it.
type schemaPlace struct{ pointer, path string }

func (p schemaPlace) member(key string) schemaPlace {
	return schemaPlace{p.pointer + "/" + pointerEscaper.Replace(key), templateMemberPath(p.path, key)}
}

func (p schemaPlace) item(i int) schemaPlace {
	return schemaPlace{p.pointer + "/" + strconv.Itoa(i), templateItemPath(p.path, i)}
}

var (
	pointerEscaper   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// schemaCompiler compiles one document.
type schemaCompiler struct {
	*jsonSchema
	nodes     map[string]*schemaNode // by pointer
	resources map[string]*schemaResource
	order     []*schemaNode
	paths     map[*schemaNode]string
	refs      []func() // to resolve when all schemas are known
	known     []schemaKeyword
}

// compileSchema compiles a schema that passed checkJSON. Its faults are among the problems.
func compileSchema(path string, text []byte) *jsonSchema {
	c := &schemaCompiler{
		jsonSchema: &jsonSchema{}, nodes: map[string]*schemaNode{}, resources: map[string]*schemaResource{},
		paths: map[*schemaNode]string{}, known: schemaKeywords(),
	}
	outermost := newSchemaResource(&url.URL{Scheme: "template", Path: "/"}, "")
	c.root = c.node(schemaPlace{"", path}, text, outermost)
	for _, resolve := range c.refs {
		resolve()
	}
	c.findLoops()
	return c.jsonSchema
}

func (c *schemaCompiler) problem(at schemaPlace, format string, args ...any) {
	c.problems = append(c.problems, inputProblem{Field: at.path, Message: fmt.Sprintf(format, args...)})
}

// node compiles a schema and what it contains.
func (c *schemaCompiler) node(at schemaPlace, raw []byte, in *schemaResource) *schemaNode {
	s := &schemaNode{resource: in, minContains: 1, maxContains: -1}
	c.nodes[at.pointer], c.paths[s] = s, at.path
	c.order = append(c.order, s)
	switch jsonKind(raw) {
	case 't':
	case 'f':
		s.checks = []schemaCheck{refuseValue}
	case '{':
		c.identify(s, at, raw)
		c.keywords(s, at, raw)
	default:
		c.problem(at, "is %s; want a schema: an object, true or false", templateValueKind(raw))
	}
	return s
}

// keywords compiles the members of a schema in the order of the table.
func (c *schemaCompiler) keywords(s *schemaNode, at schemaPlace, raw []byte) {
	members := templateMembers(raw)
	for _, m := range members {
		if !slices.ContainsFunc(c.known, func(k schemaKeyword) bool { return k.name == m.key }) {
			c.problem(at.member(m.key), "the keyword %s is not supported%s", clippedText(m.key), keywordHint(m.key))
		}
	}
	for _, k := range c.known {
		if value := members.value(k.name); value != nil && k.compile != nil {
			k.compile(c, s, at.member(k.name), value)
		}
	}
}

func keywordHint(key string) string {
	const older = " in draft 2020-12; "
	switch key {
	case "dependencies":
		return older + "use dependentRequired or dependentSchemas"
	case "additionalItems":
		return older + "use prefixItems and items"
	case "id":
		return older + "use $id"
	case "$recursiveRef", "$recursiveAnchor":
		return older + "use $dynamicRef and $dynamicAnchor"
	}
	for _, k := range schemaKeywords() {
		if typoDistance(strings.ToLower(key), strings.ToLower(k.name), typoLimit(key)) <= typoLimit(key) {
			return " (did you mean " + k.name + "?)"
		}
	}
	return ""
}

// schemaKeyword is a keyword that schemas may have. Its compile is nil if it checks nothing.
type schemaKeyword struct {
	name    string
	compile compileFunc
}

type compileFunc func(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte)

// schemaKeywords returns every known keyword, in the order in which they are checked;
// docs/templates.md lists them.
func schemaKeywords() []schemaKeyword {
	return []schemaKeyword{
		{"$schema", compileDialect}, {"$id", compileText}, {"$comment", nil},
		{"$anchor", compileAnchor}, {"$dynamicAnchor", compileAnchor},
		{"$ref", compileRef}, {"$dynamicRef", compileRef},
		{"$defs", compileNamed(nil)}, {"definitions", compileNamed(nil)},
		{"type", compileType}, {"enum", compileEnum}, {"const", compileConst},
		{"multipleOf", compileMultiple},
		{"minimum", compileBound("at least", func(c int) bool { return c >= 0 })},
		{"maximum", compileBound("at most", func(c int) bool { return c <= 0 })},
		{"exclusiveMinimum", compileBound("more than", func(c int) bool { return c > 0 })},
		{"exclusiveMaximum", compileBound("less than", func(c int) bool { return c < 0 })},
		{"minLength", compileSize('"', false)}, {"maxLength", compileSize('"', true)},
		{"pattern", compilePattern}, {"format", compileFormat},
		{"contentEncoding", nil}, {"contentMediaType", nil}, {"contentSchema", compileUnused},
		{"minProperties", compileSize('{', false)}, {"maxProperties", compileSize('{', true)},
		{"required", compileRequired}, {"dependentRequired", compileDependentRequired},
		{"properties", compileProperties}, {"patternProperties", compilePatternProperties},
		{"additionalProperties", compileAdditional}, {"propertyNames", compileNames},
		{"minItems", compileSize('[', false)}, {"maxItems", compileSize('[', true)},
		{"uniqueItems", compileUnique}, {"prefixItems", compilePrefix}, {"items", compileItems},
		{"minContains", compileCount(func(s *schemaNode) *int { return &s.minContains })},
		{"maxContains", compileCount(func(s *schemaNode) *int { return &s.maxContains })},
		{"contains", compileContains},
		{"allOf", compileAll}, {"anyOf", compileAny}, {"oneOf", compileOne}, {"not", compileNot},
		{"then", compileThen}, {"else", compileThen}, {"if", compileIf},
		{"dependentSchemas", compileNamed(dependentSchemas)},
		{"unevaluatedProperties", compileUnevaluated('{')}, {"unevaluatedItems", compileUnevaluated('[')},
		{"title", nil}, {"description", nil}, {"default", nil}, {"examples", nil},
		{"deprecated", nil}, {"readOnly", nil}, {"writeOnly", nil},
	}
}

func compileDialect(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	const dialect = "https://json-schema.org/draft/2020-12/schema"
	if text, _ := jsonString(raw); strings.TrimSuffix(text, "#") != dialect {
		c.problem(at, "the keyword $schema must be %q, not %s", dialect, clippedText(string(raw)))
	}
}

func compileText(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) { c.text(at, raw) }

// text reads a string.
func (c *schemaCompiler) text(at schemaPlace, raw []byte) string {
	text, ok := jsonString(raw)
	if !ok {
		c.problem(at, "is %s; want a string", templateValueKind(raw))
	}
	return text
}

// compileUnused compiles a schema that is not applied.
func compileUnused(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	c.node(at, raw, s.resource)
}

// compileNamed compiles an object of schemas, and hands them over unless take is nil.
func compileNamed(take func(s *schemaNode, schemas map[string]*schemaNode)) compileFunc {
	return func(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
		schemas := c.named(s, at, raw)
		if take != nil {
			take(s, schemas)
		}
	}
}

func (c *schemaCompiler) named(s *schemaNode, at schemaPlace, raw []byte) map[string]*schemaNode {
	schemas := map[string]*schemaNode{}
	if !eachMember(raw, func(key string, value []byte) bool {
		schemas[key] = c.node(at.member(key), value, s.resource)
		return true
	}) {
		c.problem(at, "is %s; want an object of schemas", templateValueKind(raw))
	}
	return schemas
}

// listed compiles a list of schemas.
func (c *schemaCompiler) listed(s *schemaNode, at schemaPlace, raw []byte) (schemas []*schemaNode) {
	for i, value := range templateElements(raw) {
		schemas = append(schemas, c.node(at.item(i), value, s.resource))
	}
	if len(schemas) == 0 {
		c.problem(at, "is %s; want a list of schemas, at least one", templateValueKind(raw))
	}
	return schemas
}

func (s *schemaNode) check(f schemaCheck) { s.checks = append(s.checks, f) }

// Checks of objects.

func (c *schemaCompiler) names(at schemaPlace, raw []byte) (names []string) {
	if !eachElement(raw, func(value []byte) bool {
		names = append(names, c.text(at.item(len(names)), value))
		return true
	}) {
		c.problem(at, "is %s; want a list of names", templateValueKind(raw))
	}
	return names
}

func compileRequired(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	names := c.names(at, raw)
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool { return v.has(n, names, "is required") })
}

func compileDependentRequired(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	if !eachMember(raw, func(key string, value []byte) bool {
		names, why := c.names(at.member(key), value), "is required beside "+clippedText(key)
		s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
			return n.find(key) < 0 || v.has(n, names, why)
		})
		return true
	}) {
		c.problem(at, "is %s; want an object", templateValueKind(raw))
	}
}

// has reports whether an object has members.
func (v *schemaRun) has(n *jsonValue, names []string, why string) bool {
	ok := true
	for _, name := range names {
		if n.kind == '{' && n.find(name) < 0 {
			ok = v.misfitIn(append(v.at, "/"+pointerEscaper.Replace(name)...), "", why)
		}
	}
	return ok
}

func compileProperties(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	s.props = c.named(s, at, raw)
	s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool {
		return v.each(n, '{', e, func(i int) *schemaNode { return s.props[n.names[i]] })
	})
}

func compilePatternProperties(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	schemas := c.named(s, at, raw)
	for _, key := range slices.Sorted(maps.Keys(schemas)) {
		p := schemaPattern{c.pattern(at.member(key), key), schemas[key]}
		s.patterns = append(s.patterns, p)
		s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool {
			return v.each(n, '{', e, func(i int) *schemaNode {
				return pick(v.matches(p.re, n.names[i]), p.s, nil)
			})
		})
	}
}

func compileAdditional(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	schema := c.node(at, raw, s.resource)
	s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool {
		return v.each(n, '{', e, func(i int) *schemaNode {
			name := n.names[i]
			known := s.props[name] != nil ||
				slices.ContainsFunc(s.patterns, func(p schemaPattern) bool { return v.matches(p.re, name) })
			return pick(known, nil, schema)
		})
	})
}

func compileNames(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	schema := c.node(at, raw, s.resource)
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
		ok := true
		for i, name := range n.names {
			text := appendJSONString(nil, name)
			ok = v.under(n, i, func() bool { return v.fits(schema, newJSONValue(text), nil) }) && ok
		}
		return ok
	})
}

// Checks of lists.

func compileUnique(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	if kind := jsonKind(raw); kind != 't' && kind != 'f' {
		c.problem(at, "is %s; want true or false", templateValueKind(raw))
	} else if kind == 'f' {
		return
	}
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
		if n.kind != '[' {
			return true
		}
		first := make(map[string]int, len(n.values))
		for i, value := range n.values {
			text := v.normal(value)
			if j, twice := first[text]; twice {
				return v.misfitIn(v.at, fmt.Sprintf("equal elements %d and %d", j, i), "want different ones")
			}
			first[text] = i
		}
		return true
	})
}

func compilePrefix(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	s.prefix = c.listed(s, at, raw)
	s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool {
		return v.each(n, '[', e, func(i int) *schemaNode {
			if i < len(s.prefix) {
				return s.prefix[i]
			}
			return nil
		})
	})
}

func compileItems(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	schema := c.node(at, raw, s.resource)
	s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool {
		return v.each(n, '[', e, func(i int) *schemaNode { return pick(i < len(s.prefix), nil, schema) })
	})
}

func compileCount(at func(s *schemaNode) *int) compileFunc {
	return func(c *schemaCompiler, s *schemaNode, place schemaPlace, raw []byte) { *at(s) = c.count(place, raw) }
}

func compileContains(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	schema := c.node(at, raw, s.resource)
	want := fmt.Sprintf("want at least %d", s.minContains)
	if s.maxContains >= 0 {
		want = fmt.Sprintf("want %d to %d", s.minContains, s.maxContains)
	}
	s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool {
		if n.kind != '[' {
			return true
		}
		found := 0
		for i, value := range n.values {
			if v.quietly(func() bool { return v.fits(schema, value, nil) }) {
				found++
				e.mark(n, i)
			}
		}
		return found >= s.minContains && (s.maxContains < 0 || found <= s.maxContains) ||
			v.misfitIn(v.at, counted(found, "element that fits contains", "elements that fit contains"), want)
	})
}

// Checks by other schemas of the same value.

func compileAll(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	for _, part := range c.applied(s, at, raw) {
		s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool { return v.fits(part, n, e) })
	}
}

// applied compiles a list of schemas that are applied to the value itself.
func (c *schemaCompiler) applied(s *schemaNode, at schemaPlace, raw []byte) []*schemaNode {
	parts := c.listed(s, at, raw)
	s.inPlace = append(s.inPlace, parts...)
	return parts
}

func compileAny(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	parts := c.applied(s, at, raw)
	s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool {
		fit, nearest := v.branches(parts, n, e)
		return fit > 0 || v.fitsNone(nearest, len(parts), "anyOf")
	})
}

func compileOne(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	parts := c.applied(s, at, raw)
	s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool {
		fit, nearest := v.branches(parts, n, e)
		if fit > 1 {
			return v.misfitIn(v.at, fmt.Sprintf("what fits %d of the %d schemas of oneOf", fit, len(parts)), "want one")
		}
		return fit == 1 || v.fitsNone(nearest, len(parts), "oneOf")
	})
}

// branches applies schemas and counts those that fit. Of the others it returns the misfits
// of the one that has fewest.
func (v *schemaRun) branches(parts []*schemaNode, n *jsonValue, e *evaluated) (fit int, nearest misfits) {
	before := v.found
	for i, part := range parts {
		v.found = nil
		if v.fits(part, n, e) {
			fit++
		} else if i == 0 || len(v.found) < len(nearest) {
			nearest = v.found
		}
	}
	v.found = before
	return fit, nearest
}

func (v *schemaRun) fitsNone(nearest misfits, parts int, keyword string) bool {
	want := fmt.Sprintf("fits none of %s of %s", counted(parts, "schema", "schemas"), keyword)
	if len(nearest) > 0 {
		want += "; in the nearest, " + nearest[0].String()
	}
	return v.misfitIn(v.at, "", want)
}

func compileNot(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	part := c.node(at, raw, s.resource)
	s.inPlace = append(s.inPlace, part)
	s.check(func(v *schemaRun, n *jsonValue, _ *evaluated) bool {
		return !v.quietly(func() bool { return v.fits(part, n, nil) }) ||
			v.misfit(n, "want what the schema of not refuses")
	})
}

func compileThen(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	part := c.node(at, raw, s.resource)
	s.inPlace = append(s.inPlace, part)
	if strings.HasSuffix(at.pointer, "/then") {
		s.then = part
	} else {
		s.otherwise = part
	}
}

func compileIf(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	part := c.node(at, raw, s.resource)
	s.inPlace = append(s.inPlace, part)
	s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool {
		next := s.otherwise
		if v.quietly(func() bool { return v.fits(part, n, e) }) {
			next = s.then
		}
		return next == nil || v.fits(next, n, e)
	})
}

func dependentSchemas(s *schemaNode, schemas map[string]*schemaNode) {
	for _, key := range slices.Sorted(maps.Keys(schemas)) {
		part := schemas[key]
		s.inPlace = append(s.inPlace, part)
		s.check(func(v *schemaRun, n *jsonValue, e *evaluated) bool { return n.find(key) < 0 || v.fits(part, n, e) })
	}
}

func compileUnevaluated(kind byte) compileFunc {
	return func(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
		schema := c.node(at, raw, s.resource)
		c.tracks = true
		s.last = append(s.last, func(v *schemaRun, n *jsonValue, e *evaluated) bool {
			return v.each(n, kind, e, func(i int) *schemaNode { return pick(e.has(i), nil, schema) })
		})
	}
}

// Checking values.

// schemaRun is one check of a value.
type schemaRun struct {
	schema *jsonSchema
	scope  []*schemaResource // those whose schemas are being applied, the first one first
	at     []byte            // where in the value
	found  misfits
	quiet  int // above 0: misfits are not collected
	depth  int
	left   int // steps
}

// check returns what is wrong with a value that passed checkJSON.
func (s *jsonSchema) check(value []byte) misfits {
	v := &schemaRun{schema: s, left: baseSchemaSteps + schemaStepsEach*len(value)}
	n := newJSONValue(value)
	if v.fits(s.root, n, nil); v.left < 0 {
		return misfits{{want: "the schema takes too many steps to check the value"}}
	}
	return v.found
}

// fits applies a schema to a value, and adds what it evaluates to e.
func (v *schemaRun) fits(s *schemaNode, n *jsonValue, e *evaluated) bool {
	if v.left--; v.left < 0 || v.depth == maxSchemaDepth {
		v.left = -1
		return false
	}
	v.depth++
	entered := len(v.scope) == 0 || v.scope[len(v.scope)-1] != s.resource
	if entered {
		v.scope = append(v.scope, s.resource)
	}
	var own *evaluated
	if v.schema.tracks {
		own = &evaluated{}
	}
	ok := true
	for _, check := range s.checks {
		ok = check(v, n, own) && ok
	}
	for _, check := range s.last {
		ok = ok && check(v, n, own)
	}
	if ok {
		e.join(own)
	}
	if entered {
		v.scope = v.scope[:len(v.scope)-1]
	}
	v.depth--
	return ok
}

// each applies to every member or element of a value of a kind the schema for it, if any.
func (v *schemaRun) each(n *jsonValue, kind byte, e *evaluated, schemaOf func(i int) *schemaNode) bool {
	if n.kind != kind {
		return true
	}
	ok := true
	for i, value := range n.values {
		if s := schemaOf(i); s != nil {
			ok = v.under(n, i, func() bool { return v.fits(s, value, nil) }) && ok
			e.mark(n, i)
		}
	}
	return ok
}

// under calls f at a member or element.
func (v *schemaRun) under(n *jsonValue, i int, f func() bool) bool {
	before := len(v.at)
	v.at = append(v.at, '/')
	if n.kind == '{' {
		v.at = append(v.at, pointerEscaper.Replace(n.names[i])...)
	} else {
		v.at = strconv.AppendInt(v.at, int64(i), 10)
	}
	ok := f()
	v.at = v.at[:before]
	return ok
}

// quietly calls f without collecting misfits.
func (v *schemaRun) quietly(f func() bool) bool {
	v.quiet++
	defer func() { v.quiet-- }()
	return f()
}

// misfit notes that a value is wrong, and returns false.
func (v *schemaRun) misfit(n *jsonValue, want string) bool { return v.misfitIn(v.at, n.shown(), want) }

func (v *schemaRun) misfitIn(at []byte, got, want string) bool {
	if v.quiet == 0 && len(v.found) < maxMisfits {
		v.found = append(v.found, misfit{string(at), got, want})
	}
	return false
}

// refuseValue is the schema false.
func refuseValue(v *schemaRun, n *jsonValue, _ *evaluated) bool {
	return v.misfit(n, "want no value here")
}

// matches reports whether a text matches a pattern.
func (v *schemaRun) matches(re *regexp.Regexp, text string) bool {
	v.left -= 1 + len(text)/16
	return v.left >= 0 && re.MatchString(text)
}

// normal returns what all values have that are equal to this one.
func (v *schemaRun) normal(n *jsonValue) string {
	if v.left -= 1 + len(n.raw)/16; v.left < 0 {
		return ""
	}
	return string(n.normal(nil))
}

// evaluated holds the members or elements of a value that some schema was applied to. A nil
// one takes nothing.
type evaluated struct{ places []bool }

func (e *evaluated) mark(n *jsonValue, i int) {
	if e == nil {
		return
	}
	if e.places == nil {
		e.places = make([]bool, len(n.values))
	}
	e.places[i] = true
}

func (e *evaluated) has(i int) bool { return e.places != nil && e.places[i] }

func (e *evaluated) join(other *evaluated) {
	if e == nil || other.places == nil {
		return
	}
	if e.places == nil {
		e.places = other.places
		return
	}
	for i, marked := range other.places {
		e.places[i] = e.places[i] || marked
	}
}

// References between schemas.

// schemaResource is a schema with an identifier, or the whole document.
type schemaResource struct {
	base    *url.URL
	pointer string                 // of its root in the document
	anchors map[string]*schemaNode // $anchor and $dynamicAnchor
	dynamic map[string]*schemaNode // $dynamicAnchor alone
}

func newSchemaResource(base *url.URL, pointer string) *schemaResource {
	return &schemaResource{base, pointer, map[string]*schemaNode{}, map[string]*schemaNode{}}
}

// identify gives a schema the resource that it belongs to.
func (c *schemaCompiler) identify(s *schemaNode, at schemaPlace, raw []byte) {
	id, named := jsonString(objectMember(raw, "$id"))
	if !named && at.pointer != "" {
		return
	}
	u, err := s.resource.base.Parse(id)
	if err != nil || u.Fragment != "" {
		c.problem(at.member("$id"), "%q is not a URI reference without a fragment", clippedText(id))
		return
	}
	s.resource = newSchemaResource(u, at.pointer)
	if c.resources[u.String()] != nil {
		c.problem(at.member("$id"), "%q is the identifier of another schema", clippedText(id))
	}
	c.resources[u.String()] = s.resource
}

var anchorSyntax = compiled(`^[A-Za-z_][A-Za-z0-9._-]*$`)

func compileAnchor(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	name := c.text(at, raw)
	if !anchorSyntax().MatchString(name) {
		c.problem(at, "%q is not a plain name", clippedText(name))
	} else if other := s.resource.anchors[name]; other != nil && other != s {
		c.problem(at, "another schema has the anchor %q", clippedText(name))
	}
	if s.resource.anchors[name] = s; strings.HasSuffix(at.pointer, "/$dynamicAnchor") {
		s.resource.dynamic[name] = s
	}
}

// compileRef compiles $ref and $dynamicRef. They are the same unless the name that
// $dynamicRef leads to is a dynamic anchor.
func compileRef(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	ref, place := c.text(at, raw), len(s.checks)
	s.checks = append(s.checks, nil)
	c.refs = append(c.refs, func() {
		target, in, name := c.target(s, at, ref)
		if target == nil {
			return
		}
		s.inPlace = append(s.inPlace, target)
		s.checks[place] = func(v *schemaRun, n *jsonValue, e *evaluated) bool { return v.fits(target, n, e) }
		if strings.HasSuffix(at.pointer, "/$ref") || in.dynamic[name] != target {
			return
		}
		for _, r := range c.resources {
			if other := r.dynamic[name]; other != nil {
				s.inPlace = append(s.inPlace, other)
			}
		}
		s.checks[place] = func(v *schemaRun, n *jsonValue, e *evaluated) bool {
			for _, r := range v.scope {
				if other := r.dynamic[name]; other != nil {
					return v.fits(other, n, e)
				}
			}
			return v.fits(target, n, e)
		}
	})
}

// target finds the schema that a reference leads to, its resource, and the name of its anchor.
func (c *schemaCompiler) target(s *schemaNode, at schemaPlace, ref string) (*schemaNode, *schemaResource, string) {
	u, err := s.resource.base.Parse(ref)
	if err != nil {
		c.problem(at, "%q is not a URI reference", clippedText(ref))
		return nil, nil, ""
	}
	fragment := u.Fragment
	u.Fragment, u.RawFragment = "", ""
	in := c.resources[u.String()]
	if in == nil {
		c.problem(at, "%q is outside of the schema; references to other documents are not supported", clippedText(ref))
		return nil, nil, ""
	}
	target := in.anchors[fragment]
	if fragment == "" || fragment[0] == '/' {
		target = c.nodes[in.pointer+normalPointer(fragment)]
	}
	if target == nil {
		c.problem(at, "%q leads to no schema in this document", clippedText(ref))
	}
	return target, in, fragment
}

// normalPointer escapes a pointer as places are.
func normalPointer(p string) string {
	tokens := strings.Split(p, "/")
	for i, t := range tokens {
		tokens[i] = pointerEscaper.Replace(pointerUnescaper.Replace(t))
	}
	return strings.Join(tokens, "/")
}

// findLoops refuses schemas that apply themselves to the same value.
func (c *schemaCompiler) findLoops() {
	state := map[*schemaNode]int{} // 1: being visited, 2: sound
	var visit func(s *schemaNode)
	visit = func(s *schemaNode) {
		if state[s] == 0 {
			state[s] = 1
			for _, to := range s.inPlace {
				if state[to] == 1 {
					c.problems = append(c.problems, inputProblem{Field: c.paths[s], Message: "refers to itself without end"})
					continue
				}
				visit(to)
			}
			state[s] = 2
		}
	}
	for _, s := range c.order {
		visit(s)
	}
}

// The keywords of single values, such as types, bounds and lengths.

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
