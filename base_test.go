package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stepwell/e2e/wire"
)

// noError ends the test if err is not nil.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns a function that returns v, or ends the test if err is not nil: the value of
// a call f() that may fail is must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return wire.Must(v, err)
}

// must2 is must for calls that return two values.
func must2[T, U any](v T, u U, err error) func(testing.TB) (T, U) {
	return func(t testing.TB) (T, U) {
		t.Helper()
		noError(t, err)
		return v, u
	}
}

// TestLogRate checks that only so many messages pass in a second, and that the next one after
// it says how many were left out, whatever the clock does.
func TestLogRate(t *testing.T) {
	l := &logRate{most: 2}
	for i, tt := range []struct {
		at      time.Duration
		dropped int
		ok      bool
	}{
		{0, 0, true}, {0, 0, true}, {0, 0, false}, {time.Second - 1000, 0, false}, {time.Second, 2, true},
		{time.Second, 0, true}, {time.Second, 0, false}, {-time.Hour, 1, true},
	} {
		if dropped, ok := l.allow(testStart.add(tt.at)); dropped != tt.dropped || ok != tt.ok {
			t.Errorf("message %d: got %d, %v; want %d, %v", i, dropped, ok, tt.dropped, tt.ok)
		}
	}
}

// mustJSON returns a value as JSON.
func mustJSON(t testing.TB, v any) string {
	t.Helper()
	return string(must(json.Marshal(v))(t))
}

// countedAnswer is an answer that contains how often it was computed.
type countedAnswer struct {
	cache answerCache[string, string]
	clock *virtualClock
	times map[string]int
}

func newCountedAnswer() *countedAnswer {
	return &countedAnswer{clock: newVirtualClock(testStart), times: map[string]int{}}
}

func (c *countedAnswer) ask(key string) string {
	v, hit, _ := c.cache.get(key, c.clock, time.Minute, func() (string, error) {
		c.times[key]++
		return fmt.Sprint(key, c.times[key]), nil
	})
	return fmt.Sprint(v, " ", hit)
}

func TestAnswerCache(t *testing.T) {
	c := newCountedAnswer()
	for _, step := range []struct {
		wait time.Duration
		key  string
		want string
	}{
		{0, "a", "a1 false"}, {0, "a", "a1 true"}, {0, "b", "b1 false"},
		{time.Minute - time.Microsecond, "a", "a1 true"},
		{time.Microsecond, "a", "a2 false"}, {0, "b", "b2 false"}, {time.Second, "a", "a2 true"},
		{time.Hour, "b", "b3 false"},
	} {
		c.clock.advance(step.wait)
		if got := c.ask(step.key); got != step.want {
			t.Errorf("at %s %s: got %s; want %s", c.clock.now().zoned(), step.key, got, step.want)
		}
	}
	c.clock = newVirtualClock(testStart) // a clock that went back
	if got := c.ask("b"); got != "b4 false" {
		t.Errorf("before its time: got %s; want b4 false", got)
	}
}

func TestAnswerCacheIsBounded(t *testing.T) {
	c := newCountedAnswer()
	for i := range 3 * maxCachedAnswers {
		c.ask(fmt.Sprint("q", i, "."))
		c.clock.advance(time.Microsecond)
		if n := len(c.cache.entries); n > maxCachedAnswers {
			t.Fatalf("got %d entries; want at most %d", n, maxCachedAnswers)
		}
	}
	oldest, gone := 2*maxCachedAnswers, 2*maxCachedAnswers-1
	if got, want := c.ask(fmt.Sprint("q", oldest, ".")), fmt.Sprint("q", oldest, ".1 true"); got != want {
		t.Errorf("the oldest kept: got %s; want %s", got, want)
	}
	if got, want := c.ask(fmt.Sprint("q", gone, ".")), fmt.Sprint("q", gone, ".2 false"); got != want {
		t.Errorf("the one before: got %s; want %s", got, want)
	}
}

