"""Makes actions of a method's requests, and lets it draw."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from trainmaster.master.search.actions import Action, Create, PauseTrial, ResumeTrial, SearchError, StopTrial, Warn
from trainmaster.master.search.combinations import ForbiddenCombinations
from trainmaster.master.search.hyperparameters import overlaid, reduced, sample
from trainmaster.master.search.mersenne import RandomState
from trainmaster.master.search.trial_book import TrialBook

T = TypeVar("T")


class SearchOrders:
    """The `ActionQueue` of one event. `recorded`: what the method drew when the event was first met, or None where it
    is met now. `first`: points to try before any other."""

    def __init__(
        self,
        space: Mapping[str, Any],
        stream: RandomState,
        book: TrialBook,
        at: float,
        recorded: Sequence[Any] | None = None,
        first: Sequence[Mapping[str, Any]] = (),
        forbidden: ForbiddenCombinations = ForbiddenCombinations(()),  # noqa: B008 - it never changes
    ) -> None:
        self._space, self._stream, self._book, self._at = space, stream, book, at
        self._first, self._forbidden = first, forbidden
        self._recorded = None if recorded is None else [*recorded]
        self.actions: list[Action] = []
        self.drawn: list[Any] = []

    def create(self, why: str, hparams: Mapping[str, Any] | None = None, parent: int | None = None) -> int:
        # The order of the draws is upstream's: the point, then the id, then the trial's seed.
        point = dict(hparams) if hparams is not None else self._forbidden.until_allowed(self._sampled)
        if hparams is None and len(self._book.ids) < len(self._first):
            point = reduced(self._space, overlaid(point, self._first[len(self._book.ids)]))
            why = f"{why}; first_points[{len(self._book.ids)}]"
        request_id = self._stream.uuid4()
        origin = None if parent is None else self._name(parent)
        self.actions.append(Create(str(request_id), point, self._stream.below(1 << 31), why, origin))
        return self._book.add(request_id.bytes)

    def _sampled(self) -> dict[str, Any]:
        return sample(self._space, self._stream)

    def stop(self, trial: int, why: str) -> None:
        self._require(trial in self._book.progress and trial not in self._book.stopped, trial, "stop")
        self._book.stop(trial)
        self.actions.append(StopTrial(self._name(trial), why))

    def pause(self, trial: int, why: str) -> None:
        self._require(self._book.runs(trial), trial, "pause")
        self._book.paused.add(trial)
        self.actions.append(PauseTrial(self._name(trial), why))

    def resume(self, trial: int, why: str) -> None:
        self._require(trial in self._book.paused, trial, "resume")
        self._book.paused.remove(trial)
        name = self._name(trial)
        here = next((it for it in self.actions if isinstance(it, PauseTrial) and it.request_id == name), None)
        if here is None:
            self.actions.append(ResumeTrial(name, why))
        else:  # it need not leave at all
            self.actions.remove(here)

    def warn(self, text: str) -> None:
        self.actions.append(Warn(text))

    def draw(self, make: Callable[[RandomState], T]) -> T:
        seed = self._stream.bits32()
        if self._recorded is None:
            text = json.dumps(make(RandomState(seed)), allow_nan=False)
        elif self._recorded:
            text = json.dumps(self._recorded.pop(0))
        else:
            raise SearchError("it draws more than it did then")
        self.drawn.append(json.loads(text))
        value: T = json.loads(text)
        return value

    def spent(self, trial: int | None = None) -> float:
        return self._book.spent if trial is None else self._book.slot_seconds.get(trial, 0.0)

    def now(self) -> float:
        return self._at

    def _name(self, trial: int) -> str:
        return str(uuid.UUID(bytes=self._book.ids[trial]))

    def _require(self, fits: bool, trial: int, verb: str) -> None:
        if not fits:
            raise SearchError(f"the searcher asked to {verb} trial number {trial}, which is {self._book.word(trial)}")
