package main

// The shapes of the mount-point API's answers, beside those of wire_test.go.

import "maps"

func init() {
	maps.Copy(wireShapes, mountShapes)
	maps.Copy(wireWords, mountWords)
	openAPIRequestSchemas = append(openAPIRequestSchemas, "MountTaskCreation", "StepAdjustment")
}

var mountShapes = map[string]map[string]string{
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

var mountWords = map[string][]string{
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
