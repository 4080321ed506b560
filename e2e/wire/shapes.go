package wire

// The shapes of the responses as the contract states them, and the strict
// check of a body against them: what clients written in stricter languages
// would refuse, a test refuses. The words of the contract are the tables.

// Shapes says for each object which members it must have and what each of
// them is. A kind is one or more alternatives joined by "|":
//
//	uuid uuid7 uuid8        a UUID in lower case; of that version
//	zoned naive             a timestamp with exactly six fractional digits, with and without Z
//	int number              a number written without fraction and exponent; any number
//	string bool object null a value of that type
//	any                     a value of any type
//	'word'                  that string
//	[kind]                  a list of kind
//	Name                    an entry of this table, or of Words
//
// A trailing "?" lets the member be left out. Members that are not named are
// nobody's business.
var Shapes = map[string]map[string]string{
	"Task": {
		"task_uuid": "uuid7", "name": "string", "namespace": "string", "version": "string",
		"status": "TaskState", "created_at": "zoned", "updated_at": "zoned", "completed_at": "zoned|null",
		"context": "object", "initiator": "string", "source_system": "string", "reason": "string",
		"priority": "int", "tags": "[string]", "correlation_id": "uuid", "parent_correlation_id": "uuid|null",
		"total_steps": "int", "pending_steps": "int", "in_progress_steps": "int", "completed_steps": "int",
		"failed_steps": "int", "ready_steps": "int", "execution_status": "ExecutionStatus",
		"recommended_action": "RecommendedAction", "completion_percentage": "number",
		"health_status": "HealthStatus", "steps": "[Readiness]", "context_redacted": "bool?",
	},
	"Readiness": {
		"workflow_step_uuid": "uuid7", "task_uuid": "uuid7", "named_step_uuid": "uuid8", "name": "string",
		"current_state": "StepState", "dependencies_satisfied": "bool", "retry_eligible": "bool",
		"ready_for_execution": "bool", "last_failure_at": "naive|null", "next_retry_at": "naive|null",
		"total_parents": "int", "completed_parents": "int", "attempts": "int", "max_attempts": "int",
		"backoff_request_seconds": "int|null", "last_attempted_at": "naive|null",
	},
	"TaskList": {"tasks": "[Task]", "pagination": "Pagination"},
	"Pagination": {
		"page": "int", "per_page": "int", "total_count": "int", "total_pages": "int", "has_next": "bool",
		"has_previous": "bool",
	},
	"Performance": {
		"total_tasks": "int", "active_tasks": "int", "completed_tasks": "int", "failed_tasks": "int",
		"completion_rate": "number", "error_rate": "number", "average_task_duration_seconds": "number",
		"average_step_duration_seconds": "number", "tasks_per_hour": "int", "steps_per_hour": "int",
		"system_health_score": "number", "analysis_period_start": "zoned", "calculated_at": "zoned",
	},
	"Bottlenecks": {
		"slow_steps": "[SlowStep]", "slow_tasks": "[SlowTask]", "resource_utilization": "ResourceUtilization",
		"recommendations": "[string]",
	},
	"SlowStep": {
		"namespace_name": "string", "task_name": "string", "version": "string", "step_name": "string",
		"average_duration_seconds": "number", "max_duration_seconds": "number", "execution_count": "int",
		"error_count": "int", "error_rate": "number", "last_executed_at": "zoned",
	},
	"SlowTask": {
		"namespace_name": "string", "task_name": "string", "version": "string",
		"average_duration_seconds": "number", "max_duration_seconds": "number", "execution_count": "int",
		"average_step_count": "number", "error_count": "int", "error_rate": "number", "last_executed_at": "zoned",
	},
	"ResourceUtilization": {"database_pool_utilization": "number", "system_health": "SystemHealth"},
	"SystemHealth": {
		"pending_tasks": "int", "initializing_tasks": "int", "enqueuing_steps_tasks": "int",
		"steps_in_process_tasks": "int", "evaluating_results_tasks": "int", "waiting_for_dependencies_tasks": "int",
		"waiting_for_retry_tasks": "int", "blocked_by_failures_tasks": "int", "complete_tasks": "int",
		"error_tasks": "int", "cancelled_tasks": "int", "resolved_manually_tasks": "int",
		"total_tasks": "int", "pending_steps": "int", "enqueued_steps": "int",
		"in_progress_steps": "int", "enqueued_for_orchestration_steps": "int", "enqueued_as_error_for_orchestration_steps": "int",
		"waiting_for_retry_steps": "int", "complete_steps": "int", "error_steps": "int",
		"cancelled_steps": "int", "resolved_manually_steps": "int", "total_steps": "int",
	},
	"TaskContext": {"task_uuid": "uuid7", "context": "object"},
	"Step": {
		"step_uuid": "uuid7", "task_uuid": "uuid7", "name": "string", "created_at": "zoned",
		"updated_at": "zoned", "completed_at": "zoned|null", "results": "StepResults|null",
		"current_state": "StepState", "dependencies_satisfied": "bool", "retry_eligible": "bool",
		"ready_for_execution": "bool", "total_parents": "int", "completed_parents": "int", "attempts": "int",
		"max_attempts": "int", "last_failure_at": "zoned|null", "next_retry_at": "zoned|null",
		"last_attempted_at": "zoned|null",
	},
	"OutsideStep": {
		"step_uuid": "uuid7", "task_uuid": "uuid7", "name": "string", "created_at": "zoned",
		"updated_at": "zoned", "completed_at": "zoned|null", "results": "StepResults|null",
		"current_state": "StepState", "dependencies_satisfied": "bool", "retry_eligible": "bool",
		"ready_for_execution": "bool", "total_parents": "int", "completed_parents": "int", "attempts": "int",
		"max_attempts": "int", "last_failure_at": "zoned|null", "next_retry_at": "zoned|null",
		"last_attempted_at": "zoned|null",
		"namespace":         "string", "task_name": "string", "callable": "string", "priority": "int",
		"worker_id": "string?", "lease_expires_at": "zoned?",
	},
	"ClaimedStep": {
		"task": "EnvelopeTask", "step": "EnvelopeStep", "dependency_results": "object", "callable": "string",
		"lease": "string", "lease_expires_at": "zoned",
	},
	"EnvelopeTask": {
		"task_uuid": "uuid7", "namespace": "string", "name": "string", "version": "string",
		"correlation_id": "uuid", "context": "object",
	},
	"EnvelopeStep": {
		"step_uuid": "uuid7", "name": "string", "attempt": "int", "max_attempts": "int", "timeout_seconds": "int",
		"config": "object", "inputs": "object",
	},
	"Lease": {"step_uuid": "uuid7", "lease_expires_at": "zoned"},
	"StepResults": {
		"step_uuid": "uuid7", "success": "bool", "result": "any", "metadata": "StepMetadata",
		"status": "StepResultStatus", "error": "StepError|null",
	},
	"StepMetadata": {"execution_time_ms": "int", "worker_id": "string", "completed_at": "zoned"},
	"StepError": {
		"message": "string", "error_type": "string", "retryable": "bool", "status_code": "int|null",
		"context": "object|null",
	},
	"Audit": {
		"audit_uuid": "uuid7", "workflow_step_uuid": "uuid7", "transition_uuid": "uuid7",
		"task_uuid": "uuid7", "recorded_at": "zoned", "worker_uuid": "uuid?", "correlation_id": "uuid?",
		"success": "bool", "execution_time_ms": "int?", "result": "StepResults?", "step_name": "string",
		"from_state": "StepState?", "to_state": "StepState", "subject": "string?",
	},
	"Explanation": {"task_uuid": "uuid7", "status": "TaskState", "message": "string", "steps": "[StepExplanation]"},
	"StepExplanation": {
		"step_uuid": "uuid7", "name": "string", "current_state": "StepState", "cause": "StepCause", "message": "string",
		"waits_for": "[string]", "actions": "[string]", "since": "zoned|null", "due_at": "zoned|null",
		"attempt": "int", "max_attempts": "int", "callable": "string",
	},
	"Transitions": {"task_uuid": "uuid7", "transitions": "[Transition]"},
	"Transition": {
		"sequence": "int", "recorded_at": "zoned", "step_uuid": "uuid7|null", "step_name": "string|null",
		"from_state": "TaskState|StepState|null", "to_state": "TaskState|StepState", "attempt": "int?",
	},
	"Summary": {
		"task": "SummaryTask", "template": "SummaryTemplate", "steps": "[SummaryStep]", "dlq": "SummaryDLQ",
		"links": "SummaryLinks",
	},
	"SummaryTask": {
		"task_uuid": "uuid7", "name": "string", "namespace": "string", "version": "string",
		"status": "TaskState", "created_at": "zoned", "updated_at": "zoned", "completed_at": "zoned|null",
		"initiator": "string", "source_system": "string", "reason": "string", "correlation_id": "uuid",
		"total_steps": "int", "pending_steps": "int", "in_progress_steps": "int", "completed_steps": "int",
		"failed_steps": "int", "completion_percentage": "number", "health_status": "HealthStatus",
		"execution_status": "ExecutionStatus", "recommended_action": "RecommendedAction",
	},
	"SummaryTemplate": {"steps": "[SummaryTemplateStep]"},
	"SummaryTemplateStep": {
		"name": "string", "step_type": "StepType", "handler": "string", "dependencies": "[string]",
		"retryable": "bool", "max_attempts": "int",
	},
	"SummaryStep": {
		"step_uuid": "uuid7", "name": "string", "current_state": "StepState", "created_at": "zoned",
		"completed_at": "zoned|null", "last_attempted_at": "zoned|null", "attempts": "int",
		"max_attempts": "int", "dependencies_satisfied": "bool", "retry_eligible": "bool",
		"error": "SummaryError|null",
	},
	"SummaryError": {"error_type": "string", "retryable": "bool", "status_code": "int|null"},
	"SummaryDLQ": {
		"in_dlq": "bool", "dlq_reason": "DLQReasonWord|null", "resolution_status": "DLQStatusWord|null",
	},
	"SummaryLinks": {"task": "string", "steps": "string", "dlq": "string"},
	"DLQEntry": {
		"dlq_entry_uuid": "uuid7", "task_uuid": "uuid7", "original_state": "TaskState",
		"dlq_reason": "DLQReason", "dlq_timestamp": "naive", "resolution_status": "DLQStatus",
		"resolution_timestamp": "naive|null", "resolution_notes": "string|null", "resolved_by": "string|null",
		"task_snapshot": "TaskSnapshot", "metadata": "object|null", "created_at": "naive",
		"updated_at": "naive",
	},
	"DLQTask": {
		"dlq_entry_uuid": "uuid7", "task_uuid": "uuid7", "original_state": "TaskState",
		"dlq_reason": "DLQReason", "dlq_timestamp": "naive", "resolution_status": "DLQStatus",
		"resolution_timestamp": "naive|null", "resolution_notes": "string|null", "resolved_by": "string|null",
		"task_snapshot": "TaskSnapshot", "metadata": "object|null", "created_at": "naive",
		"updated_at": "naive", "entries": "[DLQEntry]",
	},
	"TaskSnapshot": {
		"task_uuid": "uuid7", "namespace": "string", "task_name": "string", "current_state": "TaskState",
		"time_in_state_minutes": "int", "threshold_minutes": "int", "snapshot_timestamp": "naive",
		"task_details": "TaskDetails", "steps": "[StepSnapshot]",
	},
	"TaskDetails": { // what the contract leaves open, as StepSnapshot
		"version": "string", "priority": "int", "initiator": "string", "source_system": "string",
		"reason": "string", "tags": "[string]", "correlation_id": "uuid", "created_at": "naive",
		"total_steps": "int", "pending_steps": "int", "in_progress_steps": "int", "completed_steps": "int",
		"failed_steps": "int", "completion_percentage": "number", "health_status": "HealthStatus",
		"execution_status": "ExecutionStatus",
	},
	"StepSnapshot": {
		"step_uuid": "uuid7", "name": "string", "current_state": "StepState", "attempts": "int",
		"max_attempts": "int", "last_attempted_at": "naive|null", "last_failure_at": "naive|null",
		"next_retry_at": "naive|null", "completed_at": "naive|null", "error": "SnapshotError|null",
	},
	"SnapshotError": {
		"message": "string", "error_type": "string", "retryable": "bool", "status_code": "int|null",
	},
	"QueueEntry": {
		"dlq_entry_uuid": "uuid7", "task_uuid": "uuid7", "original_state": "TaskState",
		"dlq_reason": "DLQReason", "dlq_timestamp": "naive", "minutes_in_dlq": "number",
		"namespace_name": "string", "task_name": "string", "current_state": "TaskState",
		"time_in_state_minutes": "int", "priority_score": "number",
	},
	"Staleness": {
		"task_uuid": "uuid7", "namespace_name": "string", "task_name": "string",
		"current_state": "TaskState", "time_in_state_minutes": "int", "task_age_minutes": "int",
		"staleness_threshold_minutes": "int", "health_status": "StalenessHealth", "priority": "int",
	},
	"DLQUpdated": {"success": "bool", "message": "string", "dlq_entry_uuid": "uuid7"},
	"DLQStats": {
		"dlq_reason": "DLQReason", "total_entries": "int", "pending": "int", "manually_resolved": "int",
		"permanent_failures": "int", "cancelled": "int", "oldest_entry": "naive|null",
		"newest_entry": "naive|null", "avg_resolution_time_minutes": "number",
	},
	"TemplateList": {
		"namespaces": "[TemplateNamespace]", "templates": "[TemplateEntry]", "total_count": "int",
	},
	"TemplateNamespace": {"name": "string", "description": "string|null", "template_count": "int"},
	"TemplateEntry": {
		"name": "string", "namespace": "string", "version": "string", "description": "string|null",
		"step_count": "int",
	},
	"TemplateDetail": {
		"name": "string", "namespace": "string", "version": "string", "description": "string|null",
		"configuration": "object|null", "steps": "[TemplateStep]",
	},
	"TemplateStep": {
		"name": "string", "description": "string|null", "default_retryable": "bool",
		"default_max_attempts": "int", "result_schema": "object|null?", "dependencies": "[string]",
		"handler": "object", "type": "StepType",
	},
	"Health":     {"status": "'healthy'", "timestamp": "zoned"},
	"HealthLive": {"status": "'alive'", "timestamp": "zoned"},
	"HealthReady": {
		"status": "ReadyStatus", "timestamp": "zoned", "checks": "HealthChecks", "info": "HealthInfo",
	},
	"HealthChecks": {
		"web_database": "HealthCheck", "orchestration_database": "HealthCheck",
		"circuit_breaker": "HealthCheck", "orchestration_system": "HealthCheck",
		"command_processor": "HealthCheck", "authentication": "HealthCheck?",
	},
	"HealthCheck": {"status": "CheckStatus", "message": "string", "duration_ms": "int"},
	"HealthInfo": {
		"version": "string", "environment": "string", "operational_state": "OperationalState",
		"web_database_pool_size": "int", "orchestration_database_pool_size": "int",
		"circuit_breaker_state": "CircuitBreakerState",
	},
	"WorkerHealth":     {"status": "'healthy'", "timestamp": "zoned", "worker_id": "string"},
	"WorkerHealthLive": {"status": "'alive'", "timestamp": "zoned", "worker_id": "string"},
	"WorkerHealthReady": {
		"status": "ReadyStatus", "timestamp": "zoned", "worker_id": "string",
		"checks": "WorkerHealthChecks", "system_info": "WorkerSystemInfo",
	},
	"WorkerHealthChecks": {
		"database": "WorkerHealthCheck", "command_processor": "WorkerHealthCheck",
		"queue_processing": "WorkerHealthCheck", "authentication": "WorkerHealthCheck?",
	},
	"WorkerHealthCheck": {
		"status": "CheckStatus", "message": "string", "duration_ms": "int", "last_checked": "zoned",
	},
	"WorkerSystemInfo": {
		"version": "string", "environment": "string", "uptime_seconds": "int", "worker_type": "string",
		"database_pool_size": "int", "command_processor_active": "bool", "supported_namespaces": "[string]",
	},
	"WorkerError": {
		"error": "WorkerErrorCode", "message": "string", "timestamp": "zoned", "request_id": "string",
	},
	"WorkerTemplateList": {
		"supported_namespaces": "[string]", "template_count": "int",
		"cache_stats": "TemplateCacheStats|null", "worker_capabilities": "[string]",
		"templates": "[TemplateEntry]",
	},
	"TemplateCacheStats": {
		"total_cached": "int", "cache_hits": "int", "cache_misses": "int", "cache_evictions": "int",
		"oldest_entry_age_seconds": "int", "average_access_count": "number",
		"supported_namespaces": "[string]",
	},
	"WorkerTemplateDetail": {
		"template": "ResolvedTemplate", "handler_metadata": "HandlerMetadata", "cached": "bool",
		"cache_age_seconds": "int", "access_count": "int",
	},
	"ResolvedTemplate": {"template": "object", "environment": "string", "resolved_at": "zoned"},
	"HandlerMetadata": {
		"namespace": "string", "name": "string", "version": "string", "handler_class": "string",
		"config_schema": "object|null", "default_dependent_system": "string", "registered_at": "zoned",
	},
	"TemplateVerdict": {
		"valid": "bool", "errors": "[string]", "warnings": "[string]",
		"required_capabilities": "[string]", "step_handlers": "[string]",
	},
	"OrchestrationConfig": {
		"metadata": "ConfigMetadata", "auth": "AuthConfig", "circuit_breakers": "CircuitBreakerConfig",
		"database_pools": "DatabasePoolConfig", "deployment_mode": "string",
		"messaging": "MessagingConfig", "config": "object",
	},
	"WorkerConfig": {
		"metadata": "ConfigMetadata", "worker_id": "string", "worker_type": "string",
		"auth": "AuthConfig", "messaging": "MessagingConfig", "config": "object",
	},
	"ConfigMetadata": {"timestamp": "zoned", "environment": "string", "version": "string"},
	"AuthConfig": {
		"enabled": "bool", "verification_method": "string", "jwt_issuer": "string",
		"jwt_audience": "string", "api_key_header": "string", "api_key_count": "int",
		"strict_validation": "bool", "allowed_algorithms": "[string]",
	},
	"CircuitBreakerConfig": {
		"enabled": "bool", "failure_threshold": "int", "timeout_seconds": "int",
		"success_threshold": "int",
	},
	"DatabasePoolConfig": {"web_api_pool_size": "int", "web_api_max_connections": "int"},
	"MessagingConfig":    {"backend": "string", "queues": "[string]"},
	"HealthDetailed": {
		"status": "DetailedStatus", "timestamp": "zoned", "checks": "HealthDetailedChecks",
		"info": "HealthInfo",
	},
	"HealthDetailedChecks": {
		"web_database": "HealthCheck", "orchestration_database": "HealthCheck",
		"circuit_breaker": "HealthCheck", "orchestration_system": "HealthCheck",
		"command_processor": "HealthCheck", "pool_utilization": "HealthCheck",
		"queue_depth": "HealthCheck", "channel_saturation": "HealthCheck", "fixture": "HealthCheck?",
	},
	"WorkerHealthDetailed": {
		"status": "DetailedStatus", "timestamp": "zoned", "worker_id": "string",
		"checks": "WorkerHealthDetailedChecks", "system_info": "WorkerSystemInfo",
	},
	"WorkerHealthDetailedChecks": {
		"database": "WorkerHealthCheck", "command_processor": "WorkerHealthCheck",
		"queue_processing": "WorkerHealthCheck", "event_system": "WorkerHealthCheck",
		"step_processing": "WorkerHealthCheck", "circuit_breakers": "WorkerHealthCheck",
	},
	"WorkerMetrics": {"metrics": "object", "timestamp": "zoned", "worker_id": "string"},
	"WorkerMetric":  {"value": "number", "metric_type": "MetricType", "labels": "object", "help": "string"},
	"WorkerEventMetrics": {
		"router": "EventRouterMetrics", "in_process_bus": "EventBusMetrics", "captured_at": "zoned",
		"worker_id": "string",
	},
	"EventRouterMetrics": {
		"total_routed": "int", "durable_routed": "int", "fast_routed": "int", "broadcast_routed": "int",
		"fast_delivery_errors": "int", "routing_errors": "int",
	},
	"EventBusMetrics": {
		"total_events_dispatched": "int", "rust_handler_dispatches": "int",
		"ffi_channel_dispatches": "int", "rust_handler_errors": "int", "ffi_channel_drops": "int",
		"rust_subscriber_patterns": "int", "rust_handler_count": "int", "ffi_subscriber_count": "int",
	},
	"Error": {"error": "ErrorBody"},
	"ErrorBody": {
		"code": "ErrorCode", "message": "string", "details": "[FieldProblem]?", "request_id": "string",
		"blocking": "[Blocker]?", "seen": "SeenCalls?",
	},
	"Blocker": {
		"reason": "BlockReason", "task_uuid": "uuid?", "step_uuid": "uuid?", "step_name": "string?",
		"handler": "string?", "attempt": "int?", "since": "zoned?",
	},
	"Clock": {"now": "zoned", "mode": "ClockMode", "fired": "int", "next_timer": "zoned|null"},
	"StateDocument": {
		"format": "int", "product": "string", "version": "string", "exported_at": "zoned", "clock": "StateClock?",
		"seq": "int", "dropped": "int", "last_id": "uuid?",
		"templates": "[object]", "analytics": "[object]", "tasks": "[object]",
	},
	"StateClock": {"now": "zoned", "mode": "ClockMode"},
	"Sandbox": {
		"name": "string", "orchestration_url": "string", "worker_url": "string", "mount_url": "string",
	},
	"SandboxList":  {"sandboxes": "[Sandbox]"},
	"FieldProblem": {"field": "string", "message": "string"},

	// The control API.
	"StubList":       {"stubs": "[Stub]"},
	"Stub":           {"id": "string", "match": "object", "outcomes": "[object]", "then": "StubThen", "uses": "int"},
	"Verified":       {"count": "int"},
	"RequestJournal": {"entries": "[JournalEntry]", "total": "int", "dropped": "DroppedEntries"},
	"DroppedEntries": {"requests": "int", "handler_calls": "int"},
	"JournalEntry": {
		"id": "int", "kind": "JournalKind", "at": "zoned",
		"surface": "string?", "method": "string?", "path": "string?", "query": "string?", "status": "int?",
		"duration_ms": "number?", "subject": "string?", "body": "any?", "body_truncated": "bool?",
		"task_uuid": "uuid?", "step_uuid": "uuid?", "namespace": "string?", "name": "string?", "version": "string?",
		"step": "string?", "callable": "string?", "attempt": "int?", "stubbed": "bool?", "stub": "string|null?",
		"fault": "string|null?", "envelope": "object?", "outcome": "object|null?",
	},
	"SeenCalls": {"count": "int", "matched": "[JournalEntry]", "nearest": "[NearMiss]"},
	"NearMiss":  {"entry": "JournalEntry", "differs": "[string]"},

	// The mount-point API.
	"MountNamespaces": {
		"namespaces": "[MountNamespace]", "total_namespaces": "int", "generated_at": "zoned",
	},
	"MountNamespace": {
		"name": "string", "description": "string|null", "handler_count": "int", "handlers": "[string]",
		"metadata": "MountNamespaceMetadata",
	},
	"MountNamespaceMetadata": {
		"versions": "[string]", "version_count": "int", "step_count": "int",
	},
	"MountHandlerList": {
		"namespace": "string", "handlers": "[MountHandlerSummary]", "total_handlers": "int",
	},
	"MountHandlerSummary": {
		"id": "uuid8", "name": "string", "namespace": "string", "version": "string",
		"versions": "[string]", "latest_version": "string", "description": "string|null",
		"step_count": "int", "step_names": "[string]",
	},
	"MountHandler": {
		"id": "uuid8", "name": "string", "namespace": "string", "version": "string",
		"full_name": "string", "description": "string|null", "available": "bool",
		"step_templates": "[MountStepTemplate]", "configuration": "object",
		"dependency_graph": "MountHandlerGraph", "generated_at": "zoned",
	},
	"MountStepTemplate": {
		"name": "string", "description": "string|null", "handler_class": "string",
		"depends_on_step": "string|null", "depends_on_steps": "[string]", "configuration": "object",
		"default_retryable": "bool", "default_retry_limit": "int", "skippable": "bool",
		"custom_events": "[object]",
	},
	"MountHandlerGraph": {
		"nodes": "[string]", "edges": "[MountHandlerEdge]", "execution_order": "[string]",
	},
	"MountHandlerEdge": {
		"from": "string", "to": "string",
	},
	"MountTask": {
		"id": "uuid7", "task_id": "uuid7", "name": "string", "namespace": "string", "version": "string",
		"full_name": "string", "status": "BriefStatus", "state": "TaskState", "context": "object",
		"context_redacted": "bool?", "initiator": "string", "source_system": "string",
		"reason": "string", "tags": "[string]", "priority": "int", "correlation_id": "uuid",
		"complete": "bool", "requested_at": "zoned", "created_at": "zoned", "updated_at": "zoned",
		"completed_at": "zoned|null", "steps": "[MountStep]?", "dependencies": "MountDependencies?",
		"dependency_analysis": "MountDependencyAnalysis?",
	},
	"MountExplanation": {
		"task_uuid": "uuid7", "status": "BriefStatus", "state": "TaskState", "message": "string", "steps": "[StepExplanation]",
	},
	"MountTaskList": {
		"tasks": "[MountTask]", "pagination": "MountPagination",
	},
	"MountPagination": {
		"current_page": "int", "per_page": "int", "total_pages": "int", "total_count": "int",
	},
	"MountStepList": {
		"steps": "[MountStep]",
	},
	"MountStep": {
		"id": "uuid7", "workflow_step_id": "uuid7", "task_id": "uuid7", "name": "string",
		"status": "BriefStatus", "state": "StepState", "attempts": "int", "retry_limit": "int",
		"retryable": "bool", "retry_eligible": "bool", "skippable": "bool", "processed": "bool",
		"in_process": "bool", "backoff_request_seconds": "int|null", "inputs": "object",
		"inputs_redacted": "bool?", "results": "any", "results_redacted": "bool?",
		"started_at": "zoned|null", "completed_at": "zoned|null", "last_attempted_at": "zoned|null",
		"parents_ids": "[uuid]", "children_ids": "[uuid]", "depends_on": "[string]",
	},
	"MountDependencies": {
		"analysis": "string", "ready_steps": "[string]", "blocked_steps": "[string]",
		"completed_steps": "[string]",
	},
	"MountDependencyAnalysis": {
		"dependency_graph": "MountStepGraph", "critical_paths": "MountCriticalPaths",
		"parallelism_opportunities": "MountParallelism", "error_chains": "MountErrorChains",
		"bottlenecks": "MountStepBottlenecks", "task_execution_summary": "MountTaskExecution",
		"analysis_timestamp": "zoned",
	},
	"MountStepGraph": {
		"nodes": "[MountStepNode]", "edges": "[MountStepEdge]", "total_edges": "int",
		"edges_truncated": "bool", "dependency_levels": "object",
	},
	"MountStepNode": {
		"id": "uuid", "name": "string", "level": "int",
	},
	"MountStepEdge": {
		"from": "uuid", "to": "uuid", "from_name": "string", "to_name": "string",
	},
	"MountCriticalPaths": {
		"longest_path_length": "int", "paths": "[MountCriticalPath]",
	},
	"MountCriticalPath": {
		"step_names": "[string]", "length": "int", "completed_steps": "int", "blocked_steps": "int",
		"error_steps": "int", "ready_steps": "int", "completion_percentage": "number",
	},
	"MountParallelism": {
		"total_levels": "int", "max_parallel_steps": "int", "levels": "[MountStepLevel]",
	},
	"MountStepLevel": {
		"level": "int", "total_steps": "int", "ready_steps": "int", "completed_steps": "int",
		"step_names": "[string]",
	},
	"MountErrorChains": {
		"total_error_steps": "int", "error_chains": "[MountErrorChain]",
	},
	"MountErrorChain": {
		"error_step_name": "string", "downstream_steps": "[string]", "total_impact": "int",
	},
	"MountStepBottlenecks": {
		"total_bottlenecks": "int", "bottlenecks": "[MountStepBottleneck]",
	},
	"MountStepBottleneck": {
		"step_name": "string", "current_state": "StepState", "attempts": "int", "retry_limit": "int",
		"impact_score": "number", "severity": "MountSeverity", "bottleneck_type": "MountBottleneckType",
		"resolution_strategy": "string",
	},
	"MountTaskExecution": {
		"total_steps": "int", "total_dependencies": "int", "dependency_levels": "int",
		"longest_path_length": "int", "overall_health": "HealthStatus", "recommendations": "[string]",
	},
	"MountPerformance": {
		"system_overview": "MountSystemOverview", "performance_trends": "MountTrends",
		"telemetry_insights": "MountTelemetry", "generated_at": "zoned", "cache_info": "MountCacheInfo",
	},
	"MountSystemOverview": {
		"active_tasks": "int", "total_namespaces": "int", "unique_task_types": "int",
		"system_health_score": "number",
	},
	"MountTrends": {
		"last_hour": "MountTrend", "last_4_hours": "MountTrend", "last_24_hours": "MountTrend",
	},
	"MountTrend": {
		"task_throughput": "int", "completion_rate": "number", "error_rate": "number",
		"avg_task_duration": "number", "avg_step_duration": "number", "step_throughput": "int",
	},
	"MountTelemetry": {
		"tasks_created": "int", "tasks_completed": "int", "tasks_failed": "int",
		"tasks_cancelled": "int", "steps_created": "int", "steps_completed": "int",
		"steps_failed": "int", "steps_cancelled": "int", "steps_resolved_manually": "int",
		"attempts_ended": "int", "attempts_failed": "int", "retries_ended": "int",
		"retries_succeeded": "int",
	},
	"MountBottlenecks": {
		"scope_summary": "MountScopeSummary", "bottleneck_analysis": "MountBottleneckAnalysis",
		"performance_distribution": "MountDistribution", "recommendations": "[string]",
		"scope": "MountScope", "analysis_period_hours": "int", "analysis_period_start": "zoned",
		"generated_at": "zoned", "cache_info": "MountCacheInfo",
	},
	"MountScopeSummary": {
		"total_tasks": "int", "unique_task_types": "int", "time_span_hours": "int",
	},
	"MountScope": {
		"namespace": "string?", "name": "string?", "version": "string?",
	},
	"MountBottleneckAnalysis": {
		"slowest_tasks": "[SlowTask]", "slowest_steps": "[SlowStep]",
		"error_patterns": "MountErrorPatterns", "dependency_bottlenecks": "MountDependencyBottlenecks",
	},
	"MountErrorPatterns": {
		"total_errors": "int", "recent_error_rate": "number",
		"common_error_types": "[MountErrorTypeCount]", "retry_success_rate": "number",
	},
	"MountErrorTypeCount": {
		"error_type": "string", "count": "int",
	},
	"MountDependencyBottlenecks": {
		"blocking_dependencies": "int", "avg_wait_time": "number",
		"most_blocked_steps": "[MountBlockedStep]",
	},
	"MountBlockedStep": {
		"namespace_name": "string", "task_name": "string", "version": "string", "step_name": "string",
		"average_wait_seconds": "number", "wait_count": "int",
	},
	"MountDistribution": {
		"percentiles": "MountPercentiles", "distribution_buckets": "[MountBucket]",
	},
	"MountPercentiles": {
		"p50": "number", "p95": "number", "p99": "number",
	},
	"MountBucket": {
		"range": "string", "count": "int",
	},
	"MountCacheInfo": {
		"cached": "bool", "cache_key": "string", "ttl_base": "int",
	},
	"MountLinks": {
		"service": "string", "version": "string", "links": "object",
	},
	"MountReady": {
		"ready": "bool", "checks": "MountChecks", "message": "string", "timestamp": "zoned",
		"check_duration": "number", "failed_checks": "[string]?",
	},
	"MountChecks": {
		"database": "MountCheck", "scheduler": "MountCheck", "authentication": "MountCheck?",
	},
	"MountCheck": {
		"status": "CheckStatus", "message": "string", "response_time_ms": "int",
	},
	"MountAlive": {
		"alive": "bool", "timestamp": "zoned", "service": "string",
	},
	"MountHealth": {
		"healthy": "bool", "status": "MountHealthStatus", "metrics": "MountFigures",
		"database": "MountDatabase", "checks": "MountChecks", "version": "string",
		"uptime_seconds": "int", "timestamp": "zoned",
	},
	"MountFigures": {
		"tasks": "MountCounts", "steps": "MountCounts", "retries": "MountRetries",
	},
	"MountCounts": {
		"total": "int", "pending": "int", "in_progress": "int", "complete": "int", "error": "int",
		"cancelled": "int", "resolved_manually": "int",
	},
	"MountRetries": {
		"retryable_errors": "int", "exhausted_retries": "int", "in_backoff": "int",
	},
	"MountDatabase": {
		"path": "string|null", "journal_bytes": "int", "snapshot_bytes": "int",
		"last_sync_at": "zoned|null", "durability": "string",
	},
	"MountError": {
		"error": "MountErrorBody",
	},
	"MountErrorBody": {
		"type": "MountErrorType", "message": "string", "details": "object?", "code": "MountErrorCode",
	},
}

