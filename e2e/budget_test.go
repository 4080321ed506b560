package e2e

// What one request may cost: every operation with a body, as the documents declare them, gets bodies of the
// largest size that cost as much as they can, each in a process of its own.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// What a request may cost at most.
const (
	budgetMemory = 64 << 20        // bytes that the process takes more than before it
	budgetTime   = 2 * time.Second // of processor
)

// unbudgeted names the operations that may cost more: they restore state, or move the clock.
var unbudgeted = []string{"putState", "addSandbox", "changeClock", "waitIdle"}

// The sizes of hostile values, in bytes: about the largest that a body, and that a context or a result may have.
const (
	largestValue = 4<<20 - 64<<10
	largestData  = 1<<20 - 8<<10
)

// hostileValue makes a value of n bytes that costs much for its size.
type hostileValue struct {
	name string
	kind string // of the values of a schema that may take it: array, object or string; "" for any
	make func(n int) string
}

var hostileValues = []hostileValue{
	{"numbers", "array", repeats("[", "1", "]")},
	{"empty strings", "array", repeats("[", `""`, "]")},
	{"names", "array", repeats("[", `"n%d"`, "]")},
	{"small objects", "array", repeats("[", `{"":0}`, "]")},
	{"depth", "array", repeats("[", strings.Repeat("[", 50)+strings.Repeat("]", 50), "]")},
	{"deep objects", "array", repeats("[", strings.Repeat(`{"a":`, 50)+"0"+strings.Repeat("}", 50), "]")},
	{"huge numbers", "array", repeats("[", "1e-99999999", "]")},
	{"members", "object", repeats("{", `"%d":0`, "}")},
	{"objects by name", "object", repeats("{", `"%d":{}`, "}")},
	{"escaped names", "object", repeats("{", `"\u0061%d":0`, "}")},
	{"a long name", "object", func(n int) string { return `{"` + strings.Repeat("a", n-10) + `":{}}` }},
	{"a long string", "string", fills(`"`, "a", `"`)},
	{"escapes", "string", fills(`"`, `\u0061`, `"`)},
	{"URLs", "string", fills(`"`, `http://u:p@h?a#b `, `"`)},
	{"digits", "", fills("0.", "7", "")},
}

// repeats returns a value of n bytes: a part again and again, in which %d is its number, between two marks.
func repeats(open, part, close string) func(n int) string {
	pieces := strings.Split(part, "%d")
	return func(n int) string {
		b := append(make([]byte, 0, n), open...)
		for i := 0; len(b) < n-len(close)-len(part)-10; i++ {
			if i > 0 {
				b = append(b, ',')
			}
			for j, piece := range pieces {
				if j > 0 {
					b = strconv.AppendInt(b, int64(i), 10)
				}
				b = append(b, piece...)
			}
		}
		return string(append(b, close...))
	}
}

// fills is repeats for a text without commas.
func fills(open, text, close string) func(n int) string {
	return func(n int) string {
		return open + strings.Repeat(text, max(n-len(open)-len(close), 0)/len(text)) + close
	}
}

