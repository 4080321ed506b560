package main

// JSON Schema, draft 2020-12: a schema in a template is compiled once, which finds all its faults, and then checks
// values. What it does not know is refused when it is compiled, so that no value is judged by half a schema. References
// lead to places in the same schema only.

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a check.
const (
	maxMisfits     = 10     // reported
	maxSchemaDepth = 10_000 // nested schemas; a reference counts as one
	maxPointer     = 500    // bytes of a misfit's place
)

// misfit is a place in a value that does not fit its schema.
type misfit struct {
	at   string // a JSON Pointer
	got  string // "" if want says it
	want string

	nearest *misfit // with anyOf and oneOf: the first in the schema that came nearest
}

// why says what is wrong at the place.
func (m misfit) why() string {
	text := pick(m.got == "", m.want, "got "+m.got+"; "+m.want)
	if m.nearest != nil {
		text += "; in the nearest, " + m.nearest.String()
	}
	return text
}

// withoutValues returns the same misfit without the values that were got.
func (m misfit) withoutValues() misfit {
	if m.got = ""; m.nearest != nil {
		inner := m.nearest.withoutValues()
		m.nearest = &inner
	}
	return m
}

// String also names the place, unless it is the value as a whole.
func (m misfit) String() string { return pick(m.at == "", "", m.at+": ") + m.why() }

// misfits are the places in a value that do not fit.
type misfits []misfit

func (all misfits) String() string { return all.join(misfit.String) }

// wants is like String, but without the values that were got. It is for the log.
func (all misfits) wants() string {
	return all.join(func(m misfit) string { return m.withoutValues().String() })
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

// schemaNode is one schema in a document. Members that check nothing by themselves are used by the checks of others.
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
	compiledPattern
	s *schemaNode
}

// schemaCheck checks one keyword. It adds what it evaluates, if anybody asks.
type schemaCheck func(v *schemaRun, n jsonValue, e *evaluated) bool

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

// schemaCompiler compiles one document. It ends early when its budget does, and at maxProblems.
type schemaCompiler struct {
	*jsonSchema
	budget    *budget
	nodes     map[string]*schemaNode // by pointer
	resources map[string]*schemaResource
	order     []*schemaNode
	paths     map[*schemaNode]string
	refs      []func() // to resolve when all schemas are known
	known     []schemaKeyword
}

// What parts of a schema take, in bytes, besides the texts in them.
const (
	schemaBytes   = 640 // an object, with its places by name
	keywordBytes  = 160
	nameBytes     = 48
	valueBytes    = 192 // of enum
	resourceBytes = 1000
)

// compileSchema compiles a schema that passed checkJSON. Its faults are among the problems. It takes
// memory of the budget, whose end leaves the schema incomplete.
func compileSchema(path string, text []byte, b *budget) *jsonSchema {
	c := &schemaCompiler{
		jsonSchema: &jsonSchema{}, budget: b, nodes: map[string]*schemaNode{}, resources: map[string]*schemaResource{},
		paths: map[*schemaNode]string{}, known: schemaKeywords(),
	}
	// Identifiers are resolved against an absolute URL. This one is made up.
	outermost := newSchemaResource(&url.URL{Scheme: "template", Path: "/"}, "")
	c.root = c.node(schemaPlace{"", path}, text, outermost)
	for _, resolve := range c.refs {
		resolve()
	}
	if !b.ended() {
		c.findLoops()
	}
	return c.jsonSchema
}

func (c *schemaCompiler) problem(at schemaPlace, format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, inputProblem{Field: at.path, Message: fmt.Sprintf(format, args...)})
	}
}

// take takes memory of the budget, and reports whether to continue.
func (c *schemaCompiler) take(n int, at schemaPlace) bool {
	return len(c.problems) < maxProblems && c.budget.take(n, at.path, "the schema")
}

// node compiles a schema and what it contains.
func (c *schemaCompiler) node(at schemaPlace, raw []byte, in *schemaResource) *schemaNode {
	s := &schemaNode{resource: in, minContains: 1, maxContains: -1}
	if !c.take(schemaBytes+3*len(at.pointer), at) {
		return s
	}
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
	members := membersWithin(c.budget, at.path, raw)
	for _, m := range members {
		if len(c.problems) < maxProblems && !slices.ContainsFunc(c.known, func(k schemaKeyword) bool { return k.name == m.key }) {
			c.problem(at.member(m.key), "the keyword %s is not supported%s", clippedText(m.key), c.keywordHint(m.key))
		}
	}
	// The order of the table is that of the checks. Also, contains needs its bounds, which come before it.
	for _, k := range c.known {
		if value := members.value(k.name); value != nil && k.compile != nil && c.take(keywordBytes+len(at.pointer), at) {
			k.compile(c, s, at.member(k.name), value)
		}
	}
}

