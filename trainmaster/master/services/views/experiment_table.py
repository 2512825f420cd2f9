"""The table of experiments: slim rows of chosen columns, filtered by one line of text, sorted, with counts by state.

Where lists answer with whole experiments, their configurations and best trials, this reads only what is shown.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVarTuple

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Double,
    Float,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    not_,
    or_,
    select,
    true,
)  # fmt: skip
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Experiment, Project, Trial, User, Workspace
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.experiments import experiments
from trainmaster.master.services.experiments.experiment_search import as_number, measured_column
from trainmaster.master.services.views import filter_line
from trainmaster.master.services.views.filter_line import Term

Columns = TypeVarTuple("Columns")
_e, _t = Experiment.__table__.c, Trial.__table__.c
_NUMBERS: Mapping[str, ColumnElement[Any]] = {
    "id": _e.id,
    "parent": _e.parent_id,
    "trials": _e.num_trials,
    "progress": _e.progress,
    "best": _e.best_metric,
    "checkpoints": _e.checkpoint_count,
    "size": _e.checkpoint_size,
    "duration": func.extract("epoch", func.coalesce(_e.end_time, func.now()) - _e.start_time),
}
_TEXTS: Mapping[str, ColumnElement[Any]] = {
    "user": User.__table__.c.username,
    "pool": _e.resource_pool,
    "searcher": _e.searcher_type,
    "metric": _e.searcher_metric,
}
_PARTS: Mapping[str, ColumnElement[Any]] = {  # texts that a value is looked for in
    "name": _e.name,
    "description": func.coalesce(_e.description, ""),
    "project": Project.__table__.c.name,
    "workspace": Workspace.__table__.c.name,
    "reason": _e.reason,
}
_TIMES: Mapping[str, ColumnElement[Any]] = {"started": _e.start_time, "ended": _e.end_time}
_FLAGS: Mapping[str, bool | None] = {"yes": True, "true": True, "no": False, "false": False, "any": None}
# Of every row, before the columns that are asked for: what decides which actions are possible.
BASE = ("id", "state", "archived", "userId", "projectId", "workspaceId")
USUAL = ("name", "progress", "trials", "metric", "best", "user", "started", "duration", "labels")
NAMES = (*BASE, *_NUMBERS, *_TEXTS, *_PARTS, *_TIMES, "labels")
MOST_COLUMNS = 50
LONGEST_TEXT = 500  # characters of a cell
# Words for states, beside the states themselves.
_WORDS: Mapping[str, Sequence[str]] = {
    "ACTIVE": ("ACTIVE", *experiments.PHASES),
    "WAITING": ("QUEUED",),
    "STOPPING": tuple(one.value for one in State if one.stopping),
    "FAILED": ("ERROR",),
    "CANCELLED": ("CANCELED",),
    "ENDED": tuple(one.value for one in State if one.terminal),
}
_KNOWN_STATES = frozenset((*(one.value for one in State), *experiments.PHASES))


@dataclass(frozen=True)
class TableView:
    """`rows`: values in the order of `columns`, times in seconds since 1970. `states`: how many there are in each, were
    the filter without its conditions on states."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    total: int
    states: Mapping[str, int]


