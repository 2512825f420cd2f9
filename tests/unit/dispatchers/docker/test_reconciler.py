"""The reconciler processes agents' reports, without network and containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.agent_protocol.messages import AgentReport, ContainerReport, ContainerState, Orders, SlotFact
from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.docker.job_record import JobRequest
from trainmaster.dispatchers.docker.options import DockerOptions
from trainmaster.dispatchers.docker.reconciler import Reconciler

TOKEN = "t-1"


@pytest.fixture
def reconciler(tmp_path: Path) -> Reconciler:
    made = Reconciler(tmp_path, "t-", DockerOptions())
    made.load()
    return made


def sync(reconciler: Reconciler, *containers: ContainerReport) -> Orders:
    """What agent a1 is told, which says that it has these."""
    report = AgentReport(  # type: ignore[call-arg]
        hostname="a1",
        version="0",
        instance="1",
        pool="default",
        slots=(SlotFact(id=0, type=SlotType.CPU),),  # type: ignore[call-arg]
        containers=containers,
    )
    return reconciler.sync("a1", report)


def container(state: ContainerState, job_id: str, **more: object) -> ContainerReport:
    return ContainerReport(token=TOKEN, job_id=job_id, slot_ids=(0,), state=state, **more)  # type: ignore[arg-type]


def test_job_cancelled_before_start_and_forgotten_is_removed(reconciler: Reconciler) -> None:
    sync(reconciler)
    job_id = reconciler.submit(TOKEN, JobRequest(pool="default", slots=1, image="i")).job_id
    made = container(ContainerState.PREPARING, job_id, container_id="c1")
    assert [order.token for order in sync(reconciler, made).containers] == [TOKEN]
    reconciler.cancel(TOKEN)
    sync(reconciler, container(ContainerState.FAILED, job_id, container_id="c1", handed_in=True))
    assert reconciler.forget(TOKEN)
    told = sync(reconciler, made)
    assert (told.containers, told.forget) == ((), (TOKEN,))


def test_running_unknown_container_is_adopted(reconciler: Reconciler) -> None:
    told = sync(reconciler, container(ContainerState.RUNNING, "j1", container_id="c1"))
    assert ([order.job_id for order in told.containers], told.forget) == (["j1"], ())
    assert reconciler.jobs[TOKEN].adopted
    sync(reconciler, container(ContainerState.EXITED, "j1", container_id="c1", exit_code=0, handed_in=True))
    assert reconciler.jobs[TOKEN].ended is not None
