"""Checks texts, nested values, metadata and counts of users' entities against the `limits` of the configuration."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from trainmaster.config.limits import Limits
from trainmaster.master.services.errors import Invalid

LONGEST_PATH = 4096  # characters
_LEAVES = (str, float, int, type(None))  # asked first: to know a Mapping takes long


def limits_of(session: Session) -> Limits:
    """Return the limits of the master that opened a session."""
    limits: Limits = session.info["limits"]
    return limits


def check_tree(limits: Limits, value: object, what: str) -> None:
    """Check how deeply lists and objects are nested, and how many values they hold. `what`: "The record". Raises
    Invalid."""
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


def check_record(limits: Limits, record: Mapping[str, Any]) -> None:
    """Check a record of a job's stream, less the files of a checkpoint, which have a limit of their own. Raises
    Invalid."""
    check_tree(limits, {name: value for name, value in record.items() if name != "resources"}, "A record")


def check_length(limits: Limits, text: str, key: str, what: str) -> None:
    """`key`: the limit for its characters. Raises Invalid."""
    if excess := limits.over(key, len(text), f"{what} has {{}} characters"):
        raise Invalid(excess)


def check_metadata(limits: Limits, kept: Mapping[str, Any]) -> None:
    """All that is kept as metadata of one thing. Raises Invalid."""
    check_tree(limits, kept, "The metadata")
    _check_size(limits, kept, "The metadata", "metadata", 2**20)


def check_value(limits: Limits, value: object, what: str) -> None:
    """JSON of a request that has no limit of its own. Raises Invalid."""
    check_tree(limits, value, what)
    _check_size(limits, value, what, "value", 2**10)


def check_entry(limits: Limits, data: Mapping[str, Any], what: str) -> int:
    """Return what a job says beside its reports; returns its bytes. Raises Invalid."""
    check_tree(limits, data, what)
    return _check_size(limits, data, what, "job_entry", 2**10)


def check_entries(limits: Limits, what: str, count: int, size: int, more: int) -> None:
    """Whether an attempt that keeps so many entries with so many bytes may keep one with `more`. Raises Invalid."""
    if excess := limits.over("job_entries", count + 1, f"{what} have {{}} entries"):
        raise Invalid(excess)
    if size + more > limits.job_state * 2**20:
        raise Invalid(limits.excess("job_state", f"{what} take {{}} bytes (limits are in MB)", size + more))


def check_file_count(limits: Limits, count: int) -> None:
    """Check the number of files of a checkpoint. Raises Invalid."""
    if excess := limits.over("checkpoint_files", count, "The checkpoint has {} files"):
        raise Invalid(excess)


def check_files(limits: Limits, paths: Collection[str]) -> None:
    """Check the files of a checkpoint. Raises Invalid."""
    check_file_count(limits, len(paths))
    longest = max(paths, key=len, default="")
    if len(longest) > LONGEST_PATH:
        raise Invalid(
            f"A file of the checkpoint has a path of {len(longest)} characters ({longest:.40} ...); at most "
            f"{LONGEST_PATH} are allowed, as on Linux."
        )


def _check_size(limits: Limits, value: object, what: str, key: str, unit: int) -> int:
    most, size = getattr(limits, key) * unit, len(json.dumps(value))
    if size > most:
        raise Invalid(limits.excess(key, f"{what} takes {{}} bytes, and {most} is the most", size))
    return size


def check_count(session: Session, key: str, what: str, *where: ColumnElement[bool]) -> None:
    """Whether one more of what a user has may be made. `what`: "You have {} templates". Raises Invalid."""
    limits = limits_of(session)
    most = int(getattr(limits, key))
    some = select(1).where(*where).limit(most).subquery()
    if (session.scalar(select(func.count()).select_from(some)) or 0) >= most:
        raise Invalid(limits.excess(key, what, most))
