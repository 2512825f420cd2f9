"""Endpoints that act on many experiments of a project at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from trainmaster.master.api.dependencies import Services, UserCaller, UsesServices
from trainmaster.master.api.parameters import EXPERIMENT_STATES, words
from trainmaster.master.api.shapes import Body, Shape
from trainmaster.master.lifecycle import experiment as lifecycle
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.experiments import bulk_actions, experiment_edits, experiments
from trainmaster.master.services.experiments.bulk_actions import ExperimentSelection
from trainmaster.master.services.experiments.experiments import ListQuery
from trainmaster.master.services.removal import retention

router = APIRouter(prefix="/api/v1/projects/{project_id}/experiments", tags=["experiments"])
Action = Callable[[int], Any]


class Filters(Body):
    """Filters that select experiments; with these the ids of the request are ignored."""

    name: str = ""
    description: str = ""
    labels: list[str] = []  # noqa: RUF012
    archived: bool | None = None
    states: list[str] = []  # noqa: RUF012
    user_ids: list[int] = []  # noqa: RUF012
    project_id: int | None = None
    excluded_experiment_ids: list[int] = []  # noqa: RUF012


class BulkRequest(Body):
    experiment_ids: list[int] = []  # noqa: RUF012
    filters: Filters | None = None
    project_id: int | None = None

    def selection(self, project_id: int) -> ExperimentSelection:
        found = self.filters
        if found is None:
            return ExperimentSelection(project_id, self.experiment_ids)
        query = ListQuery(
            archived=found.archived,
            states=words(found.states, "STATE_", EXPERIMENT_STATES),
            user_ids=found.user_ids,
            name=found.name,
            description=found.description,
            labels=found.labels,
            project_id=max(project_id, 0) or found.project_id,
        )
        return ExperimentSelection(project_id, query=query, excluded=found.excluded_experiment_ids)


class BulkMove(BulkRequest):
    destination_project_id: int


class BulkRetain(BulkRequest):
    num_days: int


class Outcome(Shape):
    id: int
    error: str


class ResultsAnswer(Shape):
    results: list[Outcome]


def _act(services: Services, caller: Caller, project_id: int, body: BulkRequest, action: Action) -> ResultsAnswer:
    found = bulk_actions.act(services.store, caller, body.selection(project_id), action)
    return ResultsAnswer(results=[Outcome(id=result.experiment_id, error=result.error) for result in found])


def _command(
    services: Services, caller: Caller, project_id: int, body: BulkRequest, event: lifecycle.Event
) -> ResultsAnswer:
    return _act(
        services,
        caller,
        project_id,
        body,
        lambda number: experiments.command(services.store, services.settings, caller, number, event),
    )


@router.post("/activate")
def activate(project_id: int, body: BulkRequest, services: UsesServices, caller: UserCaller) -> ResultsAnswer:
    return _command(services, caller, project_id, body, lifecycle.Activate())


@router.post("/pause")
def pause(project_id: int, body: BulkRequest, services: UsesServices, caller: UserCaller) -> ResultsAnswer:
    return _command(services, caller, project_id, body, lifecycle.Pause())


@router.post("/cancel")
def cancel(project_id: int, body: BulkRequest, services: UsesServices, caller: UserCaller) -> ResultsAnswer:
    return _command(services, caller, project_id, body, lifecycle.Cancel())


@router.post("/kill")
def kill(project_id: int, body: BulkRequest, services: UsesServices, caller: UserCaller) -> ResultsAnswer:
    return _command(services, caller, project_id, body, lifecycle.Kill())


@router.post("/archive")
def archive(project_id: int, body: BulkRequest, services: UsesServices, caller: UserCaller) -> ResultsAnswer:
    def action(number: int) -> None:
        experiment_edits.set_archived(services.store, services.settings, caller, number, True)

    return _act(services, caller, project_id, body, action)


@router.post("/unarchive")
def unarchive(project_id: int, body: BulkRequest, services: UsesServices, caller: UserCaller) -> ResultsAnswer:
    def action(number: int) -> None:
        experiment_edits.set_archived(services.store, services.settings, caller, number, False)

    return _act(services, caller, project_id, body, action)


@router.delete("/delete")
def delete(project_id: int, body: BulkRequest, services: UsesServices, caller: UserCaller) -> ResultsAnswer:
    def action(number: int) -> None:
        experiments.delete(services.store, services.settings, caller, number)

    return _act(services, caller, project_id, body, action)


@router.post("/move")
def move(project_id: int, body: BulkMove, services: UsesServices, caller: UserCaller) -> ResultsAnswer:
    def action(number: int) -> None:
        experiment_edits.move(services.store, services.settings, caller, number, body.destination_project_id)

    return _act(services, caller, project_id, body, action)


@router.put("/retain_logs")
def retain_logs(project_id: int, body: BulkRetain, services: UsesServices, caller: UserCaller) -> ResultsAnswer:
    def action(number: int) -> None:
        retention.keep_logs(services.store, services.settings, caller, number, body.num_days)

    return _act(services, caller, project_id, body, action)
