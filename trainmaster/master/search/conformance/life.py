"""Trials that live at random, and two searches that see them: one goes through, the other is stored and read again
before every event. It asserts what every search must keep."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.master.search.actions import (
    Action,
    Create,
    ExitReason,
    PauseTrial,
    ResumeTrial,
    Shutdown,
    StopTrial,
)
from trainmaster.master.search.events import SearchEvent
from trainmaster.master.search.search import Search

VALUES: list[Any] = [0.0, 1, -1.5, 3e300, float("nan"), "NaN", "-Infinity", None]
MOST_EVENTS = 20_000


class Life:
    """One search from its first trial to its end. `early`: how often a trial fails; `epochs` is the time metric, `loss`
    the searcher's."""

    def __init__(
        self, searcher: Mapping[str, Any], space: Mapping[str, Any], seed: int, life: random.Random, early: float
    ) -> None:
        self.searcher, self.space, self.life, self.early = searcher, space, life, early
        self.search, actions = Search.start(searcher, space, seed, at=1.0)
        self.restored, again = Search.start(searcher, space, seed, at=1.0)
        assert actions == again, "the same seed led to other trials"
        assert [a for a in actions if isinstance(a, Create)], "a search begins with at least one trial"
        self.snapshots: list[tuple[int, Any]] = [(0, self._stored(self.search))]
        self.events: list[SearchEvent] = []
        self.creates: list[Create] = []
        self.running: dict[str, int] = {}  # told nothing -> epochs so far
        self.paused: dict[str, int] = {}
        self.leaving: set[str] = set()  # told to stop
        self.gone: list[str] = []
        self.seconds: dict[str, float] = {}  # slot-seconds
        self.now = 1.0
        self.invalid = 0
        self.ends: list[Shutdown] = []
        self._carry_out(actions)

    def live(self) -> None:
        """Run it to its end."""
        for _ in range(MOST_EVENTS):
            if not self.running and not self.leaving and not self.paused:
                break
            assert not self.ends, "the search is over while trials live"
            assert self.running or self.leaving, "all trials are paused, and nothing will happen any more"
            self._step()
        else:
            raise AssertionError(f"the search does not end within {MOST_EVENTS} events")
        assert len(self.ends) == 1
        assert self.search.progress() == 1.0
        self._replay()

    def _replay(self) -> None:
        """Rebuild the search from each snapshot and the events behind it, as a master does that was killed."""
        whole = self._stored(self.search)
        for count, snapshot in self.snapshots:
            rebuilt = Search.restore(self.searcher, self.space, snapshot)
            rebuilt.replay(_through_storage(self.events[count:]))
            assert self._stored(rebuilt) == whole, f"it differs when it is rebuilt from event {count} on"

    def _step(self) -> None:
        trial = self.life.choice([*self.running, *self.leaving, *self.paused])
        dice = self.life.random()
        if self.gone and dice < 0.1:  # an echo from a trial that has ended
            trial = self.life.choice(self.gone)
            self._tell("exited", trial)
            self._tell("validation", trial, {"loss": 0, "epochs": 99}, 99)
        elif dice < 0.6:
            self._validate(trial)
        elif dice < 0.7:
            self._tell("progressed", trial, self.life.random())
        elif trial in self.paused and dice < 0.97:
            pass  # it waits
        elif dice < 0.7 + self.early:
            reason = self.life.choice(list(ExitReason))
            if reason is ExitReason.INVALID_HP and trial not in self.leaving:
                self.invalid += 1
            self._leave(trial)
            self._tell("exited_early", trial, reason)
        elif trial in self.leaving or dice > 0.85:
            self._leave(trial)
            self._tell("exited", trial)

    def _validate(self, trial: str) -> None:
        """Report a validation; that of a paused or stopped trial is late, and must change nothing."""
        here = self.running if trial in self.running else self.paused
        epochs = here.get(trial, 50) + self.life.choice([-1, 0, 1, 1, 2, 5])
        if trial in self.running:
            self.running[trial] = max(epochs, self.running[trial])
        metrics: dict[str, Any] = {"epochs": epochs} if self.life.random() < 0.9 else {}
        metrics["other"] = self.life.random()
        if self.life.random() < 0.9:
            metrics["loss"] = self.life.choice(VALUES[:4] if self.life.random() < 0.9 else VALUES)
        self._tell("validation", trial, metrics, epochs)

    def _tell(self, event: str, trial: str, *args: Any) -> None:
        spending: dict[str, float] = {}
        if event != "progressed":
            self.now += self.life.random()
            self.seconds[trial] = self.seconds.get(trial, 0.0) + self.life.random()
            spending = {"slot_seconds": self.seconds[trial], "at": self.now}
        late = event == "validation" and trial not in self.running
        actions = self.take(event, (trial, *args), spending)
        assert not late or not actions, "the report of a trial that is paused, stopped or over led to actions"
        assert "\n" not in self.search.describe()
        assert 0 <= self.search.progress() <= 1
        self.search.rankings()
        self.events += self.search.take_events()
        if self.life.random() < 0.02:
            self.snapshots.append((len(self.events), self._stored(self.search)))
        self._carry_out(actions)

    def take(self, event: str, args: Sequence[Any], spending: Mapping[str, float]) -> list[Action]:
        """Tell both searches of an event, and return what it leads to."""
        stored = self._stored(self.restored)
        self.restored = Search.restore(self.searcher, self.space, stored)
        assert self._stored(self.restored) == stored
        actions: list[Action] = getattr(self.search, event)(*args, **spending) or []
        assert (getattr(self.restored, event)(*args, **spending) or []) == actions
        assert self.restored.progress() == self.search.progress()
        assert self.restored.describe() == self.search.describe()
        return actions

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            assert action.why, f"{action} has no reason"
            assert not self.ends, "something was asked for after the shutdown"
            match action:
                case Create():
                    known = {create.request_id for create in self.creates}
                    assert action.parent is None or action.parent in known, (
                        "it continues from a trial that is not there"
                    )
                    self.creates.append(action)
                    self.running[action.request_id] = 0
                case StopTrial(request_id):  # of one that runs or is paused, once; all others fail here
                    self.running.pop(request_id) if request_id in self.running else self.paused.pop(request_id)
                    self.leaving.add(request_id)
                case PauseTrial(request_id):
                    self.paused[request_id] = self.running.pop(request_id)
                case ResumeTrial(request_id):
                    lost = self.life.random() < 0.1  # its checkpoint is gone
                    epochs = self.paused.pop(request_id)
                    self.running[request_id] = 0 if lost else epochs
                case Shutdown():
                    self.ends.append(action)
        most = self.search.max_concurrent
        assert len(self.running) <= most, f"{len(self.running)} trials run, at most {most} may"

    def _leave(self, trial: str) -> None:
        self.running.pop(trial, None)
        self.paused.pop(trial, None)
        self.leaving.discard(trial)
        self.gone.append(trial)

    def _stored(self, search: Search) -> Any:
        return json.loads(json.dumps(search.snapshot()))


def _through_storage(events: list[SearchEvent]) -> list[SearchEvent]:
    """As the database returns them: a float without a fraction may be an integer in a draw."""
    return [
        event._replace(
            others=json.loads(json.dumps(event.others)),
            drawn=None if event.drawn is None else json.loads(json.dumps(event.drawn)),
        )
        for event in events
    ]
