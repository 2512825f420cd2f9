"""Measures how long the smallest commands take, compared with the published client of Determined 0.38.1."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import Deadline, Sample, Unavailable, repeated, say, versus
from tests.support.master import MasterProcess, make_folder, remove_folder
from tests.support.reference import reference

TIMES = 15
EXPERIMENTS = 20


def run(deadline: Deadline) -> None:
    try:
        theirs = reference.environment() / "bin" / "det"
    except reference.NoReference as reason:
        raise Unavailable(str(reason)) from None
    ours = Path(sys.executable).parent / "det"
    folder = make_folder()
    master = MasterProcess(folder, "resource_manager: {type: local, slots: 1}\n").start()
    try:
        client = master.client()
        for number in range(EXPERIMENTS):
            text = f"{{name: e{number}, entrypoint: x, searcher: {{name: single, metric: loss}}}}"
            client.create_experiment(text, [], activate=False)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("DET_", "PYTHON"))}
        for name, arguments in (
            ("det --version", ["--version"]),
            (f"det experiment list ({EXPERIMENTS})", ["e", "list"]),
        ):
            samples = []
            for program, home in ((ours, "ours"), (theirs, "theirs")):
                told = {"DET_MASTER": master.url, "DET_USER": "determined", "DET_PASS": master.password}
                told["DET_DEBUG_CONFIG_PATH"] = str(folder / home)
                samples.append(_wall([str(program), *arguments], {**environment, **told}, deadline))
            mine, peer = samples
            bare = _wall([sys.executable, "-c", ""], environment, deadline)
            ratio = versus(mine.median, peer.median, "it")
            say("commands", name, f"ours {mine}", f"Determined's client {peer}", ratio, f"python -c '' {bare}")
    finally:
        master.clean_up()
        remove_folder(folder)


def _wall(command: Sequence[str], environment: Mapping[str, str], deadline: Deadline) -> Sample:
    def once() -> None:
        subprocess.run(command, env=dict(environment), capture_output=True, check=True)

    return repeated(once, TIMES, deadline, warm_up=2)
