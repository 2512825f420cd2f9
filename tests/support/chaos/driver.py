"""Runs searches, lets faults loose on them in the order of a seed, waits for the end and checks it."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.chaos.checks import Findings, check
from tests.support.chaos.kinds import Drawn, Kind, NothingToHit, draw
from tests.support.chaos.site import Site, Stopped

Say = Callable[[str], None]
AT_ONCE = 5  # faults
ENDS = 420.0  # seconds after the last fault in which all searches end: a lost job is given up after 300
SWEPT = 120.0  # seconds in which nothing is left of them


@dataclass(frozen=True)
class Load:
    """The searches of a run: of so many trials each, one after the other while faults go on."""

    trials: int = 50
    at_once: int = 10
    searches: int = 4  # at once, at most
    every: float = 25.0  # seconds after which the next one does not wait for the last
    steps: int = 8
    pause: float = 0.4  # seconds a step


@dataclass
class Report:
    """What a run did and found."""

    where: str
    seed: int
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)  # there was nothing to hit
    findings: Findings = field(default_factory=Findings)

    def lines(self, kinds: Sequence[Kind]) -> list[str]:
        """The summary."""
        found = self.findings
        width = max(len(kind.name) for kind in kinds)
        return [
            *(
                f"  {kind.name:<{width}} {self.faults[kind.name]:>4}" + self._missed(kind.name)
                for kind in sorted(kinds, key=lambda kind: kind.name)
            ),
            f"{self.where}, seed {self.seed}: {self.faults.total()} faults of {len(+self.faults)} kinds in "
            f"{self.seconds:.0f} s; {found.trials} trials, {found.attempts} attempts, {found.steps} steps checked",
            f"ends of attempts: {', '.join(f'{kind} {times}' for kind, times in sorted(found.outcomes.items()))}",
            *(f"VIOLATION {line}" for line in found.violations),
            f"{len(found.violations)} violations",
        ]

    def _missed(self, name: str) -> str:
        return f"  (and {self.missed[name]} that found nothing to hit)" if self.missed[name] else ""


class Run:
    """One run on a site that is up."""

    def __init__(self, site: Site, kinds: Sequence[Kind], seed: int, say: Say, load: Load | None = None) -> None:
        self._site, self._kinds, self._seed, self._say, self._load = site, kinds, seed, say, load or Load()
        self._began = time.monotonic()
        self._touched: set[str] = set()
        self._free = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._enough = False
        self._told = 0.0
        self._failures: list[str] = []
        self.report = Report(site.where, seed)

    def run(self, *, minutes: float = 60.0, faults: int = 10**6, gap: float = 1.0) -> Report:
        """Faults for so many minutes, at most so many, one each `gap` seconds or so; then the end and the checks."""
        searches = threading.Thread(target=self._guarded, args=(self._search, minutes * 60))
        searches.start()
        try:
            self._site.eventually(lambda: self._site.live_experiments(), "the first search")
            for fault in draw(self._seed, self._kinds, gap):
                if self._elapsed() > minutes * 60 or fault.number > faults:
                    break
                self._let_loose(fault)
                self._site.hold(fault.pause)
        except BaseException:
            self._site.over.set()
            raise
        finally:
            for thread in self._threads:
                thread.join()
            self._enough = True
            searches.join()
        self._log("no more faults")
        self._settle()
        self.report.seconds = self._elapsed()
        return self.report

    def _settle(self) -> None:
        site = self._site

        def ended() -> bool:
            site.calm()
            return not site.live_experiments()

        for look, what, seconds in (
            (ended, "the end of all searches", ENDS),
            (lambda: not site.leftovers() and not self._uncollected(), "nothing to be left", SWEPT),
        ):
            try:
                site.eventually(look, what, seconds, every=1.0)
            except TimeoutError as error:
                self._failures.append(str(error))
        self._log("checking")
        self.report.findings = check(site, site.checkpoints)
        self.report.findings.violations[:0] = [*self._failures, *site.leftovers()]

    def _uncollected(self) -> bool:
        return bool(self._site.rows("SELECT id FROM allocations WHERE ended_at IS NULL OR NOT collected LIMIT 1"))

    def _search(self, seconds: float) -> None:
        """One search after the other, and the next one too where the last ones are slow: some of their trials may wait
        for minutes, until a lost job is given up."""
        load, number, begun = self._load, 0, 0.0
        while not number or (self._elapsed() < seconds and not self._enough):
            live = len(self._site.live_experiments())
            if not live or (live < load.searches and self._elapsed() - begun > load.every):
                number, begun = number + 1, self._elapsed()
                found = self._site.create(
                    load.trials, load.at_once, steps=load.steps, pause=load.pause, seed=self._seed + number
                )
                self._log(f"search {found}: {load.trials} trials")
            self._site.hold(2.0)
            if self._elapsed() - self._told > 10.0:
                self._told = self._elapsed()
                self._log(self._site.progress())

    def _let_loose(self, fault: Drawn) -> None:
        """Begin it as soon as nothing that it touches is touched by another."""
        with self._free:
            self._free.wait_for(
                lambda: (not fault.kind.touches & self._touched and self._alive() < AT_ONCE) or self._site.over.is_set()
            )
            self._touched |= fault.kind.touches
        thread = threading.Thread(target=self._guarded, args=(self._one, fault))
        self._threads.append(thread)
        thread.start()

    def _alive(self) -> int:
        return sum(thread.is_alive() for thread in self._threads) if self._touched else 0

    def _one(self, fault: Drawn) -> None:
        name = fault.kind.name
        self._log(f"#{fault.number} {name}")
        try:
            told = fault.kind.run(self._site, fault.dice)
        except NothingToHit:
            self.report.missed[name] += 1
            self._log(f"#{fault.number} {name}: nothing to hit")
        except Stopped:
            pass
        except subprocess.TimeoutExpired as error:  # a command to a controller that another fault has frozen
            self.report.missed[name] += 1
            self._log(f"#{fault.number} {name}: {error}")
        else:
            self.report.faults[name] += 1
            self._log(f"#{fault.number} {name}: over; {told}")
        finally:
            with self._free:
                self._touched -= fault.kind.touches
                self._free.notify_all()

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        """What breaks in a thread of the ring's own is shown as a violation, too."""
        try:
            work(*arguments)
        except Stopped:
            pass
        except Exception as error:
            self._failures.append(f"the ring itself: {error!r}")
            self._log(traceback.format_exc())

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _log(self, text: str) -> None:
        self._say(f"{time.strftime('%H:%M:%S')} {self._elapsed():7.1f} {text}")


