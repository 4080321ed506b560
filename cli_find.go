package main

// The command find.

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
)

func findCommand() command {
	return command{
		name: "find", effect: reads, operands: "TEXT", help: "find tasks, steps and templates by anything that names them",
		more: "TEXT is an ID, or at least 6 characters of its beginning or end; a correlation ID, trace ID or idempotency key; a " +
			"tag; part of the name of a template or step, or of an error; or a searchable value in a context, alone or as " +
			"PATH=VALUE.",
		examples: []string{"find order_id=ORD-1", `find "connection refused" -o name`},
		define:   findAnything,
	}
}

var findColumns = []column{
	of("KIND", "kind"),
	{head: "MATCH", show: func(_ *table, d document) string { return d.text("path") + "=" + d.text("value") }},
	{head: "TASK", show: func(_ *table, d document) string { return cmp.Or(d.text("task_uuid"), "-") }},
	{head: "TEMPLATE", show: templateColumn.show}, stateOfColumn("STATUS", "status"), of("STEP", "step_name"),
	ageOf("AGE", "created_at"), of("TASKS", "tasks").whenWide(),
}

func findAnything(o *options) runner {
	limit := o.Int("limit", standardFound, "`N`: list at most this many hits of each kind")
	return o.asks(func(ctx context.Context, c *client, operands []string) error {
		d, err := c.get(ctx, "/v1/find", url.Values{"q": operands, "limit": {strconv.Itoa(*limit)}})
		if err != nil {
			return err
		}
		name := func(hit document) string { return cmp.Or(hit.text("task_uuid"), qualifiedName(hit)) }
		hits, more := d.at("hits").list(), map[string]int{}
		seen := func(key string) bool { more[key]++; return more[key] > 1 }
		switch {
		case *o.output == "name":
			hits = slices.DeleteFunc(hits, func(hit document) bool { return seen(name(hit)) })
		case o.forPeople(): // errors of one cause are one row
			hits = slices.DeleteFunc(hits, func(hit document) bool {
				group := hit.text("failure.group")
				return hit.text("kind") == "error" && group != "" && seen(group)
			})
		}
		out := listOutput(hits, "", "nothing matches", slices.Concat(findColumns, speakingColumns))
		rows := out.table
		out.name, out.table = name, func(t *table) {
			rows(t)
			for _, hit := range hits {
				if group := hit.text("failure.group"); hit.text("kind") == "error" && more[group] > 1 {
					t.line(fmt.Sprintf("%s with the cause of %s: %s task list --group %s",
						counted(more[group]-1, "more hit", "more hits"), hit.text("task_uuid"), programCalled(), group))
				}
			}
		}
		if err := o.print(out); err != nil {
			return err
		}
		for _, kind := range d.at("more").list() {
			fmt.Fprintf(o.p.stderr, "there is more of kind %s: raise --limit\n", kind.text(""))
		}
		for _, gap := range d.at("left_out").list() {
			fmt.Fprintf(o.p.stderr, "not searched: %s: %s\n", gap.text("kind"), gap.text("reason"))
		}
		return nil
	})
}

// The command audit.

func auditCommand() command {
	return command{
		name: "audit", effect: reads, help: "list what operators did, the newest first",
		more: "One line is one request, however many tasks and steps it changed; TASK is the first of them. It follows from the tasks: " +
			"what was done to a task is gone with it.",
		examples: []string{"audit", "audit --since 12h --actor alice"},
		define:   listActs,
	}
}

var actColumns = []column{
	ageOf("AGE", "acted_at"),
	{head: "WHO", show: func(_ *table, d document) string { return actorOf(d) }},
	of("ACTION", "action"), of("TASKS", "tasks"), of("STEPS", "steps"), taskNameColumn, of("STEP", "step_name"), of("REASON", "reason"),
	of("TASK", "sample_task_uuid"), of("AT", "acted_at").whenWide(), of("REQUEST", "request_id").whenWide(),
}

// actorOf returns who acted: by the request and, if that is another name, by authentication.
func actorOf(d document) string {
	by, subject := d.text("acted_by"), d.text("subject")
	switch {
	case by == "" || by == subject:
		return subject
	case subject == "":
		return by
	}
	return by + " (" + subject + ")"
}

func listActs(o *options) runner {
	query := url.Values{}
	o.filters(query, [][2]string{
		{"since", "`DURATION`: list only what was done at most this long ago, such as 24h"},
		{"actor", "`NAME`: list only what this operator did"},
		{"limit", "`N`: list at most this many requests (default 50)"}, {"offset", "`N`: begin after this many"},
	})
	return o.asks(func(ctx context.Context, c *client, _ []string) error {
		return c.printPage(ctx, o, listing{path: "/v1/audit", name: "sample_task_uuid", none: "no operator has done anything",
			columns: actColumns}, query, "since")
	})
}
