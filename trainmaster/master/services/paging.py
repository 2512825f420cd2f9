"""Determined's paging: limit 0 is everything, a negative offset counts from the end, beyond the end is an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainmaster.master.services.errors import Invalid

T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    offset: int
    limit: int
    start: int
    end: int  # exclusive
    total: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Page(Generic[T]):
    items: Sequence[T]
    window: Window


def cut(offset: int, limit: int, total: int) -> Window:
    """Return the page's window. Raises Invalid when the offset is beyond the end."""
    start = offset if offset >= 0 else max(total + offset, 0)
    if start > total:
        raise Invalid(f"The offset {offset} is beyond the end: there are {total} entries.")
    end = total if limit <= 0 else min(start + limit, total)
    return Window(offset, limit, start, end, total)
