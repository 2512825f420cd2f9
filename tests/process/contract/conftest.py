"""The published client against a real master with the local dispatcher; trials really run."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.process.e2e.conftest import LOCAL
from tests.support import trainings
from tests.support.master import MasterProcess, serving
from tests.support.reference import methods, reference
from trainmaster.client.master import Master


@dataclass(frozen=True)
class Reference:
    """`det` and the SDK of Determined 0.38.1, as one user of one master."""

    environment: Path
    master: MasterProcess
    home: Path
    user: str = "determined"
    logged_in: bool = True

    def det(self, *arguments: str, status: int = 0, stdin: str = "", timeout: float = 240) -> str:
        """What the command prints; stdout only. Its exit status must be `status`."""
        command = [str(self.environment / "bin" / "det"), *arguments]
        done = subprocess.run(
            command, env=self._variables(), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
        said = f"det {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == status, said
        assert "Traceback" not in done.stderr, said
        return done.stdout if status == 0 else done.stdout + done.stderr

    def rows(self, *arguments: str) -> list[dict[str, str]]:
        """What the command lists, a row a line, by column."""
        return list(csv.DictReader(io.StringIO(self.det(*arguments, "--csv"))))

    def values(self, *arguments: str) -> list[Any]:
        """The JSON values that the command prints, one after the other; a remark may follow."""
        text, found = self.det(*arguments, "--json").strip(), []
        while text.startswith(("{", "[")):
            value, end = json.JSONDecoder().raw_decode(text)
            found.append(value)
            text = text[end:].lstrip()
        return found

    def run(self, code: str, *arguments: str) -> Any:
        """Run Python with the SDK; `answer(x)` in it hands a JSON value back."""
        done = subprocess.run(
            [str(self.environment / "bin" / "python"), "-c", methods.PRELUDE + code, *arguments],
            env=self._variables(), capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(methods.note(done.stdout))

    def _variables(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DET_", "PYTHON"))}
        told = {"DET_MASTER": self.master.url, "DET_DEBUG_CONFIG_PATH": str(self.home), "COLUMNS": "400"}
        if self.logged_in:
            told |= {"DET_USER": self.user, "DET_PASS": self.master.password}
        return {**kept, **told}


@pytest.fixture(scope="session")
def installed() -> Path:
    try:
        return reference.environment()
    except reference.NoReference as reason:
        pytest.skip(f"no reference client: {reason}")


@pytest.fixture(scope="package")
def running(installed: Path) -> Iterator[MasterProcess]:
    with serving(LOCAL) as process:
        yield process


@pytest.fixture
def client(installed: Path, running: MasterProcess, tmp_path: Path) -> Reference:
    return Reference(installed, running, tmp_path / "config")


@pytest.fixture(scope="package")
def truth(running: MasterProcess) -> Master:
    """What the master says to our own client: the effect of each command is checked there."""
    return running.client("admin")


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A context folder with a configuration beside it: four epochs, a checkpoint at the end."""
    folder = tmp_path_factory.mktemp("training")
    (folder / "train.py").write_text(trainings.COUNTING)
    (folder / "quick.yaml").write_text(trainings.experiment(epochs=4, pause=0.01))
    (folder / "long.yaml").write_text(trainings.experiment(epochs=2000, pause=0.1))
    return folder
