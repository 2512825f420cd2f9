"""Searches whose method is a user's program (`custom`): their questions, and the answers to them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.master.lifecycle.states import State
from trainmaster.master.search import SearchError
from trainmaster.master.search.custom import MOST_STATE, Custom, Question, parse_operations
from trainmaster.master.services import bounds
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Invalid
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator

MOST_AT_ONCE = 100  # questions in one answer
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # as JSON writes it


@dataclass(frozen=True)
class Questions:
    """`over`: no question comes any more. `created`: how many trials there are; the next one has this number. `kept`:
    the state that the program stored with its last answer."""

    over: bool
    created: int
    kept: Any
    waiting: Sequence[tuple[int, Question]]


@dataclass(frozen=True)
class Answered:
    """`repeated`: the question had its answer before, and nothing happened. `over`: the experiment is, and nothing
    happened. `created`: the numbers of new trials."""

    repeated: bool = False
    over: bool = False
    created: Sequence[int] = ()


class CustomSearches(BoundService):
    """The side of the master."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)

    def questions(self, experiment_id: int, after: int) -> Questions:
        """Return questions that wait, with numbers larger than `after`. Raises NotFound, or Invalid where its searcher
        is another one."""
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            method = _method(orchestrator)
            over = _is_over(orchestrator)
            return Questions(over, method.created, method.kept, () if over else method.waiting(after, MOST_AT_ONCE))

    def answer(self, experiment_id: int, number: int, operations: Any, kept: Any) -> Answered:
        """Carry out the answer to the next question, all of it or nothing. One that was answered already changes
        nothing.

        Raises:
            NotFound: there is no such experiment.
            Invalid: an operation is none, or cannot be carried out.
            Conflict: another question comes first.
        """
        bounds.check_tree(self._settings.limits, kept, "The state")
        bounds.check_tree(self._settings.limits, operations, "The list of operations")
        try:
            parse_operations(operations)
        except SearchError as error:
            raise Invalid(f"{error}.") from None
        try:
            text = json.dumps(kept, allow_nan=False, ensure_ascii=False)
            size = len(text.encode())
        except ValueError:  # also of a text that UTF-8 cannot write
            raise Invalid("state: NaN, infinity and halves of surrogate pairs are no JSON.") from None
        if NUL.search(text):  # here, and not when the search is stored as a whole, events later
            raise Invalid("state: a text holds a NUL character, which cannot be stored.")
        if size > MOST_STATE:
            raise Invalid(f"state has {size:,} bytes; it may have {MOST_STATE:,}. Keep the rest in a file.")
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            method = _method(orchestrator)
            if method.answered(number):
                return Answered(repeated=True)
            if _is_over(orchestrator):
                return Answered(over=True)
            before = method.created
            wanted = before + sum("create" in each for each in operations)
            if excess := self._settings.limits.over("trials", wanted, "operations: there would be {} trials"):
                raise Invalid(excess)
            try:
                if not method.is_next(number):
                    raise Conflict(f"Question {number} is not the next one: answer {method.waiting(0, 1)[0][0]} first.")
                orchestrator.instruct(number, {"operations": operations, "state": kept}, epoch(now()))
            except SearchError as error:
                raise Invalid(f"{error}.") from None
            return Answered(created=range(before, method.created))


def _method(orchestrator: ExperimentOrchestrator) -> Custom:
    row = orchestrator.row
    if row.unmanaged or row.config.searcher.name != "custom":
        raise Invalid(f"Experiment {row.id} has the searcher {row.config.searcher.name}: only custom asks questions.")
    method = orchestrator.search.method
    assert isinstance(method, Custom)
    return method


def _is_over(orchestrator: ExperimentOrchestrator) -> bool:
    state = State(orchestrator.row.state)
    return orchestrator.search.over or state.stopping or orchestrator.row.end_time is not None
