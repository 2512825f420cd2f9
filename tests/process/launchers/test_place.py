"""What all launchers share: the grammar of their arguments, the place of a node, and the ends of ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainmaster.launchers.place import LaunchError, Misused, Place, find_place, need, program_of, split_arguments
from trainmaster.launchers.wrap_rank import prefix_lines
from trainmaster.runtime.ranks import RankEnd, first_failure, leave_rank_end, signal_name

ROOT = Path(__file__).resolve().parents[3]


TRIAL = [sys.executable, "-u", "-m", "trainmaster.pytorch.entrypoint"]


@pytest.mark.parametrize(
    ("arguments", "options", "script"),
    [
        (["train.py", "--lr", "1"], [], ["train.py", "--lr", "1"]),
        (["python3", "train.py", "--", "x"], [], ["python3", "train.py", "--", "x"]),
        (["--max_restarts", "3", "--", "train.py"], ["--max_restarts", "3"], ["train.py"]),
        (["--", "train.py", "--", "x"], [], ["train.py", "--", "x"]),
        (["--trial", "model:Trial"], [], [*TRIAL, "model:Trial"]),
        (["--max_restarts", "3", "--", "--trial", "model:Trial"], ["--max_restarts", "3"], [*TRIAL, "model:Trial"]),
    ],
)
def test_arguments_before_two_dashes_go_to_framework(arguments: Any, options: Any, script: Any) -> None:
    assert split_arguments(arguments, "torchrun") == (options, script)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no script"),
        (["--"], "no script"),
        (["--rdzv_id", "x"], "options for torchrun are ended by --"),
        (["--trial", "model:Trial", "x"], "--trial is followed by MODULE:CLASS and nothing else"),
        (["--", "--trial"], "--trial is followed by MODULE:CLASS and nothing else"),
    ],
)
def test_wrong_arguments_are_a_sentence(arguments: Any, words: str) -> None:
    with pytest.raises(Misused, match=words):
        split_arguments(arguments, "torchrun")


def test_only_executable_programs_run_without_python(tmp_path: Path) -> None:
    marked = tmp_path / "run.py"
    marked.write_text("#!/usr/bin/env python3\n")
    plain = [sys.executable, "-u"]
    assert program_of(["train.py", "-x"]) == [*plain, "train.py", "-x"]
    assert program_of([str(marked)]) == [*plain, str(marked)]
    marked.chmod(0o755)
    assert program_of([str(marked), "1"]) == [str(marked), "1"]
    assert program_of(["sh", "x"]) == ["sh", "x"]
    assert program_of(["no-such-program"]) == [*plain, "no-such-program"]


def test_outside_of_a_job_this_machine_has_one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DET_")]:
        monkeypatch.delenv(name)
    place = find_place()
    assert (place.nodes, place.here, place.chief) == (1, 1, "127.0.0.1")
    assert place == Place()


def test_missing_framework_error_says_what_to_do() -> None:
    with pytest.raises(LaunchError, match=r"nonesuch is not in this image: torchrun needs .* set environment\.image"):
        need("nonesuch", "torchrun")
    need("json", "torchrun")


def test_first_failure_comes_before_ranks_that_it_ended(tmp_path: Path) -> None:
    run_dir = str(tmp_path)
    assert first_failure(None) is None
    assert first_failure(run_dir) is None
    for rank, (status, at) in enumerate([(143, 1.0), (0, 0.5), (7, 3.0), (9, 4.0)]):
        leave_rank_end(run_dir, RankEnd(rank, status, at))
    for name, text in enumerate(("torn", '{"rank": -4, "status": 1, "at": 0}', '{"rank": 1}', "[]")):
        (tmp_path / "ranks" / f"9{name}.json").write_text(text)
    assert first_failure(run_dir) == RankEnd(2, 7, 3.0)


@pytest.mark.parametrize(("later", "rank"), [(0.4, 1), (20.0, 0)])  # after 20 s it is a launcher that kills
def test_killed_rank_precedes_ranks_that_noticed_its_end(tmp_path: Path, later: float, rank: int) -> None:
    for number, (status, at) in enumerate([(14, 3.0), (137, 3.0 + later), (143, 1.0)]):
        leave_rank_end(str(tmp_path), RankEnd(number, status, at))
    assert first_failure(str(tmp_path)).rank == rank  # type: ignore[union-attr]


def test_signals_have_their_names() -> None:
    assert [signal_name(number) for number in (1, 6, 9, 15, 17, 0, -3, 77)] == [
        *("SIGHUP", "SIGABRT", "SIGKILL", "SIGTERM", "SIGCHLD", "", "", "")
    ]


@pytest.mark.parametrize(
    ("text", "expected", "at_start"),
    [
        (b"a\nb\n", b"> a\n> b\n", True),
        (b"10%\r20%\r", b"> 10%\r> 20%\r", True),
        (b"a\r\nb", b"> a\n> b", False),
        (b"\n", b"\n", True),
        (b"", b"", True),
    ],
)
def test_lines_get_their_ranks_prefix(text: bytes, expected: bytes, at_start: bool) -> None:
    assert prefix_lines(text, b"> ", True) == (expected, at_start)


def wrapped(folder: Any, *arguments: Any, **environment: Any) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "trainmaster.launchers.wrap_rank", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "TRAINMASTER_RUN_DIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "arguments", [["RANK", "--", "sh"], ["RANK", "sh"], ["3", "sh"], ["--no-redirect-stdio", "RANK", "sh"]]
)
def test_a_rank_is_started_in_determineds_grammar_as_in_ours(tmp_path: Path, arguments: Any) -> None:
    done = wrapped(tmp_path, *arguments, "-c", "echo hello; exit 5", RANK="3")
    assert done.returncode == 5, done.stderr
    assert done.stdout == ("hello\n" if arguments[0].startswith("--") else "[rank=3] hello\n")
    left = json.loads((tmp_path / "ranks" / "3.json").read_text())
    assert (left["rank"], left["status"]) == (3, 5)


def test_a_rank_that_is_no_number_is_refused(tmp_path: Path) -> None:
    done = wrapped(tmp_path, "RANK", "--", "sh", RANK="x")
    assert (done.returncode, "not set to a rank" in done.stderr) == (64, True)
    assert wrapped(tmp_path, "RANK").returncode == 64
