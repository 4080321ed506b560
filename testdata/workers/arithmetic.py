"""The steps of the arithmetic templates, for the example worker in Python."""
import json, math, os

import worker

PARENTS = json.loads(os.environ["STEP_PARENTS"])  # names by name


@worker.step("tasker_example_rs::*")
def compute(claim):
    factors = [claim["dependency_results"][p] for p in PARENTS[claim["step"]["name"]]]
    return math.prod(factors or [claim["task"]["context"]["even_number"]]) ** 2


worker.work("arithmetic.py")
