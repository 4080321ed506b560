import uuid

import pytest
from tasker_core import TaskerClient, get_health_check, get_metrics, get_worker_config, get_worker_status, version


def test_the_client_reads_what_ran(run):
    run("ship", reference="gone", grams=1)
    _, steps = run("ship", reference="gone", grams=100)
    client, task = TaskerClient(), steps["quote"].task_uuid
    assert client.health_check().healthy
    assert client.get_step(task, steps["quote"].step_uuid).results["result"] == {"cents": 40}
    assert [audit.success for audit in client.get_step_audit_history(task, steps["quote"].step_uuid)] == [True]
    first, second = (client.list_tasks(limit=1, offset=offset, namespace="parcels") for offset in (0, 1))
    assert first.pagination.per_page == 1 and first.pagination.page == 1 and second.pagination.page == 2
    assert first.tasks[0].task_uuid == task != second.tasks[0].task_uuid


def test_the_client_says_what_is_refused(run):
    client, context = TaskerClient(), {"reference": "gone", "grams": 1, "run": str(uuid.uuid4())}
    client.create_task("ship", namespace="parcels", context=context)
    with pytest.raises(RuntimeError, match="HTTP 409 Conflict"):
        client.create_task("ship", namespace="parcels", context=context)
    with pytest.raises(RuntimeError, match="HTTP 404 Not Found"):
        client.create_task("unknown", namespace="parcels")
    with pytest.raises(RuntimeError, match="HTTP 404 Not Found"):
        client.get_task(str(uuid.uuid4()))
    with pytest.raises(ValueError, match="UUID"):
        client.get_task("x")
    with pytest.raises(RuntimeError, match="HTTP 400 Bad Request"):
        client.cancel_task(run("ship", reference="gone", grams=2)[1]["quote"].task_uuid)


def test_a_blocked_task_is_cancelled(run):
    client, task = TaskerClient(), run("ship", reference="refuse", grams=3)[1]["quote"].task_uuid
    assert client.cancel_task(task) == {"cancelled": True}
    assert client.get_task(task).status == "cancelled"


def test_the_worker_knows_its_state(worker):
    assert version() == "0.1.8" and worker.bootstrap_result.success
    assert get_worker_status().supported_namespaces == get_worker_config().supported_namespaces == ["parcels"]
    assert get_health_check().status == "healthy" and get_metrics().environment == get_worker_status().environment