// hostileTemplates make definitions of n bytes.
var hostileTemplates = []hostileValue{
	{"patterns", "", inSchema(repeats(`"properties":{`, `"%d":{"pattern":"a{1000}"}`, "}"))},
	{"patterns with a beginning", "", inSchema(repeats(`"properties":{`, `"%d":{"pattern":"^\\p{L}{900}$"}`, "}"))},
	{"the text of a pattern", "", inSchema(fills(`"pattern":"`, `\\p{L}`, `"`))},
	{"many patterns", "", inSchema(repeats(`"patternProperties":{`, `"^%d":true`, "}"))},
	{"a pattern of repetitions", "", inSchema(fills(`"pattern":"`, `(\\p{L}{0,50}){20}`, `"`))},
	{"references", "", inSchema(repeats(`"$defs":{"a":{}},"allOf":[`, `{"$ref":"#/$defs/a"}`, "]"))},
	{"values", "", inSchema(repeats(`"enum":[`, "%d", "]"))},
	{"required names", "", inSchema(repeats(`"required":[`, `"a"`, "]"))},
	{"schemas below a long name", "", inSchema(func(n int) string {
		return `"properties":{"` + strings.Repeat("a", n/2) + `":{` + repeats(`"properties":{`, `"%d":{}`, "}")(n/2) + "}}"
	})},
	{"misspelled keywords", "", inSchema(repeats("", `"requireds%d":0`, ""))},
	{"steps", "", inTemplate(repeats(`"steps":[`, `{"name":"%d","handler":{"callable":"a%d"}}`, "]"))},
	{"unknown fields of steps", "", inTemplate(repeats(`"steps":[`, `{"name":"%d","handler":{"callable":"a"},"tipe":0}`, "]"))},
	{"decisions", "", inTemplate(func(n int) string {
		return `"steps":[{"name":"d","type":"decision","handler":{"callable":"a"}}` +
			repeats("", `,{"name":"%d","dependencies":["d"],"handler":{"callable":"a"}}`, "]")(n)
	})},
	{"dependencies", "", inTemplate(func(n int) string {
		text, names := []byte(`"steps":[`), []byte(`"0"`)
		for i := 1; len(text)+len(names) < n-10<<10; i++ {
			text = fmt.Appendf(text, `{"name":"%d","handler":{"callable":"a"},"dependencies":[%s]},`, i, names)
			names = fmt.Appendf(names, `,"%d"`, i)
		}
		return string(text) + `{"name":"0","handler":{"callable":"a"}}]`
	})},
	{"overrides", "", inTemplate(func(n int) string {
		return repeats(`"steps":[`, `{"name":"%d","handler":{"callable":"a"}}`, "]")(n/2) + `,"environments":{"development":{` +
			repeats(`"steps":[`, `{"name":"ALL","handler":{"initialization":{"%d":0}}}`, "]")(n/2) + "}}"
	})},
}

func inTemplate(make func(n int) string) func(n int) string {
	return func(n int) string { return `{"namespace":"t","name":"x","version":"1.0.0",` + make(n) + "}" }
}

func inSchema(make func(n int) string) func(n int) string {
	return inTemplate(func(n int) string { return `"input_schema":{` + make(n) + "}" })
}

// budgetTemplate checks what requests give in ways that can cost much.
const budgetTemplate = `{"namespace":"t","name":"checked","version":"1.0.0","identity_strategy":"always_unique",
	"input_schema":{"properties":{
		"a":{"uniqueItems":true,"items":{"anyOf":[{"type":"number","multipleOf":7},{"pattern":"^(a|b)*$"}]},"propertyNames":{"maxLength":9},
			"patternProperties":{"^1":{"type":"number"}},"additionalProperties":{"type":"number"},"pattern":"^(a|b)*$"},
		"text":{"pattern":"(\\p{L}{0,50}){20}9$"}, "formats":{"allOf":[{"format":"uri"},{"format":"email"}]}}},
	"steps":[{"name":"s","handler":{"callable":"Nobody"},"result_schema":{"uniqueItems":true,"items":{"type":"number"}}}]}`

// hostileContexts make contexts of that template of n bytes.
var hostileContexts = []hostileValue{
	{"a text for a slow pattern", "", fills(`{"text":"`, "a", `"}`)},
	{"a URI", "", fills(`{"formats":"http://`, "a", `"}`)},
}

// hostilePlace stands for a hostile value in a body.
const hostilePlace = "@"

// budgetFrame is a body with a place for a hostile value.
type budgetFrame struct {
	at     string
	body   any
	values []hostileValue
	always bool // made each day
}

