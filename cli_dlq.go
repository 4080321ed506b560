package main

// The command dlq: the dead letter queue.

import (
	"context"
	"fmt"
)

var dlqColumns = []column{
	of("TASK", "task_uuid"), of("REASON", "dlq_reason"), of("STATUS", "resolution_status"),
	stateOfColumn("STATE", "original_state"), ageOf("AGE", "dlq_timestamp"), of("BY", "resolved_by"),
	of("NOTES", "resolution_notes"), of("ENTRY", "dlq_entry_uuid").whenWide(),
}

func (p *process) dlqCommands() command {
	limit := [2]string{"limit", "list `N` entries at most"}
	return command{name: "dlq", help: "look into the dead letter queue: tasks that need a person", commands: []command{
		{
			name: "list", help: "list the entries, the newest first",
			examples: []string{"dlq list", "dlq list --resolution-status Pending --limit 5"},
			define: p.lists(listing{path: "/v1/dlq", name: "dlq_entry_uuid", none: "the dead letter queue is empty",
				columns: dlqColumns}, [2]string{"resolution-status", "only entries with this `STATUS`"}, limit),
		},
		{
			name: "queue", help: "list what to look into first",
			examples: []string{"dlq queue", "dlq queue --limit 5 -o json"},
			define: p.lists(listing{path: "/v1/dlq/investigation-queue", name: "dlq_entry_uuid", none: "nothing to look into",
				columns: []column{
					of("TASK", "task_uuid"),
					taskNameColumn,
					of("REASON", "dlq_reason"), stateOfColumn("STATE", "current_state"), minutesOf("WAITS", "minutes_in_dlq"),
					{head: "PRIORITY", show: func(_ *table, d document) string { return fmt.Sprintf("%.0f", d.number("priority_score")) }},
					of("ENTRY", "dlq_entry_uuid").whenWide(),
				}}, limit),
		},
		{
			name: "show", operands: "TASK", help: "show the entries of a task",
			examples: []string{"dlq show latest", "dlq show 5666cd0c -o json"}, define: p.dlqShow,
		},
		{
			name: "update", operands: "TASK|ENTRY", help: "note what came of an investigation",
			more: "A task stands for its newest entry.",
			examples: []string{
				`dlq update latest --status ManuallyResolved --notes "paid in cash"`,
				`dlq update 5666cd0c --metadata '{"ticket":"OPS-7"}'`,
			},
			define: p.dlqUpdate,
		},
		{
			name: "stats", help: "count the entries by reason",
			examples: []string{"dlq stats", "dlq stats -o json"},
			define: p.lists(listing{path: "/v1/dlq/stats", name: "dlq_reason", none: "the dead letter queue is empty",
				columns: []column{
					of("REASON", "dlq_reason"), of("TOTAL", "total_entries"), of("PENDING", "pending"),
					of("RESOLVED", "manually_resolved"), of("PERMANENT", "permanent_failures"), of("CANCELLED", "cancelled"),
					ageOf("OLDEST", "oldest_entry"), minutesOf("RESOLUTION", "avg_resolution_time_minutes").whenWide(),
				}}),
		},
		{
			name: "stale", help: "list unfinished tasks by how long they have been in their state",
			examples: []string{"dlq stale", "dlq stale --limit 5"},
			define: p.lists(listing{path: "/v1/dlq/staleness", name: "task_uuid", none: "no task is unfinished",
				columns: []column{
					of("TASK", "task_uuid"),
					taskNameColumn,
					stateOfColumn("STATE", "current_state"), minutesOf("IN STATE", "time_in_state_minutes"),
					minutesOf("LIMIT", "staleness_threshold_minutes"), minutesOf("AGE", "task_age_minutes").whenWide(),
					stateOfColumn("HEALTH", "health_status"),
				}}, limit),
		},
	}}
}

func (p *process) dlqShow(o *options) runner {
	o.withClient().withOutput()
	return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
		id, err := c.taskID(ctx, operands[0])
		if err != nil {
			return err
		}
		d, err := c.get(ctx, "/v1/dlq/task/"+id, nil)
		if err != nil {
			return err
		}
		entries := d.at("entries").list()
		if entries == nil { // a service that answers the newest entry alone
			entries = []document{d}
		}
		return p.print(o, listOutput(entries, "dlq_entry_uuid", "", dlqColumns))
	})
}

