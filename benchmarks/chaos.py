"""Searches of short trials under random faults, on Slurm and on Docker hosts, checked by value. `docs/chaos.md`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from benchmarks.measure import Unavailable
from tests.support.chaos.anywhere import ANYWHERE
from tests.support.chaos.docker_site import docker_site
from tests.support.chaos.driver import Load, Report, Run, keep
from tests.support.chaos.on_docker import ON_DOCKER
from tests.support.chaos.on_slurm import ON_SLURM
from tests.support.chaos.slurm_site import ChaosCluster, recover, slurm_site
from tests.support.cluster import packages
from tests.support.docker.engine import running_engine


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
                keep(site, kept / f"slurm-{seed}")
    finally:
        recover(cluster)
        cluster.down()
    for line in report.lines(kinds):
        say(line)
    return report


def docker(seed: int, minutes: float, kept: Path) -> Report:
    kinds = [*ANYWHERE.all, *ON_DOCKER.all]
    with running_engine() as engine, docker_site(engine) as site:
        try:
            report = Run(site, kinds, seed, say, Load(at_once=6)).run(minutes=minutes)
        finally:
            keep(site, kept / f"docker-{seed}")
    for line in report.lines(kinds):
        say(line)
    return report


WHERE = {"slurm": slurm, "docker": docker}


def run(seed: int, minutes: float, where: str, kept: Path) -> None:
    """One run on each dispatcher that `where` names ("slurm", "docker" or "both"), after the other.

    Args:
        minutes: of faults, on each; then everything that was begun is waited for.
        kept: a folder for what explains a violation.

    Exits with status 1 where something was violated.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # undo everything, in the background too
        signal.signal(number, signal.default_int_handler)
    try:
        reports = [work(seed, minutes, kept) for name, work in WHERE.items() if where in (name, "both")]
    except packages.Unavailable as reason:
        raise Unavailable(str(reason)) from reason
    if any(report.findings.violations for report in reports):
        say(f"what explains them is in {kept}")
        sys.exit(1)
