"""Endpoints that act on many experiments of a project at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from trainmaster.master.http.dependencies import ServedMaster, UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.http.parameters import EXPERIMENT_STATES, words
from trainmaster.master.lifecycle import experiment as lifecycle
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.experiments.bulk_actions import ExperimentSelection
from trainmaster.master.services.experiments.experiments import ListQuery

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
        filters = self.filters
        if filters is None:
            return ExperimentSelection(project_id, self.experiment_ids)
        query = ListQuery(
            archived=filters.archived,
            states=words(filters.states, "STATE_", EXPERIMENT_STATES),
            user_ids=filters.user_ids,
            name=filters.name,
            description=filters.description,
            labels=filters.labels,
            project_id=max(project_id, 0) or filters.project_id,
        )
        return ExperimentSelection(project_id, query=query, excluded=filters.excluded_experiment_ids)


class BulkMove(BulkRequest):
    destination_project_id: int


class BulkRetain(BulkRequest):
    num_days: int


class Outcome(Shape):
    id: int
    error: str


class ResultsAnswer(Shape):
    results: list[Outcome]


def _act(master: ServedMaster, caller: Caller, project_id: int, body: BulkRequest, action: Action) -> ResultsAnswer:
    outcomes = master.bulk_actions.act(caller, body.selection(project_id), action)
    return ResultsAnswer(results=[Outcome(id=result.experiment_id, error=result.error) for result in outcomes])


def _command(
    master: ServedMaster, caller: Caller, project_id: int, body: BulkRequest, event: lifecycle.Event
) -> ResultsAnswer:
    return _act(
        master,
        caller,
        project_id,
        body,
        lambda number: master.experiments.command(caller, number, event),
    )


@router.post("/activate")
def activate(project_id: int, body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    return _command(master, caller, project_id, body, lifecycle.Activate())


@router.post("/pause")
def pause(project_id: int, body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    return _command(master, caller, project_id, body, lifecycle.Pause())


@router.post("/cancel")
def cancel(project_id: int, body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    return _command(master, caller, project_id, body, lifecycle.Cancel())


@router.post("/kill")
def kill(project_id: int, body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    return _command(master, caller, project_id, body, lifecycle.Kill())


@router.post("/archive")
def archive(project_id: int, body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    def action(number: int) -> None:
        master.experiment_edits.set_archived(caller, number, True)

    return _act(master, caller, project_id, body, action)


@router.post("/unarchive")
def unarchive(project_id: int, body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    def action(number: int) -> None:
        master.experiment_edits.set_archived(caller, number, False)

    return _act(master, caller, project_id, body, action)


@router.delete("/delete")
def delete(project_id: int, body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    def action(number: int) -> None:
        master.experiments.delete(caller, number)

    return _act(master, caller, project_id, body, action)


@router.post("/move")
def move(project_id: int, body: BulkMove, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    def action(number: int) -> None:
        master.experiment_edits.move(caller, number, body.destination_project_id)

    return _act(master, caller, project_id, body, action)


@router.put("/retain_logs")
def retain_logs(project_id: int, body: BulkRetain, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    def action(number: int) -> None:
        master.retention.keep_logs(caller, number, body.num_days)

    return _act(master, caller, project_id, body, action)
