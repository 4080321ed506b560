package main

// The commands dlq, template, analytics, health and fixture.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// listing is a command that lists what a path answers.
type listing struct {
	path    string
	member  string // of the answer that is the list; "" for the answer itself
	name    string // the member that -o name prints; "template" for namespace and name
	none    string
	columns []column
}

// lists returns a command that lists what a path answers, filtered by flags.
func (p *process) lists(l listing, filters ...[2]string) func(o *options) runner {
	return func(o *options) runner {
		o.withClient().withOutput()
		query := url.Values{}
		o.filters(query, filters)
		return p.asks(o, func(ctx context.Context, c *client, _ []string) error {
			d, err := c.get(ctx, l.path, query)
			if err != nil {
				return err
			}
			return p.print(o, listOutput(d.at(l.member).list(), l.name, l.none, l.columns))
		})
	}
}

func minutesOf(head, path string) column {
	return column{head: head, show: func(_ *table, d document) string {
		if d.text(path) == "" {
			return ""
		}
		return fmt.Sprintf("%.0fm", d.number(path))
	}}
}

var taskNameColumn = column{head: "TEMPLATE", show: func(_ *table, d document) string {
	return printable(d.text("namespace_name") + "/" + d.text("task_name"))
}}

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

// template asks for a template of the service.
func (c *client) template(ctx context.Context, name string) (d document, err error) {
	ref, err := parseTemplateRef(name)
	if err != nil {
		return d, err
	}
	return c.get(ctx, ref.path(), nil)
}

func (p *process) templateCheck(o *options) runner {
	var flags configArgs
	keyFlag(o, configKeyAt("environment"), &flags)
	return func(_ context.Context, files []string) error {
		cfg, _, err := p.loadConfig(flags, p.environ)
		if err != nil {
			return err
		}
		handlers, err := newHandlerSet(&cfg.Worker, version, p.getenv)
		if err != nil {
			return err
		}
		r, warnings, err := loadTemplates(files, cfg.Environment, handlers.templateRules(&cfg.Templates, schemasTold))
		for _, w := range warnings {
			fmt.Fprintln(p.stderr, "warning: "+w)
		}
		if err != nil {
			return err
		}
		for _, t := range r.all() {
			fmt.Fprintf(p.stdout, "%s: %s\n", t.fullName(), counted(len(t.steps), "step", "steps"))
		}
		return nil
	}
}

func (p *process) templateConvert(o *options) runner {
	to := o.String("to", "yaml", "write as `FORMAT`: json, toml or yaml")
	return func(_ context.Context, files []string) error {
		if !slices.Contains([]string{"json", "toml", "yaml"}, *to) {
			return o.misuse("--to must be json, toml or yaml, not %q", *to)
		}
		if templateFormat(files[0]) == "" {
			return o.misuse("%s: only %s are read", files[0], templateFiles)
		}
		data, err := readTemplateFile(files[0], math.MaxInt64)
		if err != nil {
			return err
		}
		text, err := convertTemplate(files[0], data, *to)
		if err != nil {
			return err
		}
		_, err = p.stdout.Write(text)
		return err
	}
}

func (p *process) templateGraph(o *options) runner {
	o.withClient()
	o.forms = []string{"text", "mermaid", "dot"}
	o.output = o.String("o", "text", "draw as `FORM`: text, mermaid or dot")
	return func(ctx context.Context, operands []string) error {
		d, err := p.templateFileOr(ctx, o, operands[0])
		if err != nil {
			return o.named(err)
		}
		draw := map[string]func(io.Writer, string, *shape) error{"text": p.drawText, "mermaid": drawMermaid, "dot": drawDot}
		return draw[*o.output](p.stdout, d.text("name"), readShape(d))
	}
}

// templateFileOr reads a template from a file, or else asks the service for it.
func (p *process) templateFileOr(ctx context.Context, o *options, name string) (document, error) {
	if !isTemplateFile(name) {
		c, err := p.client(o)
		if err != nil {
			return document{}, err
		}
		return c.template(ctx, name)
	}
	r, _, err := loadTemplates([]string{name}, p.getenv("STEPWELL_ENV"), nil)
	if err != nil {
		return document{}, err
	}
	t, err := onlyTemplate(r, name)
	if err != nil {
		return document{}, err
	}
	return readDocument(t.json), nil
}

