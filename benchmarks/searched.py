"""Trials of one search as values, so that peers can be shown the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SearchedTrial:
    """`values`: of the searcher's metric, one an epoch."""

    hparams: Mapping[str, Any]
    values: Sequence[float]
    stopped: bool


def of_board(board: Mapping[str, Any]) -> list[SearchedTrial]:
    """From an answer of `api/x1/experiments/ID/board?curves=true&x=epochs`: its trials that have values."""
    rows = {row["id"]: row for row in (dict(zip(board["columns"], row, strict=True)) for row in board["rows"])}
    curves = board["curves"]
    return [
        SearchedTrial(
            {name: rows[trial][f"hp.{name}"] for name in board["hparams"]},
            [value for value in values if value is not None],
            rows[trial]["stop"] == "searcher",
        )
        for trial, values in zip(curves["trials"], curves["y"], strict=True)
        if any(value is not None for value in values)
    ]
