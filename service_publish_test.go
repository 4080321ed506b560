package main

// Subscribers of domain events: what they get, how it is signed, and what happens when they do
// not take it.

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr"

// receiver is a subscriber in a test.
type receiver struct {
	t   *testing.T
	url string

	mu     sync.Mutex
	status func(body string) int // 200 if nil
	bodies []string              // in the order in which they came
	ids    []string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL + "/events"
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(testSecret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(q.Header.Get("webhook-id") + "." + q.Header.Get("webhook-timestamp") + "." + string(body)))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); q.Header.Get("webhook-signature") != want {
		r.t.Errorf("got the signature %q; want %q", q.Header.Get("webhook-signature"), want)
	}
	if got := q.Header.Get("Content-Type"); got != "application/json" || q.URL.Path != "/events" {
		r.t.Errorf("got %s at %s", got, q.URL)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies, r.ids = append(r.bodies, string(body)), append(r.ids, q.Header.Get("webhook-id"))
	if r.status != nil {
		w.WriteHeader(r.status(string(body)))
	}
}

// answer sets the status that the receiver replies.
func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = func(string) int { return status }
}

// got returns the events in the order in which they came.
func (r *receiver) got() (events []domainView) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, body := range r.bodies {
		var e domainView
		noError(r.t, json.Unmarshal([]byte(body), &e))
		if e.ID != r.ids[i] {
			r.t.Errorf("got the header webhook-id %s with the event %s", r.ids[i], e.ID)
		}
		events = append(events, e)
	}
	return events
}

// await waits until so many events came, and returns them.
func (r *receiver) await(n int) []domainView {
	r.t.Helper()
	eventually(r.t, "the events arrive", func() bool { return len(r.got()) >= n })
	return r.got()
}

// subscribed configures subscribers: each a name, a URL and patterns.
func subscribed(list ...[]string) func(c *Config) {
	return func(c *Config) {
		for _, s := range list {
			c.Events.Subscribers = append(c.Events.Subscribers, subscriberConfig{
				Name: s[0], URL: s[1], Events: s[2:], Secret: testSecret, MaxAttempts: 3, TimeoutSeconds: 5,
			})
		}
	}
}

// awaitDeliveries waits until the deliveries have these statuses, the newest event first.
func awaitDeliveries(t *testing.T, s *service, want ...string) []eventDeliveryView {
	t.Helper()
	var list []eventDeliveryView
	eventually(t, "the deliveries are "+strings.Join(want, ", "), func() bool {
		list = s.publisher.list(deliveryFilter{}, 0, 100).Deliveries
		return slices.EqualFunc(list, want, func(v eventDeliveryView, w string) bool { return v.Status == w })
	})
	return list
}

// TestSubscribersGetTheirEvents checks who gets which events, once each and in order.
func TestSubscribersGetTheirEvents(t *testing.T) {
	all, some, named := newReceiver(t), newReceiver(t), newReceiver(t)
	s := openTestService(t, serviceTest{
		extra: []string{publishing("pay", "builtin:echo", "{}", published("pay.done", ""), published("pay.seen", `,"delivery_mode":"fast"`),
			published("told", `,"publisher":"Shop::Teller"`), published("both", `,"delivery_mode":"broadcast"`))},
		config: subscribed([]string{"all", all.url, "*"}, []string{"some", some.url, "pay.*", "both"}, []string{"Shop::Teller", named.url}),
	})
	for range 20 {
		mustCreate(t, s, "pay")
	}
	stream := domainOf(t, s, eventFilter{}, 0)
	for name, test := range map[string]struct {
		at    *receiver
		types []string
	}{
		"all": {all, []string{"pay.done", "pay.seen", "told", "both"}}, "some": {some, []string{"pay.done", "pay.seen", "both"}},
		"named": {named, []string{"told"}},
	} {
		want := slices.DeleteFunc(slices.Clone(stream), func(e domainView) bool { return !slices.Contains(test.types, e.Type) })
		if got := test.at.await(len(want)); string(jsonOf(got)) != string(jsonOf(want)) {
			t.Errorf("%s: got %v; want %v", name, got, want)
		}
	}
	f := s.publishedFigures()
	if f.published != [deliveryModes]uint64{40, 20, 20} {
		t.Errorf("got %+v", f)
	}
}

