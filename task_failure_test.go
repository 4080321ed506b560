package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestGroupMessage shows what is left of messages, and so which of them are of one group.
func TestGroupMessage(t *testing.T) {
	for _, test := range []struct{ message, want string }{
		{"", ""},
		{"insufficient_funds", "insufficient_funds"},
		{"CardError: insufficient_funds", "CardError: insufficient_funds"},
		{"the service does not answer", "the service does not answer"},
		// Numbers.
		{"attempt 3 of 12 took 1.5s, not 900 ms", "attempt * of * took *, not * ms"},
		{"the balance is -5.20, below 1,000.00", "the balance is *, below *"},
		{"disk is 97% full (+3%)", "disk is *% full (*%)"},
		{"missing: [1, 2, 3]", "missing: [*]"},
		{"missing: [4]", "missing: [*]"},
		{"error code 0x1F4", "error code *"},
		{"HTTP 503", "HTTP *"},
		// Ids.
		{"no order 019b76da-a800-7000-8000-04acaa6eed04", "no order *"},
		{"no order ord_9aZ3/ch_3LkX", "no order *"},
		{"commit deadbeef is gone, and Cafe-Bead too", "commit * is gone, and * too"},
		{"the facade has no decade", "the facade has no decade"},
		{"/orders/123/items: not found", "/orders/*/items: not found"},
		// Times.
		{"expired at 2026-01-31T12:00:00.123Z", "expired at *"},
		{"expired at 2026-01-31 12:00:00+02:00 already", "expired at * already"},
		{"expired Mon, 02 Jan 2006 15:04:05 GMT", "expired * GMT"},
		{"expired at 3:04 PM", "expired at *"},
		{"Mayday in March", "Mayday in March"},
		// Addresses.
		{"dial tcp 10.0.0.7:5432: connect: connection refused", "dial tcp *: connect: connection refused"},
		{"dial tcp [fe80::abcd:1]:443: connection refused", "dial tcp [*]:*: connection refused"},
		{"dial tcp [::1]:443: connection refused", "dial tcp [*]:*: connection refused"},
		{"no route to 1::abcd: gave up", "no route to *: gave up"},
		{"lookup db.internal: no such host", "lookup db.internal: no such host"},
		{"db.internal:5432 refused", "db.internal:* refused"},
		{"400:bad request", "*:bad request"},
		{"bounced: ada.l@example.com and bob@example.org", "bounced: * and *"},
		{`Get "https://pay.example/charge?token=abc": timeout`, "Get *: timeout"},
		{"https://u:p@pay.example/charge?token=s3cret: timeout (see http://docs.example)", "* timeout (see *)"},
		// Quoted values.
		{`no field "amount" in 'order', nor in ` + "`cart`", "no field * in *, nor in *"},
		{`unknown "a \"b\" c" here`, "unknown * here"},
		{"can't find customer 'O'Neil' of ‘x’ or “y z” or «w»", "can't find customer * of * or * or *"},
		{`an open " quote, and ''`, `an open " quote, and *`},
		{`{"code":"declined","id":7}`, "{*}"},
		// Other texts.
		{"  spaces\tand  tabs\r\n  at f (x.js:3)", "spaces and tabs"},
		{"Traceback (most recent call last):\n  File \"x.py\", line 3\nValueError: bad id 7\n", "ValueError: bad id *"},
		{"заказ 7 не найден", "заказ * не найден"},
		{"5", "*"},
		{"invalid \xff bytes", "invalid \ufffd bytes"},
	} {
		if got := groupMessage(test.message); got != test.want {
			t.Errorf("groupMessage(%q) = %q; want %q", test.message, got, test.want)
		}
	}
}

// TestGroupMessageIsBounded cuts messages where a character begins.
func TestGroupMessageIsBounded(t *testing.T) {
	for _, part := range []string{"x ", "é ", "wörd ", "漢"} {
		got := groupMessage(strings.Repeat(part, 10_000))
		if len(got) > maxGroupMessage+len("…") || !utf8.ValidString(got) {
			t.Errorf("%q repeated becomes %q, of %d bytes", part, got, len(got))
		}
	}
	if got := groupMessage(strings.Repeat("7 ", 10_000)); got != "*" {
		t.Errorf("numbers become %q", got)
	}
}

