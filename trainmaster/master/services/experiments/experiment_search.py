"""Searches experiments by a tree of conditions, in the format of Determined's web page and scripts.

A filter is `{"filterGroup": {"kind": "group", "conjunction": "and" | "or", "children": [...]}, "showArchived": bool}`;
a child is a group again or `{"kind": "field", "columnName", "location", "type", "operator", "value"}`. A sort is
`column=asc,column=desc`. Columns beside the fixed ones: `hp.NAME` (nested ones with dots), or `NAME` where the location
says that it is a hyperparameter, and `GROUP.METRIC.STAT` of the best trial, where GROUP is training, validation or a
metric group and STAT min, max, mean or last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Double, Text, and_, case, cast, func, literal, not_, or_, select, true
from sqlalchemy.dialects.postgresql import JSONB

from trainmaster.config.limits import Limits
from trainmaster.master.db.tables import Experiment, Project, Trial, User
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.experiments import experiments
from trainmaster.master.services.experiments.experiments import ExperimentView
from trainmaster.master.services.paging import Page, Window, cut

Json = Mapping[str, Any]
USUAL = 100  # entries where no limit is given
DEEPEST = 20  # groups inside groups
MOST_READINGS = 5  # parts of a name with dots that are all read in each way, which are 16
MOST_PARTS = 500  # of a path into a JSON column
STATS = ("min", "max", "mean", "last")
SUMMARY = {"training": "avg_metrics", "validation": "validation_metrics"}  # keys of trials' summaries

_e = Experiment.__table__.c
_NUMBERS: dict[str, ColumnElement[Any]] = {
    "id": _e.id,
    "forkedFrom": _e.parent_id,
    "numTrials": _e.num_trials,
    "progress": _e.progress,
    "projectId": _e.project_id,
    "checkpointCount": _e.checkpoint_count,
    "checkpointSize": _e.checkpoint_size,
    "searcherMetricsVal": _e.best_metric,
    "duration": func.extract("epoch", func.coalesce(_e.end_time, func.now()) - _e.start_time),
}
_TEXTS: dict[str, ColumnElement[Any]] = {
    "name": _e.name,
    "description": _e.description,
    "state": _e.state,
    "resourcePool": _e.resource_pool,
    "searcherType": _e.searcher_type,
    "searcherMetric": _e.searcher_metric,
    "user": User.__table__.c.username,
}
_TIMES: dict[str, ColumnElement[Any]] = {"startTime": _e.start_time, "endTime": _e.end_time}
_PREFIXES = {"HYPERPARAMETERS": "hp.", "RUN_HYPERPARAMETERS": "hp.", "RUN_METADATA": "metadata."}  # by location


@dataclass(frozen=True)
class SearchColumn:
    """A column and its comparison: `kind` is number, text, time, tags, or json for values that may be numbers or
    texts."""

    value: ColumnElement[Any]
    kind: str


Find = Callable[[str], SearchColumn]


class ExperimentSearch(BoundService):
    """Searches of experiments by a tree of conditions."""

    def search(
        self, caller: Caller, project_id: int | None, wanted: str, sort: str, offset: int, limit: int
    ) -> Page[tuple[ExperimentView, Trial | None]]:
        """Experiments with their best trials. `limit` 0 stands for 100, -1 for everything, -2 for the count alone."""
        tree = parsed(self._limits, wanted)
        statement = (
            select(Experiment.id)
            .join(User, User.id == Experiment.owner_id)
            .outerjoin(Trial, Trial.id == Experiment.best_trial_id)
            .where(condition(tree.get("filterGroup") or {}, _column))
        )
        if not tree.get("showArchived", False):
            statement = statement.where(~Experiment.archived)
        if project_id is not None:
            statement = statement.where(Experiment.project_id == project_id)
        if caller.workspaces is not None:
            visible = select(Project.id).where(Project.workspace_id.in_(caller.workspaces))
            statement = statement.where(Experiment.project_id.in_(visible))
        order = [*order_of(self._limits, sort, _column), Experiment.id.desc()]
        with self._store.transaction() as session:
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = window_of(offset, limit, total)
            ids = list(session.scalars(statement.order_by(*order).offset(window.start).limit(window.size)))
            views = {view.row.id: view for view in experiments.views_of(session, ids)}
            best_ids = [view.row.best_trial_id for view in views.values()]
            best = {trial.id: trial for trial in session.scalars(select(Trial).where(Trial.id.in_(best_ids)))}
        return Page([(views[key], best.get(views[key].row.best_trial_id or 0)) for key in ids], window)


def window_of(offset: int, limit: int, total: int) -> Window:
    """`limit` 0 stands for 100, -1 for everything, -2 for the count alone."""
    if limit == -2:
        return Window(offset, limit, 0, 0, total)
    return cut(offset, {0: USUAL, -1: 0}.get(limit, limit), total)


def parsed(limits: Limits, wanted: str) -> dict[str, Any]:
    """Parse a filter's JSON. Raises Invalid."""
    try:
        tree = json.loads(wanted) if wanted else {}
    except (ValueError, RecursionError) as error:
        raise Invalid(f"filter: it is not valid JSON: {error}.") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("filterGroup") or {}, dict):
        raise Invalid("filter: it must be a JSON object with a filterGroup.")
    _check_width(limits, tree)
    return tree


