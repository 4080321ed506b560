package main

// The route tables: every path of every surface, the permission it asks for,
// and the method behind it. No logic.

import (
	"slices"
	"strings"
)

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
	return append([]route{
		{"POST /v1/tasks", needs(permTasksCreate), a.createTask},
		{"GET /v1/tasks", needs(permTasksList), a.listTasks},
		{"GET /v1/tasks/{task_uuid}", needs(permTasksRead), a.getTask},
		{"DELETE /v1/tasks/{task_uuid}", needs(permTasksCancel), a.cancelTask},
		{"GET /v1/tasks/{task_uuid}/context", needs(permTasksContextRead), a.getContext},
		{"GET /v1/tasks/{task_uuid}/transitions", needs(permTasksRead), a.getTransitions},
		{"GET /v1/tasks/{task_uuid}/explain", needs(permTasksRead), a.explainTask},
		{"GET /v1/tasks/{task_uuid}/workflow_steps", needs(permStepsRead), a.listSteps},
		{"GET /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}", needs(permStepsRead), a.getStep},
		{"GET /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}/audit", needs(permStepsRead), a.getAudit},
		{"PATCH /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}", needs(permStepsResolve), a.actOnStep},
		{"GET /v1/tasks/{task_uuid}/summary", needs(permTasksRead), a.getSummary},
		{"GET /v1/steps", needs(permStepsRead), a.listOutsideSteps},
		{"POST /v1/steps/claim", needs(permStepsResolve), a.claimSteps},
		{"POST /v1/steps/{step_uuid}/extend", needs(permStepsResolve), a.extendLease},
		{"POST /v1/steps/{step_uuid}/complete", needs(permStepsResolve), a.completeClaimed},
		{"POST /v1/steps/{step_uuid}/fail", needs(permStepsResolve), a.failClaimed},
		{"GET /v1/events", needs(permTasksList), a.streamEvents},
		{"GET /v1/dlq", needs(permDLQRead), a.listDLQ},
		{"GET /v1/dlq/task/{task_uuid}", needs(permDLQRead), a.getTaskDLQ},
		{"GET /v1/dlq/investigation-queue", needs(permDLQRead), a.dlqQueue},
		{"GET /v1/dlq/staleness", needs(permDLQRead), a.staleness},
		{"PATCH /v1/dlq/entry/{dlq_entry_uuid}", needs(permDLQUpdate), a.updateDLQ},
		{"GET /v1/dlq/stats", needs(permDLQStats), a.dlqStats},
		{"GET /v1/templates", needs(permTemplatesRead, permSystemHandlersRead), a.listTemplates},
		{"GET /v1/templates/{namespace}/{name}/{version}", needs(permTemplatesRead, permSystemHandlersRead), a.getTemplate},
		{"GET /v1/analytics/performance", needs(permSystemAnalyticsRead), a.performance},
		{"GET /v1/analytics/bottlenecks", needs(permSystemAnalyticsRead), a.bottlenecks},
		{configRoute, needs(permSystemConfigRead), a.config},
		{"GET /health", public, a.health},
		{"GET /health/live", public, a.healthLive},
		{"GET /health/ready", public, a.healthReady},
		{"GET /health/detailed", public, a.healthDetailed},
		{"GET /metrics", public, a.metrics},
		{"GET /{$}", public, a.links},
	}, a.docsRoutes()...)
}

func (a *workerAPI) routes() []route {
	return append([]route{
		{"GET /v1/templates", needs(permWorkerTemplatesRead), a.listTemplates},
		{"GET /v1/templates/{namespace}/{name}/{version}", needs(permWorkerTemplatesRead), a.getTemplate},
		{"POST /v1/templates/{namespace}/{name}/{version}/validate", needs(permTemplatesValidate), a.validateTemplate},
		{configRoute, needs(permWorkerConfigRead), a.config},
		{"GET /health", public, a.health},
		{"GET /health/live", public, a.healthLive},
		{"GET /health/ready", public, a.healthReady},
		{"GET /health/detailed", public, a.healthDetailed},
		{"GET /metrics", public, a.metrics},
		{"GET /metrics/worker", public, a.metricsJSON},
		{"GET /metrics/events", public, a.metricsEvents},
	}, a.docsRoutes()...)
}

// routes of the control API, which is there in fixture mode alone.
func (a *controlAPI) routes() []route {
	return []route{
		{"POST /_stepwell/reset", everything, a.reset},
		{"GET /_stepwell/clock", everything, a.getClock},
		{"POST /_stepwell/clock", everything, a.changeClock},
		{"POST /_stepwell/wait-idle", everything, a.waitIdle},
	}
}

// everything is asked for by the control API: each permission, not one of them.
var everything = everyPermission.list()

// The rows of the mount-point API, relative to its prefix.
func (a *mountAPI) routes() []route {
	return append([]route{
		{"GET /handlers", needs(permSystemHandlersRead), a.listNamespaces},
		{"GET /handlers/{namespace}", needs(permSystemHandlersRead), a.listHandlers},
		{"GET /handlers/{namespace}/{name}", needs(permSystemHandlersRead), a.getHandler},
		{"POST /tasks", needs(permTasksCreate), a.createTask},
		{"GET /tasks", needs(permTasksList), a.listTasks},
		{"GET /tasks/{id}", needs(permTasksRead), a.getTask},
		{"GET /tasks/{id}/explain", needs(permTasksRead), a.explainTask},
		{"DELETE /tasks/{id}", needs(permTasksCancel), a.cancelTask},
		{"GET /tasks/{task_id}/workflow_steps", needs(permStepsRead), a.listSteps},
		{"GET /tasks/{task_id}/workflow_steps/{step_id}", needs(permStepsRead), a.getStep},
		{"PATCH /tasks/{task_id}/workflow_steps/{step_id}", needs(permStepsResolve), a.adjustStep},
		{"DELETE /tasks/{task_id}/workflow_steps/{step_id}", needs(permStepsResolve), a.cancelStep},
		{"GET /analytics/performance", needs(permSystemAnalyticsRead), a.performance},
		{"GET /analytics/bottlenecks", needs(permSystemAnalyticsRead), a.bottlenecks},
		{"GET /health/ready", public, a.healthReady},
		{"GET /health/live", public, a.healthLive},
		{mountStatusRoute, public, a.healthStatus},
		{mountMetricsRoute, public, a.metrics},
	}, a.docsRoutesWith(a.document)...)
}

// The rows that [mount] can put behind a permission.
const (
	mountStatusRoute  = "GET /health/status"
	mountMetricsRoute = "GET /metrics"
)

// configRoute is the row that each role's config_endpoint_enabled switches.
const configRoute = "GET /config"

// enabled are the rows that the configuration of a role leaves on. A row that is
// off is as unknown as any other path, to everybody.
func (c *roleWebConfig) enabled(rows []route) []route {
	if c.ConfigEndpointEnabled {
		return rows
	}
	return slices.DeleteFunc(rows, func(r route) bool { return r.pattern == configRoute })
}

// controlPath is where the control API of fixture mode stands.
const controlPath = "/_stepwell"
