import time

from parcels.handlers import Ledger


def result(step):
    return step.results["result"]


def test_a_light_parcel_goes_by_air(run):
    status, steps = run("ship", reference="light", grams=1500)
    assert status == "complete"
    assert sorted(steps) == ["book", "by_air", "hand_over", "quote", "route"]
    assert result(steps["quote"]) == {"cents": 600}
    assert result(steps["by_air"]) == {"minutes": 36, "step": "by_air"}
    assert result(steps["hand_over"]) == {"minutes": 36, "price": {"cents": 600}}


def test_a_heavy_parcel_goes_by_road(run):
    status, steps = run("ship", reference="heavy", grams=25000)
    assert (status, result(steps["hand_over"])["minutes"]) == ("complete", 360)
    assert "by_air" not in steps


def test_a_split_parcel_goes_both_ways(run):
    status, steps = run("ship", reference="split", grams=1500)
    assert status == "complete"
    assert {"by_air", "by_road"} < set(steps)
    assert result(steps["hand_over"]) == {"minutes": 360, "price": {"cents": 600}}


def test_a_parcel_that_is_gone_needs_no_way(run):
    status, steps = run("ship", reference="gone", grams=1500)
    assert status == "complete"
    assert sorted(steps) == ["book", "quote", "route"]
    assert result(steps["route"])["decision_point_outcome"]["type"] == "no_branches"


def test_a_busy_carrier_is_asked_again(run):
    status, steps = run("ship", reference="busy", grams=1500)
    assert (status, steps["book"].attempts) == ("complete", 2)
    assert result(steps["book"])["retried"] is True


def test_a_refusal_is_final(run):
    status, steps = run("ship", reference="refuse", grams=1500)
    assert (status, steps["book"].current_state, steps["book"].attempts) == ("blocked_by_failures", "error", 1)
    assert steps["book"].results["error"]["message"] == "HTTP 422: no such address"
    assert steps["book"].results["error"]["error_type"] == "unprocessable_entity"


def test_a_permanent_error_is_final(run):
    status, steps = run("ship", reference="weightless", grams=0)
    assert (status, steps["quote"].attempts) == ("blocked_by_failures", 1)
    assert steps["quote"].results["error"]["message"] == "a parcel weighs something"


def test_an_event_reaches_the_ledger(run):
    run("ship", reference="eventful", grams=700)
    for _ in range(50):
        if ("parcel.quoted", "quote", {"cents": 280}) in Ledger.entries:
            return
        time.sleep(0.1)
    raise AssertionError(f"the ledger has {Ledger.entries}")
