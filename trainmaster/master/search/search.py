"""The running search of one experiment: its random stream, its method, and the state of its trials."""

from __future__ import annotations

import base64
import json
import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from trainmaster.master.search.actions import Action, Create, ExitReason, SearchError, Shutdown, StopTrial
from trainmaster.master.search.hyperparameters import sample
from trainmaster.master.search.mersenne import RandomState
from trainmaster.master.search.method import Arrival, BracketRanking, Method, ValidationReport, When
from trainmaster.master.search.methods import make_method
from trainmaster.master.values.search import SearchGoal


class SearchEvent(NamedTuple):
    """Something that changed a search. `trial` is the trial's number, 0, 1, ... in order of creation."""

    kind: str  # validation, progress, or how the trial ended: EXITED or an ExitReason
    trial: int
    value: float | None = None
    """Of a validation the searcher's metric, signed so that smaller is better, None where there is no usable number;
    of progress the fraction, 0..1."""
    time: float | None = None  # of a validation, in units of the time metric
    complaint: str = ""  # why a validation has no value
    actions: int = 0  # how many actions it led to, by which a replay is checked


SNAPSHOT_VERSION = 1
EXITED = "EXITED"  # the end of a trial for no other reason


class Search:
    """Turns events of trials into the next actions.

    No I/O, no clock; the same events after the same seed give the same actions, through any number of
    `snapshot` and `restore`. What has changed it since the last snapshot is told by `take_events`; `replay` repeats it
    on a search that was restored from that snapshot.

    Reports that are repeated, that are not newer than what a trial has reported before (it was restarted), that are
    about unknown or ended trials or about trials that were stopped: they change nothing. Report a trial's end once,
    when it is final: with `exited` or `exited_early`; a second report is ignored.
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
        self._ids: list[bytes] = []  # UUIDs: half the memory of their texts
        self._numbers: dict[bytes, int] = {}
        self._progress: dict[int, float] = {}  # of the trials that have not ended
        self._last_time: dict[int, float] = {}  # of the trials that may still report
        self._stopped: set[int] = set()
        self._ends: dict[ExitReason | None, set[int]] = {
            None: set(),
            **{reason: set() for reason in ExitReason},
        }
        self._over = False
        self._fresh: list[SearchEvent] = []

    @classmethod
    def start(cls, searcher: Mapping[str, Any], hparams: Mapping[str, Any], seed: int) -> tuple[Search, list[Action]]:
        """Return a new search and its first actions.

        Args:
            searcher: the resolved `searcher` section of the experiment's configuration.
            hparams: the resolved `hyperparameters` section.
            seed: `reproducibility.experiment_seed`, 0 .. 2**32 - 1.

        Raises:
            SearchError: the searcher is no longer supported, or a section is incomplete.
        """
        search = cls(searcher, hparams, RandomState(seed))
        orders = _Orders(search)
        search._method.begin(orders)
        return search, orders.actions

    # -- events

    def validation(self, request_id: str, metrics: Mapping[str, Any], steps_completed: int) -> list[Action]:
        """Take in a trial's validation metrics.

        A searcher metric that is missing, not a number, NaN or infinite counts as the worst possible. A time
        metric that is missing is replaced by `steps_completed`.
        """
        trial = self._running(request_id)
        if trial is None or trial in self._stopped:
            return []
        time = _finite(metrics.get(self._time_metric))
        time = float(steps_completed) if time is None else time
        if time <= self._last_time.get(trial, -math.inf):
            return []
        value, complaint = self._judged(metrics)
        return self._happened("validation", trial, value, time, complaint)

    def progressed(self, request_id: str, fraction: float) -> None:
        """Take in a trial's progress, 0..1. It never decreases, even when the trial restarts."""
        trial = self._running(request_id)
        if trial is not None and min(fraction, 1.0) > self._progress[trial]:
            self._happened("progress", trial, min(fraction, 1.0))

    def exited(self, request_id: str) -> list[Action]:
        """Take in a trial's normal end, by itself or because it was stopped."""
        return self._ended(request_id, None)

    def exited_early(self, request_id: str, reason: ExitReason) -> list[Action]:
        """Take in a trial's early end; it will not be restarted."""
        return self._ended(request_id, ExitReason(reason))

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
                actions = len(self._apply(event))
            except (LookupError, TypeError, ValueError) as error:
                raise _diverged(event, repr(error)) from None
            if actions != event.actions:
                raise _diverged(event, f"it led to {event.actions} actions then and to {actions} now")

    # -- looking at it

    @property
    def trials(self) -> int:
        """The number of trials created so far."""
        return len(self._ids)

    def progress(self) -> float:
        """Progress of the whole search, 0..1."""
        if self._over:
            return 1.0
        ended = sum(map(len, self._ends.values())) - len(self._ends[ExitReason.INVALID_HP])
        return min(max(self._method.progress(self._progress, ended), 0.0), 1.0)

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
        return [str(uuid.UUID(bytes=key)) for key in self._ids]

    def snapshot(self) -> dict[str, Any]:
        """All state beside the configuration, as JSON values: 3.5 kB and about 60 bytes a trial."""
        return {
            "version": SNAPSHOT_VERSION,
            "random": self._stream.dump(),
            "trials": base64.b64encode(b"".join(self._ids)).decode("ascii"),
            "progress": [list(pair) for pair in self._progress.items()],
            "last_time": [list(pair) for pair in self._last_time.items()],
            "stopped": sorted(self._stopped),
            "ends": {reason or EXITED: sorted(trials) for reason, trials in self._ends.items()},
            "over": self._over,
            "method": json.loads(json.dumps(self._method.state())),  # a copy that shares nothing with the method
        }

    @classmethod
    def restore(cls, searcher: Mapping[str, Any], hparams: Mapping[str, Any], snapshot: Mapping[str, Any]) -> Search:
        """Return the search that `snapshot` described, under the same configuration. Raises SearchError."""
        if snapshot.get("version") != SNAPSHOT_VERSION:
            raise SearchError(
                f"the stored search has version {snapshot.get('version')!r}, this master reads version "
                f"{SNAPSHOT_VERSION}: run the master version that wrote it"
            )
        try:
            search = cls(searcher, hparams, RandomState.load(snapshot["random"]))
            packed = base64.b64decode(snapshot["trials"])
            for start in range(0, len(packed), 16):
                search._add(packed[start : start + 16])
            search._progress = {trial: fraction for trial, fraction in snapshot["progress"]}
            search._last_time = {trial: float(time) for trial, time in snapshot["last_time"]}
            search._stopped = set(snapshot["stopped"])
            search._ends = {reason: set(snapshot["ends"][reason or EXITED]) for reason in search._ends}
            search._over = bool(snapshot["over"])
            search._method.load(snapshot["method"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, SearchError):
                raise
            raise SearchError(f"the stored search does not fit its configuration: {error!r}") from None
        return search

    # -- the books

    def _happened(
        self, kind: str, trial: int, value: float | None = None, time: float | None = None, complaint: str = ""
    ) -> list[Action]:
        event = SearchEvent(kind, trial, value, time, complaint)
        actions = self._apply(event)
        self._fresh.append(event._replace(actions=len(actions)))
        return actions

    def _apply(self, event: SearchEvent) -> list[Action]:
        """Return the only place that changes a search which has begun, so that a replay does what the event did."""
        trial, orders = event.trial, _Orders(self)
        if event.kind == "progress":
            self._progress[trial] = event.value or 0.0
        elif event.kind == "validation":
            time = event.time or 0.0
            self._last_time[trial] = time
            self._method.validated(trial, ValidationReport(event.value, time, event.complaint), orders)
        else:
            reason = None if event.kind == EXITED else ExitReason(event.kind)
            self._progress.pop(trial)
            self._last_time.pop(trial, None)
            self._ends[reason].add(trial)
            self._method.ended(trial, reason, orders)
            if not self._progress:
                orders.actions.append(self._shutdown())
        return orders.actions

    def _running(self, request_id: str) -> int | None:
        """Return the number of a trial that has not ended."""
        try:
            trial = self._numbers.get(uuid.UUID(request_id).bytes)
        except ValueError:
            return None  # no trial of ours
        return trial if trial in self._progress and not self._over else None

    def _add(self, request_id: bytes) -> int:
        trial = len(self._ids)
        self._ids.append(request_id)
        self._numbers[request_id] = trial
        return trial

    def _judged(self, metrics: Mapping[str, Any]) -> tuple[float | None, str]:
        """Return the searcher's metric, signed so that smaller is better; or None, and why as a sentence."""
        value = _finite(metrics.get(self._metric))
        if value is not None:
            return self._sign * value, ""
        if self._metric not in metrics:
            names = ", ".join(sorted(map(str, metrics))) or "none"
            return None, f"the validation has no metric {self._metric} (its metrics: {names})"
        return None, f"the validation's {self._metric} is {metrics[self._metric]!r:.60}, not a number"

    def _ended(self, request_id: str, reason: ExitReason | None) -> list[Action]:
        trial = self._running(request_id)
        if trial is None:
            return []
        if reason is ExitReason.INVALID_HP and trial in self._stopped:
            reason = None  # it was ranked and replaced already
        return self._happened(reason or EXITED, trial)

    def _shutdown(self) -> Shutdown:
        self._over = True
        exited, failed, cancelled, invalid = (
            len(self._ends[reason])
            for reason in (None, ExitReason.ERRORED, ExitReason.USER_CANCELED, ExitReason.INVALID_HP)
        )
        requested = len(self._ids) - invalid
        parts = {
            "ended well": exited,
            "failed": failed,
            "cancelled": cancelled,
            "had invalid points": invalid,
        }
        return Shutdown(
            cancel=0 < requested <= cancelled,
            failure=failed >= requested,
            why=f"all {len(self._ids)} trials have ended: "
            + ", ".join(f"{count} {words}" for words, count in parts.items() if count),
        )


class _Orders:
    """Makes actions of a method's requests and records the new trials."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.actions: list[Action] = []

    def create(self, why: str, hparams: Mapping[str, Any] | None = None) -> int:
        search = self._search
        # The order of the draws is upstream's: the point, then the id, then the trial's seed.
        point = sample(search._space, search._stream) if hparams is None else dict(hparams)
        request_id = search._stream.uuid4()
        action = Create(str(request_id), point, search._stream.below(1 << 31), why)
        trial = search._add(request_id.bytes)
        search._progress[trial] = 0.0
        self.actions.append(action)
        return trial

    def stop(self, trial: int, why: str) -> None:
        self._search._stopped.add(trial)
        self._search._last_time.pop(trial, None)
        self.actions.append(StopTrial(str(uuid.UUID(bytes=self._search._ids[trial])), why))


def _diverged(event: SearchEvent, why: str) -> SearchError:
    return SearchError(
        f"the stored search cannot be rebuilt, its event {event.kind} of trial number {event.trial} does not fit "
        f"({why}): run the release of the master, and of the searcher, that wrote it"
    )


def _finite(value: Any) -> float | None:
    """Return the value as a finite double, or None. Texts such as "NaN" and booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
