"""The findings that `trainmaster doctor` reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`bad`: trials will fail. Without `mend` there is nothing to do."""

    subject: str
    text: str
    mend: str = ""
    bad: bool = False
