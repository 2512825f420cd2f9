"""Checks texts, nested values, metadata and counts of users' entities against the `limits` of the configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from trainmaster.config.limits import Limits, in_force
from trainmaster.master.services.errors import Invalid

_LEAVES = (str, float, int, type(None))  # asked first: to know a Mapping takes long


def check_tree(value: object, what: str, limits: Limits | None = None) -> None:
    """Lists and objects inside each other, and how many values they hold. `what`: "The record". Raises Invalid."""
    limits = limits or in_force()
    left, level = limits.report_values, [value]
    for _ in range(limits.depth + 1):
        level = [
            inner
            for one in level
            if not isinstance(one, _LEAVES)
            for inner in (one.values() if isinstance(one, Mapping) else one if isinstance(one, list | tuple) else ())
        ]
        left -= len(level)
        if left < 0:
            raise Invalid(
                limits.excess("report_values", f"{what} holds {{}} values", f"{limits.report_values} or more")
            )
        if not level:
            return
    raise Invalid(limits.excess("depth", f"{what} is nested {{}} levels deep", f"more than {limits.depth}"))


def check_length(text: str, key: str, what: str) -> None:
    """`key`: the limit for its characters. Raises Invalid."""
    if excess := in_force().over(key, len(text), f"{what} has {{}} characters"):
        raise Invalid(excess)


def check_metadata(kept: Mapping[str, Any]) -> None:
    """All that is kept as metadata of one thing. Raises Invalid."""
    check_tree(kept, "The metadata")
    most, size = in_force().metadata * 2**20, len(json.dumps(kept))
    if size > most:
        raise Invalid(in_force().excess("metadata", f"The metadata takes {{}} bytes, and {most} is the most", size))


def check_count(session: Session, key: str, what: str, *where: ColumnElement[bool]) -> None:
    """Whether one more of what a user has may be made. `what`: "You have {} templates". Raises Invalid."""
    most = int(getattr(in_force(), key))
    some = select(1).where(*where).limit(most).subquery()
    if (session.scalar(select(func.count()).select_from(some)) or 0) >= most:
        raise Invalid(in_force().excess(key, what, most))
