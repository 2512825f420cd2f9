"""What one pass after the other makes of a cluster; the database and the loop are real, the scheduler is the test's."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from tests.support.attempts import Attempts
from tests.support.bound import SETTINGS, bind
from tests.support.master import wait_for
from trainmaster.dispatchers.base import (
    Canceller,
    Capabilities,
    Explanation,
    JobRef,
    JobState,
    Observation,
    Setup,
    Snapshot,
)
from trainmaster.dispatchers.local.dispatcher import LocalDispatcher
from trainmaster.master.controller import cluster_loop
from trainmaster.master.controller.cluster_loop import ClusterLoop
from trainmaster.master.lifecycle import allocation
from trainmaster.master.lifecycle.states import OutcomeKind
from trainmaster.master.services.allocations import endings
from trainmaster.master.services.allocations.endings import Endings
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.clusters.clusters import Cluster
from trainmaster.master.services.context import Settings
from trainmaster.master.services.scheduling import observations
from trainmaster.master.services.scheduling.job_spec import JobSpecs
from trainmaster.master.values.observed import ObservedJob

NAMES = (f"loop{number}" for number in itertools.count())


class Listed(LocalDispatcher):
    """Has the jobs that it is given, whatever is asked of them, and may be looked at all the time."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.listed: list[Observation] = []
        self.looks = 0
        self.cancelled: list[JobRef] = []
        self.explained: list[JobRef] = []
        self.words: dict[str, Explanation] = {}  # by token
        self.broken: set[str] = set()  # tokens at which this plugin shows a bug

    def probe(self) -> Capabilities:
        return replace(super().probe(), poll_interval=0.0)

    def observe(self) -> Snapshot:
        self.looks += 1
        return Snapshot(epoch(now()), tuple(self.listed))

    def explain(self, ref: JobRef) -> Explanation:
        self.explained.append(ref)
        return self.words[ref.token]

    def cancel(self, refs: Sequence[JobRef]) -> None:
        self.cancelled += refs

    def forget(self, token: str, user: str | None = None) -> None:
        if token in self.broken:
            raise KeyError("host_path")
        super().forget(token, user)


