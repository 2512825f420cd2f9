"""Measures what an event of a search costs as the search grows: time to decide and store it, bytes written, and the
time and memory to rebuild the search from the database."""

from __future__ import annotations

import gc
import itertools
import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, text

from benchmarks.measure import Deadline, Sample, figure, say, timed
from tests.support.attempts import Attempts
from tests.support.bound import bind
from tests.support.database import database, engine_of, make_template, private_server
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db.tables import Experiment
from trainmaster.master.lifecycle import experiment as lifecycle
from trainmaster.master.lifecycle.allocation import Outcome
from trainmaster.master.lifecycle.states import OutcomeKind
from trainmaster.master.search import Create, Search
from trainmaster.master.services.ingest.calls import ReportCall
from trainmaster.master.services.ingest.streams import StreamBatch
from trainmaster.master.services.master import Master
from trainmaster.master.services.orchestration.live_searches import live_searches
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.store import Store

TRIALS = (100, 1_000, 10_000, 100_000)
AT_ONCE = 10_000  # trials that run at the same time, at most
EVENTS = 200  # of each kind
WARM_UP = 20  # of them that are not counted: statements are compiled at their first use
CONFIG = """
entrypoint: "true"
checkpoint_storage: {type: shared_fs, host_path: /tmp}
searcher:
  {name: async_halving, metric: loss, time_metric: epochs, max_time: 64, num_rungs: 4, max_trials: 1}
hyperparameters: {lr: {type: log, base: 10, minval: -4, maxval: 0}, width: {type: int, minval: 1, maxval: 512}}
"""
COMMANDS: dict[str, lifecycle.Event] = {"a pause": lifecycle.Pause(), "a kill": lifecycle.Kill()}
DONE = Outcome(OutcomeKind.COMPLETED, "It is done")


@dataclass(frozen=True)
class Running:
    """A search under way in a database. `live`: its running trials' allocations."""

    engine: Engine
    master: Master
    experiment_id: int
    live: list[str]


def measure(deadline: Deadline) -> None:
    """Print the figures of searches of `TRIALS` trials."""
    with private_server() as server:
        template = make_template(server)
        for trials in TRIALS:
            if not deadline.left:
                say("fleet", f"search of {trials:,} trials", "left out: out of time")
                continue
            with database(server, template) as url, engine_of(url) as engine:
                search = begin(engine, trials)
                for what, sample, written in events(search):
                    say("fleet", f"search of {trials:,} trials, {what}", sample, f"{figure(written)} bytes written")
                with engine_of(url) as other:
                    took, kept = rebuilt(other, search.experiment_id)
                say("fleet", f"search of {trials:,} trials, rebuilt", f"{figure(took)} ms", f"{figure(kept)} MB")
                for what, event in COMMANDS.items():
                    answer, steps = told(search, event)
                    reached = f"all {len(search.live):,} trials in {figure(answer + sum(steps.values))} ms"
                    claim = f"search of {trials:,} trials, {what} of it"
                    say("fleet", claim, f"answer {figure(answer)} ms", reached, f"each step {steps}")


def events(search: Running) -> Iterator[tuple[str, Sample, float]]:
    """Kinds of events, how long each took, and the median of the bytes in PostgreSQL's log of changes."""
    life = random.Random(2)
    streams = itertools.cycle(search.live[: EVENTS // 2])
    sent = dict.fromkeys(search.live, 0)

    def validation() -> None:
        name = next(streams)
        sent[name] += 1
        metrics = {"loss": life.random(), "epochs": sent[name]}
        record = {"t": 1.7e9, "kind": "metrics", "group": "validation", "steps_completed": sent[name]}
        piece = StreamBatch("core", sent[name], [{**record, "metrics": metrics}])
        (answer,) = search.master.report_calls.take_reports([ReportCall(name, piece)])
        if isinstance(answer, Exception):
            raise answer

    ends = reversed(search.live)

    def end() -> None:
        search.master.endings.end_together(search.experiment_id, {next(ends): DONE})

    enough = min(EVENTS, len(search.live) // 2)
    for what, work, times in (("a validation", validation, EVENTS), ("a trial's end and the next trial", end, enough)):
        for _ in range(WARM_UP):
            work()
        took, written = [], []
        for _ in range(times - WARM_UP):
            before = _written(search.engine)
            took.append(timed(work))
            written.append(_written(search.engine) - before)
        yield what, Sample(took, tails=(0.99,)), Sample(written, "bytes").median


def told(search: Running, event: lifecycle.Event) -> tuple[float, Sample]:
    """Milliseconds until a user's command is answered, and those of each step in which the other trials follow."""

    def command() -> None:
        with search.master.experiment_lock.hold(search.experiment_id) as orchestrator:
            orchestrator.experiment_event(event)

    def left() -> bool:
        with search.master.store.autocommit() as session:
            return session.get_one(Experiment, search.experiment_id).propagation_due

    answer, steps = timed(command), []
    while left():
        steps.append(timed(lambda: search.master.propagation.propagate(Retries())))
    return answer, Sample(steps or [0.0], tails=(0.99,))


def rebuilt(engine: Engine, experiment_id: int) -> tuple[float, float]:
    """Milliseconds until a process that knows nothing has the search, and megabytes that it then holds."""
    master = bind(Store(engine))
    took = timed(lambda: _load(master, experiment_id))
    with master.store.transaction() as session:
        live_searches(session).take(experiment_id)
    gc.collect()
    tracemalloc.start()
    _load(master, experiment_id)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return took, held / 2**20


def _load(master: Master, experiment_id: int) -> None:
    with master.experiment_lock.hold(experiment_id) as orchestrator:
        assert orchestrator.search.trials


def begin(engine: Engine, trials: int) -> Running:
    """A search that has created so many trials, at most `AT_ONCE` of which run."""
    attempts = Attempts(engine)
    number = grow(attempts, trials, AT_ONCE)
    return Running(engine, attempts.master, number, attempts.live(number))


def grow(attempts: Attempts, trials: int, at_once: int, **facts: Any) -> int:
    """The id of an experiment whose search has created so many trials, of which `at_once` run, with an attempt each.
    `facts`: of the attempts."""
    config = parse_experiment(CONFIG).to_json()
    config["searcher"] |= {"max_trials": 4 * trials, "max_concurrent_trials": min(trials, at_once)}
    search, creates, live = _grown(config, trials)
    number = attempts.experiment(
        config,
        original_config=CONFIG,
        searcher_type="async_halving",
        search=search.snapshot(),
        num_trials=trials,
        live_trials=len(live),
    )
    rows = [
        {"id": one.request_id, "hparams": one.hparams, "seed": one.seed, "live": one.request_id in live}
        for one in creates
    ]
    attempts.many(number, rows, **facts)
    return number


def _grown(config: dict[str, Any], trials: int) -> tuple[Search, list[Create], set[str]]:
    """A search, the trials that it has created, and those of them that run."""
    search, actions = Search.start(config["searcher"], config["hyperparameters"], 1)
    creates = [action for action in actions if isinstance(action, Create)]
    ended, life = 0, random.Random(1)
    while search.trials < trials:
        one = creates[ended].request_id
        ended += 1
        found = search.validation(one, {"loss": life.random(), "epochs": 1}, 1)
        creates += [action for action in (*found, *search.exited(one)) if isinstance(action, Create)]
    return search, creates, {one.request_id for one in creates[ended:]}


def _written(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")).scalar_one())
