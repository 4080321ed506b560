"""The handlers: one of each kind that the library has."""
import os

from tasker_core import ApiHandler, BaseSubscriber, Batchable, StepHandler
from tasker_core.errors import PermanentError
from tasker_core.step_handler.functional import (
    BatchConfig, Decision, batch_analyzer, decision_handler, depends_on, inputs, step_handler)


@step_handler("parcels.quote")
@inputs("grams")
def quote(grams, context):
    if grams <= 0:
        raise PermanentError("a parcel weighs something")
    return {"cents": -(-grams * context.get_config("cents_per_kilogram") // 1000)}


class Book(ApiHandler):
    """Posts to the carrier's API: 5xx is retried, 4xx is final."""
    handler_name = "parcels.handlers.Book"

    @property
    def base_url(self):
        return os.environ["CARRIER_URL"]

    def call(self, context):
        response = self.post("/bookings", json={
            "reference": context.get_input("reference"), "service": context.get_config("service"),
            "cents": context.get_dependency_field("quote", "cents")})
        if not response.ok:
            return self.api_failure(response)
        return self.api_success(response, {**response.body, "retried": context.is_retry()})


@decision_handler("parcels.route")
@depends_on(booking="book")
@inputs("grams")
def route(booking, grams, context):
    if booking.get("picked_up"):
        return Decision.skip("the carrier was here already")
    ways = ["by_road"] if grams >= context.get_config("heavy_grams") else ["by_air"]
    return Decision.route(ways + ["by_road"] * booking.get("split", False), grams=grams)


@step_handler("parcels.move")
async def move(context):
    return {"minutes": 60 * 480 // context.get_config("kilometers_per_hour"),
            "step": context.task_sequence_step.workflow_step.name}


@step_handler("parcels.hand_over")
@depends_on(air="by_air", road="by_road", price="quote")
def hand_over(air, road, price):
    return {"minutes": max(way["minutes"] for way in (air, road) if way), "price": price}


@batch_analyzer("parcels.split", worker_template="print")
@inputs("labels")
def split(labels, context):
    return BatchConfig(total_items=labels, batch_size=context.get_config("batch_size"))


class Print(Batchable, StepHandler):
    """Prints a batch of labels, and yields a checkpoint after every few."""
    handler_name = "parcels.handlers.Print"

    def call(self, context):
        if empty := self.handle_no_op_worker(context):
            return empty
        batch = self.get_batch_context(context)
        first = batch.checkpoint_cursor if batch.has_checkpoint() else batch.start_cursor
        printed = (batch.accumulated_results or {}).get("printed", []) if batch.has_checkpoint() else []
        end = min(first + context.get_config("labels_per_checkpoint"), batch.end_cursor)
        printed = printed + [f"{context.get_input('day')}/{n}" for n in range(first, end)]
        if end < batch.end_cursor:
            return self.checkpoint_yield(
                cursor=end, items_processed=len(printed), accumulated_results={"printed": printed})
        return self.batch_worker_success(items_processed=len(printed), results=[{"label": label} for label in printed])


class Total(Batchable, StepHandler):
    handler_name = "parcels.handlers.Total"

    def call(self, context):
        scenario = self.detect_aggregation_scenario(context.dependency_results, "split", "print_")
        return self.aggregate_batch_worker_results(
            scenario, zero_metrics={"labels": 0}, aggregation_fn=lambda batches: {
                "labels": self.aggregate_worker_results(list(batches.values()))["total_processed"],
                "last": sorted(item["label"] for batch in batches.values() for item in batch["results"])[-1]})


class Ledger(BaseSubscriber):
    """Notes the events that steps publish."""
    entries: list = []

    @classmethod
    def subscribes_to(cls):
        return ["parcel.*"]

    def handle(self, event):
        self.entries.append((event["event_name"], event["metadata"]["step_name"], event["payload"]["payload"]))
