package main

// Who takes part in a world. Each participant draws its own numbers, so that leaving out one leaves the others as they
// were.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// worldShape returns a template: steps of all kinds, in one of three shapes.
func worldShape(r *rand.Rand, name string, parts map[string]bool) string {
	callable := func(path, builtin string) string {
		switch n := r.IntN(4); {
		case n < 2 && parts["actors"]:
			return "World::" + path
		case n < 3 && parts["handlers"]:
			return "http://handler/" + path
		}
		return builtin
	}
	step := func(name, kind, path, builtin, config string, after ...string) stepSpec {
		callable := callable(path, builtin)
		if strings.HasPrefix(callable, "World::") && r.IntN(3) == 0 {
			within := fmt.Sprintf(`"answer_within":"%ds"`, 1+logTime(r, time.Second, time.Hour)/time.Second)
			config = config[:len(config)-1] + pick(config == "{}", "", ",") + within + pick(r.IntN(2) == 0, "", `,"if_unanswered":{"nonce":"`+nobodyNonce+`"}`) + "}"
		}
		backoff := []string{"none", "linear", "exponential", "fibonacci"}[r.IntN(4)]
		return stepSpec{name: name, kind: kind, callable: callable, config: config, after: after, timeout: 1 + r.IntN(600),
			retry: fmt.Sprintf(`{"max_attempts":%d,"backoff":%q,"backoff_base_ms":%d}`, 1+r.IntN(4), backoff,
				logTime(r, time.Millisecond, 10*time.Minute).Milliseconds())}
	}
	plain := func(name string, after ...string) stepSpec {
		kind := r.IntN(4)
		return step(name, "", "Work", []string{"builtin:noop", "builtin:flaky", "builtin:sleep", "builtin:fail"}[kind],
			[]string{"{}", `{"failures":1}`, fmt.Sprintf(`{"duration_ms":%d}`, logTime(r, time.Millisecond, time.Hour).Milliseconds()),
				`{"retryable":true}`}[kind], after...)
	}
	var steps []stepSpec
	switch r.IntN(4) * boolCount(parts["growth"]) {
	case 1:
		steps = []stepSpec{step("a", "decision", "Decide", "builtin:decide", `{"field":"x","default":["b"]}`), plain("b", "a"), plain("c", "a"),
			step("d", "deferred_convergence", "Work", "builtin:noop", "{}", "b", "c")}
	case 2:
		steps = []stepSpec{step("a", "batchable", "Split", "builtin:batch", `{"total_items":250,"batch_size":100,"worker_template_name":"b"}`),
			step("b", "batch_worker", "Work", "builtin:tally", "{}", "a"), step("c", "deferred_convergence", "Work", "builtin:noop", "{}", "b")}
	default:
		for n := range 1 + r.IntN(5) {
			var after []string
			for m := range n {
				if r.IntN(3) == 0 {
					after = append(after, string(rune('a'+m)))
				}
			}
			steps = append(steps, plain(string(rune('a'+n)), after...))
		}
	}
	text := testTemplate(name, steps...)
	if !parts["subscribers"] {
		return text
	}
	mode := []string{"durable", "durable", "broadcast"}[r.IntN(3)]
	events := fmt.Sprintf(`{"name":"a","publishes_events":[%s,%s],`, published("world.a", fmt.Sprintf(`,"condition":"always","delivery_mode":%q`, mode)),
		published("world.b", `,"condition":"success"`))
	return strings.Replace(text, `{"name":"a",`, events, 1)
}

// worldActor is somebody who takes part.
type worldActor struct {
	w    *worldRun
	name string
	r    *rand.Rand
}