// Words are the closed sets of words.
var Words = map[string][]string{
	"TaskState": {
		"pending", "initializing", "enqueuing_steps", "steps_in_process", "evaluating_results",
		"waiting_for_dependencies", "waiting_for_retry", "blocked_by_failures",
		"complete", "error", "cancelled", "resolved_manually",
	},
	"StepState": {
		"pending", "enqueued", "in_progress", "enqueued_for_orchestration",
		"enqueued_as_error_for_orchestration", "waiting_for_retry",
		"complete", "error", "cancelled", "resolved_manually",
	},
	"StepCause": {
		"failed", "running", "claimed", "cut_off", "retry_scheduled", "dependency_cancelled", "dependency_failed",
		"dependencies", "decision", "task_stopped", "outside_actor", "slot", "starting",
	},
	"StepType":         {"standard", "decision", "deferred_convergence", "batchable", "batch_worker"},
	"StepResultStatus": {"completed", "failed", "error"},
	"ExecutionStatus": {
		"blocked_by_failures", "has_ready_steps", "processing", "all_complete", "waiting_for_dependencies",
	},
	"RecommendedAction": {
		"handle_failures", "execute_ready_steps", "wait_for_completion", "finalize_task", "wait_for_dependencies",
	},
	"HealthStatus":   {"blocked", "recovering", "healthy"},
	"ReadyStatus":    {"ready", "not_ready"},
	"CheckStatus":    {"healthy", "degraded", "unhealthy", "unknown"},
	"DetailedStatus": {"healthy", "degraded"},
	"MetricType":     {"counter", "gauge"},
	"WorkerErrorCode": {
		"invalid_request", "not_found", "template_not_found", "method_not_allowed", "conflict", "payload_too_large",
		"unsupported_media_type", "validation_failed", "internal_error", "service_unavailable", "backpressure",
		"misdirected_request",
	},
	"DLQReason": {
		"StalenessTimeout", "MaxRetriesExceeded", "DependencyCycleDetected", "WorkerUnavailable", "ManualDlq",
	},
	"DLQReasonWord": {
		"staleness_timeout", "max_retries_exceeded", "dependency_cycle_detected", "worker_unavailable",
		"manual_dlq",
	},
	"DLQStatus":           {"Pending", "ManuallyResolved", "PermanentlyFailed", "Cancelled"},
	"DLQStatusWord":       {"pending", "manually_resolved", "permanently_failed", "cancelled"},
	"StalenessHealth":     {"healthy", "warning", "stale"},
	"OperationalState":    {"Normal", "Startup", "GracefulShutdown"},
	"CircuitBreakerState": {"Closed", "Open", "HalfOpen"},
	"BlockReason":         {"running", "computing", "ready", "unrecorded", "timer"},
	"ClockMode":           {"real", "frozen", "auto"},
	"ErrorCode": {
		"BAD_REQUEST", "INVALID_UUID", "JSON_ERROR", "AUTHENTICATION_FAILED", "AUTHORIZATION_FAILED",
		"NOT_FOUND", "METHOD_NOT_ALLOWED", "CONFLICT", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE",
		"VALIDATION_FAILED", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE", "BACKPRESSURE",
		"MISDIRECTED_REQUEST", "NOT_IDLE", "VERIFICATION_FAILED",
	},

	"JournalKind": {"request", "handler"},
	"StubThen":    {"last", "handler", "fail"},

	"BriefStatus": {
		"pending", "in_progress", "complete", "error", "cancelled", "resolved_manually",
	},
	"MountHealthStatus": {
		"healthy", "unhealthy",
	},
	"MountSeverity": {
		"critical", "high", "medium", "low",
	},
	"MountBottleneckType": {
		"retries_exhausted", "permanent_failure", "cancelled", "waiting_for_retry", "running", "queued", "not_started",
	},
	"MountErrorType": {
		"InternalError", "BadRequest", "NotFound", "NamespaceNotFound", "HandlerNotFound",
		"TaskNotFound", "StepNotFound", "MethodNotAllowed", "Conflict", "InvalidTransition",
		"PayloadTooLarge", "UnsupportedMediaType", "ValidationError", "AuthenticationError",
		"AuthorizationError", "ServiceUnavailable",
	},
	"MountErrorCode": {
		"INTERNAL_ERROR", "BAD_REQUEST", "NOT_FOUND", "NAMESPACE_NOT_FOUND", "HANDLER_NOT_FOUND",
		"TASK_NOT_FOUND", "STEP_NOT_FOUND", "METHOD_NOT_ALLOWED", "CONFLICT", "INVALID_TRANSITION",
		"PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE", "INVALID_TASK_CONFIG", "AUTHENTICATION_FAILED",
		"AUTHORIZATION_FAILED", "SERVICE_UNAVAILABLE",
	},
}
