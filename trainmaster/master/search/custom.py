"""`custom`: a search whose method is the user's own program, in a process of its own.

What happens to trials becomes questions, numbered 1, 2, ... in order; the program answers each of them once, in this
order, with operations (`parse_operations`), and may store a state of its own with the answer. A question that has no
answer waits: trials continue, nothing is decided, nothing is lost. The shape is that of Determined's custom searchers
before release 0.38.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from trainmaster.config.searcher import ManyTrials
from trainmaster.config.shapes import Name
from trainmaster.master.search.actions import ExitReason, SearchError
from trainmaster.master.search.hyperparameters import constants, overlaid, variables
from trainmaster.master.search.method import ActionQueue, Method, Preview, ValidationReport

MOST_TRIALS = 100_000
MOST_AT_ONCE = 1_000  # where `max_concurrent_trials` is 0
MOST_WAITING = 1_000  # questions, after which a trial's newer validation takes the place of its older one
MOST_STATE = 64 * 1024  # bytes, as JSON
MOST_OPERATIONS = 10_000  # of one answer
WHY = "searcher custom: "


@dataclass(frozen=True)
class Question:
    """`kind`: begun; validated, with `metrics` (the searcher's and `searcher.metrics`, as reported; the searcher's is
    None where there is no usable number, with a `complaint`) at `time`; ended, with the `reason` where it ended early.
    """

    kind: str
    trial: int | None = None
    metrics: Mapping[str, float | None] | None = None
    time: float | None = None
    reason: str | None = None
    complaint: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it without what is empty."""
        return {key: value for key, value in vars(self).items() if value not in (None, "")}


