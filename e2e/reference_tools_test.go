package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// TestReferenceTools runs the commands against Tasker, with a task of each kind.
func TestReferenceTools(t *testing.T) {
	r := startReference(t, repository("testdata/reference/tools"))
	ids := map[string]string{}
	create := func(name string) {
		_, answer := r.call(t, "POST", "/v1/tasks", `{"namespace":"tools","version":"1.0.0","context":{"order":1},
			"initiator":"jo","source_system":"shop","reason":"trial","tags":["eu"],"name":"`+name+`"}`)
		var made struct {
			ID string `json:"task_uuid"`
		}
		if err := json.Unmarshal(answer, &made); err != nil || made.ID == "" {
			t.Fatalf("create %s: %s", name, answer)
		}
		ids[name] = made.ID
	}
	status := func(name string) string {
		_, answer := r.call(t, "GET", "/v1/tasks/"+ids[name], "")
		var task struct{ Status string }
		json.Unmarshal(answer, &task)
		return task.Status
	}
	for _, name := range []string{"shapes", "batch", "fails"} {
		create(name)
	}
	for name, want := range map[string]string{"shapes": "complete", "batch": "complete", "fails": "blocked_by_failures"} {
		wire.Eventually(t, name+" is "+want, func() bool { return status(name) == want })
	}
	create("waits")
	fails, shapes, batch, waits := ids["fails"], ids["shapes"], ids["batch"], ids["waits"]
	wire.Eventually(t, "the task that waits to be among those that may become stale", func() bool { // between its attempts
		_, stdout, _ := runProgram(t, nil, "dlq", "stale", "--url", r.OrchestrationURL)
		return strings.Contains(stdout, "tools/waits")
	})
	for _, tt := range []struct{ command, want string }{
		{"task list", "blocked_by_failures"},
		{"task list --status blocked_by_failures", fails},
		{"task list --status complete --tag eu", batch},
		{"task list --sort updated_at", "has no filter and no order sort"},
		{"task show " + shapes, "    chosen"},
		{"task show " + batch, "part_002"},
		{"task explain " + fails, `step "broken" failed for good`},
		{"task explain " + waits, `step "shaky"`},
		{"task explain " + shapes, "nothing is left to do"},
		{"task watch " + fails, "the task is blocked_by_failures: step"},
		{"task events " + fails, "these are derived from the steps and their audit"},
		{"task context " + fails, `"order": 1`},
		{"task again " + fails + " --from broken", "has no POST"},
		{"step list " + fails, "the card was refused"},
		{"step show " + fails + " broken", "CardRefused"},
		{"step audit " + fails + " broken", "the card was refused"},
		{"step fail " + fails + " broken", "unknown variant `fail`"},
		{"step inbox", "has no GET /v1/steps"},
		{"dlq list", "no entries"},
		{"dlq queue", "no entries"},
		{"dlq stats", "the dead letter queue is empty"},
		{"dlq close --over", "has no POST /v1/actions"},
		{"template list", "tools/shapes@1.0.0"},
		{"template show tools/shapes", "tools.converge"},
		{"template graph tools/shapes", "after chosen, ignored"},
		{"analytics performance", "total tasks"},
		{"analytics bottlenecks", "TEMPLATE"},
		{"failures", "has no GET /v1/analytics/failures"},
		{"find nothing", "has no search"},
		{"health", "healthy"},
		{"task create tools/nope", "there is no template tools/nope"},
		{"task create tools/shapes --context {\"order\":2} --wait=1m", "complete"},
		{"task create tools/shapes --context {\"order\":2}", "already exists"},
	} {
		_, stdout, stderr := runProgram(t, nil, append(strings.Fields(tt.command), "--url", r.OrchestrationURL)...)
		if !strings.Contains(stdout+stderr, tt.want) {
			t.Errorf("%s: got\n%s%s\nwant %q", tt.command, stdout, stderr, tt.want)
		}
	}
	wire.Eventually(t, "the task to be cancelled", func() bool { // it is refused there while an attempt ends
		runProgram(t, nil, "task", "cancel", waits, "--url", r.OrchestrationURL)
		_, stdout, _ := runProgram(t, nil, "task", "show", waits, "--url", r.OrchestrationURL)
		return strings.Contains(stdout, "cancelled")
	})
}
