"""Tables of real trainings, of OpenCLIP and language models: CSV files of the package `scan-bench` (MIT licence).

Both are pools: hyperparameters were drawn at random, so that a search's point stands for the nearest run that no other
trial is. Axes are scaled as the runs were drawn, to make near mean the same everywhere.
"""

from __future__ import annotations

import csv
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, str]
Axes = Mapping[str, Callable[[Row], float]]
WORST = 5.0  # what the package records for a run that diverged


def _plain(column: str) -> Callable[[Row], float]:
    return lambda row: float(row[column])


def _log(column: str) -> Callable[[Row], float]:
    return lambda row: math.log10(float(row[column]))


CLIP_AXES: Axes = {
    "log_batch": _log("global_batch_size"), "beta1": _plain("beta1"), "beta2": _plain("beta2"), "log_eps": _log("eps"),
    "log_lr": _log("lr"), "log_text_width": _log("text_width"), "log_vision_width": _log("vision_width"),
    "warmup": _plain("warmup_fraction"), "log_decay": _log("wd"),
}  # fmt: skip
LANGUAGE_AXES: Axes = {
    "width": _plain("d_model"), "layers": _plain("n_layers"), "log_lr": _log("lr"), "log_decay": _log("weight_decay"),
    "beta1": _plain("beta1"), "beta2": _plain("beta2"), "cooldown": _plain("cooldown_steps"),
    "log_tokens": _log("n_tokens"),
}  # fmt: skip


def clip(package: Path) -> dict[str, Any]:
    """Return OpenCLIP runs that were planned for eight to ten epochs: the validation loss in each ninth of the plan (of
    the recorded epoch that is nearest), and seconds as they were measured. A run that diverged keeps the worst loss."""
    values, seconds, points = [], [], []
    runs = [rows for rows in _runs(package / "vlm" / "data.csv", "epoch") if float(rows[0]["total_epochs"]) >= 8]
    took = [float(row["train_duration(s)"]) for rows in runs for row in rows if row["train_duration(s)"]]
    for rows in runs:
        epochs = round(float(rows[0]["total_epochs"]))
        losses = {int(row["epoch"]): float(row["val_loss"] or WORST) for row in rows}
        values.append([losses.get(max(round(unit * epochs / 9), 1), WORST) for unit in range(1, 10)])
        own = [float(row["train_duration(s)"]) for row in rows if row["train_duration(s)"]]
        seconds.append(statistics.median(own or took) * epochs / 9)
        points.append(_point(CLIP_AXES, rows[0]))
    return _table(points, values, seconds)


def language(package: Path) -> dict[str, Any]:
    """Return runs of language models that were evaluated three times or more: the validation loss in each third. The
    package has no seconds of them: they are lognormal. (By their operations the best take so much longer than the mean
    that no search would see their end in the time that it has.)"""
    values, seconds, points, stream = [], [], [], random.Random(11)
    for rows in _runs(package / "llm" / "configs_intermediate_summary.csv", "step_fraction"):
        at = [(float(row["step_fraction"]), float(row["valid_loss"])) for row in rows]
        if len(at) < 3 or at[-1][0] < 0.99:
            continue
        values.append([min(at, key=lambda each: abs(each[0] - unit / 3))[1] for unit in (1, 2, 3)])
        seconds.append(stream.lognormvariate(0, 0.5))
        points.append(_point(LANGUAGE_AXES, rows[0]))
    return _table(points, values, seconds)


def _runs(file: Path, order: str) -> list[list[Row]]:
    runs: dict[int, list[Row]] = defaultdict(list)
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            runs[int(row["config_id"])].append(row)
    return [sorted(runs[key], key=lambda row: float(row[order])) for key in sorted(runs)]


def _point(axes: Axes, row: Row) -> dict[str, float]:
    return {name: value(row) for name, value in axes.items()}


def _table(
    points: Sequence[Mapping[str, float]], values: Sequence[Sequence[float]], seconds: Sequence[float]
) -> dict[str, Any]:
    space = {
        name: {"type": "double", "minval": min(p[name] for p in points), "maxval": max(p[name] for p in points)}
        for name in points[0]
    }
    return {"space": space, "points": points, "values": values, "seconds": seconds}
