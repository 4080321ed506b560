package main

// The command dlq: the dead letter queue.

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
)

var dlqColumns = []column{
	of("TASK", "task_uuid"), of("REASON", "dlq_reason"), of("STATUS", "resolution_status"),
	stateOfColumn("NOW", "current_state"), ageOf("AGE", "dlq_timestamp"), of("STEP", "error.step_name"), failureColumn("error"),
	of("BY", "resolved_by"), of("NOTES", "resolution_notes"), stateOfColumn("WAS", "original_state").whenWide(),
	of("ENTRY", "dlq_entry_uuid").whenWide(),
}

// letterSelection are the flags that select entries.
var letterSelection = [][2]string{
	{"over", "select only entries whose tasks have since completed or been cancelled"},
	{"dlq-reason", "`REASON`: select only entries with this reason: " + strings.Join(dlqReasonNames[:], ", ")}, {"namespace", "`NAMESPACE`: select only entries for tasks of templates in this namespace"},
	{"name", "`NAME`: select only entries for tasks of templates with this name"}, {"step", "`STEP`: select only entries for tasks that were stopped by this step"},
	{"group", "`GROUP`: select only entries for tasks in this group of \"stepwell failures\""},
	{"since", "`DURATION`: select only entries created at most this long ago, such as 24h"},
	{"created-after", "`TIME`: select only entries created after this time, such as 2026-01-31T12:00:00Z"},
	{"created-before", "`TIME`: select only entries created before this time"},
}

// leftOver says which entries the lists leave out.
const leftOver = "Entries whose tasks have since completed or been cancelled are left out, unless --all"

func dlqCommands() command {
	limit := func(most string) [2]string { return [2]string{"limit", "`N`: list at most this many " + most} }
	offset := [2]string{"offset", "`N`: begin after this many"}
	return command{name: "dlq", help: "inspect the dead letter queue: tasks that need an operator", commands: []command{
		{
			name: "list", effect: reads, help: "list the entries, the newest first",
			more:     leftOver + ", --over or --resolution-status is given.",
			examples: []string{"dlq list --since 24h", "dlq list --resolution-status ManuallyResolved --limit 5"},
			define: listLetters(listing{path: "/v1/dlq", name: "dlq_entry_uuid", none: "the dead letter queue is empty",
				columns: dlqColumns}, append(letterSelection, limit("entries (default 50)"), offset, [2]string{"resolution-status", "`STATUS`: list only entries with this status: " + strings.Join(dlqStatusNames[:], ", ")})...),
		},
		{
			name: "queue", effect: reads, help: "list the pending entries by priority",
			more:     leftOver + " or --over is given.",
			examples: []string{"dlq queue", "dlq queue --limit 5 -o json"},
			define: listLetters(listing{path: "/v1/dlq/investigation-queue", name: "dlq_entry_uuid", none: "nothing to investigate",
				columns: []column{
					of("TASK", "task_uuid"),
					taskNameColumn,
					of("REASON", "dlq_reason"), stateOfColumn("STATE", "current_state"), minutesOf("WAITS", "minutes_in_dlq"),
					of("STEP", "error.step_name"), failureColumn("error"),
					{head: "PRIORITY", show: func(_ *table, d document) string { return fmt.Sprintf("%.0f", d.number("priority_score")) }},
					of("ENTRY", "dlq_entry_uuid").whenWide(),
				}}, append(letterSelection, limit("entries (default 100)"), offset)...),
		},
		{
			name: "show", effect: reads, operands: "TASK", help: "show the entries of a task",
			examples: []string{"dlq show latest", "dlq show 5666cd0c -o json"}, define: showDLQ,
		},
		{
			name: "update", effect: changes, operands: "TASK|ENTRY", help: "record the outcome of an investigation",
			more: "With TASK, update the newest entry of the task.",
			examples: []string{
				`dlq update latest --status ManuallyResolved --notes "paid in cash"`,
				`dlq update 5666cd0c --metadata '{"ticket":"OPS-7"}'`,
			},
			define: updateDLQ,
		},
		{
			name: "close", effect: changes, help: "close the pending entries that flags select",
			more: "Without --yes, it shows how many match.",
			examples: []string{
				`dlq close --group 3f9a0c5e71d2b846 --notes "the bank answers again" --yes`, "dlq close --over --yes",
			},
			define: closeDLQ,
		},
		{
			name: "stats", effect: reads, help: "count the entries by reason",
			examples: []string{"dlq stats", "dlq stats -o json"},
			define: lists(listing{path: "/v1/dlq/stats", name: "dlq_reason", none: "the dead letter queue is empty",
				columns: []column{
					of("REASON", "dlq_reason"), of("TOTAL", "total_entries"), of("PENDING", "pending"),
					of("RESOLVED", "manually_resolved"), of("PERMANENT", "permanent_failures"), of("CANCELLED", "cancelled"),
					ageOf("OLDEST", "oldest_entry"), minutesOf("RESOLUTION", "avg_resolution_time_minutes").whenWide(),
				}}),
		},
		{
			name: "stale", effect: reads, help: "list unfinished tasks by how long they have been in their state",
			examples: []string{"dlq stale", "dlq stale --limit 5"},
			define: lists(listing{path: "/v1/dlq/staleness", name: "task_uuid", none: "no task is unfinished",
				columns: []column{
					of("TASK", "task_uuid"),
					taskNameColumn,
					stateOfColumn("STATE", "current_state"), minutesOf("IN STATE", "time_in_state_minutes"),
					minutesOf("LIMIT", "staleness_threshold_minutes"), minutesOf("AGE", "task_age_minutes").whenWide(),
					stateOfColumn("HEALTH", "health_status"),
				}}, [2]string{"namespace", "`NAMESPACE`: list only tasks of templates in this namespace"}, [2]string{"name", "`NAME`: list only tasks of templates with this name"}, limit("tasks (default 100)"), offset),
		},
	}}
}