class ExperimentTable(BoundService):
    """Tables of experiments with chosen columns."""

    def read(self, caller: Caller, line: str, sort: str, columns: Sequence[str], offset: int, limit: int) -> TableView:
        """Return the rows from `offset` on, at most `limit`. `sort`: columns with commas, a minus before a falling one.
        Raises Invalid."""
        wanted = list(dict.fromkeys((*BASE, *(columns or USUAL))))
        if len(wanted) > MOST_COLUMNS:
            raise Invalid(f"columns: there are {len(wanted)}, more than the {MOST_COLUMNS} that are allowed.")
        shown = [_shown(name) for name in wanted]
        order = [*_order(sort), Experiment.id.desc()]
        given = filter_line.terms(self._limits, line)
        plain = [term for term in given if term.key != "state"]
        with self._store.transaction() as session:
            base = [_condition(caller, term) for term in plain]
            if not any(term.key == "archived" for term in plain):
                base.append(~Experiment.archived)
            if caller.workspaces is not None:
                base.append(Project.workspace_id.in_(caller.workspaces))
            states = _states(session, base)
            chosen = [*base, *(_of_states(session, term) for term in given if term.key == "state")]
            total = sum(states.values())
            if len(chosen) > len(base):
                total = session.scalar(_joined(select(func.count())).where(*chosen)) or 0
            statement = _joined(select(*(one.label(f"c{at}") for at, one in enumerate(shown)))).where(*chosen)
            matches = session.execute(statement.order_by(*order).offset(offset).limit(limit)).all()
            active = [row[0] for row in matches if row[1] == State.ACTIVE]
            phases = experiments.phases(session, active)
        rows = [_row(row, phases) for row in matches]
        return TableView(wanted, rows, total, states)


def _joined(statement: Select[*Columns]) -> Select[*Columns]:
    return (
        statement.select_from(Experiment)
        .join(User, User.id == Experiment.owner_id)
        .join(Project, Project.id == Experiment.project_id)
        .join(Workspace, Workspace.id == Project.workspace_id)
        .outerjoin(Trial, Trial.id == Experiment.best_trial_id)
    )


def _states(session: Session, base: Sequence[ColumnElement[bool]]) -> dict[str, int]:
    counted = _joined(select(Experiment.state, func.count())).where(*base).group_by(Experiment.state)
    counts = Counter({state: number for state, number in session.execute(counted)})
    if counts.pop(State.ACTIVE.value, 0):
        live = _joined(select(Experiment.id, Experiment.unmanaged)).where(*base, Experiment.state == State.ACTIVE.value)
        rows = session.execute(live).all()
        phases = experiments.phases(session, [row.id for row in rows])
        counts.update("RUNNING" if row.unmanaged else phases.get(row.id, "QUEUED") for row in rows)
    return dict(counts)


# -- columns ------------------------------------------------------------------------------------------------------


def _shown(name: str) -> ColumnElement[Any]:
    match name:
        case "state":
            return case((and_(_e.state == "ACTIVE", _e.unmanaged), "RUNNING"), else_=_e.state)
        case "archived":
            return _e.archived
        case "userId":
            return _e.owner_id
        case "projectId":
            return _e.project_id
        case "workspaceId":
            return Project.__table__.c.workspace_id
        case "labels":
            return _e.labels
    if name in _TIMES:
        return cast(func.extract("epoch", _TIMES[name]), Double)
    if name == "duration":
        return cast(_NUMBERS[name], Float)
    if name in _PARTS:
        return func.left(_PARTS[name], LONGEST_TEXT)
    return {**_NUMBERS, **_TEXTS}.get(name, _measured(name)[0])


def _measured(name: str) -> tuple[ColumnElement[Any], str]:
    """Return a hyperparameter, `GROUP.METRIC.STAT`, or the last value of a metric of the best trial; and its kind."""
    if (column := measured_column(name)) is not None:
        return column.value, column.kind
    summary = _t.summary_metrics
    last = [
        as_number(func.jsonb_extract_path(summary, group, name, "last", type_=JSONB))
        for group in ("validation_metrics", "avg_metrics")
    ]
    return case((_e.searcher_metric == name, _e.best_metric), else_=func.coalesce(*last)), "number"


def _row(row: Sequence[Any], phases: Mapping[int, str]) -> list[Any]:
    cells = [cell(value) for value in row]
    if cells[1] == State.ACTIVE:
        cells[1] = phases.get(cells[0], "QUEUED")
    return cells


