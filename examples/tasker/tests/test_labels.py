from tasker_core import is_worker_running


def result(step):
    return step.results["result"]


def test_batches_yield_and_converge(run):
    status, steps = run("labels", day="monday", labels=8)
    assert status == "complete"
    assert sorted(steps) == ["print_001", "print_002", "print_003", "split", "total"]
    assert result(steps["print_001"])["results"] == [{"label": f"monday/{n}"} for n in range(3)]
    assert steps["print_001"].attempts == 1
    assert result(steps["total"]) == {"labels": 8, "last": "monday/7", "worker_count": 3, "scenario": "with_batches"}


def test_a_day_without_labels(run):
    status, steps = run("labels", day="sunday", labels=0)
    assert status == "complete"
    assert sorted(steps) == ["print_000", "split", "total"]
    assert result(steps["print_000"])["no_op"] is True
    assert result(steps["total"]) == {"labels": 0, "worker_count": 0, "scenario": "no_batches"}


def test_the_worker_says_that_it_runs(worker):
    assert is_worker_running() and worker.is_running and worker.worker_id
