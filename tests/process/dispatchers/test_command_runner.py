"""Commands get a deadline and a clean environment, and run without a shell."""

from __future__ import annotations

import pytest

from trainmaster.dispatchers.cluster.command_runner import Shell


def test_words_arrive_as_they_are_and_standard_input_too() -> None:
    odd = ["a b", "$(id)", "`id`", "'\"", "*", "", "é\x1f"]
    done = Shell().run(["printf", "%s\\n", *odd], deadline=10)
    assert done.ok
    assert done.stdout == "".join(f"{word}\n" for word in odd)
    assert Shell().run(["cat"], stdin="script\n", deadline=10).stdout == "script\n"


def test_nothing_of_the_masters_environment_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "leaked")
    monkeypatch.setenv("LD_PRELOAD_NOT", "leaked")
    done = Shell({"SLURM_CONF": "/etc/x"}).run(["env"], deadline=10)
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert names == {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "SLURM_CONF"}


def test_deadline_ends_command_and_result_says_timed_out() -> None:
    done = Shell().run(["sleep", "60"], deadline=0.2)
    assert done.timed_out
    assert not done.ok
    assert 0.2 <= done.seconds < 20


def test_missing_command_differs_from_failing_command() -> None:
    assert Shell().run(["no-such-command-here"], deadline=10).not_found
    failing = Shell().run(["sh", "-c", "echo why >&2; exit 127"], deadline=10)
    assert (failing.returncode, failing.stderr, failing.not_found) == (127, "why\n", False)