def cell(value: Any) -> Any:
    """Return a value as JSON has it: odd numbers and structures as words, long texts cut."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict) or (isinstance(value, list) and not all(isinstance(one, str) for one in value)):
        return json.dumps(value)[:LONGEST_TEXT]
    return value[:LONGEST_TEXT] if isinstance(value, str) else value


def _order(sort: str) -> list[ColumnElement[Any]]:
    terms: list[ColumnElement[Any]] = []
    names = [part.strip() for part in sort.split(",") if part.strip()]
    if len(names) > MOST_COLUMNS:
        raise Invalid(f"sort: there are {len(names)} columns, more than the {MOST_COLUMNS} that are allowed.")
    for part in names:
        value = _shown(part.removeprefix("-"))
        if part.removeprefix("-") in _PARTS:
            value = func.lower(value)
        terms.append(value.desc().nulls_last() if part.startswith("-") else value.asc().nulls_last())
    return terms


# -- conditions ---------------------------------------------------------------------------------------------------


def _condition(caller: Caller, term: Term) -> ColumnElement[bool]:
    parts = [_one(caller, term, value) for value in term.values]
    return _turned(term, or_(*parts))


def _turned(term: Term, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return not_(func.coalesce(condition, False)) if term.negated != (term.sign == "!=") else condition


def _one(caller: Caller, term: Term, value: str) -> ColumnElement[bool]:
    key = term.key
    if not key:
        named = _e.name.icontains(value, autoescape=True) | _has_label(value)
        return named | (_e.id == int(value)) if value.isascii() and value.isdigit() and len(value) < 10 else named
    if key == "archived":
        if value not in _FLAGS:
            raise Invalid(f"filter: archived is yes, no or any, not {value!r}.")
        return true() if _FLAGS[value] is None else _e.archived.is_(_FLAGS[value])
    if key in ("label", "labels"):
        return _has_label(value)
    if key in _PARTS:
        return _PARTS[key].icontains(value, autoescape=True)
    if key == "user" and value == "me":
        return _e.owner_id == caller.user_id
    if key in _TEXTS:
        return _TEXTS[key] == value
    if key in _TIMES:
        at, age = filter_line.moment(key, value, now())
        return _compared(_TIMES[key], _opposite(term.sign) if age else term.sign, literal(at))
    if key in _NUMBERS:
        return _compared(_NUMBERS[key], term.sign, literal(filter_line.number(key, value), Double))
    return _of_measured(key, term.sign, value)


def _of_measured(key: str, sign: str, value: str) -> ColumnElement[bool]:
    column, kind = _measured(key)
    if kind == "json" and not filter_line.is_number(value):
        plain: ColumnElement[Any] = column.op("#>>")(literal([], ARRAY(Text)))
        return _compared(plain, sign, literal(value, Text))
    if kind == "json":
        column = as_number(column)
    return _compared(column, sign, literal(filter_line.number(key, value), Double))


def _has_label(value: str) -> ColumnElement[bool]:
    condition: ColumnElement[bool] = _e.labels.op("@>")(literal([value], JSONB))
    return condition


def _opposite(sign: str) -> str:
    return {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)


def _compared(column: ColumnElement[Any], sign: str, value: ColumnElement[Any]) -> ColumnElement[bool]:
    match sign:
        case "<":
            return column < value
        case "<=":
            return column <= value
        case ">":
            return column > value
        case ">=":
            return column >= value
    return column == value  # `_turned` turns `!=` round


def _of_states(session: Session, term: Term) -> ColumnElement[bool]:
    wanted: list[str] = []
    for value in term.values:
        word = value.upper().removeprefix("STATE_")
        states = _WORDS.get(word) or ((word,) if word in _KNOWN_STATES else ())
        if not states:
            words = ", ".join(sorted(one.lower() for one in {*_WORDS, *_KNOWN_STATES}))
            raise Invalid(f"filter: there is no state {value!r}; there are {words}.")
        wanted += states
    chosen = experiments.in_states(session, wanted)
    if "RUNNING" in wanted and "ACTIVE" not in wanted:
        chosen = or_(chosen, and_(_e.state == "ACTIVE", _e.unmanaged))
    return _turned(term, chosen)