// frames calls add for the places of a schema, at deep ones with one value of each kind.
func (l *limitSchemas) frames(at string, schema any, add func(f budgetFrame)) {
	if ref := schema.(map[string]any)["$ref"]; ref != nil {
		if slices.Contains(l.open, ref) {
			return
		}
		l.open = append(l.open, ref)
		defer func() { l.open = l.open[:len(l.open)-1] }()
	}
	s := l.follow(schema)
	for _, alternative := range alternatives(s) {
		l.frames(at, alternative, add)
	}
	types, seen, deep := typesOf(s), "", strings.Count(at, ".") > 1
	add(budgetFrame{at: at, body: hostilePlace, values: slices.DeleteFunc(slices.Clone(hostileValues), func(v hostileValue) bool {
		again := v.kind == seen
		seen = v.kind
		return types != nil && v.kind != "" && !slices.Contains(types, any(v.kind)) || deep && again
	})})
	switch {
	case slices.Contains(types, "array"):
		inItem := func(f budgetFrame) {
			f.body = []any{f.body}
			add(f)
		}
		l.frames(at+"[]", s["items"], inItem)
		item := string(must(json.Marshal(l.sample(s["items"]))))
		inItem(budgetFrame{at: at, body: hostilePlace, values: []hostileValue{{"samples", "", repeats("", item, "")}}})
	case slices.Contains(types, "object"):
		properties, _ := s["properties"].(map[string]any)
		inMember := func(name string) func(f budgetFrame) {
			return func(f budgetFrame) {
				object, _ := l.sample(s).(map[string]any)
				object[name] = f.body
				f.body = object
				add(f)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			l.frames(at+"."+name, properties[name], inMember(name))
		}
		if len(properties) == 0 && !deep {
			inMember("a")(budgetFrame{at: at + ".a", body: hostilePlace, values: hostileValues})
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// budgetOperation is an operation that takes a body.
type budgetOperation struct {
	surface, method, path, id string
	schema                    any
	doc                       map[string]any
}

// budgetOperations returns the operations with a body, from the documents, which have every route.
func budgetOperations(t *testing.T, p *program) (all []budgetOperation) {
	for surface, url := range surfaceURLs(p) {
		doc := wire.Must(wire.Decode((&api{t, url}).do("GET", "/api-docs/openapi.json", "").want(200).body))(t).(map[string]any)
		for path, methods := range doc["paths"].(map[string]any) {
			for method, o := range methods.(map[string]any) {
				if content, ok := wire.LookUp(o, "requestBody.content"); ok {
					id := o.(map[string]any)["operationId"].(string)
					schema, _ := wire.LookUp(content, "application/json.schema")
					all = append(all, budgetOperation{surface, strings.ToUpper(method), path, id, schema, doc})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b budgetOperation) int {
		return cmp.Or(strings.Compare(b.surface, a.surface), strings.Compare(a.id, b.id)) // the worker's first, which takes longest
	})
	return all
}

func surfaceURLs(p *program) map[string]string {
	return map[string]string{
		"orchestration": p.ready.OrchestrationURL, "worker": p.ready.WorkerURL, "mount": p.ready.MountURL,
	}
}

// attacks returns the frames of an operation, each once.
func (o *budgetOperation) attacks() (frames []budgetFrame) {
	always := func(at string, body any, values []hostileValue) {
		frames = append(frames, budgetFrame{at, body, values, true})
	}
	switch o.id {
	case "validateTemplate":
		always("", hostilePlace, hostileTemplates)
	case "addTemplate":
		frames = append(frames, budgetFrame{at: "", body: hostilePlace, values: hostileTemplates})
	case "createTask":
		always(".context", map[string]any{"context": hostilePlace, "name": "checked"}, hostileContexts)
	}
	deep := 5 // places of this depth are left out
	if o.id == "addTemplate" {
		deep = 1 // the same function reads what validateTemplate gets
	}
	seen := map[string]bool{}
	(&limitSchemas{doc: o.doc}).frames("", o.schema, func(f budgetFrame) {
		if key := f.at + string(must(json.Marshal(f.body))) + fmt.Sprint(len(f.values)); !seen[key] && strings.Count(f.at, ".") < deep {
			seen[key] = true
			frames = append(frames, f)
		}
	})
	return frames
}

var budgetShare = flag.Int("budget.share", 8, "TestRequestBudgets makes one of so many attacks, other ones each day; 1 makes all")

// TestRequestBudgets attacks every operation with a body, and expects that no attack costs more than a request may: not
// with the largest bodies, nor with those that are just not refused for what they cost.
func TestRequestBudgets(t *testing.T) {
	wire.Long(t)
	if raceDetector() {
		wire.Skip(t, "with the race detector, the program takes several times as much")
	}
	turns := make(chan struct{}, 2)
	for n, o := range budgetOperations(t, newBudgetProgram(t).program) {
		if slices.Contains(unbudgeted, o.id) {
			continue
		}
		t.Run(o.surface+"/"+o.id, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{} // for the memory of the values
			defer func() { <-turns }()
			p := newBudgetProgram(t)
			n += time.Now().YearDay()
			for _, f := range o.attacks() {
				for _, v := range f.values {
					if n++; !f.always && n%*budgetShare != 0 {
						continue
					}
					for size := largestValue; size > 0; {
						a := o.attack(t, p, &f, v.make(size))
						for tries := 0; a.beyond() && tries < attackTries; tries++ {
							p.kill()
							p = newBudgetProgram(t) // without what earlier attacks have left
							a = o.attack(t, p, &f, v.make(size))
						}
						what := fmt.Sprintf("%s, %s of %d bytes: %s", cmp.Or(f.at, "body"), v.name, size, a)
						if t.Log(what); a.beyond() {
							t.Errorf("%s; want at most %d MB and %s", what, budgetMemory>>20, budgetTime)
						}
						size = a.next(size)
					}
				}
			}
			p.kill()
		})
	}
}

// attackTries is how often an attack must cost too much: when garbage is collected, and with it the memory of a
// process, depends on how busy the machine is.
const attackTries = 3

// attackCost is what an attack cost.
type attackCost struct {
	status int
	memory int64 // bytes
	took   time.Duration
	costly bool // it was refused for what it would cost
}

func (a attackCost) String() string {
	return fmt.Sprintf("%d after %d MB and %s", a.status, a.memory>>20, a.took)
}

func (a attackCost) beyond() bool { return a.memory > budgetMemory || a.took > budgetTime }

// next returns the size of the next attack of a kind after one of a size; 0 for none.
func (a attackCost) next(size int) int {
	switch {
	case a.status == http.StatusRequestEntityTooLarge && size > largestData:
		return largestData
	case a.costly:
		return size / 2
	}
	return 0
}

// budgetProgram is a program that is attacked, and what it took before that.
type budgetProgram struct {
	*program
	memory int64
}

func newBudgetProgram(t testing.TB) *budgetProgram {
	p := serveWith(t, []string{"STEPWELL_TEMPLATES__ENFORCE_INPUT_SCHEMA=reject", "STEPWELL_MOUNT__PATH=/tasker"},
		"--memory", "--quiet", "--fixture", "--templates", templateDir(t, budgetTemplate))
	p.api().do("POST", "/v1/tasks", `{"namespace":"t","name":"checked"}`).want(201)
	return &budgetProgram{p, peakBytes(t, p.ready.PID)}
}

// attack sends a body with a hostile value to a program without tasks. What it costs in memory is the most that the
// program has taken since its start, with what earlier attacks left.
func (o *budgetOperation) attack(t *testing.T, p *budgetProgram, f *budgetFrame, value string) attackCost {
	t.Helper()
	p.api().do("POST", "/_stepwell/reset", "").want(204)
	s := p.api()
	task := s.do("POST", "/v1/tasks", `{"namespace":"t","name":"checked"}`).want(201)
	claim := ""
	if o.id != "actOnStep" { // which is about steps that nobody has claimed
		claim = s.do("POST", "/v1/steps/claim", `{"callables":["*"]}`).want(200).text("0.lease")
	}
	id, step := task.text("task_uuid"), task.text("steps.0.workflow_step_uuid")
	path := strings.NewReplacer("{task_uuid}", id, "{task_id}", id, "{step_uuid}", step, "{step_id}", step,
		"{namespace}", "t", "{name}", "checked", "{version}", "1.0.0", "{dlq_entry_uuid}", id, "{id}", "1").Replace(o.path)
	body := string(must(json.Marshal(f.body)))
	if object, ok := f.body.(map[string]any); ok {
		object = maps.Clone(object)
		if o.id == "createTask" && object["name"] != hostilePlace && object["namespace"] != hostilePlace {
			object["namespace"], object["name"] = "t", "checked"
		}
		if lease, ok := object["lease"]; ok && lease != hostilePlace {
			object["lease"] = claim
		}
		body = string(must(json.Marshal(object)))
	}
	body = strings.Replace(body, `"`+hostilePlace+`"`, value, 1)
	began := processorTime(t, p.ready.PID)
	req := must(http.NewRequest(o.method, surfaceURLs(p.program)[o.surface]+path, strings.NewReader(body)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := must(io.ReadAll(resp.Body))
	return attackCost{resp.StatusCode, peakBytes(t, p.ready.PID) - p.memory, processorTime(t, p.ready.PID) - began,
		bytes.Contains(text, []byte("that one request may use"))}
}

// processorTime returns how long a process has had a processor, as Linux counts it in hundredths of seconds.
func processorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	text := string(readFile(t, fmt.Sprintf("/proc/%d/stat", pid)))
	fields := strings.Fields(text[strings.LastIndexByte(text, ')'):])
	return time.Duration(must(strconv.Atoi(fields[12]))+must(strconv.Atoi(fields[13]))) * time.Second / 100
}
