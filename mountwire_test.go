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
		"dependency_graph": "object", "critical_paths": "object", "parallelism_opportunities": "object",
		"error_chains": "object", "bottlenecks": "object", "task_execution_summary": "object",
		"analysis_timestamp": "zoned",
	},
	"MountPerformance": {
		"system_overview": "object", "performance_trends": "object", "telemetry_insights": "object",
		"generated_at": "zoned", "cache_info": "MountCacheInfo",
	},
	"MountBottlenecks": {
		"scope_summary": "object", "bottleneck_analysis": "object",
		"performance_distribution": "object", "recommendations": "[string]", "scope": "object",
		"analysis_period_hours": "int", "generated_at": "zoned", "cache_info": "MountCacheInfo",
	},
	"MountCacheInfo": {
		"cached": "bool", "cache_key": "string", "ttl_base": "int",
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