// startActors starts all who take part.
func (w *worldRun) startActors() {
	start := func(name string, act func(a *worldActor)) {
		w.actors.Go(func() { act(&worldActor{w, name, worldChance(w.plan.seed, name)}) })
	}
	var clients []chan struct{}
	for n := range w.plan.clients {
		done := make(chan struct{})
		clients = append(clients, done)
		start(fmt.Sprint("client", n), func(a *worldActor) { defer close(done); a.beClient() })
	}
	for n := range w.plan.actors {
		start(fmt.Sprint("worker", n), (*worldActor).beWorker)
	}
	start("operator", (*worldActor).beOperator)
	if w.part("many") {
		start("keeper", (*worldActor).beKeeper)
	}
	if w.part("followers") {
		start("follower", func(a *worldActor) { a.follow("") })
		start("reader", func(a *worldActor) { a.follow("?kind=domain") })
	}
	start("closer", func(a *worldActor) {
		for _, done := range clients {
			<-done
		}
		a.beCloser()
	})
}

// think lets time pass. It reports false when the world ends.
func (a *worldActor) think(least, most time.Duration) bool {
	_, over := receiveWithin(a.w.closing, logTime(a.r, least, most))
	return !over && !isClosed(a.w.closing)
}

// up returns the present life once it is open; nil when the world ends.
func (w *worldRun) up() *worldLife {
	for {
		w.mu.Lock()
		opened, l := w.opened, w.life
		w.mu.Unlock()
		if isClosed(opened) {
			return l
		}
		select {
		case <-opened:
		case <-w.closing:
			return nil
		}
	}
}

// worldAnswer is an answer to a request; its status is 0 if there is none.
type worldAnswer struct {
	status    int
	header    http.Header
	body      []byte
	life      *worldLife // nil if there was no life any more
	call, ret uint64     // in the order of everything
	at, until time.Time  // when it was sent, and answered
}

// into decodes the body.
func (x *worldAnswer) into(v any) bool { return x.status/100 == 2 && json.Unmarshal(x.body, v) == nil }

// unknown reports whether the request may have been done or not.
func (x *worldAnswer) unknown() bool {
	return x.status == 0 || x.status >= 500 || x.status == http.StatusTooManyRequests
}

// do sends a request to the present life.
func (a *worldActor) do(method, path, body string, header ...string) *worldAnswer {
	x := &worldAnswer{ret: math.MaxUint64, life: a.w.up()}
	if x.life == nil {
		return x
	}
	x.call, x.at = a.w.bus.now(), time.Now()
	resp, conn, err := a.request(x.life, method, path, body, header...)
	if err == nil {
		x.body, err = io.ReadAll(resp.Body)
	}
	if conn != nil {
		conn.Close()
	}
	x.until = time.Now()
	if err == nil {
		x.status, x.header, x.ret = resp.StatusCode, resp.Header, a.w.bus.now()
		route, _, _ := strings.Cut(path, "?")
		if err := contracts()["orchestration"].Undeclared(method, route, x.status); err != nil {
			a.w.Errorf("%s %s: %v", method, path, err)
		}
	}
	if *worldTrace {
		a.w.TB.Logf("%s %s: %s %s %.300s: %d %.600s (%v)", time.Since(a.w.began), a.name, method, path, body, x.status, x.body, err)
	}
	if x.status >= 500 && x.status != http.StatusServiceUnavailable {
		a.w.Errorf("%s %s: %d %s", method, path, x.status, x.body)
	}
	return x
}

// request sends a request, and returns the answer up to its body.
func (a *worldActor) request(l *worldLife, method, path, body string, header ...string) (*http.Response, io.Closer, error) {
	conn, err := l.dial(a.name)
	if err != nil {
		return nil, nil, err
	}
	conn.SetDeadline(time.Now().Add(time.Hour))
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", method, path, len(body))
	for i := 0; i < len(header); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", header[i], header[i+1])
	}
	b.WriteString("\r\n" + body)
	if _, err := io.WriteString(conn, b.String()); err != nil {
		conn.Close()
		return nil, nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return resp, conn, nil
}

// Clients.

