"""The program of `scripts/demo`: runs a search on a local master and prints a table of its trials."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from trainmaster.cli import progress, render, ui
from trainmaster.client import context
from trainmaster.client.errors import ClientError
from trainmaster.client.master import Master
from trainmaster.client.models import Experiment, Trial
from trainmaster.client.transport import Transport

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "digits"
EPOCHS = 16  # of a trial that runs to its end
LEAVE_DEADLINE = 20.0  # seconds
PATIENCE = 15.0  # seconds that a master may not answer
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Demo:
    """A master in a folder of its own, and everything that must be stopped with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.password = secrets.token_urlsafe(12)
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.master: Master | None = None

    def start(self) -> Master:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DET_")}
        environment["TRAINMASTER_INITIAL_PASSWORD"] = self.password
        command = [sys.executable, "-m", "trainmaster.cli.admin", "serve", "--data", str(self.folder), "--port", "0"]
        # A session of its own: Ctrl-C is for us, and we stop it in order. What came in the midst of its start would
        # leave a process that nobody knows.
        with (self.folder / "master.log").open("w") as log, interrupts_wait():
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            log_text = (self.folder / "master.log").read_text().strip()
            raise ClientError(f"The master did not start:\n{log_text}")
        self.url = line.removeprefix("listening on ").strip()
        self.master = Master(Transport(self.url))
        self.master.login("determined", self.password)
        return self.master

    def stop(self) -> None:
        """End running trials, then the master, which stops its database."""
        if self.process is None:
            return
        if self.master is not None and self.process.poll() is None:
            with contextlib.suppress(ClientError):  # it is gone: what is left is stopped below
                self._end_experiments(self.master)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(LEAVE_DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._stop_orphaned_database()

    def _end_experiments(self, master: Master) -> None:
        live = [e for e in master.experiments(archived=None) if not e.ended_for_good]
        for experiment in live:
            master.kill(experiment.id)
        deadline = time.monotonic() + LEAVE_DEADLINE
        while live and time.monotonic() < deadline:
            time.sleep(0.2)
            live = [e for e in live if not master.experiment(e.id).ended_for_good]

    def _stop_orphaned_database(self) -> None:
        """Only a master that was killed leaves one."""
        for record in self.folder.rglob("postmaster.pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(record.read_text().splitlines()[0]), signal.SIGQUIT)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="A whole search on this machine: a master, its database, 16 trials, a table.",
    )
    parser.add_argument("--keep", action="store_true", help="leave the master running and say how to look at it")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trainmaster-demo-"))
    demo = Demo(folder)
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    kept = False
    try:
        status = run(demo)
        kept = args.keep
        if kept:
            print(how_to_look(demo))
        return status
    except KeyboardInterrupt:
        print("\nInterrupted; stopping everything.", file=sys.stderr)
        return 130
    except ClientError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        ignore_interrupts()
        if not kept:
            demo.stop()
            remove(folder)


def remove(folder: Path) -> None:
    """Jobs that are just leaving may write into it meanwhile."""
    deadline = time.monotonic() + LEAVE_DEADLINE
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)
    if folder.exists():
        print(f"demo: {folder} cannot be removed. Remove it yourself.", file=sys.stderr)


def run(demo: Demo) -> int:
    print("Starting a master with its own database ...", file=sys.stderr)
    master = demo.start()
    print(f"It listens on {demo.url}. Searching: 16 trials of up to {EPOCHS} epochs each.", file=sys.stderr)
    text = (EXAMPLE / "search.yaml").read_text()
    made = master.create_experiment(text, context.collect(EXAMPLE), source="examples/digits/search.yaml")
    print(
        f"Watch it in a browser, by a link that is good once, for a minute:\n  {page_of(master, made.id)}",
        file=sys.stderr,
    )
    ended = progress.watch(lambda: master, made.id, 0.5, PATIENCE)
    trials = master.trials(made.id)
    print(summary(ended, trials), flush=True)
    if ended.state == "COMPLETED" and ended.best_trial_id is not None:
        return 0
    print(f"demo: the search ended as {ended.state}. {ended.reason}", file=sys.stderr)
    for trial in (t for t in trials if t.state == "ERROR"):
        print(f"trial {trial.id}: {trial.reason}", file=sys.stderr)
    return 1


def summary(experiment: Experiment, trials: list[Trial]) -> str:
    """The table of trials, the best one, and what early stopping saved."""
    worst = float("inf")
    ordered = sorted(trials, key=lambda t: worst if t.best_metric is None else t.best_metric)
    rows = [
        [
            t.id,
            t.hparams,
            t.best_metric,
            epochs(t),
            t.state,
            t.stop_cause == "searcher" and epochs(t) < EPOCHS,
            t.restarts,
        ]
        for t in ordered
    ]
    headers = ["Trial", "Hyperparameters", experiment.searcher_metric, "Epochs", "State", "Stopped early", "Restarts"]
    lines = ["", render.table(headers, rows), ""]
    best = next((t for t in trials if t.id == experiment.best_trial_id), None)
    if best is not None and best.best_metric is not None:
        found = f"{experiment.searcher_metric} {best.best_metric:.4f}; {render.hparams(best.hparams)}"
        lines.append(f"best trial: {best.id} ({found})")
    ran, full = sum(map(epochs, trials)), EPOCHS * len(trials)
    if full:
        lines.append(f"early stopping: {ran} epochs instead of {full}, {100 * (1 - ran / full):.0f} % saved")
    return "\n".join(lines)


def page_of(master: Master, experiment_id: int) -> str:
    return ui.link_of(master, f"experiments/{experiment_id}")


def epochs(trial: Trial) -> int:
    """How many epochs the trial trained."""
    return int(trial.summary.get("validation_metrics", {}).get("epochs", {}).get("max", 0))


def how_to_look(demo: Demo) -> str:
    assert demo.process is not None
    assert demo.master is not None
    det = Path(sys.executable).parent / "det"
    return f"""
The master continues. Its page is at {demo.url}/ui/. A link that logs a browser in, once, within a minute:
  {page_of(demo.master, 1)}
Look at it in a terminal with:
  export DET_MASTER={demo.url} DET_USER=determined DET_PASS={demo.password}
  {det} ui experiments/1
  {det} experiment list
  {det} experiment list-trials 1
  {det} trial story 1
Its API is described at {demo.url}/docs. Stop it with:
  kill {demo.process.pid}; rm -r {demo.folder}"""


def ignore_interrupts() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Hold an interrupt back until the end of the block."""
    held: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda signum, _frame: held.append(signum))
    try:
        yield
    finally:
        for number in SIGNALS:
            signal.signal(number, _interrupt)
    if held:
        _interrupt(held[0], None)


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    ignore_interrupts()  # a second Ctrl-C must not leave half of it running
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
