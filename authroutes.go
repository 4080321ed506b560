package main

// Which routes ask for which permission, as "auth show-permissions" prints it.

// askedBy lists, by permission, the routes that ask for it: method and path,
// with /mount for the path of the mount point.
var askedBy = [permissionCount][]string{
	permTasksCreate: {"POST /v1/tasks", "POST /mount/tasks"},
	permTasksRead: {
		"GET /v1/tasks/{uuid}", "GET /v1/tasks/{uuid}/summary", "GET /mount/tasks/{id}",
	},
	permTasksList:        {"GET /v1/tasks", "GET /mount/tasks"},
	permTasksCancel:      {"DELETE /v1/tasks/{uuid}", "DELETE /mount/tasks/{id}"},
	permTasksContextRead: {"GET /v1/tasks/{uuid}/context", "a task's context wherever it appears"},
	permStepsRead: {
		"GET /v1/tasks/{uuid}/workflow_steps", "GET /v1/tasks/{uuid}/workflow_steps/{step_uuid}",
		"GET /v1/tasks/{uuid}/workflow_steps/{step_uuid}/audit",
		"GET /mount/tasks/{task_id}/workflow_steps", "GET /mount/tasks/{task_id}/workflow_steps/{step_id}",
	},
	permStepsResolve: {
		"PATCH /v1/tasks/{uuid}/workflow_steps/{step_uuid}",
		"PATCH /mount/tasks/{task_id}/workflow_steps/{step_id}",
		"DELETE /mount/tasks/{task_id}/workflow_steps/{step_id}",
	},
	permDLQRead: {
		"GET /v1/dlq", "GET /v1/dlq/task/{task_uuid}", "GET /v1/dlq/investigation-queue", "GET /v1/dlq/staleness",
	},
	permDLQUpdate: {"PATCH /v1/dlq/entry/{dlq_entry_uuid}"},
	permDLQStats:  {"GET /v1/dlq/stats"},
	permTemplatesRead: {
		"GET /v1/templates", "GET /v1/templates/{namespace}/{name}/{version}",
	},
	permTemplatesValidate: {"POST /v1/templates/{namespace}/{name}/{version}/validate (worker)"},
	permSystemConfigRead:  {"GET /config"},
	permSystemHandlersRead: {
		"GET /v1/templates (or templates:read)",
		"GET /v1/templates/{namespace}/{name}/{version} (or templates:read)",
		"GET /mount/handlers", "GET /mount/handlers/{namespace}", "GET /mount/handlers/{namespace}/{name}",
	},
	permSystemAnalyticsRead: {
		"GET /v1/analytics/performance", "GET /v1/analytics/bottlenecks",
		"GET /mount/analytics/performance", "GET /mount/analytics/bottlenecks",
		"GET /mount/health/status (when mount.status_requires_auth)",
		"GET /mount/metrics (when mount.metrics_require_auth)",
	},
	permWorkerConfigRead: {"GET /config (worker)"},
	permWorkerTemplatesRead: {
		"GET /v1/templates (worker)", "GET /v1/templates/{namespace}/{name}/{version} (worker)",
	},
}