// TestAnswerIsComputedOnce asks many times while the answer is computed.
func TestAnswerIsComputedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cache answerCache[string, int]
		clk, release, times := newVirtualClock(testStart), make(chan struct{}), 0
		ask := func() (int, bool, error) {
			return cache.get("q", clk, time.Minute, func() (int, error) {
				times++
				<-release
				return 42, nil
			})
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if v, hit, err := ask(); v != 42 || hit || err != nil {
					t.Errorf("got %d, %t, %v; want 42, no hit", v, hit, err)
				}
			})
		}
		synctest.Wait() // all of them wait
		if v, _, _ := cache.get("another", clk, time.Minute, func() (int, error) { return 7, nil }); v != 7 {
			t.Errorf("another question: got %d; want 7, without waiting", v)
		}
		close(release)
		all.Wait()
		if v, hit, _ := ask(); v != 42 || !hit || times != 1 {
			t.Errorf("then: got %d, %t after %d computations; want 42, a hit after 1", v, hit, times)
		}
	})
}

// TestAnswerCacheFailures checks that failed and panicking computations, which others
// wait for, are not cached.
func TestAnswerCacheFailures(t *testing.T) {
	broken := errors.New("broken")
	for name, failure := range map[string]func() (int, error){
		"error": func() (int, error) { return 0, broken }, "panic": func() (int, error) { panic("no") },
	} {
		synctest.Test(t, func(t *testing.T) {
			var cache answerCache[string, int]
			clk, release := newVirtualClock(testStart), make(chan struct{})
			go func() {
				defer func() { recover() }()
				cache.get("q", clk, time.Minute, func() (int, error) {
					<-release
					return failure()
				})
			}()
			synctest.Wait()
			done := make(chan error)
			go func() {
				_, _, err := cache.get("q", clk, time.Minute, failure)
				done <- err
			}()
			synctest.Wait()
			close(release)
			if err := <-done; err == nil {
				t.Errorf("%s: who waited got no error", name)
			}
			v, hit, err := cache.get("q", clk, time.Minute, func() (int, error) { return 1, nil })
			if v != 1 || hit || err != nil {
				t.Errorf("after the %s: got %d, %t, %v; want 1, newly computed", name, v, hit, err)
			}
		})
	}
}

// TestPriorityQueue pushes, changes, removes and pops at random, and compares the result with a
// sorted slice.
func TestPriorityQueue(t *testing.T) {
	type element struct{ value, place int }
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		q := priorityQueue[*element]{
			before: func(a, b *element) bool { return a.value < b.value },
			placed: func(e *element, place int) { e.place = place },
		}
		var all []*element
		for range 100 {
			switch n := r.IntN(4); {
			case n < 2 || len(all) == 0:
				e := &element{value: r.IntN(50)}
				q.push(e)
				all = append(all, e)
			case n == 2:
				e := all[r.IntN(len(all))]
				e.value = r.IntN(50)
				q.fix(e.place)
			default:
				i := r.IntN(len(all))
				if got := q.remove(all[i].place); got != all[i] {
					t.Fatalf("remove(%d): got %v; want %v", all[i].place, *got, *all[i])
				}
				all = slices.Delete(all, i, i+1)
			}
			for i, e := range q.items {
				if e.place != i {
					t.Fatalf("the element at place %d was told %d", i, e.place)
				}
			}
		}
		slices.SortFunc(all, func(a, b *element) int { return a.value - b.value })
		for _, want := range all {
			if got := q.pop(); got.value != want.value {
				t.Fatalf("pop: got %d; want %d", got.value, want.value)
			}
		}
	}
}

