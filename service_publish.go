package main

// Publishing: domain events go to the subscribers of the configuration by HTTP, signed as in
// Standard Webhooks. Each subscriber has a goroutine, which sends one event after the other, in
// the order of the journal. How far each subscriber got is journaled; see store_publish.go.

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The wait after the first failed attempt, which doubles with each one, and the longest.
const (
	resendBase = time.Second
	resendMax  = time.Hour
)

// publisher sends the events of one service.
type publisher struct {
	log         *slog.Logger
	clock       clock
	store       *store
	engine      *engine
	web         *httpCaller
	subscribers []*subscriber

	attempt func(ctx context.Context, a *sendAttempt) sendResult // send, unless fixture mode replaces it

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// subscriber is one subscriber of the configuration.
type subscriber struct {
	subscriberConfig
	key     []byte
	to      *httpAddress
	figures subscriberFigures // guarded by the store's lock, like all below

	attempts int          // failed attempts to send the event that comes next
	problem  string       // of the latest one; "" for none
	rest     *sendingRest // nil unless the subscriber waits for the clock

	// Since the start; 0 and "" for none:
	lastSuccess, lastFailure instant // ends of attempts
	lastProblem              string  // of the failure
}

// sendAttempt is an attempt to send an event to a subscriber.
type sendAttempt struct {
	*subscriber
	event  *domainEvent
	number int
	byHand bool // it does not wait for the clock
}

// sendingRest is a time that a subscriber waits for.
type sendingRest struct {
	*sendAttempt         // the latest
	until        instant // when the next one begins, or in fixture mode this one ends
}

// subscriberFigures counts, since the start, what became of events.
type subscriberFigures struct {
	delivered, dead uint64
	failed          uint64 // attempts
}

func newPublisher(s *service) *publisher {
	p := &publisher{
		log: s.log, clock: s.clock, store: s.store, engine: s.engine, web: s.handlers.web,
	}
	if p.web == nil { // no handler runs here
		p.web = newHTTPCaller(&s.cfg.Worker, version)
	}
	p.attempt = p.send
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, c := range s.cfg.Events.Subscribers {
		to, _ := parseHTTPAddress(c.URL) // which was checked
		p.subscribers = append(p.subscribers, &subscriber{subscriberConfig: c, key: signingKey(c.Secret), to: to})
	}
	return p
}

// start begins to send, with what was not sent before the last end.
func (p *publisher) start() error {
	for _, s := range p.subscribers {
		p.store.subscribers().subscribe(s.Name, s.wants)
		// If the store refuses changes for now, run tries again.
		if err := p.store.subscribers().introduce(s.Name); err != nil && !refusedForNow(err) {
			return fmt.Errorf("subscriber %s: %w", s.Name, err)
		}
		p.wg.Go(func() { p.run(s) })
	}
	return nil
}

// stop ends all sending; what is on its way is sent again after the next start.
func (p *publisher) stop() {
	p.cancel()
	p.wg.Wait()
}

// wants reports whether the subscriber gets an event: one that it asks for, or of a publisher with its name.
func (s *subscriber) wants(e *domainEvent) bool {
	return e.publisher == s.Name ||
		slices.ContainsFunc(s.Events, func(pattern string) bool { return fitsPattern(pattern, e.name) })
}

// sendingLocked reports whether an event is on its way, other than in a rest.
func (p *publisher) sendingLocked() bool {
	s, _ := p.nextLocked()
	return s != nil && p.ctx.Err() == nil
}

// nextLocked returns the subscriber that does not rest and waits for the oldest event, and that event; nil for none.
func (p *publisher) nextLocked() (first *subscriber, event *domainEvent) {
	for _, s := range p.subscribers {
		if s.rest != nil {
			continue
		}
		e := p.store.subscribers().awaitedLocked(s.Name)
		if e != nil && (event == nil || cmp.Or(cmp.Compare(e.seq, event.seq), cmp.Compare(e.n, event.n)) < 0) {
			first, event = s, e
		}
	}
	return first, event
}

// run sends the events of one subscriber, one after the other. Each is sent until the subscriber has it or it is given up.
func (p *publisher) run(s *subscriber) {
	marks := p.store.subscribers()
	for refusedForNow(marks.introduce(s.Name)) && p.ctx.Err() == nil { // the disk is full
		closedWithin(p.ctx, nil, outcomeRetryEvery)
	}
	var a *sendAttempt // the next one; nil for the first one of another event
	for p.ctx.Err() == nil {
		// Before it looks, so that it misses nothing that becomes durable in between.
		news := marks.news()
		if a == nil {
			e, ok := marks.nextFor(s.Name)
			if !ok {
				select {
				case <-news:
				case <-p.ctx.Done():
				}
				continue
			}
			a = &sendAttempt{subscriber: s, event: &e, number: 1}
		}
		switch r := p.attempt(p.ctx, a); {
		case r.problem != "" && p.ctx.Err() != nil: // perhaps only the stop made it fail
		case r.problem == "" || a.event.fast() || r.final || a.number >= s.MaxAttempts:
			p.settle(a, r)
			a = nil
		default:
			p.pause(a, r)
			a = &sendAttempt{subscriber: s, event: a.event, number: a.number + 1}
		}
	}
}

// settle notes what became of an event after its last attempt.
func (p *publisher) settle(a *sendAttempt, r sendResult) {
	var dead *deadNotice
	s, e := a.subscriber, a.event
	if r.problem != "" && !e.fast() {
		given := e.given(p.clock.now(), a.number, r.problem)
		dead = &given
		p.log.Warn("a subscriber did not accept an event; it can be resent through the API", "subscriber", s.Name,
			"event", e.name, "delivery", deliveryID(s.Name, e.seq, e.n), "attempts", a.number, "problem", r.problem)
	}
	// Until the store accepts changes again, the subscriber gets nothing, or it would get the event again and again.
	var err error
	for again := true; again; again = refusedForNow(err) && closedWithin(p.ctx, nil, outcomeRetryEvery) == errTooLong {
		p.store.disk().makeRoom(0)
		p.store.locked(func() { err = p.store.subscribers().settleLocked(s.Name, e, dead) })
	}
	p.store.locked(func() {
		s.figures.dead += uint64(boolCount(dead != nil))
		s.count(r, p.clock.now())
		s.attempts, s.problem = 0, ""
		p.engine.checkIdleLocked()
	})
	if err != nil {
		p.log.Warn("the delivery could not be recorded; after a restart the event is sent again",
			"subscriber", s.Name, "error", err)
	}
}

// count counts an attempt that has ended.
func (s *subscriber) count(r sendResult, now instant) {
	if r.problem == "" {
		s.lastSuccess = now
		s.figures.delivered++
		return
	}
	s.lastFailure, s.lastProblem = now, r.problem
	s.figures.failed++
}

// pause waits for the next attempt.
func (p *publisher) pause(a *sendAttempt, r sendResult) {
	// 20 doublings are far beyond resendMax, and many more would overflow.
	wait := min(resendBase<<min(a.number-1, 20), resendMax)
	wait = time.Duration(p.engine.outcomes.jittered(float64(wait), a.event.id(p.store.numbers()), a.number))
	p.rest(a, max(wait, r.wait), func() {
		a.count(r, p.clock.now())
		a.attempts, a.problem = a.number, r.problem
	})
}

// rest calls note under the store's lock and waits; meanwhile the service counts as idle. It
// reports false if the publisher stopped before the end.
func (p *publisher) rest(a *sendAttempt, wait time.Duration, note func()) bool {
	over := make(chan struct{})
	var t *timer
	p.store.locked(func() {
		note()
		a.rest = &sendingRest{a, p.clock.now().add(wait)}
		t = p.clock.schedule(a.rest.until, func() {
			p.store.locked(func() { a.rest = nil })
			close(over)
		})
		p.engine.checkIdleLocked()
	})
	select {
	case <-over:
		return true
	case <-p.ctx.Done():
		t.cancel()
		return false
	}
}

// sendResult says how one attempt to send an event ended.
type sendResult struct {
	problem string        // "" if the subscriber has it
	final   bool          // the subscriber wants no more attempts
	wait    time.Duration // how long the subscriber asks to wait; 0 if it does not ask
}

// send makes one attempt. The reply counts by its status alone.
func (p *publisher) send(ctx context.Context, a *sendAttempt) sendResult {
	ctx, cancel := context.WithTimeout(ctx, a.timeout())
	defer cancel()
	body := a.event.appendJSON(nil, p.store.numbers())
	status, wait, err := p.web.post(ctx, a.to, a.headers(a.event.id(p.store.numbers()).String(), realNow(), body), body)
	switch {
	case err != nil && ctx.Err() == context.DeadlineExceeded:
		return a.noReply()
	case err != nil:
		return sendResult{problem: cleanText([]byte(err.Error()))}
	case status/100 == 2:
		return sendResult{}
	}
	return sendResult{fmt.Sprintf("it replied %d", status), status == 410, wait}
}

func (s *subscriber) timeout() time.Duration { return time.Duration(s.TimeoutSeconds) * time.Second }

func (s *subscriber) noReply() sendResult {
	return sendResult{problem: fmt.Sprintf("no reply within %d s", s.TimeoutSeconds)}
}

// headers returns the headers of Standard Webhooks. The time is real, because receivers refuse what seems old.
func (s *subscriber) headers(id string, at instant, body []byte) map[string]string {
	seconds := strconv.FormatInt(at.time().Unix(), 10)
	mac := hmac.New(sha256.New, s.key)
	fmt.Fprintf(mac, "%s.%s.%s", id, seconds, body)
	return map[string]string{
		"Webhook-Id": id, "Webhook-Timestamp": seconds,
		"Webhook-Signature": "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
	}
}

// parseDeliveryID reads an id that deliveryID made.
func parseDeliveryID(id string) (subscriber string, seq uint64, n int, ok bool) {
	parts := strings.SplitN(id, "-", 3)
	if len(parts) < 3 {
		return "", 0, 0, false
	}
	seq, err := strconv.ParseUint(parts[0], 10, 64)
	n, alsoErr := strconv.Atoi(parts[1])
	return parts[2], seq, n, cmp.Or(err, alsoErr) == nil
}

// What became of the events, for people.

// deliveryListView is the answer of GET /v1/events/deliveries.
type deliveryListView struct {
	Deliveries  []eventDeliveryView `json:"deliveries"` // the newest event first
	TotalCount  int                 `json:"total_count"`
	Subscribers []subscriberView    `json:"subscribers"`
}

// subscriberView counts the deliveries to one subscriber, without regard to the status that a list is limited to.
type subscriberView struct {
	Name            string             `json:"name"`
	Pending         int                `json:"pending"`
	Delivered       int                `json:"delivered"`
	Dead            int                `json:"dead"`
	OldestPendingAt zonedTime          `json:"oldest_pending_at"`
	NewestProblem   *eventDeliveryView `json:"newest_problem"` // the delivery that fails now, else the newest that was given up
	URL             string             `json:"url"`            // without secrets
	LastSuccessAt   zonedTime          `json:"last_success_at"`
	LastErrorAt     zonedTime          `json:"last_error_at"`
	LastError       *string            `json:"last_error"`
}

// eventDeliveryView is the view of one event's delivery to one subscriber.
type eventDeliveryView struct {
	ID            string     `json:"id"`
	Subscriber    string     `json:"subscriber"`
	Status        string     `json:"status"` // pending, delivered or dead
	EventID       uuid       `json:"event_id"`
	Type          string     `json:"type"`
	Timestamp     zonedTime  `json:"timestamp"` // of the event, or of a dead one when it was given up
	TaskUUID      uuid       `json:"task_uuid"`
	Attempts      int        `json:"attempts"` // that failed, of a pending or dead one
	Problem       *string    `json:"problem"`  // of the latest of these
	NextAttemptAt *zonedTime `json:"next_attempt_at"`
}

// list returns some of the deliveries that a filter selects.
func (p *publisher) list(f deliveryFilter, offset, limit int) deliveryListView {
	v := deliveryListView{Deliveries: []eventDeliveryView{}, Subscribers: []subscriberView{}}
	p.store.locked(func() {
		for _, s := range p.subscribers {
			if f.subscriber == "" || f.subscriber == s.Name {
				v.Subscribers = append(v.Subscribers, p.countLocked(s))
			}
		}
		rows, total := p.store.subscribers().deliveriesLocked(f, offset, limit)
		v.TotalCount = total
		for i := range rows {
			v.Deliveries = append(v.Deliveries, p.viewLocked(&rows[i]))
		}
	})
	return v
}

func (p *publisher) countLocked(s *subscriber) subscriberView {
	c := p.store.subscribers().countsLocked(s.Name)
	v := subscriberView{Name: s.Name, Pending: c.pending, Delivered: c.delivered, Dead: c.dead, OldestPendingAt: zonedTime(c.oldest),
		URL: redactURL(s.URL), LastSuccessAt: zonedTime(s.lastSuccess), LastErrorAt: zonedTime(s.lastFailure)}
	if s.lastProblem != "" {
		v.LastError = new(s.lastProblem)
	}
	worst := c.lastDead
	if c.next != nil && s.problem != "" {
		worst = c.next
	}
	if worst != nil {
		v.NewestProblem = new(p.viewLocked(worst))
	}
	return v
}

func (p *publisher) viewLocked(r *deliveryRow) eventDeliveryView {
	x := &r.notice
	v := eventDeliveryView{
		ID: deliveryID(r.subscriber, x.seq, x.n), Subscriber: r.subscriber, Status: r.status,
		EventID: p.store.numbers().eventID(x.task, x.seq, x.n), Type: x.event, Timestamp: zonedTime(x.at), TaskUUID: x.task,
		Attempts: x.attempts,
	}
	problem := x.problem
	if s := p.subscriber(r.subscriber); r.status == deliveryPending && r.first && s != nil {
		v.Attempts, problem = s.attempts, s.problem
		// In fixture mode, a rest may also be that of an attempt under way.
		if rest := s.rest; rest != nil && rest.number == s.attempts {
			v.NextAttemptAt = new(zonedTime(rest.until))
		}
	}
	if problem != "" {
		v.Problem = &problem
	}
	return v
}

func (p *publisher) subscriber(name string) *subscriber {
	for _, s := range p.subscribers {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// timeoutOf returns how long resending a delivery may take.
func (p *publisher) timeoutOf(id string) time.Duration {
	name, _, _, _ := parseDeliveryID(id)
	if s := p.subscriber(name); s != nil {
		return s.timeout()
	}
	return 0
}

// resend makes one more attempt to send an event that was delivered or given up.
func (p *publisher) resend(ctx context.Context, id string) (v eventDeliveryView, err error) {
	name, seq, n, ok := parseDeliveryID(id)
	s := p.subscriber(name)
	if !ok || s == nil {
		return v, failf(notFound, "there is no delivery %.150q", id)
	}
	row, e, err := p.store.subscribers().deliveryOf(name, seq, n)
	if err != nil {
		return v, err
	}
	if row.status == deliveryPending {
		return v, failf(conflict, "delivery %s is still being sent", id)
	}
	r := p.attempt(ctx, &sendAttempt{s, e, row.notice.attempts + 1, true})
	p.store.locked(func() { s.count(r, p.clock.now()) })
	if row.notice.problem = r.problem; r.problem != "" {
		row.notice.attempts++
	} else if row.status == deliveryDead {
		if err := p.store.subscribers().resent(name, &row.notice); err != nil {
			return v, err
		}
		row.status, row.notice.attempts = deliveryDelivered, 0
	}
	p.store.locked(func() { v = p.viewLocked(row) })
	return v, nil
}

// publishedFigures counts domain events and what became of them, since the start.
type publishedFigures struct {
	published   [deliveryModes]uint64
	withheld    uint64
	subscribers []subscriberCount
}

// subscriberCount counts the events of one subscriber by how their deliveries ended.
type subscriberCount struct {
	name string
	subscriberFigures
	waiting, kept int // events that wait, and dead ones that are kept
}

func (s *service) publishedFigures() (f publishedFigures) {
	s.store.locked(func() {
		f.published, f.withheld = s.store.subscribers().publishedLocked()
		if s.publisher == nil {
			return
		}
		for _, sub := range s.publisher.subscribers {
			c := subscriberCount{name: sub.Name, subscriberFigures: sub.figures}
			c.waiting, c.kept = s.store.subscribers().waitingLocked(sub.Name)
			f.subscribers = append(f.subscribers, c)
		}
	})
	return f
}
