package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"stepwell/e2e/wire"
	"strings"
	"testing"
	"time"
)

// noError ends the test if err is not nil.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must2 is must for calls that return two values.
func must2[T, U any](v T, u U, err error) func(testing.TB) (T, U) {
	return func(t testing.TB) (T, U) {
		t.Helper()
		noError(t, err)
		return v, u
	}
}

// mustJSON returns a value as JSON.
func mustJSON(t testing.TB, v any) string {
	t.Helper()
	return string(must(json.Marshal(v))(t))
}

// must returns a function that returns v, or ends the test if err is not nil: the value of
// a call f() that may fail is must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return wire.Must(v, err)
}

// irregularFiles makes files that a name may lead to instead of a regular one.
var irregularFiles = map[string]func(name, elsewhere string) error{
	"a link":          func(name, elsewhere string) error { return os.Symlink(elsewhere, name) },
	"a dangling link": func(name, elsewhere string) error { return os.Symlink(elsewhere+"x", name) },
	"a directory":     func(name, _ string) error { return os.Mkdir(name, 0o700) },
	"a pipe":          func(name, _ string) error { return makePipe(name) },
	"a device":        func(name, _ string) error { return makeDevice(name) },
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
				wire.Skip(t, "%v", err)
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
		_, err := openRegular(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|noFollow)
		return err
	})
	eachIrregularFile(t, "removed", func(_ *testing.T, path string) error { return removeRegular(path) })
	eachIrregularFile(t, "replaced", func(t *testing.T, path string) error {
		from := filepath.Join(t.TempDir(), "new")
		writeFile(t, from, nil)
		return renameRegular(from, path)
	})
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

