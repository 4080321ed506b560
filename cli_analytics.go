package main

// The command analytics.

import (
	"fmt"
	"strings"
	"time"
)

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
