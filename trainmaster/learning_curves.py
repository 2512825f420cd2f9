"""Learning curves of trials, as simulated searches take them: a value for each unit of training. The command line makes
them of the rows of a table, the master of what was reported."""

from __future__ import annotations

from collections.abc import Sequence


def by_unit(reports: Sequence[tuple[float, float]], last: int) -> list[float]:
    """Return a value for each unit from 1 to `last`: the last one that was reported by then, before the first report
    that one.

    Args:
        reports: Of one trial: units that it had trained, and the value.
        last: How many units; all reports are of up to this one.
    """
    ordered = sorted(reports, key=lambda report: report[0])
    values, place, now = [], 0, ordered[0][1]
    for unit in range(1, last + 1):
        while place < len(ordered) and ordered[place][0] <= unit:
            now = ordered[place][1]
            place += 1
        values.append(now)
    return values
