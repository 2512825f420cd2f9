"""The check by value of all that a run left behind: reports, ends, charges, and what lies about."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.chaos.site import Site
from tests.support.chaos.workload import expected

TRIALS = """
    SELECT t.id, t.experiment_id, t.state, t.hparams, t.restarts, e.state AS experiment
    FROM trials t JOIN experiments e ON e.id = t.experiment_id ORDER BY t.id
"""
REPORTS = """
    SELECT trial_id, run_id, "group", steps, archived,
           coalesce(metrics->'avg_metrics', metrics->'validation_metrics') AS metrics
    FROM metrics WHERE kind IN ('training', 'validation') ORDER BY id
"""
ATTEMPTS = "SELECT id, trial_id, state, outcome, exit_code, exit_text, ended_at, collected FROM allocations ORDER BY id"
CHECKPOINTS = """
    SELECT uuid::text AS uuid, trial_id, state, steps_completed FROM checkpoints WHERE state = 'COMPLETED'
"""
CHARGED = ("failed", "out of memory")


@dataclass
class Findings:
    """What a run did, and what is wrong with it."""

    trials: int = 0
    attempts: int = 0
    steps: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def wrong(self, *words: object) -> None:
        self.violations.append(" ".join(map(str, words)))


def check(site: Site, checkpoints: Path) -> Findings:
    """Everything that can be read when all searches have ended and what they left is swept."""
    found = Findings()
    attempts = defaultdict(list)
    for attempt in site.rows(ATTEMPTS):
        attempts[attempt["trial_id"]].append(attempt)
        found.attempts += 1
        found.outcomes[str(attempt["outcome"])] += 1
        if attempt["ended_at"] is None or attempt["state"] != "TERMINATED":
            found.wrong(f"allocation {attempt['id']} is live: {attempt['state']}")
        elif not attempt["collected"]:
            found.wrong(f"allocation {attempt['id']} was never collected")
    reports = defaultdict(list)
    for report in site.rows(REPORTS):
        reports[report["trial_id"]].append(report)
    numbers: dict[int, dict[int, int]] = {}
    for trial in site.rows(TRIALS):
        found.trials += 1
        numbers[trial["id"]] = expected(trial["hparams"]["seed"], trial["hparams"]["steps"])
        _check_end(found, site, trial, attempts[trial["id"]])
        found.steps += _check_reports(found, trial, reports[trial["id"]], numbers[trial["id"]])
    _check_checkpoints(found, site, checkpoints, numbers)
    found.violations += site.complaints()
    return found


def _check_end(found: Findings, site: Site, trial: dict[str, Any], attempts: list[dict[str, Any]]) -> None:
    name = f"trial {trial['id']}"
    cancelled = [attempt["id"] for attempt in attempts if attempt["outcome"] == "cancelled outside"]
    for attempt in cancelled:
        if attempt not in site.cancelled:
            found.wrong(f"{name}: nobody removed the job of {attempt}, and yet it ended as cancelled")
    wanted = "CANCELED" if cancelled else "COMPLETED"
    if trial["state"] != wanted:
        told = [f"{attempt['id']} {attempt['outcome']}: {attempt['exit_text']}" for attempt in attempts]
        found.wrong(f"{name} ended as {trial['state']}, not {wanted}: {'; '.join(told)}")
    charged = [attempt for attempt in attempts if attempt["outcome"] in CHARGED]
    if trial["restarts"] != len(charged):
        found.wrong(f"{name} was charged {trial['restarts']} restarts for {len(charged)} failures")
    for attempt in charged:
        if attempt["id"] not in site.killed_ranks:
            found.wrong(f"{name} was charged for {attempt['id']}: {attempt['exit_text']}")
    completed = [attempt["id"] for attempt in attempts if attempt["outcome"] == "completed"]
    if len(completed) > 1:
        found.wrong(f"{name} completed in several attempts: {', '.join(completed)}")


def _check_reports(
    found: Findings, trial: dict[str, Any], reports: list[dict[str, Any]], numbers: dict[int, int]
) -> int:
    """Steps whose number is right."""
    name, right = f"trial {trial['id']}", 0
    steps: dict[str, Counter[int]] = {"training": Counter(), "validation": Counter()}
    seen: set[tuple[str, int, int]] = set()
    for report in reports:
        step, group, run, told = report["steps"], report["group"], report["run_id"], report["metrics"]
        if (group, run, step) in seen:
            found.wrong(f"{name}, attempt {run}: step {step} of {group} is stored twice")
        seen.add((group, run, step))
        if told["number"] != numbers.get(step):
            found.wrong(f"{name}, attempt {run}, step {step}: {told['number']} instead of {numbers.get(step)}")
        if not report["archived"]:
            steps[group][step] += 1
            right += told["number"] == numbers.get(step) and group == "validation"
    last = max(numbers) if trial["state"] == "COMPLETED" else max(steps["training"], default=0)
    for group, counted in steps.items():
        # A person may have removed the job between the two reports of its last step.
        least = last if trial["state"] == "COMPLETED" or group == "training" else last - 1
        missing = [step for step in range(1, least + 1) if not counted[step]]
        doubled = [step for step, times in counted.items() if times > 1]
        if missing:
            found.wrong(f"{name}: {group} of steps {missing} is missing")
        if doubled:
            found.wrong(f"{name}: {group} of steps {doubled} counts twice")
    return right


def _check_checkpoints(found: Findings, site: Site, folder: Path, numbers: dict[int, dict[int, int]]) -> None:
    for checkpoint in site.rows(CHECKPOINTS):
        name = f"checkpoint {checkpoint['uuid']} of trial {checkpoint['trial_id']}"
        try:
            saved = json.loads((folder / checkpoint["uuid"] / "state.json").read_text())
        except (OSError, ValueError) as error:
            found.wrong(f"{name} cannot be read: {error}")
            continue
        done = checkpoint["steps_completed"]
        if saved != {"done": done, "number": numbers[checkpoint["trial_id"]].get(done)}:
            found.wrong(f"{name} has {saved} of step {done}")
