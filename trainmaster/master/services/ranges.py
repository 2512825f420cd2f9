"""Parses and formats sets of ids as clients of streamed updates write them: `1-3,7`."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainmaster.master.services.errors import Invalid

_PART = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?")


@dataclass(frozen=True)
class Ranges:
    """A set of whole numbers as ascending, separate, inclusive ranges. It never takes more memory than its text."""

    parts: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Ranges:
        """Parse a list of numbers and ranges. Raises Invalid for other texts."""
        ranges = []
        for part in text.split(",") if text else ():
            match = _PART.fullmatch(part)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if first > last:
                raise Invalid(f"{part[:40]!r} is neither a number nor a range: known ids are written like 1-3,7.")
            ranges.append((first, last))
        return cls(tuple(_joined(sorted(ranges))))

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Ranges:
        return cls(tuple(_joined((number, number) for number in sorted(numbers))))

    def __str__(self) -> str:
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self.parts)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __contains__(self, number: int) -> bool:
        place = bisect.bisect_right(self.parts, number, key=lambda part: part[0])
        return place > 0 and number <= self.parts[place - 1][1]

    def without(self, numbers: Iterable[int]) -> Ranges:
        """Return the set without `numbers`."""
        ranges: list[tuple[int, int]] = []
        out = iter(sorted(set(numbers)))
        number = next(out, None)
        for first, last in self.parts:
            while number is not None and number < first:
                number = next(out, None)
            while number is not None and number <= last:
                if first < number:
                    ranges.append((first, number - 1))
                first, number = number + 1, next(out, None)
            if first <= last:
                ranges.append((first, last))
        return Ranges(tuple(ranges))


def _joined(parts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge ascending ranges that touch or overlap."""
    open_: tuple[int, int] | None = None
    for first, last in parts:
        if open_ is None:
            open_ = (first, last)
        elif first <= open_[1] + 1:
            open_ = (open_[0], max(last, open_[1]))
        else:
            yield open_
            open_ = (first, last)
    if open_ is not None:
        yield open_
