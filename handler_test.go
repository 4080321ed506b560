package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// showTarget describes a target in a few words.
func showTarget(t target) string {
	switch {
	case t.builtin != nil && t.builtin.name == "":
		o, _ := t.builtin.run(nil)
		return t.kind.String() + " refused: " + showOutcome(o) + ": " + o.err.message
	case t.builtin != nil:
		return "builtin " + t.builtin.name
	case t.http != nil:
		return "http " + t.http.url.String()
	case t.program != "":
		return "exec " + t.program
	}
	return t.kind.String()
}

func TestResolve(t *testing.T) {
	h := newTestHandlers(t, func(c *workerConfig) {
		c.Handlers = map[string]string{
			"Pay":              "builtin:noop",
			"Pay*":             "builtin:echo",
			"Pay::Card::*":     "http://h/card",
			"Pay::Card::Visa":  "exec:visa",
			"builtin:sleep":    "builtin:fail",
			"http://old/*":     "http://new/",
			"exec:only-mapped": "builtin:sum",
		}
	})
	for _, row := range []struct{ callable, want string }{
		{"Pay", "builtin noop"},
		{"Payment", "builtin echo"},
		{"Pay::Card", "builtin echo"},
		{"Pay::Card::", "http http://h/card"},
		{"Pay::Card::Amex", "http http://h/card"},
		{"Pay::Card::Visa", "exec visa"},
		{"Pay::Card::Visa2", "http http://h/card"},
		{"pay", "outside"},
		{"builtin:sleep", "builtin fail"},
		{"http://old/a/b", "http http://new/"},
		{"exec:only-mapped", "builtin sum"},

		{"builtin:noop", "builtin noop"},
		{"builtin:nope", `builtin refused: invalid_handler permanent: unknown builtin "nope"; ` +
			"want noop, echo, sleep, fail, flaky, sum, decide, batch or tally"},
		{"builtin:", `builtin refused: invalid_handler permanent: unknown builtin ""; ` +
			"want noop, echo, sleep, fail, flaky, sum, decide, batch or tally"},
		{"http://127.0.0.1:9000/a?b=c#d", "http http://127.0.0.1:9000/a?b=c"},
		{"HTTPS://[::1]:443", "http https://[::1]:443"},
		{"http://me:s3cret@h/a", "http http://h/a"},
		{"http://", "http refused: invalid_handler permanent: the URL has no host"},
		{"http:///a", "http refused: invalid_handler permanent: the URL has no host"},
		{"http://:80/a", "http refused: invalid_handler permanent: the URL has no host"},
		{"http://h:0/", "http refused: invalid_handler permanent: the URL is malformed"},
		{"http://h:65536/", "http refused: invalid_handler permanent: the URL is malformed"},
		{"http://me:s3/cret@h/", "http refused: invalid_handler permanent: the URL is malformed"},
		{"https://h h/", "http refused: invalid_handler permanent: the URL is malformed"},
		{"exec:/bin/tool", "exec /bin/tool"},
		{"exec:tool", "exec tool"},
		{"exec:", "exec refused: invalid_handler permanent: exec: names no program"},
		{"exec:./tool", "exec refused: invalid_handler permanent: " +
			"the program is neither an absolute path nor a bare name"},

		{"Http::Client", "outside"},
		{"http::client", "outside"},
		{"http", "outside"},
		{"builtin", "outside"},
		{"exec", "outside"},
		{"", "outside"},
	} {
		got := showTarget(h.resolve(row.callable))
		if got != row.want {
			t.Errorf("resolve(%q): got %s; want %s", row.callable, got, row.want)
		}
		if err := h.check(row.callable); (err != nil) != strings.Contains(row.want, "refused") {
			t.Errorf("check(%q): got %v for %s", row.callable, err, row.want)
		}
	}
}

func TestDefaultHandler(t *testing.T) {
	h := newTestHandlers(t, func(c *workerConfig) {
		c.DefaultHandler = "builtin:echo"
		c.Handlers = map[string]string{"A": "builtin:noop"}
	})
	for callable, want := range map[string]string{
		"A": "builtin noop", "B": "builtin echo", "builtin:sum": "builtin sum", "exec:x": "exec x",
	} {
		if got := showTarget(h.resolve(callable)); got != want {
			t.Errorf("resolve(%q): got %s; want %s", callable, got, want)
		}
	}
	if got := h.resolve("builtin:nope").builtin.name; got != "" {
		t.Errorf("an unknown builtin fell through to %q", got)
	}
}

func TestMappedToEverything(t *testing.T) {
	h := newTestHandlers(t, func(c *workerConfig) { c.Handlers = map[string]string{"*": "builtin:echo"} })
	if got := showTarget(h.resolve("any")); got != "builtin echo" {
		t.Errorf("got %s; want builtin echo", got)
	}
}

func TestOutsideOnly(t *testing.T) {
	for _, callable := range []string{"builtin:noop", "http://h/", "exec:x", "A"} {
		if got := outsideOnly().resolve(callable); got.kind != outsideActor {
			t.Errorf("resolve(%q): got %s; want outside", callable, showTarget(got))
		}
	}
}

// TestAttemptContext checks that the context of an attempt ends as one of the standard library does, and that
// another handler gets another time.
func TestAttemptContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(attemptContext)
		if _, ok := c.Deadline(); ok || c.Err() != nil {
			t.Errorf("a new one: got a deadline %v, %v", ok, c.Err())
		}
		began := time.Now()
		c.begin(time.Minute)
		if until, ok := c.Deadline(); !ok || until != began.Add(time.Minute) {
			t.Errorf("got the deadline %v, %v", until, ok)
		}
		ends := make(chan time.Duration, 3)
		ended := func() { ends <- time.Since(began) }
		c.AfterFunc(ended)
		context.AfterFunc(c, ended)
		kept := c.AfterFunc(ended)
		if !c.AfterFunc(ended)() || !context.AfterFunc(c, ended)() {
			t.Error("a function that was not called could not be stopped")
		}
		child, stop := context.WithCancel(c)
		defer stop()
		<-child.Done()
		for range 3 {
			if at := <-ends; at != time.Minute {
				t.Errorf("a function was called after %v", at)
			}
		}
		if c.Err() != context.DeadlineExceeded || child.Err() != context.DeadlineExceeded || kept() {
			t.Errorf("after the deadline: got %v, %v", c.Err(), child.Err())
		}
		c.rest()

		c.begin(time.Hour)
		if c.Err() != nil {
			t.Errorf("for another handler: got %v", c.Err())
		}
		c.cancel()
		<-c.Done()
		if c.rest(); c.Err() != context.Canceled || c.AfterFunc(ended)() {
			t.Errorf("cancelled: got %v", c.Err())
		}
		<-ends
		c.begin(time.Hour)
		if c.rest(); c.Err() != context.Canceled {
			t.Errorf("cancelled, for another handler: got %v", c.Err())
		}
	})
}
