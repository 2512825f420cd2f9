"""For all tests."""

from __future__ import annotations

import pytest

ONE_AT_A_TIME = frozenset({"slurm_cluster", "docker_engine", "pbs_site"})
"""Fixtures that a machine has only one of."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `-n`, a file's tests stay together, and all that want the test cluster run one after the other."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        shared = ONE_AT_A_TIME.intersection(getattr(item, "fixturenames", ()))
        item.add_marker(pytest.mark.xdist_group("cluster" if shared else item.nodeid.partition("::")[0]))
