package wire

// The shapes of the responses in the contract, and its closed sets of words. The tables are as
// strict as clients in stricter languages.

import (
	"iter"
	"maps"
	"strings"
)

// Shapes lists for each object the members that it must have, with their kinds. "?" after
// the kind marks an optional member. It does not restrict other members. A kind is
// one or more alternatives joined by "|":
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
// The text lists the members of each kind after the kind, and "?" follows the names of
// optional members. "+Name" adds the members of an earlier shape. The contract leaves
// TaskDetails and StepSnapshot open.
var Shapes = readShapes(`
Task: uuid7 task_uuid; string name namespace version initiator source_system reason; TaskState status;
	zoned created_at updated_at; zoned|null completed_at; object context; int priority total_steps pending_steps
	in_progress_steps completed_steps failed_steps ready_steps; [string] tags; uuid correlation_id;
	uuid|null parent_correlation_id; ExecutionStatus execution_status; RecommendedAction recommended_action;
	number completion_percentage; HealthStatus health_status; [Readiness] steps; bool context_redacted? context_omitted?
Readiness: uuid7 workflow_step_uuid task_uuid; uuid8 named_step_uuid; string name; StepState current_state;
	bool dependencies_satisfied retry_eligible ready_for_execution; naive|null last_failure_at next_retry_at
	last_attempted_at; int total_parents completed_parents attempts max_attempts;
	int|null backoff_request_seconds
TaskList: [Task] tasks; Pagination pagination
Pagination: int page per_page total_count total_pages; bool has_next has_previous
Performance: int total_tasks active_tasks completed_tasks failed_tasks tasks_per_hour steps_per_hour;
	number completion_rate error_rate average_task_duration_seconds average_step_duration_seconds
	system_health_score; zoned analysis_period_start calculated_at
Bottlenecks: [SlowStep] slow_steps; [SlowTask] slow_tasks; ResourceUtilization resource_utilization;
	[string] recommendations
SlowStep: string namespace_name task_name version step_name; number average_duration_seconds
	max_duration_seconds error_rate; int execution_count error_count; zoned last_executed_at
SlowTask: string namespace_name task_name version; number average_duration_seconds max_duration_seconds
	average_step_count error_rate; int execution_count error_count; zoned last_executed_at
ResourceUtilization: number database_pool_utilization; SystemHealth system_health
SystemHealth: int pending_tasks initializing_tasks enqueuing_steps_tasks steps_in_process_tasks
	evaluating_results_tasks waiting_for_dependencies_tasks waiting_for_retry_tasks blocked_by_failures_tasks
	complete_tasks error_tasks cancelled_tasks resolved_manually_tasks total_tasks pending_steps enqueued_steps
	in_progress_steps enqueued_for_orchestration_steps enqueued_as_error_for_orchestration_steps
	waiting_for_retry_steps complete_steps error_steps cancelled_steps resolved_manually_steps total_steps
TaskContext: uuid7 task_uuid; object context
Step: uuid7 step_uuid task_uuid; string name; zoned created_at updated_at; zoned|null completed_at
	last_failure_at next_retry_at last_attempted_at; StepResults|null results; StepState current_state;
	bool results_redacted? dependencies_satisfied retry_eligible ready_for_execution; int total_parents
	completed_parents attempts max_attempts
OutsideStep: +Step; string namespace task_name callable worker_id?; int priority; zoned lease_expires_at?
ClaimedStep: EnvelopeTask task; EnvelopeStep step; object dependency_results; string callable lease;
	zoned lease_expires_at
EnvelopeTask: uuid7 task_uuid; string namespace name version; uuid correlation_id; object context
EnvelopeStep: uuid7 step_uuid; string name; int attempt max_attempts timeout_seconds; object config inputs
Lease: uuid7 step_uuid; zoned lease_expires_at
StepResults: uuid7 step_uuid; bool success; any result; StepMetadata metadata; StepResultStatus status;
	StepError|null error
StepMetadata: int execution_time_ms; string worker_id; zoned started_at completed_at; bool retryable;
	string|null error_type error_code; object context custom
StepError: string message error_type; bool retryable; int|null status_code; object context
Audit: uuid7 audit_uuid workflow_step_uuid transition_uuid task_uuid; zoned recorded_at; uuid worker_uuid?
	correlation_id?; bool success; int execution_time_ms?; StepResults result?; string step_name subject?;
	StepState from_state? to_state
Explanation: uuid7 task_uuid; TaskState status; string message; [StepExplanation] steps
StepExplanation: uuid7 step_uuid; string name message callable; StepState current_state; StepCause cause;
	[string] waits_for actions; zoned|null since due_at; int attempt max_attempts
Transitions: uuid7 task_uuid; [Transition] transitions
Transition: int sequence attempt?; zoned recorded_at; uuid7|null step_uuid; string|null step_name;
	TaskState|StepState|null from_state; TaskState|StepState to_state
Summary: SummaryTask task; SummaryTemplate template; [SummaryStep] steps; SummaryDLQ dlq; SummaryLinks links
SummaryTask: uuid7 task_uuid; string name namespace version initiator source_system reason; TaskState status;
	zoned created_at updated_at; zoned|null completed_at; uuid correlation_id; int total_steps pending_steps
	in_progress_steps completed_steps failed_steps; number completion_percentage; HealthStatus health_status;
	ExecutionStatus execution_status; RecommendedAction recommended_action
SummaryTemplate: [SummaryTemplateStep] steps
SummaryTemplateStep: string name handler; StepType step_type; [string] dependencies; bool retryable;
	int max_attempts
SummaryStep: uuid7 step_uuid; string name; StepState current_state; naive created_at; naive|null completed_at
	last_attempted_at; int attempts max_attempts; bool dependencies_satisfied retry_eligible;
	SummaryError|null error
SummaryError: string error_type; bool retryable; int|null status_code
SummaryDLQ: bool in_dlq; DLQReasonWord|null dlq_reason; DLQStatusWord|null resolution_status
SummaryLinks: string task steps dlq
DLQEntry: uuid7 dlq_entry_uuid task_uuid; TaskState original_state; DLQReason dlq_reason; naive dlq_timestamp
	created_at updated_at; DLQStatus resolution_status; naive|null resolution_timestamp;
	string|null resolution_notes resolved_by; TaskSnapshot task_snapshot; object|null metadata
DLQTask: +DLQEntry; [DLQEntry] entries
TaskSnapshot: uuid7 task_uuid; string namespace task_name; TaskState current_state; int time_in_state_minutes
	threshold_minutes; naive snapshot_timestamp; TaskDetails task_details; [StepSnapshot] steps
TaskDetails: string version initiator source_system reason; int priority total_steps pending_steps
	in_progress_steps completed_steps failed_steps; [string] tags; uuid correlation_id; naive requested_at
	created_at; number completion_percentage; HealthStatus health_status; ExecutionStatus execution_status
StepSnapshot: uuid7 step_uuid; string name; StepState current_state; int attempts max_attempts;
	naive|null last_attempted_at last_failure_at next_retry_at completed_at; SnapshotError|null error
SnapshotError: string message error_type; bool message_redacted? retryable; int|null status_code
QueueEntry: uuid7 dlq_entry_uuid task_uuid; TaskState original_state current_state; DLQReason dlq_reason;
	naive dlq_timestamp; number minutes_in_dlq priority_score; string namespace_name task_name;
	int time_in_state_minutes
Staleness: uuid7 task_uuid; string namespace_name task_name; TaskState current_state; int time_in_state_minutes
	task_age_minutes staleness_threshold_minutes priority; StalenessHealth health_status
DLQUpdated: bool success; string message; uuid7 dlq_entry_uuid
DLQStats: DLQReason dlq_reason; int total_entries pending manually_resolved permanent_failures cancelled;
	naive|null oldest_entry newest_entry; number avg_resolution_time_minutes
TemplateList: [TemplateNamespace] namespaces; [TemplateEntry] templates; int total_count
TemplateNamespace: string name; string|null description; int template_count
TemplateEntry: string name namespace version; string|null description; int step_count
TemplateDetail: string name namespace version; string|null description; object|null configuration;
	[TemplateStep] steps
TemplateStep: string name; string|null description; bool default_retryable; int default_max_attempts;
	object|null result_schema?; [string] dependencies; object handler; StepType type
Health: 'healthy' status; zoned timestamp
HealthLive: 'alive' status; zoned timestamp
HealthReady: ReadyStatus status; zoned timestamp; HealthChecks checks; HealthInfo info
HealthChecks: HealthCheck web_database orchestration_database circuit_breaker orchestration_system
	command_processor authentication?
HealthCheck: CheckStatus status; string message; int duration_ms
HealthInfo: string version environment; OperationalState operational_state; int web_database_pool_size
	orchestration_database_pool_size; CircuitBreakerState circuit_breaker_state
WorkerHealth: 'healthy' status; zoned timestamp; string worker_id
WorkerHealthLive: 'alive' status; zoned timestamp; string worker_id
WorkerHealthReady: ReadyStatus status; zoned timestamp; string worker_id; WorkerHealthChecks checks;
	WorkerSystemInfo system_info
WorkerHealthChecks: WorkerHealthCheck database command_processor queue_processing authentication?
WorkerHealthCheck: CheckStatus status; string message; int duration_ms; zoned last_checked
WorkerSystemInfo: string version environment worker_type; int uptime_seconds database_pool_size;
	bool command_processor_active; [string] supported_namespaces
WorkerError: WorkerErrorCode error; string message request_id; zoned timestamp
WorkerTemplateList: [string] supported_namespaces worker_capabilities; int template_count;
	TemplateCacheStats|null cache_stats; [TemplateEntry] templates
TemplateCacheStats: int total_cached cache_hits cache_misses cache_evictions oldest_entry_age_seconds;
	number average_access_count; [string] supported_namespaces
WorkerTemplateDetail: ResolvedTemplate template; HandlerMetadata handler_metadata; bool cached;
	int cache_age_seconds access_count
ResolvedTemplate: object template; string environment; zoned resolved_at
HandlerMetadata: string namespace name version handler_class default_dependent_system;
	object|null config_schema; zoned registered_at
TemplateVerdict: bool valid; [string] errors warnings required_capabilities step_handlers
OrchestrationConfig: ConfigMetadata metadata; AuthConfig auth; CircuitBreakerConfig circuit_breakers;
	DatabasePoolConfig database_pools; string deployment_mode; MessagingConfig messaging; object config
WorkerConfig: ConfigMetadata metadata; string worker_id worker_type; AuthConfig auth; MessagingConfig messaging;
	object config
ConfigMetadata: zoned timestamp; string environment version
AuthConfig: bool enabled strict_validation; string verification_method jwt_issuer jwt_audience api_key_header;
	int api_key_count; [string] allowed_algorithms
CircuitBreakerConfig: bool enabled; int failure_threshold timeout_seconds success_threshold
DatabasePoolConfig: int web_api_pool_size web_api_max_connections
MessagingConfig: string backend; [string] queues
HealthDetailed: DetailedStatus status; zoned timestamp; HealthDetailedChecks checks; HealthInfo info
HealthDetailedChecks: HealthCheck web_database orchestration_database circuit_breaker orchestration_system
	command_processor pool_utilization queue_depth channel_saturation fixture?
WorkerHealthDetailed: DetailedStatus status; zoned timestamp; string worker_id;
	WorkerHealthDetailedChecks checks; WorkerSystemInfo system_info
WorkerHealthDetailedChecks: WorkerHealthCheck database command_processor queue_processing event_system
	step_processing circuit_breakers
WorkerMetrics: object metrics; zoned timestamp; string worker_id
WorkerMetric: number value; MetricType metric_type; object labels; string help
WorkerEventMetrics: EventRouterMetrics router; EventBusMetrics in_process_bus; zoned captured_at;
	string worker_id
EventRouterMetrics: int total_routed durable_routed fast_routed broadcast_routed fast_delivery_errors
	routing_errors
EventBusMetrics: int total_events_dispatched rust_handler_dispatches ffi_channel_dispatches rust_handler_errors
	ffi_channel_drops rust_subscriber_patterns rust_handler_count ffi_subscriber_count
Error: ErrorBody error
ErrorBody: ErrorCode code; string message request_id; [FieldProblem] details?; [Blocker] blocking?;
	SeenCalls seen?; uuid task_uuid?
Blocker: BlockReason reason; uuid task_uuid? step_uuid?; string step_name? handler?; int attempt?; zoned since?
Clock: zoned now; ClockMode mode; int fired; zoned|null next_timer
StateDocument: int format seq dropped; string product version; zoned exported_at; StateClock clock?;
	uuid last_id?; [object] templates analytics requests? tasks
StateClock: zoned now; ClockMode mode
Sandbox: string name orchestration_url worker_url mount_url
SandboxList: [Sandbox] sandboxes
FieldProblem: string field message
# The control API.
StubList: [Stub] stubs
Stub: string id; object match; [object] outcomes; StubThen then; int uses
Verified: int count
RequestJournal: [JournalEntry] entries; int total; DroppedEntries dropped
DroppedEntries: int requests handler_calls
JournalEntry: int id status? attempt?; JournalKind kind; zoned at; string surface? method? path? query? subject?
	namespace? name? version? step? callable?; number duration_ms?; any body?; bool body_truncated? stubbed?;
	uuid task_uuid? step_uuid?; string|null stub? fault?; object envelope?; object|null outcome?
SeenCalls: int count; [JournalEntry] matched; [NearMiss] nearest
NearMiss: JournalEntry entry; [string] differs
# The mount-point API.
MountNamespaces: [MountNamespace] namespaces; int total_namespaces; zoned generated_at
MountNamespace: string name; string|null description; int handler_count; [string] handlers;
	MountNamespaceMetadata metadata
MountNamespaceMetadata: [string] versions; int version_count step_count
MountHandlerList: string namespace; [MountHandlerSummary] handlers; int total_handlers
MountHandlerSummary: uuid8 id; string name namespace version latest_version; [string] versions step_names;
	string|null description; int step_count
MountHandler: uuid8 id; string name namespace version full_name; string|null description; bool available;
	[MountStepTemplate] step_templates; object configuration; MountHandlerGraph dependency_graph;
	zoned generated_at
MountStepTemplate: string name handler_class; string|null description depends_on_step;
	[string] depends_on_steps; object configuration; bool default_retryable skippable; int default_retry_limit;
	[object] custom_events
MountHandlerGraph: [string] nodes execution_order; [MountHandlerEdge] edges
MountHandlerEdge: string from to
MountTask: uuid7 id task_id; string name namespace version full_name initiator source_system reason;
	BriefStatus status; TaskState state; object context; bool context_redacted? context_omitted? complete; [string] tags;
	int priority; uuid correlation_id; zoned requested_at created_at updated_at; zoned|null completed_at;
	[MountStep] steps?; MountDependencies dependencies?; MountDependencyAnalysis dependency_analysis?
MountExplanation: uuid7 task_uuid; BriefStatus status; TaskState state; string message; [StepExplanation] steps
MountTaskList: [MountTask] tasks; MountPagination pagination
MountPagination: int current_page per_page total_pages total_count
MountStepList: [MountStep] steps
MountStep: uuid7 id workflow_step_id task_id; string name; BriefStatus status; StepState state; int attempts
	retry_limit; bool retryable retry_eligible skippable processed in_process inputs_redacted? inputs_omitted?
	results_redacted?; int|null backoff_request_seconds; object inputs; any results; zoned|null started_at
	completed_at last_attempted_at; [uuid] parents_ids children_ids; [string] depends_on
MountDependencies: string analysis; [string] ready_steps blocked_steps completed_steps
MountDependencyAnalysis: MountStepGraph dependency_graph; MountCriticalPaths critical_paths;
	MountParallelism parallelism_opportunities; MountErrorChains error_chains; MountStepBottlenecks bottlenecks;
	MountTaskExecution task_execution_summary; zoned analysis_timestamp
MountStepGraph: [MountStepNode] nodes; [MountStepEdge] edges; int total_edges; bool edges_truncated;
	object dependency_levels
MountStepNode: uuid id; string name; int level
MountStepEdge: uuid from to; string from_name to_name
MountCriticalPaths: int longest_path_length; [MountCriticalPath] paths
MountCriticalPath: [string] step_names; int length completed_steps blocked_steps error_steps ready_steps;
	number completion_percentage
MountParallelism: int total_levels max_parallel_steps; [MountStepLevel] levels
MountStepLevel: int level total_steps ready_steps completed_steps; [string] step_names
MountErrorChains: int total_error_steps; [MountErrorChain] error_chains
MountErrorChain: string error_step_name; [string] downstream_steps; int total_impact
MountStepBottlenecks: int total_bottlenecks; [MountStepBottleneck] bottlenecks
MountStepBottleneck: string step_name resolution_strategy; StepState current_state; int attempts retry_limit;
	number impact_score; MountSeverity severity; MountBottleneckType bottleneck_type
MountTaskExecution: int total_steps total_dependencies dependency_levels longest_path_length;
	HealthStatus overall_health; [string] recommendations
MountPerformance: MountSystemOverview system_overview; MountTrends performance_trends;
	MountTelemetry telemetry_insights; zoned generated_at; MountCacheInfo cache_info
MountSystemOverview: int active_tasks total_namespaces unique_task_types; number system_health_score
MountTrends: MountTrend last_hour last_4_hours last_24_hours
MountTrend: int task_throughput step_throughput; number completion_rate error_rate avg_task_duration
	avg_step_duration
MountTelemetry: int tasks_created tasks_completed tasks_failed tasks_cancelled steps_created steps_completed
	steps_failed steps_cancelled steps_resolved_manually attempts_ended attempts_failed retries_ended
	retries_succeeded
MountBottlenecks: MountScopeSummary scope_summary; MountBottleneckAnalysis bottleneck_analysis;
	MountDistribution performance_distribution; [string] recommendations; MountScope scope;
	int analysis_period_hours; zoned analysis_period_start generated_at; MountCacheInfo cache_info
MountScopeSummary: int total_tasks unique_task_types time_span_hours
MountScope: string namespace? name? version?
MountBottleneckAnalysis: [SlowTask] slowest_tasks; [SlowStep] slowest_steps; MountErrorPatterns error_patterns;
	MountDependencyBottlenecks dependency_bottlenecks
MountErrorPatterns: int total_errors; number recent_error_rate retry_success_rate;
	[MountErrorTypeCount] common_error_types
MountErrorTypeCount: string error_type; int count
MountDependencyBottlenecks: int blocking_dependencies; number avg_wait_time;
	[MountBlockedStep] most_blocked_steps
MountBlockedStep: string namespace_name task_name version step_name; number average_wait_seconds; int wait_count
MountDistribution: MountPercentiles percentiles; [MountBucket] distribution_buckets
MountPercentiles: number p50 p95 p99
MountBucket: string range; int count
MountCacheInfo: bool cached; string cache_key; int ttl_base
MountLinks: string service version; object links
MountReady: bool ready; MountChecks checks; string message; zoned timestamp; number check_duration;
	[string] failed_checks?
MountChecks: MountCheck database scheduler authentication?
MountCheck: CheckStatus status; string message; int response_time_ms
MountAlive: bool alive; zoned timestamp; string service
MountHealth: bool healthy; MountHealthStatus status; MountFigures metrics; MountDatabase database;
	MountChecks checks; string version; int uptime_seconds; zoned timestamp
MountFigures: MountCounts tasks steps; MountRetries retries
MountCounts: int total pending in_progress complete error cancelled resolved_manually
MountRetries: int retryable_errors exhausted_retries in_backoff
MountDatabase: string|null path; int journal_bytes snapshot_bytes; zoned|null last_sync_at; string durability
MountError: MountErrorBody error
MountErrorBody: MountErrorType type; string message; object details?; MountErrorCode code;
	uuid task_id?
`)

