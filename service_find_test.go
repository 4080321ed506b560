package main

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// orderTemplate searches contexts. Its step debit fails with what the context says in error, or completes.
var orderTemplate = `{"namespace":"shop","name":"order","version":"1.0.0","identity_strategy":"always_unique",
	"search":["order_id","customer.email","amount","paid"],
	"steps":[{"name":"debit","handler":{"callable":"Outside::Charge"},"retry":{"retryable":false}}]}`

// findings returns what a text finds: of each hit the kind, the path, the value, what comes after key- in the idempotency
// key of the task, and the step. A nil may allows everything.
func findings(t testing.TB, s *service, text string, may func(p permission) bool) (hits []string, v *findView) {
	t.Helper()
	if may == nil {
		may = func(permission) bool { return true }
	}
	v = must(s.find(&findQuery{text: text, limit: 10, may: may}, nil))(t)
	for _, h := range v.Hits {
		key := "none"
		if h.TaskUUID != nil {
			key = strings.TrimPrefix(must(s.store.view(*h.TaskUUID))(t).by.key, "key-")
		}
		hit := fmt.Sprintf("%s %s=%s %s", h.Kind, h.Path, h.Value, key)
		if h.StepName != nil {
			hit += " " + *h.StepName
		}
		hits = append(hits, hit)
	}
	return hits, v
}

// makeOrders creates orders with the keys key-A to key-D: A completes, B fails for good, C is blocked and waits, D is of another
// template.
func makeOrders(t *testing.T, s *service) {
	t.Helper()
	order := func(key, more string) *task {
		q := must(parseTaskRequest(fmt.Appendf(nil, `{"namespace":"shop","name":"order","idempotency_key":"key-%s",%s}`, key, more)))(t)
		q.traceparent = "00-0123456789abcdef0123456789abcde" + strings.ToLower(key) + "-00f067aa0ba902b7-01"
		return must(s.createTask(t.Context(), q, true))(t)
	}
	a := order("A", `"tags":["night","ORD-1"],"context":{"order_id":"ORD-1","amount":12.50,"customer":{"email":"a@b"},"paid":true}`)
	b := order("B", `"correlation_id":"01890a5d-ac96-774b-bcce-b302099a8051","context":{"order_id":"ORD-2","amount":"12.5","paid":false}`)
	c := order("C", `"tags":["night"],"parent_correlation_id":"01890a5d-ac96-774b-bcce-b302099a8051","context":{"order_id":"ORD-1"}`)
	settle(s)
	actOn(t, s, a, `"action_type":"complete_manually","completion_data":{"result":1},"reason":"r","completed_by":"me"`)
	for _, failed := range []*task{b, c} {
		actOn(t, s, failed, `"action_type":"fail","reason":"r","failed_by":"me","error":{"message":"Connection refused by http://me:secret@bank/pay","error_type":"NetError"}`)
	}
	must(s.operator.cancelTask(t.Context(), b.id, taskActor{}))(t)
	mustCreate(t, s, "noop", `"idempotency_key":"key-D"`, `"context":{"order_id":"ORD-1"}`)
	settle(s)
}

func actOn(t *testing.T, s *service, task *task, body string) {
	t.Helper()
	_, _, err := s.operator.act(t.Context(), task.id, task.id.plus(1), must(parseStepRequest([]byte("{"+body+"}")))(t))
	noError(t, err)
}

