"""Searches whose method is your own program: `for question in experiment.custom_search()`.

The master asks what to do whenever something happens to a trial. What you call in the body of the loop is the answer,
sent when the body ends, all of it or nothing. A program that dies and starts again is asked the same question again,
with the `state` that it had after its last answer, so that nothing is done twice or left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from trainmaster.client import models
from trainmaster.client.errors import ClientError
from trainmaster.client.patience import Patience

if TYPE_CHECKING:
    from trainmaster.client.transport import Transport

WAIT = 30.0  # seconds of one request


@dataclass(frozen=True)
class SearchQuestion:
    """Something that happened.

    `kind`: `begun`, once, before all others; `validated`, with `metrics` (by name, None where there is no usable
    number, of which `complaint` says why) and `time` (in units of `searcher.time_metric`); `ended`, with a `reason`
    where the trial ended early: ERRORED, USER_CANCELED, INVALID_HP or OUT_OF_MEMORY. `trial`: its number, 0, 1, ... in
    order of creation.
    """

    number: int
    kind: str
    trial: int = -1
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    time: float = 0.0
    reason: str = ""
    complaint: str = ""


class CustomSearch:
    """The questions of one search, and what to do. `state`: any JSON value of yours, at most 64 KiB, which the master
    keeps with each answer."""

    def __init__(self, http: Transport, experiment_id: int, patience: float | None) -> None:
        """Use `Master.custom_search`."""
        self.state: Any = None
        self._http, self._patience = http, Patience(patience)
        self._path = f"/api/x1/experiments/{experiment_id}/search-questions"
        self._operations: list[models.Json] | None = None
        self._created = 0

    def __iter__(self) -> Iterator[SearchQuestion]:
        """Yield the questions that have no answer, one at a time, until the search is over.

        Raises:
            NoSuchThing: There is no such experiment.
            APIError: Its searcher is another one, or an answer cannot be carried out; nothing of it was.
            MasterUnreachable: The master did not answer for longer than the patience.
        """
        last = 0
        while True:
            found = self._patience.ask(partial(self._ask, last))
            if found["over"]:
                return
            for asked in found["questions"]:
                last = asked["number"]
                if self._operations is None:
                    self.state, self._created = found["state"], found["created"]
                self._operations = []
                yield SearchQuestion(**{key: value for key, value in asked.items() if value is not None})
                body = {"operations": self._operations, "state": self.state}
                if self._patience.ask(partial(self._answer, last, body))["over"]:
                    return

    def create(self, hparams: Mapping[str, Any], *, parent: int | None = None) -> int:
        """Create a trial.

        Args:
            hparams: A value for every hyperparameter that is not constant.
            parent: The number of a trial whose latest checkpoint it continues from.

        Returns:
            Its number.
        """
        self._add("create", {"hparams": dict(hparams), **({} if parent is None else {"parent": parent})})
        self._created += 1
        return self._created - 1

    def stop(self, trial: int) -> None:
        """Stop a trial that runs or is paused."""
        self._add("stop", trial)

    def pause(self, trial: int) -> None:
        """Pause a running trial: it saves its work and gives its slots back."""
        self._add("pause", trial)

    def resume(self, trial: int) -> None:
        """Let a paused trial continue."""
        self._add("resume", trial)

    def progress(self, fraction: float) -> None:
        """Tell the progress of the search, 0..1."""
        self._add("progress", fraction)

    def finish(self) -> None:
        """Create no more trials: the search ends when none is left."""
        self._add("finish", True)

    def _add(self, verb: str, argument: Any) -> None:
        if self._operations is None:
            raise ClientError("Operations answer a question: call them in the body of the loop over the search.")
        self._operations.append({verb: argument})

    def _ask(self, after: int) -> models.Json:
        query = {"after": after, "timeout_seconds": WAIT}
        return self._http.request("GET", self._path, query=query)

    def _answer(self, number: int, body: models.Json) -> models.Json:
        return self._http.request("POST", f"{self._path}/{number}/answer", body=body)
