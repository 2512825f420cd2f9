"""The findings that `trainmaster doctor` reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`bad`: trials will fail. Without `fix` there is nothing to do."""

    subject: str
    text: str
    fix: str = ""
    bad: bool = False
