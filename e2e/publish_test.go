package e2e

// Domain events at a subscriber and in the stream, also when the program is killed between the
// record and the delivery.

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

const signingSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr"

// sentEvent is an event as a subscriber gets it.
type sentEvent struct {
	ID, Type string
	TaskUUID string          `json:"task_uuid"`
	Data     json.RawMessage `json:"data"`
}

// eventTemplate declares events of several conditions and modes.
const eventTemplate = `{"namespace":"t","name":"order","version":"1.0.0","identity_strategy":"always_unique","steps":[
	{"name":"pay","handler":{"callable":"builtin:echo"},"publishes_events":[
		{"name":"order.paid","description":"","schema":{"type":"object"}},
		{"name":"order.refused","description":"","schema":{},"condition":"failure"},
		{"name":"order.tried","description":"","schema":{},"condition":"always","delivery_mode":"broadcast"}]},
	{"name":"ship","handler":{"callable":"builtin:fail","initialization":{"retryable":false}},"dependencies":["pay"],
	 "publishes_events":[{"name":"order.stuck","description":"","schema":{},"condition":"permanent_failure","publisher":"Shipping"}]}]}`

// TestEventsSurviveAKill checks that a subscriber gets every event although the program is killed
// while the subscriber has it and has not replied: with the same id, and the others once.
func TestEventsSurviveAKill(t *testing.T) {
	subscriber := newSubscriber(t)
	arrived, release := subscriber.arrived, make(chan struct{})
	subscriber.hold.Store(&release)
	t.Cleanup(func() { close(release) })
	args := serveArguments("--config", configFile(t, subscriber.config), "--data", filepath.Join(t.TempDir(), "data"), "--templates", templateDir(t, eventTemplate))
	p := launch(t, nil, args...).awaitReady()
	task := p.api().create(`{"namespace":"t","name":"order","context":{"amount":12}}`)
	p.api().await(task, "blocked_by_failures")
	first := next(t, arrived)
	p.kill()
	subscriber.hold.Store(nil)
	p = launch(t, nil, args...).awaitReady()
	types := []string{"order.paid", "order.tried", "order.stuck"}
	var got []sentEvent
	for range types {
		got = append(got, next(t, arrived))
	}
	if got[0].ID != first.ID || string(got[0].Data) != `{"amount":12}` || got[0].TaskUUID != task {
		t.Errorf("got %+v; want %+v again", got[0], first)
	}
	for i, e := range got {
		if e.Type != types[i] {
			t.Errorf("event %d is %s; want %s", i, e.Type, types[i])
		}
	}
	stream := readDomainEvents(t, p.ready.OrchestrationURL, len(types))
	if !slices.EqualFunc(stream, got, func(a, b sentEvent) bool { return a.ID == b.ID && a.Type == b.Type }) {
		t.Errorf("the stream has %v; want %v", stream, got)
	}
	p.stop()
	if len(arrived) > 0 {
		t.Errorf("got %+v as well; want each event once", <-arrived)
	}
}

// subscriber takes events. It replies once hold, unless that is nil, is closed.
type subscriber struct {
	arrived chan sentEvent
	hold    atomic.Pointer[chan struct{}]
	config  string
}

// newSubscriber starts a subscriber to all events.
func newSubscriber(t *testing.T) *subscriber {
	s := &subscriber{arrived: make(chan sentEvent, 100)}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e sentEvent
		if err := json.Unmarshal(body, &e); err != nil || r.Header.Get("webhook-id") != e.ID {
			t.Errorf("got %s with the id %s, %v", body, r.Header.Get("webhook-id"), err)
		}
		s.arrived <- e
		if release := s.hold.Load(); release != nil {
			<-*release
		}
	}))
	t.Cleanup(web.Close)
	s.config = fmt.Sprintf("[[events.subscribers]]\nname = 'Shipping'\nurl = '%s'\nevents = ['*']\nsecret = '%s'\n", web.URL, signingSecret)
	return s
}

// eventTypes returns the sorted types of events.
func eventTypes(events []sentEvent) (types []string) {
	for _, e := range events {
		types = append(types, e.Type)
	}
	slices.Sort(types)
	return types
}

func next(t *testing.T, c <-chan sentEvent) sentEvent {
	t.Helper()
	e, ok := receiveWithin(c, 20*time.Second)
	if !ok {
		t.Fatal("no event arrives")
	}
	return e
}

// readDomainEvents reads the first events of the stream.
func readDomainEvents(t *testing.T, url string, n int) (events []sentEvent) {
	t.Helper()
	resp, err := http.Get(url + "/v1/events?kind=domain&after=0")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	for buf := make([]byte, 4096); len(events) < n; {
		size, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(buf[:size])
		end := strings.LastIndex(text.String(), "\n\n") // what follows is not complete
		whole, _ := wire.ParseEvents(text.String()[:end+1])
		events = nil
		for _, w := range whole {
			var e sentEvent
			if err := json.Unmarshal([]byte(w.Data), &e); err != nil || w.Type != "domain" {
				t.Fatalf("got %+v, %v", w, err)
			}
			events = append(events, e)
		}
	}
	return events
}
