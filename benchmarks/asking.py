"""Measures how many reports a second a search decides for programs that ask and tell, beside Optuna on the same
database server: 32 clients, each of which asks for a trial, tells one epoch after the other, and is told whether to
continue."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg2
from sqlalchemy import make_url

from benchmarks.load import Refused
from benchmarks.measure import Deadline, figure, say, versus
from tests.support.api.http import Api
from tests.support.master import MasterProcess, make_folder, remove_folder
from trainmaster.client import connect
from trainmaster.client.asked_trials import AskTell
from trainmaster.client.errors import APIError
from trainmaster.client.session_calls import hashed
from trainmaster.master.db.embedded import EmbeddedServer

PROCESSES, THREADS = 2, 16  # clients
SECONDS = 15.0
EPOCHS = 9
AT_ONCE = 8  # trials of a client that tells of several at a time
STUDY = "bench"
CONFIG = {
    "searcher": {
        "name": "asha", "metric": "loss", "time_metric": "epochs", "max_time": EPOCHS, "divisor": 3,
        "max_trials": 50_000, "max_concurrent_trials": PROCESSES * THREADS * AT_ONCE, "ask_tell": True,
    },
    "hyperparameters": {"x": {"type": "double", "minval": 0, "maxval": 1}},
}  # fmt: skip

Counts = tuple[int, int]  # decided reports, and trials begun


def run(deadline: Deadline) -> None:
    """Print a line for each way to tell."""
    folder = make_folder()
    master = MasterProcess(folder, "resource_manager: {type: local, slots: 1, poll_interval: 5}\n").start()
    try:
        theirs = _rates(partial(_optuna, _study(EmbeddedServer(master.data).url)), deadline)
        say("asking", "Optuna RDB storage, an epoch a report", _words(theirs))
        body = {"username": "determined", "password": hashed(master.password), "isHashed": True}
        token = Api(master.url).post("/api/v1/auth/login", body).json["token"]
        for at_once in (1, AT_ONCE):
            number = master.client().create_experiment(json.dumps(CONFIG)).id
            ours = _rates(partial(_told, master.url, token, number, at_once), deadline)
            how = "an epoch a report" if at_once == 1 else f"{at_once} trials a client, their epochs in one report"
            say("asking", f"ask and tell, {how}", _words(ours), versus(ours[0], theirs[0], "Optuna"))
    finally:
        master.clean_up()
        remove_folder(folder)


def _words(rates: tuple[float, float]) -> str:
    return f"{figure(rates[0])} decided reports/s, {figure(rates[1])} trials/s, {PROCESSES * THREADS} clients"


def _rates(client: Callable[[float], Counts], deadline: Deadline) -> tuple[float, float]:
    """Run the clients for a while; return what they did a second."""
    seconds = min(SECONDS, max(deadline.left / 4, 1.0))
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        counts = pool.starmap(_threads, [(client, seconds)] * PROCESSES)
    return sum(reports for reports, _ in counts) / seconds, sum(trials for _, trials in counts) / seconds


def _threads(client: Callable[[float], Counts], seconds: float) -> Counts:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(THREADS) as pool:
        counts = [each.result() for each in [pool.submit(client, seconds) for _ in range(THREADS)]]
    return sum(reports for reports, _ in counts), sum(trials for _, trials in counts)


def _told(url: str, token: str, number: int, at_once: int, seconds: float) -> Counts:
    """Tell an epoch of each trial in one call; keep `at_once` trials."""
    try:
        return _asked(connect(url, token=token).ask_tell(number), at_once, seconds)
    except APIError as error:
        raise Refused(str(error)) from None  # as a text: it comes from another process


def _asked(search: AskTell, at_once: int, seconds: float) -> Counts:
    until, reports, trials = time.monotonic() + seconds, 0, 0
    mine: dict[int, tuple[float, int]] = {}
    while time.monotonic() < until:
        if len(mine) < at_once:
            given, _ = search.ask(at_once - len(mine), wait=0.5)
            mine |= {trial.id: (float(trial.hparams["x"]), trial.steps) for trial in given}
            trials += len(given)
        mine = {trial: (x, epoch + 1) for trial, (x, epoch) in mine.items()}
        told: list[dict[str, Any]] = [
            {"trial_id": trial, "steps": epoch, "metrics": {"loss": x + 1 / epoch, "epochs": epoch}}
            for trial, (x, epoch) in mine.items()
        ]
        if told:
            decisions = search.tell(told)
            reports += len(told)
            kept = zip(mine.items(), decisions, strict=True)
            mine = {trial: state for (trial, state), decision in kept if decision == "continue"}
    return reports, trials


def _study(url: str) -> str:
    """Make a database with a study of Optuna's; return its address."""
    import optuna

    with contextlib.closing(psycopg2.connect(url.replace("postgresql+psycopg2://", "postgresql://"))) as connection:
        connection.autocommit = True
        connection.cursor().execute("CREATE DATABASE optuna")
    own = make_url(url).set(database="optuna").render_as_string(hide_password=False)
    optuna.create_study(storage=own, study_name=STUDY)
    return own


def _optuna(url: str, seconds: float) -> Counts:
    """The same with Optuna: random points, its own successive halving, its storage in PostgreSQL."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.load_study(
        storage=optuna.storages.RDBStorage(url),
        study_name=STUDY,
        sampler=optuna.samplers.RandomSampler(),
        pruner=optuna.pruners.SuccessiveHalvingPruner(reduction_factor=3),
    )
    until, reports, trials = time.monotonic() + seconds, 0, 0
    while time.monotonic() < until:
        trial = study.ask()
        x = trial.suggest_float("x", 0, 1)
        trials += 1
        for epoch in range(1, EPOCHS + 1):
            trial.report(x + 1 / epoch, epoch)
            reports += 1
            if trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            study.tell(trial, x + 1 / EPOCHS)
    return reports, trials