// beClient creates tasks, and looks at them, waits for them and cancels some.
func (a *worldActor) beClient() {
	for n := range a.w.plan.tasks {
		if !a.think(a.w.plan.pace/1000, a.w.plan.pace) {
			return
		}
		id := a.create(n)
		for id != "" && a.r.IntN(3) > 0 && a.think(time.Millisecond, a.w.plan.pace) {
			a.look(id)
		}
	}
}

// create creates a task, under a key until it is known.
func (a *worldActor) create(n int) string {
	w := a.w
	shape := a.r.IntN(len(w.plan.shapes))
	size := 0
	if a.r.IntN(8) == 0 {
		size = a.r.IntN(40_000)
	}
	body := fmt.Sprintf(`{"namespace":"t","name":"shape%d","priority":%d,"context":{"pad":"%s"}}`, shape, a.r.IntN(3), strings.Repeat("x", size))
	query, key := "", ""
	if w.part("waits") && a.r.IntN(4) == 0 {
		query = "?wait=" + logTime(a.r, time.Millisecond, time.Minute).String()
	}
	if w.part("keys") && a.r.IntN(2) == 0 {
		key = fmt.Sprintf("%s-%d", a.name, n)
	}
	for try := 0; ; try++ {
		header := []string{}
		if key != "" {
			header = []string{"Idempotency-Key", key}
		}
		x := a.do("POST", "/v1/tasks"+query, body, header...)
		var v worldTaskView
		switch {
		case x.into(&v):
			w.model.created(v.ID, key, x)
			w.model.saw(&v, x)
			return v.ID
		case x.status == http.StatusGone: // it was dropped
			return ""
		case !x.unknown() && x.status != http.StatusConflict:
			w.Errorf("creating a task: %d %s", x.status, x.body)
			return ""
		case key == "" && x.unknown():
			return ""
		}
		if !a.think(time.Second, time.Minute) {
			return ""
		}
	}
}

// look looks at a task, or cancels it.
func (a *worldActor) look(id string) {
	w := a.w
	var v worldTaskView
	switch n := a.r.IntN(12); {
	case n == 0 && w.part("cancels") && !w.isCalm():
		if x := a.do("DELETE", "/v1/tasks/"+id, ""); x.status == 200 || x.unknown() {
			w.model.cancelled(id, x)
		}
	case n < 4 && w.part("waits"):
		if x := a.do("GET", "/v1/tasks/"+id+"?wait=terminal&timeout="+logTime(a.r, time.Millisecond, time.Hour).String(), ""); x.into(&v) {
			w.model.saw(&v, x)
		}
	default:
		if x := a.do("GET", "/v1/tasks/"+id, ""); x.into(&v) {
			w.model.saw(&v, x)
			if len(v.Steps) > 0 && n < 8 {
				var s worldStepView
				if x := a.do("GET", "/v1/tasks/"+id+"/workflow_steps/"+v.Steps[a.r.IntN(len(v.Steps))].ID, ""); x.into(&s) {
					w.model.sawStep(s.OwnID, id, &s, x)
				}
			}
		} else if x.status == 404 {
			w.model.missed(id, x)
		}
	}
}

// Outside actors.

// worldClaim is a step that a worker was given.
type worldClaim struct {
	Callable, Lease string
	Expires         time.Time `json:"lease_expires_at"`
	Step            struct {
		ID      string `json:"step_uuid"`
		Attempt int
		Config  struct {
			Within string `json:"answer_within"`
		}
	}
	Task struct {
		ID string `json:"task_uuid"`
	}
}

// beWorker claims steps and answers for them.
func (a *worldActor) beWorker() {
	for {
		calm := a.w.isCalm()
		if !calm && !a.think(a.w.plan.pace/1000, a.w.plan.pace) || calm && !a.think(time.Second, time.Minute) {
			return
		}
		lease := int(logTime(a.r, time.Second, time.Hour).Seconds())
		body := fmt.Sprintf(`{"callables":["World::*"],"worker_id":%q,"limit":%d,"lease_seconds":%d,"wait_seconds":%d`,
			a.name, 1+a.r.IntN(4), lease, a.r.IntN(60))
		x := a.do("POST", "/v1/steps/claim", body+"}")
		var given []*worldClaim
		x.into(&given)
		a.w.model.claimed(given, x)
		for _, c := range given {
			a.work(c)
		}
	}
}