func (c *schemaCompiler) keywordHint(key string) string {
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
	for _, k := range c.known {
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
// docs/reference/schemas.md lists them.
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

// compileNamed compiles an object of schemas and passes them to take, unless that is nil.
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
		return c.take(0, at)
	}) {
		c.problem(at, "is %s; want an object of schemas", templateValueKind(raw))
	}
	return schemas
}

// listed compiles a list of schemas.
func (c *schemaCompiler) listed(s *schemaNode, at schemaPlace, raw []byte) (schemas []*schemaNode) {
	eachElement(raw, func(value []byte) bool {
		schemas = append(schemas, c.node(at.item(len(schemas)), value, s.resource))
		return c.take(0, at)
	})
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
		return c.take(nameBytes+len(value), at)
	}) {
		c.problem(at, "is %s; want a list of names", templateValueKind(raw))
	}
	return names
}

func compileRequired(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	names := c.names(at, raw)
	s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool { return v.has(n, names, "is required") })
}

func compileDependentRequired(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	if !eachMember(raw, func(key string, value []byte) bool {
		names, why := c.names(at.member(key), value), "is required beside "+clippedText(key)
		s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
			return !n.has(key) || v.has(n, names, why)
		})
		return c.take(keywordBytes, at)
	}) {
		c.problem(at, "is %s; want an object", templateValueKind(raw))
	}
}

// has reports whether an object has members.
func (v *schemaRun) has(n jsonValue, names []string, why string) bool {
	ok := true
	for _, name := range names {
		if n.kind() == '{' && v.spend(8) && !n.has(name) {
			ok = v.misfitIn(append(v.at, "/"+pointerEscaper.Replace(name)...), "", why)
		}
	}
	return ok
}

func compileProperties(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	s.props = c.named(s, at, raw)
	s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool {
		return v.each(n, '{', e, func(_ int, name string) *schemaNode { return s.props[name] })
	})
}

func compilePatternProperties(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	schemas := c.named(s, at, raw)
	// In a fixed order, so that a value has the same misfits each time.
	for _, key := range slices.Sorted(maps.Keys(schemas)) {
		p := schemaPattern{c.pattern(at.member(key), key), schemas[key]}
		s.patterns = append(s.patterns, p)
		s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool {
			return v.each(n, '{', e, func(_ int, name string) *schemaNode {
				return pick(v.matches(p.compiledPattern, []byte(name)), p.s, nil)
			})
		})
	}
}

func compileAdditional(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	schema := c.node(at, raw, s.resource)
	s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool {
		return v.each(n, '{', e, func(_ int, name string) *schemaNode {
			known := s.props[name] != nil || slices.ContainsFunc(s.patterns, func(p schemaPattern) bool {
				return v.matches(p.compiledPattern, []byte(name))
			})
			return pick(known, nil, schema)
		})
	})
}

func compileNames(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	schema := c.node(at, raw, s.resource)
	s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
		ok := true
		if n.kind() == '{' {
			for name := range n.inner() {
				ok = v.under(name, 0, func() bool { return v.fits(schema, name, nil) }) && ok
			}
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
	s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
		if n.kind() == '[' {
			if j, i := v.twins(n); i > 0 {
				return v.misfitIn(v.at, fmt.Sprintf("equal elements %d and %d", j, i), "want different ones")
			}
		}
		return true
	})
}

// twins returns the indexes of two equal elements of an array, the lower one first. Of all such pairs, it is one whose
// second element comes first. i is 0 if there is none.
func (v *schemaRun) twins(n jsonValue) (j, i int) {
	type element struct {
		hash  uint64 // of its normal form
		index int32
		node  int32
	}
	memory := 24*n.size() + 2*len(n.raw())
	if !v.take(memory, "comparing the elements for uniqueItems") {
		return 0, 0
	}
	defer v.budget.give(memory)
	all, text := make([]element, 0, n.size()), []byte(nil)
	for _, value := range n.inner() {
		text = value.normal(text[:0])
		all = append(all, element{maphash.Bytes(jsonNameSeed, text), int32(len(all)), int32(value.node)})
	}
	// Equal elements become neighbours, so not all pairs have to be compared.
	slices.SortFunc(all, func(a, b element) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.index, b.index)) })
	for k := range len(all) - 1 {
		a, b := all[k], all[k+1]
		// Equal hashes may be a coincidence.
		if a.hash == b.hash && (i == 0 || int(b.index) < i) && (jsonValue{n.tree, int(a.node)}).within(jsonValue{n.tree, int(b.node)}, false) {
			j, i = int(a.index), int(b.index)
		}
	}
	return j, i
}

