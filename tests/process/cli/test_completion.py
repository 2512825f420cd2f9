"""Completion of `det` in a real bash on a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEADLINE = 60.0  # seconds


class Bash:
    """An interactive bash on a terminal of its own."""

    def __init__(self, home: Path) -> None:
        self._terminal, other = pty.openpty()
        # `det` as it is installed, whatever environment the tests run in.
        (home / "det").write_text(f'#!/bin/sh\nexec {sys.executable} -m trainmaster.cli.det "$@"\n')
        (home / "det").chmod(0o755)
        paths = f"{home}:{os.environ['PATH']}"
        environment = {"HOME": str(home), "PATH": paths, "TERM": "dumb", "PS1": "$ ", "LC_ALL": "C.UTF-8"}
        command = ["bash", "--norc", "--noprofile", "-i"]
        self._process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment, cwd=home, start_new_session=True
        )
        os.close(other)
        self._seen = ""

    def types(self, keys: str) -> None:
        self._seen = ""
        os.write(self._terminal, keys.encode())

    def shows(self, text: str) -> None:
        """Waits until it is on the screen since the last keys."""
        until = time.monotonic() + DEADLINE
        while text not in self._seen:
            left = until - time.monotonic()
            assert left > 0, f"waited in vain for {text!r}; it showed {self._seen!r}"
            if select.select([self._terminal], [], [], left)[0]:
                self._seen += os.read(self._terminal, 65536).decode()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Bash]:
    bash = Bash(tmp_path)
    bash.types('eval "$(det completion bash)" && echo rea""dy\n')
    bash.shows("ready")
    yield bash
    bash.close()


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("det exp", "det experiment "),
        ("det experiment cr", "det experiment create "),
        ("det -m http://there:8080 e unar", "e unarchive "),
        ("det experiment list --show", "--show_project "),
        ("det completion z", "det completion zsh "),
        ("det user whoa", "det user whoami "),
    ],
)
def test_tab_completes_commands_verbs_and_options(bash: Bash, typed: str, completed: str) -> None:
    bash.types(f"{typed}\t")
    bash.shows(completed)


def test_files_are_completed_where_files_are_meant(bash: Bash, tmp_path: Path) -> None:
    (tmp_path / "search.yaml").touch()
    bash.types("det experiment create sea\t")
    bash.shows("det experiment create search.yaml ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_code(shell: str) -> None:
    command = [sys.executable, "-m", "trainmaster.cli.det", "completion", shell]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "det" in done.stdout
    assert "_ARGCOMPLETE" in done.stdout