// worldOutcome is what a worker has to say about a step.
type worldOutcome struct {
	claim *worldClaim
	verb  string // complete, fail, checkpoint or extend
	body  string // members besides the lease
	nonce string // of the result, or of the error
}

// work does a step, and answers for it in one of many ways.
func (a *worldActor) work(c *worldClaim) {
	w, r := a.w, a.r
	calm := w.isCalm()
	left := max(time.Until(c.Expires), time.Millisecond)
	took := logTime(r, time.Millisecond, left)
	if w.part("late") && !calm && r.IntN(8) == 0 {
		took = logTime(r, left, 4*left)
	}
	if calm {
		took = min(took, left/2)
	}
	if !a.think(min(time.Millisecond, took/2), took) {
		return
	}
	if r.IntN(5) == 0 {
		a.send(&worldOutcome{c, "extend", fmt.Sprintf(`"lease_seconds":%d`, int(logTime(r, time.Second, time.Hour).Seconds())), ""})
		if !a.think(time.Millisecond, time.Minute) {
			return
		}
	}
	o := &worldOutcome{claim: c, verb: "complete", nonce: fmt.Sprint(a.name, "-", w.bus.now())}
	o.body = fmt.Sprintf(`"result":%s`, worldResult(r, c.Callable, o.nonce, calm))
	switch n := r.IntN(20); {
	case calm || n < 12:
	case n < 15:
		o.verb, o.body = "fail", fmt.Sprintf(`"error":{"message":%q}`, o.nonce)
	case n < 16:
		o.verb, o.body = "fail", fmt.Sprintf(`"error":{"message":%q,"retryable":false}`, o.nonce)
	case n < 18 && w.part("checkpoints"):
		o.verb, o.body = "checkpoint", fmt.Sprintf(`"cursor":%q`, o.nonce)
	case n < 19 && w.part("late"):
		return // it is never heard of again
	}
	for range 1 + r.IntN(2)*r.IntN(2) {
		for x := a.send(o); x.unknown() && r.IntN(8) > 0 && a.think(time.Second, time.Minute); x = a.send(o) {
		}
	}
}

// worldResult returns the result of a step, by its callable.
func worldResult(r *rand.Rand, callable, nonce string, calm bool) string {
	switch {
	case strings.HasSuffix(callable, "Decide"):
		names := []string{``, `"b"`, `"c"`, `"b","c"`}[r.IntN(4)]
		return fmt.Sprintf(`{"nonce":%q,"decision_point_outcome":{"type":"create_steps","step_names":[%s]}}`, nonce, names)
	case strings.HasSuffix(callable, "Split"):
		cursors := strings.TrimSuffix(strings.Repeat(`{},`, r.IntN(4)), ",")
		return fmt.Sprintf(`{"nonce":%q,"batch_processing_outcome":{"type":"create_batches","worker_template_name":"b","cursor_configs":[%s]}}`,
			nonce, cursors)
	}
	return fmt.Sprintf(`{"nonce":%q}`, nonce)
}

// send sends an outcome or extension.
func (a *worldActor) send(o *worldOutcome) *worldAnswer {
	x := a.do("POST", "/v1/steps/"+o.claim.Step.ID+"/"+o.verb, fmt.Sprintf(`{"lease":%q,%s}`, o.claim.Lease, o.body))
	a.w.model.answered(o, x)
	return x
}

// Operators.