func compilePrefix(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	s.prefix = c.listed(s, at, raw)
	s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool {
		return v.each(n, '[', e, func(i int, _ string) *schemaNode {
			if i < len(s.prefix) {
				return s.prefix[i]
			}
			return nil
		})
	})
}

func compileItems(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	schema := c.node(at, raw, s.resource)
	s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool {
		return v.each(n, '[', e, func(i int, _ string) *schemaNode { return pick(i < len(s.prefix), nil, schema) })
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
	s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool {
		if n.kind() != '[' {
			return true
		}
		found, i := 0, 0
		for _, value := range n.inner() {
			// An element that does not fit is nothing wrong yet.
			if v.quietly(func() bool { return v.fits(schema, value, nil) }) {
				found++
				e.mark(n, i)
			}
			i++
		}
		return found >= s.minContains && (s.maxContains < 0 || found <= s.maxContains) ||
			v.misfitIn(v.at, counted(found, "element that fits contains", "elements that fit contains"), want)
	})
}

// Checks by other schemas of the same value.

func compileAll(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	for _, part := range c.applied(s, at, raw) {
		s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool { return v.fits(part, n, e) })
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
	s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool {
		fit, nearest := v.branches(parts, n, e)
		return fit > 0 || v.fitsNone(nearest, len(parts), "anyOf")
	})
}

func compileOne(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	parts := c.applied(s, at, raw)
	s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool {
		fit, nearest := v.branches(parts, n, e)
		if fit > 1 {
			return v.misfitIn(v.at, fmt.Sprintf("what fits %d of the %d schemas of oneOf", fit, len(parts)), "want one")
		}
		return fit == 1 || v.fitsNone(nearest, len(parts), "oneOf")
	})
}

