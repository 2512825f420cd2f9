"""Chooses the jobs to preempt for a waiting job: as few and as unimportant as possible, or none if it still would not
fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainmaster.dispatchers.docker.scheduler.model import Placement
from trainmaster.dispatchers.docker.scheduler.node_index import NodeState
from trainmaster.dispatchers.docker.scheduler.shape import GangShape


@dataclass(frozen=True)
class Victim:
    """A job that may be preempted. The larger `expendable`, the sooner it is chosen."""

    job_id: str
    group: str
    slots: int
    placement: Placement
    expendable: tuple[float, ...]


@dataclass(frozen=True)
class PreemptionPlan:
    """Jobs to preempt, and the placement that this makes possible."""

    victims: Sequence[Victim]
    placement: Placement


def choose(
    shape: GangShape,
    spots: Iterable[NodeState],
    victims_on: Callable[[NodeState], Sequence[Victim]],
    acceptable: Callable[[Sequence[Victim]], bool],
) -> PreemptionPlan | None:
    """Return the cheapest preemption for a gang; None when no preemption makes the whole gang fit.

    Args:
        victims_on: jobs that may be preempted on an agent.
        acceptable: whether these jobs together may be preempted.
    """
    offers: list[tuple[tuple[tuple[float, ...], int, int, str], NodeState, list[Victim]]] = []
    for spot in spots:
        if not spot.node.open or spot.node.slots < shape.slots:
            continue
        chosen: list[Victim] = []
        room = spot.soon
        for victim in sorted(victims_on(spot), key=lambda one: (one.expendable, one.job_id), reverse=True):
            if room >= shape.slots:
                break
            if acceptable([*chosen, victim]):
                chosen.append(victim)
                room += spot.jobs[victim.job_id]
        if room >= shape.slots:
            chosen = _needed(chosen, lambda kept, spot=spot: _enough(spot, kept, shape.slots))  # type: ignore[misc]
            dearest = min((victim.expendable for victim in chosen), default=(float("inf"),))
            cost = (tuple(-part for part in dearest), sum(victim.slots for victim in chosen), len(chosen))
            offers.append(((*cost, spot.node.id), spot, chosen))
    if len(offers) < shape.nodes:
        return None
    offers.sort(key=lambda offer: offer[0])
    taken = offers[: shape.nodes]
    everybody = {victim.job_id: victim for _, _, victims in taken for victim in victims}
    agents = [spot for _, spot, _ in taken]
    victims = _needed(
        sorted(everybody.values(), key=lambda one: (one.expendable, one.job_id), reverse=True),
        lambda kept: all(_enough(spot, kept, shape.slots) for spot in agents),
    )
    if not victims or not acceptable(victims):
        return None
    return PreemptionPlan(victims, {spot.node.id: shape.slots for spot in agents})


def _needed(victims: list[Victim], enough: Callable[[Sequence[Victim]], bool]) -> list[Victim]:
    """Drop victims that are not needed, the least expendable first."""
    kept = list(victims)
    for victim in reversed(victims):
        rest = [one for one in kept if one is not victim]
        if enough(rest):
            kept = rest
    return kept


def _enough(spot: NodeState, victims: Sequence[Victim], slots: int) -> bool:
    freed: Mapping[str, int] = spot.jobs
    return spot.soon + sum(freed.get(victim.job_id, 0) for victim in victims) >= slots