// beOperator helps tasks that are blocked, and interferes with others.
func (a *worldActor) beOperator() {
	w := a.w
	for a.think(time.Minute, time.Duration(5+55*boolCount(!w.isCalm()))*time.Minute) {
		var list struct{ Tasks []worldTaskView }
		query := "?per_page=100&status=blocked_by_failures"
		if w.part("operators") && !w.isCalm() && a.r.IntN(2) == 0 {
			query = "?per_page=5"
		} else if !w.isCalm() && a.r.IntN(2) == 0 {
			continue
		}
		a.do("GET", "/v1/tasks"+query, "").into(&list)
		for _, t := range list.Tasks {
			var v worldTaskView
			if x := a.do("GET", "/v1/tasks/"+t.ID, ""); x.into(&v) {
				w.model.saw(&v, x)
				a.operate(&v)
			}
		}
	}
}

// operate acts on the steps of a task, or cancels it if nothing else helps.
func (a *worldActor) operate(v *worldTaskView) {
	stuck := v.Status == "blocked_by_failures"
	for _, s := range v.Steps {
		actions := []string{"reset_for_retry", "resolve_manually", "complete_manually"}
		switch {
		case s.State == "error" && stuck:
			stuck = false
			if a.w.isCalm() {
				actions = actions[1:]
			}
		case !a.w.part("operators") || a.w.isCalm() || a.r.IntN(4) > 0:
			continue
		default:
			actions = append(actions, "fail", "cancel", "retry_now", "adjust")
		}
		a.act(v.ID, s.ID, actions[a.r.IntN(len(actions))])
	}
	if stuck && a.w.isCalm() {
		x := a.do("DELETE", "/v1/tasks/"+v.ID, "")
		a.w.model.cancelled(v.ID, x)
	}
}

// act does something to a step, until it is known whether it was done.
func (a *worldActor) act(task, step, action string) {
	by := map[string]string{"reset_for_retry": "reset_by", "resolve_manually": "resolved_by", "complete_manually": "completed_by",
		"fail": "failed_by", "cancel": "cancelled_by", "retry_now": "retried_by"}[action] // empty for adjust
	nonce := fmt.Sprint("operator-", a.w.bus.now())
	if by == "reset_by" {
		a.w.model.resetting(step)
	}
	body := fmt.Sprintf(`{"action_type":%q,"reason":%q,%q:"op"`, action, nonce, by)
	switch action {
	case "adjust":
		body = fmt.Sprintf(`{"action_type":"adjust","retry_limit":%d,"inputs":{"n":%d}`, 1+a.r.IntN(6), a.r.IntN(9))
	case "complete_manually":
		body += fmt.Sprintf(`,"completion_data":{"result":{"nonce":%q}}`, nonce)
	case "fail":
		body += fmt.Sprintf(`,"error":{"message":%q}`, nonce)
	}
	for {
		x := a.do("PATCH", "/v1/tasks/"+task+"/workflow_steps/"+step, body+"}")
		a.w.model.step(step, task).add(&stepOp{kind: strings.Replace(action, "fail", opActFail, 1), nonce: nonce, x: x, ok: x.status == 200})
		if !x.unknown() || a.r.IntN(4) == 0 || !a.think(time.Second, time.Minute) {
			return
		}
	}
}

// Readers.

// follow follows the stream of events, through all lives. Its connections are torn, and it continues where it was.
func (a *worldActor) follow(query string) {
	m := &a.w.model.readers[boolCount(query != "")]
	for {
		if !a.think(time.Millisecond, time.Minute) {
			return
		}
		l := a.w.up()
		if l == nil {
			return
		}
		resp, conn, err := a.request(l, "GET", "/v1/events"+query, "", "Last-Event-ID", fmt.Sprint(m.lastID))
		if err != nil {
			continue
		}
		if resp.StatusCode != 200 {
			conn.Close()
			continue
		}
		stop := time.AfterFunc(logTime(a.r, time.Second, 12*time.Hour), func() { conn.Close() })
		a.read(resp.Body, m)
		stop.Stop()
		conn.Close()
	}
}

