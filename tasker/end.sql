
DELETE FROM moved WHERE EXISTS (SELECT FROM tasks t WHERE t.task_uuid = (data->'task'->>'task_uuid')::uuid);

INSERT INTO task_namespaces (name, created_at, updated_at)
SELECT DISTINCT data->'configuration'->>'namespace_name', now(), now() FROM moved_templates
ON CONFLICT (name) DO NOTHING;

INSERT INTO named_tasks (task_namespace_uuid, name, version, description, configuration, created_at, updated_at)
SELECT n.task_namespace_uuid, c->>'name', c->>'version', left(c->>'description', 255), c, now(), now()
FROM (SELECT data->'configuration' AS c FROM moved_templates) t JOIN task_namespaces n ON n.name = c->>'namespace_name'
ON CONFLICT (task_namespace_uuid, name, version) DO NOTHING;

INSERT INTO named_steps (name, created_at, updated_at)
SELECT DISTINCT s->>'name', now(), now() FROM moved, jsonb_array_elements(data->'steps') s
ON CONFLICT (name) DO NOTHING;

WITH t AS (
    SELECT t.*, data, m.named_task_uuid, pg_temp.identity_hash(m.named_task_uuid, t.hashed) AS identity
    FROM moved, jsonb_to_record(data->'task') AS t(task_uuid uuid, namespace text, name text, version text, status text,
        requested_at timestamp, completed_at timestamp, created_at timestamp, updated_at timestamp, initiator text,
        source_system text, reason text, tags jsonb, context jsonb, priority int, correlation_id uuid,
        parent_correlation_id uuid, hashed text)
    JOIN task_namespaces n ON n.name = t.namespace
    JOIN named_tasks m ON m.task_namespace_uuid = n.task_namespace_uuid AND m.name = t.name AND m.version = t.version
)
INSERT INTO tasks (task_uuid, named_task_uuid, complete, requested_at, completed_at, created_at, updated_at, initiator,
    source_system, reason, tags, context, priority, correlation_id, parent_correlation_id, identity_hash)
SELECT task_uuid, named_task_uuid, status = 'complete', coalesce(requested_at, (data->'states'->0->>'recorded_at')::timestamp),
    CASE WHEN status = 'complete' THEN completed_at END, coalesce(created_at, now()), updated_at, left(initiator, 128),
    left(source_system, 128), left(reason, 128), tags, context, priority, correlation_id, parent_correlation_id,
    CASE WHEN identity IS NULL OR row_number() OVER (PARTITION BY identity ORDER BY task_uuid) > 1
        OR EXISTS (SELECT FROM tasks o WHERE o.identity_hash = identity) THEN 'stepwell-' || task_uuid ELSE identity END
FROM t;

INSERT INTO workflow_steps (workflow_step_uuid, task_uuid, named_step_uuid, retryable, max_attempts, processed, processed_at,
    attempts, last_attempted_at, backoff_request_seconds, inputs, results, checkpoint, created_at, updated_at)
SELECT s.step_uuid, s.task_uuid, n.named_step_uuid, retryable, max_attempts, completed_at IS NOT NULL, completed_at,
    attempts, last_attempted_at, backoff_request_seconds, inputs, results, checkpoint, s.created_at, s.updated_at
FROM moved, jsonb_to_recordset(data->'steps') AS s(step_uuid uuid, task_uuid uuid, name text, retryable bool,
    max_attempts int, completed_at timestamp, attempts int, last_attempted_at timestamp, backoff_request_seconds int,
    inputs jsonb, results jsonb, checkpoint jsonb, created_at timestamp, updated_at timestamp)
JOIN named_steps n ON n.name = s.name;

INSERT INTO workflow_step_edges (from_step_uuid, to_step_uuid, name, created_at, updated_at)
SELECT e.from_step_uuid, e.to_step_uuid, e.name, now(), now()
FROM moved, jsonb_to_recordset(data->'edges') AS e(from_step_uuid uuid, to_step_uuid uuid, name text);

CREATE TEMP TABLE moves ON COMMIT DROP AS
SELECT m.* FROM moved, jsonb_to_recordset(data->'moves') AS m(step_uuid uuid, to_state text, from_state text, sort_key int,
    most_recent bool, recorded_at timestamp, metadata jsonb, audit_uuid uuid, transition_uuid uuid, success bool,
    execution_time_ms bigint);

INSERT INTO workflow_step_transitions (workflow_step_transition_uuid, workflow_step_uuid, to_state, from_state, metadata,
    sort_key, most_recent, created_at, updated_at)
SELECT coalesce(transition_uuid, uuid_generate_v7()), step_uuid, to_state, from_state, metadata, sort_key, most_recent,
    recorded_at, recorded_at
FROM moves ORDER BY step_uuid, sort_key;

-- A trigger has made the rows of the audit, as of now.
UPDATE workflow_step_result_audit a
SET workflow_step_result_audit_uuid = m.audit_uuid, recorded_at = m.recorded_at, created_at = m.recorded_at,
    updated_at = m.recorded_at, success = m.success, execution_time_ms = m.execution_time_ms
FROM moves m WHERE a.workflow_step_transition_uuid = m.transition_uuid AND a.workflow_step_uuid = m.step_uuid;

INSERT INTO task_transitions (task_uuid, to_state, from_state, metadata, sort_key, most_recent, created_at, updated_at)
SELECT (data->'task'->>'task_uuid')::uuid, s.to_state, s.from_state, jsonb_strip_nulls(jsonb_build_object('reason', s.reason)),
    s.sort_key, s.most_recent, coalesce(s.recorded_at, now()), coalesce(s.recorded_at, now())
FROM moved, jsonb_to_recordset(data->'states') AS s(to_state text, from_state text, sort_key int, most_recent bool,
    recorded_at timestamp, reason text);

INSERT INTO tasks_dlq (dlq_entry_uuid, task_uuid, original_state, dlq_reason, dlq_timestamp, resolution_status,
    resolution_timestamp, resolution_notes, resolved_by, task_snapshot, metadata, created_at, updated_at)
SELECT d.dlq_entry_uuid, d.task_uuid, d.original_state, pg_temp.snake(d.dlq_reason)::dlq_reason, d.dlq_timestamp,
    pg_temp.snake(d.resolution_status)::dlq_resolution_status, d.resolution_timestamp, d.resolution_notes,
    left(d.resolved_by, 255), d.task_snapshot, d.metadata, d.dlq_timestamp, d.updated_at
FROM moved, jsonb_to_recordset(data->'letters') AS d(dlq_entry_uuid uuid, task_uuid uuid, original_state text,
    dlq_reason text, dlq_timestamp timestamp, resolution_status text, resolution_timestamp timestamp,
    resolution_notes text, resolved_by text, task_snapshot jsonb, metadata jsonb, updated_at timestamp);

SELECT count(*) AS "tasks moved" FROM moved;
COMMIT;
