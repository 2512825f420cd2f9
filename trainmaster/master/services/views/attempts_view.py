"""A trial's life over its jobs: when each waited and ran, how it ended, what it saved, and what was lost with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ARRAY, Double, Text, cast, func, select, union_all
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import METRICS_OF, Allocation, AllocationNode, Checkpoint, Trial
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.values.exits import ExitRecord
from trainmaster.master.values.observed import ObservedJob

MOST = 1000  # attempts, the latest ones
LATELY = 7 * 86400.0  # seconds for which estimates of the scheduler count
MINUTE = 60


@dataclass(frozen=True)
class SavedCheckpoint:
    uuid: str
    at: float
    steps: int
    size: int
    state: str


@dataclass(frozen=True)
class NodeExit:
    rank: int
    node: str
    code: int | None
    text: str


@dataclass(frozen=True)
class AttemptView:
    """`trained_from` and `trained_to`: steps of the first and the last report that count. `lost_steps`: how many it
    trained beyond that, which a later attempt did again. Times are seconds since 1970."""

    row: Allocation
    nodes: Sequence[str]
    checkpoints: Sequence[SavedCheckpoint]
    exits: Sequence[NodeExit]
    trained_from: int | None
    trained_to: int | None
    lost_steps: int
    slot_seconds: float
    expected_start: float | None
    ends_at: float | None


@dataclass(frozen=True)
class _Steps:
    first: int | None = None
    last: int | None = None
    lost: int = 0


class AttemptsViews(BoundService):
    """A trial's attempts as its page shows them."""

    def of_trial(self, trial_id: int) -> tuple[list[AttemptView], float | None]:
        """All attempts, the first one first, and by how many seconds the scheduler's expected starts were off lately in
        the pool of the last one, in the median. Raises NotFound."""
        with self._store.transaction() as session:
            if session.get(Trial, trial_id) is None:
                raise NotFound(f"There is no trial {trial_id}.")
            return read(session, trial_id)


def read(session: Session, trial_id: int) -> tuple[list[AttemptView], float | None]:
    """Return the same in a transaction."""
    latest = (
        select(Allocation)
        .where(Allocation.trial_id == trial_id)
        .order_by(Allocation.created_at.desc(), Allocation.attempt.desc())
        .limit(MOST)
    )
    rows = list(session.scalars(latest))[::-1]
    ids = [row.id for row in rows]
    nodes: dict[str, list[str]] = defaultdict(list)
    joined = select(AllocationNode).where(AllocationNode.allocation_id == func.any(cast(ids, ARRAY(Text))))
    for node in session.scalars(joined.order_by(AllocationNode.node_rank)):
        nodes[node.allocation_id].append(node.name)
    saved: dict[str, list[SavedCheckpoint]] = defaultdict(list)
    for scalar in session.scalars(
        select(Checkpoint).where(Checkpoint.trial_id == trial_id).order_by(Checkpoint.report_time)
    ):
        state = SavedCheckpoint(
            str(scalar.uuid), epoch(scalar.report_time), scalar.steps_completed, scalar.size, scalar.state
        )
        saved[scalar.allocation_id or ""].append(state)
    steps = _steps(session, trial_id)
    views = [_view(row, nodes[row.id], saved[row.id], steps.get(row.attempt, _Steps())) for row in rows]
    return views, expected_error(session, rows[-1].pool) if rows else None


def expected_error(session: Session, pool: str) -> float | None:
    """Return the median of how many seconds too early or too late the scheduler's first expected starts were, of jobs
    that began lately; None: there were none."""
    a = Allocation.__table__.c
    estimated = cast(a.observed[ObservedJob.ESTIMATED].as_string(), Double)
    error = func.abs(func.extract("epoch", a.leased_at) - estimated)
    began = a.leased_at > func.now() - func.make_interval(0, 0, 0, 0, 0, 0, LATELY)
    query = select(func.percentile_cont(0.5).within_group(error)).where(
        a.pool == pool, began, a.observed.has_key(ObservedJob.ESTIMATED)
    )
    spread = session.scalar(query)
    return None if spread is None else round(float(spread))


def _steps(session: Session, trial_id: int) -> dict[int, _Steps]:
    """By attempt; the reports that count and those that a later attempt has replaced."""
    parts = [
        select(m.c.run_id, m.c.archived, func.min(m.c.steps).label("first"), func.max(m.c.steps).label("last"))
        .where(m.c.trial_id == trial_id, m.c.archived if archived else ~m.c.archived)
        .group_by(m.c.run_id, m.c.archived)
        for m in (METRICS_OF["training"], METRICS_OF["validation"])
        for archived in (False, True)
    ]
    kept: dict[int, tuple[int, int]] = {}
    replaced: dict[int, int] = {}
    for run, archived, first, last in session.execute(union_all(*parts)):
        if archived:
            replaced[run] = max(replaced.get(run, 0), last)
        else:
            low, high = kept.get(run, (first, last))
            kept[run] = min(low, first), max(high, last)
    steps = {}
    for run in kept.keys() | replaced.keys():
        first, last = kept.get(run, (None, None))
        before = last if last is not None else _reached(kept, run)
        steps[run] = _Steps(first, last, max(replaced.get(run, 0) - before, 0))
    return steps


def _reached(kept: Mapping[int, tuple[int, int]], run: int) -> int:
    """Return the steps that count from attempts before one of which nothing does."""
    return max((last for other, (_, last) in kept.items() if other < run), default=0)


def _view(row: Allocation, nodes: Sequence[str], saved: Sequence[SavedCheckpoint], steps: _Steps) -> AttemptView:
    observed = row.observed or ObservedJob()
    ran = 0.0
    if row.leased_at is not None:
        moment = now().timestamp()
        end = epoch(row.ended_at) if row.ended_at is not None else moment - moment % MINUTE
        ran = max(end - epoch(row.leased_at), 0.0)
    waits = row.ended_at is None and row.leased_at is None
    return AttemptView(
        row=row,
        nodes=list(nodes) or list(observed.nodes),
        checkpoints=saved,
        exits=[_exit(record) for record in sorted(row.exits, key=lambda record: record.node_rank)],
        trained_from=steps.first,
        trained_to=steps.last,
        lost_steps=steps.lost,
        slot_seconds=round(ran * row.slots, 1),
        expected_start=observed.expected_start if waits else None,
        ends_at=observed.ends_at if row.ended_at is None else None,
    )


def _exit(record: ExitRecord) -> NodeExit:
    return NodeExit(record.node_rank, record.node_name, record.exit_code, record.message[:1000])