// foundOrders has a row for each kind of query: the text and what is found.
var foundOrders = []struct {
	text string
	want []string
}{
	{"ORD-1", []string{"context order_id=ORD-1 C", "context order_id=ORD-1 A", "tag tags=ORD-1 A"}},
	{"order_id=ORD-1", []string{"context order_id=ORD-1 C", "context order_id=ORD-1 A"}},
	{"order_id=ORD-3", nil},
	{"order=ORD-1", nil},
	{"ord-1", nil},
	{"12.5", []string{"context amount=12.5 B", "context amount=12.50 A"}},
	{"amount=1250e-2", []string{"context amount=12.50 A"}},
	{"paid=true", []string{"context paid=true A"}},
	{"false", []string{"context paid=false B"}},
	{"a@b", []string{"context customer.email=a@b A"}},
	{"customer.email=a@b", []string{"context customer.email=a@b A"}},
	{"night", []string{"tag tags=night C", "tag tags=night A"}},
	{"Night", nil},
	{"key-A", []string{"idempotency_key idempotency_key=key-A A"}},
	{"01890A5D-ac96-774b-bcce-b302099a8051", []string{
		"correlation correlation_id=01890a5d-ac96-774b-bcce-b302099a8051 B", "correlation parent_correlation_id=01890a5d-ac96-774b-bcce-b302099a8051 C"}},
	{"0123456789ABCDEF0123456789abcdeb", []string{"trace trace_id=0123456789abcdef0123456789abcdeb B"}},
	{"REFUSED by", []string{
		"error error=NetError: Connection refused by http://[REDACTED]@bank/pay C debit", "error error=NetError: Connection refused by http://[REDACTED]@bank/pay B debit"}},
	{"neterr", []string{
		"error error=NetError: Connection refused by http://[REDACTED]@bank/pay C debit", "error error=NetError: Connection refused by http://[REDACTED]@bank/pay B debit"}},
	{"secret", nil},
	{"DEBI", []string{"step name=debit C"}},
	{"op/ord", []string{"template name=shop/order@1.0.0 C"}},
	{"shop.order@1", []string{"template name=shop/order@1.0.0 C"}},
	{"key-a", nil},
	{"pair", []string{"template name=t/pair@1.0.0 none"}},
}

// TestFind asks for tasks by everything that names them: while they are there, after a restart that reads the journal,
// after one that reads a snapshot, and once they are dropped.
func TestFind(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: append(storyTemplates, orderTemplate)}
	s := openTestService(t, o)
	for n := range 3 { // they differ by their contexts alone
		q := must(parseTaskRequest(fmt.Appendf(nil, `{"namespace":"shop","name":"order","context":{"order_id":"ORD-1%d"}}`, n)))(t)
		must(s.createTask(t.Context(), q, true))(t)
	}
	makeOrders(t, s)
	check := func(when string) {
		t.Helper()
		for _, test := range foundOrders {
			if got, _ := findings(t, s, test.text, nil); !slices.Equal(got, test.want) {
				t.Errorf("%s, %s: got %q; want %q", when, test.text, got, test.want)
			}
		}
		for n := range 3 {
			want := []string{fmt.Sprintf("context order_id=ORD-1%d ", n)}
			if got, _ := findings(t, s, fmt.Sprint("ORD-1", n), nil); !slices.Equal(got, want) {
				t.Errorf("%s: got %q; want %q", when, got, want)
			}
		}
	}
	check("at first")
	closeTestService(t, s)
	s = openTestService(t, o)
	check("from the journal")
	noError(t, s.store.compact())
	closeTestService(t, s)
	s = openTestService(t, o)
	check("from the snapshot")
	s.store.locked(func() { s.store.retain.count = 1 })
	s.dropFinished()
	if got, _ := findings(t, s, "ORD-1", nil); !slices.Equal(got, foundOrders[0].want[:1]) {
		t.Errorf("of dropped tasks: got %q; want %q", got, foundOrders[0].want[:1])
	}
	closeTestService(t, s)
	if n := s.quotas.stored.used.Load(); n != 0 {
		t.Errorf("%d bytes are in use after the end; want none", n)
	}
}

// TestFindByEarlierDefinition edits a template: its tasks are found as it was when they were made, and it is found once.
func TestFindByEarlierDefinition(t *testing.T) {
	files := new(atomic.Pointer[registry])
	files.Store(newRegistry([]*template{mustParseTemplate(t, orderTemplate)}))
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), reloaded: files})
	q := must(parseTaskRequest([]byte(`{"namespace":"shop","name":"order","idempotency_key":"key-A","context":{"order_id":"ORD-1"}}`)))(t)
	must(s.createTask(t.Context(), q, true))(t)
	settle(s)
	edited := strings.NewReplacer(`["order_id",`, `[`, `"debit"`, `"pay"`).Replace(orderTemplate)
	files.Store(newRegistry([]*template{mustParseTemplate(t, edited)}))
	for text, want := range map[string]string{
		"order_id=ORD-1": "context order_id=ORD-1 A", "debit": "step name=debit A", "pay": "step name=pay A",
		"op/ord": "template name=shop/order@1.0.0 A",
	} {
		if got, _ := findings(t, s, text, nil); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %q; want %q", text, got, want)
		}
	}
	noError(t, s.searchable([]contextValue{{path: "order_id"}}))
}