// TestPayloadsAreWhole checks that URLs in payloads stay as they are wherever a payload is read: for
// the subscriber, in the stream, in the audit and in fixture mode. What a failure says is redacted.
func TestPayloadsAreWhole(t *testing.T) {
	const link, secret = "https://files.test/a.pdf?X-Signature=5f1b&n=1#p2", "https://me:pw@files.test/?token=5f1b"
	at := newReceiver(t)
	s := newFixtureServer(t, serviceTest{
		config: func(c *Config) { subscribed([]string{"all", at.url, "*"})(c); c.Fixture.SendEvents = true },
		extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", "")),
			publishing("fails", "builtin:fail", `{"message":"no answer from `+secret+`"}`, published("failed", `,"condition":"failure"`))},
	})
	id := s.create(`{"namespace":"t","name":"pay","context":{"link":"` + link + `"}}`)
	s.create(`{"namespace":"t","name":"fails"}`)
	svc := s.world.service()
	events := at.await(2)
	if got := string(events[0].Data); got != `{"link":"`+link+`"}` {
		t.Errorf("the subscriber got %s; want the link whole", got)
	}
	if got := string(events[1].Data); !strings.Contains(got, "no answer from https://[REDACTED]@files.test/?[REDACTED]") {
		t.Errorf("the subscriber got %s; want the message redacted", got)
	}
	if stream := domainOf(t, svc, eventFilter{}, 0); string(jsonOf(stream)) != string(jsonOf(events)) {
		t.Errorf("the stream has %s; want %s", jsonOf(stream), jsonOf(events))
	}
	step := s.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").text("0.step_uuid")
	for what, path := range map[string]string{
		"audit": "/v1/tasks/" + id + "/workflow_steps/" + step + "/audit", "published events": "/_stepwell/requests?kind=event",
		"deliveries": "/_stepwell/requests?kind=delivery",
	} {
		if body := string(s.do("GET", path, "").want(200).body); !strings.Contains(body, link) || strings.Contains(body, "pw@") {
			t.Errorf("%s: got %s; want the link whole, and no password", what, body)
		}
	}
}

