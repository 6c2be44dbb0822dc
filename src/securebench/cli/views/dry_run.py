"""``securebench run --dry-run``: describe what a run would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from securebench.plurals import counted
from securebench.printable import printable_line
from securebench.results.run_directory.part_of_pack import PartOfPack
from securebench.tester_run.options import requested_sandbox
from securebench.tester_run.planning.capacity import WorkerChoice
from securebench.tester_run.planning.directory import earlier_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.tester_run.options import RunOptions
    from securebench.tester_run.planning.plan import Plan


def planned(plan: Plan, options: RunOptions) -> dict[str, Any]:
    """Return what a run would do, as JSON.

    Raises :class:`ConfigError` if the run directory cannot be used or the key of a model provider is missing.
    """
    plan.producer.require_key(options.variables)
    if plan.judge:
        plan.judge.require_key(options.variables)
    earlier = earlier_header(plan.directory, resume=options.resume) if plan.directory.exists() else None
    return {
        "run_id": plan.config.run.id,
        "benchmark": {"id": plan.pack.id, "version": plan.pack.version},
        "tasks": [task.id for task in plan.tasks],
        "pack_tasks": len(plan.all_tasks),
        "selection": plan.selection.given,
        "trials": plan.trials,
        "harness": dict(plan.harness),
        "driver": requested_sandbox(plan.config.sandbox, options.driver, earlier).driver,
        "images": sorted({image for task in plan.tasks for image in task.images}),
        "workers": plan.workers,
        **({"workers_auto": plan.choice.to_json()} if plan.choice else {}),
        "output_dir": str(plan.directory),
    }


def planned_lines(plans: Sequence[dict[str, Any]]) -> list[str]:
    """Return what runs would do, as text: a paragraph for each run, and the total number of trials."""
    lines: list[str] = []
    for plan in plans:
        benchmark = plan["benchmark"]
        part = PartOfPack(len(plan["tasks"]), plan["pack_tasks"]).describe()
        trials = f", {plan['trials']} trials each" if plan["trials"] > 1 else ""
        harness = plan["harness"].get("name") or plan["harness"]["type"]
        auto = plan.get("workers_auto")
        workers = WorkerChoice(plan["workers"], **auto).describe() if auto else plan["workers"]
        lines += [
            f"run {plan['run_id']}",
            f"  benchmark: {benchmark['id']} {benchmark['version']}, {part}{trials}",
            f"  agent:     {harness}",
            f"  sandbox:   driver {plan['driver']}, images {', '.join(plan['images'])}",
            f"  workers:   {workers}",
            f"  results:   {plan['output_dir']}",
        ]
    total = sum(len(plan["tasks"]) * plan["trials"] for plan in plans)
    return [*map(printable_line, lines), f"{counted(len(plans), 'run')}, {counted(total, 'trial')}. Nothing was run."]