// TestGroupMessageOfRandomValues puts failures that differ by their values alone in one group.
func TestGroupMessageOfRandomValues(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	hex := func(n int) string { return fmt.Sprintf("%0*x", n, r.Uint64()>>(64-4*n)) }
	for _, form := range []string{
		"no order %s", "no order '%s'", "no order %s.", "order=%s: not found", "dial tcp %s: refused", "[%s] refused", "a %s (of 7)",
	} {
		for range 2000 {
			for _, value := range []string{
				hex(8), hex(16), "0x" + hex(8), fmt.Sprint(r.IntN(1e6)), fmt.Sprint(-r.Float64()), uuid{}.plus(r.IntN(1e9)).String(),
				hex(8) + "-" + hex(4) + "-" + hex(4) + "-" + hex(4) + "-" + hex(12), instant(r.Int64N(1e16)).zoned(),
				fmt.Sprintf("%d.%d.%d.%d", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256)),
				fmt.Sprintf("1%s:%s:%s::%s", hex(3), hex(4), hex(4), hex(4)), "u" + fmt.Sprint(r.IntN(99)) + "@example.com",
				"https://" + hex(5) + ".example/" + hex(3),
			} {
				want := groupMessage(fmt.Sprintf(form, "1"))
				if got := groupMessage(fmt.Sprintf(form, value)); got != want {
					t.Fatalf("%q becomes %q; want %q", fmt.Sprintf(form, value), got, want)
				}
			}
		}
	}
}

// FuzzGroupMessage checks that a message is bounded, one line, and that none of a URL's secrets is left.
func FuzzGroupMessage(f *testing.F) {
	f.Add("Get \"https://u:secret@host/p?t=secret\": no\n at 5", "")
	f.Add(`'a 'b "c`, "\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		got := groupMessage(a + "http://user:hushhush@host/" + b)
		if len(got) > maxGroupMessage+len("…") || strings.ContainsAny(got, "\r\n\t") || !utf8.ValidString(got) {
			t.Errorf("%q becomes %q", a+b, got)
		}
		if strings.Contains(got, "hushhush") && !strings.Contains(a+b, "hush") {
			t.Errorf("%q becomes %q", a+b, got)
		}
	})
}

// TestFailureGroupNames pins a name: it stays the same for the life of a store, so it must not change from one version
// to the next without need.
func TestFailureGroupNames(t *testing.T) {
	c, key := failureCause{"shop", "order", "charge", "CardError", "insufficient_funds"}, testFailureKey
	if got := c.group(&key).String(); got != "f54f475355e7ad06" {
		t.Errorf("the group is called %s", got)
	}
	seen := map[failureGroup]bool{c.group(&key): true}
	for i := range key {
		another := key
		another[i] ^= 1
		if g := c.group(&another); seen[g] {
			t.Errorf("with another byte %d in the key the group is called %s as well", i, g)
		} else {
			seen[g] = true
		}
	}
	for _, other := range []failureCause{
		{"shops", "order", "charge", "CardError", "insufficient_funds"},
		{"sho", "porder", "charge", "CardError", "insufficient_funds"},
		{"shop", "order", "charg", "eCardError", "insufficient_funds"},
		{"shop", "order", "charge", "Card", "insufficient_funds"},
		{"shop", "order", "charge", "CardError", "expired"},
	} {
		if seen[other.group(&key)] {
			t.Errorf("%+v has the name of another group", other)
		}
		seen[other.group(&key)] = true
	}
	for _, name := range []string{c.group(&key).String(), "00000000000000ff"} {
		if g, ok := parseFailureGroup(name); !ok || g.String() != name {
			t.Errorf("%s is read as %s, %t", name, g, ok)
		}
	}
	for _, name := range []string{"", "f", "0000000000000000", "00000000000000fg", "00000000000000fff", "+0000000000000ff", "0000_0000_0000_f"} {
		if g, ok := parseFailureGroup(name); ok {
			t.Errorf("%q is read as %s", name, g)
		}
	}
}

func BenchmarkGroupMessage(b *testing.B) {
	c := failureCause{"shop", "order", "charge", "CardError", ""}
	key := newFailureKey()
	for b.Loop() {
		c.message = groupMessage(`dial tcp 10.0.0.7:5432: order 019b76da-a800-7000-8000-04acaa6eed04 of "ada": connection refused`)
		c.group(&key)
	}
}
