"""Chains of attempts that end at their time limit, read from a real database."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest

from tests.support.attempts import Attempts
from trainmaster.master.db.tables import Allocation, Checkpoint, Task
from trainmaster.master.services.clock import now
from trainmaster.master.services.orchestration.attempts import stalled


@pytest.mark.parametrize(
    ("chain", "count"),
    [
        ([("walltime", 10)], 0),
        ([("walltime", None)], 1),
        ([("walltime", 10), ("walltime", 20), ("walltime", 30)], 0),
        ([("walltime", 10), ("walltime", 10), ("walltime", 10)], 2),
        ([("walltime", 10), ("walltime", 5), ("walltime", 10)], 2),
        ([("walltime", 10), ("walltime", 10), ("walltime", 11)], 0),
        ([("walltime", None), ("failed", None), ("walltime", None)], 1),
        ([("walltime", None), ("stopped at its limit", None), ("stopped at its limit", None)], 3),
        ([("walltime", None), ("stopped", None)], 0),
        ([("walltime", None), ("failed", None)], 0),
    ],
)
def test_attempts_that_came_no_further_are_counted(
    attempts: Attempts, chain: Sequence[tuple[str, int | None]], count: int
) -> None:
    first = attempts.row(attempts.attempt())
    with attempts.store.transaction() as session:
        session.delete(session.get_one(Allocation, first.id))
        session.flush()
        for number, (outcome, steps) in enumerate(chain, 1):
            name = f"{first.task_id}.{number}"
            session.add(
                Allocation(
                    id=name,
                    task_id=first.task_id,
                    trial_id=first.trial_id,
                    token=name,
                    attempt=number,
                    owner_id=1,
                    state="TERMINATED",
                    submission="SUBMITTED",
                    slots=1,
                    pool="main",
                    dispatcher="hpc",
                    ended_at=now(),
                    outcome=outcome.partition(" ")[0],
                    preempt_reason="walltime" if outcome.endswith("limit") else None,
                )
            )
            session.flush()
            if steps is not None:
                session.add(
                    Checkpoint(
                        uuid=uuid.uuid4(),
                        trial_id=first.trial_id,
                        allocation_id=name,
                        state="COMPLETED",
                        steps_completed=steps,
                        resources={},
                        ckpt_metadata={},
                        storage={},
                    )
                )
        session.flush()
        assert session.get(Task, first.task_id) is not None
        assert stalled(session, session.get_one(Allocation, f"{first.task_id}.{len(chain)}")) == count
