"""The runs that all pages show in `scripts/bench webui`: those of a search, as they lie in the master's database."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text


@dataclass(frozen=True)
class Run:
    """A trial: its hyperparameters by dotted names, and its finite validation losses."""

    hparams: Mapping[str, Any]
    steps: Sequence[int]
    values: Sequence[float]


def runs_of(connection: Connection, experiment: int) -> list[Run]:
    """All runs of an experiment that have reported."""
    found = connection.execute(
        text("""
        SELECT t.hparams, array_agg(m.steps ORDER BY m.steps), array_agg(m.metrics->'validation_metrics'->>'val_loss'
            ORDER BY m.steps)
        FROM trials t JOIN metrics m ON m.trial_id = t.id AND m.kind = 'validation'
        WHERE t.experiment_id = :experiment GROUP BY t.id ORDER BY t.id"""),
        {"experiment": experiment},
    )
    runs = []
    for hparams, steps, values in found:
        pairs = [(step, float(value)) for step, value in zip(steps, values, strict=True)]
        finite = [(step, value) for step, value in pairs if math.isfinite(value)]
        if finite:
            runs.append(Run(_flat(hparams), [step for step, _ in finite], [value for _, value in finite]))
    return runs


def _flat(hparams: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in hparams.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{above}{name}.")
        else:
            found[above + name] = value
    return found
