package main

// The surfaces family: the three HTTP APIs. Each reads requests, calls the service and returns views of the result; the
// rules of tasks are below. A surface knows the server, the service and all that is below them; it does not know
// fixture mode or the command line.
//
//	routes.go                the tables of routes, and the gates of listeners
//	orchestration.go         the orchestration role: tasks, steps, templates, bottlenecks, GET /config, dead letters (DLQ)
//	orchestration_lists.go   listing tasks, finding anything
//	orchestration_bulk.go    bulk actions
//	orchestration_outside.go outside actors: claims and leases
//	orchestration_events.go  the event stream, deliveries
//	worker.go                the worker role: templates, how they are validated, metrics
//	console.go               the console
//	mount.go                 the mount point: links, errors; its health, metrics
//	mount_handlers.go        its handlers
//	mount_tasks.go           its tasks, steps
//	mount_analytics.go       its analytics: performance, bottlenecks

import "strings"

// routes returns the rows of the orchestration role, which answer under /v1 and under /api/v1.
func (a *orchestrationAPI) routes() []route {
	return append([]route{
		{"POST /v1/tasks", needs(permTasksCreate), a.createTask},
		{"POST /v1/tasks/{task_uuid}/again", needs(permTasksCreate), a.repeatTask},
		{"GET /v1/tasks", needs(permTasksList), a.listTasks},
		{"GET /v1/tasks/{task_uuid}", needs(permTasksRead), a.getTask},
		{"DELETE /v1/tasks/{task_uuid}", needs(permTasksCancel), a.cancelTask},
		{"GET /v1/tasks/{task_uuid}/context", needs(permTasksContextRead), a.getContext},
		{"GET /v1/tasks/{task_uuid}/template", everything, a.getDefinition},
		{"GET /v1/tasks/{task_uuid}/transitions", needs(permTasksRead), a.getTransitions},
		{"GET /v1/tasks/{task_uuid}/explain", needs(permTasksRead), a.explainTask},
		{"GET /v1/tasks/{task_uuid}/workflow_steps", needs(permStepsRead), a.listSteps},
		{"GET /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}", needs(permStepsRead), a.getStep},
		{"GET /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}/audit", needs(permStepsRead), a.getAudit},
		{"PATCH /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}", needs(permStepsResolve), a.actOnStep},
		{"GET /v1/tasks/{task_uuid}/summary", needs(permTasksRead), a.getSummary},
		{"POST /v1/actions", needs(permStepsResolve, permTasksCancel, permDLQUpdate), a.actOnMany},
		{"GET /v1/steps", needs(permStepsRead), a.listOutsideSteps},
		{"POST /v1/steps/claim", needs(permStepsResolve), a.claimSteps},
		{"POST /v1/steps/{step_uuid}/extend", needs(permStepsResolve), a.extendLease},
		{"POST /v1/steps/{step_uuid}/complete", needs(permStepsResolve), a.answerOne(completeVerb)},
		{"POST /v1/steps/{step_uuid}/fail", needs(permStepsResolve), a.answerOne(failVerb)},
		{"POST /v1/steps/{step_uuid}/checkpoint", needs(permStepsResolve), a.answerOne(yieldVerb)},
		{"GET /v1/audit", needs(permTasksList), a.listActs},
		{"GET /v1/find", needs(permTasksList), a.find},
		{"GET /v1/events", needs(permTasksList), a.streamEvents},
		{"GET /v1/events/deliveries", needs(permDLQRead), a.listDeliveries},
		{"POST /v1/events/deliveries/{id}/resend", needs(permDLQUpdate), a.resendDelivery},
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
		{"GET /v1/analytics/history", needs(permSystemAnalyticsRead), a.history},
		{"GET /v1/analytics/failures", needs(permSystemAnalyticsRead), a.failures},
		{"GET /v1/auth/permissions", anyCaller, a.surface.callerPermissions},
		{"GET /v1/backup", everything, a.surface.sendState},
		{configRoute, needs(permSystemConfigRead), a.config},
		{"GET /health", public, a.aliveAs("healthy")},
		{"GET /health/live", public, a.aliveAs("alive")},
		{"GET /health/ready", public, a.healthReady},
		{"GET /health/detailed", public, a.healthDetailed},
		{"GET /metrics", public, a.surface.metrics},
		{"GET /{$}", public, a.links},
		{"GET /console", public, a.consolePage},
		{"GET /console/{page...}", public, a.consolePage},
		{"GET /console/web/{build}/{file}", public, a.consoleFile},
	}, a.surface.docsRoutes()...)
}