// onlyTemplate returns the template of a file.
func onlyTemplate(r *registry, file string) (*template, error) {
	all := r.all()
	if len(all) != 1 {
		return nil, usagef("%s has %d templates; want one file", file, len(all))
	}
	return all[0], nil
}

// isTemplateFile reports whether an operand names a file and not a template of the service.
func isTemplateFile(name string) bool {
	if templateFormat(name) != "" {
		return true
	}
	info, err := os.Stat(name)
	return err == nil && (info.Mode().IsRegular() || info.IsDir()) && filepath.Ext(name) != "" || err == nil && info.IsDir()
}

// drawText draws a graph as a list in the order of the dependencies.
func (p *process) drawText(w io.Writer, _ string, s *shape) error {
	t := &table{p: p, style: p.styleOf(w)}
	for _, name := range s.byLevel() {
		after := ""
		if parents := s.parents[name]; len(parents) > 0 {
			after = t.paint(faint, "after "+strings.Join(parents, ", "))
		}
		t.row(strings.Repeat("  ", s.level(name))+printable(name), after)
	}
	return t.write(w)
}

// drawMermaid draws a flowchart (https://mermaid.js.org/syntax/flowchart.html). An edge to a step that
// its parent decides on is dotted.
func drawMermaid(w io.Writer, _ string, s *shape) error {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for i, name := range s.names {
		fmt.Fprintf(&b, "  s%d[%q]\n", i, strings.ReplaceAll(name, `"`, "#quot;"))
	}
	s.edges(func(from, to int, decided bool) {
		arrow := "-->"
		if decided {
			arrow = "-.->"
		}
		fmt.Fprintf(&b, "  s%d %s s%d\n", from, arrow, to)
	})
	_, err := io.WriteString(w, b.String())
	return err
}