// TestFindByIDs asks for ids of every kind, whole and in part.
func TestFindByIDs(t *testing.T) {
	s := newTestService(t, serviceTest{templates: apiTemplates, clock: newVirtualClock(testStart), extra: []string{orderTemplate, testTemplate("noop", stepSpec{name: "a", callable: "builtin:noop"})}})
	makeOrders(t, s)
	decided := mustCreate(t, s, "dynamic", `"idempotency_key":"key-E"`)
	settle(s)
	blocked := s.store.list(&taskQuery{taskFilter: taskFilter{states: setOf(taskBlockedByFailures)}, limit: 1}).tasks[0].live
	letter := s.store.dead.rows[len(s.store.dead.rows)-1]
	for _, id := range []struct {
		id   uuid
		want string // before and after the id
	}{
		{blocked.id, "task task_uuid=%s C"},
		{blocked.id.plus(1), "step step_uuid=%s C debit"},
		{blocked.id.plus(2), "correlation correlation_id=%s C"},
		{letter.id, "dead_letter dlq_entry_uuid=%s C"},
		{decided.id.plus(1), "step step_uuid=%s E " + decided.tpl.steps[0].name},
		{decided.id.plus(2), ""}, // a step that the decision has not created
		{decided.id.plus(len(decided.tpl.steps) + 1), "correlation correlation_id=%s E"},
		{decided.id.plus(len(decided.tpl.steps) + 2), ""},
	} {
		text := id.id.String()
		for _, q := range []string{text, strings.ToUpper(text), strings.ReplaceAll(text, "-", ""), text[36-8:], text[36-13:]} {
			var want []string
			if id.want != "" {
				want = []string{fmt.Sprintf(id.want, text)}
			}
			if got, _ := findings(t, s, q, nil); !slices.Equal(got, want) {
				t.Errorf("%s: got %q; want %q", q, got, want)
			}
		}
	}
	all := s.store.list(&taskQuery{limit: 10}).tasks
	got, v := findings(t, s, blocked.id.String()[:8], nil)
	if len(got) < len(all) || v.Hits[0].TaskUUID.String() != decided.id.String() {
		t.Errorf("the beginning of all ids finds %q; want all %d tasks, the newest first", got, len(all))
	}
	for _, q := range []string{blocked.id.String()[:5], blocked.id.String()[31:], "--------"} {
		if got, _ := findings(t, s, q, nil); len(got) > 0 {
			t.Errorf("%s: got %q; want nothing", q, got)
		}
	}
}

// BenchmarkFind sends a query of each kind to a service with 1,000 tasks and to one with the default retention or
// 1,000,000, in turns.
func BenchmarkFind(b *testing.B) {
	for _, tasks := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) { benchStored(b, tasks, storedFinds) })
	}
}

// storedFinds returns a query of each kind.
func storedFinds(b *testing.B, svc *service) (requests []storedRequest) {
	some := svc.store.list(&taskQuery{limit: 1, skip: len(svc.store.tasks.slots) / 2})
	t, _, err := some.tasks[0].listed(nil)
	noError(b, err)
	id := t.id.String()
	for name, text := range map[string]string{
		"id": id, "beginning of an id": id[:8], "long beginning of an id": id[:23], "end of an id": id[28:], "no id": "ffffffffffff",
		"correlation": t.correlation().String(), "trace": t.by.traceID(), "key": "no-such-key", "tag of all": "all", "tag": "one in ten 3",
		"template": "auto3", "step": "left", "value of one": "customer=" + t.by.searched("customer"), "value of all": "12345",
		"value of none": "customer=nobody", "error of many": "refused", "error of one": "order of c-9 refused", "error of none": "no such error",
	} {
		requests = append(requests, storedRequest{"/v1/find?q=" + url.QueryEscape(text), name})
	}
	return requests
}

