"""Runs Optuna Dashboard on a study with given trials, in its own environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection

from benchmarks.measure import Unavailable
from benchmarks.searched import SearchedTrial
from tests.support.master import free_port, make_folder, remove_folder, wait_for
from tests.support.reference import reference

VERSION = "0.21.0"
REQUIREMENTS = (f"optuna-dashboard=={VERSION}", "optuna==5.0.0")
START = 60.0  # seconds
STUDY = "dashboard/studies/1"

# Runs in its environment: reads trials, and makes a study of them as Optuna would have.
_FILL = """
import json, sys
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial
optuna.logging.set_verbosity(optuna.logging.ERROR)
trials = json.load(sys.stdin)
names = sorted({name for one in trials for name in one["params"]})
kinds = {}
for name in names:
    values = [one["params"][name] for one in trials if name in one["params"]]
    if all(isinstance(value, (int, float)) for value in values):
        kinds[name] = FloatDistribution(float(min(values)), float(max(values)))
    else:
        kinds[name] = CategoricalDistribution(sorted(set(map(str, values))))
study = optuna.create_study(storage=sys.argv[1], study_name="search", direction="minimize")
study.add_trials([
    create_trial(
        state=TrialState.PRUNED if one["stopped"] else TrialState.COMPLETE,
        params={k: float(v) if isinstance(kinds[k], FloatDistribution) else str(v) for k, v in one["params"].items()},
        distributions={k: kinds[k] for k in one["params"]},
        value=one["values"][-1],
        intermediate_values=dict(enumerate(one["values"])),
    )
    for one in trials
])
"""


@contextmanager
def serving(trials: Sequence[SearchedTrial]) -> Iterator[str]:
    """The address of the study's page. Raises Unavailable where it cannot be installed or does not start."""
    try:
        environment = reference.installed(f"optuna-dashboard-{VERSION}", REQUIREMENTS)
    except reference.NoReference as reason:
        raise Unavailable(f"Optuna Dashboard {VERSION} is not here: {reason}") from None
    folder, port = make_folder(), free_port()
    storage = f"sqlite:///{folder}/study.db"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    shown = json.dumps([{"params": one.hparams, "values": one.values, "stopped": one.stopped} for one in trials])
    try:
        subprocess.run([environment / "bin/python", "-c", _FILL, storage], input=shown, text=True, env=kept, check=True)
        process = subprocess.Popen(
            [environment / "bin/optuna-dashboard", storage, "--host", "127.0.0.1", "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=kept,
        )
        try:
            wait_for(lambda: process.poll() is not None or _answers(port), "Optuna Dashboard to answer", START)
            if process.poll() is not None:
                raise Unavailable(f"Optuna Dashboard {VERSION} does not start.")
            yield f"http://127.0.0.1:{port}/{STUDY}"
        finally:
            process.terminate()
            process.wait()
    finally:
        remove_folder(folder)


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/api/studies")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
