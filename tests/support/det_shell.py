"""Runs `det` as a user does: in its own environment, with and without a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.forked import run_det

DET = [sys.executable, "-m", "trainmaster.cli.det"]
DEADLINE = 240.0  # seconds


@dataclass(frozen=True)
class Done:
    """How a command ended; on a terminal both streams are in `out`."""

    status: int
    out: str
    err: str = ""

    @property
    def sentence(self) -> str:
        """The only line of the error output."""
        (line,) = self.err.splitlines()
        return line

    def json(self) -> Any:
        return json.loads(self.out)

    def csv(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.out)))

    def table(self, number: int = 0) -> list[dict[str, str]]:
        """The rows of the table that stands at that place."""
        blocks = [block.splitlines() for block in self.out.split("\n\n")]
        tables = [block for block in blocks if len(block) >= 2 and set(block[1].strip()) <= set("-+")]
        headers, _, *rows = ([cell.strip() for cell in line.split(" | ")] for line in tables[number])
        return [dict(zip(headers, row + [""] * (len(headers) - len(row)), strict=True)) for row in rows]


def _hear_interrupts() -> None:
    """As at a terminal: a job runner may have started the tests with interrupts ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _of_the_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """What Python itself reads when it starts."""
    return {key: value for key, value in environment.items() if key.startswith(("PYTHON", "LC_", "LANG"))}


class Shell:
    """`variables` are all that `det` sees of DET_*; the token store is in `home`."""

    def __init__(self, home: Path, cwd: Path, **variables: str) -> None:
        self.home, self.cwd = home, cwd
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("DET_", "XDG_"))}
        self.environment = {**kept, "HOME": str(home), "COLUMNS": "200", **variables}

    def with_(self, **variables: str | None) -> Shell:
        """The same with other variables; None takes one away."""
        other = Shell(self.home, self.cwd)
        merged = {**self.environment, **variables}
        other.environment = {key: value for key, value in merged.items() if value is not None}
        return other

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*DET, *arguments], cwd=self.cwd, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_hear_interrupts,
            **options,
        )  # fmt: skip

    def run(self, *arguments: str) -> Done:
        """Without a terminal. A new program where only that has the environment's effect, or coverage is measured."""
        if "COVERAGE_FILE" not in os.environ and _of_the_interpreter(self.environment) == _of_the_interpreter(
            os.environ
        ):
            return Done(*run_det(arguments, self.environment, str(self.cwd), DEADLINE))
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=DEADLINE)
            return Done(process.returncode, out, err)

    def det(self, *arguments: str) -> Done:
        """`run`, for what must succeed."""
        done = self.run(*arguments)
        assert done.status == 0, f"det {' '.join(arguments)}: {done}"
        return done

    def at_terminal(
        self, *arguments: str, typed: dict[str, str] | None = None, once: dict[str, Callable[[], object]] | None = None
    ) -> Done:
        """Run on a terminal, and answer each prompt with the text that `typed` has for it. The functions of `once` are
        called when their words first appear."""
        answers, calls = dict(typed or {}), dict(once or {})
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*DET, *arguments], cwd=self.cwd, env=self.environment,
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        ) as process:  # fmt: skip
            os.close(theirs)
            shown = b""
            until = time.monotonic() + DEADLINE
            while time.monotonic() < until:
                try:
                    piece = os.read(ours, 4096)
                except OSError:  # the other end is closed
                    break
                shown += piece
                for prompt in [prompt for prompt in answers if prompt.encode() in shown]:
                    os.write(ours, f"{answers.pop(prompt)}\n".encode())
                for words in [words for words in calls if words.encode() in shown]:
                    calls.pop(words)()
            os.close(ours)
            return Done(process.wait(DEADLINE), shown.decode(errors="replace").replace("\r\n", "\n"))
