"""Nodes on which jobs were lost: how many of which trials, and why the last one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from trainmaster.master.db.tables import Allocation, Experiment, Project, Trial
from trainmaster.master.lifecycle.states import OutcomeKind
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import BoundService

LATELY = dt.timedelta(days=7)
MOST = 10_000  # lost jobs that are read, the latest first
MOST_NODES = 50


@dataclass
class NodeFailures:
    """Jobs that a node lost. `at`: of the latest, as seconds since 1970; `why`: its sentence."""

    node: str
    cluster: str
    at: float
    why: str
    trial: int  # of the latest
    jobs: int = 0
    trials: set[int] = field(default_factory=set)


class NodeFailureList(BoundService):
    """Nodes on which jobs were lost."""

    def lately(self, workspaces: Collection[int] | None = None) -> Sequence[NodeFailures]:
        """Those of the last seven days, the worst first.

        Args:
            workspaces: Only jobs of trials in these; None: all.
        """
        a = Allocation
        query = (
            select(Trial.id, a.dispatcher, a.observed, a.exit_text, a.explanation, a.ended_at)
            .join(Trial, Trial.id == a.trial_id)
            .join(Experiment, Experiment.id == Trial.experiment_id)
            .join(Project, Project.id == Experiment.project_id)
            .where(a.outcome == OutcomeKind.INFRASTRUCTURE.value, a.ended_at > now() - LATELY)
            .order_by(a.ended_at.desc())
            .limit(MOST)
        )
        if workspaces is not None:
            query = query.where(Project.workspace_id.in_(workspaces))
        by_node: dict[tuple[str, str], NodeFailures] = {}
        with self._store.autocommit() as session:
            rows = session.execute(query).all()
        for trial, cluster, observed, text, explained, at in rows:
            assert at is not None
            nodes = observed.nodes if observed is not None else ()
            # Of a job on several nodes the scheduler does not say which failed: a sentence may.
            named = [node for node in nodes if node in (text or explained)]
            for node in map(str, named or nodes):
                one = by_node.setdefault(
                    (cluster, node), NodeFailures(node, cluster, epoch(at), text or explained, trial)
                )
                one.jobs += 1
                one.trials.add(trial)
        return sorted(by_node.values(), key=lambda one: (-len(one.trials), -one.jobs, one.node))[:MOST_NODES]
