"""The running search of one experiment: its random stream, its method, and the state of its trials."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainmaster.master.search.actions import Action, ExitReason, SearchError, Shutdown
from trainmaster.master.search.combinations import ForbiddenCombinations
from trainmaster.master.search.events import EXITED, INSTRUCTED, NO_TRIAL, SearchEvent
from trainmaster.master.search.mersenne import RandomState
from trainmaster.master.search.method import Arrival, BracketRanking, Method, ValidationReport, When
from trainmaster.master.search.methods import make_method
from trainmaster.master.search.orders import SearchOrders
from trainmaster.master.search.trial_book import TrialBook
from trainmaster.master.values.search import SearchGoal

SNAPSHOT_VERSION = 2
READABLE = (1, SNAPSHOT_VERSION)  # 1: before trials could be paused


class Search:
    """Turns events of trials into the next actions.

    No I/O, no clock; the same events after the same seed give the same actions, through any number of
    `snapshot` and `restore`. What has changed it since the last snapshot is told by `take_events`; `replay` repeats it
    on a search that was restored from that snapshot.

    Reports that are repeated, that are not newer than what a trial has reported before (it was restarted), that are
    about unknown or ended trials or about trials that are paused or were stopped: they change nothing. Report a trial's
    end once, when it is final: with `exited` or `exited_early`; a second report is ignored.

    For a method that `sees_spending`, each event comes with the slot-seconds that its trial has used so far, and with
    the time, in seconds since 1970.
    """

    def __init__(self, searcher: Mapping[str, Any], hparams: Mapping[str, Any], stream: RandomState) -> None:
        """Use `start` or `restore`."""
        self._space = hparams
        self._stream = stream
        self._method: Method = make_method(searcher, hparams)
        goal = SearchGoal.from_json(searcher)
        self._metric = goal.metric
        self._sign = 1.0 if goal.smaller_is_better else -1.0
        self._time_metric = goal.time_metric
        self._first, self._forbidden = goal.first_points, ForbiddenCombinations(goal.forbidden)
        self._book = TrialBook()
        self._over = False
        self._fresh: list[SearchEvent] = []

    @classmethod
    def start(
        cls, searcher: Mapping[str, Any], hparams: Mapping[str, Any], seed: int, at: float = 0.0
    ) -> tuple[Search, list[Action]]:
        """Return a new search and its first actions.

        Args:
            searcher: the resolved `searcher` section of the experiment's configuration.
            hparams: the resolved `hyperparameters` section.
            seed: `reproducibility.experiment_seed`, 0 .. 2**32 - 1.
            at: the time, in seconds since 1970.

        Raises:
            SearchError: the searcher is no longer supported, or a section is incomplete.
        """
        search = cls(searcher, hparams, RandomState(seed))
        orders = search._orders(at)
        search._method.begin(orders)
        return search, orders.actions

    # -- events

    def validation(
        self,
        request_id: str,
        metrics: Mapping[str, Any],
        steps_completed: int,
        *,
        slot_seconds: float = 0.0,
        at: float = 0.0,
    ) -> list[Action]:
        """Take in a trial's validation metrics.

        A searcher metric that is missing, not a number, NaN or infinite counts as the worst possible, and so does a
        validation without the time metric; but for `batches`, which are `steps_completed`.
        """
        trial = self._live(request_id)
        if trial is None or not self._book.runs(trial):
            return []
        time = _finite(metrics.get(self._time_metric))
        time = float(steps_completed) if time is None else time
        if not self._book.is_new(trial, time):
            return []
        value, complaint = self._judged(metrics)
        if self._lacks_time(metrics):
            value, complaint = None, f"the validation has no time metric {self._time_metric}{_names(metrics)}"
        others = {
            name: number for name in self._method.other_metrics if (number := _finite(metrics.get(name))) is not None
        }
        event = SearchEvent("validation", trial, value, time, complaint, others=others or None)
        return self._happened(event, slot_seconds, at)

    def progressed(self, request_id: str, fraction: float) -> None:
        """Take in a trial's progress, 0..1. It never decreases, even when the trial restarts."""
        trial = self._live(request_id)
        if trial is not None and min(fraction, 1.0) > self._book.progress[trial]:
            self._happened(SearchEvent("progress", trial, min(fraction, 1.0)))

    def exited(self, request_id: str, *, slot_seconds: float = 0.0, at: float = 0.0) -> list[Action]:
        """Take in a trial's normal end, by itself or because it was stopped."""
        return self._ended(request_id, None, slot_seconds, at)

    def exited_early(
        self, request_id: str, reason: ExitReason, *, slot_seconds: float = 0.0, at: float = 0.0
    ) -> list[Action]:
        """Take in a trial's early end; it will not be restarted."""
        return self._ended(request_id, ExitReason(reason), slot_seconds, at)

    def instructed(self, number: int, answer: Any, *, at: float = 0.0) -> list[Action]:
        """Take in a program's answer to a question of `custom`, a JSON value. Raises SearchError: the search is then of
        no use any more, and has to be restored."""
        if self._over:
            raise SearchError("the search is over")
        return self._happened(SearchEvent(INSTRUCTED, NO_TRIAL, float(number)), at=at, answer=answer)

    # -- events again

    def take_events(self) -> list[SearchEvent]:
        """Return what has changed this search since the last call, in order. Events that changed nothing are not among
        it."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def replay(self, events: Iterable[SearchEvent]) -> None:
        """Repeat events of `take_events`, in their order, on a search in the state that they were met by.

        Raises SearchError where an event leads to something else than it did then: the searcher decides otherwise by
        now.
        """
        for event in events:
            try:
                orders = self._apply(event, event.drawn or ())
            except (LookupError, TypeError, ValueError) as error:
                raise _diverged(event, repr(error)) from None
            actions, drawn = len(orders.actions), len(orders.drawn)
            if actions != event.actions:
                raise _diverged(event, f"it led to {event.actions} actions then and to {actions} now")
            if drawn != len(event.drawn or ()):
                raise _diverged(event, f"it led to {len(event.drawn or ())} draws then and to {drawn} now")

    # -- looking at it

    @property
    def trials(self) -> int:
        """The number of trials created so far."""
        return len(self._book.ids)

    @property
    def max_concurrent(self) -> int:
        """How many trials run at the same time, at most."""
        return self._method.max_concurrent

    @property
    def sees_spending(self) -> bool:
        """Whether events are to come with what their trial has used, and when."""
        return self._method.sees_spending

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._over

    @property
    def method(self) -> Method:
        """The algorithm, to look at."""
        return self._method

    def progress(self) -> float:
        """Progress of the whole search, 0..1."""
        if self._over:
            return 1.0
        ends = self._book.ends
        ended = sum(map(len, ends.values())) - len(ends[ExitReason.INVALID_HP])
        return min(max(self._method.progress(self._book.progress, ended), 0.0), 1.0)

    def describe(self) -> str:
        """Return the state as a text, such as "rung 1 of 2 (4 epochs): 4 running, 9 stopped; rung 2 of 2 ..."."""
        return self._method.describe()

    def rankings(self) -> list[BracketRanking]:
        """Return the rungs of each bracket and who is on them, with values as trials reported them; empty where the
        searcher has no rungs. Trials are numbered in the order of their creation; `request_ids` has their names."""
        return [
            replace(
                bracket,
                rungs=[
                    replace(rung, values=[self._told(value) for value in rung.values], cut=self._told(rung.cut))
                    for rung in bracket.rungs
                ],
            )
            for bracket in self._method.rankings()
        ]

    def arrivals(self, when: When) -> list[list[Arrival]]:
        """For each bracket of `rankings`: who reached a rung, in order, with values as trials reported them."""
        return [
            [replace(one, value=self._told(one.value), cut=self._told(one.cut)) for one in bracket]
            for bracket in self._method.arrivals(when)
        ]

    def _told(self, value: float | None) -> float | None:
        return None if value is None else value * self._sign

    @property
    def request_ids(self) -> list[str]:
        """Of all trials, in the order of their creation."""
        return [str(uuid.UUID(bytes=key)) for key in self._book.ids]

    def snapshot(self) -> dict[str, Any]:
        """All state beside the configuration, as JSON values: 3.5 kB, about 60 bytes a trial, and the method's own."""
        return {
            "version": SNAPSHOT_VERSION,
            "random": self._stream.dump(),
            **self._book.dump(),
            "over": self._over,
            "method": json.loads(json.dumps(self._method.state())),  # a copy that shares nothing with the method
        }

    @classmethod
    def restore(cls, searcher: Mapping[str, Any], hparams: Mapping[str, Any], snapshot: Mapping[str, Any]) -> Search:
        """Return the search that `snapshot` described, under the same configuration. Raises SearchError."""
        if snapshot.get("version") not in READABLE:
            raise SearchError(
                f"the stored search has version {snapshot.get('version')!r}, this master reads versions up to "
                f"{SNAPSHOT_VERSION}: run the master version that wrote it"
            )
        try:
            search = cls(searcher, hparams, RandomState.load(snapshot["random"]))
            search._book = TrialBook.load(snapshot)
            search._over = bool(snapshot["over"])
            search._method.load(snapshot["method"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, SearchError):
                raise
            raise SearchError(f"the stored search does not fit its configuration: {error!r}") from None
        return search

    # -- inside

    def _orders(self, at: float, recorded: Sequence[Any] | None = None) -> SearchOrders:
        return SearchOrders(self._space, self._stream, self._book, at, recorded, self._first, self._forbidden)

    def _happened(
        self, event: SearchEvent, slot_seconds: float = 0.0, at: float = 0.0, answer: Any = None
    ) -> list[Action]:
        if self._method.sees_spending:
            event = event._replace(slot_seconds=slot_seconds, at=at)
        orders = self._apply(event, answer=answer)
        self._fresh.append(event._replace(actions=len(orders.actions), drawn=orders.drawn or None))
        return orders.actions

    def _apply(self, event: SearchEvent, recorded: Sequence[Any] | None = None, answer: Any = None) -> SearchOrders:
        """Return what an event leads to. Nothing else changes a search that has begun: a replay does the same."""
        trial, book, orders = event.trial, self._book, self._orders(event.at or 0.0, recorded)
        if event.slot_seconds:
            book.spend(trial, event.slot_seconds)
        if event.kind == "progress":
            book.progress[trial] = event.value or 0.0
        elif event.kind == "validation":
            time = event.time or 0.0
            book.last_time[trial] = time
            report = ValidationReport(event.value, time, event.complaint, event.others or {})
            self._method.validated(trial, report, orders)
        elif event.kind == INSTRUCTED:
            self._method.instructed(int(event.value or 0), orders.draw(lambda _: answer), orders)
        else:
            reason = None if event.kind == EXITED else ExitReason(event.kind)
            book.end(trial, reason)
            self._method.ended(trial, reason, orders)
        if self._method.open:
            return orders
        for left in book.only_paused():
            orders.stop(left, "it was paused, and the search needs it no longer")
        if not book.progress:
            orders.actions.append(self._shutdown())
        return orders

    def _live(self, request_id: str) -> int | None:
        """Return the number of a trial that has not ended."""
        return None if self._over else self._book.number(request_id)

    def _judged(self, metrics: Mapping[str, Any]) -> tuple[float | None, str]:
        """Return the searcher's metric, signed so that smaller is better; or None, and why as a sentence."""
        value = _finite(metrics.get(self._metric))
        if value is not None:
            return self._sign * value, ""
        if self._metric not in metrics:
            return None, f"the validation has no metric {self._metric}{_names(metrics)}"
        return None, f"the validation's {self._metric} is {metrics[self._metric]!r:.60}, not a number"

    def _lacks_time(self, metrics: Mapping[str, Any]) -> bool:
        wanted = self._time_metric not in ("", "batches")
        return wanted and _finite(metrics.get(self._time_metric)) is None

    def _ended(self, request_id: str, reason: ExitReason | None, slot_seconds: float, at: float) -> list[Action]:
        trial = self._live(request_id)
        if trial is None:
            return []
        if reason is ExitReason.INVALID_HP and trial in self._book.stopped:
            reason = None  # it was ranked and replaced already
        return self._happened(SearchEvent(reason or EXITED, trial), slot_seconds, at)

    def _shutdown(self) -> Shutdown:
        self._over = True
        exited, failed, cancelled, invalid, memory = (
            len(self._book.ends[reason])
            for reason in (
                None,
                ExitReason.ERRORED,
                ExitReason.USER_CANCELED,
                ExitReason.INVALID_HP,
                ExitReason.OUT_OF_MEMORY,
            )
        )
        requested = self.trials - invalid
        parts = {
            "ended well": exited,
            "failed": failed,
            "ran out of memory": memory,
            "cancelled": cancelled,
            "had invalid points": invalid,
        }
        return Shutdown(
            cancel=0 < requested <= cancelled,
            failure=failed + memory >= requested,
            why=f"all {self.trials} trials have ended: "
            + ", ".join(f"{count} {words}" for words, count in parts.items() if count),
        )


def _diverged(event: SearchEvent, why: str) -> SearchError:
    return SearchError(
        f"the stored search cannot be rebuilt, its event {event.kind} of trial number {event.trial} does not fit "
        f"({why}): run the release of the master, and of the searcher, that wrote it"
    )


def _names(metrics: Mapping[str, Any]) -> str:
    return f" (its metrics: {', '.join(sorted(map(str, metrics))) or 'none'})"


def _finite(value: Any) -> float | None:
    """Return the value as a finite double, or None. Texts such as "NaN" and booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
