"""What a failed program said last, as it goes into the sentence about its end."""

from __future__ import annotations

import json
from typing import Any

from trainmaster.runtime.evidence import LONGEST, Tail, printable

CHAINED = """Traceback (most recent call last):
  File "train.py", line 2, in <module>
    int("x")
ValueError: invalid literal

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 4, in <module>
    import torchvision
ModuleNotFoundError: No module named 'torchvision'
shutting down
"""


def quoted(text: str, rank: int | None = None, tail: Tail | None = None) -> str:
    tail = tail or Tail()
    for line in text.splitlines():
        tail.add({"rank": rank, "line": line, "stdtype": "stderr"})
    return tail.quote()


def test_of_a_traceback_it_is_the_exception_that_came_out() -> None:
    assert quoted(CHAINED) == "ModuleNotFoundError: No module named 'torchvision'"


def test_a_traceback_of_pytorch_names_its_rank_before_every_line() -> None:
    said = "".join(f"[rank2]: {line}\n" for line in CHAINED.splitlines())
    assert quoted(said, 2) == "ModuleNotFoundError: No module named 'torchvision'"
    assert quoted("[rankle]: x\n[rank3] y\n") == "[rankle]: x | [rank3] y"


def test_without_one_it_is_the_last_lines() -> None:
    assert quoted("one\ntwo\n\nthree\nfour\n") == "two | three | four"
    assert quoted("") == ""


def test_a_ranks_exception_says_more_than_its_launchers() -> None:
    tail = Tail()
    quoted(CHAINED, 1, tail)
    launcher = 'Traceback (most recent call last):\n  File "run.py"\nChildFailedError: \n' + "=" * 60
    assert quoted(launcher, None, tail) == "ModuleNotFoundError: No module named 'torchvision'"


def test_rank_without_stderr_is_quoted_from_stdout() -> None:
    tail = Tail()
    quoted(CHAINED, 1, tail)
    for rank in (1, 2):
        tail.add({"rank": rank, "line": f"epoch 3 of rank {rank}", "stdtype": "stdout"})
    assert tail.quote(1) == "ModuleNotFoundError: No module named 'torchvision'"
    assert tail.quote(2) == "epoch 3 of rank 2"
    assert tail.quote(3) == ""


def test_it_is_bounded() -> None:
    tail = Tail()
    for _ in range(1000):
        text = quoted("y" * 100_000, None, tail)
    assert len(text) == LONGEST
    assert sum(len(line) for _, line in tail._lines["stderr"]) < 100_000


def test_nothing_in_it_moves_a_terminals_cursor() -> None:
    assert printable("\x1b[31;1mred\x1b[0m\a\x1b]0;title\x07 \u202eleft\u2066\t.") == "red ]0;title left ."


def test_a_failed_training_leaves_it_masked_in_its_exit_record(stage: Any) -> None:
    secret = "tok-6f1c0ffee-secret"
    program = f"import sys; print('fine'); sys.exit('\\x1b[31m{secret} no data')"
    job, master = stage(["python3", "-c", program])
    status, output = job.run()
    assert status == 1, output
    assert master.exits[0]["evidence"] == "[session token] no data"
    assert job.exit_record()["evidence"] == "[session token] no data"
    assert secret not in json.dumps(master.exits)


def test_a_training_that_ends_well_leaves_none(stage: Any) -> None:
    job, master = stage("echo warning >&2")
    assert job.run()[0] == 0
    assert master.exits[0]["evidence"] == ""