// drawDot draws a digraph (https://graphviz.org/doc/info/lang.html).
func drawDot(w io.Writer, title string, s *shape) error {
	var b strings.Builder
	quote := func(text string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"` }
	fmt.Fprintf(&b, "digraph %s {\n  node [shape=box]\n", quote(title))
	for _, name := range s.names {
		fmt.Fprintf(&b, "  %s\n", quote(name))
	}
	s.edges(func(from, to int, decided bool) {
		style := ""
		if decided {
			style = " [style=dashed]"
		}
		fmt.Fprintf(&b, "  %s -> %s%s\n", quote(s.names[from]), quote(s.names[to]), style)
	})
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *process) analyticsCommands() command {
	return command{name: "analytics", help: "show how tasks and steps fare", commands: []command{
		{
			name: "performance", help: "show rates and durations over the last hours",
			examples: []string{"analytics performance", "analytics performance --hours 1 -o json"},
			define:   p.performance,
		},
		{
			name: "bottlenecks", help: "list the slowest steps and tasks",
			examples: []string{"analytics bottlenecks", "analytics bottlenecks --min-executions 100"},
			define:   p.bottlenecks,
		},
	}}
}

// shows returns a command that shows what a path answers, and what judge says about it, unless it is nil.
func (p *process) shows(
	o *options, path string, filters [][2]string, show func(t *table, d document), judge func(document) error,
) runner {
	o.withClient().withOutput()
	query := url.Values{}
	o.filters(query, filters)
	return p.asks(o, func(ctx context.Context, c *client, _ []string) error {
		d, err := c.get(ctx, path, query)
		if err != nil {
			return err
		}
		err = p.print(o, output{d, member("status"), func(t *table) { show(t, d) }})
		if err == nil && judge != nil {
			err = judge(d)
		}
		return err
	})
}

// secondsOf returns a number of seconds as a duration.
func secondsOf(d document) time.Duration { return time.Duration(d.number("") * float64(time.Second)) }

func (p *process) performance(o *options) runner {
	hours := [][2]string{{"hours", "count the last `N` hours (default 24)"}}
	return p.shows(o, "/v1/analytics/performance", hours, func(t *table, d document) {
		t.eachMember(d, func(name string, v document) {
			text := v.text("")
			if seconds, ok := strings.CutSuffix(name, "_seconds"); ok {
				name, text = seconds, shortDuration(secondsOf(v))
			} else if strings.HasSuffix(name, "_rate") {
				text += " %"
			}
			t.row(t.paint(faint, strings.ReplaceAll(name, "_", " ")), printable(text))
		})
	}, nil)
}

func durationColumn(head, path string) column {
	return column{head: head, show: func(_ *table, d document) string { return shortDuration(secondsOf(d.at(path))) }}
}

var bottleneckColumns = []column{
	{head: "TEMPLATE", show: func(_ *table, d document) string {
		return printable(d.text("namespace_name") + "/" + d.text("task_name") + "@" + d.text("version"))
	}},
	of("STEP", "step_name"), durationColumn("AVERAGE", "average_duration_seconds"),
	durationColumn("LONGEST", "max_duration_seconds"), of("RUNS", "execution_count"),
	{head: "ERRORS", show: func(_ *table, d document) string { return fmt.Sprintf("%.1f %%", 100*d.number("error_rate")) }},
}

func (p *process) bottlenecks(o *options) runner {
	filters := [][2]string{
		{"limit", "list `N` steps and tasks at most (default 10)"},
		{"min-executions", "only of what ran at least `N` times (default 5)"},
	}
	return p.shows(o, "/v1/analytics/bottlenecks", filters, func(t *table, d document) {
		t.list(d.at("slow_steps").list(), bottleneckColumns)
		t.line("")
		t.list(d.at("slow_tasks").list(), append(bottleneckColumns[:1:1], bottleneckColumns[2:]...))
		for _, advice := range d.at("recommendations").list() {
			t.line(printable(advice.text("")))
		}
	}, nil)
}

func (p *process) healthCommand() command {
	return command{
		name: "health", help: "show the checks of a running service",
		more:     "The exit code is 1 if one of them is not healthy.",
		examples: []string{"health", "health --url http://127.0.0.1:8081 -o json"},
		define: func(o *options) runner {
			show := func(t *table, d document) {
				t.line(t.state(d.text("status")))
				t.eachMember(d.at("checks"), func(name string, v document) {
					t.row(t.sign(v.text("status"))+" "+printable(name), printable(v.text("message")))
				})
			}
			return p.shows(o, "/health/detailed", nil, show, func(d document) error {
				if d.text("status") != "healthy" {
					return exitf(exitFailed, "")
				}
				return nil
			})
		},
	}
}

// eachMember calls f with each member of an object, in its order.
func (t *table) eachMember(d document, f func(name string, v document)) {
	dec := json.NewDecoder(strings.NewReader(string(d.raw)))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
		return
	}
	for dec.More() {
		name, err := dec.Token()
		var v json.RawMessage
		if err != nil || dec.Decode(&v) != nil {
			return
		}
		f(fmt.Sprint(name), newDocument(v))
	}
}

// The control API of fixture mode, which other services do not have.

