package main

// The SQL of a move: one transaction for psql that stages the rows, checks the schema, and inserts what is not there.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// taskerMigration is the newest migration of the schema that the rows are for.
const taskerMigration = "20260306000001"

// script writes the transaction. The first error stays.
type script struct {
	out *bufio.Writer
	err error
}

func newScript(w io.Writer) *script {
	s := &script{out: bufio.NewWriterSize(w, 64<<10)}
	s.text(strings.ReplaceAll(taskerBegin, "MIGRATION", taskerMigration))
	return s
}

func (s *script) text(text string) {
	if s.err == nil {
		_, s.err = s.out.WriteString(text)
	}
}

// stage begins the rows of a staging table.
func (s *script) stage(table string) { s.text("\nCOPY " + table + " FROM STDIN;\n") }

// row adds a JSON text to the staging table.
func (s *script) row(row []byte) {
	// COPY reads escapes of its own. A row has no line breaks or tabs, because JSON escapes them.
	s.text(string(bytes.ReplaceAll(row, []byte(`\`), []byte(`\\`))) + "\n")
}

// end ends a staging table.
func (s *script) end() { s.text("\\.\n") }

// finish writes what follows the rows.
func (s *script) finish() error {
	s.text(taskerEnd)
	if s.err == nil {
		s.err = s.out.Flush()
	}
	return s.err
}

// taskerTitle begins the script.
const taskerTitle = "-- Tasks of Stepwell for Tasker"

// taskerBegin checks the schema and makes the staging tables and the function for identities.
const taskerBegin = taskerTitle + `, as one transaction: psql -X -f FILE.
-- It can be run again: tasks that are there already stay as they are.
\set ON_ERROR_STOP on
BEGIN;
SET LOCAL client_encoding TO 'UTF8';
SET LOCAL client_min_messages TO warning;
SET LOCAL standard_conforming_strings TO on;
SET LOCAL TimeZone TO 'UTC';
SET LOCAL search_path TO tasker, public;

DO $check$
DECLARE
    missing text;
    newest bigint;
BEGIN
    SELECT string_agg(name, ', ') INTO missing
    FROM unnest(ARRAY['task_namespaces', 'named_tasks', 'named_steps', 'tasks', 'workflow_steps', 'workflow_step_edges',
        'workflow_step_transitions', 'workflow_step_result_audit', 'task_transitions', 'tasks_dlq']) AS name
    WHERE to_regclass('tasker.' || name) IS NULL;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'this is not the database of the service: schema tasker has no %', missing;
    END IF;
    IF to_regclass('_sqlx_migrations') IS NOT NULL THEN
        EXECUTE 'SELECT max(version) FROM _sqlx_migrations WHERE success' INTO newest;
        IF newest IS DISTINCT FROM MIGRATION THEN
            RAISE EXCEPTION 'the newest migration of the schema is %, but these rows are for MIGRATION', newest;
        END IF;
    END IF;
    IF NOT EXISTS (SELECT FROM information_schema.columns
        WHERE table_schema = 'tasker' AND table_name = 'named_tasks' AND column_name = 'identity_strategy') THEN
        RAISE EXCEPTION 'these rows are for a schema whose named_tasks have an identity_strategy';
    END IF;
END
$check$;

-- The identity of a task as the service computes it: SipHash-1-3 without a key. bigint has a sign, so additions go by
-- halves, and shifts to the right lose it.
CREATE FUNCTION pg_temp.plus(a bigint, b bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ((((a >> 32) + (b >> 32) + (((a & 4294967295) + (b & 4294967295)) >> 32)) & 4294967295) << 32)
        | (((a & 4294967295) + (b & 4294967295)) & 4294967295)
$$;

CREATE FUNCTION pg_temp.turned(x bigint, n int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (x << n) | ((x >> (64 - n)) & ((1::bigint << n) - 1))
$$;

CREATE FUNCTION pg_temp.identity_hash(template uuid, context text) RETURNS text LANGUAGE plpgsql STRICT AS $$
DECLARE
    data bytea := decode(replace(template::text, '-', ''), 'hex') || convert_to(context, 'UTF8') || '\xff'::bytea;
    size int := length(data);
    words int := size / 8;
    padded bytea := data || decode(repeat('00', 8 - size % 8), 'hex');
    v0 bigint := 8317987319222330741;
    v1 bigint := 7237128888997146477;
    v2 bigint := 7816392313619706465;
    v3 bigint := 8387220255154660723;
    m bigint := 0;
BEGIN
    FOR w IN 0 .. words + 3 LOOP -- the words, the last one with the size, and three turns to finish
        IF w <= words THEN
            m := 0;
            FOR i IN REVERSE 7 .. 0 LOOP
                m := (m << 8) | get_byte(padded, w * 8 + i);
            END LOOP;
            IF w = words THEN
                m := m | ((size & 255)::bigint << 56);
            END IF;
            v3 := v3 # m;
        ELSIF w = words + 1 THEN
            v2 := v2 # 255;
        END IF;
        v0 := pg_temp.plus(v0, v1); v1 := pg_temp.turned(v1, 13) # v0; v0 := pg_temp.turned(v0, 32);
        v2 := pg_temp.plus(v2, v3); v3 := pg_temp.turned(v3, 16) # v2;
        v0 := pg_temp.plus(v0, v3); v3 := pg_temp.turned(v3, 21) # v0;
        v2 := pg_temp.plus(v2, v1); v1 := pg_temp.turned(v1, 17) # v2; v2 := pg_temp.turned(v2, 32);
        IF w <= words THEN
            v0 := v0 # m;
        END IF;
    END LOOP;
    RETURN to_hex(v0 # v1 # v2 # v3);
END
$$;

CREATE TEMP TABLE moved_templates (data jsonb) ON COMMIT DROP;
CREATE TEMP TABLE moved (data jsonb) ON COMMIT DROP;
`

// taskerEnd inserts the rows of the tasks that are not there.
const taskerEnd = `
DELETE FROM moved WHERE EXISTS (SELECT FROM tasks t WHERE t.task_uuid = (data->'task'->>'task_uuid')::uuid);

INSERT INTO task_namespaces (name, created_at, updated_at)
SELECT DISTINCT data->>'namespace', now(), now() FROM moved_templates
ON CONFLICT (name) DO NOTHING;

INSERT INTO named_tasks (task_namespace_uuid, name, version, description, configuration, created_at, updated_at)
SELECT n.task_namespace_uuid, data->>'name', data->>'version', left(data->'configuration'->>'description', 255),
    data->'configuration', now(), now()
FROM moved_templates JOIN task_namespaces n ON n.name = data->>'namespace'
ON CONFLICT (task_namespace_uuid, name, version) DO NOTHING;

INSERT INTO named_steps (name, created_at, updated_at)
SELECT DISTINCT s->>'name', now(), now() FROM moved, jsonb_array_elements(data->'steps') s
ON CONFLICT (name) DO NOTHING;

WITH t AS (
    SELECT t.*, m.named_task_uuid, pg_temp.identity_hash(m.named_task_uuid, t.hashed) AS identity
    FROM moved, jsonb_to_record(data->'task') AS t(task_uuid uuid, namespace text, name text, version text, complete bool,
        requested_at timestamp, completed_at timestamp, created_at timestamp, updated_at timestamp, initiator text,
        source_system text, reason text, tags jsonb, context jsonb, priority int, correlation_id uuid,
        parent_correlation_id uuid, hashed text)
    JOIN task_namespaces n ON n.name = t.namespace
    JOIN named_tasks m ON m.task_namespace_uuid = n.task_namespace_uuid AND m.name = t.name AND m.version = t.version
)
INSERT INTO tasks (task_uuid, named_task_uuid, complete, requested_at, completed_at, created_at, updated_at, initiator,
    source_system, reason, tags, context, priority, correlation_id, parent_correlation_id, identity_hash)
SELECT task_uuid, named_task_uuid, complete, requested_at, completed_at, coalesce(created_at, now()), updated_at, initiator,
    source_system, reason, tags, context, priority, correlation_id, parent_correlation_id,
    CASE WHEN identity IS NULL OR row_number() OVER (PARTITION BY identity ORDER BY task_uuid) > 1
        OR EXISTS (SELECT FROM tasks o WHERE o.identity_hash = identity) THEN 'stepwell-' || task_uuid ELSE identity END
FROM t;

INSERT INTO workflow_steps (workflow_step_uuid, task_uuid, named_step_uuid, retryable, max_attempts, processed, processed_at,
    attempts, last_attempted_at, backoff_request_seconds, inputs, results, checkpoint, created_at, updated_at)
SELECT s.workflow_step_uuid, (data->'task'->>'task_uuid')::uuid, n.named_step_uuid, retryable, max_attempts, processed,
    processed_at, attempts, last_attempted_at, backoff_request_seconds, inputs, results, checkpoint, s.created_at, s.updated_at
FROM moved, jsonb_to_recordset(data->'steps') AS s(workflow_step_uuid uuid, name text, retryable bool, max_attempts int,
    processed bool, processed_at timestamp, attempts int, last_attempted_at timestamp, backoff_request_seconds int,
    inputs jsonb, results jsonb, checkpoint jsonb, created_at timestamp, updated_at timestamp)
JOIN named_steps n ON n.name = s.name;

INSERT INTO workflow_step_edges (from_step_uuid, to_step_uuid, name, created_at, updated_at)
SELECT e.from_step_uuid, e.to_step_uuid, e.name, now(), now()
FROM moved, jsonb_to_recordset(data->'edges') AS e(from_step_uuid uuid, to_step_uuid uuid, name text);

CREATE TEMP TABLE moves ON COMMIT DROP AS
SELECT m.*, (data->'task'->>'task_uuid')::uuid AS task_uuid
FROM moved, jsonb_to_recordset(data->'moves') AS m(workflow_step_uuid uuid, to_state text, from_state text, sort_key int,
    most_recent bool, at timestamp, metadata jsonb, audit_uuid uuid, transition_uuid uuid, success bool,
    execution_time_ms bigint);

INSERT INTO workflow_step_transitions (workflow_step_transition_uuid, workflow_step_uuid, to_state, from_state, metadata,
    sort_key, most_recent, created_at, updated_at)
SELECT coalesce(transition_uuid, uuid_generate_v7()), workflow_step_uuid, to_state, from_state, metadata, sort_key,
    most_recent, at, at
FROM moves ORDER BY workflow_step_uuid, sort_key;

-- A trigger has made the rows of the audit, as of now.
UPDATE workflow_step_result_audit a
SET workflow_step_result_audit_uuid = m.audit_uuid, recorded_at = m.at, created_at = m.at, updated_at = m.at,
    success = m.success, execution_time_ms = m.execution_time_ms
FROM moves m WHERE a.workflow_step_transition_uuid = m.transition_uuid AND a.workflow_step_uuid = m.workflow_step_uuid;

INSERT INTO task_transitions (task_uuid, to_state, from_state, metadata, sort_key, most_recent, created_at, updated_at)
SELECT (data->'task'->>'task_uuid')::uuid, s.to_state, s.from_state, coalesce(s.metadata, '{}'), s.sort_key, s.most_recent,
    coalesce(s.at, now()), coalesce(s.at, now())
FROM moved, jsonb_to_recordset(data->'states') AS s(to_state text, from_state text, sort_key int, most_recent bool,
    at timestamp, metadata jsonb);

INSERT INTO tasks_dlq (dlq_entry_uuid, task_uuid, original_state, dlq_reason, dlq_timestamp, resolution_status,
    resolution_timestamp, resolution_notes, resolved_by, task_snapshot, metadata, created_at, updated_at)
SELECT d.dlq_entry_uuid, (data->'task'->>'task_uuid')::uuid, d.original_state, d.dlq_reason::dlq_reason, d.dlq_timestamp,
    d.resolution_status::dlq_resolution_status, d.resolution_timestamp, d.resolution_notes, d.resolved_by, d.task_snapshot,
    d.metadata, d.dlq_timestamp, d.updated_at
FROM moved, jsonb_to_recordset(data->'letters') AS d(dlq_entry_uuid uuid, original_state text, dlq_reason text,
    dlq_timestamp timestamp, resolution_status text, resolution_timestamp timestamp, resolution_notes text, resolved_by text,
    task_snapshot jsonb, metadata jsonb, updated_at timestamp);

SELECT count(*) AS "tasks moved" FROM moved;
COMMIT;
`

// appendHashed appends a JSON value as Tasker hashes it: the keys of objects in the order of their bytes and without
// escapes, no white space, and floating-point numbers in their shortest form.
func appendHashed(b []byte, value json.RawMessage) []byte {
	var v any
	if decode(value, &v) != nil {
		return append(b, value...)
	}
	return appendHashedValue(b, v)
}

func appendHashedValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendHashedValue(append(append(append(b, '"'), key...), `":`...), v[key])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendHashedValue(b, v[i])
		}
		return append(b, ']')
	case string:
		return appendText(b, v)
	case json.Number:
		return appendHashedNumber(b, string(v))
	}
	return append(b, encode(v)...)
}

// appendText appends a JSON text in which only quotes, backslashes and control characters are escaped.
func appendText(b []byte, text string) []byte {
	b = append(b, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case strings.IndexByte("\b\t\n\f\r", c) >= 0:
			b = append(b, '\\', "btn?fr"[c-'\b'])
		default:
			b = fmt.Appendf(b, `\u%04x`, c)
		}
	}
	return append(b, '"')
}

// appendHashedNumber appends an integer of 64 bits as it is, and any other number in floating point: without an
// exponent if it is 0, or from 1e-5 to below 1e16 without its sign.
func appendHashedNumber(b []byte, text string) []byte {
	_, err := strconv.ParseInt(text, 10, 64)
	if _, unsigned := strconv.ParseUint(text, 10, 64); text != "-0" && (err == nil || unsigned == nil) {
		return append(b, text...)
	}
	f, _ := strconv.ParseFloat(text, 64)
	if size := math.Abs(f); size != 0 && (size < 1e-5 || size >= 1e16) {
		short := strconv.FormatFloat(f, 'e', -1, 64)
		short = strings.Replace(short, "e-0", "e-", 1) // Go pads exponents to two digits
		return append(b, short...)
	}
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if f == math.Trunc(f) {
		b = append(b, ".0"...)
	}
	return b
}
