"""How a job ended, and which signals its containers get, derived from its record."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.agent_protocol.messages import Blame, Delivery
from trainmaster.dispatchers.base import JobState
from trainmaster.dispatchers.docker.endings import conclude, deliveries, next_delivery
from trainmaster.dispatchers.docker.job_record import (
    EndKind,
    JobRecord,
    JobRequest,
    NodePart,
    NodePartEnd,
    StopKind,
    StopRequest,
)

NOW = 1000.0


def exited(code: int, at: float = 900.0, **more: Any) -> NodePartEnd:
    return NodePartEnd(kind=EndKind.EXITED, at=at, exit_code=code, **more)


def record(*ends: NodePartEnd | None, stops: dict[StopKind, float] | None = None, **more: Any) -> JobRecord:
    return JobRecord(
        token="t",
        job_id="j",
        submitted_at=0,
        order=1,
        position=0,
        wanted=JobRequest(pool="p", slots=len(ends)),
        ranks=tuple(NodePart(agent_id=f"a{number}", slot_ids=(0,), end=end) for number, end in enumerate(ends)),
        stops=tuple(StopRequest(kind=kind, at=at, why="Because.") for kind, at in (stops or {}).items()),
        **more,
    )


@pytest.mark.parametrize(
    ("job", "state", "says"),
    [
        (record(exited(0)), JobState.COMPLETED, "status 0"),
        (record(exited(42)), JobState.FAILED, "status 42 on agent a0"),
        (record(exited(139)), JobState.FAILED, "signal 11"),
        (record(exited(137)), JobState.FAILED, "someone"),
        (record(exited(137, oom=True)), JobState.OUT_OF_MEMORY, "memory"),
        (record(exited(143, blame=Blame.HOST, message="The daemon.")), JobState.INFRASTRUCTURE, "The daemon"),
        (record(NodePartEnd(kind=EndKind.GONE, at=1)), JobState.INFRASTRUCTURE, "removed"),
        (record(NodePartEnd(kind=EndKind.LOST, at=1, message="silence")), JobState.INFRASTRUCTURE, "silence"),
        (record(NodePartEnd(kind=EndKind.FAILED, at=1, blame=Blame.JOB)), JobState.FAILED, "could not be started"),
        (
            record(NodePartEnd(kind=EndKind.FAILED, at=1, blame=Blame.HOST)),
            JobState.INFRASTRUCTURE,
            "could not be started",
        ),
        (record(exited(143), stops={StopKind.CANCEL: 1}), JobState.CANCELLED, "cancelled"),
        (record(stops={StopKind.CANCEL: 1}), JobState.CANCELLED, "cancelled"),
        (record(exited(0), stops={StopKind.PREEMPT: 1}), JobState.PREEMPTED, "Because"),
        (record(exited(137), stops={StopKind.PREEMPT: 1}), JobState.PREEMPTED, "Because"),
        (record(exited(3, at=5), stops={StopKind.PREEMPT: 10}), JobState.FAILED, "status 3"),
        (record(exited(143), stops={StopKind.EVICT: 1}), JobState.INFRASTRUCTURE, "Because"),
        # The first cause counts, not those who were ended for its sake.
        (
            record(exited(143, at=1), exited(7, at=2), stops={StopKind.BROKEN: 2}),
            JobState.FAILED,
            "status 7 on agent a1",
        ),
        (record(exited(0), exited(1)), JobState.FAILED, "node 1"),
    ],
)
def test_how_a_job_ended(job: JobRecord, state: JobState, says: str) -> None:
    end = conclude(job, NOW)
    assert end is not None
    assert (end.state, says in end.text) == (state, True), end.text
    assert end.text.endswith(".")


def test_a_job_has_not_ended_while_a_part_of_it_runs() -> None:
    assert conclude(record(exited(1), None), NOW) is None
    assert conclude(record(None, stops={StopKind.CANCEL: 1}), NOW) is None


@pytest.mark.parametrize(
    ("stops", "now", "due", "then"),
    [
        ({}, 0, "", None),
        ({StopKind.CANCEL: 10}, 10, "terminate", 40),
        ({StopKind.CANCEL: 10}, 40, "terminate kill", None),
        ({StopKind.PREEMPT: 10}, 10, "preempt", 610),
        ({StopKind.PREEMPT: 10}, 610, "preempt terminate", 640),
        ({StopKind.PREEMPT: 10}, 640, "preempt terminate kill", None),
        ({StopKind.PREEMPT: 10, StopKind.CANCEL: 20}, 20, "preempt terminate", 50),
    ],
)
def test_each_stop_delivers_its_signals_when_due(
    stops: dict[StopKind, float], now: float, due: str, then: float | None
) -> None:
    job = record(None, stops=stops)
    assert deliveries(job, now, 30, 600) == tuple(Delivery(word) for word in due.split())
    assert next_delivery(job, now, 30, 600) == then