// Words are the closed sets of words.
var Words = readWords(`
TaskState: pending initializing enqueuing_steps steps_in_process evaluating_results waiting_for_dependencies
	waiting_for_retry blocked_by_failures complete error cancelled resolved_manually
StepState: pending enqueued in_progress enqueued_for_orchestration enqueued_as_error_for_orchestration
	waiting_for_retry complete error cancelled resolved_manually
StepCause: failed running claimed cut_off retry_scheduled dependency_cancelled dependency_failed dependencies
	decision task_stopped outside_actor slot starting
StepType: standard decision deferred_convergence batchable batch_worker
StepResultStatus: completed failed error
ExecutionStatus: blocked_by_failures has_ready_steps processing all_complete waiting_for_dependencies
RecommendedAction: handle_failures execute_ready_steps wait_for_completion finalize_task wait_for_dependencies
HealthStatus: blocked recovering healthy
ReadyStatus: ready not_ready
CheckStatus: healthy degraded unhealthy unknown
DetailedStatus: healthy degraded
MetricType: counter gauge
WorkerErrorCode: invalid_request not_found template_not_found method_not_allowed conflict precondition_failed payload_too_large
	unsupported_media_type validation_failed internal_error service_unavailable backpressure store_full overloaded misdirected_request
DLQReason: StalenessTimeout MaxRetriesExceeded DependencyCycleDetected WorkerUnavailable ManualDlq
DLQReasonWord: staleness_timeout max_retries_exceeded dependency_cycle_detected worker_unavailable manual_dlq
DLQStatus: Pending ManuallyResolved PermanentlyFailed Cancelled
DLQStatusWord: pending manually_resolved permanently_failed cancelled
StalenessHealth: healthy warning stale
OperationalState: Normal Startup GracefulShutdown
CircuitBreakerState: Closed Open HalfOpen
BlockReason: running computing ready unrecorded timer
ClockMode: real frozen auto
ErrorCode: BAD_REQUEST INVALID_UUID JSON_ERROR AUTHENTICATION_FAILED AUTHORIZATION_FAILED NOT_FOUND
	METHOD_NOT_ALLOWED CONFLICT PRECONDITION_FAILED PAYLOAD_TOO_LARGE UNSUPPORTED_MEDIA_TYPE VALIDATION_FAILED INTERNAL_ERROR
	SERVICE_UNAVAILABLE BACKPRESSURE STORE_FULL OVERLOADED TASK_DROPPED MISDIRECTED_REQUEST NOT_IDLE VERIFICATION_FAILED
JournalKind: request handler
StubThen: last handler fail
BriefStatus: pending in_progress complete error cancelled resolved_manually
MountHealthStatus: healthy unhealthy
MountSeverity: critical high medium low
MountBottleneckType: retries_exhausted permanent_failure cancelled waiting_for_retry running queued not_started
MountErrorType: InternalError BadRequest NotFound NamespaceNotFound HandlerNotFound TaskNotFound StepNotFound
	MethodNotAllowed Conflict PreconditionFailed InvalidTransition PayloadTooLarge UnsupportedMediaType ValidationError
	AuthenticationError AuthorizationError ServiceUnavailable TaskDropped
MountErrorCode: INTERNAL_ERROR BAD_REQUEST NOT_FOUND NAMESPACE_NOT_FOUND HANDLER_NOT_FOUND TASK_NOT_FOUND
	STEP_NOT_FOUND METHOD_NOT_ALLOWED CONFLICT PRECONDITION_FAILED INVALID_TRANSITION PAYLOAD_TOO_LARGE UNSUPPORTED_MEDIA_TYPE
	INVALID_TASK_CONFIG AUTHENTICATION_FAILED AUTHORIZATION_FAILED SERVICE_UNAVAILABLE TASK_DROPPED
`)