// TestSendingAgain checks the attempts after failures, the end of them, and sending by hand.
func TestSendingAgain(t *testing.T) {
	r := newReceiver(t)
	r.answer(500)
	clock := newVirtualClock(testStart)
	o := serviceTest{dir: t.TempDir(), clock: clock, config: subscribed([]string{"shop", r.url, "*"}),
		extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", ""), published("seen", `,"delivery_mode":"fast"`))}}
	s := openTestService(t, o)
	mustCreate(t, s, "pay")
	paused := func() eventDeliveryView {
		var v eventDeliveryView
		eventually(t, "the subscriber pauses", func() bool {
			v = s.publisher.list(deliveryFilter{}, 0, 1).Deliveries[0]
			return v.NextAttemptAt != nil
		})
		return v
	}
	v := paused()
	if v.Status != deliveryPending || v.Attempts != 1 || *v.Problem != "it replied 500" {
		t.Errorf("got %+v", v)
	}
	for n := range 2 {
		wait := instant(*paused().NextAttemptAt).sub(clock.now())
		if base := time.Second << n; wait < base*9/10 || wait > base*11/10 {
			t.Errorf("pause %d takes %s", n, wait)
		}
		clock.advance(wait)
		r.await(n + 2)
	}
	dead := awaitDeliveries(t, s, deliveryDead)[0]
	if dead.Attempts != 3 || *dead.Problem != "it replied 500" {
		t.Errorf("got %+v", dead)
	}
	if got := r.await(4); got[3].Type != "seen" || got[0].ID != got[2].ID {
		t.Errorf("got %v; want an event three times and the fast one once", got)
	}
	s = reopenTestService(t, s, o)
	if again := awaitDeliveries(t, s, deliveryDead)[0]; string(jsonOf(again)) != string(jsonOf(dead)) {
		t.Errorf("after a restart: got %+v; want %+v", again, dead)
	}
	if v := must(s.publisher.resend(t.Context(), dead.ID))(t); v.Status != deliveryDead || v.Attempts != 4 {
		t.Errorf("got %+v", v)
	}
	r.answer(200)
	if v := must(s.publisher.resend(t.Context(), dead.ID))(t); v.Status != deliveryDelivered || v.Problem != nil {
		t.Errorf("got %+v", v)
	}
	mustCompact(t, s.store)
	s = reopenTestService(t, s, o)
	awaitDeliveries(t, s, deliveryDelivered)
	mustCreate(t, s, "pay")
	awaitDeliveries(t, s, deliveryDelivered, deliveryDelivered)
	if _, err := s.publisher.resend(t.Context(), "7-1-nobody"); kindOf(err) != notFound {
		t.Errorf("got %v", err)
	}
	closeTestService(t, s)
}

// TestSendingAfterARestart checks that what was not sent before the end is sent afterwards, once,
// with and without a compaction, and that the task is kept that long.
func TestSendingAfterARestart(t *testing.T) {
	for _, compact := range []bool{false, true} {
		r := newReceiver(t)
		r.answer(503)
		o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", ""))},
			config: func(c *Config) { subscribed([]string{"shop", r.url, "*"})(c); c.Store.RetainFinishedCount = 1 }}
		s := openTestService(t, o)
		for range 3 {
			mustCreate(t, s, "pay")
		}
		r.await(1)
		want := domainOf(t, s, eventFilter{}, 0)
		if compact {
			mustCompact(t, s.store)
		}
		s = reopenTestService(t, s, o)
		r.answer(200)
		clock := s.clock.(*virtualClock)
		eventually(t, "everything is sent", func() bool {
			clock.advance(time.Minute)
			got := r.got()
			return len(got) > 3 && got[len(got)-1].ID == want[2].ID
		})
		awaited := slices.CompactFunc(r.got(), func(a, b domainView) bool { return a.ID == b.ID })
		if string(jsonOf(awaited)) != string(jsonOf(want)) {
			t.Errorf("got %v; want %v", awaited, want)
		}
		closeTestService(t, s)
	}
}

// TestOvertakenEvents checks that events which leave the log before a subscriber has them are
// given up, and can be sent by hand.
func TestOvertakenEvents(t *testing.T) {
	r := newReceiver(t)
	r.answer(503)
	clock := newVirtualClock(testStart)
	s := openTestService(t, serviceTest{
		clock: clock, extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", ""))},
		config: func(c *Config) { subscribed([]string{"shop", r.url, "*"})(c); c.Events.Keep = 2 },
	})
	mustCreate(t, s, "pay")
	r.await(1)
	for range 3 {
		mustCreate(t, s, "pay")
	}
	r.answer(200)
	eventually(t, "the rest is sent", func() bool {
		clock.advance(time.Minute)
		return len(r.got()) == 4
	})
	list := awaitDeliveries(t, s, deliveryDelivered, deliveryDelivered, deliveryDead)
	if p := *list[2].Problem; !strings.HasPrefix(p, "too many events") {
		t.Errorf("got %s", p)
	}
	if v := must(s.publisher.resend(t.Context(), list[2].ID))(t); v.Status != deliveryDelivered {
		t.Errorf("got %+v", v)
	}
}

