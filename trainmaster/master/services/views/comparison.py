"""Compares trials or experiments: their curves, values, hyperparameters, configurations and costs.

An experiment is shown by its best trial. A handful of statements, whatever is compared.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sqlalchemy import Double, cast, func, select
from sqlalchemy.orm import Session

from trainmaster.config.git_state import GitState
from trainmaster.config.secrets import masked
from trainmaster.config.user_options import section_named
from trainmaster.master.db.tables import Allocation, Experiment, Project, Trial, User
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.experiments import experiments
from trainmaster.master.services.files import git_states
from trainmaster.master.services.metrics import series
from trainmaster.master.services.metrics.series import Named
from trainmaster.master.services.views import curves
from trainmaster.master.services.views.board import GROUPS, JobUse, flattened, job_uses, state_of
from trainmaster.master.services.views.curves import BATCHES, Course, CurveGrid
from trainmaster.master.services.views.experiment_table import cell

MOST = 20  # things
MOST_ROWS = 5000  # of hyperparameters and of settings
MOST_METRICS = 10_000
MINUTE = 60
TRIALS, EXPERIMENTS = "trials", "experiments"
# Parts of a configuration that say in what a trial runs, beside the sections of dispatchers.
ENVIRONMENT = frozenset(("environment", "resources", "bind_mounts", "entrypoint", "integrations"))


@dataclass(frozen=True)
class ComparisonRequest:
    """What is compared: `kind` is TRIALS or EXPERIMENTS. `metric` None: the searcher's of the first one."""

    kind: str
    ids: Sequence[int]
    metric: Named | None = None
    x_name: str = ""
    points: int = 300


@dataclass(frozen=True)
class Compared:
    """A trial or an experiment. `trial`: the one whose curve is shown; None: an experiment without one. `best`, `last`
    and `at_budget` are values of the compared metric; `end` is where its curve ends."""

    id: int
    experiment: Experiment
    trial: Trial | None
    username: str
    workspace_id: int
    state: str
    why: str
    best: float | None
    last: float | None
    at_budget: float | None
    end: float | None
    trials: int
    attempts: int
    slot_seconds: float
    queue_seconds: float
    job: JobUse


@dataclass(frozen=True)
class Setting:
    """A hyperparameter or a setting; `values` has one for each compared thing, or a single one that all have. What a
    thing does not have is None."""

    part: str  # hyperparameters, code, environment, configuration
    name: str
    values: Sequence[Any]


@dataclass(frozen=True)
class Comparison:
    things: Sequence[Compared]
    missing: Sequence[tuple[int, str]]
    metric: Named
    smaller_is_better: bool
    x_name: str
    budget: float | None  # the furthest place that all curves reach
    grid: CurveGrid | None
    metrics: Sequence[tuple[str, str]]
    settings: Sequence[Setting]
    settings_left_out: int


def numbers(text: str, kind: str) -> list[int]:
    """Ids with commas, in order and each once. Raises Invalid."""
    ids: dict[int, None] = {}
    for part in text.split(","):
        word = part.strip()
        if not word.isascii() or not word.isdigit() or not 0 < int(word) < 2**31:
            raise Invalid(f"{kind}: write numbers with commas, as {kind}=12,15, not {word[:40]!r}.")
        ids[int(word)] = None
    if len(ids) > MOST:
        raise Invalid(f"{kind}: there are {len(ids)}; at most {MOST} are compared at once.")
    return list(ids)