// listLetters is lists for the entries that flags select.
func listLetters(l listing, flags ...[2]string) func(o *options) runner {
	return func(o *options) runner {
		query := url.Values{}
		o.filters(query, flags)
		all := o.Bool("all", false, "also list entries whose tasks have since completed or been cancelled")
		return o.asks(func(ctx context.Context, c *client, _ []string) error {
			l := l
			if !*all && !query.Has("over") && !query.Has("resolution_status") {
				query.Set("over", "false")
				l.none = "no entries; --all also lists those whose tasks have completed or were cancelled"
			}
			return c.printPage(ctx, o, l, query, "created_after")
		})
	}
}

func showDLQ(o *options) runner {
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		d, err := c.dlqOf(ctx, operands[0])
		if err != nil {
			return err
		}
		entries := d.at("entries").list()
		if entries == nil { // a service that answers the newest entry alone
			entries = []document{d}
		}
		out := listOutput(entries, "dlq_entry_uuid", "", dlqColumns)
		rows := out.table
		out.table = func(t *table) {
			rows(t)
			if why, err := c.get(ctx, "/v1/tasks/"+entries[0].text("task_uuid")+"/explain", nil); err == nil && !t.headless {
				t.line("")
				t.explanation(why)
			}
		}
		return o.print(out)
	})
}

func updateDLQ(o *options) runner {
	body := map[string]any{}
	o.memberFlag(body, "status", "resolution_status", "`STATUS`: set the status: Pending, ManuallyResolved, PermanentlyFailed or Cancelled")
	o.memberFlag(body, "notes", "resolution_notes", "`TEXT`: add a note")
	o.memberFlag(body, "by", "resolved_by", "`WHO`: record who investigated")
	metadata := o.String("metadata", "", "`JSON`: attach metadata, from JSON, @FILE, or - for standard input")
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		if err := o.p.addJSON(body, "metadata", *metadata); err != nil {
			return err
		}
		if len(body) == 0 {
			return o.misuse("missing --status, --notes, --by or --metadata")
		}
		// A UUID can be that of a task or of an entry, so it is first tried as a task.
		path := "/v1/dlq/entry/" + operands[0]
		if d, err := c.dlqOf(ctx, operands[0]); err == nil {
			path = "/v1/dlq/entry/" + d.text("dlq_entry_uuid")
		} else if _, isID := parseUUID(operands[0]); !isID {
			return err
		}
		done, err := c.do(ctx, call{method: "PATCH", path: path, body: body})
		if err != nil {
			return err
		}
		return o.print(output{done, member("dlq_entry_uuid"), func(t *table) { t.line(done.text("message")) }})
	})
}

func closeDLQ(o *options) runner {
	notes := o.String("notes", "closed on the command line", "`TEXT`: add a note")
	status := o.String("status", "ManuallyResolved", "`STATUS`: set the status: ManuallyResolved, PermanentlyFailed or Cancelled")
	by := o.String("by", "", "`WHO`: record who closes the entries; by default $USER")
	bulk := o.withBulk("entry", "entries", letterSelection...)
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		_, err := bulk.instead(ctx, c, operands, 1, bulkClose, map[string]any{
			"reason": *notes, "resolution_status": *status, "by": cmp.Or(*by, o.p.getenv("USER"), "stepwell-cli"),
		})
		return err
	})
}

// dlqOf returns the newest entry of the task that a user calls by this name, with all of its entries.
func (c *client) dlqOf(ctx context.Context, task string) (document, error) {
	id, err := c.taskID(ctx, task)
	if err != nil {
		return document{}, err
	}
	return c.get(ctx, "/v1/dlq/task/"+id, nil)
}
