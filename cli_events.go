package main

// The command events: the deliveries of domain events to subscribers.

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
)

// deliverySelection are the flags that select deliveries.
var deliverySelection = [][2]string{
	{"subscriber", "`NAME`: select only deliveries to this subscriber"},
	{"status", "`STATUS`: select only deliveries with this status: pending, delivered or dead"},
}

func eventsCommands() command {
	return command{name: "events", help: "list deliveries of domain events to subscribers, and resend events", commands: []command{
		{
			name: "subscribers", effect: reads, help: "count the deliveries to each subscriber, and show what fails",
			more: "OLDEST is how long the oldest pending event has waited. SUCCEEDED and FAILED are how long ago an attempt last " +
				"did since the service started; PROBLEM is why.",
			examples: []string{"events subscribers", "events subscribers --subscriber billing -o json"},
			define: lists(listing{path: "/v1/events/deliveries", member: "subscribers", name: "name", none: "there is no subscriber",
				columns: []column{
					of("SUBSCRIBER", "name"), of("PENDING", "pending"), of("DELIVERED", "delivered"), of("DEAD", "dead"),
					ageOf("OLDEST", "oldest_pending_at"), ageOf("SUCCEEDED", "last_success_at"), ageOf("FAILED", "last_error_at"),
					{head: "PROBLEM", show: func(_ *table, d document) string {
						return cmp.Or(d.text("last_error"), d.text("newest_problem.problem"))
					}},
					of("URL", "url").whenWide(), of("EVENT", "newest_problem.type").whenWide(),
					of("TASK", "newest_problem.task_uuid").whenWide(), of("DELIVERY", "newest_problem.id").whenWide(),
				}}, deliverySelection[0]),
		},
		{
			name: "deliveries", effect: reads, help: "list the deliveries of events, the newest event first",
			examples: []string{"events deliveries --status dead", "events deliveries --subscriber billing --limit 5 -o name"},
			define:   listDeliveries,
		},
		{
			name: "resend", effect: changes, operands: "[DELIVERY…]", help: "resend events to subscribers",
			more: "Without DELIVERY, flags select deliveries (by default dead ones), which are resent only with --yes.",
			examples: []string{
				"events resend 12-1-billing", `events resend --subscriber billing --reason "billing is back" --yes`,
			},
			define: resendEvents,
		},
	}}
}

var deliveryColumns = []column{
	of("DELIVERY", "id"), of("EVENT", "type"), of("STATUS", "status"), of("TASK", "task_uuid"), ageOf("AGE", "timestamp"),
	of("ATTEMPTS", "attempts"), of("PROBLEM", "problem"), ageOf("NEXT", "next_attempt_at").whenWide(), of("ID", "event_id").whenWide(),
}

func listDeliveries(o *options) runner {
	page := [][2]string{{"limit", "`N`: list at most this many deliveries (default 50)"}, {"offset", "`N`: begin after this many of the newest deliveries"}}
	return o.shows("/v1/events/deliveries", append(page, deliverySelection...), func(d document) output {
		deliveries := d.at("deliveries").list()
		return listOutput(deliveries, "id", "no delivery", deliveryColumns).outOf(len(deliveries), int(d.number("total_count")))
	})
}

func resendEvents(o *options) runner {
	reason := o.String("reason", "", "`TEXT`: record why")
	bulk := o.withBulk("delivery", "deliveries", deliverySelection...)
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		body := map[string]any{"reason": cmp.Or(*reason, "on the command line")}
		if done, err := bulk.instead(ctx, c, operands, 1, bulkResend, body); done {
			return err
		}
		sent, failed := []document{}, 0
		for _, id := range operands {
			d, err := c.do(ctx, call{method: "POST", path: "/v1/events/deliveries/" + url.PathEscape(id) + "/resend"})
			if err != nil {
				return err
			}
			sent = append(sent, d)
			failed += boolCount(d.text("problem") != "")
		}
		if err := o.print(listOutput(sent, "id", "", deliveryColumns)); err != nil || failed == 0 {
			return err
		}
		return fmt.Errorf("%s not delivered", counted(failed, "event was", "events were"))
	})
}

// undelivered adds which events of a task subscribers did not get, and what sends them again.
func (t *table) undelivered(d document) {
	for _, u := range d.at("undelivered_events").list() {
		problem := ""
		if p := u.text("problem"); p != "" {
			problem = ": " + p
		}
		t.line(fmt.Sprintf("%s event %s of %s did not reach %s after %s%s", t.sign("failed"), u.text("type"), u.text("step_name"),
			u.text("subscriber"), counted(int(u.number("attempts")), "attempt", "attempts"), problem))
		t.line("  " + t.paint(faint, programCalled()+" events resend "+u.text("delivery")))
	}
}