func (p *process) fixtureCommands() command {
	return command{name: "fixture", help: "control a service in fixture mode: its clock, stubs and state", commands: []command{
		{
			name: "clock", operands: "[ACTION] [VALUE]", help: "show or move the virtual clock",
			more:     "ACTION is freeze, advance DURATION, next (to the next timer), set TIME, auto or resume.",
			examples: []string{"fixture clock", "fixture clock advance 24h"}, define: p.fixtureClock,
		},
		{
			name: "reset", help: "drop all tasks, stubs and requests, and set the clock back",
			examples: []string{"fixture reset", "fixture reset --url http://127.0.0.1:9000"},
			define:   p.control("POST", "/reset", func(*options, []string) (any, error) { return nil, nil }),
		},
		{name: "stub", help: "script the outcomes of steps", commands: []command{
			{
				name: "list", help: "list the stubs in the order in which they are asked",
				examples: []string{"fixture stub list", "fixture stub list -o json"},
				define: p.lists(listing{path: "/_stepwell/stubs", member: "stubs", name: "id", none: "no stub", columns: []column{
					of("STUB", "id"), of("MATCH", "match"), of("OUTCOMES", "outcomes"), of("THEN", "then"), of("USES", "uses"),
				}}),
			},
			{
				name: "add", operands: "JSON", help: "add a stub: JSON, @FILE or -",
				examples: []string{
					`fixture stub add '{"match":{"step":"charge"},"outcomes":[{"result":{"paid":true}}]}'`,
					"fixture stub add @declined.json",
				},
				define: p.control("POST", "/stubs", p.jsonOperand),
			},
			{
				name: "remove", operands: "[ID]", help: "remove a stub, or all",
				examples: []string{"fixture stub remove stub-1", "fixture stub remove"},
				define:   p.control("DELETE", "/stubs", func(*options, []string) (any, error) { return nil, nil }),
			},
		}},
		{
			name: "requests", help: "list the latest requests and handler calls",
			examples: []string{"fixture requests --kind handler", "fixture requests --step charge -o json"},
			define: p.lists(listing{path: "/_stepwell/requests", member: "entries", name: "id", none: "no entry", columns: []column{
				of("ID", "id"), of("KIND", "kind"), ageOf("AGE", "at"), of("AT", "at").whenWide(),
				{head: "WHAT", show: func(_ *table, d document) string {
					if d.text("kind") == "handler" {
						return printable(d.text("namespace") + "/" + d.text("name") + " " + d.text("step") + " attempt " + d.text("attempt"))
					}
					return printable(d.text("method") + " " + d.text("path") + " " + d.text("status"))
				}},
			}}, [2]string{"kind", "only of this `KIND`: request or handler"}, [2]string{"step", "only calls for this `STEP`"},
				[2]string{"path", "only requests for this `PATH`"}, [2]string{"limit", "list the latest `N`"}),
		},
		{
			name: "verify", operands: "JSON", help: "check how many requests or handler calls match; JSON, @FILE or -",
			more: "The exit code is 1 if the count is another.",
			examples: []string{
				`fixture verify '{"match":{"step":"charge"},"count":{"exactly":1}}'`, "fixture verify @charged-once.json",
			},
			define: p.control("POST", "/verify", p.jsonOperand),
		},
		{name: "state", help: "save and restore the whole state", commands: []command{
			{
				name: "get", help: "print the state as one JSON document",
				examples: []string{"fixture state get > state.json", "fixture state get | jq .tasks"},
				define:   p.control("GET", "/state", func(*options, []string) (any, error) { return nil, nil }),
			},
			{
				name: "put", operands: "FILE", help: "replace the state by a document; - is standard input",
				examples: []string{"fixture state put state.json", "fixture state put -"},
				define: p.control("PUT", "/state", func(_ *options, operands []string) (any, error) {
					if operands[0] == "-" {
						return p.jsonArgument("FILE", "-")
					}
					return p.jsonArgument("FILE", "@"+operands[0])
				}),
			},
		}},
		{name: "sandbox", help: "add, list and remove isolated copies of the service", commands: []command{
			{
				name: "list", help: "list the sandboxes",
				examples: []string{"fixture sandbox list", "fixture sandbox list -o name"},
				define: p.lists(listing{path: "/_stepwell/sandboxes", member: "sandboxes", name: "name", none: "no sandbox",
					columns: []column{of("SANDBOX", "name"), of("ORCHESTRATION", "orchestration_url"), of("WORKER", "worker_url")}}),
			},
			{
				name: "add", operands: "[NAME]", help: "add a sandbox, and print where it is",
				examples: []string{"fixture sandbox add", "fixture sandbox add checkout-7"},
				define: p.control("POST", "/sandboxes", func(_ *options, operands []string) (any, error) {
					if len(operands) == 0 {
						return map[string]any{}, nil
					}
					return map[string]any{"name": operands[0]}, nil
				}),
			},
			{
				name: "remove", operands: "NAME", help: "remove a sandbox",
				examples: []string{"fixture sandbox remove checkout-7", "fixture sandbox remove sandbox-1"},
				define:   p.control("DELETE", "/sandboxes", func(*options, []string) (any, error) { return nil, nil }),
			},
		}},
	}}
}

// control returns a command that sends a request to the control API and prints the answer. The operands of
// a DELETE belong to its path.
func (p *process) control(method, path string, body func(o *options, operands []string) (any, error)) func(*options) runner {
	return func(o *options) runner {
		o.withClient()
		return p.asks(o, func(ctx context.Context, c *client, operands []string) error {
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
