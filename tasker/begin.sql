-- Tasks of Stepwell for Tasker, as one transaction: psql -X -f FILE.
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
        IF newest IS DISTINCT FROM 20260306000001 THEN
            RAISE EXCEPTION 'the newest migration of the schema is %, but these rows are for 20260306000001', newest;
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

-- A name such as MaxRetriesExceeded as the database has it.
CREATE FUNCTION pg_temp.snake(name text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT lower(regexp_replace(name, '(.)([A-Z])', '\1_\2', 'g'))
$$;

CREATE TEMP TABLE moved_templates (data jsonb) ON COMMIT DROP;
CREATE TEMP TABLE moved (data jsonb) ON COMMIT DROP;