// TestUndeliveredEvents checks that a task, its step and its explanation say which events subscribers did not get,
// also after restarts, until they get them, and how many deliveries each subscriber has.
func TestUndeliveredEvents(t *testing.T) {
	closed, open := newReceiver(t), newReceiver(t)
	closed.answer(410)
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), config: subscribed([]string{"shop", closed.url, "*"}, []string{"audit", open.url, "*"}),
		extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", ""), published("billed", ""))}}
	s := openTestService(t, o)
	first, second := mustCreate(t, s, "pay"), mustCreate(t, s, "pay")
	var dead []eventDeliveryView
	for range 3 {
		eventually(t, "the deliveries are settled", func() bool {
			dead = s.publisher.list(deliveryFilter{subscriber: "shop", status: deliveryDead}, 0, 9).Deliveries
			return len(dead) == 4 && s.publisher.list(deliveryFilter{"audit", deliveryDelivered}, 0, 9).TotalCount == 4
		})
		server := (&testServer{t: t, svc: s}).with(newOrchestrationAPI(s, nil))
		for path, at := range map[string]string{"": "", "/workflow_steps": "0.", "/explain": ""} {
			a := server.do("GET", "/v1/tasks/"+first.id.String()+path, "").want(200)
			a.wantText(at+"undelivered_events.0.type", "paid", at+"undelivered_events.1.type", "billed",
				at+"undelivered_events.0.delivery", dead[3].ID, at+"undelivered_events.0.subscriber", "shop",
				at+"undelivered_events.0.problem", "it replied 410", at+"undelivered_events.0.attempts", "1",
				at+"undelivered_events.0.step_name", "pay", at+"undelivered_events.0.step_uuid", first.stepID(0).String())
			if strings.Count(string(a.body), `"delivery":`) != 2 {
				t.Errorf("%s: got %s; want two events", path, a.body)
			}
		}
		v := s.publisher.list(deliveryFilter{status: deliveryPending}, 0, 9).Subscribers
		if len(v) != 2 || v[0].Dead != 4 || v[0].Delivered+v[0].Pending+v[1].Dead+v[1].Pending != 0 || v[1].Delivered != 4 ||
			v[0].NewestProblem == nil || v[0].NewestProblem.ID != dead[0].ID || *v[0].NewestProblem.Problem != "it replied 410" || v[1].NewestProblem != nil {
			t.Errorf("got %s; want 4 dead and 4 delivered ones, and why", jsonOf(v))
		}
		s = reopenTestService(t, s, o)
	}
	api := newOrchestrationAPI(s, nil)
	seen := func(permissions ...permission) (problems int, tag string) {
		sc := &securityContext{}
		for _, p := range permissions {
			sc.permissions |= 1 << p
		}
		r := httptest.NewRequest("GET", "/", nil)
		r = r.WithContext(withSecurity(r.Context(), sc))
		for _, u := range api.surface.undelivered(r, first) {
			problems += boolCount(u.Problem != nil)
		}
		return problems, api.surface.taskTag(first, hiddenFrom(r.Context()), testStart)
	}
	reader, readerTag := seen(permTasksRead, permDLQRead)
	other, otherTag := seen(permTasksRead)
	if reader != 2 || other != 0 || readerTag == otherTag {
		t.Errorf("got %d problems of 2 with dlq:read and %d without it, tags %s and %s", reader, other, readerTag, otherTag)
	}
	closed.answer(200)
	must(s.publisher.resend(t.Context(), dead[3].ID))(t)
	if left, tag := seen(permTasksRead, permDLQRead); left != 1 || tag == readerTag {
		t.Errorf("got %d events and the tag %s after one of two was delivered; before it was %s", left, tag, readerTag)
	}
	if got := len(s.store.subscribers().undelivered(second)); got != 2 {
		t.Errorf("got %d events of the other task; want 2", got)
	}
	closeTestService(t, s)
}