class Comparisons(BoundService):
    """Comparisons of trials and experiments."""

    def compare(self, caller: Caller, wanted: ComparisonRequest) -> Comparison:
        """Return what the caller may see of it, in the order of the ids. Raises Invalid."""
        with self._store.transaction() as session:
            series.one_moment(session)
            rows = _rows(session, caller, wanted)
            shown = [rows[key] for key in wanted.ids if key in rows]
            first = shown[0].experiment if shown else None
            named = wanted.metric or Named("validation", first.searcher_metric if first else "")
            smaller = first is None or first.smaller_is_better
            courses = _courses(session, shown, named, wanted.x_name)
            costs = _costs(session, shown, wanted.kind)
            ids = [one.trial.id for one in shown if one.trial is not None]
            jobs = job_uses(session, Trial.id.in_(ids)) if ids else {}
            phases = _phases(session, shown, wanted.kind)
            code = git_states.of_experiments(session, {one.experiment.id for one in shown})
        ends = [course[-1][0] for course in courses.values() if course]
        budget = min(ends) if len(ends) > 1 else None
        drawn = {key: course for key, course in courses.items() if course}
        grid = None
        if drawn:
            x, y, last = curves.on_grid(list(drawn.values()), wanted.points)
            grid = CurveGrid(named, wanted.x_name or BATCHES, x, list(drawn), y, last, [[] for _ in y], True, 0)
        settings, left_out = _settings(shown, wanted.kind, code)
        return Comparison(
            things=[_compared(one, wanted.kind, courses, smaller, budget, costs, jobs, phases) for one in shown],
            missing=[
                (key, f"There is no {wanted.kind[:-1]} {key}, or it is in a workspace that you may not look into.")
                for key in wanted.ids
                if key not in rows
            ],
            metric=named,
            smaller_is_better=smaller,
            x_name=wanted.x_name or BATCHES,
            budget=budget,
            grid=grid,
            metrics=_metrics(shown),
            settings=settings,
            settings_left_out=left_out,
        )


# -- reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    id: int
    experiment: Experiment
    trial: Trial | None
    username: str
    workspace_id: int


def _rows(session: Session, caller: Caller, wanted: ComparisonRequest) -> dict[int, _Row]:
    """Those that are there and that the caller sees, by id."""
    query = (
        select(Experiment, Trial, User.username, Project.workspace_id)
        .join(User, User.id == Experiment.owner_id)
        .join(Project, Project.id == Experiment.project_id)
    )
    if wanted.kind == TRIALS:
        query = query.join(Trial, Trial.experiment_id == Experiment.id).where(Trial.id.in_(wanted.ids))
    else:
        query = query.outerjoin(Trial, Trial.id == Experiment.best_trial_id).where(Experiment.id.in_(wanted.ids))
    rows = {}
    for experiment, trial, username, workspace_id in session.execute(query):
        if caller.sees(workspace_id):
            key = trial.id if wanted.kind == TRIALS else experiment.id
            rows[key] = _Row(key, experiment, trial, username, workspace_id)
    return rows


def _courses(session: Session, shown: Sequence[_Row], metric: Named, x_name: str) -> dict[int, Course]:
    """By trial."""
    starts = {one.trial.id: epoch(one.trial.start_time) for one in shown if one.trial is not None}
    return curves.of_trials(session, starts, metric, x_name) if metric.name and starts else {}


@dataclass
class _Cost:
    attempts: int = 0
    slot_seconds: float = 0.0
    queue_seconds: float = 0.0


def _costs(session: Session, shown: Sequence[_Row], kind: str) -> dict[int, _Cost]:
    """Return what the jobs of each have used, and how long they waited, up to this minute."""
    a = Allocation
    moment = now()
    this_minute = func.to_timestamp(moment.timestamp() - moment.timestamp() % MINUTE)
    ran = func.extract("epoch", func.coalesce(a.ended_at, this_minute) - a.leased_at)
    waited = func.extract("epoch", func.coalesce(a.leased_at, a.ended_at, this_minute) - a.created_at)
    owner = Trial.id if kind == TRIALS else Trial.experiment_id
    query = (
        select(
            owner,
            func.count(),
            cast(func.sum(func.greatest(func.coalesce(ran, 0), 0) * a.slots), Double),
            cast(func.sum(func.greatest(waited, 0)), Double),
        )
        .join(Trial, Trial.id == a.trial_id)
        .where(owner.in_([one.id for one in shown]))
        .group_by(owner)
    )
    costs: dict[int, _Cost] = defaultdict(_Cost)
    for key, attempts, used, queued in session.execute(query):
        costs[key] = _Cost(attempts, round(used, 1), round(queued, 1))
    return costs


def _phases(session: Session, shown: Sequence[_Row], kind: str) -> dict[int, str]:
    """Return the phases of active experiments, as lists show them."""
    active = [one.id for one in shown if one.experiment.state == State.ACTIVE]
    if kind == TRIALS or not active:
        return {}
    return {view.row.id: view.phase for view in experiments.views_of(session, active)}


# -- shaping ------------------------------------------------------------------------------------------------------