func TestRedactURL(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"builtin:echo", "builtin:echo"},
		{"http://example.com/steps", "http://example.com/steps"},
		{"http://me:hunter2@example.com/steps", "http://[REDACTED]@example.com/steps"},
		{"http://hunter2@example.com", "http://[REDACTED]@example.com"},
		{"http://me:hun/ter2@example.com", "http://[REDACTED]@example.com"},
		{"http://me:hun?ter2@example.com", "http://[REDACTED]@example.com"},
		{"http://me:hun@ter2@example.com", "http://[REDACTED]@example.com"},
		{"http://me:%zz@example.com", "http://[REDACTED]@example.com"},
		{"me:hunter2@example.com:80", "[REDACTED]@example.com:80"},
		{"https://example.com/?token=hunter2", "https://example.com/?[REDACTED]"},
		{"https://example.com/#hunter2", "https://example.com/#[REDACTED]"},
		{"https://me:hunter2@example.com/?a=b@c", "https://[REDACTED]@example.com/?[REDACTED]"},
		{"https://example.com/x?mail=hunter2@c", "https://example.com/x?[REDACTED]"},
		{"https://example.com/x?a=hunter2 hunter2", "https://example.com/x?[REDACTED]"},
		{"http://me:12?hunter2@example.com", "http://[REDACTED]@example.com"},
		{"http://me:12/hunter2@example.com", "http://[REDACTED]@example.com"},
		{"https://cdn.example.com/swagger-ui-dist@5", "https://cdn.example.com/swagger-ui-dist@5"},
		{"http://[::1]:80/a@b", "http://[::1]:80/a@b"},
		{"http://me:hunter2@[::1]:80/a", "http://[REDACTED]@[::1]:80/a"},
		{"http://example.com/a?", "http://example.com/a?"},
	} {
		if got := redactURL(tt.in); got != tt.want {
			t.Errorf("redactURL(%q): got %q; want %q", tt.in, got, tt.want)
		}
	}
}

// TestRedact finds URLs in texts and in JSON, which stays valid.
func TestRedact(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`Post "http://me:s3cret@h:1/p?token=s3cret&x=1": dial tcp: refused`,
			`Post "http://[REDACTED]@h:1/p?[REDACTED]": dial tcp: refused`},
		{"see https://h/x?s3cret, or\nhttp://s3cret@h", "see https://h/x?[REDACTED] or\nhttp://[REDACTED]@h"},
		{`{"a":"http://h/?t=s3cret","b":"c"}`, `{"a":"http://h/?[REDACTED]","b":"c"}`},
		{`{"a":"http://h/?t=s3cret s3cret\"s3cret"}`, `{"a":"http://h/?[REDACTED]"}`},
		{`{"a":"http:\/\/me:s3cret@h\/p?t=s3cret\u0026s3cret"}`, `{"a":"http:\/\/[REDACTED]@h\/p?[REDACTED]"}`},
		{`{"a":"said \"http://h/?t=s3cret s3cret\" twice"}`, `{"a":"said \"http://h/?[REDACTED]\" twice"}`},
		{`{"a":"Post \"http://h/?t=s3cret\": dial tcp"}`, `{"a":"Post \"http://h/?[REDACTED]\": dial tcp"}`},
		{`{"a":"to http://h/?t=s3cret\\"}`, `{"a":"to http://h/?[REDACTED]"}`},
		{`{"stderr":"at http://h/?t=s3cret\nnext \"line\""}`, `{"stderr":"at http://h/?[REDACTED]\nnext \"line\""}`},
		{`{"a":"to http://me:s3\\cret@h"}`, `{"a":"to http://[REDACTED]@h"}`},
		{"amqp://u:s3cret@h/v jdbc:postgresql://u:s3cret@h/d", "amqp://[REDACTED]@h/v jdbc:postgresql://[REDACTED]@h/d"},
		{"http://me:s3/cret@h/", "http://[REDACTED]@h/"},
		{`{"$ref":"https://h/s.json#/$defs/a","$schema":"http://json-schema.org/draft-07/schema#"}`,
			`{"$ref":"https://h/s.json#/$defs/a","$schema":"http://json-schema.org/draft-07/schema#"}`},
		{"http://h/a@b", "http://h/a@b"},
		{"http://h and a@b", "http://h and a@b"},
		{"me@example.org, x:y@z, Foo::Bar#baz?", "me@example.org, x:y@z, Foo::Bar#baz?"},
		{"", ""},
	} {
		got := string(redact([]byte(tt.in)))
		if got != tt.want {
			t.Errorf("%s\ngot  %s\nwant %s", tt.in, got, tt.want)
		}
		if again := string(redact([]byte(got))); again != got {
			t.Errorf("%s\nredacted again: %s", got, again)
		}
	}
}

