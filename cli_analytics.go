package main

// The commands analytics and failures.

import (
	"fmt"
	"strings"
	"time"
)

func analyticsCommands() command {
	return command{name: "analytics", help: "show rates and durations of tasks and steps", commands: []command{
		{
			name: "performance", effect: reads, help: "show rates and durations over the last hours",
			examples: []string{"analytics performance", "analytics performance --hours 1 -o json"},
			define:   showPerformance,
		},
		{
			name: "bottlenecks", effect: reads, help: "list the slowest steps and tasks",
			examples: []string{"analytics bottlenecks", "analytics bottlenecks --min-executions 100"},
			define:   showBottlenecks,
		},
	}}
}

// secondsOf returns a number of seconds as a duration.
func secondsOf(d document) time.Duration { return time.Duration(d.number("") * float64(time.Second)) }

func showPerformance(o *options) runner {
	hours := [][2]string{{"hours", "`N`: look back this many hours (default 24)"}}
	return o.shows("/v1/analytics/performance", hours, func(d document) output {
		return output{d, member("status"), func(t *table) {
			for name, v := range d.members() {
				text := v.text("")
				if seconds, ok := strings.CutSuffix(name, "_seconds"); ok {
					name, text = seconds, shortDuration(secondsOf(v))
				} else if strings.HasSuffix(name, "_rate") {
					text += " %"
				}
				t.row(t.paint(faint, strings.ReplaceAll(name, "_", " ")), text)
			}
		}}
	})
}

func durationColumn(head, path string) column {
	return column{head: head, show: func(_ *table, d document) string { return shortDuration(secondsOf(d.at(path))) }}
}

var bottleneckColumns = []column{
	{head: "TEMPLATE", show: func(_ *table, d document) string {
		return d.text("namespace_name") + "/" + d.text("task_name") + "@" + d.text("version")
	}},
	of("STEP", "step_name"), durationColumn("AVERAGE", "average_duration_seconds"),
	durationColumn("LONGEST", "max_duration_seconds"), of("RUNS", "execution_count"),
	{head: "ERRORS", show: func(_ *table, d document) string { return fmt.Sprintf("%.1f %%", 100*d.number("error_rate")) }},
}

func showBottlenecks(o *options) runner {
	filters := [][2]string{
		{"limit", "`N`: list at most this many steps and tasks (default 10)"},
		{"min-executions", "`N`: list only what ran at least this many times (default 5)"},
	}
	return o.shows("/v1/analytics/bottlenecks", filters, func(d document) output {
		return output{d, member("status"), func(t *table) {
			t.list(d.at("slow_steps").list(), bottleneckColumns)
			t.line("")
			t.list(d.at("slow_tasks").list(), append(bottleneckColumns[:1:1], bottleneckColumns[2:]...))
			for _, advice := range d.at("recommendations").list() {
				t.line(advice.text(""))
			}
		}}
	})
}

func failuresCommand() command {
	return command{
		name: "failures", effect: reads, help: "show what is failing, by cause",
		more: "STUCK counts the failing tasks that need an operator, and RETRYING the others. FIRST and LAST say how long ago " +
			"the first and the last task failed; TASK is the task that failed last. GROUP is the ID of the cause, for --group of other commands.",
		examples: []string{"failures --since 1h", "failures --namespace shop -o json"},
		define:   showFailures,
	}
}

// failureColumn returns a column of the type and the message of the error at a path.
func failureColumn(path string) column {
	return column{head: "FAILURE", show: func(_ *table, d document) string {
		e := d.at(path)
		text := e.text("error_type")
		if message := withoutType(errorLine(e, "message"), text); message != "" {
			text += ": " + message
		}
		return text
	}}
}

var failureColumns = []column{
	of("STUCK", "stuck_tasks"), of("RETRYING", "retrying_tasks"), taskNameColumn, of("STEP", "step_name"),
	failureColumn(""), ageOf("FIRST", "first_failure_at"), ageOf("LAST", "last_failure_at"), of("GROUP", "group"), of("TASK", "sample_task_uuid"),
}

func showFailures(o *options) runner {
	filters := [][2]string{
		{"namespace", "`NAMESPACE`: list only failures in this namespace"}, {"name", "`NAME`: list only failures of templates with this name"},
		{"since", "`DURATION`: count only steps that failed at most this long ago, such as 24h"},
		{"limit", "`N`: list at most this many groups, those with the most tasks; the others are counted together (default 50)"},
	}
	return o.shows("/v1/analytics/failures", filters, func(d document) output {
		out := listOutput(d.at("groups").list(), "group", "nothing is failing", failureColumns)
		listed := out.table
		out.table = func(t *table) {
			listed(t)
			if other := d.at("other_groups"); other.number("groups") > 0 {
				t.line(fmt.Sprintf("and %s: %s stuck, %s retrying", counted(int(other.number("groups")), "more group", "more groups"),
					other.text("stuck_tasks"), other.text("retrying_tasks")))
			}
		}
		return out
	})
}