// read reads a stream until it ends.
func (a *worldActor) read(body io.Reader, m *worldReader) {
	var pending bytes.Buffer
	buf := make([]byte, 4<<10)
	for {
		n, err := body.Read(buf)
		pending.Write(buf[:n])
		if whole := bytes.LastIndex(pending.Bytes(), []byte("\n\n")); whole >= 0 {
			if problem := m.take(string(pending.Next(whole + 2))); problem != nil {
				a.w.Errorf("%s: %v", a.name, problem)
			}
		}
		if err != nil || isClosed(a.w.closing) {
			return
		}
	}
}

// The end.

// beCloser waits until all tasks have ended, once nothing fails any more, and ends the world.
func (a *worldActor) beCloser() {
	w := a.w
	defer w.close()
	for l := w.up(); l == nil || !l.last; l = w.up() {
		if receiveWithin(w.closing, time.Minute); isClosed(w.closing) {
			return
		}
	}
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	unfinished := ""
	for range 600 {
		if !a.think(2*time.Minute, 3*time.Minute) {
			return
		}
		var list struct{ Tasks []worldTaskView }
		if x := a.do("GET", "/v1/tasks?per_page=100&status=pending,initializing,enqueuing_steps,steps_in_process,evaluating_results,"+
			"waiting_for_dependencies,waiting_for_retry,blocked_by_failures", ""); !x.into(&list) {
			unfinished = fmt.Sprintf("the list is %d %s", x.status, x.body)
			continue
		}
		if len(list.Tasks) == 0 && w.model.quiet(w.up()) {
			return
		}
		unfinished = fmt.Sprintf("%+v, %s", list.Tasks, w.model.waits)
	}
	w.Errorf("tasks never end: %s", unfinished)
}

// Handlers and subscribers.

// handle answers one request of the service to a handler or a subscriber.
func (w *worldRun) handle(l *worldLife, address string, in *bufio.Reader, out io.Writer) {
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	reply := func(status int, text string) error {
		_, err := fmt.Fprintf(out, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(text), text)
		return err
	}
	host, _, _ := strings.Cut(address, ":")
	if host != "handler" {
		w.receive(l, host, body, reply)
		return
	}
	key := req.Header.Get("Idempotency-Key")
	again := w.model.called(l, key)
	r := worldChance(w.plan.seed, fmt.Sprint(key, again))
	calm := w.isCalm()
	took := logTime(r, time.Millisecond, time.Hour)
	if r.IntN(4) > 0 || calm {
		took = logTime(r, time.Microsecond, time.Second)
	}
	time.Sleep(took) // of the bubble's time
	switch n := r.IntN(20); {
	case calm || n < 13:
		reply(200, worldResult(r, req.URL.Path, key, calm))
	case n < 15:
		reply(500, `{}`)
	case n < 16:
		reply(200, `{"success":false,"error":{"message":"no","retryable":false}}`)
	case n < 18 && w.part("checkpoints"):
		reply(200, `{"success":true,"checkpoint":{"cursor":1}}`)
	case n < 19:
		reply(503, "") // and later again
	}
}

// receive takes a domain event as a subscriber, or refuses it.
func (w *worldRun) receive(l *worldLife, subscriber string, body []byte, reply func(status int, text string) error) {
	var e worldEvent
	if err := json.Unmarshal(body, &e); err != nil {
		w.Errorf("subscriber %s got %s", subscriber, body)
	}
	r := worldChance(w.plan.seed, fmt.Sprint(subscriber, w.bus.now()))
	o := w.model.offered(l, subscriber, &e)
	if !w.isCalm() && r.IntN(4) == 0 {
		time.Sleep(logTime(r, time.Millisecond, time.Minute)) // of the bubble's time
		reply(500, "")
	} else if reply(200, "") == nil {
		w.model.taken(l, o)
	}
}

// Who acts on many tasks at once in a world, repeats tasks, finds them and takes backups. What each line of a stream
// tells must be on disk: a life that begins later has at least as much.

// worldUnfinished is a filter of all tasks that have not ended.
const worldUnfinished = `"status":["pending","initializing","enqueuing_steps","steps_in_process","evaluating_results",` +
	`"waiting_for_dependencies","waiting_for_retry","blocked_by_failures"]`

