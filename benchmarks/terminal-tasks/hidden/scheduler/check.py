"""Give ./schedule problems that are made from a schedule, and check that its plans meet the constraints.

Each deadline is twice the length of the schedule from which the problem was made. Every plan that never lets a machine
idle while a job is ready meets this deadline. This file has no code that solves a problem.
"""

import json
import random
from itertools import pairwise

from guard import WRONG, require, run


def problem():
    """Return a random problem with a deadline that can be met."""
    machines = random.randrange(2, 6)
    free, jobs, ends = [0] * machines, [], {}
    names = random.sample(range(1000, 10000), random.randrange(20, 60))
    for name in names:
        machine = random.randrange(machines)
        start, duration = free[machine] + random.randrange(3), random.randrange(1, 10)
        before = [other for other, end in ends.items() if end <= start]
        needs = random.sample(before, min(len(before), random.randrange(3)))
        free[machine] = ends[f"j{name}"] = start + duration
        jobs.append({"id": f"j{name}", "duration": duration, "needs": needs})
    random.shuffle(jobs)
    return {"machines": machines, "deadline": 2 * max(free), "jobs": jobs}


def is_number(value):
    """Return whether a value is an integer and not a boolean."""
    return type(value) is int


def hold(asked, plan):
    """Exit unless a plan meets all constraints."""
    jobs = {job["id"]: job for job in asked["jobs"]}
    require(isinstance(plan, dict) and plan.keys() == jobs.keys())
    require(all(isinstance(one, dict) and one.keys() == {"start", "machine"} for one in plan.values()))
    require(all(is_number(one["start"]) and is_number(one["machine"]) for one in plan.values()))
    end = {name: one["start"] + jobs[name]["duration"] for name, one in plan.items()}
    require(all(one["start"] >= 0 and 0 <= one["machine"] < asked["machines"] for one in plan.values()))
    require(max(end.values()) <= asked["deadline"])
    require(all(end[need] <= plan[name]["start"] for name, job in jobs.items() for need in job["needs"]))
    for machine in range(asked["machines"]):
        spans = sorted((plan[name]["start"], end[name]) for name in jobs if plan[name]["machine"] == machine)
        require(all(left[1] <= right[0] for left, right in pairwise(spans)))


def main():
    for _ in range(8):
        asked = problem()
        printed = run(["./schedule"], json.dumps(asked).encode())
        try:
            plan = json.loads(printed)
        except (ValueError, RecursionError):
            raise SystemExit(WRONG) from None
        hold(asked, plan)


main()
