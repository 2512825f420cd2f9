"""Searches of short trials under random faults, on Slurm and on Docker hosts, checked by value. `docs/chaos.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.chaos.anywhere import ANYWHERE
from tests.support.chaos.driver import Load, Report, Run, folder_of_logs
from tests.support.chaos.on_slurm import ON_SLURM
from tests.support.chaos.slurm_site import ChaosCluster, recover, slurm_site


def say(line: str) -> None:
    print(line, flush=True)


def slurm(seed: int, minutes: float, kept: Path) -> Report:
    kinds = [*ANYWHERE.all, *ON_SLURM.all]
    cluster = ChaosCluster()
    cluster.up()
    recover(cluster)
    try:
        with slurm_site(cluster) as site:
            try:
                report = Run(site, kinds, seed, say, Load()).run(minutes=minutes)
            finally:
                folder_of_logs(site, kept)
    finally:
        recover(cluster)
        cluster.down()
    for line in report.lines(kinds):
        say(line)
    return report


def run(seed: int, minutes: float, kept: Path) -> None:
    """Exits with status 1 where something was violated."""
    reports = [slurm(seed, minutes, kept)]
    if any(report.findings.violations for report in reports):
        sys.exit(1)