func (p *process) dlqUpdate(o *options) runner {
	o.withClient().withOutput()
	body := map[string]any{}
	for member, help := range map[string][2]string{
		"resolution_status": {"status", "the `STATUS`: Pending, ManuallyResolved, PermanentlyFailed or Cancelled"},
		"resolution_notes":  {"notes", "the `TEXT` of a note"},
		"resolved_by":       {"by", "`WHO` looked into it"},
	} {
		o.Func(help[0], help[1], func(text string) error {
			body[member] = text
			return nil
		})
	}
	metadata := o.String("metadata", "", "more about it: `JSON`, @FILE or -")
	return p.asks(o, func(ctx context.Context, c *client, operands []string) (err error) {
		if *metadata != "" {
			if body["metadata"], err = p.jsonArgument("--metadata", *metadata); err != nil {
				return err
			}
		}
		if len(body) == 0 {
			return o.misuse("missing --status, --notes, --by or --metadata")
		}
		path := "/v1/dlq/entry/" + operands[0]
		if entry, err := c.dlqEntry(ctx, operands[0]); err == nil {
			path = "/v1/dlq/entry/" + entry
		} else if _, isID := parseUUID(operands[0]); !isID {
			return err
		}
		done, err := c.do(ctx, call{method: "PATCH", path: path, body: body})
		if err != nil {
			return err
		}
		return p.print(o, output{done, member("dlq_entry_uuid"), func(t *table) { t.line(done.text("message")) }})
	})
}

// dlqEntry returns the newest entry of a task that is called so.
func (c *client) dlqEntry(ctx context.Context, task string) (string, error) {
	id, err := c.taskID(ctx, task)
	if err != nil {
		return "", err
	}
	d, err := c.get(ctx, "/v1/dlq/task/"+id, nil)
	return d.text("dlq_entry_uuid"), err
}

func (p *process) templateCommands() command {
	return command{name: "template", help: "list and show templates; check, convert and draw template files", commands: []command{
		{
			name: "list", help: "list the templates of the service",
			examples: []string{"template list", "template list --namespace demo -o wide"},
			define: p.lists(listing{path: "/v1/templates", member: "templates", name: "template", none: "no template",
				columns: []column{
					{head: "TEMPLATE", show: templateColumn.show}, of("STEPS", "step_count"),
					{head: "DESCRIPTION", show: func(t *table, d document) string {
						if text := printable(d.text("description")); t.wide {
							return text
						} else {
							return clipText(text, 72)
						}
					}},
				}}, [2]string{"namespace", "only of this `NAMESPACE`"}),
		},
		{
			name: "show", operands: "TEMPLATE", help: "show a template of the service and its steps",
			examples: []string{"template show demo/diamond", "template show demo/diamond@1.0.0 -o json"},
			define:   p.templateShow,
		},
		{
			name: "check", operands: "FILE…", help: "check template files or directories, without a service",
			more:     "Problems are listed with file, line, column and path, one a line.",
			examples: []string{"template check order.json", "template check templates/"},
			define:   p.templateCheck,
		},
		{
			name: "convert", operands: "FILE", help: "print a template file as JSON, TOML or YAML, without a service",
			more:     "The result is the same template, or an error says what the format cannot express. Comments are lost.",
			examples: []string{"template convert order.json > order.yaml", "template convert order.yaml --to toml"},
			define:   p.templateConvert,
		},
		{
			name: "graph", operands: "FILE|TEMPLATE", help: "draw the dependency graph of a template file, or of a template of the service",
			examples: []string{"template graph order.json", "template graph demo/diamond -o mermaid"},
			define:   p.templateGraph,
		},
	}}
}

func (p *process) templateShow(o *options) runner {
	o.withClient().withOutput()
	return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
		d, err := c.template(ctx, operands[0])
		if err != nil {
			return err
		}
		return p.print(o, output{d, member("template"), func(t *table) {
			t.fields(d, []column{
				{head: "template", show: templateColumn.show}, of("description", "description"),
				of("identity", "configuration.identity_strategy"),
				of("context", "configuration.default_context"),
			})
			t.line("")
			t.list(d.at("steps").list(), []column{
				of("STEP", "name"), of("TYPE", "type"), of("HANDLER", "handler.callable"), listColumn("AFTER", "dependencies"),
				of("ATTEMPTS", "default_max_attempts"), of("DESCRIPTION", "description").whenWide(),
			})
		}})
	})
}