// beKeeper acts on many until nothing fails any more. Then it releases whatever is on hold.
func (a *worldActor) beKeeper() {
	w := a.w
	for a.think(time.Minute, time.Duration(5+55*boolCount(!w.isCalm()))*time.Minute) {
		if w.isCalm() {
			a.many("release", worldUnfinished, nil)
			continue
		}
		var list struct{ Tasks []worldTaskView }
		a.do("GET", fmt.Sprintf("/v1/tasks?per_page=%d", 1+a.r.IntN(4)), "").into(&list)
		if len(list.Tasks) == 0 {
			continue
		}
		switch one := list.Tasks[a.r.IntN(len(list.Tasks))].ID; a.r.IntN(6) {
		case 0:
			a.again(one)
		case 1:
			a.find(one)
		case 2:
			a.backUp()
		default:
			a.actOnMany(list.Tasks)
		}
	}
}

// actOnMany acts on the tasks of a list.
func (a *worldActor) actOnMany(list []worldTaskView) {
	actions := []string{"retry_now", "reset", "resolve", "complete", "hold", "release", "close"}
	if a.w.part("cancels") {
		actions = append(actions, "cancel")
	}
	var ids []string
	var tasks []worldTaskView
	for _, t := range list {
		var v worldTaskView
		if x := a.do("GET", "/v1/tasks/"+t.ID, ""); x.into(&v) {
			a.w.model.saw(&v, x)
			ids, tasks = append(ids, fmt.Sprintf("%q", v.ID)), append(tasks, v)
		}
	}
	if len(ids) > 0 {
		a.many(actions[a.r.IntN(len(actions))], `"task_uuid":[`+strings.Join(ids, ",")+`]`, tasks)
	}
}

// worldItem is what was acted on.
type worldItem struct {
	Task string `json:"task_uuid"`
	Step string `json:"step_uuid"`
}

// many sends an action. Each line of the answer says how much was done.
func (a *worldActor) many(action, filter string, tasks []worldTaskView) {
	m := &a.w.model
	nonce := fmt.Sprint("many-", a.w.bus.now())
	body := fmt.Sprintf(`{"action":%q,"reason":%q,"by":"keeper","filter":{%s`, action, nonce, filter)
	if action == "complete" {
		body += `,"step":"a"},"completion_data":{"result":{"nonce":"` + nonce + `"}}}`
	} else {
		body += "}}"
	}
	for _, t := range tasks {
		m.mu.Lock()
		if m.onHold == nil {
			m.onHold = map[string]bool{}
		}
		m.onHold[t.ID] = m.onHold[t.ID] || action == "hold"
		m.mu.Unlock()
		for _, s := range t.Steps {
			if action == "reset" || action == "hold" {
				m.resetting(s.ID)
			}
		}
	}
	x := &worldAnswer{life: a.w.up()}
	if x.life == nil {
		return
	}
	x.call, x.at = a.w.bus.now(), time.Now()
	resp, conn, err := a.request(x.life, "POST", "/v1/actions", body)
	var result struct {
		Finished bool
		Samples  []worldItem
	}
	if err == nil {
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			var line struct{ Done int }
			json.Unmarshal(lines.Bytes(), &line)
			m.tellMany(x.life, nonce, line.Done)
			json.Unmarshal(lines.Bytes(), &result)
		}
		conn.Close()
	}
	x.until = time.Now()
	if x.ret = a.w.bus.now(); result.Finished {
		x.status = 200
	} else {
		x.ret = 1<<64 - 1 // the rest may have been done at any time
	}
	a.noteMany(action, nonce, tasks, result.Samples, x)
}