ATTEMPTS = """
    SELECT a.id, a.trial_id, a.native_id, a.state, a.submission, a.outcome, a.exit_code, a.exit_text, a.created_at,
           a.submitted_at, a.leased_at, a.heartbeat_at, a.absent_since, a.ended_at, a.collected, a.observed_state,
           a.observed, a.exits, t.state AS trial, t.restarts
    FROM allocations a JOIN trials t ON t.id = a.trial_id ORDER BY a.trial_id, a.attempt
"""
LINES = """
    SELECT t.id AS trial, l.allocation_id, l.at, l.source, l.log FROM task_logs l JOIN trials t ON t.task_id = l.task_id
    ORDER BY t.id, l.id
"""


def keep(site: Site, folder: Path) -> None:
    """Write what explains a violation where it outlives the run: the masters' logs, all attempts, and the logs of all
    trials."""
    folder.mkdir(parents=True, exist_ok=True)
    for master in site.masters:
        (folder / f"{master.folder.name}.log").write_bytes(master.log.read_bytes())
    attempts, lines = site.rows(ATTEMPTS), site.rows(LINES)
    (folder / "attempts.txt").write_text("".join(f"{json.dumps(row, default=str)}\n" for row in attempts))
    (folder / "trials.txt").write_text(
        "".join(f"{row['trial']} {row['at']} {row['allocation_id']} {row['source']}: {row['log']}\n" for row in lines)
    )
