"""`scripts/cluster`: starts and stops the test cluster by hand."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence

from tests.support.cluster import apptainer, images
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.configuration import MIN_JOB_AGE
from tests.support.cluster.layout import USERS
from tests.support.cluster.packages import Unavailable
from tests.support.cluster.release import OFFSETS, ReleaseCluster


def main(arguments: Sequence[str]) -> int:
    """Run one verb; exit status 0, 1 (a sentence on standard error) or 2 (usage)."""
    parser = argparse.ArgumentParser(prog="scripts/cluster", description="A real Slurm cluster for tests.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    up = verbs.add_parser("up", help="start it; safe to run twice")
    up.add_argument("--min-job-age", type=int, default=MIN_JOB_AGE, help="seconds for which ended jobs are remembered")
    verbs.add_parser("down", help="end its jobs and daemons")
    verbs.add_parser("status", help="what runs")
    verbs.add_parser("env", help="shell lines that point Slurm's commands at it")
    image = verbs.add_parser("image", help="build images that are missing, print their paths")
    image.add_argument("names", nargs="*", choices=[[], *images.RECIPES], metavar="NAME")
    release = verbs.add_parser("release", help="another release of Slurm, in a chroot of a Debian suite")
    release.add_argument("suite", choices=list(OFFSETS))
    release.add_argument("order", choices=["up", "down"])
    chosen = parser.parse_args(arguments)
    try:
        return _VERBS[chosen.verb](chosen)
    except (Unavailable, TimeoutError, RuntimeError) as error:
        print(f"scripts/cluster {chosen.verb}: {error}", file=sys.stderr)
        return 1


def _up(chosen: argparse.Namespace) -> int:
    cluster = Cluster()
    begun = time.monotonic()
    cluster.up(min_job_age=chosen.min_job_age)
    print(f"up after {time.monotonic() - begun:.1f} s; users {', '.join(USERS)}")
    return _env(chosen)


def _down(_: argparse.Namespace) -> int:
    Cluster().down()
    return 0


def _status(_: argparse.Namespace) -> int:
    cluster = Cluster()
    for name, state in cluster.status().items():
        print(f"{name:12} {state}")
    return 0 if cluster.is_up() else 1


def _env(_: argparse.Namespace) -> int:
    for name, value in Cluster().environment.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _image(chosen: argparse.Namespace) -> int:
    layout = Cluster().layout
    print(apptainer.install(layout))
    status = 0
    for name in chosen.names or images.RECIPES:
        try:
            print(images.build(layout, name))
        except Unavailable as error:  # the others may be had all the same
            print(f"scripts/cluster image {name}: {error}", file=sys.stderr)
            status = 1
    return status


def _release(chosen: argparse.Namespace) -> int:
    cluster = ReleaseCluster(chosen.suite)
    if chosen.order == "down":
        cluster.down()
        return 0
    cluster.up()
    print(f"{cluster.command('sbatch', '--version').strip()} is up; its commands are in {cluster.programs}")
    print(f"export SLURM_CONF={shlex.quote(str(cluster.layout.slurm_conf))}")
    return 0


_VERBS = {"up": _up, "down": _down, "status": _status, "env": _env, "image": _image, "release": _release}