// noteMany notes what an action has done to steps and tasks, or may have done.
func (a *worldActor) noteMany(action, nonce string, tasks []worldTaskView, done []worldItem, x *worldAnswer) {
	kinds := map[string]string{"retry_now": "retry_now", "reset": "reset_for_retry", "resolve": "resolve_manually", "complete": "complete_manually"}
	for _, t := range tasks {
		if action == "cancel" {
			was := *x
			if x.status == 200 && !slices.Contains(done, worldItem{Task: t.ID}) {
				was.status = 409
			}
			a.w.model.cancelled(t.ID, &was)
		}
		for _, s := range t.Steps {
			ok := x.status == 200 && slices.Contains(done, worldItem{t.ID, s.ID})
			if kind := kinds[action]; kind != "" && (ok || x.status == 0) {
				a.w.model.step(s.ID, t.ID).add(&stepOp{kind: kind, nonce: nonce, x: x, ok: ok})
			}
		}
	}
}

// tellMany notes how much a line says was done. All of it must be on disk by now.
func (m *worldModel) tellMany(l *worldLife, nonce string, done int) {
	durable, kept := l.svc.store.journal.groups.durable(), 0
	images, _ := worldImages(l.svc.store)
	for _, line := range images {
		for _, record := range strings.Split(line, recordHead)[1:] {
			seq, _ := leadingNumber([]byte(record))
			kept += boolCount(uint64(seq) <= durable && strings.Contains(record, `":"`+nonce+`"`))
		}
	}
	if kept < done && !m.w.part("retention") {
		m.w.Errorf("a line says that %d things were done for %s; %d of them are on disk", done, nonce, kept)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.many == nil {
		m.many = map[string]int{}
	}
	m.many[nonce] = max(m.many[nonce], done)
}

// checkMany checks that what lines told of is there.
func (m *worldModel) checkMany(images map[string]string) {
	all := strings.Join(slices.Collect(maps.Values(images)), "\n")
	m.mu.Lock()
	defer m.mu.Unlock()
	for nonce, done := range m.many {
		if got := strings.Count(all, `"reason":"`+nonce+`"`) + strings.Count(all, `notes":"`+nonce+`"`); got < done && !m.w.part("retention") {
			m.w.Errorf("%d things were done for %s, as a line said; %d of them are there", done, nonce, got)
		}
	}
}

// again repeats a task from its first step.
func (a *worldActor) again(id string) {
	var v worldTaskView
	if x := a.do("POST", "/v1/tasks/"+id+"/again", `{"from":"a"}`); x.into(&v) {
		a.w.model.created(v.ID, "", x)
		a.w.model.saw(&v, x)
	}
}

// find finds a task by a part of its id.
func (a *worldActor) find(id string) {
	var v struct{ Hits []worldItem }
	if x := a.do("GET", "/v1/find?q="+id[:13], ""); x.into(&v) {
		for _, hit := range v.Hits {
			a.w.model.told(hit.Task)
		}
	}
}

// backUp takes a backup: the tasks in it are there later, too.
func (a *worldActor) backUp() {
	x := a.do("GET", "/v1/backup", "")
	if x.status != 200 || !bytes.Contains(x.body, []byte(endHead)) {
		return
	}
	for line := range bytes.Lines(x.body) {
		if id, ok := lineID(line); ok && bytes.HasPrefix(line, []byte(taskHead)) {
			a.w.model.told(id.String())
		}
	}
}

// told notes that somebody was told of a task.
func (m *worldModel) told(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id != "" {
		m.task(id) // which must be there from now on
	}
}

// imported returns the disk of a store that was exported and imported.
func (w *worldRun) imported(disk *memDisk) *memDisk {
	o := diskOptions(disk)
	s, _, err := readStore(&o, storePath(o.dir, storeName))
	if err != nil {
		w.Errorf("export: %v", err)
		return disk
	}
	var text bytes.Buffer
	noError(w, s.export(s.cut(), &text))
	to := newMemDisk()
	if _, err := importStore(diskOptions(to), &stateSource{document: &text}, o.log); err != nil {
		w.Errorf("import: %v", err)
		return disk
	}
	return to.restart()
}
