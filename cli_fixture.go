package main

// The command fixture: the control API of fixture mode.

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// askControl sends a request to the control API, and prints the answer if there is one.
func (c *client) askControl(ctx context.Context, q call) error {
	below := q.path
	q.path = "/_stepwell" + q.path
	a, err := c.do(ctx, q)
	if hasStatus(err, 404) {
		if _, err := c.get(ctx, "/_stepwell/clock", nil); hasStatus(err, 404) {
			return exitf(exitFailed, "the service at %s is not in fixture mode: start it with --fixture", c.base)
		}
	}
	if err != nil {
		return err
	}
	if a.raw == nil {
		return nil
	}
	if below == "/state" {
		_, err = fmt.Fprintln(c.p.stdout, string(a.raw))
		return err
	}
	return c.p.printJSON(a)
}

// jsonOperand reads the first operand.
func (p *process) jsonOperand(_ *options, operands []string) (any, error) {
	return p.jsonArgument("JSON", operands[0])
}

// clockActions are the changes of the clock without a value.
var clockActions = map[string]string{"freeze": "freeze", "next": "advance_to_next", "auto": "auto", "resume": "resume"}

func (p *process) fixtureClock(o *options) runner {
	o.withClient()
	return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
		if len(operands) == 0 {
			return c.askControl(ctx, call{method: "GET", path: "/clock"})
		}
		body, err := clockBody(operands[0], strings.Join(operands[1:], ""))
		if err != nil {
			return o.misuse("%v", err)
		}
		return c.askControl(ctx, call{method: "POST", path: "/clock", body: body})
	})
}

func clockBody(action, value string) (map[string]any, error) {
	if member, ok := clockActions[action]; ok && value == "" {
		return map[string]any{member: true}, nil
	}
	switch {
	case action == "advance" && value != "":
		if _, err := time.ParseDuration(value); err != nil {
			return nil, fmt.Errorf("advance: want a duration like 90s, not %q", value)
		}
		return map[string]any{action: value}, nil
	case action == "set" && value != "":
		return map[string]any{action: value}, nil
	}
	return nil, fmt.Errorf("want freeze, advance DURATION, next, set TIME, auto or resume, not %q",
		strings.TrimSpace(action+" "+value))
}