// TestPendingEventsAreCounted checks the figures of a subscriber that fails for now.
func TestPendingEventsAreCounted(t *testing.T) {
	r := newReceiver(t)
	r.answer(503)
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", ""))},
		config: subscribed([]string{"shop", r.url + "?key=hidden", "*"})})
	mustCreate(t, s, "pay")
	clock.advance(100 * time.Millisecond)
	mustCreate(t, s, "pay")
	var v subscriberView
	eventually(t, "the first attempt fails", func() bool {
		v = s.publisher.list(deliveryFilter{}, 0, 1).Subscribers[0]
		return v.NewestProblem != nil
	})
	if v.Pending != 2 || v.Dead != 0 || v.OldestPendingAt != zonedTime(testStart) || v.NewestProblem.Attempts != 1 ||
		*v.NewestProblem.Problem != "it replied 503" || v.NewestProblem.Status != deliveryPending {
		t.Errorf("got %s; want two pending ones", jsonOf(v))
	}
	if !strings.HasPrefix(v.URL, r.url) || strings.Contains(v.URL, "hidden") || v.LastSuccessAt != 0 || v.LastErrorAt == 0 || *v.LastError != "it replied 503" {
		t.Errorf("got %s; want a URL without its secret, and a failure", jsonOf(v))
	}
}

// TestSubscribersOnFullDisk checks that a service with a new subscriber starts although the disk is full, and that the
// subscriber gets its events once there is space, and not again after a restart.
func TestSubscribersOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, got := newMemDisk(), make(chan string, 10)
		disk.setCapacity(1 << 20)
		o := serviceTest{disk: disk, dir: "/data", config: subscribed([]string{"shop", "http://shop/", "*"}),
			extra: []string{publishing("pay", "builtin:noop", "{}", published("paid", ""))}}
		open := func() *service {
			s := openTestService(t, o)
			s.store.locked(func() {
				s.publisher.attempt = func(_ context.Context, a *sendAttempt) sendResult {
					got <- a.event.name
					return sendResult{}
				}
			})
			return s
		}
		s := open()
		if v := s.publisher.list(deliveryFilter{}, 0, 10); len(v.Subscribers) != 1 || v.TotalCount != 0 {
			t.Errorf("got %+v; want a subscriber without deliveries", v)
		}
		q := must(parseTaskRequest([]byte(`{"namespace":"t","name":"pay"}`)))(t)
		if _, err := s.createTask(t.Context(), q, true); kindOf(err) != unavailable {
			t.Errorf("got %v; want no space", err)
		}
		disk.setCapacity(0)
		time.Sleep(2 * outcomeRetryEvery) // of the bubble's time
		mustCreate(t, s, "pay")
		if name := <-got; name != "paid" {
			t.Errorf("got the event %s; want paid", name)
		}
		synctest.Wait()
		closeTestService(t, s)
		s = open()
		mustCreate(t, s, "pay")
		<-got
		synctest.Wait()
		if len(got) > 0 {
			t.Error("an event was sent again")
		}
		closeTestService(t, s)
	})
}

// TestDeliveryIsRecordedLater checks that a subscriber gets an event once although the store cannot take that it has it.
func TestDeliveryIsRecordedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, got := newMemDisk(), make(chan string, 100)
		s := newTestService(t, serviceTest{disk: disk, dir: "/data", config: subscribed([]string{"shop", "http://shop/", "*"}),
			extra: []string{publishing("pay", "builtin:noop", "{}", published("paid", ""))}})
		space := &s.store.journal.space
		s.store.locked(func() {
			s.publisher.attempt = func(context.Context, *sendAttempt) sendResult {
				if got <- "paid"; len(got) == 1 {
					disk.setCapacity(1)
					space.room.Store(0)
				}
				return sendResult{}
			}
		})
		mustCreate(t, s, "pay")
		time.Sleep(time.Minute) // of the bubble's time
		if len(got) != 1 {
			t.Errorf("the subscriber got the event %d times; want it once", len(got))
		}
		disk.setCapacity(0)
		time.Sleep(5 * time.Second)
		if v := s.publisher.list(deliveryFilter{}, 0, 10); len(v.Deliveries) != 1 || v.Deliveries[0].Status != deliveryDelivered {
			t.Errorf("got %+v; want one delivery that is recorded", v.Deliveries)
		}
	})
}
