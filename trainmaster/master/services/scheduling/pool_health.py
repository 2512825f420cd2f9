"""Pool circuit breaker and node avoidance, derived from recent job outcomes. The only stored state is the time of the
last manual resume."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from trainmaster.dispatchers.base import Pool
from trainmaster.master.db.tables import Allocation, AllocationNode, PoolResume, Trial
from trainmaster.master.lifecycle.breaker import MEMORY, Failure, PoolPause, pool_pause
from trainmaster.master.lifecycle.states import OutcomeKind, SubmissionState
from trainmaster.master.services.clock import epoch, from_epoch, now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Unavailable
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.scheduling.submission import explain
from trainmaster.master.services.store import wake

AVOID_FOR = 3600.0  # seconds for which a node that lost a job is avoided
UNFIT = 69  # the runtime's exit status on a node without the job's devices (docs/architecture/job-folder.md)
MOST_AVOIDED = 8  # nodes; a site where more are broken needs a person, not a longer list


class PoolHealth(BoundService):
    """The circuit breaker of pools, and the nodes to avoid."""

    def paused_pools(self) -> dict[str, PoolPause]:
        """Pools with an open circuit breaker, by name. A job that vanished from its scheduler's queue failed when it
        vanished, not when it was given up minutes later; those that one look no longer found failed together, once:
        their scheduler has forgotten its queue."""
        time = now()
        since = time - dt.timedelta(seconds=MEMORY)
        failed = (
            select(
                Allocation.pool, Allocation.ended_at, Allocation.absent_since, Allocation.exit_text, Trial.experiment_id
            )
            .join(Trial, Trial.id == Allocation.trial_id)
            .where(
                Allocation.outcome == OutcomeKind.INFRASTRUCTURE.value,
                Allocation.lease_job.is_(None),
                Allocation.submitted_at.is_not(None),
                Allocation.ended_at > since,
            )
        )
        failures: dict[str, list[Failure]] = defaultdict(list)
        vanished: set[tuple[str, dt.datetime]] = set()
        with self._store.transaction() as session:
            for pool, ended_at, absent_since, text, experiment_id in session.execute(failed):
                if ended_at is None or (pool, absent_since) in vanished:
                    continue
                if absent_since is not None:
                    vanished.add((pool, absent_since))
                failures[pool].append(Failure(epoch(absent_since or ended_at), experiment_id, text))
            if not failures:
                return {}
            names = list(failures)
            led = select(Allocation.pool, func.max(Allocation.leased_at)).where(Allocation.pool.in_(names))
            closed = {pool: at for pool, at in session.execute(led.group_by(Allocation.pool)) if at}
            resumes = select(PoolResume.pool, PoolResume.resumed_at).where(PoolResume.pool.in_(names))
            for pool, at in session.execute(resumes):
                closed[pool] = max(at, closed.get(pool, at))
        pauses = {
            pool: pool_pause(those, epoch(closed[pool]) if pool in closed else 0.0, epoch(time))
            for pool, those in failures.items()
        }
        return {pool: one for pool, one in pauses.items() if one is not None}

    def resume(self, pool: str) -> None:
        """Resume a pool for an administrator: earlier failures no longer count."""
        with self._store.transaction() as session:
            statement = insert(PoolResume).values(pool=pool, resumed_at=now())
            changed = {"resumed_at": statement.excluded.resumed_at}
            session.execute(statement.on_conflict_do_update(index_elements=[PoolResume.pool], set_=changed))
            wake(session, "controller")

    def half_open_probes(self, cluster: str, resting: Mapping[str, PoolPause], full: Collection[int] = ()) -> list[str]:
        """Return the allocations of paused pools that may be submitted nevertheless: at most one for each pool, none
        while one is under way. One of an experiment without failures goes at once, any other when the pause is over;
        none of those in `full`. The others' logs show why they wait."""
        probes: list[str] = []
        for pool, one in resting.items():
            of_pool = (Allocation.dispatcher == cluster, Allocation.pool == pool, Allocation.ended_at.is_(None))
            with self._store.transaction() as session:
                under_way = select(func.count()).where(
                    *of_pool, Allocation.submission != SubmissionState.NEW.value, Allocation.lease_job.is_(None)
                )
                waiting = (
                    select(Allocation, Trial.experiment_id)
                    .outerjoin(Trial, Trial.id == Allocation.trial_id)
                    .where(
                        *of_pool,
                        Allocation.submission == SubmissionState.NEW.value,
                        Allocation.kill_at.is_(None),
                        Allocation.not_before <= now(),
                    )
                    .order_by(
                        func.coalesce(Trial.experiment_id.in_(one.groups), False),
                        Allocation.created_at,
                        Allocation.trial_id,
                    )
                )
                rows = session.execute(waiting.with_for_update(of=Allocation, skip_locked=True)).all()
                free = [row for row in rows if row[1] not in full]
                if free and not session.scalar(under_way):
                    allocation, experiment_id = free[0]
                    if experiment_id not in one.groups or epoch(now()) >= one.until:
                        probes.append(allocation.id)
                notes = log_store.Notes()
                _explain_pause(notes, (row for row, _ in rows if row.id not in probes), one)
                session.flush()
                notes.write(session)
        return probes

    def avoided_nodes(self, cluster: str, pool: Pool, slots: int, allocation_id: str) -> list[str]:
        """Nodes that this attempt is kept away from. First those that a log policy forbids its trial; then those that
        lost an earlier attempt of the same trial in the last hour, or had not the GPUs that it was given, and those
        that lost jobs of two trials, the worst first, not more than MOST_AVOIDED or a quarter of the pool, and never so
        many that it has too few left for the job's `slots`.

        Raises NoNodeLeft, with a message for the trial's owner, when the policies leave too few nodes of the pool.
        """
        since = now() - dt.timedelta(seconds=AVOID_FOR)
        blamed: dict[str, set[int]] = defaultdict(set)
        with self._store.autocommit() as session:
            for trial, observed in session.execute(_LOST_NODES, {"cluster": cluster, "since": since}):
                for node in observed.nodes if observed is not None else ():
                    blamed[str(node)].add(trial or 0)
            row = session.execute(_BLOCKED_FOR, {"attempt": allocation_id}).first()
            trial_id, forbidden = (row.id, list(row.blocked_nodes)) if row else (None, [])
            for exits in session.scalars(_UNFIT_FOR, {"cluster": cluster, "since": since, "trial": trial_id}):
                # A job's report on its nodes counts for its own trial only: any user could forge it.
                for record in exits:
                    if record.exit_code == UNFIT and not record.began and record.node_name:
                        blamed[record.node_name].add(trial_id or 0)
            if trial_id is not None and forbidden:
                _refuse_if_too_few_are_left(session, pool, _needed(pool, slots), trial_id, forbidden)
        for node in forbidden:
            blamed.pop(node, None)
        own = [node for node, trials in blamed.items() if trial_id in trials]
        weight = Counter({node: len(trials) for node, trials in blamed.items() if node not in own and len(trials) > 1})
        # A small site cannot spare a node for an hour because of others' failures there.
        suspects = [*own, *(node for node, _ in weight.most_common(min(MOST_AVOIDED, pool.nodes // 4)))][:MOST_AVOIDED]
        return [*forbidden, *suspects[: max(pool.nodes - len(forbidden) - _needed(pool, slots), 0)]]


def _explain_pause(notes: log_store.Notes, waiting: Iterable[Allocation], one: PoolPause) -> None:
    for allocation in waiting:
        until = from_epoch(one.until).strftime("%H:%M UTC")
        text = f"Pool {allocation.pool} is paused: {one.text}. One job at a time is tried, next at {until}."
        explain(notes, allocation, text, level="WARNING")


class NoNodeLeft(Unavailable):
    """Log policies leave a trial too few nodes of its pool."""


def _needed(pool: Pool, slots: int) -> int:
    """Return the minimum number of nodes of a job."""
    return max(1, -(-slots // pool.slots_per_node)) if pool.slots_per_node else 1


def _refuse_if_too_few_are_left(
    session: Session, pool: Pool, needed: int, trial_id: int, forbidden: Sequence[str]
) -> None:
    """Count the nodes that a job may use. A pool reports the number of its nodes, not their names: forbidden ones count
    if this trial has run on them there."""
    met = (
        select(AllocationNode.name)
        .join(Allocation, Allocation.id == AllocationNode.allocation_id)
        .where(Allocation.trial_id == trial_id, Allocation.pool == pool.name, AllocationNode.name.in_(forbidden))
    )
    here = sorted(set(session.scalars(met)))
    left = max(pool.nodes, 1) - len(here)
    if left < needed:
        others = "no other node" if left <= 0 else f"only {left} of the {needed} others that it needs"
        raise NoNodeLeft(
            f"Log policies keep trial {trial_id} away from {', '.join(here)}, and the pool {pool.name} has {others} "
            "in service. Another pool may have one that works."
        )


# Every submit runs these statements: they are built once.
_UNFIT_FOR = select(Allocation.exits).where(
    Allocation.dispatcher == bindparam("cluster"),
    Allocation.outcome == OutcomeKind.INFRASTRUCTURE.value,
    Allocation.ended_at > bindparam("since"),
    Allocation.trial_id == bindparam("trial"),
)
_LOST_NODES = select(Allocation.trial_id, Allocation.observed).where(
    Allocation.dispatcher == bindparam("cluster"),
    Allocation.outcome == OutcomeKind.INFRASTRUCTURE.value,
    Allocation.observed_state == "INFRASTRUCTURE",
    Allocation.ended_at > bindparam("since"),
)
_BLOCKED_FOR = (
    select(Trial.id, Trial.blocked_nodes)
    .join(Allocation, Allocation.trial_id == Trial.id)
    .where(Allocation.id == bindparam("attempt"))
)
