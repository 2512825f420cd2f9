"""The agent's pure decisions: its next actions and its report."""

from __future__ import annotations

import pytest

from trainmaster.agent.plan import Action, ActionKind, ListedContainer, Local, plan, reports
from trainmaster.agent_protocol.messages import Blame, ContainerOrder, ContainerReport, ContainerState, Delivery, Orders


def order(deliver: tuple[Delivery, ...] = (), *, fresh: bool = True, job_id: str = "j1") -> ContainerOrder:
    return ContainerOrder(
        token="t1", job_id=job_id, node_rank=0, num_nodes=1, slot_ids=(0,), image="i", fresh=fresh, deliver=deliver
    )


def orders(*containers: ContainerOrder, forget: tuple[str, ...] = ()) -> Orders:
    return Orders(revision="r", containers=containers, forget=forget)


def seen(status: str, code: int | None = None, job_id: str = "j1") -> ListedContainer:
    return ListedContainer("c1", "t1", job_id, 0, 1, (0,), status, code)


def kinds(orders_: Orders, known: Local | None) -> list[ActionKind]:
    return [action.kind for action in plan(orders_, {"t1": known} if known else {})]


def said(orders_: Orders, known: Local | None) -> ContainerReport | None:
    return next(iter(reports(orders_, {"t1": known} if known else {})), None)


def state(orders_: Orders, known: Local | None) -> ContainerState:
    report = said(orders_, known)
    assert report is not None
    return report.state


def test_ordered_container_is_started_once() -> None:
    assert kinds(orders(order()), None) == [ActionKind.START]
    assert kinds(orders(order()), Local("t1", busy=True)) == []
    assert kinds(orders(order()), Local("t1", seen("created"))) == [ActionKind.START]
    assert kinds(orders(order()), Local("t1", seen("running"), "j1")) == []
    assert state(orders(order()), None) is ContainerState.PREPARING
    assert state(orders(order()), Local("t1", busy=True)) is ContainerState.PREPARING


@pytest.mark.parametrize(
    ("ordered", "known"),
    [
        (order(), Local("t1", started="j1")),  # this host started it
        (order(fresh=False), None),  # the master has heard that it ran; this host's disk is new
    ],
)
def test_vanished_container_is_not_started_again(ordered: ContainerOrder, known: Local | None) -> None:
    assert kinds(orders(ordered), known) == [ActionKind.HAND_IN]
    assert state(orders(ordered), known) is ContainerState.GONE


def test_nothing_is_started_that_is_to_stop_already() -> None:
    for delivery in (Delivery.TERMINATE, Delivery.KILL):
        for known in (None, Local("t1", seen("created"))):
            assert kinds(orders(order((delivery,))), known) == []
            assert state(orders(order((delivery,))), known) is ContainerState.FAILED
    assert kinds(orders(order((Delivery.PREEMPT,))), None) == [ActionKind.START]


def test_container_still_starting_is_not_reported_as_ended() -> None:
    """Told that it has ended, the master would forget a job that begins a moment later."""
    stopped = orders(order((Delivery.KILL,)))
    for known in (Local("t1", busy=True), Local("t1", seen("created"), busy=True)):
        assert state(stopped, known) is ContainerState.PREPARING
        assert kinds(stopped, known) == []
    assert kinds(stopped, Local("t1", seen("running"), "j1")) == [ActionKind.DELIVER]


def test_signal_is_delivered_once_and_only_to_running_container() -> None:
    both = order((Delivery.PREEMPT, Delivery.TERMINATE))
    running = Local("t1", seen("running"), "j1", delivered=frozenset({Delivery.PREEMPT}))
    assert plan(orders(both), {"t1": running}) == [Action(ActionKind.DELIVER, "t1", both, (Delivery.TERMINATE,))]
    assert kinds(orders(both), Local("t1", seen("exited", 0), "j1", handed_in=True)) == []


def test_ended_container_is_handed_in_once() -> None:
    assert kinds(orders(order()), Local("t1", seen("exited", 3), "j1")) == [ActionKind.HAND_IN]
    done = Local("t1", seen("exited", 3), "j1", handed_in=True)
    assert kinds(orders(order()), done) == []
    report = said(orders(order()), done)
    assert report is not None
    assert (report.state, report.exit_code, report.handed_in) == (ContainerState.EXITED, 3, True)


def test_container_without_order_is_kept_and_reported() -> None:
    stranger = Local("t1", seen("running"), "j1")
    assert kinds(orders(), stranger) == []
    assert state(orders(), stranger) is ContainerState.RUNNING


def test_container_of_other_incarnation_is_left_to_master() -> None:
    assert kinds(orders(order(job_id="j2")), Local("t1", seen("running", job_id="j1"), "j1")) == []
    report = said(orders(order(job_id="j2")), Local("t1", seen("running", job_id="j1"), "j1"))
    assert report is not None
    assert report.job_id == "j1"


def test_forgettable_container_is_removed_once() -> None:
    assert kinds(orders(forget=("t1",)), Local("t1", seen("exited", 0), "j1")) == [ActionKind.REMOVE]
    assert kinds(orders(forget=("t1",)), Local("t1", started="j1")) == [ActionKind.REMOVE]
    assert kinds(orders(forget=("t1",)), Local("t1", seen("exited", 0), "j1", busy=True)) == []
    assert kinds(orders(forget=("t1",)), None) == []
    assert said(orders(), Local("t1", started="j1", busy=True)) is None  # half removed


def test_folder_without_container_is_reported_and_removed() -> None:
    """Its job was ended, and forgotten, between two kinds of this host."""
    assert kinds(orders(), Local("t1")) == []
    assert state(orders(), Local("t1")) is ContainerState.GONE
    assert kinds(orders(forget=("t1",)), Local("t1")) == [ActionKind.REMOVE]


def test_failure_report_names_whose_fault_it_is() -> None:
    report = said(orders(order()), Local("t1", failure="No such image.", blame=Blame.JOB))
    assert report is not None
    assert (report.state, report.blame, report.message) == (ContainerState.FAILED, Blame.JOB, "No such image.")
    assert report.handed_in


def test_end_while_daemon_was_down_is_hosts_fault() -> None:
    report = said(orders(order()), Local("t1", seen("exited", 137), "j1", interrupted=True))
    assert report is not None
    assert (report.blame, "daemon" in report.message) == (Blame.HOST, True)