def _check_width(limits: Limits, tree: Json) -> None:
    level, conditions = [tree.get("filterGroup")], 0
    for _ in range(DEEPEST + 2):
        children = [group["children"] for group in level if isinstance(group, dict) and "children" in group]
        level = [child for some in children if isinstance(some, list) for child in some]
        conditions += len(level)
        if excess := limits.over("conditions", conditions, "filter: there are {} conditions and groups"):
            raise Invalid(excess)


def condition(group: Json, find: Find, depth: int = 0) -> ColumnElement[bool]:
    """Return the SQL condition of a tree of conditions; `find` resolves columns. Raises Invalid."""
    if depth > DEEPEST:
        raise Invalid(f"filter: groups are nested more than {DEEPEST} deep.")
    children = group.get("children") or []
    if not isinstance(children, list) or not all(isinstance(child, dict) for child in children):
        raise Invalid("filter: children must be a list of groups and fields.")
    parts = [
        condition(child, find, depth + 1) if child.get("kind") == "group" else _field(child, find) for child in children
    ]
    if not parts:
        return true()
    conjunction = group.get("conjunction", "and")
    if conjunction not in ("and", "or"):
        raise Invalid(f"filter: conjunction must be and or or, not {conjunction!r}.")
    return and_(*parts) if conjunction == "and" else or_(*parts)


def _field(field: Json, find: Find) -> ColumnElement[bool]:
    name, operator, value = _name(field), str(field.get("operator") or "="), field.get("value")
    column = find(name)
    if operator in ("isEmpty", "notEmpty"):
        empty = column.value == literal([], JSONB) if column.kind == "tags" else column.value.is_(None)
        return empty if operator == "isEmpty" else not_(empty)
    if value is None:
        return true()  # a row of the web page's form that is not filled in yet
    if column.kind == "tags":
        return _about_tags(column, name, operator, value)
    return _compared(column, name, operator, value)


def _name(field: Json) -> str:
    """Return the full name of a column: a hyperparameter is `hp.x`, or `x` with its location; a value of the metadata
    likewise."""
    name = str(field.get("columnName") or "")
    prefix = _PREFIXES.get(str(field.get("location") or "").removeprefix("LOCATION_TYPE_"), "")
    return name if name.startswith(prefix) else prefix + name


def _about_tags(column: SearchColumn, name: str, operator: str, value: Any) -> ColumnElement[bool]:
    has: ColumnElement[bool] = column.value.op("@>")(literal([str(value)], JSONB))
    if operator in ("contains", "="):
        return has
    if operator in ("notContains", "!="):
        return not_(has)
    raise _odd_operator(name, operator)


def _compared(column: SearchColumn, name: str, operator: str, value: Any) -> ColumnElement[bool]:
    if column.kind == "json":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        plain: ColumnElement[Any] = column.value.op("#>>")(literal([], ARRAY(Text)))
        column = SearchColumn(as_number(column.value), "number") if number else SearchColumn(plain, "text")
    target = column.value
    if operator in ("contains", "notContains"):
        within = cast(target, Text).icontains(str(value), autoescape=True)
        return within if operator == "contains" else not_(func.coalesce(within, False))
    try:
        wanted: ColumnElement[Any] = (
            literal(float(value), Double) if column.kind == "number" else literal(str(value), Text)
        )
    except (TypeError, ValueError):
        raise Invalid(f"filter: {name} is compared with a number, not with {value!r}.") from None
    if column.kind == "text" and name == "state":
        wanted = literal(str(value).removeprefix("STATE_"), Text)
    if column.kind == "time":
        wanted = cast(wanted, Experiment.__table__.c.start_time.type)
    match operator:
        case "=" | "eq":
            return target == wanted
        case "!=" | "ne":
            return func.coalesce(target != wanted, True)
        case "<":
            return target < wanted
        case "<=":
            return target <= wanted
        case ">":
            return target > wanted
        case ">=":
            return target >= wanted
    raise _odd_operator(name, operator)


