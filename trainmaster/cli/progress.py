"""Watching an experiment: one line that moves on a terminal, a line a change elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter

from trainmaster.cli import render
from trainmaster.client.master import Master
from trainmaster.client.models import Experiment


def watch(master: Master, experiment_id: int, interval: float) -> Experiment:
    """Return the experiment once it has ended, showing progress on stderr meanwhile."""
    shown = ""
    moving = sys.stderr.isatty()
    while True:
        experiment = master.experiment(experiment_id)
        line = _line(master, experiment)
        if line != shown:
            end = "" if moving else "\n"
            clear = "\r\x1b[K" if moving else ""
            room = shutil.get_terminal_size().columns - 1 if moving else len(line)
            print(f"{clear}{line[:room]}", end=end, file=sys.stderr, flush=True)
            shown = line
        if experiment.ended_for_good:
            if moving:
                print(file=sys.stderr)
            return experiment
        time.sleep(interval)


def _line(master: Master, experiment: Experiment) -> str:
    states = Counter(trial.state for trial in master.trials(experiment.id))
    trials = ", ".join(f"{count} {state.lower().replace('_', ' ')}" for state, count in sorted(states.items()))
    filled = round(20 * experiment.progress)
    best = ""
    if experiment.best_metric is not None:
        best = f" | best {experiment.searcher_metric} {experiment.best_metric:.5g} (trial {experiment.best_trial_id})"
    bar = "#" * filled + "." * (20 - filled)
    done = render.percent(experiment.progress)
    return f"experiment {experiment.id} {experiment.state} [{bar}] {done} | trials: {trials or 'none yet'}{best}"
