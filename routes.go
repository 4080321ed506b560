package main

// The route tables: every path of every surface, the permission it asks for,
// and the method behind it. No logic.

import "strings"

// route is one row. Permissions are alternatives; none means public.
type route struct {
	pattern     string // a pattern of net/http's ServeMux
	permissions []permission
	handle      handlerFunc
}

// patterns is where the row answers: under /api/v1 too when it is under /v1.
func (r route) patterns() []string {
	method, path, _ := strings.Cut(r.pattern, " ")
	if strings.HasPrefix(path, "/v1/") {
		return []string{r.pattern, method + " /api" + path}
	}
	return []string{r.pattern}
}

func needs(p ...permission) []permission { return p }

var public []permission

func (a *orchestrationAPI) routes() []route {
	return []route{
		{"POST /v1/tasks", needs(permTasksCreate), a.createTask},
		{"GET /v1/tasks", needs(permTasksList), a.listTasks},
		{"GET /v1/tasks/{task_uuid}", needs(permTasksRead), a.getTask},
		{"DELETE /v1/tasks/{task_uuid}", needs(permTasksCancel), a.cancelTask},
		{"GET /v1/tasks/{task_uuid}/context", needs(permTasksContextRead), a.getContext},
		{"GET /v1/tasks/{task_uuid}/transitions", needs(permTasksRead), a.getTransitions},
		{"GET /v1/tasks/{task_uuid}/workflow_steps", needs(permStepsRead), a.listSteps},
		{"GET /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}", needs(permStepsRead), a.getStep},
		{"GET /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}/audit", needs(permStepsRead), a.getAudit},
		{"PATCH /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}", needs(permStepsResolve), a.actOnStep},
		{"GET /v1/tasks/{task_uuid}/summary", needs(permTasksRead), a.getSummary},
		{"GET /v1/dlq", needs(permDLQRead), a.listDLQ},
		{"GET /v1/dlq/task/{task_uuid}", needs(permDLQRead), a.getTaskDLQ},
		{"GET /v1/dlq/investigation-queue", needs(permDLQRead), a.dlqQueue},
		{"GET /v1/dlq/staleness", needs(permDLQRead), a.staleness},
		{"PATCH /v1/dlq/entry/{dlq_entry_uuid}", needs(permDLQUpdate), a.updateDLQ},
		{"GET /v1/dlq/stats", needs(permDLQStats), a.dlqStats},
		{"GET /v1/templates", needs(permTemplatesRead, permSystemHandlersRead), a.listTemplates},
		{"GET /v1/templates/{namespace}/{name}/{version}", needs(permTemplatesRead, permSystemHandlersRead), a.getTemplate},
		{"GET /health", public, a.health},
		{"GET /health/live", public, a.healthLive},
		{"GET /health/ready", public, a.healthReady},
		{"GET /metrics", public, a.metrics},
		{"GET /api-docs/openapi.json", public, a.openAPI},
		{"GET /{$}", public, a.links},
	}
}

func (a *workerAPI) routes() []route {
	return []route{
		{"GET /health", public, a.health},
		{"GET /health/live", public, a.healthLive},
		{"GET /health/ready", public, a.healthReady},
		{"GET /metrics", public, a.metrics},
		{"GET /api-docs/openapi.json", public, a.openAPI},
	}
}