// tableEntries returns the entries of a table: a name, a colon and words. A line that begins
// with a tab continues the entry above it; "#" begins a comment.
func tableEntries(text string) iter.Seq2[string, string] {
	return func(yield func(name, words string) bool) {
		for entry := range strings.Lines(strings.ReplaceAll(text, "\n\t", " ")) {
			name, words, ok := strings.Cut(entry, ":")
			if ok && entry[0] != '#' && !yield(name, words) {
				return
			}
		}
	}
}

func readShapes(text string) map[string]map[string]string {
	shapes := map[string]map[string]string{}
	for shape, groups := range tableEntries(text) {
		members := map[string]string{}
		for group := range strings.SplitSeq(groups, ";") {
			words := strings.Fields(group)
			if base, ok := strings.CutPrefix(words[0], "+"); ok {
				maps.Copy(members, shapes[base])
			}
			for _, word := range words[1:] {
				name := strings.TrimSuffix(word, "?")
				if members[name] != "" {
					panic("duplicate member " + name + " of " + shape)
				}
				members[name] = words[0] + word[len(name):]
			}
		}
		shapes[shape] = members
	}
	return shapes
}

func readWords(text string) map[string][]string {
	sets := map[string][]string{}
	for name, words := range tableEntries(text) {
		sets[name] = strings.Fields(words)
	}
	return sets
}
