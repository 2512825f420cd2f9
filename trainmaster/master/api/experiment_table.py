"""The endpoint behind the web page's table of experiments."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape

router = APIRouter(prefix="/api/x1", tags=["experiments"])

MOST = 10_000  # rows of an answer


class ExperimentTable(Shape):
    """`rows`: values in the order of `columns`; times are seconds since 1970. `states`: how many experiments there are
    in each state, were the filter without its conditions on states."""

    columns: list[str]
    rows: list[list[Any]]
    total: int
    states: dict[str, int]


# A GET, although a filter may be long: the page's address has the same parameters, its browser can ask for the answer
# before it has read any of the page's code, and an answer that has not changed is not sent again.
@router.get("/experiments/table")
def table(
    master: UsesMaster,
    caller: UserCaller,
    filter: str = "",
    sort: str = "",
    columns: str = "",
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
    limit: Annotated[int, Query(ge=0, le=MOST)] = 200,
) -> ExperimentTable:
    names = [name for name in (part.strip() for part in columns.split(",")) if name]
    rows = master.experiment_table.read(caller, filter, sort, names, offset, limit)
    return ExperimentTable(
        columns=list(rows.columns),
        rows=[list(row) for row in rows.rows],
        total=rows.total,
        states=dict(rows.states),
    )
