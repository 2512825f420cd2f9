"""Records the SQL statements of a piece of code, and counts the rows that each reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, event

SCANS = ("Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan")


@dataclass
class Asked:
    """SQL statements with their parameters, in order."""

    statements: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def reading(self) -> list[tuple[str, Any]]:
        return [(sql, parameters) for sql, parameters in self.statements if sql.lstrip().upper().startswith("SELECT")]


@contextmanager
def listening(engine: Engine) -> Iterator[Asked]:
    """Notes every statement that is executed in the block."""
    asked = Asked()

    def note(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        asked.statements.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)


@dataclass(frozen=True)
class Read:
    """`rows`: read from tables, those that a filter threw away included. `scanned`: tables read from end to end."""

    sql: str
    rows: int
    scanned: dict[str, int]
    plan: str


def explain(engine: Engine, sql: str, parameters: Any) -> Read:
    """Run a statement and count what it reads."""
    with engine.connect() as connection:
        answer = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", parameters)
        plan = answer.scalar_one()[0]["Plan"]
        connection.rollback()
    nodes = list(_nodes(plan))
    scans = [node for node in nodes if node["Node Type"] in SCANS]
    whole = {n["Relation Name"]: _rows(n) for n in scans if n["Node Type"] == "Seq Scan" and _rows(n)}
    story = "\n".join(f"{n['Node Type']} {n.get('Relation Name', '')} {_rows(n)} rows" for n in nodes)
    return Read(sql, sum(map(_rows, scans)), whole, story)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


def _rows(node: dict[str, Any]) -> int:
    thrown_away = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return round(float(node["Actual Rows"] + thrown_away) * float(node["Actual Loops"]))
