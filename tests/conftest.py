"""What holds for all tests: which are in the quick ring, which may not run at the same time, which begin first, what no
generated example may depend on, and that no test leaves an error in a master's log.

A group of tests runs in one process, one test after the other. What a machine has one of (the test cluster and its
people, a Docker daemon) has a group for all tests that use it; other tests go with their folder, whose masters and
databases are then made once. pytest-xdist's own `xdist_group` does not do it: the process that deals out the tests sees
only their ids, and pytest 9.2 does not let it change these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.master import PREPARED, SERVING

# How fast a machine makes up examples and works on them says nothing about the code.
settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# What tests of a folder need: nothing; PostgreSQL; a master, jobs of `local`, a browser; Slurm, Docker, PBS or SSH.
RINGS = ("unit", "service", "process", "site")
# Folders and files below this one -> their group. The others' is the folder in their ring.
GROUPS = {
    "site/cluster": "slurm",
    "site/containers/test_apptainer.py": "slurm",
    "site/containers/test_cache.py": "slurm",
    "site/dispatchers/access/test_ssh.py": "slurm",
    "site/dispatchers/access/test_sudo.py": "slurm",
    "site/dispatchers/docker": "docker",
    "site/dispatchers/pbs": "pbs",
    "site/dispatchers/slurm": "slurm",
    "site/dispatchers/slurm/test_accounting.py": "accounts",
    "site/dispatchers/slurm/test_failover.py": "failover",
    "site/e2e/test_chaos.py": "chaos",
    "site/e2e/test_docker.py": "docker",
    "site/e2e/test_docker_frameworks.py": "docker",
    "site/e2e/test_docker_pools.py": "docker",
    "site/e2e/test_examples.py": "slurm",
    "site/e2e/test_fault_ring.py": "slurm",
    "site/e2e/test_job_environment.py": "slurm",
    "site/e2e/test_launchers.py": "slurm",
    "site/e2e/test_moves.py": "docker",
    "site/e2e/test_over_ssh.py": "slurm",
    "site/e2e/test_pbs.py": "pbs",
    "site/e2e/test_pbs_far.py": "slurm",
    "site/e2e/test_preemption.py": "preemption",
    "site/e2e/test_published_harness.py": "slurm",
    "site/e2e/test_slurm.py": "slurm",
    "site/e2e/test_slurm_containers.py": "slurm",
    "site/e2e/test_slurm_docker.py": "slurm",
    "site/e2e/test_started_again.py": "slurm",
    "site/e2e/test_users.py": "slurm",
    # Trainings share nothing: a group for each framework or two.
    "process/frameworks/test_deepspeed.py": "deepspeed",
    "process/frameworks/test_fsdp.py": "deepspeed",
    "process/frameworks/test_keras.py": "keras",
    "process/frameworks/test_lightning.py": "lightning",
    "process/frameworks/test_pytorch.py": "trial",
    "process/frameworks/test_published.py": "published",
    "process/frameworks/test_transformers.py": "transformers",
    "process/frameworks/test_trial.py": "trial",
    "process/frameworks/test_tutorials.py": "published",
    # Each file starts its stores, with a master for each, once.
    "process/storage/test_access.py": "stores",
    "process/storage/test_audit.py": "stores",
    "process/storage/test_checkpoints.py": "checkpoints in stores",
    "process/storage/test_conformance.py": "stores",
    "process/storage/test_events.py": "stores",
    "process/storage/test_faults.py": "faults of stores",
    "process/storage/test_ranks.py": "checkpoints in stores",
    # Half of the web page's tests: those on searches stay together, as do those on the list.
    "process/webui/test_chart.py": "pages",
    "process/webui/test_experiments.py": "pages",
    "process/webui/test_live.py": "pages",
    "process/webui/test_log.py": "pages",
    "unit/webui/test_modules.py": "pages",
    "process/webui/test_pure.py": "pages",
    "process/webui/test_shell.py": "pages",
}
# Fixture -> the groups of which tests that ask for it must be in one, by however many steps they do.
ONE_OF_A_KIND = {
    "accounted_cluster": ("accounts",),
    "batch_engine": ("slurm",),  # jobs of the cluster run in it
    "docker_engine": ("docker",),
    "failover_cluster": ("failover",),
    "helper_installed": ("slurm",),  # a sudoers file, and groups that the cluster's people are put into
    "pbs_site": ("pbs", "slurm"),  # other people's jobs are nothing new to a PBS
    "preempting_cluster": ("preemption",),
    "slurm_cluster": ("slurm",),
    "ssh_server": ("slurm",),  # the homes of the cluster's people
}
# So that all processes end at about the same time. The rest is short.
LONGEST_FIRST = (
    *("slurm", "pbs", "e2e", "docker", "security", "pages", "webui", "docs", "contract"),
    *("keras", "transformers", "lightning", "deepspeed", "trial", "published"),
    *("chaos", "accounts", "preemption", "launchers", "api", "cli"),
)


# The quick ring: what needs no scheduler, no container and no root. `scripts/test quick` runs it. The queue of the
# `local` dispatcher is a scheduler too: tests whose point is what a user's program does are not in the ring.
QUICK = ("agent", "api", "cli", "client", "config", "containers", "core", "dispatchers", "master", "runtime", "search")
NOT_QUICK = frozenset(
    {"apptainer", "browser", "docker", "pbs", "programs", "releases", "ring", "slow", "slurm"}  # marks
)
NEEDS_MORE = frozenset({"apptainer_command", "ch_run", "squashfs", "running", "long_config", "stage"})  # fixtures


def is_quick(item: pytest.Item) -> bool:
    ring, *below = Path(item.nodeid.partition("::")[0]).relative_to("tests").parts
    known = {*getattr(item, "fixturenames", ())}
    return (
        ring in ("unit", "service", "process")
        and below[0] in QUICK
        and group_of(item.nodeid) in QUICK
        and not known & {*ONE_OF_A_KIND, *NEEDS_MORE}
        and not any(item.get_closest_marker(mark) for mark in NOT_QUICK)
    )


def group_of(test: str) -> str:
    """The group of a test, by its id or path from the repository on."""
    path = Path(test.partition("::")[0]).relative_to("tests")
    named = (GROUPS.get(str(place)) for place in (path, *path.parents))
    return next(filter(None, named), path.parts[1] if path.parts[0] in RINGS else path.parts[0])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read only the folders of the quick ring when it is all that is asked for."""
    folders = Path(__file__).parent
    if config.option.markexpr == "quick" and collection_path.is_dir():
        if collection_path.parent == folders:
            return collection_path.name == "site"
        if collection_path.parent.parent == folders and collection_path.parent.name in RINGS:
            return collection_path.name not in QUICK
    return None


