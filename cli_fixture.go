package main

// The command fixture: the control API of fixture mode.

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
)

func fixtureCommands() command {
	return command{name: "fixture", help: "control a service in fixture mode: its clock, stubs and state", commands: []command{
		{
			name: "clock", effect: changes, operands: "[ACTION] [VALUE]", help: "show or move the virtual clock",
			more:     "ACTION is freeze, advance DURATION, next (to the next timer), set TIME, auto (jump when idle) or resume (real time).",
			examples: []string{"fixture clock", "fixture clock advance 24h"}, define: controlClock,
		},
		{
			name: "reset", effect: changes, help: "drop all tasks, stubs and requests, and start the clock over",
			examples: []string{"fixture reset", "fixture reset --url http://127.0.0.1:9000"},
			define:   control("POST", "/reset", noBody),
		},
		{name: "stub", help: "script the outcomes of steps", commands: []command{
			{
				name: "list", effect: reads, help: "list the stubs in the order in which they are tried",
				examples: []string{"fixture stub list", "fixture stub list -o json"},
				define: lists(listing{path: "/_stepwell/stubs", member: "stubs", name: "id", none: "no stub", columns: []column{
					of("STUB", "id"), of("MATCH", "match"), of("OUTCOMES", "outcomes"), of("THEN", "then"), of("USES", "uses"),
				}}),
			},
			{
				name: "add", effect: adds, operands: "JSON", help: "add a stub, from JSON, @FILE, or - for standard input",
				examples: []string{
					`fixture stub add '{"match":{"step":"charge"},"outcomes":[{"result":{"paid":true}}]}'`,
					"fixture stub add @declined.json",
				},
				define: control("POST", "/stubs", jsonOperand),
			},
			{
				name: "remove", effect: changes, operands: "[ID]", help: "remove a stub, or all",
				examples: []string{"fixture stub remove stub-1", "fixture stub remove"},
				define:   control("DELETE", "/stubs", noBody),
			},
		}},
		{
			name: "requests", effect: reads, help: "list the latest requests, handler calls, events and deliveries",
			examples: []string{"fixture requests --kind handler", "fixture requests --step charge -o json"},
			define: lists(listing{path: "/_stepwell/requests", member: "entries", name: "id", none: "no entry", columns: []column{
				of("ID", "id"), of("KIND", "kind"), ageOf("AGE", "at"), of("AT", "at").whenWide(),
				{head: "WHAT", show: func(_ *table, d document) string {
					switch d.text("kind") {
					case handlerEntry:
						return d.text("namespace") + "/" + d.text("name") + " " + d.text("step") + " attempt " + d.text("attempt")
					case eventEntryName:
						return d.text("event.type") + " of " + d.text("event.step_name")
					case deliveryEntry:
						return d.text("event.type") + " of " + d.text("event.step_name") + " to " + d.text("subscriber") + " attempt " + d.text("attempt")
					}
					return d.text("method") + " " + d.text("path") + " " + d.text("status")
				}},
			}}, [2]string{"kind", "`KIND`: list only this kind: request, handler, event or delivery"}, [2]string{"step", "`STEP`: list only handler calls for this step"},
				[2]string{"path", "`PATH`: list only requests for this path"}, [2]string{"limit", "`N`: list at most this many, the latest"}),
		},
		{
			name: "verify", effect: reads, operands: "JSON", help: "check how many requests, handler calls, events or deliveries match a condition",
			more: "JSON has the condition and the count, which is at least one by default. The exit code is 1 if the count differs.",
			examples: []string{
				`fixture verify '{"match":{"step":"charge"},"count":{"exactly":1}}'`, "fixture verify @charged-once.json",
			},
			define: control("POST", "/verify", jsonOperand),
		},
		{name: "state", help: "save and restore the whole state", commands: []command{
			{
				name: "get", help: "print the state as lines of JSON",
				examples: []string{"fixture state get > state.jsonl", "fixture state get | jq -c 'select(.task) | [.task, .state]'"},
				define:   control("GET", "/state", noBody),
			},
			{
				name: "put", operands: "FILE", help: "replace the state; - is standard input",
				examples: []string{"fixture state put state.jsonl", "fixture state put -"},
				define: control("PUT", "/state", func(o *options, operands []string) (any, error) {
					if operands[0] == "-" {
						lines, err := io.ReadAll(o.p.stdin)
						return stateLines(lines), err
					}
					lines, err := os.ReadFile(operands[0])
					if err != nil {
						return nil, fmt.Errorf("FILE: %w", err)
					}
					return stateLines(lines), nil
				}),
			},
		}},
	}}
}

// control returns a command that sends a request to the control API and prints the answer. The operands of
// a DELETE belong to its path.
func control(method, path string, body func(o *options, operands []string) (any, error)) func(*options) runner {
	return func(o *options) runner {
		return o.calls(func(ctx context.Context, c *client, operands []string) error {
			content, err := body(o, operands)
			if err != nil {
				return err
			}
			at := path
			if method == "DELETE" && len(operands) > 0 {
				at += "/" + url.PathEscape(operands[0])
			}
			return c.askControl(ctx, call{method: method, path: at, body: content})
		})
	}
}

// askControl sends a request to the control API, and prints the answer if there is one.
func (c *client) askControl(ctx context.Context, q call) error {
	below := q.path
	q.path = "/_stepwell" + q.path
	a, err := c.do(ctx, q)
	if hasStatus(err, 404) {
		// A stub or sandbox may be missing, too; the clock exists wherever the control API does.
		if _, err := c.get(ctx, "/_stepwell/clock", nil); hasStatus(err, 404) {
			return exitf(exitFailed, "the service at %s is not in fixture mode: start it with --fixture", c.url)
		}
	}
	if err != nil {
		return err
	}
	if a.raw == nil {
		return nil
	}
	// As it is: a state is large, and for programs.
	if below == "/state" {
		_, err = c.p.stdout.Write(a.raw)
		return err
	}
	return c.p.printJSON(a)
}

func noBody(*options, []string) (any, error) { return nil, nil }

// jsonOperand reads the first operand.
func jsonOperand(o *options, operands []string) (any, error) {
	return o.p.jsonArgument("JSON", operands[0])
}

// clockMembers are what changes the clock, as members of the request; true takes the place of a value.
var clockMembers = map[string]string{
	"freeze": "freeze", "next": "advance_to_next", "auto": "auto", "resume": "resume", "advance": "advance", "set": "set",
}

func controlClock(o *options) runner {
	return o.calls(func(ctx context.Context, c *client, operands []string) error {
		if len(operands) == 0 {
			return c.askControl(ctx, call{method: "GET", path: "/clock"})
		}
		action, value := operands[0], strings.Join(operands[1:], "")
		takesValue := action == "advance" || action == "set"
		if clockMembers[action] == "" || takesValue != (value != "") {
			return o.misuse("want freeze, advance DURATION, next, set TIME, auto or resume, not %q", strings.TrimSpace(action+" "+value))
		}
		if _, err := parseDuration(value); err != nil && action == "advance" {
			return o.misuse("advance: %v, not %q", err, value)
		}
		body := map[string]any{clockMembers[action]: true}
		if takesValue {
			body[action] = value
		}
		return c.askControl(ctx, call{method: "POST", path: "/clock", body: body})
	})
}
