"""Runs Optuna Dashboard on a study of the same trials, in its own environment."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection

from benchmarks.measure import Unavailable
from benchmarks.webui_data import Run
from tests.support.master import free_port, make_folder, remove_folder, wait_for
from tests.support.reference import reference

VERSION = "0.21.0"
REQUIREMENTS = (f"optuna-dashboard=={VERSION}", "optuna")
START = 120.0  # seconds
_FILL = """
import json, sys
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

optuna.logging.set_verbosity(optuna.logging.ERROR)
runs = json.load(sys.stdin)
study = optuna.create_study(storage=sys.argv[1], study_name="search")

def kind(name):
    values = [run["hparams"][name] for run in runs]
    if isinstance(values[0], str):
        return CategoricalDistribution(sorted(set(values)))
    low, high = min(values), max(values)
    if all(isinstance(value, int) for value in values):
        return IntDistribution(low, high)
    return FloatDistribution(low, high, log=low > 0 and high > 100 * low)

names = [name for name in runs[0]["hparams"] if len({json.dumps(run["hparams"][name]) for run in runs}) > 1]
kinds = {name: kind(name) for name in names}
study.add_trials([
    create_trial(
        state=TrialState.COMPLETE,
        value=min(run["values"]),
        params={name: run["hparams"][name] for name in names},
        distributions=kinds,
        intermediate_values=dict(zip(run["steps"], run["values"])),
    )
    for run in runs
])
"""


@contextmanager
def serving(runs: Sequence[Run]) -> Iterator[str]:
    """The address of a dashboard whose only study has these runs. Raises Unavailable."""
    try:
        environment = reference.installed(f"optuna-dashboard-{VERSION}", REQUIREMENTS)
    except reference.NoReference as reason:
        raise Unavailable(f"Optuna Dashboard {VERSION} is not here: {reason}") from None
    folder = make_folder()
    storage = f"sqlite:///{folder}/study.db"
    port = free_port()
    process = None
    try:
        given = json.dumps([{"hparams": run.hparams, "steps": run.steps, "values": run.values} for run in runs])
        command = [str(environment / "bin/python"), "-c", _FILL, storage]
        subprocess.run(command, input=given, text=True, check=True, capture_output=True)
        program = str(environment / "bin/optuna-dashboard")
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, storage, "--host", "127.0.0.1", "--port", str(port)], stdout=log, stderr=log
            )
        wait_for(lambda: _answers(port), "Optuna Dashboard to answer", START)
        yield f"http://127.0.0.1:{port}/dashboard/studies/1"
    finally:
        if process is not None:
            process.terminate()
            process.wait()
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