// BenchmarkValues measures what values take: in the index, and in the lines of ended tasks.
func BenchmarkValues(b *testing.B) {
	const values = 4
	heap := func(search string) float64 {
		text := strings.Replace(testTemplate("found", stepSpec{name: "a", callable: "builtin:noop"}), `{`, `{`+search, 1)
		svc := openTestService(b, serviceTest{clock: newVirtualClock(testStart), log: io.Discard, extra: []string{text}, config: retaining(0)})
		before := liveHeap()
		for i := range b.N {
			body := fmt.Sprintf(`{"namespace":"t","name":"found","context":{"a":"ORD-%08d","b":"c-%08d","c":%d,"d":"x@%d"}}`, i, i, i, i)
			must(svc.createTask(b.Context(), must(parseTaskRequest([]byte(body)))(b), true))(b)
		}
		settle(svc)
		took := liveHeap() - before
		if held := int(svc.store.tasks.index.bytes / labelBytes); search != "" && held < b.N*values {
			b.Errorf("%d labels are indexed; want at least %d", held, b.N*values)
		}
		noError(b, svc.close())
		return took * 1e6
	}
	with, without := heap(`"search":["a","b","c","d"],`), heap("")
	b.ReportMetric((with-without)/float64(b.N*values), "B/value")
	b.ReportMetric(without/float64(b.N), "B/task")
}

// TestListsSpeak checks what lists of tasks and hits say of a task, to callers who may read it.
func TestListsSpeak(t *testing.T) {
	s := newTestServer(t, serviceTest{extra: append(storyTemplates, orderTemplate)})
	makeOrders(t, s.svc)
	rows := func(list []document) (rows []string) {
		for _, d := range list {
			rows = append(rows, strings.TrimSpace(d.json("about")+" "+d.text("failure.step_name")+" "+d.text("failure.message")))
		}
		return rows
	}
	list := func(query string) []document {
		return readDocument(s.do("GET", "/v1/tasks?name=order"+query, "").want(200).body).at("tasks").list()
	}
	if got := list("")[0]; got.json("about") != "" || got.json("failure") != "" {
		t.Errorf("got %s of a list that was asked for nothing", got.raw)
	}
	const refused = " debit Connection refused by http://[REDACTED]@bank/pay"
	want := []string{
		`{"order_id":"ORD-1"}` + refused,
		`{"order_id":"ORD-2","amount":"12.5","paid":false}`, // it was cancelled since, and so was its step
		`{"order_id":"ORD-1","customer.email":"a@b","amount":12.50,"paid":true}`,
	}
	if got := rows(list("&about=true")); !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	group := list("&about=true")[0].text("failure.group")
	if n := len(list("&failure_group=" + group)); group == "" || n == 0 {
		t.Errorf("got %d tasks of the cause %q", n, group)
	}
	hits := readDocument(s.do("GET", "/v1/find?q=order_id%3DORD-1", "").want(200).body).at("hits").list()
	if got := rows(hits); !slices.Equal(got, []string{want[0], want[2]}) {
		t.Errorf("got %q of hits; want those of the list", got)
	}
	for p, wants := range map[permission]string{permTasksContextRead: `{"order_id":"ORD-1"} `, permStepsRead: "debit"} {
		_, v := findings(t, s.svc, "op/ord", func(has permission) bool { return has == p })
		about := v.Hits[0].taskAbout
		got := string(about.About) + " "
		if about.Failure != nil {
			got = string(about.About) + about.Failure.StepName
		}
		if got != wants {
			t.Errorf("got %q with %s alone; want %q", got, p, wants)
		}
	}
}

// TestAbout checks what tells a person which task a step belongs to if its template does not say.
func TestAbout(t *testing.T) {
	for _, tt := range []struct{ search, context, want string }{
		{`{"b":1}`, `{"a":1,"b":1}`, `{"b":1}`},
		{"", `{"id":"x","n":1.50,"on":false,"none":null,"in":{"a":1},"all":[1]}`, `{"id":"x","n":1.50,"on":false}`},
		{"", `{"long":"` + strings.Repeat("x", maxSearchText) + `","id":7}`, `{"id":7}`},
		{"", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9}`, `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8}`},
		{"", `{"in":{}}`, ""},
	} {
		by := &creation{context: []byte(tt.context)}
		if tt.search != "" {
			by.search = []byte(tt.search)
		}
		if got := string(by.about()); got != tt.want {
			t.Errorf("%s: got %s; want %s", tt.context, got, tt.want)
		}
	}
}