def _odd_operator(name: str, operator: str) -> Invalid:
    return Invalid(f"filter: {name} cannot be compared with {operator!r}.")


def _column(name: str) -> SearchColumn:
    if name in _NUMBERS:
        return SearchColumn(_NUMBERS[name], "number")
    if name in _TEXTS:
        return SearchColumn(_TEXTS[name], "text")
    if name in _TIMES:
        return SearchColumn(_TIMES[name], "time")
    if name in ("tags", "labels"):
        return SearchColumn(_e.labels, "tags")
    if name == "archived":
        return SearchColumn(cast(_e.archived, Text), "text")
    if column := measured_column(name):
        return column
    raise Invalid(
        f"There is no column {name!r}; there are {', '.join(sorted({**_NUMBERS, **_TEXTS, **_TIMES}))}, tags, "
        "archived, hp.NAME and GROUP.METRIC.min (or max, mean, last)."
    )


def measured_column(name: str) -> SearchColumn | None:
    """`hp.NAME` or `GROUP.METRIC.STAT` of the joined trial; None for any other name."""
    head, _, rest = name.partition(".")
    if head == "hp" and rest:
        return SearchColumn(at_path(Trial.__table__.c.hparams, rest), "json")
    *parts, stat = name.split(".")
    if len(parts) > 1 and stat in STATS:
        summary = Trial.__table__.c.summary_metrics
        ways = [(".".join(parts[:at]), ".".join(parts[at:])) for at in range(1, min(len(parts), 1 + MOST_READINGS))]
        values = [
            func.jsonb_extract_path(summary, SUMMARY.get(group, group), metric, stat, type_=JSONB)
            for group, metric in ways
        ]
        return SearchColumn(
            as_number(func.coalesce(*values, type_=JSONB()) if len(values) > 1 else values[0]), "number"
        )
    return None


def at_path(column: ColumnElement[Any], path: str) -> ColumnElement[Any]:
    """Return the value of a JSON column at `a.b.c`, whichever of its keys have dots themselves. Raises Invalid."""
    parts = path.split(".")
    if len(parts) > MOST_PARTS:
        raise Invalid(f"The path {path:.40}... has {len(parts)} parts; at most {MOST_PARTS} are allowed.")
    values = [column.op("#>", return_type=JSONB())(literal(keys, ARRAY(Text))) for keys in _readings(parts)]
    return func.coalesce(*values, type_=JSONB()) if len(values) > 1 else values[0]


def _readings(parts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the keys that a name with dots may stand for, nested ones first: a.b.c as [a, b, c], [a, b.c], [a.b, c],
    [a.b.c]. Of names with very many dots only the first and the last."""
    if len(parts) > MOST_READINGS:
        yield list(parts)
        yield [".".join(parts)]
        return
    for taken in range(1, len(parts) + 1):
        rest: Iterator[list[str]] = _readings(parts[taken:]) if taken < len(parts) else iter([[]])
        for keys in rest:
            yield [".".join(parts[:taken]), *keys]


def as_number(value: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((func.jsonb_typeof(value) == "number", cast(value, Double)))


def order_of(limits: Limits, sort: str, find: Find) -> list[ColumnElement[Any]]:
    """`column=asc,column=desc` for ORDER BY. Raises Invalid."""
    terms: list[ColumnElement[Any]] = []
    parts = list(filter(None, sort.split(",")))
    if excess := limits.over("conditions", len(parts), "sort: there are {} columns"):
        raise Invalid(excess)
    for part in parts:
        name, _, direction = part.partition("=")
        if direction not in ("", "asc", "desc"):
            raise Invalid(f"sort: {part!r} is not COLUMN=asc or COLUMN=desc.")
        value = find(name.strip()).value
        terms.append(value.desc().nulls_last() if direction == "desc" else value.asc().nulls_last())
    return terms