class Custom(Method):
    """Asks, and does what the answers say."""

    def __init__(
        self, space: Mapping[str, Any], metric: str, sign: float, metrics: Sequence[str], max_concurrent: int
    ) -> None:
        self._space, self._metric, self._sign = space, metric, sign
        self.other_metrics = metrics
        self.max_concurrent = max_concurrent
        self._questions: OrderedDict[int, Question] = OrderedDict()  # without an answer, by number
        self._last = 0  # number of the last one
        self._running: set[int] = set()
        self._paused: set[int] = set()
        self._created = 0
        self._finished = False
        self._progress = 0.0
        self._state: Any = None

    @property
    def open(self) -> bool:
        return not self._finished

    def begin(self, _orders: ActionQueue) -> None:
        self._ask(Question("begun"))

    def validated(self, trial: int, report: ValidationReport, _orders: ActionQueue) -> None:
        own = None if report.value is None else self._sign * report.value
        question = Question(
            "validated", trial, {self._metric: own, **report.others}, report.time, complaint=report.complaint
        )
        if len(self._questions) >= MOST_WAITING:
            numbers = iter(self._questions)
            next(numbers)  # that one may be with the program now
            older = next(
                (n for n in numbers if (it := self._questions[n]).kind == "validated" and it.trial == trial), 0
            )
            if older:
                self._questions[older] = question
                return
        self._ask(question)

    def ended(self, trial: int, reason: ExitReason | None, _orders: ActionQueue) -> None:
        self._running.discard(trial)
        self._paused.discard(trial)
        self._ask(Question("ended", trial, reason=reason))

    def instructed(self, number: int, answer: Any, orders: ActionQueue) -> None:
        if not self.is_next(number):
            raise SearchError(
                f"question {number} is not the next one: "
                + (f"answer question {next(iter(self._questions))} first" if self._questions else "there is none now")
            )
        operations = parse_operations(answer["operations"])
        del self._questions[number]
        self._state = answer["state"]
        for place, (verb, given) in enumerate(operations):
            try:
                self._do(verb, given, orders)
            except SearchError as error:
                raise SearchError(f"operations[{place}]: {error}") from None
        if self._finished and not (self._running or self._paused) and not self._created:
            raise SearchError("operations: a search that finishes without having created a trial has no result")

    def is_next(self, number: int) -> bool:
        """Whether a question is the one that waits for an answer first. Raises SearchError for one that was never
        asked."""
        if not 1 <= number <= self._last:
            raise SearchError(f"there is no question {number}: the last one is {self._last}")
        return next(iter(self._questions), 0) == number

    def answered(self, number: int) -> bool:
        """Whether a question has had its answer."""
        return 1 <= number < next(iter(self._questions), self._last + 1)

    def waiting(self, after: int, most: int) -> list[tuple[int, Question]]:
        """Return the questions without an answer whose numbers are larger than `after`, the oldest first."""
        found = ((number, question) for number, question in self._questions.items() if number > after)
        return [pair for pair, _ in zip(found, range(most), strict=False)]

    @property
    def kept(self) -> Any:
        """The state that the program stored with its last answer."""
        return self._state

    @property
    def created(self) -> int:
        """How many trials there are; the next one has this number."""
        return self._created

    def _ask(self, question: Question) -> None:
        self._last += 1
        self._questions[self._last] = question

    def _do(self, verb: str, given: Any, orders: ActionQueue) -> None:
        if verb == "create":
            if self._finished:
                raise SearchError("create: the search was finished")
            if self._created >= MOST_TRIALS:
                raise SearchError(f"create: there may be {MOST_TRIALS:,} trials")
            self._require_place("create")
            parent = given.get("parent")
            if parent is not None and not 0 <= parent < self._created:
                raise SearchError(f"create: there is no trial number {parent} to be the parent")
            point = self._whole(given["hparams"])
            self._running.add(orders.create(f"{WHY}trial {self._created + 1}", point, parent))
            self._created += 1
        elif verb == "stop":
            orders.stop(given, f"{WHY}stopped")
            self._running.discard(given)
            self._paused.discard(given)
        elif verb == "pause":
            orders.pause(given, f"{WHY}paused")
            self._running.discard(given)
            self._paused.add(given)
        elif verb == "resume":
            self._require_place("resume")
            orders.resume(given, f"{WHY}resumed")
            self._paused.discard(given)
            self._running.add(given)
        elif verb == "progress":
            self._progress = given
        else:
            self._finished = True

    def _require_place(self, verb: str) -> None:
        if len(self._running) >= self.max_concurrent:
            raise SearchError(f"{verb}: searcher.max_concurrent_trials is {self.max_concurrent}, and as many run")

    def _whole(self, point: Mapping[str, Any]) -> dict[str, Any]:
        missing = [name for name in variables(self._space) if name not in point]
        if missing:
            raise SearchError(f"create: hparams give no value to {', '.join(missing)}")
        return overlaid(constants(self._space), point)

    def progress(self, running: Mapping[int, float], ended: int) -> float:
        if self._finished and self._created:
            return (ended + sum(running.values())) / self._created
        return self._progress

    def describe(self) -> str:
        words = f"{self._created} trials created, {len(self._running)} running, {len(self._paused)} paused"
        if not self._questions:
            return f"{words}; every question is answered"
        number, question = next(iter(self._questions.items()))
        about = f" trial number {question.trial}" if question.trial is not None else ""
        count = len(self._questions)
        return f"{words}; {count} questions wait for its program, the first is {number} ({question.kind}{about})"

    def state(self) -> dict[str, Any]:
        return {
            "questions": [[number, question.to_json()] for number, question in self._questions.items()],
            "last": self._last,
            "running": sorted(self._running),
            "paused": sorted(self._paused),
            "created": self._created,
            "finished": self._finished,
            "progress": self._progress,
            "kept": self._state,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._questions = OrderedDict((int(number), Question(**question)) for number, question in state["questions"])
        self._last, self._created = int(state["last"]), int(state["created"])
        self._running, self._paused = set(state["running"]), set(state["paused"])
        self._finished, self._progress = bool(state["finished"]), float(state["progress"])
        self._state = state["kept"]


VERBS = ("create", "stop", "pause", "resume", "progress", "finish")


def parse_operations(given: Any) -> list[tuple[str, Any]]:
    """Return operations as pairs of verb and argument.

    Args:
        given: a list of mappings with one key each: `{create: {hparams: {...}, parent: N}}` (`parent` may be left out),
            `{stop: N}`, `{pause: N}`, `{resume: N}` (numbers of trials), `{progress: 0..1}`, `{finish: true}`.

    Raises:
        SearchError: a sentence with the place of the first that is none of these.
    """
    if not isinstance(given, list):
        raise SearchError("operations: a list is wanted")
    if len(given) > MOST_OPERATIONS:
        raise SearchError(f"operations: an answer may have {MOST_OPERATIONS:,}, not {len(given):,}")
    return [_operation(f"operations[{place}]", each) for place, each in enumerate(given)]


def _operation(where: str, given: Any) -> tuple[str, Any]:
    if not isinstance(given, Mapping) or len(given) != 1 or (verb := next(iter(given))) not in VERBS:
        raise SearchError(f"{where}: a mapping with one key is wanted, one of {', '.join(VERBS)}")
    argument = given[verb]
    if verb == "create":
        _check_create(where, argument)
    elif verb in ("stop", "pause", "resume"):
        if isinstance(argument, bool) or not isinstance(argument, int):
            raise SearchError(f"{where}.{verb}: the number of a trial is wanted")
    elif verb == "progress":
        if isinstance(argument, bool) or not isinstance(argument, int | float) or not 0 <= argument <= 1:
            raise SearchError(f"{where}.progress: a number from 0 to 1 is wanted")
    elif argument is not True:
        raise SearchError(f"{where}.finish: true is wanted")
    return verb, argument


def _check_create(where: str, given: Any) -> None:
    if not isinstance(given, Mapping) or not isinstance(given.get("hparams"), Mapping):
        raise SearchError(f"{where}.create: a mapping with `hparams` is wanted")
    if unknown := set(given) - {"hparams", "parent"}:
        raise SearchError(f"{where}.create: there is no key {min(map(str, unknown))}; the keys are hparams and parent")
    parent = given.get("parent")
    if parent is not None and (isinstance(parent, bool) or not isinstance(parent, int)):
        raise SearchError(f"{where}.create.parent: the number of a trial is wanted")
    try:
        json.dumps(given["hparams"], allow_nan=False)
    except ValueError:
        raise SearchError(f"{where}.create.hparams: NaN and infinity are no values of hyperparameters") from None


class CustomSearcher(ManyTrials):
    """The section of `custom`."""

    contract_version: ClassVar[int] = 2
    refused: ClassVar[Mapping[str, str]] = {
        "first_points": "its program creates these trials first",
        "forbidden": "its program creates no such trials",
    }

    name: Literal["custom"]
    metrics: list[Name] = Field(default_factory=list, max_length=20)
    """Validation metrics that the program sees beside `metric`."""

    def method(self, hparams: Mapping[str, Any]) -> Method:
        sign = 1.0 if self.smaller_is_better else -1.0
        others = [name for name in self.metrics if name != self.metric]
        most = self.max_concurrent_trials or MOST_AT_ONCE
        return Custom(hparams, self.metric or "", sign, others, most)

    def preview(self, _hparams: Mapping[str, Any]) -> Preview:
        return []
