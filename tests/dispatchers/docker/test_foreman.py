"""What the master makes of an agent's word, without a wire and without containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.docker.foreman import Foreman
from trainmaster.dispatchers.docker.options import DockerOptions
from trainmaster.dispatchers.docker.record import Wanted
from trainmaster.dispatchers.hub import AgentReport, ContainerReport, ContainerState, Orders, SlotFact

TOKEN = "t-1"


@pytest.fixture
def foreman(tmp_path: Path) -> Foreman:
    made = Foreman(tmp_path, "t-", DockerOptions())
    made.load()
    return made


def sync(foreman: Foreman, *containers: ContainerReport) -> Orders:
    """What agent a1 is told, which says that it has these."""
    report = AgentReport(
        hostname="a1",
        version="0",
        instance="1",
        pool="default",
        slots=(SlotFact(id=0, type=SlotType.CPU),),
        containers=containers,
    )
    return foreman.sync("a1", report)


def container(state: ContainerState, job_id: str, **more: object) -> ContainerReport:
    return ContainerReport(token=TOKEN, job_id=job_id, slot_ids=(0,), state=state, **more)  # type: ignore[arg-type]


def test_what_was_cancelled_before_its_start_and_forgotten_is_taken_away(foreman: Foreman) -> None:
    sync(foreman)
    job_id = foreman.submit(TOKEN, Wanted(pool="default", slots=1, image="i")).job_id
    made = container(ContainerState.PREPARING, job_id, container_id="c1")
    assert [order.token for order in sync(foreman, made).containers] == [TOKEN]
    foreman.cancel(TOKEN)
    sync(foreman, container(ContainerState.FAILED, job_id, container_id="c1", handed_in=True))
    assert foreman.forget(TOKEN)
    told = sync(foreman, made)
    assert (told.containers, told.forget) == ((), (TOKEN,))


def test_what_runs_and_is_not_known_is_adopted(foreman: Foreman) -> None:
    told = sync(foreman, container(ContainerState.RUNNING, "j1", container_id="c1"))
    assert ([order.job_id for order in told.containers], told.forget) == (["j1"], ())
    assert foreman.jobs[TOKEN].adopted
    sync(foreman, container(ContainerState.EXITED, "j1", container_id="c1", exit_code=0, handed_in=True))
    assert foreman.jobs[TOKEN].ended is not None