// routes returns the rows of the worker role.
func (a *workerAPI) routes() []route {
	return append([]route{
		{"GET /v1/templates", needs(permWorkerTemplatesRead), a.listTemplates},
		{"GET /v1/templates/{namespace}/{name}/{version}", needs(permWorkerTemplatesRead), a.getTemplate},
		{"POST /v1/templates/{namespace}/{name}/{version}/validate", needs(permTemplatesValidate), a.validateTemplate},
		{"GET /v1/auth/permissions", anyCaller, a.callerPermissions},
		{configRoute, needs(permWorkerConfigRead), a.config},
		{"GET /health", public, a.aliveAs("healthy")},
		{"GET /health/live", public, a.aliveAs("alive")},
		{"GET /health/ready", public, a.healthReady},
		{"GET /health/detailed", public, a.healthDetailed},
		{"GET /metrics", public, a.metrics},
		{"GET /metrics/worker", public, a.metricsJSON},
		{"GET /metrics/events", public, a.metricsEvents},
		{"GET /{$}", public, a.links},
	}, a.docsRoutes()...)
}

// routes returns the rows of the mount-point API, relative to mount.path.
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
		{mountMetricsRoute, public, a.surface.metrics},
		{"GET /{$}", public, a.links},
	}, a.surface.docsRoutes()...)
}

// gates are the handlers of the two listeners.
type gates struct {
	orchestration, worker gate
	connections           *connections

	shared *surfaceCache // shared by the surfaces of all services; nil to share nothing
}

// open lets the listeners serve the surfaces of a service.
func (g *gates) open(s *service) {
	if s.cfg.Role != "worker" {
		g.orchestration.open(newOrchestrationAPI(s, g.shared))
	}
	if s.cfg.Role != "orchestration" {
		g.worker.open(newWorkerAPI(s, g.shared))
	}
}

// surfaceRoutes is the route table of one surface.
type surfaceRoutes struct {
	surface string
	routes  []route
}

// allRoutes returns the tables of all surfaces, to be read only: their handlers have no service.
func allRoutes() []surfaceRoutes {
	return []surfaceRoutes{
		{"orchestration", (&orchestrationAPI{}).routes()},
		{"worker", (&workerAPI{}).routes()},
		{"mount", (&mountAPI{}).routes()},
	}
}

// askedBy lists, by permission, the routes that require it: method and path, other
// permissions that suffice or are needed too, and the surface unless it is the orchestration role's.
func askedBy() (asked [permissionCount][]string) {
	for _, table := range allRoutes() {
		for _, row := range table.routes {
			for _, p := range row.permissions {
				asked[p] = append(asked[p], describeRoute(table.surface, row, p))
			}
		}
	}
	asked[permTasksContextRead] = append(asked[permTasksContextRead], "a task's context wherever it appears")
	return asked
}

// describeRoute describes a row to the holder of p.
func describeRoute(surface string, row route, p permission) string {
	text := row.pattern
	if surface != "orchestration" {
		text += " (" + surface + ")"
	}
	if row.needsAll() {
		return text + " (with all other permissions)"
	}
	var others []string
	for _, other := range row.permissions {
		if other != p {
			others = append(others, other.String())
		}
	}
	if len(others) > 0 {
		text += " (or " + strings.Join(others, ", ") + ")"
	}
	return text
}