// FuzzRedact checks that JSON stays valid, and that no credentials of a URL are left.
func FuzzRedact(f *testing.F) {
	f.Add("http", "me:s", "h/p", "t=1")
	f.Add("http", `\"`, `\`, `"`)
	f.Fuzz(func(t *testing.T, scheme, user, path, query string) {
		text := scheme + "://" + user + "@" + path + "?" + query
		for _, s := range []string{text, "say \"" + text + "\" twice", text + "\n" + text} {
			quoted := must(json.Marshal(s))(t)
			if got := redact(quoted); !json.Valid(got) {
				t.Errorf("%s\nbecomes %s", quoted, got)
			}
			twice := must(json.Marshal(string(quoted)))(t)
			if got := redact(twice); !json.Valid(got) {
				t.Errorf("%s\nbecomes %s", twice, got)
			}
		}
		if u, err := url.Parse(text); err == nil && u.User != nil {
			_, shown, _ := strings.Cut(redactName(text), "://")
			secret := u.RawQuery != "" || u.Fragment != "" && !strings.ContainsAny(u.Fragment[:1], `/\`)
			if !strings.HasPrefix(shown, redactedText+"@") || secret && !strings.HasSuffix(shown, redactedText) {
				t.Errorf("%s\nbecomes %s", text, shown)
			}
		}
	})
}

// irregularFiles makes files that a name may lead to instead of a regular one.
var irregularFiles = map[string]func(name, elsewhere string) error{
	"a link":          func(name, elsewhere string) error { return os.Symlink(elsewhere, name) },
	"a dangling link": func(name, elsewhere string) error { return os.Symlink(elsewhere+"x", name) },
	"a directory":     func(name, _ string) error { return os.Mkdir(name, 0o700) },
	"a pipe":          func(name, _ string) error { return syscall.Mkfifo(name, 0o600) },
	"a device":        func(name, _ string) error { return syscall.Mknod(name, syscall.S_IFCHR|0o600, 1<<8|3) }, // as /dev/null
}

// eachIrregularFile calls do with each kind of irregular file at a name. do must refuse it with an error that
// has the name, and leave it and what a link leads to as they are.
func eachIrregularFile(t *testing.T, name string, do func(t *testing.T, path string) error) {
	t.Helper()
	for kind, create := range irregularFiles {
		t.Run(name+" is "+kind, func(t *testing.T) {
			path, elsewhere := filepath.Join(t.TempDir(), name), filepath.Join(t.TempDir(), "elsewhere")
			writeFile(t, elsewhere, []byte("precious"))
			if err := create(path, elsewhere); err != nil {
				t.Skip(err)
			}
			before := must(os.Lstat(path))(t)
			if err := do(t, path); err == nil || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("got %v; want a refusal that names %s", err, path)
			}
			if now := must(os.Lstat(path))(t); !os.SameFile(before, now) || now.Mode() != before.Mode() {
				t.Errorf("it became %v; want %v", now.Mode(), before.Mode())
			}
			if got := string(readFile(t, elsewhere)); got != "precious" {
				t.Errorf("what the link leads to became %q", got)
			}
			_, err := os.Lstat(elsewhere + "x")
			if err == nil {
				t.Error("what the dangling link leads to was created")
			}
		})
	}
}

func TestOnlyRegularFiles(t *testing.T) {
	eachIrregularFile(t, "opened", func(_ *testing.T, path string) error {
		_, err := openRegular(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW)
		return err
	})
	eachIrregularFile(t, "removed", func(_ *testing.T, path string) error { return removeRegular(path) })
	eachIrregularFile(t, "replaced", func(t *testing.T, path string) error {
		from := filepath.Join(t.TempDir(), "new")
		writeFile(t, from, nil)
		return renameRegular(from, path)
	})
}
