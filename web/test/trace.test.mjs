import assert from "node:assert/strict";
import test from "node:test";
import { causeOf, headline, readTrace, withoutType } from "../console/trace.js";

// Each trace, and what it is read as: the headline, and for each part its words, or its own frames and how many of
// libraries.
const traces = {
  Python: [`Traceback (most recent call last):
  File "/srv/app/pay.py", line 8, in charge
    return gateway.post(order)
           ^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3/site-packages/requests/api.py", line 3, in post
    raise ConnectTimeout
requests.ConnectTimeout: no route

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/app/pay.py", line 11, in <module>
    raise CardError
pay.CardError: insufficient_funds
Hint: top up
`, "pay.CardError: insufficient_funds", [`  File "/srv/app/pay.py", line 8, in charge
    return gateway.post(order)
           ^^^^^^^^^^^^^^^^^^^`], 1,
  "requests.ConnectTimeout: no route\nDuring handling of the above exception, another exception occurred:",
  [`  File "/srv/app/pay.py", line 11, in <module>\n    raise CardError`], 0, "Hint: top up"],
  JavaScript: [`TypeError: reading 'id'
    at next (/srv/app/node_modules/express/index.js:9:5)
    at reserve (/srv/app/stock.js:20:31)
    at process.tick (node:internal/process:1:2)`, "TypeError: reading 'id'",
      ["    at reserve (/srv/app/stock.js:20:31)"], 2],
  Java: [`java.lang.IllegalStateException: closed
\tat com.shop.Pay.run(Pay.java:10)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.IOException: cut
\tat com.shop.Net.get(Net.java:3)
\t... 2 more`, "java.lang.IllegalStateException: closed", ["\tat com.shop.Pay.run(Pay.java:10)"], 1,
  "Caused by: java.io.IOException: cut",
  ["\tat com.shop.Net.get(Net.java:3)"], 1],
  Go: [`panic: oops

goroutine 1 [running]:
runtime.gopanic({0x1})
\t/usr/local/go/src/runtime/panic.go:770 +0x132
main.charge(0x1)
\t/srv/app/charge.go:12 +0x1d`, "panic: oops", "goroutine 1 [running]:",
  ["main.charge(0x1)\n\t/srv/app/charge.go:12 +0x1d"], 1],
  Rust: [`thread 'main' panicked at src/main.rs:2:5:
stack backtrace:
   0: rust_begin_unwind
             at /rustc/abc/library/std/src/panicking.rs:665:5
   1: app::main
             at ./src/main.rs:2:5`, "thread 'main' panicked at src/main.rs:2:5:", "stack backtrace:",
               ["   1: app::main\n             at ./src/main.rs:2:5"], 1],
  Ruby: [`/srv/app/pay.rb:3:in 'pay': closed (RuntimeError)
\tfrom /srv/app/run.rb:1:in '<main>'
\tfrom /usr/lib/ruby/gems/3.1/rake.rb:2:in 'run'`, "/srv/app/pay.rb:3:in 'pay': closed (RuntimeError)",
  ["\tfrom /srv/app/run.rb:1:in '<main>'"], 1],
  ".NET": [`System.InvalidOperationException: closed
   at Shop.Pay.Charge(Order order) in /srv/app/Pay.cs:line 12
   at System.Threading.Tasks.Task.Execute()
   at Microsoft.AspNetCore.Routing.EndpointMiddleware.Invoke(HttpContext context)
--- End of inner exception stack trace ---`, "System.InvalidOperationException: closed",
  ["   at Shop.Pay.Charge(Order order) in /srv/app/Pay.cs:line 12"], 2, "--- End of inner exception stack trace ---"],
  PHP: [`PHP Fatal error:  Uncaught RuntimeException: closed in /srv/app/pay.php:3
Stack trace:
#0 /srv/app/vendor/guzzle/client.php(9): Guzzle->send()
#1 /srv/app/run.php(8): pay(Object(Order))
#2 {main}
  thrown in /srv/app/pay.php on line 3`, "PHP Fatal error:  Uncaught RuntimeException: closed in /srv/app/pay.php:3",
  "Stack trace:", ["#1 /srv/app/run.php(8): pay(Object(Order))",
    "#2 {main}\n  thrown in /srv/app/pay.php on line 3"], 1],
  Elixir: [`** (RuntimeError) closed
    (shop 1.0.0) lib/shop/pay.ex:12: Shop.Pay.charge/1
    (elixir 1.16.0) lib/task/supervised.ex:101: Task.Supervised.invoke_mfa/2`, "** (RuntimeError) closed",
  ["    (shop 1.0.0) lib/shop/pay.ex:12: Shop.Pay.charge/1"], 1],
  "standard error": ["curl: (6) no such host\n\n  tried twice\nexit 6\n", "curl: (6) no such host",
    "  tried twice\nexit 6"],
  "one line": ["gateway timed out", "gateway timed out"],
};

for (const [name, [text, first, ...parts]] of Object.entries(traces)) {
  test(`${name}: the headline, the frames of the program, and those of libraries`, () => {
    const got = readTrace(text), flat = got.parts.flatMap((p) => p.words ?? [p.own, p.library.length]);
    assert.equal(got.headline, first);
    assert.deepEqual(flat, parts);
    assert.equal(got.libraries, parts.filter((p) => typeof p === "number").reduce((a, b) => a + b, 0));
    assert.equal(got.frames - got.libraries, parts.filter(Array.isArray).flat().length);
  });
}

test("a text without a line has an empty headline", () => assert.equal(headline(" \n"), ""));

test("the last cause of a chain is told, unless the headline has it", () => {
  for (const [text, want] of [
    ["shop.PayError: no\n\tat shop.Pay.run(Pay.java:3)\nCaused by: a.B: one\n\tat a.B.c(B.java:1)\n" +
      "Caused by: d.E: two\n\t... 3 more", "d.E: two"],
    ["Error: no\n    at run (pay.js:3:1) {\n  [cause]: Error: closed\n      at net (node:net:1:1)", "Error: closed"],
    ["A: no\n ---> B: disk full\n   at X()\n   --- End of inner exception stack trace ---", "B: disk full"],
    ["A: no ---> B: disk full\n   at X()", ""],
    ["Traceback (most recent call last):\n  File \"a.py\", line 1, in a\nKeyError: 'id'\n\nDuring handling of " +
      "the above exception, another exception occurred:\n\nTraceback (most recent call last):\n" +
      "  File \"a.py\", line 3, in b\nPayError: no", "KeyError: 'id'"],
    ["Error: no\n    at run (pay.js:3:1)", ""],
  ]) assert.equal(causeOf(text), want);
});

test("the type of an error is taken off only where it stands at the beginning, with its package", () => {
  for (const [text, type, want] of [
    ["CardError: no funds", "CardError", "no funds"],
    ["stripe.error.CardError: Your card: declined", "CardError", "Your card: declined"],
    ["java.lang.IllegalStateException: could not reserve", "java.lang.IllegalStateException", "could not reserve"],
    ["charge: CardError: no funds", "CardError", "charge: CardError: no funds"],
    ["no card of x.CardError: no funds", "CardError", "no card of x.CardError: no funds"],
    ["CardError", "CardError", "CardError"],
  ]) assert.equal(withoutType(text, type), want);
});
