"""What is concluded from how a site has set up its Slurm. Its commands are stand-ins that print what such a site's do;
on a real cluster it is asked by test_jobs.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainmaster.dispatchers.base import Capabilities, Setup
from trainmaster.dispatchers.slurm import SlurmDispatcher
from trainmaster.dispatchers.slurm.commands import SlurmPrograms

USUAL = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "MessageTimeout": "10 sec",
    "MinJobAge": "300 sec",
    "PrivateData": "none",
}


def probe(
    folder: Path, version: str = "24.11.5", options: dict[str, object] | None = None, **config: Any
) -> Capabilities:
    printed = "".join(f"{key:23} = {value}\n" for key, value in {**USUAL, **config}.items())
    said = {"sbatch": f"slurm-wlm {version}\n", "scontrol": f"Configuration data as of 2026-11-21T00:00:00\n{printed}"}
    commands = dict.fromkeys(SlurmPrograms.__annotations__, "/bin/false")
    for name, text in said.items():
        (folder / f"{name}.out").write_text(text)
        (folder / name).write_text(f"#!/bin/sh\ncat '{folder}/{name}.out'\n")
        (folder / name).chmod(0o755)
        commands[name] = str(folder / name)
    given = {"container_run_type": "none", "commands": commands, **(options or {})}
    dispatcher = SlurmDispatcher(Setup(name="x", prefix="det-", job_root=folder, options=given))
    try:
        return dispatcher.probe()
    finally:
        dispatcher.close()


def texts(found: Capabilities) -> list[str]:
    return [problem.text for problem in found.problems if "root" not in problem.text]


@pytest.mark.parametrize(
    ("min_job_age", "interval"),
    [("300 sec", 10.0), ("30 sec", 10.0), ("12 sec", 4.0), ("2 sec", 1.0), ("0 sec", 10.0), ("(null)", 10.0)],
)
def test_poll_interval_follows_min_job_age(tmp_path: Path, min_job_age: str, interval: float) -> None:
    assert probe(tmp_path, MinJobAge=min_job_age).poll_interval == interval


def test_a_shorter_interval_of_the_administrators_is_kept(tmp_path: Path) -> None:
    assert probe(tmp_path, options={"poll_interval": 2.0}, MinJobAge="12 sec").poll_interval == 2.0


def test_quiet_period_is_twice_message_timeout(tmp_path: Path) -> None:
    assert probe(tmp_path, MessageTimeout="30 sec").quiet_period == 60.0
    assert probe(tmp_path, MessageTimeout="").quiet_period == 20.0


@pytest.mark.parametrize(
    ("kind", "accounting"),
    [("accounting_storage/slurmdbd", True), ("accounting_storage/none", False), ("(null)", False), ("", False)],
)
def test_accounting(tmp_path: Path, kind: str, accounting: bool) -> None:
    assert probe(tmp_path, AccountingStorageType=kind).accounting is accounting


def test_short_min_job_age_without_accounting_is_reported(tmp_path: Path) -> None:
    forgetful = {"MinJobAge": "2 sec", "AccountingStorageType": "accounting_storage/none"}
    assert texts(probe(tmp_path, **forgetful)) == [  # type: ignore[arg-type]
        "Slurm forgets ended jobs after 2 s (MinJobAge) and keeps no accounting."
    ]
    assert texts(probe(tmp_path, MinJobAge="2 sec")) == []


@pytest.mark.parametrize(
    ("version", "told"), [("22.05.8", True), ("22.05.5", True), ("22.05.9", False), ("24.11.5", False)]
)
def test_releases_that_refuse_good_requests_are_named(tmp_path: Path, version: str, told: bool) -> None:
    found = probe(tmp_path, version)
    assert found.version == version
    assert any("bug 15857" in text for text in texts(found)) is told
    assert texts(probe(tmp_path, version, {"tres_supported": False})) == []
