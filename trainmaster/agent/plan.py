"""Pure decisions of an agent: its next actions and its report, from the master's orders and the containers on the
host.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trainmaster.agent_protocol.messages import Blame, ContainerOrder, ContainerReport, ContainerState, Delivery, Orders


@dataclass(frozen=True)
class ListedContainer:
    """A container of this agent, as the engine lists it. Times are epoch seconds."""

    id: str
    token: str
    job_id: str
    node_rank: int
    num_nodes: int
    slot_ids: tuple[int, ...]
    status: str  # created, running, paused, restarting, removing, exited, dead
    exit_code: int | None = None
    oom: bool = False
    error: str = ""
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def ended(self) -> bool:
        return self.status in ("exited", "dead")


STOPS = frozenset({Delivery.TERMINATE, Delivery.KILL})


@dataclass(frozen=True)
class Local:
    """All that this host knows of one job."""

    token: str
    seen: ListedContainer | None = None
    started: str | None = None  # the job id under which a container was started here
    busy: bool = False  # an action for it is under way
    failure: str = ""
    blame: Blame = Blame.NOBODY
    delivered: frozenset[Delivery] = frozenset()
    handed_in: bool = False
    interrupted: bool = False  # the engine was restarted while it ran


class ActionKind(enum.Enum):
    START = "start"
    DELIVER = "deliver"
    HAND_IN = "hand in"
    REMOVE = "remove"


@dataclass(frozen=True)
class Action:
    kind: ActionKind
    token: str
    order: ContainerOrder | None = None
    deliveries: tuple[Delivery, ...] = field(default=())


def plan(orders: Orders, local: Mapping[str, Local]) -> list[Action]:
    """Return the actions to begin now. Only what the master names is removed, stopped or started."""
    actions: list[Action] = []
    for order in orders.containers:
        known = local.get(order.token, Local(order.token))
        if not known.busy:
            actions += _about(order, known)
    for token in orders.forget:
        known = local.get(token, Local(token))
        if not known.busy and (known.seen is not None or known.started is not None or token in local):
            actions.append(Action(ActionKind.REMOVE, token))
    return actions


def _about(order: ContainerOrder, known: Local) -> Iterable[Action]:
    container = known.seen
    if container is None:
        state = state_of(known, order)
        if state is ContainerState.PREPARING and not STOPS & set(order.deliver):
            yield Action(ActionKind.START, order.token, order)
        elif state is ContainerState.GONE and not known.handed_in:
            yield Action(ActionKind.HAND_IN, order.token, order)
    elif container.job_id != order.job_id:
        return  # the report shows what is here, and the master decides
    elif container.status == "created":
        if not known.failure and not STOPS & set(order.deliver):
            yield Action(ActionKind.START, order.token, order)
    elif container.ended:
        if not known.handed_in:
            yield Action(ActionKind.HAND_IN, order.token, order)
    else:
        due = tuple(each for each in order.deliver if each not in known.delivered)
        if due:
            yield Action(ActionKind.DELIVER, order.token, order, due)


def state_of(known: Local, order: ContainerOrder | None) -> ContainerState:
    """Return the state that is reported for a job."""
    if known.failure:
        return ContainerState.FAILED
    if known.seen is None:
        if known.busy:
            return ContainerState.PREPARING
        if known.started is not None or (order is not None and not order.fresh):
            return ContainerState.GONE
        return ContainerState.PREPARING
    if known.seen.status == "created":
        return ContainerState.PREPARING
    return ContainerState.EXITED if known.seen.ended else ContainerState.RUNNING


def reports(orders: Orders, local: Mapping[str, Local]) -> tuple[ContainerReport, ...]:
    """Return the reports for the master: every container that is here, and every one that it ordered."""
    ordered = {order.token: order for order in orders.containers}
    reports = []
    for token in sorted({*local, *ordered}):
        known, order = local.get(token, Local(token)), ordered.get(token)
        container = known.seen
        if order is None and known.busy:
            continue  # it is being removed
        # While an action for it is under way, its container may be starting at this moment.
        stopped = order is not None and not known.busy and bool(STOPS & set(order.deliver))
        # Files of a container that is no longer wanted: reported, or they would never be removed.
        never = order is None and container is None and not known.started and not known.failure
        state = ContainerState.GONE if never else state_of(known, order)
        failure, blame = known.failure, known.blame
        if stopped and state is ContainerState.PREPARING:
            state, failure = ContainerState.FAILED, "It was ended before its container was started."
        reports.append(
            ContainerReport(
                token=token,
                job_id=container.job_id if container else order.job_id if order else known.started or "",
                node_rank=container.node_rank if container else order.node_rank if order else 0,
                num_nodes=container.num_nodes if container else order.num_nodes if order else 1,
                slot_ids=container.slot_ids if container else order.slot_ids if order else (),
                state=state,
                container_id=container.id if container else "",
                exit_code=container.exit_code if container else None,
                oom=bool(container and container.oom),
                message=failure or _message(known, state),
                blame=Blame.HOST if known.interrupted and state is ContainerState.EXITED else blame,
                started_at=container.started_at if container else None,
                finished_at=container.finished_at if container else None,
                delivered=tuple(sorted(known.delivered)),
                handed_in=known.handed_in or state is ContainerState.FAILED,
            )
        )
    return tuple(reports)


def _message(known: Local, state: ContainerState) -> str:
    if state is ContainerState.GONE:
        return "Its container was removed by someone else."
    if known.interrupted and state is ContainerState.EXITED:
        return "The Docker daemon was stopped or restarted while it ran."
    return known.seen.error if known.seen else ""
