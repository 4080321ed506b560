package main

// The command audit.

import (
	"context"
	"net/url"
)

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
