"""Endpoints for programs that are the method of a search: its questions, and their answers."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.http.waiting import wait_for
from trainmaster.master.services.experiments.custom_search import Questions

router = APIRouter(prefix="/api/x1", tags=["experiments"])


class SearchQuestion(Shape):
    """`kind`: begun; validated, with `metrics` and `time`; ended, with a `reason` where it ended early. `trial`: the
    number of the trial, 0, 1, ... in order of creation. `complaint`: why the searcher's metric is null."""

    number: int
    kind: str
    trial: int | None = None
    metrics: dict[str, float | None] | None = None
    time: float | None = None
    reason: str | None = None
    complaint: str = ""


class SearchQuestions(Shape):
    """`over`: no question comes any more. `created`: how many trials there are; the next one has this number. `state`:
    what the program stored with its last answer. `questions`: the oldest first, at most 100."""

    over: bool
    created: int
    state: Any
    questions: list[SearchQuestion]


class PostAnswer(Body):
    """`operations`: mappings with one key each, `{create: {hparams, parent}}`, `{stop: N}`, `{pause: N}`,
    `{resume: N}`, `{progress: 0..1}`, `{finish: true}`. `state`: kept for the program, at most 64 KiB."""

    operations: list[dict[str, Any]] = Field([], max_length=10_000)
    state: Any = None


class SearchAnswer(Shape):
    """`repeated`: the question was answered before, and nothing was done. `over`: the experiment is, and nothing was
    done. `created`: numbers of the new trials."""

    repeated: bool
    over: bool
    created: list[int]


@router.get("/experiments/{experiment_id}/search-questions")
async def questions(
    experiment_id: int,
    master: UsesMaster,
    caller: UserCaller,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    timeout_seconds: Annotated[float, Query(alias="timeoutSeconds", allow_inf_nan=False)] = 0,
) -> SearchQuestions:
    """Return the questions that have no answer yet; waits for one, at most the time-out."""
    ask = partial(master.threads.run, caller, master.custom_searches.questions, experiment_id, after)

    async def look() -> Questions | None:
        found = await ask()
        return found if found.waiting or found.over else None

    timeout = min(max(timeout_seconds, 0.0), master.settings.longest_poll)
    found = await wait_for(master.wakeups, f"search:{experiment_id}", look, timeout) or await ask()
    return SearchQuestions(
        over=found.over,
        created=found.created,
        state=found.kept,
        questions=[SearchQuestion(number=number, **question.to_json()) for number, question in found.waiting],
    )


@router.post("/experiments/{experiment_id}/search-questions/{number}/answer")
def answer(experiment_id: int, number: int, body: PostAnswer, master: UsesMaster, caller: UserCaller) -> SearchAnswer:
    """Answer the oldest question: all operations are carried out, or none. A second answer changes nothing."""
    found = master.custom_searches.answer(experiment_id, number, body.operations, body.state)
    return SearchAnswer(repeated=found.repeated, over=found.over, created=list(found.created))