def pytest_itemcollected(item: pytest.Item) -> None:
    if is_quick(item):
        item.add_marker("quick")
    for fixture in getattr(item, "fixturenames", ()):
        wanted = ONE_OF_A_KIND.get(fixture)
        if wanted is not None and group_of(item.nodeid) not in wanted:
            raise pytest.UsageError(
                f"{item.nodeid} uses {fixture}: put its file into {' or '.join(wanted)} in tests/conftest.py."
            )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes
        order = {group: place for place, group in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: order.get(group_of(item.nodeid), len(order)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup`: whole groups go to whichever process is free, in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            group = group_of(nodeid)
            # Files of the quick ring may run in any process, each of which then has masters and a database of its own.
            return nodeid.partition("::")[0] if group in QUICK else group

    if config.getoption("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return Groups(config, log)


def pytest_unconfigure() -> None:
    PREPARED.remove()


@pytest.fixture(autouse=True)
def _no_errors_in_logs() -> Iterator[None]:
    yield
    errors = [line for master in SERVING for line in master.new_errors()]
    assert errors == [], "lines of a master's log"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How long each group took, for LONGEST_FIRST."""
    reports = [one for found in terminalreporter.stats.values() for one in found if isinstance(one, pytest.TestReport)]
    spent: Counter[str] = Counter()
    for report in reports:
        spent[group_of(report.nodeid)] += report.duration  # type: ignore[assignment]
    if len(spent) > 1:
        groups = ", ".join(f"{group} {seconds:.0f}" for group, seconds in spent.most_common())
        terminalreporter.write_line(f"Seconds that each group took: {groups}")