// TestRedactDescription keeps where a link leads to, and redacts whatever could be a token.
func TestRedactDescription(t *testing.T) {
	for text, want := range map[string]string{
		"see https://wiki.example/runbook#card-declined.":      "see https://wiki.example/runbook#card-declined.",
		"(https://wiki.example:8443/a#L10)":                    "(https://wiki.example:8443/a#L10)",
		"https://wiki.example/#access_token=abc":               "https://wiki.example/#[REDACTED]",
		"https://wiki.example/?key=abc#top":                    "https://wiki.example/?[REDACTED]",
		"https://ann:secret@wiki.example/#top":                 "https://[REDACTED]@wiki.example/#[REDACTED]",
		"https://wiki.example/#" + strings.Repeat("token", 20): "https://wiki.example/#[REDACTED]",
	} {
		if got := *redactDescription(&text); got != want {
			t.Errorf("%s: got %s; want %s", text, got, want)
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

func TestMisleads(t *testing.T) {
	for _, r := range "\x00\t\n\r\x1b\x7f\u0080\u0085\u009b\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069" {
		if !misleads(r) {
			t.Errorf("%U misleads a terminal, and is let through", r)
		}
		if got := nameFault("a" + string(r) + "b"); !strings.HasPrefix(got, fmt.Sprintf("has the character %U; ", r)) {
			t.Errorf("a name with %U: got %q; want it refused because of the character", r, got)
		}
	}
	for _, r := range "a $`'\"\\é 漢🙂\u00a0\u200d\ufffd" {
		if misleads(r) {
			t.Errorf("%U (%c) is refused", r, r)
		}
		if got := nameFault(string(r)); got != "" {
			t.Errorf("a name with %U (%c): got %q", r, r, got)
		}
	}
}

// TestHeadline finds what happened in what programs say about an error.
func TestWithoutType(t *testing.T) {
	for _, test := range []struct{ headline, errorType, want string }{
		{"CardError: no funds", "CardError", "no funds"},
		{"stripe.error.CardError: no funds", "CardError", "no funds"},
		{"java.lang.IllegalStateException: could not reserve", "java.lang.IllegalStateException", "could not reserve"},
		{"charge: CardError: no funds", "CardError", "charge: CardError: no funds"},
		{"a.CardErrors: no funds", "CardError", "a.CardErrors: no funds"},
		{"no card. CardError: no funds", "CardError", "no card. CardError: no funds"},
		{"no card of x.CardError: no funds", "CardError", "no card of x.CardError: no funds"},
		{"CardError", "CardError", "CardError"},
		{": no funds", "", ": no funds"},
	} {
		if got := withoutType(test.headline, test.errorType); got != test.want {
			t.Errorf("%q without %q: got %q; want %q", test.headline, test.errorType, got, test.want)
		}
	}
}

func TestHeadline(t *testing.T) {
	const frames = "\n  File \"/app/pay.py\", line 12, in charge\n    raise CardError(\"no funds\")\n"
	for _, test := range []struct{ text, want string }{
		{"", ""},
		{" \n\t\n", ""},
		{"insufficient_funds", "insufficient_funds"},
		{"\n  refused \r\nby the bank\n", "refused"},
		{"Error: boom\n    at charge (pay.js:3:9)\n    at main (pay.js:9:1)", "Error: boom"},
		{"panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n", "panic: boom"},
		{"java.io.IOException: down\n\tat a.B.c(B.java:1)\nCaused by: java.net.X: refused\n\t... 3 more", "java.io.IOException: down"},
		{tracebackHead + frames + "CardError: no funds", "CardError: no funds"},
		{"charge failed\r\n" + tracebackHead + strings.ReplaceAll(frames, "\n", "\r\n") + "CardError: no funds\r\n", "CardError: no funds"},
		{tracebackHead + frames + "CardError: no funds\nask the customer\n", "CardError: no funds"},
		{tracebackHead + frames + "KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n" +
			tracebackHead + frames + "CardError: no funds\n", "CardError: no funds"},
		{tracebackHead + frames, tracebackHead}, // cut off
	} {
		if got := headline(test.text); got != test.want {
			t.Errorf("headline(%q) = %q; want %q", test.text, got, test.want)
		}
	}
}

// TestDerivedIDs checks that derived ids increase, have version 7, and depend on seed,
// time, order, parent and name alone.
func TestDerivedIDs(t *testing.T) {
	c := newVirtualClock(testStart)
	s, again := newDerivedIDs(c, "s1"), newDerivedIDs(c, "s1")
	parent, _ := parseUUID("0198c0de-0000-7000-8000-000000000000")
	last := uuid{}
	for i := range 10_000 {
		if i%1000 == 999 {
			c.advance(time.Millisecond)
		}
		n := 1 + i%500
		first := s.block(n, parent, "name")
		again.random() // for a request
		again.secretOf(parent, 1)
		again.floatOf(parent, i)
		if got := again.block(1+i%3, parent, "name"); got != first {
			t.Fatalf("block %d begins with %s; want %s, however many were drawn", i, got, first)
		}
		for _, id := range []uuid{first, first.plus(n - 1)} {
			if bytes.Compare(id[:], last[:]) < 0 || id[6]>>4 != 7 || id[8]>>6 != 2 || id.blockNumber() != uint64(i+1) {
				t.Fatalf("%s came after %s in block %d", id, last, i+1)
			}
			last = id
		}
	}
}

// TestDerivedIDsGoOn checks that derived ids follow ids of any other source.
func TestDerivedIDsGoOn(t *testing.T) {
	for _, before := range []string{
		"019b76da-a800-7000-8000-3f0000000000", "019b76da-a800-7fff-bfff-ffffffffffff", "01ff0000-0000-7fff-bfff-ffffffffffff",
	} {
		s := newDerivedIDs(newVirtualClock(testStart), "s1")
		last, _ := parseUUID(before)
		s.observe(last)
		for range 3 {
			id := s.block(10, uuid{}, "n")
			if bytes.Compare(id[:], last[:]) <= 0 || id[6]>>4 != 7 || id[8]>>6 != 2 {
				t.Errorf("after %s came %s", last, id)
			}
			last = id.plus(9)
		}
	}
}

func TestIDsIncrease(t *testing.T) {
	c := newVirtualClock(testStart)
	s := newIDSource(c, new([32]byte))
	last := uuid{}
	for i := range 10_000 {
		if i%100 == 99 {
			c.advance(time.Millisecond)
		}
		n := 1 + i%5
		first := s.reserve(n)
		for j := range n {
			id := first.plus(j)
			if bytes.Compare(id[:], last[:]) <= 0 {
				t.Fatalf("%s came after %s", id, last)
			}
			if id[6]>>4 != 7 || id[8]>>6 != 2 {
				t.Fatalf("%s is no version 7 id", id)
			}
			last = id
		}
	}
	late := newIDSource(newVirtualClock(testStart-1_000_000), new([32]byte))
	late.observe(last)
	if id := late.reserve(1); bytes.Compare(id[:], last[:]) <= 0 {
		t.Errorf("with the clock set back %s came after %s", id, last)
	}
}

func TestIDCounter(t *testing.T) {
	all, _ := parseUUID("0198c0de-0000-7fff-bfff-ffffffffffff")
	for _, tc := range []struct {
		from string
		n    int
		want string
	}{
		{"0198c0de-0000-7000-8000-000000000000", 1, "0198c0de-0000-7000-8000-000000000001"},
		{"0198c0de-0000-7000-bfff-ffffffffffff", 1, "0198c0de-0000-7001-8000-000000000000"},
		{"0198c0de-0000-7abc-bfff-fffffffffff0", 20, "0198c0de-0000-7abd-8000-000000000004"},
	} {
		from, _ := parseUUID(tc.from)
		got := from.plus(tc.n)
		if got.String() != tc.want {
			t.Errorf("%s plus %d: got %s; want %s", tc.from, tc.n, got, tc.want)
		}
		if n, ok := got.minus(from); !ok || n != tc.n {
			t.Errorf("%s minus %s: got %d, %t; want %d", got, from, n, ok, tc.n)
		}
		if _, ok := from.minus(got); ok {
			t.Errorf("%s minus %s was given a distance", from, got)
		}
		if _, ok := all.minus(from); ok {
			t.Errorf("%s minus %s was given a distance", all, from)
		}
	}
}

func TestParseUUID(t *testing.T) {
	for _, tc := range []struct {
		text string
		ok   bool
	}{
		{"0198c0de-0000-7000-8000-00000000000a", true},
		{"0198C0DE-0000-7000-8000-00000000000A", true},
		{"{0198c0de-0000-7000-8000-00000000000a}", false},
		{"0198c0de00007000800000000000000a", true},
		{"0198C0DE00007000800000000000000A", true},
		{"0198c0de-000070008000-00000000000a", false},
		{"0198c0de00007000800000000000000g", false},
		{"0198c0de0000-7000-8000-00000000a", false},
		{"0198c0de000070008000000000000000000a", false},
		{"{0198c0de0000700080000000000000a}", false},
		{"0198c0de-0000-7000-8000-00000000000g", false},
		{"0198c0de-0000-7000-8000-0000000000-a", false},
		{"", false},
	} {
		id, ok := parseUUID(tc.text)
		if ok != tc.ok {
			t.Errorf("%q: got %t; want %t", tc.text, ok, tc.ok)
		}
		if ok && id.String() != "0198c0de-0000-7000-8000-00000000000a" {
			t.Errorf("%q became %s", tc.text, id)
		}
	}
}