// branches applies schemas and counts those that fit. It also returns the misfits of the one that came nearest, with
// the fewest.
func (v *schemaRun) branches(parts []*schemaNode, n jsonValue, e *evaluated) (fit int, nearest misfits) {
	before := v.found
	for i, part := range parts {
		// Apart from what was found before, so that the branches can be compared.
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
	n := len(v.found)
	v.misfitIn(v.at, "", fmt.Sprintf("fits none of %s of %s", counted(parts, "schema", "schemas"), keyword))
	if len(nearest) > 0 && len(v.found) > n {
		v.found[n].nearest = &nearest[0]
	}
	return false
}

func compileNot(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	part := c.node(at, raw, s.resource)
	s.inPlace = append(s.inPlace, part)
	s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
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
	s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool {
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
		s.check(func(v *schemaRun, n jsonValue, e *evaluated) bool { return !n.has(key) || v.fits(part, n, e) })
	}
}

func compileUnevaluated(kind byte) compileFunc {
	return func(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
		schema := c.node(at, raw, s.resource)
		c.tracks = true
		s.last = append(s.last, func(v *schemaRun, n jsonValue, e *evaluated) bool {
			return v.each(n, kind, e, func(i int, _ string) *schemaNode { return pick(e.has(i), nil, schema) })
		})
	}
}

// Checking values.

// schemaRun is one check of a value.
type schemaRun struct {
	schema *jsonSchema
	budget *budget
	scope  []*schemaResource // whose schemas are being applied, the outermost first
	at     []byte            // where in the value
	found  misfits
	quiet  int // above 0: misfits are not collected
	depth  int
	over   misfit // why the check is given up, once the budget has no steps left
}

// check returns what is wrong with a value that passed checkJSON. It takes memory from the budget, and ends early if
// that ends.
func (s *jsonSchema) check(b *budget, value []byte) misfits {
	v := &schemaRun{schema: s, budget: b}
	if !v.take(treeBytes(value), "the decoded value") {
		return nil
	}
	v.over.want = "the schema takes too many steps to check the value"
	// A check that was given up proves nothing, whatever it has found by then.
	if v.fits(s.root, newJSONValue(value), nil); b.steps < 0 {
		return misfits{v.over}
	}
	return v.found
}

// take takes memory of the budget.
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

// fits applies a schema to a value, and adds what it evaluates to e.
func (v *schemaRun) fits(s *schemaNode, n jsonValue, e *evaluated) bool {
	each := keywordSteps*(1+n.size()) + len(n.raw())/8
	if v.depth == maxSchemaDepth || !v.spend(schemaSteps+(len(s.checks)+len(s.last))*each) {
		// Without steps, all checks around this one end as well. Otherwise, not would turn this result around.
		v.budget.steps = -1
		return false
	}
	v.depth++
	entered := len(v.scope) == 0 || v.scope[len(v.scope)-1] != s.resource
	if entered {
		v.scope = append(v.scope, s.resource)
	}
	// Recording costs time and memory, and few schemas need it.
	var own *evaluated
	if v.schema.tracks {
		own = &evaluated{}
	}
	ok := true
	// The others are made even if one fails, so that all misfits are found.
	for _, check := range s.checks {
		ok = check(v, n, own) && ok
	}
	for _, check := range s.last {
		ok = ok && check(v, n, own)
	}
	if ok {
		// Only now: a schema that does not fit has evaluated nothing, as the specification says.
		e.join(own)
	}
	if entered {
		v.scope = v.scope[:len(v.scope)-1]
	}
	v.depth--
	return ok
}

// each applies, to every member or element of a value of a kind, the schema that schemaOf returns for it, if any.
// Values of other kinds fit.
func (v *schemaRun) each(
	n jsonValue, kind byte, e *evaluated, schemaOf func(i int, name string) *schemaNode,
) bool {
	if n.kind() != kind {
		return true
	}
	ok, i := true, 0
	for name, value := range n.inner() {
		if s := schemaOf(i, string(name.text())); s != nil {
			ok = v.under(name, i, func() bool { return v.fits(s, value, nil) }) && ok
			e.mark(n, i)
		}
		i++
	}
	return ok
}

// under calls f at the member with a name, or at the i-th element if there is none.
func (v *schemaRun) under(name jsonValue, i int, f func() bool) bool {
	before := len(v.at)
	v.at = append(v.at, '/')
	if name.tree != nil {
		v.at = append(v.at, pointerEscaper.Replace(string(name.text()))...)
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
func (v *schemaRun) misfit(n jsonValue, want string) bool {
	if v.notes() && v.spend(len(n.raw())) {
		v.misfitIn(v.at, n.shown(), want)
	}
	return false
}

func (v *schemaRun) misfitIn(at []byte, got, want string) bool {
	if v.notes() {
		v.found = append(v.found, misfit{at: clipText(string(at), maxPointer), got: got, want: want})
	}
	return false
}

// notes reports whether a further misfit is of interest.
func (v *schemaRun) notes() bool { return v.quiet == 0 && len(v.found) < maxMisfits }

// refuseValue is the schema false.
func refuseValue(v *schemaRun, n jsonValue, _ *evaluated) bool {
	return v.misfit(n, "want no value here")
}

// matches reports whether a text matches a pattern. A match cannot be interrupted, so the steps are spent before it: at
// most one for each byte and instruction.
func (v *schemaRun) matches(p compiledPattern, text []byte) bool {
	before := v.budget.steps
	if v.spend(schemaSteps + len(text)*p.size) {
		return p.re.Match(text)
	}
	if before >= 0 {
		v.over = misfit{at: clipText(string(v.at), maxPointer), got: fmt.Sprintf("a text of %d bytes", len(text)), want: fmt.Sprintf(
			"too many steps to match it with the pattern %s of %d instructions", clippedText(p.source), p.size)}
	}
	return false
}

// normal returns a text that equal values have in common, and others do not have.
func (v *schemaRun) normal(n jsonValue) string {
	if !v.spend(len(n.raw())) {
		return ""
	}
	return string(n.normal(nil))
}

// evaluated holds the members or elements of a value that some schema was applied to. A nil *evaluated records nothing.
type evaluated struct{ places []bool }

func (e *evaluated) mark(n jsonValue, i int) {
	if e == nil {
		return
	}
	if e.places == nil {
		e.places = make([]bool, n.size())
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
	if !c.take(resourceBytes, at) {
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
	// The target may come later in the document. The check keeps its place among those of the other keywords.
	s.checks = append(s.checks, nil)
	c.refs = append(c.refs, func() {
		if !c.take(4*len(ref), at) {
			return
		}
		target, in, name := c.target(s, at, ref)
		if target == nil {
			return
		}
		s.inPlace = append(s.inPlace, target)
		s.checks[place] = func(v *schemaRun, n jsonValue, e *evaluated) bool { return v.fits(target, n, e) }
		if strings.HasSuffix(at.pointer, "/$ref") || in.dynamic[name] != target || !c.take(16*len(c.resources), at) {
			return
		}
		// Any of them may be the target, depending on where a check comes from. A loop through one must be found.
		for _, r := range c.resources {
			if other := r.dynamic[name]; other != nil {
				s.inPlace = append(s.inPlace, other)
			}
		}
		s.checks[place] = func(v *schemaRun, n jsonValue, e *evaluated) bool {
			v.spend(len(v.scope))
			// The outermost resource that has the anchor wins.
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

// findLoops refuses schemas that apply themselves to the same value, which would never end.
func (c *schemaCompiler) findLoops() {
	state := map[*schemaNode]int{} // 1: being visited, 2: sound
	var visit func(s *schemaNode)
	visit = func(s *schemaNode) {
		if state[s] == 0 {
			state[s] = 1
			for _, to := range s.inPlace {
				if state[to] == 1 {
					c.problem(schemaPlace{path: c.paths[s]}, "refers to itself without end")
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
	s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
		return slices.ContainsFunc(names, n.is) || v.misfit(n, want)
	})
}

// is reports whether the value has a type.
func (n jsonValue) is(name string) bool {
	switch name {
	case "null":
		return n.kind() == 'n'
	case "boolean":
		return n.kind() == 't' || n.kind() == 'f'
	case "object":
		return n.kind() == '{'
	case "array":
		return n.kind() == '['
	case "string":
		return n.kind() == '"'
	case "integer":
		return n.kind() == '0' && parseDecimal(n.raw()).integer()
	}
	return n.kind() == '0'
}

func compileEnum(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	if jsonKind(raw) != '[' {
		c.problem(at, "is %s; want a list", templateValueKind(raw))
		return
	}
	c.oneOfValues(s, at, raw)
}

func compileConst(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	c.oneOfValues(s, at, slices.Concat([]byte("["), raw, []byte("]")))
}

func (c *schemaCompiler) oneOfValues(s *schemaNode, at schemaPlace, list []byte) {
	const most, width = 100, 300 // of the values that are shown, and their text
	allowed, shown := map[string]bool{}, []string(nil)
	eachElement(list, func(raw []byte) bool {
		if !c.take(valueBytes+4*len(raw)+treeBytes(raw), at) {
			return false
		}
		allowed[string(newJSONValue(raw).normal(nil))] = true
		if len(shown) < most {
			shown = append(shown, clippedText(string(raw)))
		}
		return true
	})
	want := "want " + clipText(anyOf(shown), width)
	s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
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
		s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
			return n.kind() != '0' || holds(parseDecimal(n.raw()).compare(limit)) || v.misfit(n, want)
		})
	}
}

// maxDivisorDigits bounds how long a division takes.
const maxDivisorDigits = 1000

func compileMultiple(c *schemaCompiler, s *schemaNode, at schemaPlace, raw []byte) {
	of := c.number(at, raw)
	if of.negative || of.digits == "" {
		c.problem(at, "is %s; want a number above 0", clippedText(string(raw)))
		return
	}
	if len(of.digits) > maxDivisorDigits {
		c.problem(at, "has %d digits; want at most %d", len(of.digits), maxDivisorDigits)
		return
	}
	want := "want a multiple of " + clippedText(string(raw))
	s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
		return n.kind() != '0' || v.spend(4*len(n.raw())) && parseDecimal(n.raw()).multipleOf(of) || v.misfit(n, want)
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
		s.check(func(v *schemaRun, n jsonValue, _ *evaluated) bool {
			size := n.length()
			return n.kind() != kind || pick(most, size <= limit, size >= limit) ||
				v.misfitIn(v.at, counted(size, unit[0], unit[1]), want)
		})
	}
}

// length returns the number of characters, elements or members.
func (n jsonValue) length() int {
	if n.kind() == '"' {
		return utf8.RuneCount(n.text())
	}
	return n.size()
}