def _compared(
    one: _Row,
    kind: str,
    courses: Mapping[int, Course],
    smaller: bool,
    budget: float | None,
    costs: Mapping[int, _Cost],
    jobs: Mapping[int, JobUse],
    phases: Mapping[int, str],
) -> Compared:
    experiment, trial = one.experiment, one.trial
    job = jobs.get(trial.id, JobUse()) if trial is not None else JobUse()
    course = courses.get(trial.id, []) if trial is not None else []
    values = [value for _, value in course]
    until = [value for place, value in course if budget is not None and place <= budget]
    if experiment.unmanaged and experiment.state == State.ACTIVE:
        state = "RUNNING"
    elif kind == TRIALS and trial is not None:
        state = state_of(trial.state, job.state)
    else:
        state = phases.get(experiment.id, experiment.state)
    cost = costs[one.id]
    return Compared(
        id=one.id,
        experiment=experiment,
        trial=trial,
        username=one.username,
        workspace_id=one.workspace_id,
        state=state,
        why=trial.reason if kind == TRIALS and trial is not None else experiment.reason,
        best=(min(values) if smaller else max(values)) if values else None,
        last=values[-1] if values else None,
        at_budget=until[-1] if until else None,
        end=course[-1][0] if course else None,
        trials=1 if kind == TRIALS else experiment.num_trials,
        attempts=cost.attempts,
        slot_seconds=cost.slot_seconds,
        queue_seconds=cost.queue_seconds,
        job=job,
    )


def _metrics(shown: Sequence[_Row]) -> list[tuple[str, str]]:
    by_name = {
        (GROUPS.get(group, group), name)
        for one in shown
        if one.trial is not None
        for group, values in one.trial.summary_metrics.items()
        for name in values
    }
    return sorted(by_name)[:MOST_METRICS]


def _settings(shown: Sequence[_Row], kind: str, code: Mapping[int, GitState]) -> tuple[list[Setting], int]:
    """Hyperparameters of the trials, and settings of their experiments; and how many there are beyond MOST_ROWS. Those
    that differ come first, so that no difference is left out while there is room."""
    parts = [{**_parts(one, kind), **_code(code.get(one.experiment.id))} for one in shown]
    names = list(dict.fromkeys(chain.from_iterable(parts)))
    settings = []
    for part, name in names:
        given = [one.get((part, name)) for one in parts]
        same = len({json.dumps(value, sort_keys=True) for value in given}) == 1
        shortened = [cell(value) for value in given]
        settings.append(Setting(part, name, shortened[:1] if same else shortened))
    settings.sort(key=lambda setting: len(setting.values) == 1)
    return settings[:MOST_ROWS], max(len(settings) - MOST_ROWS, 0)


def _parts(one: _Row, kind: str) -> dict[tuple[str, str], Any]:
    """Return the settings of one thing by part and dotted name; secrets are masked."""
    shown = masked(one.experiment.config.to_json())
    space = shown.pop("hyperparameters", {})
    hparams = one.trial.hparams if one.trial is not None else {}
    shown.pop("name", None)
    shown.pop("description", None)
    parts = {("hyperparameters", name): value for name, value in flattened(hparams).items()}
    if kind == EXPERIMENTS:
        shown["hyperparameters"] = _ranges(space)
    for name, value in flattened(shown).items():
        parts["environment" if _of_environment(name.partition(".")[0]) else "configuration", name] = value
    return parts


def _code(state: GitState | None) -> dict[tuple[str, str], Any]:
    """Return what is known of the code's origin."""
    if state is None:
        return {}
    digest = hashlib.sha256(state.diff.encode()).hexdigest()[:8]
    changed = f"{state.changed_lines} lines ({digest})" if state.diff else "none"
    known = {"commit": state.commit, "branch": state.branch, "remote": state.remote, "uncommitted": changed}
    return {("code", name): value for name, value in known.items()}


def _ranges(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same hyperparameters with what each may be in one value: `double 0.1 to 0.5`, or a list, or a
    constant."""
    return {name: _range(value) if isinstance(value, dict) else value for name, value in space.items()}


def _range(value: Mapping[str, Any]) -> Any:
    kind = value.get("type")
    if kind in ("const", "categorical"):
        return value.get("val", value.get("vals"))
    if kind not in ("int", "double", "log"):
        return _ranges(value)
    base = f"{value['base']}^" if kind == "log" and "base" in value else ""
    text = f"{kind} {base}{value.get('minval')} to {base}{value.get('maxval')}"
    return f"{text}, {value['count']} values" if value.get("count") else text


def _of_environment(section: str) -> bool:
    return section in ENVIRONMENT or section_named(section) is not None
