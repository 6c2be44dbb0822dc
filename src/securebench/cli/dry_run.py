"""``securebench run --dry-run``: what would run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from securebench.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.tester_run.plan import Plan


def planned(plan: Plan) -> dict[str, Any]:
    """Return what a run would do, for ``--json``."""
    return {
        "run_id": plan.config.run.id,
        "benchmark": {"id": plan.pack.id, "version": plan.pack.version},
        "tasks": [task.id for task in plan.tasks],
        "pack_tasks": len(plan.all_tasks),
        "selection": plan.selection.given,
        "trials": plan.trials,
        "harness": dict(plan.harness),
        "driver": plan.config.sandbox.driver,
        "images": sorted({image for task in plan.tasks for image in task.images}),
        "workers": plan.workers,
        "output_dir": str(plan.directory),
    }


def planned_lines(plans: Sequence[dict[str, Any]]) -> list[str]:
    """Return what runs would do, for people: a paragraph for each run, and the number of trials in all."""
    lines: list[str] = []
    for plan in plans:
        benchmark, number = plan["benchmark"], len(plan["tasks"])
        part = f"{number} of {plan['pack_tasks']}" if number < plan["pack_tasks"] else f"all {number}"
        trials = f", {plan['trials']} trials each" if plan["trials"] > 1 else ""
        harness = plan["harness"].get("name") or plan["harness"]["type"]
        lines += [
            f"run {plan['run_id']}",
            f"  benchmark: {benchmark['id']} {benchmark['version']}, {part} tasks{trials}",
            f"  agent:     {harness}",
            f"  sandbox:   driver {plan['driver']}, images {', '.join(plan['images'])}",
            f"  workers:   {plan['workers']}",
            f"  results:   {plan['output_dir']}",
        ]
    total = sum(len(plan["tasks"]) * plan["trials"] for plan in plans)
    runs = "1 run" if len(plans) == 1 else f"{len(plans)} runs"
    return [*map(printable_line, lines), f"{runs}, {total} trials. Nothing was run."]