class Loop:
    """A cluster's loop that takes its passes when it is told to."""

    def __init__(self, attempts: Attempts, folder: Path, settings: Settings = SETTINGS) -> None:
        self.name = next(NAMES)
        self.dispatcher = Listed(Setup(name=self.name, prefix="det-", job_root=folder))
        one = Cluster(self.name, self.dispatcher, folder)
        self._loop = ClusterLoop(bind(attempts.store, [one], settings), one)

    def passes_until(self, seen: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self._loop.reconcile()
            return seen()

        wait_for(look, what, deadline=20.0)

    def passes_with_looks(self, count: int) -> None:
        wanted = self.dispatcher.looks + count
        self.passes_until(lambda: self.dispatcher.looks >= wanted, f"{count} looks")


@pytest.fixture
def loop(attempts: Attempts, tmp_path: Path) -> Iterator[Loop]:
    made = Loop(attempts, tmp_path)
    yield made
    made.dispatcher.close()


def test_observations_beyond_one_batch_are_all_stored(
    attempts: Attempts, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observations, "TAKEN_AT_ONCE", 2)
    names = [attempts.attempt(dispatcher=loop.name) for _ in range(7)]
    loop.dispatcher.listed = [Observation(name, "1", JobState.RUNNING, "RUNNING") for name in names]
    loop.passes_until(lambda: all(attempts.row(name).observed_state for name in names), "news of all")


def test_accounting_is_asked_only_about_doubtful_cancellations(
    attempts: Attempts, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = now() - dt.timedelta(seconds=60)
    lease: dict[str, Any] = {"lease_job": "1", "leased_at": begun, "submit_started_at": begun - dt.timedelta(seconds=5)}
    plain = [attempts.attempt(dispatcher=loop.name, **lease) for _ in range(20)]
    waited = attempts.attempt(dispatcher=loop.name)
    again = attempts.attempt(dispatcher=loop.name, **lease)
    refused, named = (attempts.attempt(dispatcher=loop.name) for _ in range(2))
    at: dict[str, Any] = {"submitted_at": epoch(begun) - 5, "started_at": epoch(begun) - 1}
    on: dict[str, Any] = {"nodes": ("n1",)}
    gone = JobState.CANCELLED, "CANCELLED"
    loop.dispatcher.listed = [
        *(Observation(name, "1", *gone, **at, **on) for name in plain),  # type: ignore[arg-type, misc, unused-ignore]
        Observation(waited, "1", *gone),
        Observation(again, "1", *gone, **{**at, "started_at": epoch(begun) + 30}, **on),  # type: ignore[arg-type, misc, unused-ignore]
        *(Observation(name, "1", *gone, **on) for name in (refused, named)),  # type: ignore[arg-type, unused-ignore]
    ]
    cancelled = Explanation("It was cancelled by root.", JobState.CANCELLED)
    loop.dispatcher.words = {
        again: cancelled,
        refused: replace(cancelled, script_began=False),
        named: replace(cancelled, script_began=False, canceller=Canceller.PERSON),
    }
    names = [*plain, waited, again, refused, named]

    def asked() -> bool:
        return all((attempts.row(name).observed or ObservedJob()).asked for name in (again, refused, named))

    monkeypatch.setattr(allocation, "SETTLE_TIME", 0.0)
    with monkeypatch.context() as undecided:
        undecided.setattr(Endings, "verdicts", lambda *_: iter(()))
        loop.passes_until(asked, "what accounting says")
    assert sorted(ref.token for ref in loop.dispatcher.explained) == sorted([again, refused, named]), "each once"
    found = attempts.master.endings.verdicts(attempts.master.endings.ending(loop.name))
    outcomes = {verdict.allocation_id: verdict.outcome for verdict in found}
    lost = OutcomeKind.INFRASTRUCTURE
    assert {name for name in names if outcomes[name].kind is lost} == {again, refused}
    assert {outcome.kind for outcome in outcomes.values()} == {lost, OutcomeKind.CANCELLED}
    assert outcomes[refused].text.startswith("The scheduler gave the job its nodes, cancelled it and never started")


def test_a_job_that_a_listing_leaves_out_is_not_given_up(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[str] = []
    monkeypatch.setattr(Endings, "end_together", lambda _self, _number, outcomes: ends.extend(outcomes))
    loop = Loop(attempts, tmp_path, replace(SETTINGS, lost_after=0.2))
    name = attempts.attempt(dispatcher=loop.name, lease_job="1", leased_at=now())
    loop.dispatcher.words = {name: Explanation("It runs.", JobState.RUNNING)}
    loop.passes_until(lambda: len(loop.dispatcher.explained) >= 5, "more questions than the silence allows")
    assert ends == []
    loop.dispatcher.words = {name: Explanation("Nothing is known of it.")}
    loop.passes_until(lambda: name in ends, "the end of a job that is not there")
    loop.dispatcher.close()


def test_job_slow_to_leave_is_asked_again_only_after_delay(
    attempts: Attempts, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = attempts.attempt(dispatcher=loop.name, ended_at=now() - dt.timedelta(hours=1), collected=True)
    loop.dispatcher.listed = [Observation(name, "7", JobState.RUNNING, "RUNNING")]
    loop.passes_with_looks(5)
    assert loop.dispatcher.cancelled == [JobRef(name, "7")]
    monkeypatch.setattr(endings, "RESEND_KILL", 0.0)
    loop.passes_until(lambda: len(loop.dispatcher.cancelled) > 1, "a second request to leave")


def test_submit_hit_by_database_failure_is_unknown_and_no_error(
    attempts: Attempts, loop: Loop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("the database is unavailable: no answer within 10 s"))

    monkeypatch.setattr(JobSpecs, "build", away)
    pool = loop.dispatcher.pools()[0].name
    name = attempts.attempt(dispatcher=loop.name, pool=pool, submission="NEW", native_id=None)
    loop.passes_until(lambda: attempts.row(name).submission == "UNKNOWN", "the submit to be looked for")
    assert "no answer within 10 s" in attempts.row(name).explanation
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_attempt_with_exit_record_waits_for_its_outstanding_logs(
    attempts: Attempts, loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Docker host sends the files of a job when its container has ended; the exit record may be here before."""

    def leaves() -> str:
        record = {"exit_code": 0, "spool": {"log-0": 2}, "received_at": epoch(now())}
        return attempts.attempt(dispatcher=loop.name, lease_job="1", leased_at=now(), exits={"0": record})

    ends: list[str] = []
    monkeypatch.setattr(Endings, "end_together", lambda _self, _number, outcomes: ends.extend(outcomes))

    def ended(name: str) -> bool:
        return name in ends

    def listed(state: JobState) -> None:
        loop.dispatcher.listed = [Observation(name, "1", state, state.value) for name in (late, never)]

    late, never = leaves(), leaves()
    listed(JobState.RUNNING)
    loop.passes_with_looks(5)
    assert not ended(late)
    spool = tmp_path / late / "spool"
    spool.mkdir(parents=True)
    lines = [{"t": 1.0, "stdtype": "stdout", "level": "INFO", "rank": 0, "line": f"line {place}"} for place in (1, 2)]
    (spool / "log-0.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    loop.passes_until(lambda: ended(late), "the end of the one whose files came")
    assert [line for line in attempts.log(late) if line.startswith("line")] == ["line 1", "line 2"]
    assert not ended(never)
    listed(JobState.INFRASTRUCTURE)  # its host is lost
    loop.passes_until(lambda: ended(never), "the end of the other one")


def test_a_folder_at_which_a_plugin_breaks_holds_up_no_other(
    attempts: Attempts, loop: Loop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_loop, "COLLECTED_AT_ONCE", 2)
    monkeypatch.setattr(cluster_loop, "COLLECT_EVERY", 0.0)
    long_ago = now() - dt.timedelta(hours=1)
    names = [
        attempts.attempt(dispatcher=loop.name, ended_at=long_ago + dt.timedelta(seconds=place)) for place in range(6)
    ]
    loop.dispatcher.broken = {attempts.row(name).token for name in names[:3]}
    loop.passes_until(lambda: all(attempts.row(name).collected for name in names[3:]), "the others to be collected")
    assert not any(attempts.row(name).collected for name in names[:3])
    told = [record for record in caplog.records if "the removal of the job folder of" in record.getMessage()]
    assert len(told) == 3, "each once"
