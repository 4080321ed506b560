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
					t.line(fmt.Sprintf("%s with the cause of %s: stepwell task list --group %s",
						counted(more[group]-1, "more hit", "more hits"), hit.text("task_uuid"), group))
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

// tasksCalled returns the tasks whose UUIDs begin or end with a part.
func (c *client) tasksCalled(ctx context.Context, part string) (found []string, err error) {
	d, err := c.get(ctx, "/v1/find", url.Values{"q": {part}, "limit": {strconv.Itoa(maxFound)}})
	for _, h := range d.at("hits").list() {
		if h.text("kind") == "task" {
			found = append(found, h.text("task_uuid"))
		}
	}
	return found, err
}
